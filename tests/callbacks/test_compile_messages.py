"""compile_messages: a node of any graph sends the best context that fits."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import pytest
from langchain_core.messages import (
    AIMessage,
    AnyMessage,
    BaseMessage,
    HumanMessage,
    SystemMessage,
    ToolMessage,
    messages_to_dict,
)
from langchain_core.prompts import ChatPromptTemplate
from langchain_core.runnables import RunnableConfig, RunnableLambda
from langgraph.graph import START, MessagesState, StateGraph
from pydantic import BaseModel
from typing_extensions import TypedDict

from tallystick import Actor, ContextItem, Tally
from tallystick.errors import BudgetInfeasible, InvalidInput
from tallystick_langchain import chat_model_call, compile_messages, render_chat
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
            system, request = sent[-1]
            assert str(system.content).startswith("You plan trips.")
            assert place in str(system.content)
            assert request.content == "Where is the key?"


def test_instructions_in_blocks_keep_them_and_what_is_remembered_stands_behind(
    open_sqlite: OpenTally,
) -> None:
    block = {"type": "text", "text": "You plan trips.", "cache_control": {"type": "ephemeral"}}
    with open_sqlite() as tally:
        anna = tally.bind(ANNA)
        anna.remember("Anna's key is under the mat.")
        said = [SystemMessage([block]), HumanMessage("Where is the key?")]
        system, _ = compile_messages(said, anna, budget=2_000)
        assert system.content[0] == block
        assert "under the mat" in str(system.content[1])


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


def test_candidates_of_the_application_are_chosen_beside_the_messages(
    open_tally: OpenTally,
) -> None:
    with open_tally() as tally:
        anna = tally.bind(ANNA)
        items: list[Any] = [
            ContextItem(id="timetable", kind="file", content="The night train leaves at nine."),
            {"id": "menu", "kind": "file", "content": "Soup of the day: leek and potato."},
            ContextItem(id="rule", kind="constraint", content="Answer in one line.", tags={"hard"}),
        ]
        state = [HumanMessage("When does the night train leave?", id="request")]
        with anna.run("desk") as run, run.step("model_call") as step:
            system, context, request = compile_messages(state, anna, budget=2_000, items=items)

        assert system.content == "Answer in one line."
        assert "leaves at nine" in str(context.content)
        assert "leek" not in str(context.content)
        assert request.content == state[0].content
        _, compiled = anna.recordings.compiled(step.id)
        assert compiled.decision("menu").reason_code == "below_relevance"


def test_relevance_is_measured_against_the_query_where_one_is_given(open_tally: OpenTally) -> None:
    with open_tally() as tally:
        anna = tally.bind(ANNA)
        menu = ContextItem(id="menu", kind="file", content="Soup of the day: leek and potato.")

        def sent(query: str | None) -> str:
            state = [HumanMessage("Please go on with what the tool has answered, as before.")]
            messages = compile_messages(state, anna, budget=2_000, items=[menu], query=query)
            return "\n".join(message.text for message in messages)

        assert "leek" in sent("Which soup is there today?")
        assert "leek" not in sent("When does the night train leave from Oslo?")


def test_a_request_made_of_a_recorded_context_is_the_one_that_was_sent(
    open_tally: OpenTally,
) -> None:
    """Instructions, context, calls and results: what `replay` renders, a model can be sent."""
    with open_tally() as tally:
        anna = tally.bind(ANNA)
        note = ContextItem(id="note", kind="file", content="The night train leaves at nine.")
        state = [
            HumanMessage("When does the night train leave?", id="1"),
            AIMessage(
                "", tool_calls=[{"name": "look", "args": {"at": "train"}, "id": "c"}], id="2"
            ),
            ToolMessage("at nine", tool_call_id="c", id="3"),
        ]
        with anna.run("desk") as run, run.step("model_call") as step:
            sent = compile_messages(state, anna, budget=2_000, system="Be brief.", items=[note])
            step.record("request", {"messages": messages_to_dict(sent)})
            step.record("response", {"answer": "At nine."})

        seen: list[list[BaseMessage]] = []

        def model(messages: list[BaseMessage]) -> BaseMessage:
            seen.append(messages)
            return AIMessage("At nine.")

        call = chat_model_call(RunnableLambda(model))
        replayed = anna.recordings.replay(
            step.id, token_budget=1_500, render=render_chat, call=call
        )

        def texts_of(messages: list[BaseMessage]) -> list[tuple[str, str]]:
            # The code of a frame is the tally's; the compile of a replay is made without it.
            return [(each.type, re.sub(r' code="\d+"', "", each.text)) for each in messages]

        assert texts_of(seen[0]) == texts_of(sent)
        [called] = [message for message in seen[0] if isinstance(message, AIMessage)]
        assert [(each["name"], each["args"]) for each in called.tool_calls] == [
            ("look", {"at": "train"})
        ]
        assert replayed.diff is not None
        assert replayed.diff.budget_after == 1_500
