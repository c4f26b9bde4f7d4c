"""What rows need that SQLAlchemy leaves to the caller."""

from __future__ import annotations

from typing import Any

from sqlalchemy import CursorResult

__all__ = ["new_key"]


def new_key(result: CursorResult[Any]) -> int:
    """The integer key that an insert of one row made."""
    key = result.inserted_primary_key
    assert key is not None
    return int(key[0])
