"""Failures of the database as errors of ours: no SQL and no values in a message."""

from __future__ import annotations

from typing import Any, cast

import sqlalchemy.exc

from tallystick.errors import (
    BusyTally,
    CorruptTally,
    ReadOnlyTally,
    StorageError,
    TallystickError,
    UnwritableReason,
)

__all__ = ["damaged", "translate", "was_lost", "was_not_opened", "why_unwritable"]

_BUSY_STATES = frozenset({"55P03", "40P01"})
"""PostgreSQL's codes of a lock that was not to be had in time, and of a deadlock."""
_UNWRITABLE_STATES: dict[str, UnwritableReason] = {"25006": "read_only", "53100": "disk_full"}
"""PostgreSQL's codes of a server or session that only reads, and of a full disk."""
_UNWRITABLE_CODES: dict[str, UnwritableReason] = {
    "SQLITE_FULL": "disk_full",
    "SQLITE_READONLY": "no_permission",
    "SQLITE_IOERR_WRITE": "write_failed",
    "SQLITE_IOERR_TRUNCATE": "write_failed",
    "SQLITE_IOERR_SHMSIZE": "write_failed",
    "SQLITE_IOERR_SHMOPEN": "write_failed",
}
_NO_CONNECTION = ("too many clients", "connection slots are reserved", "too many connections")
_UNREACHABLE = (
    "connection is bad",
    "connection refused",
    "connection timeout expired",
    "timeout expired",
    "is starting up",
    "in recovery mode",
    "not yet accepting connections",
    "is shutting down",
    "terminating connection",
    "server closed the connection",
    "connection is closed",
    "the connection is lost",
)


def was_lost(error: BaseException) -> bool:
    """Return True if the server ended the connection."""
    return isinstance(error, sqlalchemy.exc.DBAPIError) and error.connection_invalidated


def was_not_opened(error: BaseException) -> bool:
    """Return True if SQLite could not open, or make, a file of the database."""
    original = getattr(error.__cause__, "orig", None)
    return str(getattr(original, "sqlite_errorname", "")).startswith("SQLITE_CANTOPEN")


def damaged() -> CorruptTally:
    return CorruptTally(
        "The database file is damaged. Restore it from a copy; Chroma can be rebuilt from it."
    )


def translate(
    error: sqlalchemy.exc.SQLAlchemyError, *, committing: bool = False
) -> TallystickError:
    """Return our error for a failure of the database; its message contains no SQL and no values.
    `committing` says that a commit was sent, whose outcome is not known without an answer.
    """
    original = cast(Any, getattr(error, "orig", None))
    text = str(original or error).lower()
    if (reason := why_unwritable(original)) is not None:
        return ReadOnlyTally(reason)
    if isinstance(error, sqlalchemy.exc.OperationalError):
        if "locked" in text or "busy" in text or _state_of(original) in _BUSY_STATES:
            return BusyTally()
        if any(words in text for words in _NO_CONNECTION):
            return BusyTally(
                "PostgreSQL has no free connection. Raise its `max_connections`, lower `readers`, "
                "or close other clients, and try again."
            )
        if was_lost(error) or any(words in text for words in _UNREACHABLE):
            if committing:
                return StorageError(
                    "PostgreSQL ended the connection while a write was being committed: it may or "
                    "may not be there. Look for it before you write it again, or repeat the call "
                    "under the `idempotency_key` that it had."
                )
            return StorageError(
                "PostgreSQL could not be reached, or it ended the connection. Nothing was written. "
                "Try again once the server answers."
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


def why_unwritable(original: object) -> UnwritableReason | None:
    """Return why a driver's error says that nothing can be written; None for another error."""
    name = str(getattr(original, "sqlite_errorname", ""))
    if name.startswith("SQLITE_READONLY"):
        name = "SQLITE_READONLY"
    return _UNWRITABLE_CODES.get(name) or _UNWRITABLE_STATES.get(_state_of(original))


def _state_of(original: object) -> str:
    return str(getattr(original, "sqlstate", None) or "")


def _first_line(text: str) -> str:
    # The first line of a driver's message names the constraint or object; later lines may quote
    # values.
    return text.splitlines()[0][:200] if text else "no message"
