"""Nothing of ours blocks an event loop: no file, no database, no sleep, on any asynchronous path.

Each surface runs in its real runtime under BlockBuster, on a fresh tally of several users, where
everything that is done once is still to be done.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from blockbuster import BlockBuster, BlockingError
from langchain.agents import create_agent
from langchain_core.language_models import GenericFakeChatModel
from langchain_core.messages import AIMessage, HumanMessage
from langchain_core.runnables import RunnableLambda
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.store.base import GetOp, ListNamespacesOp, PutOp, SearchOp
from llama_index.core.agent.workflow import FunctionAgent
from llama_index.core.base.llms.types import ChatMessage
from llama_index.core.memory import Memory
from llama_index.core.query_engine import RetrieverQueryEngine
from llama_index.core.tools import FunctionTool
from llama_index_instrumentation.dispatcher import instrument_tags
from pydantic_ai import Agent
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart, ToolReturnPart
from pydantic_ai.models.function import AgentInfo, FunctionModel
from tests.integrations.llama_scripted import Scripted, calls

from tallystick import Actor, Tally
from tallystick.records import PolicyConditions, PolicyRule
from tallystick_langchain import TallyCallbackHandler, TallyMiddleware, memory_tools
from tallystick_langgraph import TallySaver, TallyStore
from tallystick_llama_index import (
    TallyInstrumentation,
    TallyMemory,
    TallyMemoryBlock,
    TallyRetriever,
)
from tallystick_llama_index import memory_tools as llama_memory_tools
from tallystick_pydantic_ai import TallyRecorder, Tallystick, memory_toolset

ADA = Actor(user="ada")
PLACE: Any = {"configurable": {"thread_id": "t", "user_id": "ada"}}
OURS = [
    "tallystick",
    "tallystick_langgraph",
    "tallystick_langchain",
    "tallystick_pydantic_ai",
    "tallystick_llama_index",
]
RULE = PolicyRule(
    id="no-loops",
    name="No tool of that name",
    effect="deny",
    applies_to="tool_call",
    conditions=PolicyConditions(tool=("loop",)),
)

# LlamaIndex's agents look at every attribute of their pydantic selves, deprecated ones too.
pytestmark = pytest.mark.filterwarnings("ignore::pydantic.warnings.PydanticDeprecationWarning")

Surface = Callable[[Tally], Coroutine[Any, Any, None]]


@contextmanager
def _guarded_loop() -> Iterator[None]:
    """Raise where code of ours blocks the loop. A lock that is held for microseconds is no file
    work, and pauses nobody.
    """
    blockbuster = BlockBuster(OURS)
    for name in [name for name in blockbuster.functions if "Lock" in name]:
        del blockbuster.functions[name]
    blockbuster.activate()
    try:
        yield
    finally:
        blockbuster.deactivate()


def double(value: int) -> int:
    """Twice the value."""
    return value * 2


class Model(GenericFakeChatModel):
    """A chat model that plays its answers, whatever tools it is offered."""

    def bind_tools(self, tools: Any, **kwargs: Any) -> Any:
        return self


def _model() -> Model:
    call = {"name": "double", "args": {"value": 2}, "id": "c1"}
    note = {"name": "memory_store", "args": {"content": "Ada likes tea."}, "id": "c2"}
    return Model(messages=iter([AIMessage("", tool_calls=[call, note]), AIMessage("Four.")]))


def _graph(**parts: Any) -> Any:
    async def answer(state: MessagesState) -> dict[str, Any]:
        return {"messages": [AIMessage("Yes.")]}

    return StateGraph(MessagesState).add_node(answer).add_edge(START, "answer").compile(**parts)


async def _saver(tally: Tally) -> None:
    saver = TallySaver(tally)
    graph = _graph(checkpointer=saver)
    await graph.ainvoke({"messages": [HumanMessage("Hm?")]}, PLACE)
    await graph.aupdate_state(PLACE, {"messages": [AIMessage("Well.")]})
    assert len((await graph.aget_state(PLACE)).values["messages"]) == 3
    states = [state async for state in graph.aget_state_history(PLACE)]
    assert len(states[0].values["messages"]) == 3
    listed = [each async for each in saver.alist(PLACE)]
    assert listed[0].checkpoint["channel_values"]["messages"]
    await saver.aget_delta_channel_history(config=PLACE, channels=["messages"])
    place: Any = PLACE
    config: Any = listed[0].config
    stored: Any = {"configurable": {**place["configurable"], **config["configurable"]}}
    await saver.aput_writes(stored, [("messages", [])], "task")
    bound = TallySaver(tally.bind(ADA))
    await bound.acopy_thread("t", "copy")
    await bound.aprune(["copy"])
    await bound.adelete_for_runs([str(uuid4())])
    await bound.adelete_thread("copy")


async def _store(tally: Tally) -> None:
    store = TallyStore(tally.bind(ADA), ttl={"default_ttl": 60})
    await store.abatch([PutOp(("notes",), "a", {"text": "tea"}, ttl=5)])
    await store.abatch([GetOp(("notes",), "a"), SearchOp(("notes",), query="tea")])
    await store.abatch([ListNamespacesOp(), PutOp(("notes",), "a", None)])


async def _middleware(tally: Tally) -> None:
    middleware = TallyMiddleware(tally, capture="both", strict=True)
    agent = create_agent(_model(), [double, *memory_tools(tally)], middleware=[middleware])
    inputs: Any = {"messages": [("user", "Two times two?")]}
    await agent.ainvoke(inputs, PLACE)
    assert middleware.failures == 0


async def _handler(tally: Tally) -> None:
    handler = TallyCallbackHandler(tally, strict=True)
    agent = create_agent(_model(), [double, *memory_tools(tally)])
    inputs: Any = {"messages": [("user", "Two times two?")]}
    config: Any = {**PLACE, "callbacks": [handler]}
    await agent.ainvoke(inputs, config)
    assert handler.failures == 0


async def _handler_that_captures(tally: Tally) -> None:
    handler = TallyCallbackHandler(tally, strict=True, capture="both")
    chain = RunnableLambda(_echo) | Model(messages=iter(["Four."]))
    config: Any = {**PLACE, "callbacks": [handler]}
    async for _ in chain.astream("Two times two?", config):
        pass
    assert handler.failures == 0


async def _handler_of_the_owner(tally: Tally) -> None:
    """Nobody is named, so that it depends on the database whether the owner acts."""
    handler = TallyCallbackHandler(tally, strict=True, scope="private:local")
    agent = create_agent(_model(), [double])
    inputs: Any = {"messages": [("user", "Two times two?")]}
    await agent.ainvoke(inputs, {"callbacks": [handler]})
    assert handler.failures == 0


async def _llama_agent_of_the_owner(tally: Tally) -> None:
    agent = FunctionAgent(
        tools=[double],
        llm=Scripted(calls(("c1", "double", {"value": 2})), "Four."),
        streaming=False,
    )
    with TallyInstrumentation(tally, strict=True) as watching:
        await agent.run("Two times two?")
    assert watching.failures == 0


async def _echo(text: str) -> str:
    return text


def _answer(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
    is_answered = any(isinstance(part, ToolReturnPart) for part in messages[-1].parts)
    names = {tool.name for tool in info.function_tools}
    arguments: dict[str, dict[str, Any]] = {
        "double": {"value": 2},
        "memory_store": {"content": "Ada likes tea."},
    }
    made = [
        ToolCallPart(name, values, tool_call_id=name)
        for name, values in arguments.items()
        if name in names
    ]
    return ModelResponse(parts=[TextPart("Four.")] if is_answered else made)


async def _recorder(tally: Tally) -> None:
    recorder = TallyRecorder(tally, strict=True, capture="both")
    agent = Agent(FunctionModel(_answer), tools=[double], capabilities=[recorder])
    await agent.run("Two times two?", metadata={"user_id": "ada"})
    assert recorder.failures == 0


async def _recorder_of_a_stream(tally: Tally) -> None:
    recorder = TallyRecorder(tally, strict=True)
    agent = Agent(FunctionModel(stream_function=_words), capabilities=[recorder])
    async with agent.run_stream("Two times two?", deps=ADA) as stream:
        assert await stream.get_output() == "It is four."
    assert recorder.failures == 0


async def _words(messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[str]:
    for word in ("It ", "is ", "four."):
        yield word


async def _capability(tally: Tally) -> None:
    agent = Agent(
        FunctionModel(_answer), tools=[double], capabilities=[Tallystick(tally, strict=True)]
    )
    await agent.run("Two times two?", metadata={"user_id": "ada"})


async def _toolset(tally: Tally) -> None:
    agent = Agent(FunctionModel(_answer), toolsets=[memory_toolset(tally)])
    await agent.run("Two times two?", metadata={"user_id": "ada"})


async def _llama_memory(tally: Tally) -> None:
    memory = TallyMemory(tally, session_id="s")
    with instrument_tags({"user_id": "ada"}):
        await memory.aput(ChatMessage("I like tea."))
        await memory.aput_messages([ChatMessage("Noted.", role="assistant")])
        assert len(await memory.aget("Which tea do I like?")) == 3
        assert len(await memory.aget_all()) == 2
        await memory.aset([ChatMessage("I like rain.")])
        await memory.areset()


async def _llama_block(tally: Tally) -> None:
    memory = Memory.from_defaults(
        session_id="s",
        token_limit=60,
        token_flush_size=20,
        chat_history_token_ratio=0.5,
        memory_blocks=[TallyMemoryBlock(tally)],
    )
    with instrument_tags({"user_id": "ada"}):
        for number in range(6):
            await memory.aput(ChatMessage(f"Tea number {number} is the best of all teas."))
        await memory.aget()
    engine: Any = getattr(memory.sql_store, "_async_engine")  # noqa: B009
    await engine.dispose()


async def _llama_retriever(tally: Tally) -> None:
    engine = RetrieverQueryEngine.from_args(TallyRetriever(tally), llm=Scripted("Tea.", "Tea."))
    with (
        TallyInstrumentation(tally, strict=True) as watching,
        instrument_tags({"user_id": "ada"}),
    ):
        await engine.aquery("What does Ada like?")
    assert watching.failures == 0


async def _llama_agent(tally: Tally) -> None:
    tools: list[Any] = [FunctionTool.from_defaults(double), *llama_memory_tools(tally)]
    agent = FunctionAgent(
        tools=tools, llm=Scripted(calls(("c1", "double", {"value": 2})), "Four."), streaming=False
    )
    watching = TallyInstrumentation(tally, strict=True, capture="both")
    with watching, instrument_tags({"user_id": "ada"}):
        await agent.run("Two times two?", memory=TallyMemory(tally, session_id="s"))
    assert watching.failures == 0


async def _async_view(tally: Tally) -> None:
    bound = tally.bind(ADA).aio
    await bound.remember("Ada likes tea.")
    await bound.recall("tea")
    async with bound.run("agent") as run, run.step("other") as step:
        step.record("note", {"text": "tea"})
    await bound.recordings.verify(run.sync.id)


SURFACES = [
    _saver,
    _store,
    _middleware,
    _handler,
    _handler_of_the_owner,
    _handler_that_captures,
    _recorder,
    _recorder_of_a_stream,
    _capability,
    _toolset,
    _llama_memory,
    _llama_block,
    _llama_retriever,
    _llama_agent,
    _llama_agent_of_the_owner,
    _async_view,
]


@pytest.mark.parametrize("surface", SURFACES, ids=lambda surface: surface.__name__.lstrip("_"))
def test_no_asynchronous_surface_blocks_its_loop(surface: Surface, tmp_path: Path) -> None:
    # A rule over tools, and somebody else who has been here: what an application has.
    with Tally.open(tmp_path / "tally", background=False, rules=[RULE]) as tally:
        tally.bind(ADA).remember("Ada likes tea.")
        with _guarded_loop():
            asyncio.run(surface(tally))


def test_the_guard_of_these_tests_sees_what_blocks(tmp_path: Path) -> None:
    async def read() -> None:
        with Tally.open(tmp_path / "tally", background=False):
            pass

    with _guarded_loop(), pytest.raises(BlockingError):
        asyncio.run(read())
    assert sqlite3.connect(":memory:").execute("SELECT 1").fetchone() == (1,)
