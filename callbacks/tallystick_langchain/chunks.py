"""A recorded answer as LangChain's chunks, whose sum is the recorded message."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from functools import reduce
from operator import add
from typing import Any

from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage, message_chunk_to_message
from langchain_core.outputs import ChatGenerationChunk

from tallystick.recorder import stream_pieces
from tallystick.records import TapeCall

_TEXTS = ("text", "thinking", "reasoning")
"""Fields of a block of content that models write piece by piece."""


def chunks_of(call: TapeCall, message: BaseMessage) -> Iterator[ChatGenerationChunk]:
    """Yield the message in as many chunks as it was recorded in, or in one where its parts do not
    add up to it again.
    """
    assert isinstance(message, AIMessage)
    parts = [*_content(message), *_calls(message)]
    pieces = stream_pieces(call, [text for text, _ in parts])
    chunk_fields = [
        part(piece, first)
        for (_, part), cut in zip(parts, pieces, strict=True)
        for first, piece in _mark_first(cut)
    ]
    chunks = _assemble(message, chunk_fields or [{}])
    for chunk in (
        chunks if _add_up_to(chunks, message) else _assemble(message, [_all_fields(message)])
    ):
        yield ChatGenerationChunk(message=chunk)


def _content(message: AIMessage) -> Iterator[tuple[str, Any]]:
    """Yield the text of each part of the content, with the function that turns a piece of it into
    the fields of a chunk.
    """
    if isinstance(message.content, str):
        if message.content:
            yield message.content, lambda piece, first: {"content": piece}
        return
    for block in message.content:
        field = _text_field(block)
        yield "" if field is None else block[field], _block(block, field)  # type: ignore[index]


def _text_field(block: Any) -> str | None:
    """Return the field of a block that may come in pieces, because LangChain adds it up by the
    place that the block names; None if there is none.
    """
    if not isinstance(block, dict) or not isinstance(block.get("index"), int):
        return None
    return next((field for field in _TEXTS if isinstance(block.get(field), str)), None)


def _block(block: Any, field: str | None) -> Any:
    def piece_of(piece: str, first: bool) -> dict[str, Any]:
        if field is None:
            return {"content": [block]}
        base = block if first else {"type": block.get("type"), "index": block["index"]}
        return {"content": [{**base, field: piece}]}

    return piece_of


def _calls(message: AIMessage) -> Iterator[tuple[str, Any]]:
    """Same as `_content`, for each tool call."""
    tool_calls: list[Mapping[str, Any]] = [*message.tool_calls, *message.invalid_tool_calls]
    for place, call in enumerate(tool_calls):
        args = call.get("args")
        yield (
            args if isinstance(args, str) else json.dumps(args or {}, ensure_ascii=False),
            _call(call, place),
        )


def _call(call: Mapping[str, Any], place: int) -> Any:
    def piece_of(piece: str, first: bool) -> dict[str, Any]:
        identity = (
            {"name": call.get("name"), "id": call.get("id")}
            if first
            else {"name": None, "id": None}
        )
        return {
            "tool_call_chunks": [
                {**identity, "args": piece, "index": place, "type": "tool_call_chunk"}
            ]
        }

    return piece_of


def _mark_first(pieces: list[str]) -> Iterator[tuple[bool, str]]:
    return ((place == 0, piece) for place, piece in enumerate(pieces))


def _assemble(message: AIMessage, chunk_fields: list[dict[str, Any]]) -> list[AIMessageChunk]:
    """Return chunks with these fields, and with the message's other fields: usage is in the
    last.
    """
    empty: Any = "" if isinstance(message.content, str) else []
    chunks = [
        AIMessageChunk(**{"content": empty, "id": message.id, **fields}) for fields in chunk_fields
    ]
    first, last = chunks[0], chunks[-1]
    first.additional_kwargs, first.name = message.additional_kwargs, message.name
    last.response_metadata, last.usage_metadata = message.response_metadata, message.usage_metadata
    last.chunk_position = "last"
    return chunks


def _all_fields(message: AIMessage) -> dict[str, Any]:
    return {
        "content": message.content,
        "tool_calls": message.tool_calls,
        "invalid_tool_calls": message.invalid_tool_calls,
    }


def _add_up_to(chunks: list[AIMessageChunk], message: AIMessage) -> bool:
    summed = message_chunk_to_message(reduce(add, chunks[1:], chunks[0]))
    return summed.model_dump() == message.model_dump()
