"""A model and agents of LlamaIndex that need no key: what they say is written down in the test."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncGenerator, Generator, Sequence
from typing import Any

from llama_index.core.base.llms.types import (
    ChatMessage,
    ChatResponse,
    CompletionResponse,
    LLMMetadata,
)
from llama_index.core.llms.callbacks import llm_chat_callback, llm_completion_callback
from llama_index.core.llms.function_calling import FunctionCallingLLM
from llama_index.core.llms.llm import ToolSelection
from llama_index.core.tools import BaseTool
from pydantic import PrivateAttr

from .runtimes.base import Script, Turn, pieces_of, text_of

USAGE = {"usage": {"prompt_tokens": 7, "completion_tokens": 2}}


class Scripted(FunctionCallingLLM):
    """Answers by a script or by messages, in pieces where it is streamed."""

    _script: Any = PrivateAttr()
    temperature: float = 0.5

    def __init__(self, *script: ChatMessage | Turn | Script, **fields: Any) -> None:
        super().__init__(**fields)
        turns: Any = script
        self._script = turns[0] if turns and isinstance(turns[0], Script) else Script(*turns)

    @classmethod
    def class_name(cls) -> str:
        return "Scripted"

    @property
    def metadata(self) -> LLMMetadata:
        return LLMMetadata(
            is_chat_model=True, is_function_calling_model=True, model_name="scripted"
        )

    def to_payload(self) -> dict[str, Any]:
        # Early releases describe a model by its fields.
        return {
            **self.metadata.model_dump(),
            "class_name": "Scripted",
            "temperature": self.temperature,
        }

    def says(self, messages: Sequence[ChatMessage], tools: Sequence[Any] = ()) -> ChatMessage:
        """The next answer."""
        answer = self._next(messages, tools)
        if isinstance(answer, list):
            return calls(*answer)
        return answer if isinstance(answer, ChatMessage) else _message(text_of(answer))

    def _next(self, messages: Sequence[ChatMessage], tools: Sequence[Any]) -> Any:
        offered = [tool["function"]["name"] for tool in tools]
        return self._script.answer(list(messages), offered)

    def _pieces(
        self, messages: Sequence[ChatMessage], tools: Sequence[Any] = ()
    ) -> Generator[ChatResponse, None, None]:
        answer: Any = self._next(messages, tools)
        whole = ""
        if isinstance(answer, str | tuple):
            for piece in pieces_of(answer):
                if isinstance(piece, Exception):
                    raise piece
                whole += piece
                yield ChatResponse(message=_message(whole), delta=piece)
            answer = _message(whole)
        message = calls(*answer) if isinstance(answer, list) else answer
        yield ChatResponse(message=message, delta="", raw=USAGE)

    @llm_chat_callback()
    def chat(self, messages: Sequence[ChatMessage], **kwargs: Any) -> ChatResponse:
        return ChatResponse(message=self.says(messages, kwargs.get("tools", ())), raw=USAGE)

    @llm_chat_callback()
    async def achat(self, messages: Sequence[ChatMessage], **kwargs: Any) -> ChatResponse:
        return ChatResponse(message=self.says(messages, kwargs.get("tools", ())), raw=USAGE)

    @llm_chat_callback()
    def stream_chat(
        self, messages: Sequence[ChatMessage], **kwargs: Any
    ) -> Generator[ChatResponse, None, None]:
        return self._pieces(messages, kwargs.get("tools", ()))

    @llm_chat_callback()
    async def astream_chat(
        self, messages: Sequence[ChatMessage], **kwargs: Any
    ) -> AsyncGenerator[ChatResponse, None]:
        async def pieces() -> AsyncGenerator[ChatResponse, None]:
            for piece in self._pieces(messages, kwargs.get("tools", ())):
                yield piece

        return pieces()

    @llm_completion_callback()
    def complete(self, prompt: str, formatted: bool = False, **kwargs: Any) -> CompletionResponse:
        return CompletionResponse(text=self.says([]).content or "")

    @llm_completion_callback()
    async def acomplete(
        self, prompt: str, formatted: bool = False, **kwargs: Any
    ) -> CompletionResponse:
        return CompletionResponse(text=self.says([]).content or "")

    def stream_complete(self, prompt: str, formatted: bool = False, **kwargs: Any) -> Any:
        raise NotImplementedError

    async def astream_complete(self, prompt: str, formatted: bool = False, **kwargs: Any) -> Any:
        raise NotImplementedError

    def _prepare_chat_with_tools(
        self,
        tools: Sequence[BaseTool],
        user_msg: str | ChatMessage | None = None,
        chat_history: list[ChatMessage] | None = None,
        verbose: bool = False,
        allow_parallel_tool_calls: bool = False,
        tool_required: bool = False,
        **kwargs: Any,
    ) -> dict[str, Any]:
        requests = (
            [ChatMessage(user_msg) if isinstance(user_msg, str) else user_msg]
            if user_msg is not None
            else []
        )
        offered = [tool.metadata.to_openai_tool() for tool in tools]
        return {
            "messages": [*(chat_history or []), *requests],
            "tools": offered,
            "parallel_tool_calls": allow_parallel_tool_calls,
            **kwargs,
        }

    def get_tool_calls_from_response(
        self, response: Any, error_on_no_tool_call: bool = True, **kwargs: Any
    ) -> Any:
        return [
            ToolSelection(
                tool_id=call["id"],
                tool_name=call["function"]["name"],
                tool_kwargs=json.loads(call["function"]["arguments"]),
            )
            for call in response.message.additional_kwargs.get("tool_calls", ())
        ]


class Reasoning(Scripted):
    """Same as `Scripted`, in the words of a ReAct agent, which offers its tools as text."""

    def _next(self, messages: Sequence[ChatMessage], tools: Sequence[Any]) -> Any:
        offered = re.findall("^> Tool Name: (.*)$", str(messages[0].content), re.M)
        answer = self._script.answer(list(messages), offered)
        if isinstance(answer, list):
            [each] = answer
            action = f"Action: {each.name}\nAction Input: {json.dumps(each.arguments)}"
            return f"Thought: I need a tool.\n{action}"
        return f"Thought: I know.\nAnswer: {text_of(answer)}"


def _message(text: str) -> ChatMessage:
    return ChatMessage(text, role="assistant")


def calls(*calls: tuple[str, str, dict[str, Any]]) -> ChatMessage:
    """A message that calls tools, each as (id, name, arguments)."""
    tool_calls = [
        {
            "id": key,
            "type": "function",
            "function": {"name": name, "arguments": json.dumps(arguments)},
        }
        for key, name, arguments in calls
    ]
    return ChatMessage("", role="assistant", additional_kwargs={"tool_calls": tool_calls})
