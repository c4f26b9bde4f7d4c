"""Everything in a value as text: a record prints the beginning of itself, and a leak may stand
behind that.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import fields, is_dataclass
from typing import Any

from tallystick.records import Record


def whole(value: Any) -> str:
    """Return all that a value holds: fields of records and dataclasses, members of collections."""
    if isinstance(value, Record):
        return f"{type(value).__name__} {value.dumps()}"
    if is_dataclass(value) and not isinstance(value, type):
        return whole({field.name: getattr(value, field.name) for field in fields(value)})
    if isinstance(value, str | bytes):
        return repr(value)
    if isinstance(value, Mapping):
        return whole([part for pair in value.items() for part in pair])
    if isinstance(value, Iterable):
        return f"[{', '.join(whole(each) for each in value)}]"
    return repr(value)
