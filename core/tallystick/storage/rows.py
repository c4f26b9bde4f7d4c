"""What rows need that SQLAlchemy leaves to the caller."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from sqlalchemy import CursorResult, Insert, Table, bindparam, insert

from tallystick.errors import CorruptTally

__all__ = ["inserting", "new_key", "readable"]


def inserting(table: Table, *columns: str) -> Insert:
    """An insert of one row with a value for each of `columns`, by name."""
    return insert(table).values({name: bindparam(name) for name in columns})


def new_key(result: CursorResult[Any]) -> int:
    """The integer key that an insert of one row made."""
    key = result.inserted_primary_key
    assert key is not None
    return int(key[0])


@contextmanager
def readable(what: str) -> Iterator[None]:
    """Turn what Python, JSON or the records say of a damaged row into CorruptTally."""
    try:
        yield
    except (TypeError, ValueError) as error:
        raise CorruptTally(f"The row of {what} is not readable.") from error
