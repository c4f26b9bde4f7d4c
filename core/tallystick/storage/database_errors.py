"""Failures of the database as errors of ours: no SQL and no values in a message."""

from __future__ import annotations

from typing import Any, cast

import sqlalchemy.exc

from tallystick.errors import BusyTally, CorruptTally, StorageError, TallystickError

__all__ = ["damaged", "translate"]


def damaged() -> CorruptTally:
    return CorruptTally(
        "The database file is damaged. Restore it from a copy; Chroma can be rebuilt from it."
    )


def translate(error: sqlalchemy.exc.SQLAlchemyError) -> TallystickError:
    """Return our error for a failure of the database; its message contains no SQL and no values."""
    original = cast(Any, getattr(error, "orig", None))
    text = str(original or error).lower()
    if isinstance(error, sqlalchemy.exc.OperationalError):
        if "locked" in text or "busy" in text:
            return BusyTally()
        if "disk" in text and "full" in text:
            return StorageError("The disk is full. Nothing was written.")
        if "readonly" in text:
            return StorageError(
                "The tally's files are read-only. Give this process write permission."
            )
        if "unable to open" in text:
            return StorageError(
                "The database file could not be opened. Check the folder and its permissions."
            )
    if isinstance(error, sqlalchemy.exc.DatabaseError) and (
        "malformed" in text or "not a database" in text or "corrupt" in text
    ):
        return damaged()
    if isinstance(error, sqlalchemy.exc.TimeoutError):
        return BusyTally(
            "Every reader is in use. Raise `readers`, or close results that you keep open."
        )
    kind = type(original).__name__ if original is not None else type(error).__name__
    return StorageError(
        f"The database refused a statement ({kind}: {_first_line(text)}). Nothing was written."
    )


def _first_line(text: str) -> str:
    # The first line of a driver's message names the constraint or object; later lines may quote
    # values.
    return text.splitlines()[0][:200] if text else "no message"
