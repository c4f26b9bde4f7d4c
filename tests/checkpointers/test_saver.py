"""TallySaver in real graphs: resume, interrupts, time travel, and threads that belong to who
acts.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Annotated, Any

import pytest
from langchain_core.runnables import RunnableConfig
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.types import Command, interrupt
from typing_extensions import TypedDict

from tallystick import Actor, Tally
from tallystick.errors import Denied, InvalidInput
from tallystick.tally.services import services_of
from tallystick_langgraph import TallySaver

OpenTally = Callable[..., Tally]


def _answer(state: MessagesState) -> dict[str, Any]:
    return {"messages": [("ai", f"answer {len(state['messages'])}")]}


def _chat(saver: TallySaver) -> Any:
    graph = StateGraph(MessagesState)
    graph.add_node("answer", _answer)
    graph.add_edge(START, "answer")
    graph.add_edge("answer", END)
    return graph.compile(checkpointer=saver)


def _thread(name: str, **configurable: Any) -> RunnableConfig:
    return {"configurable": {"thread_id": name, **configurable}}


def test_a_conversation_goes_on_after_the_process_ended(open_sqlite: OpenTally) -> None:
    with open_sqlite() as tally:
        _chat(TallySaver(tally)).invoke({"messages": [("user", "one")]}, _thread("t"))
    with open_sqlite() as tally:
        result = _chat(TallySaver(tally)).invoke({"messages": [("user", "two")]}, _thread("t"))

    assert [message.content for message in result["messages"]] == [
        "one",
        "answer 1",
        "two",
        "answer 3",
    ]


def test_a_thread_of_another_actor_is_another_thread(open_sqlite: OpenTally) -> None:
    with open_sqlite() as tally:
        chat = _chat(TallySaver(tally))
        chat.invoke({"messages": [("user", "secret")]}, _thread("t", actor=Actor(user="alice")))
        bob = chat.get_state(_thread("t", actor=Actor(user="bob")))
        with pytest.raises(Denied, match="missing_actor"):
            chat.get_state(_thread("t"))

    assert bob.values == {}


def test_a_thread_id_alone_is_deleted_as_the_bound_actor(open_sqlite: OpenTally) -> None:
    with open_sqlite() as tally:
        alice, bob = (TallySaver(tally.bind(Actor(user=name))) for name in ("alice", "bob"))
        _chat(alice).invoke({"messages": [("user", "hi")]}, _thread("t"))
        bob.delete_thread("t")
        values = _chat(alice).get_state(_thread("t")).values
        alice.delete_thread("t")

        assert len(values["messages"]) == 2
        assert _chat(alice).get_state(_thread("t")).values == {}


class _Draft(TypedDict):
    steps: Annotated[list[str], lambda old, new: old + new]


def test_an_interrupted_graph_resumes_where_it_stopped(open_sqlite: OpenTally) -> None:
    def ask(state: _Draft) -> dict[str, list[str]]:
        return {"steps": [f"approved {interrupt('may I?')}"]}

    graph = StateGraph(_Draft)
    graph.add_node("draft", lambda state: {"steps": ["drafted"]})
    graph.add_node("ask", ask)
    graph.add_edge(START, "draft")
    graph.add_edge("draft", "ask")
    graph.add_edge("ask", END)
    with open_sqlite() as tally:
        paused = graph.compile(checkpointer=TallySaver(tally)).invoke({"steps": []}, _thread("t"))
    with open_sqlite() as tally:
        resumed = graph.compile(checkpointer=TallySaver(tally)).invoke(
            Command(resume="yes"), _thread("t")
        )

    assert [pause.value for pause in paused["__interrupt__"]] == ["may I?"]
    assert resumed["steps"] == ["drafted", "approved yes"]


def test_an_earlier_state_can_be_forked(open_sqlite: OpenTally) -> None:
    with open_sqlite() as tally:
        chat = _chat(TallySaver(tally))
        for text in ("one", "two"):
            chat.invoke({"messages": [("user", text)]}, _thread("t"))
        [first] = [
            state
            for state in chat.get_state_history(_thread("t"))
            if len(state.values["messages"]) == 2
        ][:1]
        forked = chat.invoke({"messages": [("user", "other")]}, first.config)
        newest = chat.get_state(_thread("t"))

    assert [message.content for message in forked["messages"]] == [
        "one",
        "answer 1",
        "other",
        "answer 3",
    ]
    assert [message.content for message in newest.values["messages"]] == [
        "one",
        "answer 1",
        "other",
        "answer 3",
    ]


def test_the_same_saver_serves_sync_and_async(open_tally: OpenTally) -> None:
    with open_tally() as tally:
        chat = _chat(TallySaver(tally.bind(Actor(user="alice"))))
        chat.invoke({"messages": [("user", "one")]}, _thread("t"))
        result = asyncio.run(chat.ainvoke({"messages": [("user", "two")]}, _thread("t")))

    assert [message.content for message in result["messages"]] == [
        "one",
        "answer 1",
        "two",
        "answer 3",
    ]


def test_equal_state_is_stored_once(open_sqlite: OpenTally) -> None:
    """Unchanged channel values are parts that checkpoints share."""
    from sqlalchemy import text

    with open_sqlite() as tally:
        graph = StateGraph(_Draft)
        graph.add_node("idle", lambda state: {})
        graph.add_edge(START, "idle")
        graph.add_edge("idle", END)
        compiled = graph.compile(checkpointer=TallySaver(tally))
        compiled.invoke({"steps": ["x" * 10_000]}, _thread("t"))
        with services_of(tally).store.database.read() as connection:
            sizes = (
                connection.execute(text("SELECT length(body) FROM tree_parts ORDER BY id"))
                .scalars()
                .all()
            )

    assert len(sizes) == 1


def test_metadata_that_json_cannot_hold_is_refused_by_name(open_sqlite: OpenTally) -> None:
    from langgraph.checkpoint.base import empty_checkpoint

    with open_sqlite() as tally, pytest.raises(InvalidInput, match="'when'"):
        TallySaver(tally).put(_thread("t"), empty_checkpoint(), {"when": object()}, {})  # type: ignore[typeddict-unknown-key]


def test_a_call_without_a_thread_says_what_to_pass(open_sqlite: OpenTally) -> None:
    with open_sqlite() as tally, pytest.raises(InvalidInput, match="thread_id"):
        TallySaver(tally).get_tuple({"configurable": {}})
