"""Tape mode for LlamaIndex: models and tools that answer what was recorded."""

from __future__ import annotations

import copy
import json
from collections.abc import AsyncGenerator, Collection, Generator, Iterator, Mapping, Sequence
from inspect import signature
from typing import Any, TypeVar

from llama_index.core.base.llms.types import (
    ChatMessage,
    ChatResponse,
    CompletionResponse,
    LLMMetadata,
)
from llama_index.core.chat_engine.types import AgentChatResponse
from llama_index.core.llms.callbacks import llm_chat_callback, llm_completion_callback
from llama_index.core.llms.function_calling import FunctionCallingLLM
from llama_index.core.llms.llm import LLM, ToolSelection
from llama_index.core.tools import AsyncBaseTool, BaseTool, FunctionTool, ToolMetadata, ToolOutput
from pydantic import PrivateAttr

from tallystick.errors import InvalidInput
from tallystick.recorder import Player, tool_form
from tallystick.records import Json, TapeCall
from tallystick_llama_index.messages import request_of
from tallystick_llama_index.stream import chat_of, chats_of, completion_of, completions_of

__all__ = ["TapeLLM", "normal", "tape_tools"]

T = TypeVar("T")


class TapeLLM(FunctionCallingLLM):
    """A model that plays a tape: `FunctionAgent(llm=TapeLLM(player), tools=tape_tools(player,
    tools))`.

    `like` is the model that was recorded; it is never called, only asked how it offers tools and
    what its settings are. With it, these are compared too.
    """

    _player: Player = PrivateAttr()
    _like: LLM | None = PrivateAttr()

    def __init__(self, player: Player, *, like: LLM | None = None, **fields: Any) -> None:
        super().__init__(**fields)
        self._player, self._like = player, like

    @classmethod
    def class_name(cls) -> str:
        """The name of the class, for LlamaIndex's own serialisation."""
        return "TapeLLM"

    @property
    def metadata(self) -> LLMMetadata:
        """That of the recorded model, as far as it is known."""
        if self._like is not None:
            return self._like.metadata
        requests = [call.request for call in self._player.tape.calls if call.kind == "model_call"]
        known = [request for request in requests if isinstance(request, dict)]
        names = [request.get("model") for request in known]
        name = next((name for name in names if isinstance(name, str)), "unknown")
        chats = any("messages" in request for request in known)
        return LLMMetadata(is_chat_model=chats, is_function_calling_model=True, model_name=name)

    @llm_chat_callback()
    def chat(self, messages: Sequence[ChatMessage], **kwargs: Any) -> ChatResponse:
        """The recorded answer to a chat."""
        return self._chat(messages, kwargs)

    @llm_chat_callback()
    async def achat(self, messages: Sequence[ChatMessage], **kwargs: Any) -> ChatResponse:
        """Same as `chat`."""
        return self._chat(messages, kwargs)

    @llm_chat_callback()
    def stream_chat(
        self, messages: Sequence[ChatMessage], **kwargs: Any
    ) -> Generator[ChatResponse, None, None]:
        """Same as `chat`, in as many pieces as it was recorded in."""
        return self._chats(messages, kwargs)

    @llm_chat_callback()
    async def astream_chat(
        self, messages: Sequence[ChatMessage], **kwargs: Any
    ) -> AsyncGenerator[ChatResponse, None]:
        """Same as `stream_chat`."""
        return _later(self._chats(messages, kwargs))

    @llm_completion_callback()
    def complete(self, prompt: str, formatted: bool = False, **kwargs: Any) -> CompletionResponse:
        """The recorded completion of a prompt."""
        return self._complete(prompt, kwargs)

    @llm_completion_callback()
    async def acomplete(
        self, prompt: str, formatted: bool = False, **kwargs: Any
    ) -> CompletionResponse:
        """Same as `complete`."""
        return self._complete(prompt, kwargs)

    @llm_completion_callback()
    def stream_complete(
        self, prompt: str, formatted: bool = False, **kwargs: Any
    ) -> Generator[CompletionResponse, None, None]:
        """Same as `complete`, in as many pieces as it was recorded in."""
        return self._completes(prompt, kwargs)

    @llm_completion_callback()
    async def astream_complete(
        self, prompt: str, formatted: bool = False, **kwargs: Any
    ) -> AsyncGenerator[CompletionResponse, None]:
        """Same as `stream_complete`."""
        return _later(self._completes(prompt, kwargs))

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
        if isinstance(self._like, FunctionCallingLLM):
            return self._like._prepare_chat_with_tools_compat(
                tools,
                user_msg=user_msg,
                chat_history=chat_history,
                verbose=verbose,
                allow_parallel_tool_calls=allow_parallel_tool_calls,
                tool_required=tool_required,
                **kwargs,
            )
        asked = (
            []
            if user_msg is None
            else [ChatMessage(user_msg) if isinstance(user_msg, str) else user_msg]
        )
        offered = [tool.metadata.to_openai_tool(skip_length_check=True) for tool in tools]
        return {"messages": [*(chat_history or []), *asked], "tools": offered, **kwargs}

    def predict_and_call(
        self, tools: Sequence[BaseTool], *args: Any, **kwargs: Any
    ) -> AgentChatResponse:
        """Same as any model, with the tools held against the tape: those that nobody taped run for
        real.
        """
        return super().predict_and_call(self._known(tools), *args, **kwargs)

    async def apredict_and_call(
        self, tools: Sequence[BaseTool], *args: Any, **kwargs: Any
    ) -> AgentChatResponse:
        """Same as `predict_and_call`."""
        return await super().apredict_and_call(self._known(tools), *args, **kwargs)

    def _known(self, tools: Sequence[BaseTool]) -> list[BaseTool]:
        """A structured answer is made by a tool of LlamaIndex's own."""
        return [tool if hasattr(tool, _ON_TAPE) else _real(self._player, tool) for tool in tools]

    def get_tool_calls_from_response(
        self, response: ChatResponse, error_on_no_tool_call: bool = True, **kwargs: Any
    ) -> list[ToolSelection]:
        """The calls in a recorded answer, in whatever form its provider gave them."""
        found = list(_calls(response.message))
        if not found and isinstance(self._like, FunctionCallingLLM):
            return self._like.get_tool_calls_from_response(
                response, error_on_no_tool_call=error_on_no_tool_call, **kwargs
            )
        if not found and error_on_no_tool_call:
            raise ValueError("The recorded answer calls no tool.")
        return found

    def _chat(self, messages: Sequence[ChatMessage], given: Mapping[str, Any]) -> ChatResponse:
        return chat_of(self._player.answer(self._play(messages, given)))

    def _complete(self, prompt: str, given: Mapping[str, Any]) -> CompletionResponse:
        return completion_of(self._player.answer(self._play(prompt, given)))

    def _chats(
        self, messages: Sequence[ChatMessage], given: Mapping[str, Any]
    ) -> Generator[ChatResponse, None, None]:
        call = self._play(messages, given)
        return self._to_its_end(call, iter(()) if call.response is None else chats_of(call))

    def _completes(
        self, prompt: str, given: Mapping[str, Any]
    ) -> Generator[CompletionResponse, None, None]:
        call = self._play(prompt, given)
        return self._to_its_end(call, iter(()) if call.response is None else completions_of(call))

    def _to_its_end(self, call: TapeCall, pieces: Iterator[T]) -> Generator[T, None, None]:
        """The pieces, and then what broke the stream where one was recorded that broke."""
        yield from pieces
        self._player.answer(call)

    def _play(self, said: str | Sequence[ChatMessage], given: Mapping[str, Any]) -> TapeCall:
        described = {} if self._like is None else _described(self._like)
        form = normal if self._like is None else _with_settings
        return self._player.call_model(request_of(said, given, described), normal=form)


async def _later(pieces: Generator[T, None, None]) -> AsyncGenerator[T, None]:
    for piece in pieces:
        yield piece


def tape_tools(
    player: Player, tools: Sequence[Any], *, safe: Collection[str] = ()
) -> list[AsyncBaseTool]:
    """The tools with their recorded results; those whose names are in `safe` are compared and run
    for real.

    Functions are taken as agents take them.
    """
    made = [
        tool if isinstance(tool, BaseTool) else FunctionTool.from_defaults(tool) for tool in tools
    ]
    unknown = sorted(set(safe) - {tool.metadata.get_name() for tool in made})
    if unknown:
        raise InvalidInput(f"{', '.join(unknown)} is not among the tools.")
    return [
        _real(player, tool) if tool.metadata.get_name() in safe else _taped(player, tool)
        for tool in made
    ]


def normal(request: Json) -> Json:
    """Messages, or the prompt, and tools of a request."""
    if not isinstance(request, dict):
        return request
    messages, tools = request.get("messages"), request.get("tools")
    asked: list[Json] = (
        [_bare(one) for one in messages] if isinstance(messages, list) else [request.get("prompt")]
    )
    offered: list[Json] = [tool_form(tool) for tool in tools] if isinstance(tools, list) else []
    return {"messages": asked, "tools": offered}


def _with_settings(request: Json) -> Json:
    """Same as `normal`, with the name of the model, its settings and the parameters of the call."""
    found = normal(request)
    if not isinstance(found, dict) or not isinstance(request, dict):
        return found
    return {**found, **{name: request.get(name) for name in ("model", "settings", "parameters")}}


def _bare(message: Json) -> Json:
    """A message without what its provider said of it: what came back is compared, not how it was
    billed.
    """
    if not isinstance(message, dict) or not isinstance(message.get("additional_kwargs"), dict):
        return message
    told = message["additional_kwargs"]
    assert isinstance(told, dict)
    kept: dict[str, Json] = {name: value for name, value in told.items() if name not in _BILLED}
    return {**message, "additional_kwargs": kept}


_ON_TAPE = "tallystick_on_tape"
"""What tells a tool that a player knows of."""
_BILLED = ("usage", "prompt_tokens", "completion_tokens", "total_tokens")


def _described(model: LLM) -> dict[str, Any]:
    """A model's own description, as the events of LlamaIndex give it; those of early releases held
    its fields.
    """
    described: dict[str, Any] = (
        model.to_payload() if hasattr(LLM, "to_payload") else model.to_dict()
    )
    return described


def _calls(message: ChatMessage) -> Iterator[ToolSelection]:
    """Tool calls as blocks of a message, or among what its provider said beside it."""
    blocks = [
        block for block in message.blocks if getattr(block, "block_type", None) == "tool_call"
    ]
    for block in blocks:
        called: Any = block
        yield ToolSelection(
            tool_id=called.tool_call_id or "",
            tool_name=called.tool_name,
            tool_kwargs=_read(called.tool_kwargs),
        )
    for call in message.additional_kwargs.get("tool_calls") or () if not blocks else ():
        function = call.get("function") or call
        arguments: Any = next(
            (function[name] for name in ("arguments", "input", "args") if name in function), {}
        )
        yield ToolSelection(
            tool_id=call.get("id") or "", tool_name=function["name"], tool_kwargs=_read(arguments)
        )


def _read(arguments: Any) -> dict[str, Any]:
    """The arguments of a call; what is no JSON object is none, as agents take it."""
    if isinstance(arguments, str):
        try:
            arguments = json.loads(arguments)
        except ValueError:
            arguments = {}
    return arguments if isinstance(arguments, dict) else {}


def _asked(
    tool: Any, kind: type, method: str, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> dict[str, Any]:
    """The arguments of a call as the recorder writes them: by name, and by place where they have
    none.
    """
    bound = (
        signature(getattr(kind, method, None) or kind.__call__)
        .bind(tool, *args, **kwargs)
        .arguments
    )
    given = dict(bound.get("kwargs") or {})
    given.pop(getattr(tool, "ctx_param_name", None) or "", None)
    rest = {name: value for name, value in bound.items() if name not in ("self", "args", "kwargs")}
    return {**({"args": list(bound["args"])} if bound.get("args") else {}), **rest, **given}


def _play(
    player: Player, like: BaseTool, method: str, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> ToolOutput:
    """The recorded result of a tool, in the blocks that were sent to the model where they were."""
    name, asked = like.metadata.get_name(), _asked(like, type(like), method, args, kwargs)
    recorded = player.call_tool(name, {"arguments": asked})
    result = player.result(recorded)
    told: dict[str, Any] = {"tool_name": name, "raw_input": asked, "raw_output": result}
    blocks = next(_sent(player, recorded), None)
    if blocks is None:
        return ToolOutput(content=str(result), **told)
    return ToolOutput(
        blocks=list(ChatMessage.model_validate({"role": "tool", "blocks": blocks}).blocks), **told
    )


class _TapeTool(AsyncBaseTool):
    """A tool on tape."""

    tallystick_on_tape = True

    def __init__(self, player: Player, like: BaseTool) -> None:
        self._player, self._like = player, like

    @property
    def metadata(self) -> ToolMetadata:
        """What the model is told of the tool."""
        return self._like.metadata

    def call(self, *args: Any, **kwargs: Any) -> ToolOutput:
        """The recorded result."""
        return _play(self._player, self._like, "call", args, kwargs)

    async def acall(self, *args: Any, **kwargs: Any) -> ToolOutput:
        """Same as `call`."""
        return _play(self._player, self._like, "acall", args, kwargs)


class _TapeFunction(FunctionTool):
    """Same as `_TapeTool`, for a function, which LlamaIndex calls in a way of its own."""

    tallystick_on_tape = True

    def __init__(self, player: Player, like: FunctionTool) -> None:
        def play(**kwargs: Any) -> None:
            """Its signature takes whatever the model asks for."""

        super().__init__(fn=play, metadata=like.metadata)
        self._player, self._like = player, like

    def call(self, *args: Any, **kwargs: Any) -> ToolOutput:
        """The recorded result."""
        return _play(self._player, self._like, "call", args, kwargs)

    async def acall(self, *args: Any, **kwargs: Any) -> ToolOutput:
        """Same as `call`."""
        return _play(self._player, self._like, "acall", args, kwargs)


def _taped(player: Player, tool: BaseTool) -> AsyncBaseTool:
    return (
        _TapeFunction(player, tool) if isinstance(tool, FunctionTool) else _TapeTool(player, tool)
    )


def _real(player: Player, tool: BaseTool) -> AsyncBaseTool:
    """The tool itself, held against the tape when it is called."""
    if not isinstance(tool, AsyncBaseTool):
        raise InvalidInput(
            f"{tool.metadata.get_name()} can only be called synchronously; make a FunctionTool "
            f"of it."
        )
    kind = type(tool)

    def compare(method: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        asked = _asked(tool, kind, method, args, kwargs)
        player.call_tool(tool.metadata.get_name(), {"arguments": asked}, real=True)

    # The tool itself does the work, so that one way to call it may lead to another.
    def call(self: Any, *args: Any, **kwargs: Any) -> ToolOutput:
        compare("call", args, kwargs)
        return tool.call(*args, **kwargs)

    async def acall(self: Any, *args: Any, **kwargs: Any) -> ToolOutput:
        compare("acall", args, kwargs)
        return await tool.acall(*args, **kwargs)

    made = copy.copy(tool)
    # A subclass for this one tool: agents ask what class a tool is of.
    made.__class__ = type(kind.__name__, (kind,), {"call": call, "acall": acall, _ON_TAPE: True})
    return made


def _sent(player: Player, recorded: TapeCall) -> Iterator[Any]:
    """The result of a recorded call, as the next request of the tape that has it holds it."""
    called = recorded.request.get("tool_call_id") if isinstance(recorded.request, dict) else None
    calls = player.tape.calls
    for call in calls[calls.index(recorded) :] if called is not None else ():
        request: Any = call.request
        messages = request.get("messages") or () if call.kind == "model_call" else ()
        for message in reversed(messages):
            if (message.get("additional_kwargs") or {}).get(
                "tool_call_id"
            ) == called and message.get("role") == "tool":
                yield message.get("blocks") or []
