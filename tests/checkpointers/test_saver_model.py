"""Random histories of a saver against a model in memory: after every step both hold the same."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from langchain_core.messages import AIMessage, HumanMessage
from langgraph.checkpoint.base import WRITES_IDX_MAP
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from sqlalchemy import text

from tallystick import Actor, Tally
from tallystick_langgraph import TallySaver

OpenTally = Callable[..., Tally]
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
    ),
    max_size=25,
)


class Model:
    """What a saver should hold: values as LangGraph's serializer would give them back."""

    def __init__(self) -> None:
        self.states: dict[tuple[str, str, str], dict[str, Any]] = {}
        self.writes: dict[tuple[str, str, str], dict[tuple[str, str, int], tuple[str, Any]]] = {}

    def ids(self, thread: str, namespace: str) -> list[str]:
        return sorted(id for one, ns, id in self.states if (one, ns) == (thread, namespace))

    def of(self, thread: str) -> list[tuple[str, str, str]]:
        return [place for place in {*self.states, *self.writes} if place[0] == thread]

    def drop(self, places: Sequence[tuple[str, str, str]]) -> None:
        for place in places:
            self.states.pop(place, None)
            self.writes.pop(place, None)


class Play:
    """A saver and a model under the same steps."""

    def __init__(self, open_tally: OpenTally, prefix: str) -> None:
        self.open_tally, self.prefix = open_tally, prefix
        self.model, self.count = Model(), 0
        self.heads: dict[tuple[str, str], dict[str, Any]] = {}
        self.tally = open_tally()

    @property
    def saver(self) -> TallySaver:
        return TallySaver(self.tally.bind(ALICE))

    def config(self, thread: str, namespace: str, id: str | None = None) -> Any:
        named = {} if id is None else {"checkpoint_id": id}
        return {"configurable": {"thread_id": self.prefix + thread, "checkpoint_ns": namespace, **named}}

    def next_id(self) -> str:
        self.count += 1
        return f"{self.count:08}"

    def put(
        self, thread: str, namespace: str, parent: str | None, values: dict[str, Any], id: str | None = None
    ) -> None:
        id = id or self.next_id()
        checkpoint: Any = {
            "v": 4, "id": id, "ts": "t", "channel_values": values, "channel_versions": dict.fromkeys(values, 1),
            "versions_seen": {}, "updated_channels": None,
        }  # fmt: skip
        metadata: Any = {"step": self.count, "run_id": f"{self.prefix}{self.count % 3}"}
        # No channel is said to have changed: what counts is what the values are.
        self.saver.put(self.config(thread, namespace, parent), checkpoint, metadata, {})
        self.model.states[thread, namespace, id] = {
            "values": OFFICIAL.loads_typed(OFFICIAL.dumps_typed(values)), "metadata": metadata, "parent": parent,
        }  # fmt: skip

    def write(self, thread: str, namespace: str, id: str, channel: str, value: Any, task: str) -> None:
        self.saver.put_writes(self.config(thread, namespace, id), [(channel, value)], task, "path")
        place = WRITES_IDX_MAP.get(channel, 0)
        kept = self.model.writes.setdefault((thread, namespace, id), {})
        if place < 0 or ("path", task, place) not in kept:
            kept["path", task, place] = (channel, OFFICIAL.loads_typed(OFFICIAL.dumps_typed(value)))

    def step(self, kind: str, thread: str, namespace: str, number: int) -> None:
        ids = self.model.ids(thread, namespace)
        head = ids[-1] if ids else None
        held = self.heads.setdefault((thread, namespace), {"messages": [], "files": {}, "n": 0})
        messages: list[Any] = held["messages"]
        if kind == "append":
            messages += [
                (HumanMessage if place % 2 else AIMessage)(f"message {self.count}.{place}", id=f"{self.count}.{place}")
                for place in range(number)
            ]
            self.put(thread, namespace, head, held)
        elif kind == "edit" and messages:
            messages[number % len(messages)].additional_kwargs["edited"] = [1, 1.0, True, None, number][number % 5]
            self.put(thread, namespace, head, held)
        elif kind == "drop" and messages:
            del messages[number % len(messages) : number % len(messages) + 3]
            self.put(thread, namespace, head, held)
        elif kind == "file":
            held["files"].update({f"file {place}": {"text": "x" * 200, "n": number} for place in range(number)})
            self.put(thread, namespace, head, held)
        elif kind == "fork" and ids:
            self.put(thread, namespace, ids[number % len(ids)], {**held, "n": number})
        elif kind == "again" and ids:
            id = ids[number % len(ids)]
            self.put(thread, namespace, self.model.states[thread, namespace, id]["parent"], {"n": number}, id)
        elif kind in ("write", "special") and ids:
            channel = "__interrupt__" if kind == "special" else "messages"
            self.write(
                thread, namespace, ids[number % len(ids)], channel, [*messages[-1:], number], f"task {number % 3}"
            )
        elif kind == "write ahead":
            id = self.next_id()
            self.write(thread, namespace, id, "messages", messages[-2:], "early")
            self.put(thread, namespace, head, held, id)
        elif kind == "copy":
            self.copy(thread, "b" if thread == "a" else "a")
        elif kind == "prune":
            self.saver.prune([self.prefix + thread])
            self.model.drop([place for place in self.model.of(thread) if place in self.model.states
                             and place[2] != self.model.ids(thread, place[1])[-1]])  # fmt: skip
        elif kind == "delete run":
            run_id = f"{self.prefix}{number}"
            self.saver.delete_for_runs([run_id])
            self.model.drop([
                place for place, one in list(self.model.states.items()) if one["metadata"]["run_id"] == run_id
            ])  # fmt: skip
        elif kind == "delete":
            self.saver.delete_thread(self.prefix + thread)
            self.model.drop(self.model.of(thread))
        elif kind == "reopen":
            self.tally.close()
            self.tally = self.open_tally()

    def copy(self, source: str, target: str) -> None:
        self.saver.copy_thread(self.prefix + source, self.prefix + target)
        for place in self.model.of(source):
            there = (target, *place[1:])
            if place in self.model.states:
                self.model.states[there] = copy.deepcopy(self.model.states[place])
            if place in self.model.writes:
                self.model.writes.setdefault(there, {}).update(copy.deepcopy(self.model.writes[place]))

    def held(self) -> dict[Any, Any]:
        """What the saver gives for every thread and namespace."""
        found = {}
        for thread in ("a", "b"):
            for namespace in ("", "child:1"):
                listed = list(self.saver.list(self.config(thread, namespace)))
                assert [one.checkpoint["id"] for one in listed] == sorted(
                    (one.checkpoint["id"] for one in listed), reverse=True
                )
                for one in listed:
                    id = one.checkpoint["id"]
                    above: Any = one.parent_config
                    parent = above["configurable"]["checkpoint_id"] if above else None
                    found[thread, namespace, id] = (
                        dict(one.checkpoint["channel_values"]), dict(one.metadata), parent, one.pending_writes,
                    )  # fmt: skip
                latest = self.saver.get_tuple(self.config(thread, namespace))
                assert (latest and latest.checkpoint["id"]) == (listed[0].checkpoint["id"] if listed else None)
                if latest is not None:
                    assert latest.checkpoint["channel_values"] == listed[0].checkpoint["channel_values"]
        return found

    def expected(self) -> dict[Any, Any]:
        return {
            place: (
                state["values"], state["metadata"], state["parent"],
                [(task, *write) for (_, task, _), write in sorted(self.model.writes.get(place, {}).items())],
            )
            for place, state in self.model.states.items()
        }  # fmt: skip


@pytest.fixture
def numbered() -> Callable[[], str]:
    numbers = iter(range(10**6))
    return lambda: f"{next(numbers)}-"


@given(steps)
@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
def test_a_saver_holds_what_a_model_in_memory_holds(
    open_sqlite: OpenTally, numbered: Callable[[], str], taken: list[tuple[str, str, str, int]]
) -> None:
    play = Play(open_sqlite, numbered())
    try:
        for one in taken:
            play.step(*one)
            assert repr(play.held()) == repr({place: play.expected()[place] for place in play.held()})
            assert play.held().keys() == play.expected().keys()
        play.tally.close()
        play.tally = open_sqlite()
        assert repr(play.held()) == repr({place: play.expected()[place] for place in play.held()})
        for thread in ("a", "b"):
            play.saver.delete_thread(play.prefix + thread)
        # Nothing of a thread is left once it is deleted: what only it needed went with it.
        with play.tally.store.database.read() as connection:
            left = [
                connection.execute(text(f"SELECT count(*) FROM {table}")).scalar()
                for table in ("thread_states", "thread_writes", "tree_parts", "tree_holds")
            ]
        assert left == [0, 0, 0, 0]
    finally:
        play.tally.close()
