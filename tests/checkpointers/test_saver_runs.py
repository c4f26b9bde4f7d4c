"""Which run put a checkpoint: as the config, the graph above or the tally's own run names it;
`delete_for_runs`.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from langchain_core.messages import AIMessage, HumanMessage
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.types import Command, interrupt

from tallystick import Actor, Tally
from tallystick.storage.rows import journal
from tallystick.tally.services import services_of
from tallystick_langchain import TallyCallbackHandler
from tallystick_langgraph import TallySaver

OpenTally = Callable[..., Tally]
ALICE = Actor(user="alice")
FIRST, SECOND = uuid.UUID(int=1), uuid.UUID(int=2)


def _answer(state: MessagesState) -> Any:
    return {"messages": [AIMessage(f"answer {len(state['messages'])}")]}


def _asks(state: MessagesState) -> Any:
    return {"messages": [HumanMessage(interrupt("who?"))]}


def _graph(saver: TallySaver, node: Any = _answer) -> Any:
    inner = StateGraph(MessagesState).add_node("inner", node).add_edge(START, "inner").compile()
    return (
        StateGraph(MessagesState)
        .add_node("outer", inner)
        .add_edge(START, "outer")
        .compile(checkpointer=saver)
    )


def _config(thread: str = "t", **named: Any) -> Any:
    return {"configurable": {"thread_id": thread}, **named}


def _say(word: str) -> Any:
    return {"messages": [HumanMessage(word)]}


def _runs(saver: TallySaver, thread: str = "t") -> dict[str, set[Any]]:
    """The runs of the checkpoints, for the whole graph and for subgraphs."""
    runs: dict[str, set[Any]] = {"graph": set(), "subgraph": set()}
    for summary in saver.history(_config(thread)):
        runs["subgraph" if summary.namespace else "graph"].add(summary.metadata.get("run_id"))
    return runs


@pytest.mark.parametrize("asynchronous", [False, True])
def test_the_run_id_of_a_call_names_its_checkpoints_and_those_of_its_subgraphs(
    open_tally: OpenTally, asynchronous: bool
) -> None:
    with open_tally() as tally:
        saver = TallySaver(tally.bind(ALICE))
        graph = _graph(saver)
        for run_id, word in ((FIRST, "one"), (SECOND, "two")):
            if asynchronous:
                asyncio.run(graph.ainvoke(_say(word), _config(run_id=run_id)))
            else:
                graph.invoke(_say(word), _config(run_id=run_id))
        both = {str(FIRST), str(SECOND)}
        assert _runs(saver) == {"graph": both, "subgraph": both}

        saver.delete_for_runs([str(SECOND)])

        assert _runs(saver) == {"graph": {str(FIRST)}, "subgraph": {str(FIRST)}}
        assert [message.content for message in graph.get_state(_config()).values["messages"]] == [
            "one",
            "answer 1",
        ]
        assert tally.bind(ALICE).threads.verify() == []


def test_a_run_that_resumes_is_a_run_of_its_own(open_sqlite: OpenTally) -> None:
    """What it wrote at the checkpoint of the run before belongs to that: the graph goes on from
    there with it.
    """
    with open_sqlite() as tally:
        saver = TallySaver(tally)
        graph = _graph(saver, _asks)
        graph.invoke(_say("one"), _config(run_id=FIRST))
        graph.invoke(Command(resume="Ann"), _config(run_id=SECOND))

        saver.delete_for_runs([str(SECOND)])

        assert _runs(saver) == {"graph": {str(FIRST)}, "subgraph": {str(FIRST)}}
        assert [message.content for message in graph.get_state(_config()).values["messages"]] == [
            "one",
            "Ann",
        ]


def test_a_run_of_the_tally_around_a_call_names_its_checkpoints(
    open_sqlite: OpenTally, tmp_path: Path
) -> None:
    with open_sqlite() as tally, Tally.open(tmp_path / "other", background=False) as other:
        saver = TallySaver(tally)
        graph = _graph(saver)
        with other.bind().run("of another tally"):
            graph.invoke(_say("one"), _config())
        with tally.bind().run("agent") as run:
            graph.invoke(_say("two"), _config())
        assert _runs(saver) == {"graph": {None, run.id}, "subgraph": {None, run.id}}

        saver.delete_for_runs([run.id])

        assert _runs(saver) == {"graph": {None}, "subgraph": {None}}


def test_a_recorded_run_stands_for_the_call_that_it_recorded(open_sqlite: OpenTally) -> None:
    with open_sqlite() as tally:
        saver = TallySaver(tally)
        graph = _graph(saver)
        graph.invoke(_say("one"), _config(run_id=FIRST))
        graph.invoke(_say("two"), _config(run_id=SECOND, callbacks=[TallyCallbackHandler(tally)]))
        (recorded,) = tally.bind().recordings.runs_of([tally.bind().scope])

        saver.delete_for_runs([recorded.run_id])

        assert _runs(saver) == {"graph": {str(FIRST)}, "subgraph": {str(FIRST)}}


def test_a_run_id_that_is_set_in_the_configurable_or_the_metadata_counts_first(
    open_sqlite: OpenTally,
) -> None:
    with open_sqlite() as tally:
        saver = TallySaver(tally)
        graph = _graph(saver)
        graph.invoke(
            _say("one"), {"configurable": {"thread_id": "t", "run_id": "mine"}, "run_id": FIRST}
        )
        graph.invoke(_say("one"), {**_config("u", run_id=FIRST), "metadata": {"run_id": "told"}})

        assert (_runs(saver), _runs(saver, "u")["graph"]) == (
            {"graph": {"mine"}, "subgraph": {"mine"}},
            {"told"},
        )


def test_the_journal_of_a_thread_names_the_session_and_the_run_that_put(
    open_tally: OpenTally,
) -> None:
    with open_tally() as tally:
        alice = tally.bind(ALICE)
        saver = TallySaver(alice)
        _graph(saver).invoke(_say("hello"), _config("chat-7", run_id=FIRST))
        saver.copy_thread("chat-7", "chat-8")
        saver.prune(["chat-8"])
        saver.delete_thread("chat-8")
        alice.on(session_id="desk", request_id="r1").threads.delete("chat-7")

        def told(thread: str) -> list[tuple[str, str | None, str | None]]:
            with services_of(tally).store.database.read() as connection:
                entries = journal.all_entries(connection)
            return [
                (entry.event, entry.session_id, entry.request_id)
                for entry in entries
                if entry.details.get("thread") == thread
            ]

        assert told("chat-7") == [
            ("checkpoint.put", "chat-7", str(FIRST)),
            ("thread.delete", "desk", "r1"),
        ]
        assert told("chat-8") == [
            (event, "chat-8", None) for event in ("thread.copy", "thread.prune", "thread.delete")
        ]
