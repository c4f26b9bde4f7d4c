"""Random histories of a saver against a model in memory: after every step both hold the same.

A crash is what a machine leaves that stops in the middle of a write: the database and its log as
they stand in that moment, pages of the open transaction among them. What was acknowledged is there.
A power cut takes the end of the log with it: then there is what was there after some earlier step,
whole.
"""

from __future__ import annotations

import copy
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from langchain_core.messages import AIMessage, HumanMessage
from langgraph.checkpoint.base import WRITES_IDX_MAP
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from sqlalchemy import Connection, text

from tallystick import Actor, Tally
from tallystick.tally.services import services_of
from tallystick_langgraph import TallySaver

ALICE = Actor(user="alice")
OFFICIAL = JsonPlusSerializer(allowed_msgpack_modules=None)

_threads = st.sampled_from(["a", "b"])
_namespaces = st.sampled_from(["", "child:1"])
_number = st.integers(0, 10**6)
steps = st.lists(
    st.one_of(
        st.tuples(st.just("append"), _threads, _namespaces, st.integers(1, 40)),
        st.tuples(st.just("edit"), _threads, _namespaces, _number),
        st.tuples(st.just("drop"), _threads, _namespaces, _number),
        st.tuples(st.just("file"), _threads, _namespaces, st.integers(0, 40)),
        st.tuples(st.just("write"), _threads, _namespaces, _number),
        st.tuples(st.just("write ahead"), _threads, _namespaces, _number),
        st.tuples(st.just("special"), _threads, _namespaces, _number),
        st.tuples(st.just("fork"), _threads, _namespaces, _number),
        st.tuples(st.just("again"), _threads, _namespaces, _number),
        st.tuples(st.just("copy"), _threads, _namespaces, _number),
        st.tuples(st.just("prune"), _threads, _namespaces, _number),
        st.tuples(st.just("delete run"), _threads, _namespaces, st.integers(0, 2)),
        st.tuples(st.just("delete"), _threads, _namespaces, _number),
        st.tuples(st.just("reopen"), _threads, _namespaces, _number),
        st.tuples(st.just("crash"), _threads, _namespaces, _number),
        st.tuples(st.just("power cut"), _threads, _namespaces, _number),
    ),
    max_size=25,
)


class Model:
    """What a saver should hold: values as LangGraph's serializer would give them back."""

    def __init__(self) -> None:
        self.states: dict[tuple[str, str, str], dict[str, Any]] = {}
        self.writes: dict[tuple[str, str, str], dict[tuple[str, str, int], tuple[str, Any]]] = {}

    def ids(self, thread: str, namespace: str) -> list[str]:
        return sorted(id for name, ns, id in self.states if (name, ns) == (thread, namespace))

    def of(self, thread: str) -> list[tuple[str, str, str]]:
        return [place for place in {*self.states, *self.writes} if place[0] == thread]

    def drop(self, places: Sequence[tuple[str, str, str]]) -> None:
        for place in places:
            self.states.pop(place, None)
            self.writes.pop(place, None)


class _Crash(Exception):
    """The machine stops here."""


class Play:
    """A saver and a model under the same steps."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.lives = folder, 0
        self.model, self.count = Model(), 0
        self.earlier: list[Model] = [Model()]
        self.heads: dict[tuple[str, str], dict[str, Any]] = {}
        self.open()

    def open(self) -> None:
        self.tally = Tally.open(self.folder / str(self.lives), background=False)
        self.earlier.append(copy.deepcopy(self.model))
        self.file = self.database.read_bytes()

    def close(self) -> None:
        """All of the log goes into the database."""
        self.tally.close()
        self.earlier = []

    @property
    def database(self) -> Path:
        return self.folder / str(self.lives) / "tally.db"

    @property
    def saver(self) -> TallySaver:
        return TallySaver(self.tally.bind(ALICE))

    def config(self, thread: str, namespace: str, id: str | None = None) -> Any:
        named = {} if id is None else {"checkpoint_id": id}
        return {"configurable": {"thread_id": thread, "checkpoint_ns": namespace, **named}}

    def next_id(self) -> str:
        self.count += 1
        return f"{self.count:08}"

    def put(
        self,
        thread: str,
        namespace: str,
        parent: str | None,
        values: dict[str, Any],
        id: str | None = None,
    ) -> None:
        id = id or self.next_id()
        checkpoint: Any = {
            "v": 4,
            "id": id,
            "ts": "t",
            "channel_values": values,
            "channel_versions": dict.fromkeys(values, 1),
            "versions_seen": {},
            "updated_channels": None,
        }
        metadata: Any = {"step": self.count, "run_id": f"{self.count % 3}"}
        # No channel is said to have changed: what counts is what the values are.
        self.saver.put(self.config(thread, namespace, parent), checkpoint, metadata, {})
        self.model.states[thread, namespace, id] = {
            "values": OFFICIAL.loads_typed(OFFICIAL.dumps_typed(values)),
            "metadata": metadata,
            "parent": parent,
        }

    def write(
        self, thread: str, namespace: str, id: str, channel: str, value: Any, task: str
    ) -> None:
        self.saver.put_writes(self.config(thread, namespace, id), [(channel, value)], task, "path")
        place = WRITES_IDX_MAP.get(channel, 0)
        writes = self.model.writes.setdefault((thread, namespace, id), {})
        if place < 0 or ("path", task, place) not in writes:
            writes["path", task, place] = (
                channel,
                OFFICIAL.loads_typed(OFFICIAL.dumps_typed(value)),
            )

    def step(self, kind: str, thread: str, namespace: str, number: int) -> None:
        ids = self.model.ids(thread, namespace)
        head = ids[-1] if ids else None
        held = self.heads.setdefault((thread, namespace), {"messages": [], "files": {}, "n": 0})
        messages: list[Any] = held["messages"]
        if kind == "append":
            messages += [
                (HumanMessage if place % 2 else AIMessage)(
                    f"message {self.count}.{place}", id=f"{self.count}.{place}"
                )
                for place in range(number)
            ]
            self.put(thread, namespace, head, held)
        elif kind == "edit" and messages:
            messages[number % len(messages)].additional_kwargs["edited"] = [
                1,
                1.0,
                True,
                None,
                number,
            ][number % 5]
            self.put(thread, namespace, head, held)
        elif kind == "drop" and messages:
            del messages[number % len(messages) : number % len(messages) + 3]
            self.put(thread, namespace, head, held)
        elif kind == "file":
            held["files"].update(
                {f"file {place}": {"text": "x" * 200, "n": number} for place in range(number)}
            )
            self.put(thread, namespace, head, held)
        elif kind == "fork" and ids:
            self.put(thread, namespace, ids[number % len(ids)], {**held, "n": number})
        elif kind == "again" and ids:
            id = ids[number % len(ids)]
            self.put(
                thread,
                namespace,
                self.model.states[thread, namespace, id]["parent"],
                {"n": number},
                id,
            )
        elif kind in ("write", "special") and ids:
            channel = "__interrupt__" if kind == "special" else "messages"
            self.write(
                thread,
                namespace,
                ids[number % len(ids)],
                channel,
                [*messages[-1:], number],
                f"task {number % 3}",
            )
        elif kind == "write ahead":
            id = self.next_id()
            self.write(thread, namespace, id, "messages", messages[-2:], "early")
            self.put(thread, namespace, head, held, id)
        elif kind == "copy":
            self.copy(thread, "b" if thread == "a" else "a")
        elif kind == "prune":
            self.saver.prune([thread])
            self.model.drop(
                [
                    place
                    for place in self.model.of(thread)
                    if place in self.model.states
                    and place[2] != self.model.ids(thread, place[1])[-1]
                ]
            )
        elif kind == "delete run":
            run_id = f"{number}"
            self.saver.delete_for_runs([run_id])
            self.model.drop(
                [
                    place
                    for place, state in list(self.model.states.items())
                    if state["metadata"]["run_id"] == run_id
                ]
            )
        elif kind == "delete":
            self.saver.delete_thread(thread)
            self.model.drop(self.model.of(thread))
        elif kind == "reopen":
            self.close()
            self.open()
        elif kind in ("crash", "power cut"):
            self.crash(number if kind == "power cut" else None)
        self.earlier.append(copy.deepcopy(self.model))
        if kind in ("reopen", "crash", "power cut"):
            assert self.tally.bind(ALICE).threads.verify() == []

    def crash(self, lost: int | None) -> None:
        """Go on with the files as they stand in the middle of a write; `lost` says how much of the
        log is lost.
        """
        next_life = self.folder / str(self.lives + 1)

        def unit(tx: Connection) -> None:
            tx.exec_driver_sql("PRAGMA cache_size=10")
            tx.execute(
                text("INSERT INTO settings (name, value) VALUES ('crash', :value)"),
                {"value": "x" * 300_000},
            )
            shutil.copytree(
                self.database.parent, next_life, ignore=shutil.ignore_patterns("*-shm", "chroma")
            )
            raise _Crash

        with pytest.raises(_Crash):
            services_of(self.tally).store.database.write(unit, name="crash")
        untouched = self.database.read_bytes() == self.file
        self.tally.close()
        self.lives += 1
        log = self.database.with_name("tally.db-wal")
        # What was moved from the log into the database had reached the disk before: only what was
        # not may be lost.
        if lost is not None and untouched and log.stat().st_size:
            with log.open("r+b") as file:
                file.truncate(lost % log.stat().st_size)
            self.tally = Tally.open(self.database.parent, background=False)
            held = repr(self.held())
            self.model = next(
                model for model in reversed(self.earlier) if repr(_expected(model)) == held
            )
            self.close()
        self.open()

    def copy(self, source: str, target: str) -> None:
        self.saver.copy_thread(source, target)
        for place in self.model.of(source):
            there = (target, *place[1:])
            if place in self.model.states:
                self.model.states[there] = copy.deepcopy(self.model.states[place])
            if place in self.model.writes:
                self.model.writes.setdefault(there, {}).update(
                    copy.deepcopy(self.model.writes[place])
                )

    def held(self) -> dict[Any, Any]:
        """What the saver gives for every thread and namespace."""
        contents = {}
        for thread in ("a", "b"):
            for namespace in ("", "child:1"):
                listed = list(self.saver.list(self.config(thread, namespace)))
                assert [checkpoint.checkpoint["id"] for checkpoint in listed] == sorted(
                    (checkpoint.checkpoint["id"] for checkpoint in listed), reverse=True
                )
                for checkpoint in listed:
                    id = checkpoint.checkpoint["id"]
                    above: Any = checkpoint.parent_config
                    parent = above["configurable"]["checkpoint_id"] if above else None
                    contents[thread, namespace, id] = (
                        dict(checkpoint.checkpoint["channel_values"]),
                        dict(checkpoint.metadata),
                        parent,
                        checkpoint.pending_writes,
                    )
                latest = self.saver.get_tuple(self.config(thread, namespace))
                assert (latest and latest.checkpoint["id"]) == (
                    listed[0].checkpoint["id"] if listed else None
                )
                if latest is not None:
                    assert (
                        latest.checkpoint["channel_values"]
                        == listed[0].checkpoint["channel_values"]
                    )
        return contents


def _expected(model: Model) -> dict[Any, Any]:
    """What the saver should give, in the order in which it is asked."""
    order = sorted(model.states, key=lambda place: place[2], reverse=True)
    return {
        place: (
            model.states[place]["values"],
            model.states[place]["metadata"],
            model.states[place]["parent"],
            [(task, *write) for (_, task, _), write in sorted(model.writes.get(place, {}).items())],
        )
        for place in sorted(order, key=lambda place: place[:2])
    }


@given(steps)
@settings(
    max_examples=15,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
def test_a_saver_holds_what_a_model_in_memory_holds(
    tmp_path_factory: pytest.TempPathFactory, record: list[tuple[str, str, str, int]]
) -> None:
    play = Play(tmp_path_factory.mktemp("play"))
    try:
        for entry in record:
            play.step(*entry)
            assert repr(play.held()) == repr(_expected(play.model))
        play.step("reopen", "a", "", 0)
        assert repr(play.held()) == repr(_expected(play.model))
        for thread in ("a", "b"):
            play.saver.delete_thread(thread)
        # Nothing of a thread is left once it is deleted: what only it needed went with it.
        with services_of(play.tally).store.database.read() as connection:
            left = [
                connection.execute(text(f"SELECT count(*) FROM {table}")).scalar()
                for table in ("thread_states", "thread_writes", "tree_parts", "tree_holds")
            ]
        assert left == [0, 0, 0, 0]
    finally:
        play.tally.close()
