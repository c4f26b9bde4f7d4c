"""Tape mode for LangChain and LangGraph: models and tools that answer what was recorded."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from langchain_core.callbacks import BaseCallbackHandler, BaseCallbackManager, CallbackManagerForLLMRun
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage, message_chunk_to_message, messages_from_dict
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult
from langchain_core.runnables import Runnable, RunnableBinding
from langchain_core.tools import BaseTool, StructuredTool, ToolException
from langchain_core.utils.function_calling import convert_to_openai_tool

from tallystick.errors import InvalidInput
from tallystick.recorder import Player
from tallystick.records import Json
from tallystick_langchain.messages import request_of

__all__ = ["TapeChatModel", "normal", "tape_tools"]

_ENVELOPE = ("id", "response_metadata", "usage_metadata")


class TapeChatModel(BaseChatModel):
    """A chat model that plays a tape: `create_agent(TapeChatModel(player), tape_tools(player, tools))`.

    `like` is the model that the agent was recorded with; it is never called, only asked how it binds tools.
    """

    player: Any
    like: BaseChatModel | None = None

    def __init__(self, player: Player, *, like: BaseChatModel | None = None, **fields: Any) -> None:
        super().__init__(**{"player": player, "like": like, **fields})

    @property
    def _llm_type(self) -> str:
        return "tallystick-tape"

    def bind_tools(self, tools: Sequence[Any], **kwargs: Any) -> Runnable[Any, AIMessage]:
        """As the recorded model binds them, else in the form that most providers take."""
        if self.like is not None:
            bound = self.like.bind_tools(tools, **kwargs)
            if not isinstance(bound, RunnableBinding):
                raise InvalidInput("This model binds tools in a way of its own; give the tape model without `like`.")
            return self.bind(**bound.kwargs)
        return self.bind(tools=[convert_to_openai_tool(tool) for tool in tools], **kwargs)

    def _generate(
        self, messages: list[BaseMessage], stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None, **kwargs: Any,
    ) -> ChatResult:  # fmt: skip
        request = request_of(messages, {**kwargs, "stop": stop})
        return ChatResult(generations=[ChatGeneration(message=_message(self.player.model(request, normal=normal)))])

    def _stream(
        self, messages: list[BaseMessage], stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None, **kwargs: Any,
    ) -> Iterator[ChatGenerationChunk]:  # fmt: skip
        message = self._generate(messages, stop, **kwargs).generations[0].message
        assert isinstance(message, AIMessage)
        yield ChatGenerationChunk(
            message=AIMessageChunk(
                content=message.content, id=message.id, usage_metadata=message.usage_metadata,
                response_metadata=message.response_metadata, additional_kwargs=message.additional_kwargs,
                tool_call_chunks=[
                    {"name": call["name"], "args": _json(call["args"]), "id": call["id"], "index": place}
                    for place, call in enumerate(message.tool_calls)
                ],
            )
        )  # fmt: skip


def tape_tools(player: Player, tools: Sequence[BaseTool], *, safe: Collection[str] = ()) -> list[BaseTool]:
    """The tools with their recorded results; those whose names are in `safe` run for real."""
    unknown = sorted(set(safe) - {tool.name for tool in tools})
    if unknown:
        raise InvalidInput(f"{', '.join(unknown)} is not among the tools.")
    return [_checked(player, tool) if tool.name in safe else _taped(player, tool) for tool in tools]


def normal(request: Json) -> Json:
    """Messages and tools of a request, without the ids of messages, usage and what providers added."""
    if not isinstance(request, dict):
        return request
    messages, tools = request.get("messages"), request.get("tools")
    return {
        "messages": [_bare(one) for one in messages] if isinstance(messages, list) else request.get("prompt"),
        "tools": [_tool(tool) for tool in tools] if isinstance(tools, list) else [],
        "stop": request.get("stop"),
    }


def _bare(message: Json) -> Json:
    if not isinstance(message, dict) or not isinstance(message.get("data"), dict):
        return message
    data = message["data"]
    assert isinstance(data, dict)
    kept = {name: value for name, value in data.items() if name not in _ENVELOPE and value not in (None, [], {}, "")}
    # A streamed answer is the same answer, whatever its class was called.
    kind = str(message.get("type")).removesuffix("MessageChunk").lower()
    return {"type": kind, "data": {name: value for name, value in kept.items() if name not in _STREAMED}}


_STREAMED = ("type", "tool_call_chunks", "chunk_position")


def _tool(tool: Json) -> Json:
    inner = tool.get("function", tool) if isinstance(tool, dict) else tool
    if not isinstance(inner, dict):
        return inner
    return {name: inner.get(name) for name in ("name", "description", "parameters")}


def _message(response: Any) -> BaseMessage:
    """The recorded answer as LangChain's own object."""
    answer, envelope = response.get("answer") or {}, response.get("envelope") or {}
    data = {**answer, **{name: value for name, value in envelope.items() if value is not None}}
    message = messages_from_dict([{"type": data.get("type", "ai"), "data": data}])[0]
    return message_chunk_to_message(message)


class _Checking(BaseCallbackHandler):
    """Holds the calls of a tool that runs for real against the tape."""

    raise_error = run_inline = True

    def __init__(self, player: Player, name: str) -> None:
        self._player = player
        self._name = name

    def on_tool_start(
        self, serialized: dict[str, Any] | None, input_str: str, *, inputs: dict[str, Any] | None = None, **_: Any
    ) -> None:  # fmt: skip
        """The call that the recorder saw, as it saw it."""
        self._player.passed(self._name, {"arguments": input_str if inputs is None else inputs})


def _checked(player: Player, tool: BaseTool) -> BaseTool:
    checking, known = _Checking(player, tool.name), tool.callbacks
    if isinstance(known, BaseCallbackManager):
        known = known.copy()
        known.add_handler(checking, inherit=False)
    else:
        known = [*(known or ()), checking]
    return tool.model_copy(update={"callbacks": known})


def _taped(player: Player, tool: BaseTool) -> BaseTool:
    def play(**arguments: Any) -> Any:
        result = player.tool(tool.name, {"arguments": arguments})
        if isinstance(result, Mapping) and result.get("type") == "tool":
            if result.get("status") == "error":
                raise ToolException(result.get("content"))
            return result.get("content")
        return result

    async def aplay(**arguments: Any) -> Any:
        return play(**arguments)

    return StructuredTool(
        name=tool.name, description=tool.description, args_schema=tool.tool_call_schema, func=play, coroutine=aplay,
        return_direct=tool.return_direct, handle_tool_error=True, tags=tool.tags,
    )  # fmt: skip


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)
