"""A recorded response as PydanticAI's stream: its parts begin with their first piece and grow to
what was recorded.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import replace

from pydantic_ai.messages import (
    BaseToolCallPart,
    ModelResponse,
    ModelResponsePart,
    ModelResponseStreamEvent,
    TextPart,
    ThinkingPart,
)
from pydantic_ai.models import CompletedStreamedResponse, ModelRequestParameters

from tallystick.recorder import stream_pieces
from tallystick.records import TapeCall


class PlayedStream(CompletedStreamedResponse):
    """The response of a recorded call, in as many events as it was recorded in; `on_end` raises the
    error that broke it.
    """

    def __init__(
        self,
        response: ModelResponse,
        call: TapeCall,
        parameters: ModelRequestParameters,
        on_end: Callable[[], object],
    ) -> None:
        super().__init__(response, model_request_parameters=parameters, replay_events=True)
        self._call, self._on_end = call, on_end

    async def _get_event_iterator(self) -> AsyncIterator[ModelResponseStreamEvent]:
        parts = self.response.parts
        for place, (part, pieces) in enumerate(
            zip(parts, stream_pieces(self._call, list(map(_text, parts))), strict=True)
        ):
            first, *rest = pieces
            yield self._parts_manager.handle_part(
                vendor_part_id=place, part=_with_text(part, first)
            )
            for piece in rest:
                for event in self._add_piece(place, part, piece):
                    yield event
        self._on_end()

    def _add_piece(
        self, place: int, part: ModelResponsePart, piece: str
    ) -> Iterator[ModelResponseStreamEvent]:
        if isinstance(part, TextPart):
            yield from self._parts_manager.handle_text_delta(vendor_part_id=place, content=piece)
        elif isinstance(part, ThinkingPart):
            yield from self._parts_manager.handle_thinking_delta(
                vendor_part_id=place, content=piece
            )
        elif (
            event := self._parts_manager.handle_tool_call_delta(vendor_part_id=place, args=piece)
        ) is not None:
            yield event

    def get(self) -> ModelResponse:
        """Return the response so far; when the stream has ended, the recorded response."""
        if self._finished:
            return super().get()
        return replace(super().get(), parts=self._parts_manager.get_parts(), state="incomplete")


def _text(part: ModelResponsePart) -> str:
    """Return the text of a part that comes in pieces."""
    if isinstance(part, BaseToolCallPart):
        return part.args if isinstance(part.args, str) else ""
    return part.content if isinstance(part, TextPart | ThinkingPart) else ""


def _with_text(part: ModelResponsePart, first: str) -> ModelResponsePart:
    if isinstance(part, BaseToolCallPart):
        return replace(part, args=first) if isinstance(part.args, str) else part
    return replace(part, content=first) if isinstance(part, TextPart | ThinkingPart) else part
