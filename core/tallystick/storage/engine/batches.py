"""Statements of a unit that travel together: on PostgreSQL each way to the server and back is paid
once for many of them.

A statement that returns nothing waits until one is run whose rows are needed, or the commit: then
all of them are sent in one pipeline of psycopg, in their order. Statements that are known before
the unit begins are read ahead, with its lock (`write(reads=…)`). Whatever else uses the connection
(`flush`) sends what waits first. An error of a statement that waited is raised where it was sent,
and always before the commit.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, cast

from sqlalchemy import Connection
from sqlalchemy.exc import DBAPIError

_BATCH = "tallystick.batch"
FAILED = "tallystick.failed"
"""Noted of a connection on which the server refused a statement of a batch."""
_Answer = Callable[[Any], Any]


class Statement(Protocol):
    """A statement that may wait (`prepared.Prepared`)."""

    @property
    def is_silent(self) -> bool:
        """True if it returns nothing, so that nobody needs to wait for it."""
        ...

    def begin(self, cursor: Any, values: Any) -> tuple[str, _Answer]:
        """Send it; return its text, and what reads the result off the cursor."""
        ...


Read = tuple[Statement, Mapping[str, Any]]
"""A statement and its values, to be run with the lock of a unit."""


class Batch:
    """The statements of the unit under way that wait, and the rows that were read ahead."""

    def __init__(self) -> None:
        self._waiting: list[tuple[Statement | str, Any]] = []
        self._ahead: list[tuple[Statement, Any, Any]] = []
        self.has_failed = False
        """True once the server refused a statement: another transaction gets a new connection."""

    def run(self, connection: Connection, statement: Statement, values: Any) -> Any:
        """Run a statement with those that wait and return its result; one that returns nothing
        waits. The result of one that was read ahead is returned once.
        """
        for place, (known, its_values, result) in enumerate(self._ahead):
            if known is statement and its_values == values:
                del self._ahead[place]
                return result
        self._waiting.append((statement, values))
        if statement.is_silent:
            return []
        return self._send(connection)[-1]

    def add(self, text: str) -> None:
        """Let a statement without values wait, such as a savepoint."""
        self._waiting.append((text, None))

    def read_ahead(self, connection: Connection, reads: Sequence[Read]) -> None:
        """Send what waits with `reads`, whose results are kept for the unit."""
        self._waiting += reads
        results = self._send(connection)
        for (statement, values), result in zip(reads, results[-len(reads) :], strict=False):
            self._ahead.append((statement, values, result))

    def knows(self, statement: Statement, values: Mapping[str, Any]) -> bool:
        """Return True if a statement was read ahead, and its result not yet taken."""
        return any(known is statement and its == values for known, its, _ in self._ahead)

    def flush(self, connection: Connection) -> None:
        """Send what waits."""
        if self._waiting:
            self._send(connection)

    def clear(self) -> None:
        """Drop what waits and what was read ahead: it is undone."""
        self._waiting.clear()
        self._ahead.clear()

    def commit(self, connection: Connection) -> None:
        """Send what waits together with the commit."""
        self._waiting.append(("COMMIT", None))
        self._send(connection)

    def _send(self, connection: Connection) -> list[Any]:
        waiting, self._waiting = self._waiting, []
        driver: Any = connection.connection.dbapi_connection
        running: list[tuple[Any, _Answer]] = []
        text = ""
        try:
            with driver.pipeline():
                for statement, values in waiting:
                    cursor = driver.cursor()
                    if isinstance(statement, str):
                        text = statement
                        cursor.execute(statement)
                        running.append((cursor, _nothing))
                    else:
                        text, answer = statement.begin(cursor, values)
                        running.append((cursor, answer))
            return [answer(cursor) for cursor, answer in running]
        except BaseException as error:
            # The driver has the server prepare what is run often, and counts on statements that a
            # pipeline which failed has never prepared: from here on it prepares none and uses none.
            self.has_failed, driver.prepare_threshold = True, None
            connection.info[FAILED] = True
            if isinstance(error, connection.dialect.loaded_dbapi.Error):
                raise translate_driver_error(error, text, connection) from error
            raise
        finally:
            for cursor, _ in running:
                cursor.close()


def _nothing(cursor: Any) -> None:
    return None


def begin_batch(connection: Connection) -> Batch | None:
    """Let statements of a unit wait for one another and begin its transaction, on PostgreSQL; None
    on SQLite.
    """
    if connection.dialect.name != "postgresql":
        return None
    batch = connection.info[_BATCH] = Batch()
    batch.add("BEGIN")
    return batch


def batch_of(connection: Connection) -> Batch | None:
    """Return the batch of the unit under way, or None."""
    return cast("Batch | None", connection.info.get(_BATCH))


def was_read_ahead(connection: Connection, statement: Statement, values: Mapping[str, Any]) -> bool:
    """Return True if the unit under way has the result of a statement, and did not take it yet."""
    if connection.dialect.name != "postgresql":
        return False
    batch = batch_of(connection)
    return batch is not None and batch.knows(statement, values)


def end_batch(connection: Connection) -> None:
    """Run each statement at once again."""
    connection.info.pop(_BATCH, None)


def flush(connection: Connection) -> None:
    """Send what waits, before something else uses the connection."""
    batch = batch_of(connection)
    if batch is not None:
        batch.flush(connection)


def translate_driver_error(error: Exception, text: str, connection: Connection) -> BaseException:
    """Return what SQLAlchemy would raise for an error of the driver."""
    dialect = connection.dialect
    lost = dialect.is_disconnect(cast(Any, error), connection.connection.dbapi_connection, None)
    return DBAPIError.instance(
        text, None, error, dialect.loaded_dbapi.Error, dialect=dialect, connection_invalidated=lost
    )
