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
from tallystick.kit import check_player
from tallystick.kit.tapes import (
    check_safe_tools,
    comparable_request,
    recorded_model,
    recorded_requests,
    sent_result,
)
from tallystick.recorder import Player
from tallystick.records import Json, TapeCall
from tallystick_llama_index.messages import description_of, request_of
from tallystick_llama_index.render import calls_of
from tallystick_llama_index.stream import chat_of, chats_of, completion_of, completions_of

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
        check_player(player, "TapeLLM")
        super().__init__(**fields)
        self._player, self._like = player, like

    @classmethod
    def class_name(cls) -> str:
        """Return the name of the class, for LlamaIndex's own serialisation."""
        return "TapeLLM"

    @property
    def metadata(self) -> LLMMetadata:
        """Return the metadata of the recorded model, as far as the tape has them."""
        if self._like is not None:
            return self._like.metadata
        name = recorded_model(self._player) or "unknown"
        chats = any("messages" in request for request in recorded_requests(self._player))
        return LLMMetadata(is_chat_model=chats, is_function_calling_model=True, model_name=name)

    @llm_chat_callback()
    def chat(self, messages: Sequence[ChatMessage], **kwargs: Any) -> ChatResponse:
        """Return the recorded answer to a chat."""
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
        return _as_async(self._chats(messages, kwargs))

    @llm_completion_callback()
    def complete(self, prompt: str, formatted: bool = False, **kwargs: Any) -> CompletionResponse:
        """Return the recorded completion of a prompt."""
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
        return _as_async(self._completes(prompt, kwargs))

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
        new_messages = (
            []
            if user_msg is None
            else [ChatMessage(user_msg) if isinstance(user_msg, str) else user_msg]
        )
        offered = [tool.metadata.to_openai_tool(skip_length_check=True) for tool in tools]
        return {"messages": [*(chat_history or []), *new_messages], "tools": offered, **kwargs}

    def predict_and_call(
        self, tools: Sequence[BaseTool], *args: Any, **kwargs: Any
    ) -> AgentChatResponse:
        """Same as any model, with the calls of tools compared with the tape: tools that are not
        taped run for real.
        """
        return super().predict_and_call(self._compare_untaped(tools), *args, **kwargs)

    async def apredict_and_call(
        self, tools: Sequence[BaseTool], *args: Any, **kwargs: Any
    ) -> AgentChatResponse:
        """Same as `predict_and_call`."""
        return await super().apredict_and_call(self._compare_untaped(tools), *args, **kwargs)

    def _compare_untaped(self, tools: Sequence[BaseTool]) -> list[BaseTool]:
        """Return the tools, of which those that are not taped, as LlamaIndex's own for structured
        answers, run for real.
        """
        return [tool if hasattr(tool, _ON_TAPE) else _real(self._player, tool) for tool in tools]

    def get_tool_calls_from_response(
        self, response: ChatResponse, error_on_no_tool_call: bool = True, **kwargs: Any
    ) -> list[ToolSelection]:
        """Return the calls in a recorded answer, in whatever form its provider gave them."""
        selections = [
            ToolSelection(
                tool_id=call.tool_call_id or "",
                tool_name=call.name,
                tool_kwargs=_parse_arguments(call.arguments),
            )
            for call in calls_of(response.message)
        ]
        if not selections and isinstance(self._like, FunctionCallingLLM):
            return self._like.get_tool_calls_from_response(
                response, error_on_no_tool_call=error_on_no_tool_call, **kwargs
            )
        if not selections and error_on_no_tool_call:
            raise ValueError("The recorded answer calls no tool.")
        return selections

    def _chat(self, messages: Sequence[ChatMessage], options: Mapping[str, Any]) -> ChatResponse:
        return chat_of(self._player.answer(self._play(messages, options)))

    def _complete(self, prompt: str, options: Mapping[str, Any]) -> CompletionResponse:
        return completion_of(self._player.answer(self._play(prompt, options)))

    def _chats(
        self, messages: Sequence[ChatMessage], options: Mapping[str, Any]
    ) -> Generator[ChatResponse, None, None]:
        call = self._play(messages, options)
        return self._until_end(call, iter(()) if call.response is None else chats_of(call))

    def _completes(
        self, prompt: str, options: Mapping[str, Any]
    ) -> Generator[CompletionResponse, None, None]:
        call = self._play(prompt, options)
        return self._until_end(call, iter(()) if call.response is None else completions_of(call))

    def _until_end(self, call: TapeCall, pieces: Iterator[T]) -> Generator[T, None, None]:
        """Yield the pieces; then raise the error that broke the recorded stream, if one did."""
        yield from pieces
        self._player.answer(call)

    def _play(self, prompt: str | Sequence[ChatMessage], options: Mapping[str, Any]) -> TapeCall:
        description = {} if self._like is None else description_of(self._like)
        form = normal if self._like is None else _with_settings
        return self._player.call_model(request_of(prompt, options, description), normal=form)


async def _as_async(pieces: Generator[T, None, None]) -> AsyncGenerator[T, None]:
    for piece in pieces:
        yield piece


def tape_tools(
    player: Player, tools: Sequence[Any], *, safe: Collection[str] = ()
) -> list[AsyncBaseTool]:
    """Return the tools with their recorded results; those whose names are in `safe` are compared
    and run for real.

    Functions become tools as agents make them.
    """
    check_player(player, "tape_tools", ", tools")
    base_tools = [
        tool if isinstance(tool, BaseTool) else FunctionTool.from_defaults(tool) for tool in tools
    ]
    check_safe_tools(safe, (tool.metadata.get_name() for tool in base_tools))
    return [
        _real(player, tool) if tool.metadata.get_name() in safe else _tape_tool(player, tool)
        for tool in base_tools
    ]


def normal(request: Json) -> Json:
    """Return messages, or the prompt, and tools of a request."""
    return comparable_request(request, _message_form)


def _with_settings(request: Json) -> Json:
    """Same as `normal`, with the name of the model, its settings and the parameters of the call."""
    return comparable_request(request, _message_form, "model", "settings", "parameters")


def _message_form(message: Json) -> Json:
    """Return a message in the form in which it is compared: without the usage that was billed."""
    if not isinstance(message, dict) or not isinstance(message.get("additional_kwargs"), dict):
        return message
    attributes = message["additional_kwargs"]
    assert isinstance(attributes, dict)
    fields: dict[str, Json] = {
        name: value for name, value in attributes.items() if name not in _BILLED
    }
    return {**message, "additional_kwargs": fields}


_ON_TAPE = "tallystick_on_tape"
"""Attribute of the tools that are on tape."""
_BILLED = ("usage", "prompt_tokens", "completion_tokens", "total_tokens")


def _parse_arguments(arguments: Any) -> dict[str, Any]:
    """Return the arguments of a call; none where they are no JSON object, as agents do."""
    if isinstance(arguments, str):
        try:
            arguments = json.loads(arguments)
        except ValueError:
            arguments = {}
    return arguments if isinstance(arguments, dict) else {}


def _call_arguments(
    tool: Any, kind: type, method: str, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> dict[str, Any]:
    """Return the arguments of a call as they are recorded: by name, and by place if they have no
    name.
    """
    bound = (
        signature(getattr(kind, method, None) or kind.__call__)
        .bind(tool, *args, **kwargs)
        .arguments
    )
    keywords = dict(bound.get("kwargs") or {})
    keywords.pop(getattr(tool, "ctx_param_name", None) or "", None)
    rest = {name: value for name, value in bound.items() if name not in ("self", "args", "kwargs")}
    return {**({"args": list(bound["args"])} if bound.get("args") else {}), **rest, **keywords}


def _play(
    player: Player, like: BaseTool, method: str, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> ToolOutput:
    """Return the recorded result of a tool, in the blocks that the model got, if it got any."""
    name, arguments = (
        like.metadata.get_name(),
        _call_arguments(like, type(like), method, args, kwargs),
    )
    recorded = player.call_tool(name, {"arguments": arguments})
    result = player.result(recorded)
    fields: dict[str, Any] = {"tool_name": name, "raw_input": arguments, "raw_output": result}
    blocks = sent_result(player, recorded, _blocks_in)
    if blocks is None:
        return ToolOutput(content=str(result), **fields)
    return ToolOutput(
        blocks=list(ChatMessage.model_validate({"role": "tool", "blocks": blocks}).blocks), **fields
    )


class _TapeTool(AsyncBaseTool):
    """A tool on tape."""

    tallystick_on_tape = True

    def __init__(self, player: Player, like: BaseTool) -> None:
        self._player, self._like = player, like

    @property
    def metadata(self) -> ToolMetadata:
        """Return the metadata of the tool, which the model reads."""
        return self._like.metadata

    def call(self, *args: Any, **kwargs: Any) -> ToolOutput:
        """Return the recorded result."""
        return _play(self._player, self._like, "call", args, kwargs)

    async def acall(self, *args: Any, **kwargs: Any) -> ToolOutput:
        """Same as `call`."""
        return _play(self._player, self._like, "acall", args, kwargs)


class _TapeFunction(FunctionTool):
    """Same as `_TapeTool`, for a function, which LlamaIndex calls in a way of its own."""

    tallystick_on_tape = True

    def __init__(self, player: Player, like: FunctionTool) -> None:
        def play(**kwargs: Any) -> None:
            """Accept whatever arguments the model gives."""

        super().__init__(fn=play, metadata=like.metadata)
        self._player, self._like = player, like

    def call(self, *args: Any, **kwargs: Any) -> ToolOutput:
        """Return the recorded result."""
        return _play(self._player, self._like, "call", args, kwargs)

    async def acall(self, *args: Any, **kwargs: Any) -> ToolOutput:
        """Same as `call`."""
        return _play(self._player, self._like, "acall", args, kwargs)


def _tape_tool(player: Player, tool: BaseTool) -> AsyncBaseTool:
    return (
        _TapeFunction(player, tool) if isinstance(tool, FunctionTool) else _TapeTool(player, tool)
    )


def _real(player: Player, tool: BaseTool) -> AsyncBaseTool:
    """Return a tool that runs for real, its calls compared with the tape."""
    if not isinstance(tool, AsyncBaseTool):
        raise InvalidInput(
            f"{tool.metadata.get_name()} can only be called synchronously; make a FunctionTool "
            f"of it."
        )
    kind = type(tool)

    def compare(method: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        arguments = _call_arguments(tool, kind, method, args, kwargs)
        player.call_tool(tool.metadata.get_name(), {"arguments": arguments}, real=True)

    # The tool itself does the work, so that one way to call it may lead to another.
    def call(self: Any, *args: Any, **kwargs: Any) -> ToolOutput:
        compare("call", args, kwargs)
        return tool.call(*args, **kwargs)

    async def acall(self: Any, *args: Any, **kwargs: Any) -> ToolOutput:
        compare("acall", args, kwargs)
        return await tool.acall(*args, **kwargs)

    clone = copy.copy(tool)
    # A subclass for this one tool: agents ask what class a tool is of.
    clone.__class__ = type(kind.__name__, (kind,), {"call": call, "acall": acall, _ON_TAPE: True})
    return clone


def _blocks_in(message: Any, call_id: Json) -> Any:
    attributes = message.get("additional_kwargs") or {}
    is_result = message.get("role") == "tool" and attributes.get("tool_call_id") == call_id
    return (message.get("blocks") or []) if is_result and call_id is not None else None
