"""compile_messages: a node of any graph sends the best context that fits."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import pytest
from langchain_core.messages import AIMessage, AnyMessage, BaseMessage, HumanMessage, ToolMessage
from langchain_core.prompts import ChatPromptTemplate
from langchain_core.runnables import RunnableConfig
from langgraph.graph import START, MessagesState, StateGraph
from pydantic import BaseModel
from typing_extensions import TypedDict

from tallystick import Actor, Tally
from tallystick.errors import BudgetInfeasible, InvalidInput
from tallystick_langchain import compile_messages
from tallystick_langgraph import TallySaver

OpenTally = Callable[..., Tally]
ANNA, BEN = Actor(user="anna"), Actor(user="ben")


def _graph(tally: Tally, sent: list[list[BaseMessage]], **options: Any) -> Any:
    def answer(state: MessagesState, config: RunnableConfig) -> dict[str, list[AnyMessage]]:
        sent.append(
            compile_messages(state, tally, config=config, system="You plan trips.", **options)
        )
        return {"messages": [AIMessage(f"Answer {len(sent)}.")]}

    return (
        StateGraph(MessagesState)
        .add_node(answer)
        .add_edge(START, "answer")
        .compile(checkpointer=TallySaver(tally))
    )


def test_a_node_sends_what_its_actor_remembers(open_tally: OpenTally) -> None:
    with open_tally() as tally:
        tally.bind(ANNA).remember("Anna's key is under the mat.")
        tally.bind(BEN).remember("Ben's key is in the shed.")
        sent: list[list[BaseMessage]] = []
        graph = _graph(tally, sent, budget=2_000)
        for actor, place in ((ANNA, "mat"), (BEN, "shed")):
            config = {"configurable": {"thread_id": "t", "actor": actor}}
            graph.invoke({"messages": [HumanMessage("Where is the key?")]}, config)
            system, context, request = sent[-1]
            assert system.content == "You plan trips."
            assert place in str(context.content)
            assert request.content == "Where is the key?"


def test_each_prompt_begins_as_the_one_before(open_tally: OpenTally) -> None:
    with open_tally() as tally:
        sent: list[list[BaseMessage]] = []
        graph = _graph(tally, sent, budget=4_000)
        config = {"configurable": {"thread_id": "t", "actor": ANNA}}
        for number in range(6):
            graph.invoke({"messages": [HumanMessage(f"Stop {number}?")]}, config)
        assert len(graph.get_state(config).values["messages"]) == 12
        for before, after in pairwise(sent):
            assert [message.content for message in after[: len(before)]] == [
                message.content for message in before
            ]


def test_calls_stay_with_their_results_in_any_budget(open_tally: OpenTally) -> None:
    with open_tally() as tally:
        messages: list[BaseMessage] = [HumanMessage("Weigh the boats.")]
        for number in range(20):
            call: Any = {"name": "weigh", "args": {"boat": number}, "id": f"c{number}"}
            messages += [
                AIMessage("", tool_calls=[call]),
                ToolMessage(f"{number} tons " * 5, tool_call_id=f"c{number}"),
            ]
        messages += [AIMessage("Weighed."), HumanMessage("Which is the heaviest?")]
        for budget in (200, 400, 800):
            compiled = compile_messages(messages, tally.bind(ANNA), budget=budget, memories=0)
            for place, message in enumerate(compiled):
                if isinstance(message, ToolMessage):
                    before = compiled[place - 1]
                    assert isinstance(before, AIMessage)
                    assert before.tool_calls[0]["id"] == message.tool_call_id


def test_what_cannot_be_compiled_says_why(open_tally: OpenTally) -> None:
    with open_tally() as tally:
        anna = tally.bind(ANNA)
        with pytest.raises(InvalidInput, match="messages_key"):
            compile_messages({"talk": []}, anna, budget=100)
        with pytest.raises(BudgetInfeasible):
            compile_messages([HumanMessage("word " * 500)], anna, budget=100)
        assert compile_messages([("user", "Hello?")], anna, budget=120)[0].content == "Hello?"


class TypedState(TypedDict):
    messages: list[AnyMessage]


@dataclass
class DataState:
    messages: list[AnyMessage]
    talk: list[AnyMessage] = field(default_factory=list)


class ModelState(BaseModel):
    messages: list[AnyMessage]
    talk: tuple[AnyMessage, ...] = ()


def test_a_state_of_any_form_gives_its_messages(open_sqlite: OpenTally) -> None:
    with open_sqlite() as tally:
        said: list[AnyMessage] = [HumanMessage("Where is the key?")]
        other: list[AnyMessage] = [HumanMessage("Who has it?")]
        typed: TypedState = {"messages": said}
        states = (
            said,
            tuple(said),
            typed,
            {"messages": [{"role": "user", "content": "Where is the key?"}]},
            DataState(said),
            ModelState(messages=said),
            ChatPromptTemplate([("user", "Where is the {thing}?")]).invoke({"thing": "key"}),
        )
        for state in states:
            [message] = compile_messages(state, tally, budget=1_000)
            assert message.content == "Where is the key?"
        for state in (DataState(said, other), ModelState(messages=said, talk=tuple(other))):
            [message] = compile_messages(state, tally, budget=1_000, messages_key="talk")
            assert message.content == "Who has it?"


@pytest.mark.parametrize(
    ("state", "reason"),
    [
        ("Where is the key?", "'Where is the key\\?'"),
        (HumanMessage("Where?"), "a HumanMessage"),
        (DataState, "the class DataState"),
        (DataState([]), "with messages, talk"),
        (ModelState(messages=[]), "with messages, talk"),
        ({"talk": []}, "with talk"),
        (7, "has no 'turns'"),
        ([object()], "LangChain cannot read"),
        ({"turns": "Where?"}, "a list of messages"),
    ],
)
def test_what_has_no_messages_is_refused_by_name(
    open_sqlite: OpenTally, state: Any, reason: str
) -> None:
    with open_sqlite() as tally, pytest.raises(InvalidInput, match=reason):
        compile_messages(state, tally, budget=1_000, messages_key="turns")
