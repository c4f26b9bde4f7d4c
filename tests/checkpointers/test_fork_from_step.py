"""A receipt leads back to the checkpoint from which its step ran, and the graph goes on from there,
changed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Annotated, Any

import pytest
from langchain_core.language_models import GenericFakeChatModel
from langchain_core.messages import AIMessage, AnyMessage, HumanMessage
from langgraph.graph import END, START, StateGraph
from langgraph.graph.message import add_messages
from typing_extensions import TypedDict

from tallystick import Actor, Tally
from tallystick.errors import InvalidInput, NotFound
from tallystick.tally import BoundTally
from tallystick.tally.services import services_of
from tallystick_langchain import TallyCallbackHandler, TallyMiddleware
from tallystick_langgraph import TallySaver

OpenTally = Callable[..., Tally]


class Talk(TypedDict):
    messages: Annotated[list[AnyMessage], add_messages]


def _says(*answers: str) -> GenericFakeChatModel:
    messages: Iterator[AIMessage | str] = iter(answers)
    return GenericFakeChatModel(messages=messages)


def _graph(saver: TallySaver, *answers: str, nested: bool = False) -> Any:
    model = _says(*answers)

    def answer(state: Talk) -> dict[str, Any]:
        return {"messages": [model.invoke(state["messages"])]}

    graph = StateGraph(Talk)
    graph.add_node("answer", answer)
    graph.add_edge(START, "answer")
    graph.add_edge("answer", END)
    if not nested:
        return graph.compile(checkpointer=saver)
    outer = StateGraph(Talk)
    outer.add_node("inner", graph.compile())
    outer.add_edge(START, "inner")
    return outer.compile(checkpointer=saver)


def _texts(state: Any) -> list[str]:
    return [str(message.content) for message in state["messages"]]


def _played(tally: Tally | BoundTally, saver: TallySaver, *, nested: bool = False) -> list[str]:
    """Two turns of a thread; the steps of their model calls."""
    graph = _graph(saver, "one", "two", nested=nested)
    for question in ("first", "second"):
        config: Any = {
            "configurable": {"thread_id": "t"},
            "callbacks": [TallyCallbackHandler(tally, strict=True)],
        }
        graph.invoke({"messages": [HumanMessage(question)]}, config)
    runs = reversed(
        tally.recordings.runs() if isinstance(tally, BoundTally) else tally.bind().recordings.runs()
    )
    return [step.id for run in runs for step in tally.recordings.steps(run.id)]


@pytest.mark.parametrize("nested", [False, True])
def test_a_graph_goes_on_from_the_checkpoint_of_a_step_with_another_model(
    open_sqlite: OpenTally, nested: bool
) -> None:
    with open_sqlite() as tally:
        saver = TallySaver(tally)
        first, _second = _played(tally, saver, nested=nested)
        other = _graph(saver, "uno", nested=nested)

        assert _texts(other.invoke(None, saver.at_step(first))) == ["first", "uno"]


def test_a_fork_of_its_own_thread_leaves_the_old_one_as_it_is(open_sqlite: OpenTally) -> None:
    with open_sqlite() as tally:
        saver = TallySaver(tally)
        first, _second = _played(tally, saver)
        other = _graph(saver, "uno", "due")
        there = other.invoke(None, saver.at_step(first, thread="fork"))
        assert _texts(there) == ["first", "uno"]
        assert _texts(other.get_state({"configurable": {"thread_id": "t"}}).values) == [
            "first",
            "one",
            "second",
            "two",
        ]
        on = other.invoke(
            {"messages": [HumanMessage("third")]}, {"configurable": {"thread_id": "fork"}}
        )
        assert _texts(on) == ["first", "uno", "third", "due"]


def test_the_state_may_be_changed_first(open_sqlite: OpenTally) -> None:
    with open_sqlite() as tally:
        saver = TallySaver(tally)
        _first, second = _played(tally, saver)
        other = _graph(saver, "due")
        at = saver.at_step(second)
        question = other.get_state(at).values["messages"][-1]
        changed = other.update_state(
            at, {"messages": [HumanMessage("changed", id=question.id)]}, as_node="__start__"
        )
        assert _texts(other.invoke(None, changed)) == ["first", "one", "changed", "due"]


def test_a_step_that_the_middleware_recorded_leads_back_too(open_sqlite: OpenTally) -> None:
    from langchain.agents import create_agent

    with open_sqlite() as tally:
        saver = TallySaver(tally)
        agent: Any = create_agent(
            _says("one"), middleware=[TallyMiddleware(tally, strict=True)], checkpointer=saver
        )
        agent.invoke({"messages": [HumanMessage("first")]}, {"configurable": {"thread_id": "t"}})
        [step] = tally.recordings.steps(tally.bind().recordings.runs()[0].id)
        other: Any = create_agent(_says("uno"), checkpointer=saver)
        assert _texts(other.invoke(None, saver.at_step(step.id))) == ["first", "uno"]


def test_verifying_a_run_covers_the_thread_it_ran_in(open_sqlite: OpenTally) -> None:
    with open_sqlite() as tally:
        saver, me = TallySaver(tally), tally.bind()
        _played(tally, saver)
        run_id = me.recordings.runs()[0].id
        whole = me.recordings.verify(run_id)
        assert (whole.ok, whole.threads_checked) == (True, 1)
        assert tally.recordings.verify(run_id) == whole

        def tamper(tx: Any) -> None:
            tx.exec_driver_sql("UPDATE thread_states SET marks = marks || 'x'")

        services_of(tally).store.database.write(tamper, name="tamper")
        broken = me.recordings.verify(run_id)
        assert not broken.ok
        assert tally.recordings.verify(run_id) == broken
        assert all(problem.where.startswith("thread t") for problem in broken.problems)


def test_who_may_not_read_a_thread_is_told_that_it_was_not_verified(open_sqlite: OpenTally) -> None:
    with open_sqlite() as tally:
        anna = tally.bind(Actor(user="anna"))
        _played(anna, TallySaver(anna))
        run_id = anna.recordings.runs()[0].id
        verification = tally.bind().recordings.verify(run_id)
        assert (verification.ok, verification.threads_checked) == (True, 0)
        assert any("checkpoint threads" in reason for reason in verification.cannot_prove)


def test_a_step_of_no_thread_or_of_a_pruned_one_leads_nowhere_and_says_so(
    open_sqlite: OpenTally,
) -> None:
    with open_sqlite() as tally:
        saver = TallySaver(tally)
        first, _second = _played(tally, saver)
        with tally.bind().run("loose") as run, run.step("model_call") as step:
            pass
        with pytest.raises(InvalidInput, match="no thread"):
            saver.at_step(step.id)
        saver.prune(["t"])
        with pytest.raises(NotFound, match="pruned"):
            saver.at_step(first)
