"""Tape mode for PydanticAI: a capability whose model and tools answer what was recorded."""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager
from dataclasses import KW_ONLY, dataclass, field
from typing import Any

from pydantic_ai import RunContext
from pydantic_ai.capabilities import AbstractCapability, WrapToolExecuteHandler
from pydantic_ai.messages import ModelMessage, ModelMessagesTypeAdapter, ModelResponse, ToolCallPart
from pydantic_ai.models import CompletedStreamedResponse, Model, ModelRequestParameters, StreamedResponse
from pydantic_ai.models.wrapper import WrapperModel
from pydantic_ai.settings import ModelSettings
from pydantic_ai.tools import ToolDefinition

from tallystick.recorder import Player
from tallystick.records import Json
from tallystick_pydantic_ai.messages import request_of

__all__ = ["TapeCapability", "normal"]

_VOLATILE = frozenset(
    {"timestamp", "run_id", "conversation_id", "usage", "provider_response_id", "provider_url", "provider_name",
     "provider_details", "model_name", "metadata", "state"}
)  # fmt: skip


@dataclass
class TapeCapability(AbstractCapability[Any]):
    """Plays a tape to an agent: `agent.run_sync(prompt, capabilities=[TapeCapability(player)])`.

    The agent's own model is never called. Tools answer what was recorded, but those whose names are in `safe`.
    """

    player: Player
    _: KW_ONLY
    safe: Collection[str] = field(default_factory=frozenset)
    id: str | None = "tallystick_tape"

    def get_wrapper_model(self, model: Model) -> Model:
        """A model that answers from the tape."""
        return _TapeModel(model, self.player)

    async def wrap_tool_execute(
        self, ctx: RunContext[Any], *, call: ToolCallPart, tool_def: ToolDefinition, args: dict[str, Any],
        handler: WrapToolExecuteHandler,
    ) -> Any:  # fmt: skip
        """The recorded result of a tool; one that is safe runs, where it was called then."""
        if call.tool_name in self.safe:
            self.player.passed(call.tool_name, {"arguments": args})
            return await handler(args)
        return self.player.tool(call.tool_name, {"arguments": args})


class _TapeModel(WrapperModel):
    def __init__(self, wrapped: Model, player: Player) -> None:
        super().__init__(wrapped)
        self._player = player

    async def request(
        self, messages: list[ModelMessage], model_settings: ModelSettings | None,
        model_request_parameters: ModelRequestParameters,
    ) -> ModelResponse:  # fmt: skip
        return self._play(messages, model_settings, model_request_parameters)

    @asynccontextmanager
    async def request_stream(
        self, messages: list[ModelMessage], model_settings: ModelSettings | None,
        model_request_parameters: ModelRequestParameters, run_context: RunContext[Any] | None = None,
    ) -> AsyncIterator[StreamedResponse]:  # fmt: skip
        response = self._play(messages, model_settings, model_request_parameters)
        yield CompletedStreamedResponse(response, model_request_parameters=model_request_parameters, replay_events=True)

    def _play(
        self, messages: list[ModelMessage], settings: ModelSettings | None, parameters: ModelRequestParameters
    ) -> ModelResponse:
        request = request_of(self.wrapped, messages, settings, parameters)
        played: Any = self._player.model(request, normal=normal)
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
        "messages": [_bare(message) for message in messages] if isinstance(messages, list) else messages,
        "settings": request.get("settings"), "parameters": request.get("parameters"),
    }  # fmt: skip


def _bare(message: Json) -> Json:
    if not isinstance(message, dict):
        return message
    kept = {name: value for name, value in message.items() if name not in _VOLATILE}
    parts = kept.get("parts")
    if isinstance(parts, list):
        kept["parts"] = [
            {name: value for name, value in part.items() if name not in _VOLATILE and value is not None}
            if isinstance(part, dict) else part
            for part in parts
        ]  # fmt: skip
    return kept
