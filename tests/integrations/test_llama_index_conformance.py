"""The instrumentation of LlamaIndex keeps the contract of capture."""

import asyncio
import inspect
import json
from collections.abc import AsyncGenerator, Generator, Sequence
from typing import Any

import pytest
from llama_index.core.agent.workflow import FunctionAgent, base_agent
from llama_index.core.base.llms.types import ChatMessage, ChatResponse, CompletionResponse, LLMMetadata
from llama_index.core.llms.callbacks import llm_chat_callback
from llama_index.core.llms.function_calling import FunctionCallingLLM
from llama_index.core.llms.llm import ToolSelection
from llama_index.core.tools import BaseTool, FunctionTool
from llama_index.core.workflow import Context, HumanResponseEvent, InputRequiredEvent
from pydantic import PrivateAttr

from tallystick.records import Json
from tallystick.tally import BoundTally
from tallystick.testing.capture import CaptureContract, Scene
from tallystick_llama_index import TallyInstrumentation

# LlamaIndex's agents look at every attribute of their pydantic selves, deprecated ones too.
pytestmark = pytest.mark.filterwarnings("ignore::pydantic.warnings.PydanticDeprecationWarning")

SCRIPTS: dict[Scene, list[list[tuple[str, dict[str, Any]]]]] = {
    "text": [],
    "parallel tools": [[("double", {"value": 1}), ("double", {"value": 2})]],
    "error": [[("divide", {"value": 0})]],
    "retry": [[("flaky", {"value": 1})], [("flaky", {"value": 1})]],
    "streaming": [],
    "nested agent": [[("expert", {"question": "How much?"})]],
    "approval": [[("erase", {"value": 1})]],
}


class Scripted(FunctionCallingLLM):
    """Asks for the tools of its script, one turn for each answer of tools, then says `It is 42.`"""

    _script: Any = PrivateAttr()

    def __init__(self, scene: Scene) -> None:
        super().__init__()
        self._script = SCRIPTS[scene]

    @property
    def metadata(self) -> LLMMetadata:
        return LLMMetadata(is_function_calling_model=True, model_name="scripted")

    def _next(self, messages: Sequence[ChatMessage]) -> ChatMessage:
        answered = {message.additional_kwargs.get("tool_call_id") for message in messages}
        for turn, calls in enumerate(self._script):
            asked = [
                {
                    "id": f"c{turn}{place}",
                    "type": "function",
                    "function": {"name": name, "arguments": json.dumps(given)},
                }
                for place, (name, given) in enumerate(calls)
            ]
            if not answered.issuperset(call["id"] for call in asked):
                return ChatMessage(role="assistant", content="", additional_kwargs={"tool_calls": asked})
        return ChatMessage(role="assistant", content="It is 42.")

    @llm_chat_callback()
    def chat(self, messages: Sequence[ChatMessage], **kwargs: Any) -> ChatResponse:
        return ChatResponse(message=self._next(messages))

    @llm_chat_callback()
    async def achat(self, messages: Sequence[ChatMessage], **kwargs: Any) -> ChatResponse:
        return ChatResponse(message=self._next(messages))

    @llm_chat_callback()
    def stream_chat(self, messages: Sequence[ChatMessage], **kwargs: Any) -> Generator[ChatResponse, None, None]:
        raise NotImplementedError

    @llm_chat_callback()
    async def astream_chat(self, messages: Sequence[ChatMessage], **kwargs: Any) -> AsyncGenerator[ChatResponse, None]:
        async def chunks() -> AsyncGenerator[ChatResponse, None]:
            said = ""
            for word in ("It ", "is ", "42."):
                said += word
                yield ChatResponse(message=ChatMessage(role="assistant", content=said), delta=word)

        return chunks()

    def complete(self, prompt: str, formatted: bool = False, **kwargs: Any) -> CompletionResponse:
        raise NotImplementedError

    async def acomplete(self, prompt: str, formatted: bool = False, **kwargs: Any) -> CompletionResponse:
        raise NotImplementedError

    def stream_complete(self, prompt: str, formatted: bool = False, **kwargs: Any) -> Any:
        raise NotImplementedError

    async def astream_complete(self, prompt: str, formatted: bool = False, **kwargs: Any) -> Any:
        raise NotImplementedError

    def _prepare_chat_with_tools(
        self, tools: Sequence[BaseTool], user_msg: str | ChatMessage | None = None,
        chat_history: list[ChatMessage] | None = None, verbose: bool = False, allow_parallel_tool_calls: bool = False,
        tool_required: bool = False, **kwargs: Any,
    ) -> dict[str, Any]:  # fmt: skip
        return {"messages": list(chat_history or []), "tools": [tool.metadata.to_openai_tool() for tool in tools]}

    def get_tool_calls_from_response(
        self, response: Any, error_on_no_tool_call: bool = True, **kwargs: Any
    ) -> list[ToolSelection]:
        return [
            ToolSelection(
                tool_id=call["id"], tool_name=call["function"]["name"],
                tool_kwargs=json.loads(call["function"]["arguments"]),
            )
            for call in response.message.additional_kwargs.get("tool_calls", [])
        ]  # fmt: skip


def _event(kind: Any, **fields: Any) -> Any:
    """An event; its fields are its own, which types do not know."""
    return kind(**fields)


def _tools() -> list[Any]:
    tries: list[int] = []

    async def double(value: int) -> int:
        """Twice the value."""
        return value * 2

    async def divide(value: int) -> float:
        """One by the value."""
        return 1 / value

    async def flaky(value: int) -> int:
        """The value, at the second try."""
        tries.append(value)
        if len(tries) == 1:
            raise ValueError("try again")
        return value

    async def expert(question: str) -> str:
        """Ask another agent."""
        return str(await FunctionAgent(tools=[], llm=Scripted("text"), streaming=False).run(question))

    async def erase(ctx: Context, value: int) -> str:
        """Erase something, if a person agrees."""
        said = await ctx.wait_for_event(
            HumanResponseEvent, waiter_id="sure", waiter_event=_event(InputRequiredEvent, prefix="Erase?"), timeout=60
        )
        return f"gone: {said.response}"

    return [FunctionTool.from_defaults(async_fn=one) for one in (double, divide, flaky, expert, erase)]


WAITS = "WaitingForEvent" in inspect.getsource(base_agent)
"""Whether a tool of an agent may wait: early releases take it for an error of the tool."""


class TestInstrumentation(CaptureContract):
    @pytest.mark.skipif(not WAITS, reason="this release of LlamaIndex does not let tools of agents wait")
    def test_a_person_is_asked(self, open_tally: Any) -> None:
        super().test_a_person_is_asked(open_tally)

    def play(self, bound: BoundTally, scene: Scene) -> None:
        with TallyInstrumentation(bound, strict=True):
            asyncio.run(self._play(scene))

    async def _play(self, scene: Scene) -> None:
        agent = FunctionAgent(tools=_tools(), llm=Scripted(scene), streaming=scene == "streaming")
        running = agent.run("How much?")
        async for event in running.stream_events():
            if isinstance(event, InputRequiredEvent):
                assert running.ctx is not None
                running.ctx.send_event(_event(HumanResponseEvent, response="yes"))
        await running

    def said(self, response: Json) -> str:
        assert isinstance(response, dict)
        answer: Any = response["answer"]
        return str(answer["blocks"][0]["text"])
