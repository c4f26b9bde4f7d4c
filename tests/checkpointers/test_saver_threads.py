"""What happens to whole threads: DeltaChannels, pruning, runs, time to live, listing, processes
side by side.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Any

import pytest
from hypothesis import settings
from langchain_core.messages import AIMessage, HumanMessage
from langchain_core.runnables import RunnableConfig
from langgraph.channels.delta import DeltaChannel
from langgraph.checkpoint.base import BaseCheckpointSaver, empty_checkpoint
from langgraph.graph import END, START, StateGraph
from langgraph.graph.message import _messages_delta_reducer, add_messages
from sqlalchemy import select, text
from typing_extensions import TypedDict

from tallystick import Actor, Tally
from tallystick.checkpoints import Leaf, NewCheckpoint, Threads
from tallystick.errors import Conflict, CorruptTally, Denied, InvalidInput, StateConflict
from tallystick.storage.engine import tables
from tallystick.tally.services import services_of
from tallystick.testing import StepClock
from tallystick_langgraph import TallySaver

OpenTally = Callable[..., Tally]
ALICE = Actor(user="alice")


_reducer: Any = _messages_delta_reducer


class _Delta(TypedDict):
    messages: Annotated[list[Any], DeltaChannel(_reducer, snapshot_frequency=4)]


class _Plain(TypedDict):
    messages: Annotated[list[Any], add_messages]


def _config(thread: str = "t", **named: Any) -> RunnableConfig:
    return {"configurable": {"thread_id": thread, "checkpoint_ns": "", **named}}


def _chat(saver: BaseCheckpointSaver[Any], schema: Any) -> Any:
    def answer(state: Any) -> dict[str, Any]:
        count = len(state["messages"])
        return {"messages": [AIMessage(f"answer {count}", id=f"a{count}")]}

    graph = StateGraph(schema)
    graph.add_node("answer", answer)
    graph.add_edge(START, "answer")
    graph.add_edge("answer", END)
    return graph.compile(checkpointer=saver)


def _say(chat: Any, *words: str, thread: str = "t", **named: Any) -> list[str]:
    for word in words:
        chat.invoke({"messages": [HumanMessage(word, id=word)]}, _config(thread, **named))
    return _said(chat, thread)


def _said(chat: Any, thread: str = "t") -> list[str]:
    return [
        message.content for message in chat.get_state(_config(thread)).values.get("messages", [])
    ]


def _count(tally: Tally, table: str) -> int:
    with services_of(tally).store.database.read() as connection:
        return int(connection.execute(text(f"SELECT count(*) FROM {table}")).scalar_one())


# DeltaChannel


@pytest.mark.parametrize("turns", [1, 3, 5, 9])
def test_a_delta_channel_is_rebuilt_at_every_checkpoint(open_tally: OpenTally, turns: int) -> None:
    words = [f"word {number}" for number in range(turns)]
    with open_tally() as tally:
        saver = TallySaver(tally.bind(ALICE))
        plain, delta = _chat(saver, _Plain), _chat(saver, _Delta)
        _say(plain, *words, thread="plain")
        _say(delta, *words, thread="delta")
        histories = [
            [
                [message.content for message in state.values.get("messages", [])]
                for state in chat.get_state_history(_config(thread))
            ]
            for chat, thread in ((plain, "plain"), (delta, "delta"))
        ]

    assert histories[0] == histories[1]


def test_the_history_of_a_delta_channel_is_that_of_the_base_class(open_sqlite: OpenTally) -> None:
    """Same writes in the same order, same seed, on a thread with a fork, and nothing for a channel
    that is unknown.
    """
    with open_sqlite() as tally:
        saver = TallySaver(tally)
        chat = _chat(saver, _Delta)
        _say(chat, *(f"word {number}" for number in range(7)))
        states = list(chat.get_state_history(_config()))
        chat.invoke({"messages": [HumanMessage("fork", id="fork")]}, states[5].config)
        for state in chat.get_state_history(_config()):
            ours = saver.get_delta_channel_history(
                config=state.config, channels=["messages", "unknown"]
            )
            theirs = BaseCheckpointSaver.get_delta_channel_history(
                saver, config=state.config, channels=["messages", "unknown"]
            )
            assert repr(ours) == repr(theirs)
        assert saver.get_delta_channel_history(config=_config(), channels=[]) == {}
        assert asyncio.run(
            saver.aget_delta_channel_history(config=_config(), channels=["messages"])
        ).keys() == {"messages"}


@pytest.mark.parametrize("turns", range(1, 10))
def test_pruning_keeps_what_a_delta_channel_is_rebuilt_from(
    open_sqlite: OpenTally, turns: int
) -> None:
    with open_sqlite() as tally:
        saver = TallySaver(tally)
        chat = _chat(saver, _Delta)
        before = _say(chat, *(f"word {number}" for number in range(turns)))
        saver.prune(["t"])
        remaining = len(list(saver.history(_config())))

        assert _said(chat) == before
        assert remaining <= 3 * 4 + 1
        assert len(_say(chat, "after")) == 2 * turns + 2


def test_copying_carries_what_a_delta_channel_is_rebuilt_from(open_sqlite: OpenTally) -> None:
    with open_sqlite() as tally:
        saver = TallySaver(tally)
        chat = _chat(saver, _Delta)
        before = _say(chat, "one", "two", "three")
        saver.copy_thread("t", "copy")
        saver.delete_thread("t")

        assert _said(chat, "copy") == before
        assert _said(chat) == []


def test_deleting_a_run_that_a_later_state_is_rebuilt_from_is_refused(
    open_sqlite: OpenTally,
) -> None:
    with open_sqlite() as tally:
        saver = TallySaver(tally)
        chat = _chat(saver, _Delta)
        _say(chat, "one", run_id="first")
        before = _say(chat, "two", run_id="second")
        with pytest.raises(Conflict, match="Nothing was removed"):
            saver.delete_for_runs(["first"])

        assert _said(chat) == before


# Runs, pruning, copies


def test_a_run_that_is_named_in_the_config_can_be_deleted(open_tally: OpenTally) -> None:
    with open_tally() as tally:
        saver = TallySaver(tally.bind(ALICE))
        chat = _chat(saver, _Plain)
        _say(chat, "one", run_id="first")
        _say(chat, "two", run_id="second")
        saver.delete_for_runs(["second"])

        assert _said(chat) == ["one", "answer 1"]


def test_a_deleted_thread_takes_along_what_was_kept_for_its_turns(open_tally: OpenTally) -> None:
    with open_tally() as tally:
        alice = tally.bind(ALICE)
        alice.remember("The heron nests by the mill.", kind="fact")
        _say(_chat(TallySaver(alice), _Plain), "one")
        for thread in ("t", "other"):
            alice.working.set("plan", "read", lifetime="thread", thread=thread)
            assert alice.working_set("Where?", conversation=thread).pieces
        TallySaver(alice).delete_thread("t")

        assert alice.working.list(thread="t") == []
        assert [value.name for value in alice.working.list(thread="other")] == ["plan"]
        with services_of(tally).store.database.read() as connection:
            kept = connection.execute(select(tables.working.c.lifetime, tables.working.c.holder))
            assert ("session", "t") not in {tuple(row) for row in kept}


def test_pruning_keeps_a_paused_graph_resumable(open_sqlite: OpenTally) -> None:
    from langgraph.types import Command, interrupt

    def ask(state: Any) -> dict[str, Any]:
        return {"messages": [HumanMessage(interrupt("may I?"), id="answer")]}

    graph = StateGraph(_Plain)
    graph.add_node("ask", ask)
    graph.add_edge(START, "ask")
    graph.add_edge("ask", END)
    with open_sqlite() as tally:
        saver = TallySaver(tally)
        compiled = graph.compile(checkpointer=saver)
        compiled.invoke({"messages": [HumanMessage("go", id="go")]}, _config())
        saver.prune(["t"])
        result = compiled.invoke(Command(resume="yes"), _config())

    assert [message.content for message in result["messages"]] == ["go", "yes"]


def test_a_copy_shares_its_content_and_outlives_its_source(open_tally: OpenTally) -> None:
    with open_tally() as tally:
        saver = TallySaver(tally.bind(ALICE))
        chat = _chat(saver, _Plain)
        before = _say(chat, *(f"word {number}" for number in range(20)))
        pieces = _count(tally, "tree_parts")
        saver.copy_thread("t", "copy")
        shared = _count(tally, "tree_parts")
        saver.delete_thread("t")
        contents = _said(chat, "copy")
        saver.delete_thread("copy")

        assert (shared, contents, _count(tally, "tree_parts")) == (pieces, before, 0)


def test_another_actor_reaches_none_of_a_thread(open_sqlite: OpenTally) -> None:
    with open_sqlite() as tally:
        alice, bob = (TallySaver(tally.bind(Actor(user=name))) for name in ("alice", "bob"))
        before = _say(_chat(alice, _Plain), "secret")
        head = alice.get_tuple(_config())
        assert head is not None
        bob.delete_thread("t")
        bob.prune(["t"], strategy="delete")
        bob.copy_thread("t", "mine")
        bob.delete_for_runs([""])

        assert (
            bob.get_tuple(head.config),
            list(bob.list(None)),
            list(bob.history(_config("mine"))),
        ) == (None, [], [])
        assert bob.get_delta_channel_history(config=head.config, channels=["messages"]) == {
            "messages": {"writes": []}
        }
        assert _said(_chat(alice, _Plain)) == before


def test_an_unknown_strategy_is_refused(open_sqlite: OpenTally) -> None:
    with open_sqlite() as tally, pytest.raises(InvalidInput, match="keep_latest"):
        TallySaver(tally).prune(["t"], strategy="keep_some")


# Time to live


def test_a_thread_ends_when_its_time_is_over(open_sqlite: OpenTally) -> None:
    clock = StepClock()
    with open_sqlite(clock=clock) as tally:
        saver = TallySaver(tally, ttl=timedelta(hours=1))
        chat, forever = _chat(saver, _Plain), _chat(TallySaver(tally), _Plain)
        _say(chat, "one")
        _say(forever, "stays", thread="forever")
        clock.advance(seconds=50 * 60)
        renewed = _say(chat, "two")
        clock.advance(seconds=61 * 60)
        gone = (_said(chat), list(saver.history(_config())))
        anew = _say(chat, "three")
        clock.advance(seconds=61 * 60)
        removed = saver.expire()

        assert (len(renewed), gone, anew, removed) == (4, ([], []), ["three", "answer 1"], 1)
        assert _said(forever, "forever") == ["stays", "answer 1"]
        assert _count(tally, "threads") == 1


# Listing


def _put(saver: TallySaver, number: int, thread: str = "t", **metadata: Any) -> None:
    checkpoint: Any = {
        **empty_checkpoint(),
        "id": f"{number:06}",
        "channel_values": {"n": [number]},
    }
    saver.put(_config(thread), checkpoint, {"step": number, **metadata}, {})  # type: ignore[typeddict-item]


def test_filters_compare_as_json_on_every_database(open_tally: OpenTally) -> None:
    values: list[Any] = [
        1,
        True,
        1.0,
        "1",
        None,
        {"a": [1, {"b": None}]},
        [1],
        'it\'s; DROP %_\\ "x" \u2028',
    ]
    with open_tally() as tally:
        saver = TallySaver(tally.bind(ALICE))
        for number, value in enumerate(values):
            _put(saver, number, **{"a key.with 'dots'": value})
        _put(saver, len(values))

        def found(value: Any, name: str = "a key.with 'dots'") -> list[int]:
            return [
                int(summary.checkpoint["id"])
                for summary in saver.list(_config(), filter={name: value})
            ][::-1]

        assert [found(value) for value in values] == [
            [0, 2],
            [1],
            [0, 2],
            [3],
            [4, 8],
            [5],
            [6],
            [7],
        ]
        assert found(None, "missing") == list(range(9))
        assert [
            summary.id
            for summary in saver.history(_config(), filter={"step": 3, "a key.with 'dots'": "1"})
        ] == ["000003"]
        assert [
            summary.id
            for summary in saver.history(_config(), filter={"step": 3, "a key.with 'dots'": "2"})
        ] == []


def test_listing_pages_backwards_without_gaps(open_tally: OpenTally) -> None:
    with open_tally() as tally:
        saver = TallySaver(tally.bind(ALICE))
        for number in range(120):
            _put(saver, number, parity=number % 2)
        listed = [int(checkpoint.checkpoint["id"]) for checkpoint in saver.list(_config())]
        odd = [
            int(checkpoint.checkpoint["id"])
            for checkpoint in saver.list(_config(), filter={"parity": 1}, limit=55)
        ]
        before = [
            int(checkpoint.id)
            for checkpoint in saver.history(
                _config(), before=_config(checkpoint_id="000050"), limit=3
            )
        ]

        assert listed == list(range(119, -1, -1))
        assert odd == list(range(119, -1, -2))[:55]
        assert before == [49, 48, 47]


def test_values_of_a_listed_checkpoint_are_read_when_looked_at(open_sqlite: OpenTally) -> None:
    with open_sqlite() as tally:
        saver = TallySaver(tally)
        for number in range(5):
            _put(saver, number)
        # What another process reads, this one has not at hand.
        services_of(tally).checkpoints.forget()
        listed = [checkpoint.checkpoint["channel_values"] for checkpoint in saver.list(_config())]
        copies = [
            dict(listed[0]),
            {**listed[1]},
            listed[2].copy(),
            listed[3] | {},
            {name: listed[4][name] for name in ["n"]},
        ]
        assert copies == [{"n": [4]}, {"n": [3]}, {"n": [2]}, {"n": [1]}, {"n": [0]}]
        services_of(tally).checkpoints.forget()
        [late] = saver.list(_config(), limit=1)
        saver.delete_thread("t")
        with pytest.raises(CorruptTally, match="missing"):
            late.checkpoint["channel_values"].items()


# Side by side


def test_writes_may_arrive_before_their_checkpoint(open_tally: OpenTally) -> None:
    with open_tally() as tally:
        saver = TallySaver(tally.bind(ALICE))
        saver.put_writes(_config(checkpoint_id="000001"), [("n", 7), ("n", 8)], "task", "path")
        early = saver.get_tuple(_config())
        _put(saver, 1)
        stored = saver.get_tuple(_config())

    assert early is None
    assert stored is not None
    assert stored.pending_writes == [("task", "n", 7), ("task", "n", 8)]


WORKER = """
import sys, threading
from langchain_core.messages import HumanMessage
from langgraph.checkpoint.base import empty_checkpoint
from langgraph.checkpoint.base.id import uuid6
from tallystick import Tally
from tallystick_langgraph import TallySaver

tally = Tally.open(sys.argv[1], background=False)
saver = TallySaver(tally)

def work(number):
    thread = f"{sys.argv[2]}-{number}"
    config = {"configurable": {"thread_id": thread, "checkpoint_ns": ""}}
    messages = []
    for turn in range(int(sys.argv[3])):
        messages.append(HumanMessage(f"{thread} {turn}", id=str(turn)))
        checkpoint = {
            **empty_checkpoint(),
            "id": str(uuid6(clock_seq=turn)),
            "channel_values": {"messages": messages},
        }
        config = saver.put(config, checkpoint, {"step": turn}, {})
        saver.put_writes(config, [("messages", messages[-1:])], f"task {turn}")
        with told:
            print(f"{thread} {turn}", flush=True)
        if turn % 7 == 3 and number % 2:
            saver.prune([thread])
        if turn % 5 == 2:
            saver.copy_thread(thread, thread + "-copy")
            saver.delete_thread(thread + "-copy")

failures, told = [], threading.Lock()
def guarded(number):
    try:
        work(number)
    except BaseException as error:
        failures.append(error)
        raise

workers = [threading.Thread(target=guarded, args=(number,)) for number in range(int(sys.argv[4]))]
[worker.start() for worker in workers]
[worker.join() for worker in workers]
tally.close()
sys.exit(bool(failures))
"""


def _worker(place: Path, name: str, turns: int, threads: int) -> subprocess.Popen[str]:
    arguments = [sys.executable, "-c", WORKER, str(place), name, str(turns), str(threads)]
    return subprocess.Popen(arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def _last(lines: list[str]) -> dict[str, int]:
    """The last turn that each thread was told to be stored."""
    return {line.split()[0]: int(line.split()[1]) for line in lines if line.endswith("\n")}


@pytest.mark.slow
def test_two_processes_of_eight_threads_lose_nothing(
    open_sqlite: OpenTally, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """Puts, writes, prunes, copies and deletes at once; for a minute under `make soak`."""
    turns = 600 if request.config.getoption("--hypothesis-profile") == "soak" else 15
    open_sqlite().close()
    workers = [_worker(tmp_path / "tally", name, turns, 8) for name in ("p", "q")]
    outputs = [worker.communicate(timeout=900) for worker in workers]
    assert [
        (worker.returncode, error) for worker, (_, error) in zip(workers, outputs, strict=True)
    ] == [(0, "")] * 2
    with open_sqlite() as tally:
        saver = TallySaver(tally)
        for name in ("p", "q"):
            for number in range(8):
                stored = saver.get_tuple(_config(f"{name}-{number}"))
                assert stored is not None
                messages = stored.checkpoint["channel_values"]["messages"]
                assert [message.content for message in messages] == [
                    f"{name}-{number} {turn}" for turn in range(turns)
                ]
                assert [write[0] for write in stored.pending_writes or []] == [f"task {turns - 1}"]
                assert len(list(saver.history(_config(f"{name}-{number}")))) == (
                    turns
                    if number % 2 == 0
                    else (turns - max((turn for turn in range(turns) if turn % 7 == 3), default=0))
                )
        assert tally.bind().threads.verify() == []


@pytest.mark.slow
def test_a_killed_process_loses_no_checkpoint_that_was_acknowledged(
    open_sqlite: OpenTally, tmp_path: Path
) -> None:
    open_sqlite().close()
    for attempt in range(2 if settings().max_examples <= 100 else 8):
        worker = _worker(tmp_path / "tally", f"k{attempt}", 10_000, 3)
        assert worker.stdout is not None
        lines: list[str] = []
        for line in worker.stdout:
            lines.append(line)
            # Threads take turns as the interpreter lets them: wait until each was heard of.
            if len(lines) >= 25 + 30 * attempt and len(_last(lines)) == 3:
                break
        worker.kill()
        lines += worker.stdout.readlines()
        worker.communicate()
        assert len(_last(lines)) == 3
        with open_sqlite() as tally:
            saver = TallySaver(tally)
            for thread, turn in _last(lines).items():
                stored = saver.get_tuple(_config(thread))
                assert stored is not None
                messages = stored.checkpoint["channel_values"]["messages"]
                # One more may have been stored than was told.
                assert len(messages) in (turn + 1, turn + 2)
                assert messages[turn].content == f"{thread} {turn}"
            assert tally.bind().threads.verify() == []


def test_one_saver_serves_many_threads_of_one_process(open_tally: OpenTally) -> None:
    with open_tally() as tally:
        saver = TallySaver(tally.bind(ALICE))

        def talk(name: str) -> list[str]:
            return _say(_chat(saver, _Plain), "one", "two", "three", thread=name)

        with ThreadPoolExecutor(8) as workers:
            results = list(workers.map(talk, [f"thread {number}" for number in range(8)]))

    assert results == [["one", "answer 1", "two", "answer 3", "three", "answer 5"]] * 8


def test_threads_go_on_while_changes_of_memory_are_suspended(open_tally: OpenTally) -> None:
    """To put a checkpoint is to record, as a run is recorded; to delete a thread is not."""
    with open_tally() as tally:
        saver = TallySaver(tally.bind(ALICE))
        chat = _chat(saver, _Plain)
        _say(chat, "before")
        tally.bind(Actor(user="root", role="operator")).operator.freeze(reason="we look into it")

        assert _say(chat, "during") == ["before", "answer 1", "during", "answer 3"]
        saver.copy_thread("t", "copy")
        with pytest.raises(Denied):
            saver.delete_thread("t")


@pytest.mark.parametrize("thread", ["a\ud800", "a\x00b"])
def test_an_id_that_no_database_stores_is_refused_wherever_a_thread_is_named(
    open_tally: OpenTally, thread: str
) -> None:
    with open_tally() as tally:
        saver = TallySaver(tally.bind(ALICE))
        chat, config = _chat(saver, _Plain), _config(thread)
        calls: list[Callable[[], Any]] = [
            lambda: chat.invoke({"messages": [("user", "hi")]}, config),
            lambda: chat.get_state(config),
            lambda: list(saver.list(config)),
            lambda: list(saver.history(config)),
            lambda: saver.copy_thread("t", thread),
            lambda: saver.prune([thread]),
            lambda: saver.delete_thread(thread),
        ]
        for call in calls:
            with pytest.raises(InvalidInput, match="`thread_id` holds a NUL or half a character"):
                call()


def _entry(id: str, if_newest: str | None = None) -> NewCheckpoint:
    body = Leaf("json", b"{}")
    return NewCheckpoint("n", id, None, {}, body, {}, if_newest=if_newest)


def test_checkpoints_of_several_scopes_are_put_together_or_not_at_all(
    open_tally: OpenTally,
) -> None:
    with open_tally() as tally:
        alice, bob = tally.bind(ALICE).threads, tally.bind(Actor(user="bob")).threads
        Threads.put_together([(alice, "a", _entry("1", "")), (bob, "b", _entry("x"))])
        for newest in ("", "0", "2"):
            with pytest.raises(StateConflict):
                Threads.put_together([(bob, "b", _entry("y")), (alice, "a", _entry("2", newest))])
        Threads.put_together([(bob, "c", _entry("z")), (alice, "a", _entry("2", "1"))])

        assert [each.id for each in alice.history("a")] == ["2", "1"]
        assert [(each.thread, each.id) for each in bob.history(None)] == [("b", "x"), ("c", "z")]
        assert [*alice.verify(), *bob.verify()] == []
