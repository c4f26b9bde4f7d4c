"""A payload as bytes: JSON with sorted keys, in pieces that begin where the elements of its lists do.

Elements come back from call to call, because a prompt grows at its end: each is looked through for secrets once, and
stored once.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import orjson
from pydantic import BaseModel

from tallystick.records import Json, Record, json_bytes

__all__ = ["Piece", "Written", "pieces_of", "plain"]

_OPTIONS = (
    orjson.OPT_SORT_KEYS | orjson.OPT_PASSTHROUGH_DATACLASS | orjson.OPT_PASSTHROUGH_DATETIME
    | orjson.OPT_PASSTHROUGH_SUBCLASS
)  # fmt: skip


_LONG_NUMBER = re.compile(rb"\d{19}")


class Written:
    """A value that its adapter has written as JSON already."""

    __slots__ = ("body",)

    def __init__(self, body: bytes) -> None:
        self.body = body


class Piece(NamedTuple):
    """Bytes of a payload, and where they stand in it."""

    body: bytes
    value: bytes | None = None
    """The JSON value within `body` that may hold a secret; None for punctuation."""
    name: str | None = None
    """The key of the payload under which the value stands."""
    listed: bool = False
    """Whether the value is an element of a list under that key."""

    def alone(self) -> Json:
        """The value at its place in a payload that holds nothing else."""
        assert self.value is not None
        value: Json = _read(self.value)
        if self.name is None:
            return value
        return {self.name: [value] if self.listed else value}


def pieces_of(payload: Any) -> list[Piece]:
    """The bytes of a payload, in order."""
    if isinstance(payload, BaseModel):
        payload = payload.dump() if isinstance(payload, Record) else payload.model_dump(mode="json")
    if not isinstance(payload, Mapping) or not payload:
        body = _bytes(payload)
        return [Piece(body, body)]
    return list(_of_fields(payload))


def plain(payload: Any) -> Json:
    """A payload as JSON values: records and pydantic models are dumped, what JSON lacks becomes text."""
    value: Json = _read(b"".join(piece.body for piece in pieces_of(payload)))
    return value


def _of_fields(payload: Mapping[Any, Any]) -> Iterator[Piece]:
    fields = payload if all(type(name) is str for name in payload) else {str(name): payload[name] for name in payload}
    begin = b"{"
    for name in sorted(fields):
        value = fields[name]
        start = begin + _bytes(name) + b":"
        if isinstance(value, list) and value:
            yield Piece(start + b"[")
            yield from _of_elements(name, value)
            begin = b"],"
        else:
            body = _bytes(value)
            yield Piece(start + body, body, name)
            begin = b","
    yield Piece(begin[:-1] + b"}")


def _of_elements(name: str, values: Sequence[Any]) -> Iterator[Piece]:
    for place, value in enumerate(values):
        if place:
            yield _COMMA
        body = value.body if type(value) is Written else _bytes(value)
        yield Piece(body, body, name, listed=True)


_COMMA = Piece(b",")


def _bytes(value: Any) -> bytes:
    try:
        return orjson.dumps(value, default=_default, option=_OPTIONS)
    except orjson.JSONEncodeError:
        # Integers of more than 64 bits, keys that are no text, half characters: slower, and all of them have a form.
        return json_bytes(json.loads(json.dumps(value, default=_default), parse_constant=str))


def _read(body: bytes) -> Any:
    if _LONG_NUMBER.search(body):
        # The fast parser makes a float of an integer of more than 64 bits.
        return json.loads(body)
    try:
        return orjson.loads(body)
    except orjson.JSONDecodeError:
        return json.loads(body)


def _default(value: Any) -> Any:
    if isinstance(value, Written):
        return _read(value.body)
    if isinstance(value, BaseModel):
        return value.model_dump(mode="json")
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, set | frozenset):
        return sorted(value, key=str)
    if isinstance(value, bytes):
        return {"bytes": len(value)}
    if isinstance(value, list | tuple):
        return list(value)
    return str(value)
