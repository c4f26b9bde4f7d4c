"""A payload as bytes: JSON with sorted keys, in pieces that begin where the elements of its lists
do.

Elements come back from call to call, because a prompt grows at its end: each is looked through for
secrets once, and stored once.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import orjson
from pydantic import BaseModel

from tallystick.records import Json, Record, json_bytes, read_json

__all__ = ["Piece", "Pieces", "Preserialized", "pieces_of", "plain", "weight_of"]

_OPTIONS = (
    orjson.OPT_SORT_KEYS
    | orjson.OPT_PASSTHROUGH_DATACLASS
    | orjson.OPT_PASSTHROUGH_DATETIME
    | orjson.OPT_PASSTHROUGH_SUBCLASS
)


class Preserialized:
    """A value that its adapter has written as JSON already, and may hand over again while it stays
    the same.
    """

    __slots__ = ("body", "cleared")

    def __init__(self, body: bytes) -> None:
        self.body = body
        self.cleared: object = None
        """Mark of whoever found that it holds no secret where it stands."""


class Piece(NamedTuple):
    """Bytes of a payload that may hold a secret."""

    body: bytes
    value: bytes
    """The JSON value within `body`."""
    name: str | None = None
    """The key of the payload under whose list the value stands; None of a value with its keys."""
    written: Preserialized | None = None
    """The element itself, where its adapter wrote it."""

    def alone(self) -> Json:
        """The value at its place in a payload that holds nothing else."""
        value: Json = read_json(self.value)
        return value if self.name is None else {self.name: [value]}


class Pieces(NamedTuple):
    """A payload in pieces."""

    bodies: list[bytes]
    """All its bytes, in order, cut where the elements of its lists begin and end."""
    doubtful: list[Piece]
    """Those that may hold a secret, as far as nobody has found yet that they do not."""


def pieces_of(payload: Any, cleared: Callable[[str], object] = lambda name: None) -> Pieces:
    """The bytes of a payload. A record of ours leaves out the fields that stand at their defaults.

    `cleared` gives the mark of elements of a list of that name that are known to hold no secret.
    """
    fields = payload if type(payload) is dict else _mapping_of(payload)
    if not fields:
        body = _bytes(payload)
        return Pieces([body], [Piece(body, body)])
    for name in fields:
        if type(name) is not str:
            fields = {str(name): fields[name] for name in fields}
            break
    found = Pieces([], [])
    bodies = found.bodies
    begin: bytes = b"{"
    group: dict[str, Any] = {}
    for name in sorted(fields):
        value = fields[name]
        if not isinstance(value, list) or not value:
            group[name] = value
            continue
        if group:
            begin, group = _add_group(begin, group, found), {}
        bodies.append(begin + _key(name) + b"[")
        _add_elements(name, value, cleared(name), found)
        begin = b"],"
    if group:
        begin = _add_group(begin, group, found)
    bodies.append(begin[:-1] + b"}")
    return found


def _add_group(begin: bytes, group: Mapping[str, Any], found: Pieces) -> bytes:
    """Add fields that stand side by side; what the next field begins with."""
    own = _bytes(group)
    found.bodies.append(begin + own[1:-1])
    found.doubtful.append(Piece(own, own))
    return b","


def _mapping_of(payload: Any) -> Mapping[Any, Any] | None:
    if isinstance(payload, BaseModel):
        return _fields_of(payload)
    return payload if isinstance(payload, Mapping) else None


def _add_elements(name: str, values: Sequence[Any], mark: object, found: Pieces) -> None:
    bodies, doubtful = found
    for value in values:
        if type(value) is Preserialized:
            body = value.body
            if mark is None or value.cleared is not mark:
                doubtful.append(Piece(body, body, name, value))
        else:
            body = _bytes(value)
            doubtful.append(Piece(body, body, name))
        bodies += (body, b",")
    bodies.pop()


@lru_cache(maxsize=1_024)
def _key(name: str) -> bytes:
    return _bytes(name) + b":"


def weight_of(record: Record) -> int:
    """About how many bytes a record takes: by its texts, and the number and texts of what it
    lists.
    """
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
    """A payload as JSON values: records and pydantic models are dumped, what JSON lacks becomes
    text.
    """
    value: Json = read_json(b"".join(pieces_of(payload).bodies))
    return value


def _fields_of(model: BaseModel) -> Mapping[str, Any]:
    return (
        model.dump(defaults=False) if isinstance(model, Record) else model.model_dump(mode="json")
    )


def _bytes(value: Any) -> bytes:
    try:
        return orjson.dumps(value, default=_default, option=_OPTIONS)
    except orjson.JSONEncodeError:
        # Integers of more than 64 bits, keys that are no text, half characters: slower, and all of
        # them have a form.
        return json_bytes(json.loads(json.dumps(value, default=_default), parse_constant=str))


def _default(value: Any) -> Any:
    if isinstance(value, Preserialized):
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
