"""A payload as bytes: JSON with sorted keys, in pieces that begin where the elements of its lists do.

Elements come back from call to call, because a prompt grows at its end: each is looked through for secrets once, and
stored once.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import orjson
from pydantic import BaseModel

from tallystick.records import Json, Record, json_bytes, read_json

__all__ = ["Piece", "Written", "pieces_of", "plain", "weight_of"]

_OPTIONS = (
    orjson.OPT_SORT_KEYS | orjson.OPT_PASSTHROUGH_DATACLASS | orjson.OPT_PASSTHROUGH_DATETIME
    | orjson.OPT_PASSTHROUGH_SUBCLASS
)  # fmt: skip


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
        value: Json = read_json(self.value)
        if self.name is None:
            return value
        return {self.name: [value] if self.listed else value}


def pieces_of(payload: Any) -> list[Piece]:
    """The bytes of a payload, in order. A record of ours leaves out the fields that stand at their defaults."""
    if isinstance(payload, BaseModel):
        payload = _fields_of(payload)
    if not isinstance(payload, Mapping) or not payload:
        body = _bytes(payload)
        return [Piece(body, body)]
    return list(_of_fields(payload))


def weight_of(record: Record) -> int:
    """About how many bytes a record takes: by its texts, and the number and texts of what it lists."""
    found = 0
    for _, value in record:
        if isinstance(value, str):
            found += len(value)
        elif isinstance(value, tuple | dict):
            found += _ELEMENT * len(value)
            if value and isinstance(value, tuple) and hasattr(value[0], "content"):
                found += sum(len(one.content) for one in value)
    return found


_ELEMENT = 128
"""About how many bytes an element takes beside its text."""


def plain(payload: Any) -> Json:
    """A payload as JSON values: records and pydantic models are dumped, what JSON lacks becomes text."""
    value: Json = read_json(b"".join(piece.body for piece in pieces_of(payload)))
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


def _fields_of(model: BaseModel) -> Mapping[str, Any]:
    return model.dump(defaults=False) if isinstance(model, Record) else model.model_dump(mode="json")


def _bytes(value: Any) -> bytes:
    try:
        return orjson.dumps(value, default=_default, option=_OPTIONS)
    except orjson.JSONEncodeError:
        # Integers of more than 64 bits, keys that are no text, half characters: slower, and all of them have a form.
        return json_bytes(json.loads(json.dumps(value, default=_default), parse_constant=str))


def _default(value: Any) -> Any:
    if isinstance(value, Written):
        return read_json(value.body)
    if isinstance(value, BaseModel):
        return _fields_of(value)
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
