"""Failures of the database as errors of ours: no SQL and no values in a message.

An error comes from SQLAlchemy, or from the driver where a statement was given to it directly; both
are told alike. A server may die at any moment, and whatever is raised then says the same: that it
could not be reached, or, where a commit was sent and nobody can tell (`outcomes`), that the write
may or may not be there.
"""

from __future__ import annotations

import re
import socket
import sqlite3
import struct
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, cast

import sqlalchemy.exc

from tallystick.errors import (
    BusyTally,
    CorruptTally,
    InvalidRecord,
    ReadOnlyTally,
    StorageError,
    TallystickError,
    UnwritableReason,
)

_BUSY_STATES = frozenset({"55P03", "40P01"})
"""PostgreSQL's codes of a lock that was not to be had in time, and of a deadlock."""
_UNWRITABLE_STATES: dict[str, UnwritableReason] = {
    "25006": "read_only",
    "53100": "disk_full",
    "42501": "no_grant",
    "3F000": "no_grant",
}
"""PostgreSQL's codes of a server or session that only reads, of a full disk, and of a role that
lacks a right.
"""
_UNWRITABLE_CODES: dict[str, UnwritableReason] = {
    "SQLITE_FULL": "disk_full",
    "SQLITE_READONLY": "no_permission",
    "SQLITE_IOERR_WRITE": "write_failed",
    "SQLITE_IOERR_TRUNCATE": "write_failed",
    "SQLITE_IOERR_SHMSIZE": "write_failed",
    "SQLITE_IOERR_SHMOPEN": "write_failed",
}
_FULL = "53300"
"""PostgreSQL's code of a server, database or role that takes no further connection."""
_NO_CONNECTION = (
    "too many clients",
    "connection slots are reserved",
    "too many connections",
    "no more connections allowed",  # of PgBouncer
)
_CONNECTING = ("connection failed", "connection is bad", "multiple connection")
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
    "resolve host",
    "no such file or directory",
    "reset by peer",
    "error response during ssl exchange",
    "broken pipe",
    "unreachable",
    "no route to host",
    "could not receive data",
    "could not send data",
)
_ENDED_STATES = frozenset({"57P01", "57P02", "57P03", "57P05", "25P03"})
"""PostgreSQL's codes of a server that ends a connection, or takes none."""


_OPEN = (
    "PostgreSQL ended the connection while a write was being committed: it may or may not be "
    "there. Look for it before you write it again, or repeat the call under the "
    "`idempotency_key` that it had."
)


def is_failure(error: BaseException) -> bool:
    """Return True for an error of SQLAlchemy, or of the driver itself."""
    return isinstance(error, sqlalchemy.exc.SQLAlchemyError) or _is_drivers(error)


def _is_drivers(error: object) -> bool:
    driver: Any = sys.modules.get("psycopg")  # not loaded for SQLite
    return isinstance(error, sqlite3.Error) or (
        driver is not None and isinstance(error, driver.Error)
    )


def was_lost(error: BaseException) -> bool:
    """Return True if the server ended the connection, or there was none to be had."""
    if isinstance(error, sqlalchemy.exc.DBAPIError) and error.connection_invalidated:
        return True
    if isinstance(error, sqlalchemy.exc.InvalidRequestError):
        # What is raised of a connection that was given up, by a statement which came later.
        text = str(error).lower()
        return "invalid transaction" in text or "connection is closed" in text
    original = cast(Any, error if _is_drivers(error) else getattr(error, "orig", None))
    if original is None or isinstance(original, sqlite3.Error):
        return False
    state, text = _state_of(original), str(original).lower()
    if state:
        # Poolers give one code to all that they say, also to whom they refuse.
        is_ended = state.startswith("08") and not text.startswith(_CONNECTING)
        return is_ended or state in _ENDED_STATES
    driver: Any = sys.modules["psycopg"]
    if not isinstance(original, driver.OperationalError):
        return False
    if any(words in text for words in _UNREACHABLE):
        return True
    # Without a code it is the way to the server that failed; one that cannot be connected to may
    # have been refused for another reason, such as a password.
    is_refused = text.startswith(_CONNECTING)
    return not is_refused and not any(words in text for words in _NO_CONNECTION)


def is_full(original: object) -> bool:
    """Return True for the driver's error of a server, or pooler, without a free connection."""
    text = str(original).lower()
    return _state_of(original) == _FULL or any(words in text for words in _NO_CONNECTION)


def was_cut_off(error: BaseException) -> bool:
    """Return True if the connection was lost before anything was written, so that the same may be
    written again; `error` is what `answerable` or `translate` made of it.
    """
    return error.__cause__ is not None and was_lost(error.__cause__) and str(error) != _OPEN


def was_not_opened(error: BaseException) -> bool:
    """Return True if SQLite could not open, or make, a file of the database."""
    original = getattr(error.__cause__, "orig", None)
    return str(getattr(original, "sqlite_errorname", "")).startswith("SQLITE_CANTOPEN")


def damaged_database() -> CorruptTally:
    return CorruptTally(
        "The database file is damaged. Restore it from a copy; Chroma can be rebuilt from it."
    )


@contextmanager
def readable(subject: str) -> Iterator[None]:
    """Raise CorruptTally for the errors of Python, JSON or the records on a damaged row."""
    try:
        yield
    except (TypeError, ValueError, InvalidRecord) as error:
        raise CorruptTally(f"The row of {subject} is not readable.") from error


def translate(error: BaseException, *, committing: bool = False) -> TallystickError:
    """Return our error for a failure (`is_failure`); its message contains no SQL and no values.
    `committing` says that a commit was sent, whose outcome is not known without an answer.
    """
    original = cast(Any, error if _is_drivers(error) else getattr(error, "orig", None))
    text = str(original or error).lower()
    if (reason := why_unwritable(original)) is not None:
        return ReadOnlyTally(reason)
    if _is_operational(error):
        if "locked" in text or "busy" in text or _state_of(original) in _BUSY_STATES:
            return BusyTally()
        if is_full(original):
            return BusyTally(
                "PostgreSQL has no free connection. Raise its `max_connections`, lower `readers` "
                "and `writers`, or close other clients, and try again."
            )
        if "unable to open" in text:
            return StorageError(
                "The database file could not be opened. Check the folder and its permissions."
            )
    if was_lost(error):
        if committing:
            return StorageError(_OPEN)
        return StorageError(
            "PostgreSQL could not be reached, or it ended the connection. Nothing was written. "
            "Try again once the server answers."
        )
    if isinstance(error, (sqlalchemy.exc.DatabaseError, sqlite3.DatabaseError)) and (
        "malformed" in text or "not a database" in text or "corrupt" in text
    ):
        return damaged_database()
    if isinstance(error, sqlalchemy.exc.TimeoutError):
        return BusyTally(
            "Every reader is in use. Raise `readers`, or close results that you keep open."
        )
    kind = type(original).__name__ if original is not None else type(error).__name__
    if _is_drivers(original) and _of_connecting(original):
        code = _state_of(original) or kind
        return StorageError(
            f"PostgreSQL refused the connection ({code}: {_first_line(text)}). Check the address, "
            "the role and its password. Nothing was written."
        )
    return StorageError(
        f"The database refused a statement ({kind}: {_first_line(text)}). Nothing was written."
    )


@contextmanager
def translated_errors() -> Iterator[None]:
    """Raise our own errors for failures of the database inside the block."""
    try:
        yield
    except Exception as error:
        if not is_failure(error):
            raise
        raise translate(error) from error


def answerable(error: BaseException, *, committing: bool = False) -> BaseException:
    """Return what a caller is given for an error: a failure of the database as our own."""
    if not is_failure(error):
        return error
    ours = translate(error, committing=committing)
    ours.__cause__ = error
    return ours


def _is_operational(error: BaseException) -> bool:
    driver: Any = sys.modules.get("psycopg")
    kinds = (sqlalchemy.exc.OperationalError, sqlite3.OperationalError)
    return isinstance(error, kinds) or (
        driver is not None and isinstance(error, driver.OperationalError)
    )


def why_unwritable(original: object) -> UnwritableReason | None:
    """Return why a driver's error says that nothing can be written; None for another error."""
    name = str(getattr(original, "sqlite_errorname", ""))
    if name.startswith("SQLITE_READONLY"):
        name = "SQLITE_READONLY"
    return _UNWRITABLE_CODES.get(name) or _UNWRITABLE_STATES.get(_state_of(original))


def _state_of(original: Any) -> str:
    """Return PostgreSQL's code of an error; that of a refused connection is asked for once more,
    since the driver has only its text, in the language of the server.
    """
    state = getattr(original, "sqlstate", None)
    if state is None and _is_refused(original):
        state = original.sqlstate = _state_of_refusal(original.pgconn)
    return str(state or "")


def _of_connecting(original: Any) -> bool:
    """Return True for the error of a connection that was not made."""
    return _state_of(original)[:2] in ("28", "3D") or str(original).startswith(_CONNECTING)


def _is_refused(original: Any) -> bool:
    """Return True for a server that answered a client which wanted to connect with a refusal."""
    answered = re.search(r"failed: [^:\n]+:  ", str(original)) is not None
    return answered and getattr(original, "pgconn", None) is not None


def _state_of_refusal(connection: Any) -> str:
    """Ask for a connection, up to where a password would be sent; return the code with which it is
    refused, or nothing.
    """
    host = (connection.hostaddr or connection.host).decode()
    port = int(connection.port or 5432)
    options = (b"options", connection.options) if connection.options else ()
    words = (b"user", connection.user, b"database", connection.db, *options, b"")
    body = struct.pack(">I", 3 << 16) + b"".join(word + b"\0" for word in words)
    is_file = host.startswith("/")
    place: Any = f"{host}/.s.PGSQL.{port}" if is_file else (host, port)
    with suppress(OSError), socket.socket(*([socket.AF_UNIX] if is_file else [])) as asking:
        asking.settimeout(2.0)
        asking.connect(place)
        asking.sendall(struct.pack(">I", len(body) + 4) + body)
        with asking.makefile("rb") as answer:
            while len(head := answer.read(5)) == 5:
                kind, said = head[:1], answer.read(int.from_bytes(head[1:]) - 4)
                if kind == b"E":
                    fields = {field[:1]: field[1:] for field in said.split(b"\0")}
                    return fields.get(b"C", b"").decode()
                if kind == b"Z":
                    return _FULL  # as it was a moment ago
                if kind == b"R" and any(said):
                    break  # it asks for a password
    return ""


def _first_line(text: str) -> str:
    # The first line of a driver's message names the constraint or object; later lines may quote
    # values.
    return text.splitlines()[0][:200] if text else "no message"
