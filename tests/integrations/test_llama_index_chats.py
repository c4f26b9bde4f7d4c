"""LlamaIndex's chats with a TallyMemory, a TallyRetriever and a TallyInstrumentation on one tally:
each turn is kept once, with the right role, and a stream is never broken.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from llama_index.core.agent.workflow import AgentWorkflow, FunctionAgent
from llama_index.core.base.llms.types import ChatMessage, MessageRole
from llama_index.core.chat_engine import (
    CondensePlusContextChatEngine,
    ContextChatEngine,
    SimpleChatEngine,
)
from llama_index.core.llms import MockLLM, mock
from llama_index.core.schema import QueryBundle
from llama_index.core.tools import FunctionTool
from llama_index_instrumentation.dispatcher import instrument_tags
from tests.integrations.llama_scripted import Scripted, calls

from tallystick import Actor, Tally
from tallystick.tally import BoundTally
from tallystick_llama_index import TallyInstrumentation, TallyMemory, TallyRetriever

OpenTally = Callable[..., Tally]
ANNA = Actor(user="anna")

# LlamaIndex's agents look at every attribute of their pydantic selves, deprecated ones too.
pytestmark = pytest.mark.filterwarnings("ignore::pydantic.warnings.PydanticDeprecationWarning")


def _engine(kind: str, bound: BoundTally, memory: TallyMemory) -> Any:
    model, retriever = MockLLM(max_tokens=3), TallyRetriever(bound)
    if kind == "simple":
        return SimpleChatEngine.from_defaults(llm=model, memory=memory)
    engines: dict[str, Any] = {
        "context": ContextChatEngine,
        "condense": CondensePlusContextChatEngine,
    }
    return engines[kind].from_defaults(llm=model, memory=memory, retriever=retriever)


def _said(messages: Sequence[ChatMessage]) -> list[tuple[str, str]]:
    # Early releases of LlamaIndex keep the space behind the last piece of a stream.
    return [(message.role.value, (message.content or "").strip()) for message in messages]


def _wait_for_end_of(bound: BoundTally) -> None:
    """Early releases of LlamaIndex end a stream before the answer is in the memory."""
    deadline = time.monotonic() + 10
    while any(run.status == "running" for run in bound.recordings.runs()):
        assert time.monotonic() < deadline
        time.sleep(0.01)


@pytest.mark.parametrize("tags", [{}, {"thread_id": "seats"}])
@pytest.mark.parametrize("speakers", ["user", "both"])
@pytest.mark.parametrize("asynchronous", [False, True])
@pytest.mark.parametrize("kind", ["simple", "context", "condense"])
def test_a_streamed_chat_keeps_each_turn_once_and_is_never_broken(
    open_sqlite: OpenTally, kind: str, asynchronous: bool, speakers: Any, tags: dict[str, Any]
) -> None:
    with open_sqlite() as tally:
        anna = tally.bind(ANNA)
        anna.remember("Seats by the window are cold in winter.")
        memory = TallyMemory(anna, session_id="seats")
        engine = _engine(kind, anna, memory)
        words = [f"Which seat by the window is number {number}?" for number in range(3)]

        async def ask(text: str) -> str:
            if asynchronous:
                stream = await engine.astream_chat(text)
                return "".join([piece async for piece in stream.async_response_gen()])
            return "".join(engine.stream_chat(text).response_gen)

        async def talk() -> list[str]:
            with instrument_tags(tags):
                return [await ask(text) for text in words]

        with TallyInstrumentation(anna, strict=True, capture=speakers) as watching:
            answers = asyncio.run(talk())
            _wait_for_end_of(anna)
        assert watching.failures == 0
        said = [
            pair
            for text, answer in zip(words, answers, strict=True)
            for pair in (("user", text), ("assistant", answer.strip()))
        ]
        assert _said(memory.get_all()) == said
        assert len(anna.memories(kinds=["turn"], limit=100)) == len(said)
        runs = anna.recordings.runs()
        assert [(run.status, run.metadata["thread_id"]) for run in runs] == [
            ("completed", "seats")
        ] * 3
        assert all(anna.recordings.verify(run.id).ok for run in runs)


def test_what_was_captured_of_a_session_comes_back_with_its_role(open_sqlite: OpenTally) -> None:
    with open_sqlite() as tally:
        anna = tally.bind(ANNA)
        with anna.run("clerk", metadata={"thread_id": "seats"}) as run:
            anna.keep_turn(run, user="I like windows.", assistant="Noted.")
        assert _said(TallyMemory(anna, session_id="seats").get_all()) == [
            ("user", "I like windows."),
            ("assistant", "Noted."),
        ]


def test_calls_of_tools_are_in_the_session_and_are_no_memories(open_sqlite: OpenTally) -> None:
    def note(fact: str) -> str:
        """Save a fact."""
        return f"saved {fact}"

    with open_sqlite() as tally:
        anna = tally.bind(ANNA)
        memory = TallyMemory(anna, session_id="seats")
        tool = FunctionTool.from_defaults(fn=note)

        async def talk(*answers: Any) -> str:
            agent = FunctionAgent(name="clerk", tools=[tool], llm=Scripted(*answers))
            flow = AgentWorkflow(agents=[agent], root_agent="clerk")
            return str(await flow.run("Remember that I like windows.", memory=memory))

        asyncio.run(talk(calls(("c1", "note", {"fact": "windows"})), "Done."))
        asyncio.run(talk(calls(("c2", "note", {"fact": "windows again"})), "Done again."))

        spoken = ["Remember that I like windows.", "Done."]
        again = ["Remember that I like windows.", "Done again."]
        turns = anna.memories(kinds=["turn"])
        assert [turn.content for turn in turns][::-1] == [*spoken, *again]
        assert not any("saved" in hit.content for hit in anna.recall("saved windows", limit=50))
        history = memory.get_all()
        assert [message.role.value for message in history] == [
            "user",
            "assistant",
            "tool",
            "assistant",
        ] * 2
        assert [message.content for message in history if message.role == MessageRole.TOOL] == [
            "saved windows",
            "saved windows again",
        ]
        memory.reset()
        assert (memory.get_all(), anna.memories()) == ([], [])


@pytest.mark.parametrize("way", ["watched", "named"])
def test_a_retriever_leaves_out_the_turns_of_the_chat_under_way(
    open_sqlite: OpenTally, way: str
) -> None:
    retrieved: list[str] = []

    class Noting(TallyRetriever):
        def _retrieve(self, query_bundle: QueryBundle) -> Any:
            nodes = super()._retrieve(query_bundle)
            retrieved.extend(node.node.get_content() for node in nodes)
            return nodes

    with open_sqlite() as tally:
        anna = tally.bind(ANNA)
        anna.remember("Seats by the window are cold in winter.")
        TallyMemory(anna, session_id="old").put(ChatMessage("I sat by the window.", role="user"))
        memory = TallyMemory(anna, session_id="seats")
        retriever = Noting(anna, outside_of="seats" if way == "named" else None)
        engine = ContextChatEngine.from_defaults(
            llm=MockLLM(max_tokens=3), memory=memory, retriever=retriever
        )
        watching = TallyInstrumentation(anna, strict=True)
        if way == "watched":
            watching.attach()
        engine.chat("Is the seat by the window warm?")
        retrieved.clear()
        engine.chat("And is the seat by the window wide?")
        watching.detach()
        assert set(retrieved) == {
            "Seats by the window are cold in winter.",
            "I sat by the window.",
        }
        # Outside of a chat nothing is left out.
        nodes = TallyRetriever(anna).retrieve("Is the seat by the window warm?")
        assert "Is the seat by the window warm?" in [node.node.get_content() for node in nodes]


def test_a_model_that_gives_itself_no_name_is_called_by_its_class(open_sqlite: OpenTally) -> None:
    model = getattr(mock, "MockFunctionCallingLLM", None)
    if model is None:
        pytest.skip("this release of LlamaIndex has no model of its own that calls functions")
    with open_sqlite() as tally:
        anna = tally.bind(ANNA)
        with TallyInstrumentation(anna, strict=True):
            model().chat([ChatMessage("Hello.")])
        [run] = anna.recordings.runs()
        assert [step.name for step in anna.recordings.steps(run.id)] == ["MockFunctionCallingLLM"]
