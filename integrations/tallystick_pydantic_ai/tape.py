"""Tape mode for PydanticAI: a capability whose model and tools answer what was recorded."""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager
from dataclasses import KW_ONLY, dataclass, field
from typing import Any

from pydantic_ai import RunContext, exceptions
from pydantic_ai.capabilities import AbstractCapability, CapabilityOrdering, WrapToolExecuteHandler
from pydantic_ai.exceptions import ModelRetry, SkipToolExecution
from pydantic_ai.messages import ModelMessage, ModelMessagesTypeAdapter, ModelResponse, ToolCallPart
from pydantic_ai.models import Model, ModelRequestParameters, StreamedResponse
from pydantic_ai.models.wrapper import WrapperModel
from pydantic_ai.settings import ModelSettings
from pydantic_ai.tools import ToolDefinition, ToolDenied

from tallystick.errors import RecordedFailure
from tallystick.kit import check_player
from tallystick.kit.tapes import check_safe, errors_of, sent_result
from tallystick.recorder import Player
from tallystick.records import Json, TapeCall
from tallystick_pydantic_ai.messages import comparable, request_of
from tallystick_pydantic_ai.recorder import TallyRecorder
from tallystick_pydantic_ai.stream import PlayedStream

_RETRY = ("ModelRetry", "ToolRetryError")
_FAILED = ("ToolFailed", "ToolFailedError")
_DENIED = "ActionDenied"
_ERRORS = errors_of(exceptions)


@dataclass
class TapeCapability(AbstractCapability[Any]):
    """Plays a tape to an agent: `agent.run_sync(prompt, capabilities=[TapeCapability(player)])`.

    The agent's own model is never called. Tools answer what was recorded, except those whose names
    are in `safe`: they are compared and run for real. Requests are compared, the model is not.
    """

    player: Player
    _: KW_ONLY
    safe: Collection[str] = field(default_factory=frozenset)
    id: str | None = "tallystick_tape"

    def __post_init__(self) -> None:
        check_player(self.player, "TapeCapability")
        check_safe(self.safe)

    def get_ordering(self) -> CapabilityOrdering:
        """Return the place of the recorder, by which the tape was recorded; inside of it, so that
        the recorder records the replay.
        """
        return CapabilityOrdering(position="outermost", wrapped_by=[TallyRecorder])

    def get_wrapper_model(self, model: Model) -> Model:
        """Return a model that answers from the tape."""
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
        """Return the recorded result of a tool."""
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
            if error.kind == _DENIED:
                raise SkipToolExecution(ToolDenied(error.message)) from error
            raise
        # The form in which the result was sent to the model counts, if an agent sent it.
        sent = sent_result(self.player, recorded, _result_in, parts="parts")
        return result if sent is None else sent


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
            request_of(self.wrapped, messages, settings, parameters), normal=comparable
        )

    def _answer(self, call: TapeCall) -> ModelResponse:
        return _response(self._player.answer(call, errors=_ERRORS))


def _response(played: Any) -> ModelResponse:
    message = {**(played.get("envelope") or {}), **(played.get("answer") or {})}
    response = ModelMessagesTypeAdapter.validate_python([message])[0]
    assert isinstance(response, ModelResponse)
    return response


def _result_in(part: Any, call_id: Json) -> Any:
    is_result = part.get("part_kind") == "tool-return" and part.get("tool_call_id") == call_id
    return part.get("content") if is_result else None
