"""Tape mode for PydanticAI: a capability whose model and tools answer what was recorded."""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Iterator
from contextlib import asynccontextmanager
from dataclasses import KW_ONLY, dataclass, field
from typing import Any

from pydantic_ai import RunContext, exceptions
from pydantic_ai.capabilities import AbstractCapability, CapabilityOrdering, WrapToolExecuteHandler
from pydantic_ai.exceptions import ModelRetry
from pydantic_ai.messages import ModelMessage, ModelMessagesTypeAdapter, ModelResponse, ToolCallPart
from pydantic_ai.models import Model, ModelRequestParameters, StreamedResponse
from pydantic_ai.models.wrapper import WrapperModel
from pydantic_ai.settings import ModelSettings
from pydantic_ai.tools import ToolDefinition

from tallystick.errors import RecordedFailure
from tallystick.recorder import Player
from tallystick.records import Json, TapeCall
from tallystick_pydantic_ai.capability import TallyRecorder
from tallystick_pydantic_ai.messages import request_of
from tallystick_pydantic_ai.stream import PlayedStream

__all__ = ["TapeCapability", "normal"]

_VOLATILE = frozenset(
    {
        "timestamp",
        "run_id",
        "conversation_id",
        "usage",
        "provider_response_id",
        "provider_url",
        "provider_name",
        "provider_details",
        "model_name",
        "metadata",
        "state",
    }
)
_RETRY = ("ModelRetry", "ToolRetryError")
_FAILED = ("ToolFailed", "ToolFailedError")
_ERRORS: tuple[type[Exception], ...] = tuple(
    one for one in vars(exceptions).values() if isinstance(one, type) and issubclass(one, Exception)
)


@dataclass
class TapeCapability(AbstractCapability[Any]):
    """Plays a tape to an agent: `agent.run_sync(prompt, capabilities=[TapeCapability(player)])`.

    The agent's own model is never called. Tools answer what was recorded, but those whose names are
    in `safe`: they are compared and run for real. Which model it is makes no difference, what it is
    asked does.
    """

    player: Player
    _: KW_ONLY
    safe: Collection[str] = field(default_factory=frozenset)
    id: str | None = "tallystick_tape"

    def get_ordering(self) -> CapabilityOrdering:
        """Where the recorder stands, which is what the tape was recorded by; inside of it, so that
        it may watch.
        """
        return CapabilityOrdering(position="outermost", wrapped_by=[TallyRecorder])

    def get_wrapper_model(self, model: Model) -> Model:
        """A model that answers from the tape."""
        return _TapeModel(model, self.player)

    async def wrap_tool_execute(
        self,
        ctx: RunContext[Any],
        *,
        call: ToolCallPart,
        tool_def: ToolDefinition,
        args: dict[str, Any],
        handler: WrapToolExecuteHandler,
    ) -> Any:
        """The recorded result of a tool."""
        if call.tool_name in self.safe:
            self.player.call_tool(call.tool_name, {"arguments": args}, real=True)
            return await handler(args)
        recorded = self.player.call_tool(call.tool_name, {"arguments": args})
        try:
            result = self.player.result(recorded, errors=_ERRORS)
        except RecordedFailure as error:
            if error.kind in _RETRY:
                raise ModelRetry(error.message) from error
            if error.kind in _FAILED:
                raise exceptions.ToolFailed(error.message) from error
            raise
        # What was sent to the model is the result in the form that counts, where an agent sent it.
        return next(_sent(self.player, recorded), result)


class _TapeModel(WrapperModel):
    def __init__(self, wrapped: Model, player: Player) -> None:
        super().__init__(wrapped)
        self._player = player

    async def request(
        self,
        messages: list[ModelMessage],
        model_settings: ModelSettings | None,
        model_request_parameters: ModelRequestParameters,
    ) -> ModelResponse:
        return self._answer(self._play(messages, model_settings, model_request_parameters))

    @asynccontextmanager
    async def request_stream(
        self,
        messages: list[ModelMessage],
        model_settings: ModelSettings | None,
        model_request_parameters: ModelRequestParameters,
        run_context: RunContext[Any] | None = None,
    ) -> AsyncIterator[StreamedResponse]:
        call = self._play(messages, model_settings, model_request_parameters)
        # A stream that broke breaks where it did.
        response = self._answer(call) if call.response is None else _response(call.response)
        yield PlayedStream(response, call, model_request_parameters, lambda: self._answer(call))

    def _play(
        self,
        messages: list[ModelMessage],
        settings: ModelSettings | None,
        parameters: ModelRequestParameters,
    ) -> TapeCall:
        return self._player.call_model(
            request_of(self.wrapped, messages, settings, parameters), normal=normal
        )

    def _answer(self, call: TapeCall) -> ModelResponse:
        return _response(self._player.answer(call, errors=_ERRORS))


def _response(played: Any) -> ModelResponse:
    message = {**(played.get("envelope") or {}), **(played.get("answer") or {})}
    response = ModelMessagesTypeAdapter.validate_python([message])[0]
    assert isinstance(response, ModelResponse)
    return response


def normal(request: Json) -> Json:
    """A request without times, ids of runs, usage and what providers added."""
    if not isinstance(request, dict):
        return request
    messages = request.get("messages")
    return {
        "messages": [_bare(message) for message in messages]
        if isinstance(messages, list)
        else messages,
        "settings": request.get("settings"),
        "parameters": request.get("parameters"),
    }


def _bare(message: Json) -> Json:
    if not isinstance(message, dict):
        return message
    kept = _without(message)
    parts = message.get("parts")
    if isinstance(parts, list):
        kept["parts"] = [_part(part) if isinstance(part, dict) else part for part in parts]
    return kept


def _part(part: dict[str, Json]) -> dict[str, Json]:
    kept: dict[str, Json] = {
        name: value for name, value in _without(part).items() if value is not None
    }
    content = part.get("content")
    if part.get("part_kind") == "user-prompt" and isinstance(content, list):
        kept["content"] = [_without(one) if isinstance(one, dict) else one for one in content]
    if part.get("part_kind") == "retry-prompt" and part.get("tool_name") is None:
        # It answers no call, and its id was drawn.
        kept.pop("tool_call_id", None)
    return kept


def _without(value: dict[str, Json]) -> dict[str, Json]:
    return {name: inner for name, inner in value.items() if name not in _VOLATILE}


def _sent(player: Player, recorded: TapeCall) -> Iterator[Json]:
    """The result of a recorded call, as the next request of the tape that has it holds it."""
    called = recorded.request.get("tool_call_id") if isinstance(recorded.request, dict) else None
    calls = player.tape.calls
    for call in calls[calls.index(recorded) :]:
        request: Any = call.request
        messages = request.get("messages") or () if call.kind == "model_call" else ()
        # Some models use an id again: the last one is that of the latest call.
        for part in reversed([part for message in messages for part in message.get("parts") or ()]):
            if part.get("part_kind") == "tool-return" and part.get("tool_call_id") == called:
                yield part.get("content")
