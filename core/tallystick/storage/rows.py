"""What rows need that SQLAlchemy leaves to the caller."""

from __future__ import annotations

from typing import Any

from sqlalchemy import CursorResult, Insert, Table, bindparam, insert

__all__ = ["inserting", "new_key"]


def inserting(table: Table, *columns: str) -> Insert:
    """An insert of one row with a value for each of `columns`, by name."""
    return insert(table).values({name: bindparam(name) for name in columns})


def new_key(result: CursorResult[Any]) -> int:
    """The integer key that an insert of one row made."""
    key = result.inserted_primary_key
    assert key is not None
    return int(key[0])
