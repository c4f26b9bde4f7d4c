"""Agents in the shapes that people start from: each takes us in with the few lines marked `ours`.

Two of LangGraph (a dataclass state with a runtime context; memories in namespaces by user) and two
of PydanticAI (a support agent with a typed output and a numbered customer; a chat that stores its
history). No user sees the words of another, and every run verifies.
"""

from __future__ import annotations

import asyncio
import json
import uuid
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any

import pytest
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, AnyMessage, BaseMessage, HumanMessage, ToolMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.tools import tool
from langgraph.graph import END, START, StateGraph
from langgraph.graph.message import add_messages
from langgraph.managed import IsLastStep
from langgraph.prebuilt import ToolNode
from langgraph.runtime import Runtime
from langgraph.store.base import BaseStore
from pydantic import BaseModel, Field
from pydantic_ai import (
    Agent,
    DeferredToolRequests,
    ModelMessage,
    ModelMessagesTypeAdapter,
    ModelResponse,
    RunContext,
    ToolCallPart,
)
from pydantic_ai.messages import ToolReturnPart
from pydantic_ai.models.function import AgentInfo, FunctionModel

from tallystick import Actor, Tally
from tallystick_langchain import TallyCallbackHandler, compile_messages
from tallystick_langgraph import TallySaver, TallyStore
from tallystick_pydantic_ai import Tallystick

OpenTally = Callable[..., Tally]
ADA, BEN = Actor(user="ada"), Actor(user="ben")


def _runs_of(tally: Tally, actor: Actor) -> int:
    """The number of an actor's runs, each of which verifies."""
    bound = tally.bind(actor)
    runs = bound.recordings.runs()
    assert all(bound.recordings.verify(run.id).ok for run in runs)
    return len(runs)


class Scripted(BaseChatModel):
    """A model that calls a tool, and answers once it has the result."""

    tool: str
    arguments: str
    """Name of the argument that is the text of the user."""
    more: dict[str, Any] = {}

    @property
    def _llm_type(self) -> str:
        return "scripted"

    def bind_tools(self, tools: Sequence[Any], **kwargs: Any) -> Any:
        return self

    def _generate(self, messages: list[BaseMessage], *args: Any, **kwargs: Any) -> ChatResult:
        answer = AIMessage("Done.")
        if not isinstance(messages[-1], ToolMessage):
            arguments = {self.arguments: str(messages[-1].text), **self.more}
            call: Any = {"name": self.tool, "args": arguments, "id": str(uuid.uuid4())}
            answer = AIMessage("", tool_calls=[call])
        return ChatResult(generations=[ChatGeneration(message=answer)])


# A ReAct agent of LangGraph: dataclass state, runtime context, ToolNode


@dataclass
class State:
    """The conversation, and whether the limit of steps is near."""

    messages: Annotated[Sequence[AnyMessage], add_messages] = field(default_factory=list)
    is_last_step: IsLastStep = field(default=False)


@dataclass(kw_only=True)
class Settings:
    """What a caller may set for a run."""

    system_prompt: str = "You answer questions on ships."
    model: str = "scripted"


@tool
def tonnage(ship: str) -> str:
    """Look up the tonnage of a ship."""
    return f"{ship}: 900 tons"


def _react(tally: Tally, prompts: list[list[BaseMessage]]) -> Any:
    async def call_model(state: State, runtime: Runtime[Settings]) -> dict[str, list[Any]]:
        model = Scripted(tool="tonnage", arguments="ship").bind_tools([tonnage])
        system = runtime.context.system_prompt
        messages = compile_messages(state, tally, budget=8_000, system=system)  # ours
        prompts.append(messages)
        return {"messages": [await model.ainvoke(messages)]}

    def route(state: State) -> str:
        last = state.messages[-1]
        return "tools" if isinstance(last, AIMessage) and last.tool_calls else END

    builder = StateGraph(State, context_schema=Settings)
    builder.add_node(call_model)
    builder.add_node("tools", ToolNode([tonnage]))
    builder.add_edge(START, "call_model")
    builder.add_conditional_edges("call_model", route, ["tools", END])
    builder.add_edge("tools", "call_model")
    return builder.compile(checkpointer=TallySaver(tally), name="ReAct Agent")  # ours


def test_a_react_agent_with_a_dataclass_state_serves_two_users(open_sqlite: OpenTally) -> None:
    with open_sqlite() as tally:
        prompts: list[list[BaseMessage]] = []
        graph = _react(tally, prompts)
        handler = TallyCallbackHandler(tally, capture="user")  # ours

        async def ask(user: str, text: str) -> Any:
            return await graph.ainvoke(
                {"messages": [HumanMessage(text)]},
                {"configurable": {"thread_id": "1", "user_id": user}, "callbacks": [handler]},
                context=Settings(),
            )

        asyncio.run(ask("ada", "My ship is the Heron; what is its tonnage?"))
        asyncio.run(ask("ben", "What is the tonnage of my ship?"))
        answer = asyncio.run(ask("ada", "What is the tonnage of my ship?"))

        assert [type(message).__name__ for message in answer["messages"]] == [
            "HumanMessage",
            "AIMessage",
            "ToolMessage",
            "AIMessage",
        ] * 2
        ben, ada = (str(prompts[number]) for number in (2, 4))
        assert "Heron; what" in ada
        assert "Heron; what" not in ben
        assert (_runs_of(tally, ADA), _runs_of(tally, BEN)) == (2, 1)
        assert handler.failures == 0


# A memory agent of LangGraph: memories of each user in a namespace of their own


@dataclass(kw_only=True)
class Person:
    """Who talks to the agent."""

    user_id: str
    model: str = "scripted"


@dataclass(kw_only=True)
class Talk:
    """The conversation."""

    messages: Annotated[list[AnyMessage], add_messages]


async def _upsert_memory(
    content: str, context: str, *, memory_id: str | None = None, user_id: str, store: BaseStore
) -> str:
    key = memory_id or str(uuid.uuid4())
    value = {"content": content, "context": context}
    await store.aput(("memories", user_id), key=key, value=value)
    return f"Stored memory {key}"


def _memory_agent(tally: Tally, recalled: list[list[str]]) -> Any:
    model = Scripted(tool="upsert_memory", arguments="content", more={"context": "in passing"})

    async def call_model(state: Talk, runtime: Runtime[Person]) -> dict[str, list[Any]]:
        assert runtime.store is not None
        text = str(state.messages[-1].text)
        items = await runtime.store.asearch(
            ("memories", runtime.context.user_id), query=text, limit=10
        )
        recalled.append([item.value["content"] for item in items])
        return {"messages": [await model.ainvoke(state.messages)]}

    async def store_memory(state: Talk, runtime: Runtime[Person]) -> dict[str, list[ToolMessage]]:
        last = state.messages[-1]
        assert isinstance(last, AIMessage)
        assert runtime.store is not None
        saved = [
            await _upsert_memory(
                **call["args"], user_id=runtime.context.user_id, store=runtime.store
            )
            for call in last.tool_calls
        ]
        return {
            "messages": [
                ToolMessage(text, tool_call_id=str(call["id"]))
                for text, call in zip(saved, last.tool_calls, strict=True)
            ]
        }

    def route(state: Talk) -> str:
        last = state.messages[-1]
        return "store_memory" if isinstance(last, AIMessage) and last.tool_calls else END

    builder = StateGraph(Talk, context_schema=Person)
    builder.add_node(call_model)
    builder.add_node(store_memory)
    builder.add_edge(START, "call_model")
    builder.add_conditional_edges("call_model", route, ["store_memory", END])
    builder.add_edge("store_memory", "call_model")
    return builder.compile(checkpointer=TallySaver(tally), store=TallyStore(tally))  # ours


def test_a_memory_agent_that_names_its_user_in_the_context_serves_two(
    open_sqlite: OpenTally,
) -> None:
    with open_sqlite() as tally:
        recalled: list[list[str]] = []
        graph = _memory_agent(tally, recalled)
        handler = TallyCallbackHandler(tally)  # ours

        async def tell(user: str, text: str) -> None:
            await graph.ainvoke(
                {"messages": [HumanMessage(text)]},
                {"configurable": {"thread_id": "1"}, "callbacks": [handler]},
                context=Person(user_id=user),
            )

        asyncio.run(tell("ada", "I am allergic to peanuts."))
        asyncio.run(tell("ben", "Which peanuts may I eat?"))
        asyncio.run(tell("ada", "Which peanuts may I eat?"))

        assert recalled[2] == []
        assert "I am allergic to peanuts." in recalled[4]
        for actor, texts in ((ADA, 2), (BEN, 1)):
            items = tally.bind(actor).memories(kinds=["store_item"])
            assert len(items) == texts
        assert (_runs_of(tally, ADA), _runs_of(tally, BEN)) == (2, 1)
        assert tally.bind().memories() == []


# A support agent of PydanticAI: dependencies with a numbered customer, typed output, a tool


@dataclass
class Bank:
    """The dependencies of the support agent."""

    customer_id: int
    balances: dict[int, float]


class Support(BaseModel):
    """What the agent answers."""

    advice: str
    block_card: bool
    risk: int = Field(ge=0, le=10)


def _support(tally: Tally, prompts: list[str]) -> Agent[Bank, Support]:
    def answer(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        prompts.append(str(messages))
        returned = any(isinstance(part, ToolReturnPart) for part in messages[-1].parts)
        if not returned:
            return ModelResponse([ToolCallPart("customer_balance", {})])
        [output] = info.output_tools
        result = {"advice": "The card was stolen; block it.", "block_card": True, "risk": 8}
        return ModelResponse([ToolCallPart(output.name, result)])

    agent = Agent(
        FunctionModel(answer),
        deps_type=Bank,
        output_type=Support,
        instructions="You support the customers of our bank.",
        capabilities=[
            Tallystick(  # ours
                tally,
                actor=lambda call: Actor(user=str(call.deps.customer_id)),
                capture="both",
            )
        ],
    )

    @agent.instructions
    def add_customer(ctx: RunContext[Bank]) -> str:
        return f"The customer has the number {ctx.deps.customer_id}."

    @agent.tool
    def customer_balance(ctx: RunContext[Bank]) -> str:
        """Return the balance of the customer."""
        return f"${ctx.deps.balances[ctx.deps.customer_id]:.2f}"

    return agent


def test_a_support_agent_with_a_typed_output_serves_two_customers(open_sqlite: OpenTally) -> None:
    with open_sqlite() as tally:
        prompts: list[str] = []
        agent = _support(tally, prompts)
        balances = {123: 17.5, 456: 3.0}

        def ask(customer: int, text: str) -> Support:
            return asyncio.run(agent.run(text, deps=Bank(customer, balances))).output

        assert ask(123, "I just lost my card in Lisbon!").block_card
        ask(456, "Where did I lose my card?")
        ask(123, "Where did I lose my card?")

        assert "Lisbon" not in prompts[2]
        assert "Lisbon" in prompts[4]
        first = Actor(user="123")
        spoken = {(turn.content) for turn in tally.bind(first).memories(kinds=["turn"])}
        answer = {"advice": "The card was stolen; block it.", "block_card": True, "risk": 8}
        assert json.dumps(answer, separators=(",", ":")) in spoken
        assert (_runs_of(tally, first), _runs_of(tally, Actor(user="456"))) == (2, 1)


# A chat of PydanticAI: the application stores the messages and hands them in again


@pytest.mark.parametrize("stores_everything", [True, False])
def test_a_chat_that_stores_its_history_has_no_recalled_block_in_it(
    open_sqlite: OpenTally, stores_everything: bool
) -> None:
    prompts: list[str] = []

    async def stream(messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[str]:
        prompts.append(str(messages))
        yield "I see."

    with open_sqlite() as tally:
        for actor, secret in ((ADA, "Ada's boat is red."), (BEN, "Ben's boat is blue.")):
            tally.bind(actor).remember(secret)
        agent = Agent(
            FunctionModel(stream_function=stream),
            deps_type=Actor,
            output_type=[str, DeferredToolRequests],
            capabilities=[Tallystick(tally)],  # ours
        )
        rows: dict[str, list[bytes]] = {"ada": [], "ben": []}

        async def chat(actor: Actor, text: str) -> None:
            stored = rows[actor.user]
            history: list[ModelMessage] = []
            for row in stored[-1:] if stores_everything else stored:
                history += ModelMessagesTypeAdapter.validate_json(row)
            async with agent.run_stream(text, deps=actor, message_history=history) as result:
                assert [piece async for piece in result.stream_output()][-1] == "I see."
            stored.append(
                result.all_messages_json() if stores_everything else result.new_messages_json()
            )

        for _ in range(3):
            asyncio.run(chat(ADA, "What colour is the boat?"))
            asyncio.run(chat(BEN, "What colour is the boat?"))

        assert [prompt.count("boat is red") for prompt in prompts[::2]] == [1, 1, 1]
        assert [prompt.count("boat is blue") for prompt in prompts[::2]] == [0, 0, 0]
        assert [prompt.count("boat is blue") for prompt in prompts[1::2]] == [1, 1, 1]
        assert not any(b"tallystick-context" in row for stored in rows.values() for row in stored)
        assert (_runs_of(tally, ADA), _runs_of(tally, BEN)) == (3, 3)
