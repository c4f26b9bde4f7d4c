"""The stored form of checkpoints: roots of values as JSON with the ids of their chunks, and the
frame of digest, roots and body.

Small leaves are inline in the roots. What is decoded here was written by somebody: every shape that
no release has written raises CorruptTally.
"""

from __future__ import annotations

import json
from binascii import Error as NotBase64
from binascii import a2b_base64, b2a_base64
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tallystick.checkpoints.codec import Codec, compact_json
from tallystick.checkpoints.values import (
    Chunk,
    Fields,
    Leaf,
    ListValue,
    PersistentList,
    Span,
    Value,
)
from tallystick.errors import CorruptTally

_DEEPEST = 16
"""Level that no chunk reaches: 32 to the power of 16 elements."""


ChunkKey = tuple[int, int]
"""A chunk as roots and nodes name it: (level, id)."""


@dataclass(frozen=True)
class Frame:
    """The content of a stored frame; `roots` are JSON that was not validated."""

    digest: bytes
    roots: Mapping[str, Any]
    body: Leaf


# Frames


def encode_frame(
    digest: bytes, roots: Mapping[str, Any], body_type: str, body: bytes, codec: Codec
) -> bytes:
    """Return the stored form. `body` is encrypted already where state is encrypted."""
    head = compact_json([body_type, roots])
    return codec.pack(digest + len(head).to_bytes(4, "big") + head + body, encrypt=False)


def decode_frame(stored: bytes, codec: Codec) -> Frame:
    """Return the parts of a stored frame. Raises CorruptTally."""
    frame = codec.unpack(stored, encrypted=False)
    digest, size = frame[:16], int.from_bytes(frame[16:20], "big")
    try:
        body_type, roots = json.loads(frame[20 : 20 + size])
    except (ValueError, TypeError, RecursionError) as error:
        raise CorruptTally(
            "The state of a checkpoint is not readable: its bytes are damaged."
        ) from error
    if not isinstance(body_type, str) or not isinstance(roots, dict):
        raise CorruptTally("The state of a checkpoint is not of a known shape.")
    body = frame[20 + size :]
    return Frame(
        digest, roots, Leaf(body_type, codec.unpack(body) if codec.encrypts and body else body)
    )


# Roots


def roots_json(value: Value, chunk_id: Callable[[Chunk], int]) -> Any:
    """Return a value as JSON; `chunk_id` gives the id of a chunk."""
    if isinstance(value, Leaf):
        if value.chunk is not None:
            return ["p", value.type, chunk_id(value.chunk)]
        return ["i", value.type, b2a_base64(value.inline, newline=False).decode()]
    if isinstance(value, ListValue):
        return ["s", value.kind, *_spans_json(value.items.spans, chunk_id)]
    return ["f", {name: roots_json(entry, chunk_id) for name, entry in value.entries.items()}]


def node_body(node: Chunk, chunk_id: Callable[[Chunk], int], codec: Codec) -> bytes:
    """Return the stored form of a node: the ids of its children, which are never encrypted."""
    return codec.pack(compact_json(_spans_json(node.children, chunk_id)), encrypt=False)


def _spans_json(spans: Sequence[Span], chunk_id: Callable[[Chunk], int]) -> list[list[int]]:
    """Return spans as lists that begin with their level and go on with ids, each as its distance
    from the one before.

    A slice is a list of its own: -1, the distance, where it begins and where it ends.
    """
    groups: list[list[int]] = []
    group, last = [-1], 0
    for span in spans:
        chunk = span.chunk
        id = chunk.id if chunk.id is not None else chunk_id(chunk)
        if span.whole:
            if group[0] != chunk.level:
                group = [chunk.level]
                groups.append(group)
            group.append(id - last)
        else:
            group = [-1]
            groups.append([-1, id - last, span.start, span.stop])
        last = id
    return groups


def chunk_keys(roots: Any) -> Iterator[ChunkKey]:
    """Yield the chunks that the roots of a value name. Raises CorruptTally for what no release has
    written.
    """
    try:
        match roots:
            case ["p", str(), int(id)]:
                yield 0, id
            case ["i", str(), str()]:
                return
            case ["s", str(), *groups]:
                yield from child_keys(groups)
            case ["f", dict(entries)]:
                for entry in entries.values():
                    yield from chunk_keys(entry)
            case _:
                raise CorruptTally("The roots of a checkpoint are not of a known shape.")
    except RecursionError as error:
        raise CorruptTally("The roots of a checkpoint are nested too deeply.") from error


def child_keys(groups: Sequence[Any]) -> Iterator[ChunkKey]:
    """Yield the chunks that stored spans name. Raises CorruptTally."""
    for level, id, _, _ in _span_records(groups):
        yield level, id


def _span_records(groups: Sequence[Any]) -> Iterator[tuple[int, int, int, int | None]]:
    """Yield what stored spans name, as (level, id, start, stop)."""
    last = 0
    for group in groups:
        if not (
            isinstance(group, list)
            and len(group) > 1
            and all(type(number) is int for number in group)
        ):
            raise CorruptTally("The roots of a checkpoint are not of a known shape.")
        level, *distances = group
        if level == -1:
            if len(distances) != 3 or not 0 <= distances[1] < distances[2]:
                raise CorruptTally("The roots of a checkpoint are not of a known shape.")
            last += distances[0]
            yield 1, last, distances[1], distances[2]
            continue
        if not 0 <= level < _DEEPEST:
            raise CorruptTally("The roots of a checkpoint are not of a known shape.")
        for distance in distances:
            last += distance
            yield level, last, 0, None


def decode_spans(groups: Sequence[Any], chunk: Callable[[int, int], Chunk]) -> tuple[Span, ...]:
    """Return spans from their stored form; `chunk` gives the chunk of a level and an id. Raises
    CorruptTally.
    """
    spans = []
    for level, id, start, stop in _span_records(groups):
        loaded = chunk(level, id)
        if stop is not None and stop > loaded.count:
            raise CorruptTally(
                "The roots of a checkpoint name elements that their pack does not have."
            )
        spans.append(Span(loaded, start, stop))
    return tuple(spans)


def decode_value(roots: Any, chunk: Callable[[int, int], Chunk], codec: Codec) -> Value:
    """Return a value from its roots, which `chunk_keys` has validated. Raises CorruptTally."""
    match roots:
        case ["p", str(type), int(id)]:
            loaded = chunk(0, id)
            return Leaf(type, loaded.content, loaded)
        case ["i", str(type), str(body)]:
            try:
                inline = a2b_base64(body, strict_mode=True) if body else b""
            except (NotBase64, ValueError) as error:
                raise CorruptTally("A small value of a checkpoint is damaged.") from error
            return Leaf(type, codec.unpack(inline) if codec.encrypts else inline, inline=inline)
        case ["s", str(kind), *groups]:
            return ListValue(kind, PersistentList(decode_spans(groups, chunk)))
        case ["f", dict(entries)]:
            return Fields(
                {name: decode_value(entry, chunk, codec) for name, entry in entries.items()}
            )
    raise CorruptTally("The roots of a checkpoint are not of a known shape.")


def inline_bytes(roots: Any, codec: Codec) -> Iterator[bytes]:
    """Yield the bytes of the small leaves that are inline in roots. Raises StorageError where they
    are encrypted.
    """
    if isinstance(roots, list) and len(roots) == 3 and roots[0] == "i":
        body = a2b_base64(str(roots[2]))
        yield codec.unpack(body) if body[:1] == b"\x80" else body
        return
    for inner in (
        roots.values() if isinstance(roots, dict) else roots if isinstance(roots, list) else ()
    ):
        yield from inline_bytes(inner, codec)
