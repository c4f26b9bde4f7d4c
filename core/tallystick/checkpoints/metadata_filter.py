"""Filters on metadata: one short keyed fingerprint per entry, the same on every database.

A fingerprint tells nothing to a reader without the key, needs no escaping whatever its entry
contains, and lets SQL leave out what cannot match. What SQL leaves in is compared exactly, as JSON:
`True` is not `1`, `1` is `1.0`, and `None` also matches where the name is missing.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from tallystick.checkpoints.codec import Codec
from tallystick.storage.rows.checkpoints import Fingerprint

_encode = json.JSONEncoder(sort_keys=True).encode


def metadata_fingerprints(metadata: Mapping[str, Any], codec: Codec) -> str:
    """Return the fingerprints of all entries, one after the other."""
    return "".join([_entry(name, value, codec) for name, value in metadata.items()])


def filter_fingerprints(filter: Mapping[str, Any], codec: Codec) -> list[Fingerprint]:
    """Return the fingerprints that SQL compares with stored ones, one per entry of the filter."""
    return [
        Fingerprint(
            _entry(name, value, codec), absent=_name(name, codec) if value is None else None
        )
        for name, value in filter.items()
        # A key with a period may be a path into an entry, of which no fingerprint is stored.
        if "." not in name
    ]


def matches(metadata: Mapping[str, Any], filter: Mapping[str, Any]) -> bool:
    """Return True if every entry of the filter is in the metadata."""
    return all(_equal(value_at(metadata, name), value) for name, value in filter.items())


def value_at(values: Mapping[str, Any], key: str) -> Any:
    """Return the value under a key; `user.level` is the entry of that name, else the path to
    `level` within `user`. None where there is none.
    """
    if key in values or "." not in key:
        return values.get(key)
    value: Any = values
    for name in key.split("."):
        value = value.get(name) if isinstance(value, Mapping) else None
    return value


def _entry(name: str, value: Any, codec: Codec) -> str:
    form = _encode(_canonical(value)).encode()
    digest = codec.digest(b"mark\x00", name.encode("utf-8", "surrogatepass"), b"\x00", form)
    return _name(name, codec) + digest[:3].hex()


def _name(name: str, codec: Codec) -> str:
    return ";" + codec.digest(b"mark-name\x00", name.encode("utf-8", "surrogatepass"))[:2].hex()


def _canonical(value: Any) -> Any:
    """Return the value with whole floats as integers, so that equal numbers have one form."""
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, Mapping):
        return {str(name): _canonical(inner) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_canonical(inner) for inner in value]
    return value


def _equal(first: Any, second: Any) -> bool:
    if isinstance(first, bool) or isinstance(second, bool):
        return first is second
    if isinstance(first, Mapping) and isinstance(second, Mapping):
        return first.keys() == second.keys() and all(
            _equal(first[name], second[name]) for name in first
        )
    if isinstance(first, list | tuple) and isinstance(second, list | tuple):
        return len(first) == len(second) and all(map(_equal, first, second))
    return bool(first == second)
