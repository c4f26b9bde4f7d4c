"""A recorded answer as LlamaIndex's responses: complete, or as a stream whose last piece holds all
of it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from itertools import accumulate
from typing import Any

from llama_index.core.base.llms.types import ChatMessage, ChatResponse, CompletionResponse

from tallystick.recorder import stream_pieces
from tallystick.records import TapeCall

_TEXTS = {"text": "text", "thinking": "content", "tool_call": "tool_kwargs"}
"""The field of each kind of block that models write piece by piece."""


def chat_of(played: Any) -> ChatResponse:
    """Return the answer to a chat."""
    envelope = _envelope(played)
    return ChatResponse(
        message=ChatMessage.model_validate(_message(played)),
        delta="",
        raw=_raw(envelope),
        additional_kwargs=envelope.get("additional_kwargs") or {},
    )


def chats_of(call: TapeCall) -> Iterator[ChatResponse]:
    """Yield the answer to a chat as it grows, in as many responses as were recorded."""
    message, envelope = _message(call.response), _envelope(call.response)
    blocks: list[Mapping[str, Any]] = message.get("blocks") or []
    steps = [
        (block, part, piece, so_far)
        for block, (part, pieces) in enumerate(
            zip(blocks, stream_pieces(call, list(map(_text, blocks))), strict=True)
        )
        for piece, so_far in zip(pieces, accumulate(pieces), strict=True)
    ]
    for place, part, piece, so_far in steps[:-1]:
        partial = {
            **message,
            "blocks": [*blocks[:place], _with_text(part, so_far)],
            "additional_kwargs": {},
        }
        yield ChatResponse(
            message=ChatMessage.model_validate(partial),
            raw=_raw({**envelope, "usage": None}),
            **_delta(part, piece),
        )
    last: dict[str, Any] = _delta(steps[-1][1], steps[-1][2]) if steps else {"delta": ""}
    complete = chat_of(call.response)
    attributes = {**last.get("additional_kwargs", {}), **complete.additional_kwargs}
    yield complete.model_copy(update={**last, "additional_kwargs": attributes})


def completion_of(played: Any) -> CompletionResponse:
    """Return the completion of a prompt."""
    envelope = _envelope(played)
    return CompletionResponse(
        text=_completed_text(played),
        delta="",
        raw=_raw(envelope),
        additional_kwargs=envelope.get("additional_kwargs") or {},
    )


def completions_of(call: TapeCall) -> Iterator[CompletionResponse]:
    """Yield the completion of a prompt as it grows, in as many responses as were recorded."""
    complete = completion_of(call.response)
    [pieces] = stream_pieces(call, [complete.text])
    early = _raw({**_envelope(call.response), "usage": None})
    for piece, so_far in list(zip(pieces, accumulate(pieces), strict=True))[:-1]:
        yield CompletionResponse(text=so_far, delta=piece, raw=early)
    yield complete.model_copy(update={"delta": pieces[-1]})


def _message(played: Any) -> dict[str, Any]:
    message: dict[str, Any] = played.get("answer") or {"role": "assistant"}
    return message


def _completed_text(played: Any) -> str:
    return str((played.get("answer") or {}).get("text") or "")


def _envelope(played: Any) -> dict[str, Any]:
    envelope: dict[str, Any] = played.get("envelope") or {}
    return envelope


def _raw(envelope: Mapping[str, Any]) -> dict[str, Any]:
    return {
        name: value for name, value in envelope.items() if name != "additional_kwargs" and value
    }


def _text(block: Mapping[str, Any]) -> str:
    """Return the text of a block that comes in pieces; the arguments of a call are JSON."""
    text = block.get(_TEXTS.get(str(block.get("block_type")), ""))
    return (
        json.dumps(text, ensure_ascii=False)
        if isinstance(text, dict)
        else text
        if isinstance(text, str)
        else ""
    )


def _with_text(block: Mapping[str, Any], so_far: str) -> Mapping[str, Any]:
    """Return a block with the text that has come so far."""
    field = _TEXTS.get(str(block.get("block_type")))
    return block if field is None or so_far == _text(block) else {**block, field: so_far}


def _delta(block: Mapping[str, Any], piece: str) -> dict[str, Any]:
    """Return the fields of a response for its piece, as models that think first give them."""
    kind = block.get("block_type")
    thinking: dict[str, Any] = (
        {"additional_kwargs": {"thinking_delta": piece}} if kind == "thinking" else {}
    )
    return {"delta": piece if kind == "text" else "", **thinking}
