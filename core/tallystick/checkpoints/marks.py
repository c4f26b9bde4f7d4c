"""What a filter on metadata looks for: one short keyed mark per entry, the same on every database.

A mark tells nothing to who does not hold the key, needs no escaping whatever is in it, and lets SQL
leave out what cannot match. What it leaves in is compared exactly, as JSON: `True` is not `1`, `1`
is `1.0`, and `None` also matches where the name is missing.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from tallystick.checkpoints.codec import Codec
from tallystick.storage.checkpoints import Mark

__all__ = ["marks_of", "matches", "sought"]

_encode = json.JSONEncoder(sort_keys=True).encode


def marks_of(metadata: Mapping[str, Any], codec: Codec) -> str:
    """The marks of all entries."""
    return "".join(_mark(name, value, codec) for name, value in metadata.items())


def sought(filter: Mapping[str, Any], codec: Codec) -> list[Mark]:
    """What to look for in marks, one for each entry of the filter."""
    return [
        Mark(_mark(name, value, codec), absent=_name_mark(name, codec) if value is None else None)
        for name, value in filter.items()
    ]


def matches(metadata: Mapping[str, Any], filter: Mapping[str, Any]) -> bool:
    """Whether every entry of the filter is in the metadata."""
    return all(_same(metadata.get(name), value) for name, value in filter.items())


def _mark(name: str, value: Any, codec: Codec) -> str:
    form = _encode(_plain(value)).encode()
    return (
        _name_mark(name, codec)
        + codec.digest(b"mark\x00", name.encode("utf-8", "surrogatepass"), b"\x00", form)[:3].hex()
    )


def _name_mark(name: str, codec: Codec) -> str:
    return ";" + codec.digest(b"mark-name\x00", name.encode("utf-8", "surrogatepass"))[:2].hex()


def _plain(value: Any) -> Any:
    """The value with whole floats as integers, so that equal numbers have one form."""
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, Mapping):
        return {str(name): _plain(inner) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(inner) for inner in value]
    return value


def _same(one: Any, other: Any) -> bool:
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        return one.keys() == other.keys() and all(_same(one[name], other[name]) for name in one)
    if isinstance(one, list | tuple) and isinstance(other, list | tuple):
        return len(one) == len(other) and all(map(_same, one, other))
    return bool(one == other)
