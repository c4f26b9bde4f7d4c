"""The database: one writer at a time with group commit, a pool of readers, two dialects.

A write is a function of the open transaction (a *unit*). A caller that writes while nobody else
does runs its unit itself. Units that arrive while a write is under way go to the writer's thread
and share one commit, each inside its own savepoint. Every caller is answered only after the commit.
A unit is marked as inside a transaction, so that an embedder or model called from one is refused.

Every writing transaction begins with BEGIN IMMEDIATE on SQLite and with one advisory lock on
PostgreSQL: one writer at a time, over all processes, so that the journal's sequence is the order of
commits.
"""

# How a commit may be delayed
# ---------------------------
# A commit costs more than the rows in it, and a change of thread about as much as a small unit.
# Five mechanisms share the first and avoid the second. None of them weakens a promise: what was
# answered is committed.
#
# 1. Group commit (`write`, `_Writer.commit_all`). Units that wait when the writer's thread becomes
#    free run in one transaction, at most `_GROUP` of them, each in a savepoint.
#    Used by: every write that meets another one.
#    Must hold: a unit that raises undoes its own writes alone; no future is resolved before COMMIT
#    returned; units commit in the order of submission.
#    Else: one caller's error would undo the work of others, or a killed process would lose a write
#    that was acknowledged.
#
# 2. Deferred units (`submit(deferred=True)`, `_Queue._gather`). The writer waits `_PAUSE` for more
#    of the same kind before it begins, and as long as `size` keeps changing up to `_LONGEST`: a
#    program that computes is not held up by its own bookkeeping.
#    Used by: the recorder's write queue, and calls that are begun in the lane (5).
#    Must hold: a unit is deferred only while no caller waits for it; a caller that begins to wait
#    calls `commit_now` first. A unit that is not deferred ends the pause at once, and takes the
#    deferred ones before it along.
#    Else: a caller would sleep up to half a second for nothing.
#
# 3. Collecting outside of the queue (`size`, `prepare`, `on_flush`). The recorder has one unit
#    queued at most and adds events to it until the writer takes it: `size` shows that it grows,
#    `prepare` does the work that needs no database (redaction, digests) before the writer takes its
#    turn, and by `on_flush` the recorder submits what it has collected when `flush` or `close` is
#    called.
#    Used by: `recorder/write_queue.py` alone.
#    Must hold: `prepare` does not raise and does not touch the database; a callback of `on_flush`
#    submits everything it has before it returns.
#    Else: other writers would wait for redaction, or `flush` would return, and the tally close,
#    with events that are in no transaction.
#
# 4. Begin now, wait later (`begin_*` of checkpoints, built on the future of `submit`). The first
#    half checks and queues; the function it returns waits for the commit. Calls that were begun
#    together are committed together.
#    Used by: the LangGraph saver, and by 5.
#    Must hold: the second half is called exactly once, by the caller that reports the result.
#    Else: an error of the database would be reported to nobody.
#
# 5. The lane (`aio.Lane`). Asynchronous calls of many tasks are begun one after the other in one
#    worker thread, then `commit_now` is called once, then all are waited for: one commit and two
#    changes of thread for all, where a thread for each would take turns for the interpreter.
#    Used by: the asynchronous half of checkpoints.
#    Must hold: a call begun in the lane is short and does not wait itself.
#    Else: it would hold up every other task of the tally.
#
# `flush` waits for all of these; so do `close` and the end of the interpreter (`_at_exit`).
#
# What a reader sees
# ------------------
# A read takes one snapshot with its first statement (`SNAPSHOT`) and keeps it to its end: all of
# its statements see one committed state, and scope decisions and the rows they allow belong
# together. A read therefore never sees units that are queued; a caller that must see its own
# deferred work calls `flush` first. On SQLite the connection is `query_only` besides.
# Must hold: a connection returns to the pool only after ROLLBACK. Else it would show its next user
# an old state, and keep the write-ahead log from being emptied.

from __future__ import annotations

import atexit
import os
import queue
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar, cast

import sqlalchemy.exc
from sqlalchemy import URL, Connection, Engine, create_engine
from sqlalchemy.pool import QueuePool

from tallystick.errors import (
    BusyTally,
    ClosedTally,
    CorruptTally,
    ForkedTally,
    InsideTransaction,
    MissingExtra,
    StorageError,
    TallystickError,
)
from tallystick.logs import get_logger
from tallystick.ports import write_transaction
from tallystick.storage.dialects import SNAPSHOT, TAKE_TURN, prepare_postgres, prepare_sqlite
from tallystick.storage.prepared import driver_errors

__all__ = ["Connection", "Database", "Unit", "savepoint", "translate"]

T = TypeVar("T")
Unit = Callable[[Connection], T]

_GROUP = 256
"""Most units in one commit: bounds how long a reader of the answer waits for others."""

_PAUSE, _LONGEST = 0.05, 0.5
"""Seconds without new work after which deferred units are written, and after which they are written
at the latest.

Beside a thread that computes, a write costs twice as much and holds that thread up: it is better
done when that thread pauses.
"""


@dataclass
class _Submitted(Generic[T]):
    """A unit that waits for the writer, and its future result."""

    unit: Unit[T]
    name: str
    answer: Future[T] = field(default_factory=Future)
    size: Callable[[], int] = field(default=lambda: 0)
    """A number that changes when work was added to the unit."""
    prepare: Callable[[], None] = field(default=lambda: None)
    """Called before the database is taken; must not raise."""


class _Queue:
    """The units that wait for the writer, in order of submission."""

    def __init__(self) -> None:
        self._waiting: deque[_Submitted[Any]] = deque()
        self._wake: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._wake_sent = False
        """True if a wake-up for deferred units is on its way: one serves all that come until it is
        taken.
        """
        self._ended = False
        self._busy = False
        self.stopped = False

    @property
    def waiting(self) -> bool:
        """True if anything was put that is not answered yet."""
        return bool(self._waiting) or self._busy

    def put(self, submitted: _Submitted[Any], *, deferred: bool) -> None:
        """Add a unit and wake the writer, once for all that are deferred within the window."""
        self._waiting.append(submitted)
        if self._ended:
            self.end()
        elif not deferred:
            self._wake.put("now")
        elif not self._wake_sent:
            self._wake_sent = True
            self._wake.put("deferred")

    def wake(self) -> None:
        """Let the writer begin now, if anything waits."""
        if self._waiting:
            self._wake.put("now")

    def stop(self) -> None:
        """Let the writer end once nothing waits."""
        self.stopped = True
        self._wake.put("now")

    def answered(self) -> None:
        """Note that the units which were taken are answered."""
        self._busy = False

    def take(self) -> list[_Submitted[Any]]:
        """Wait for units and take as many as share a commit; none once the writer is to end."""
        self.answered()
        while not self._waiting:
            if self.stopped:
                return []
            if self._wake.get() == "deferred":
                self._gather()
                # Units that come from here on wake the writer again; earlier ones are taken below.
                self._wake_sent = False
        group: list[_Submitted[Any]] = []
        self._busy = True
        while self._waiting and len(group) < _GROUP:
            group.append(self._waiting.popleft())
        return group

    def _gather(self) -> None:
        """Wait until no work was added for a while, or a caller waits for the commit."""
        latest, before = time.monotonic() + _LONGEST, -1
        while (
            size := sum(submitted.size() for submitted in list(self._waiting))
        ) != before and time.monotonic() < latest:
            before = size
            with suppress(queue.Empty):
                self._wake.get(timeout=_PAUSE)
                return

    def end(self) -> None:
        """Refuse the units that came too late, now and from here on."""
        self._ended = True
        while self._waiting:
            try:
                submitted = self._waiting.popleft()
            except IndexError:
                return
            if submitted.answer.set_running_or_notify_cancel():
                submitted.answer.set_exception(ClosedTally())


class Database:
    """An open database. Thread-safe; not shareable with a forked child."""

    def __init__(
        self,
        url: URL,
        *,
        busy_timeout_ms: int = 10_000,
        full_durability: bool = False,
        readers: int = 4,
        schema: str = "tallystick",
    ) -> None:
        self.url = url
        self.schema = schema
        self._busy_timeout_ms = busy_timeout_ms
        self._full = full_durability
        self._pid = os.getpid()
        self._closed = False
        self._queue = _Queue()
        self._writer = _Writer(self._engine(writing=True, size=1))
        self._readers = _Readers(
            self._engine(writing=False, size=max(1, readers)), keep=max(1, readers)
        )
        self._flush_callbacks: list[Callable[[], None]] = []
        self._close_guard = threading.Lock()
        self._thread = threading.Thread(
            target=_write_forever,
            args=(self._writer, self._queue),
            name="tallystick-writer",
            daemon=True,
        )
        self._thread.start()
        _open.add(self)

    @property
    def closed(self) -> bool:
        """True after `close` was called."""
        return self._closed

    @property
    def busy_timeout_ms(self) -> int:
        """How long a write waits for another process, milliseconds."""
        return self._busy_timeout_ms

    @property
    def is_postgres(self) -> bool:
        """True if this is PostgreSQL, False if SQLite. For rooms of storage; others ask
        `is_remote`.
        """
        return self.url.get_backend_name() == "postgresql"

    @property
    def is_remote(self) -> bool:
        """True if the database is a server, so that a read costs a way there and back."""
        return self.is_postgres

    def write(self, unit: Unit[T], *, name: str) -> T:
        """Run `unit` in a write transaction and return its result after the commit.

        If `unit` raises, its own writes are undone and the error is raised here; others in the same
        commit stay. Raises BusyTally, CorruptTally or StorageError for failures of the database.
        """
        self._refuse_inside(name)
        if self._queue.waiting or self._writer.turn.locked():
            return self.submit(unit, name=name).result()
        with self._writer.turn:
            return self._writer.commit_one(unit, name)

    def submit(
        self,
        unit: Unit[T],
        *,
        name: str,
        deferred: bool = False,
        size: Callable[[], int] = lambda: 0,
        prepare: Callable[[], None] = lambda: None,
    ) -> Future[T]:
        """Queue `unit` and return at once; the future is done after the commit, in the order of
        submission.

        A deferred unit waits for others, as no caller waits for it: a twentieth of a second, and
        while `size` keeps changing up to half a second. `prepare` is called on the writer's thread
        before it takes the database, for work that must not hold up other writers; it must not
        raise.
        """
        self._refuse_inside(name)
        submitted = _Submitted(unit, name, size=size, prepare=prepare)
        self._queue.put(submitted, deferred=deferred)
        return submitted.answer

    def on_flush(self, callback: Callable[[], None]) -> None:
        """Call `callback` before a flush and before closing: it submits work that is collected
        elsewhere.
        """
        self._flush_callbacks.append(callback)

    def commit_now(self) -> None:
        """Let the units that were deferred be committed without further delay; does not wait."""
        self._queue.wake()

    def flush(self) -> None:
        """Wait until everything that was submitted is committed or refused."""
        if self._writer.inside:
            return
        self._call_back()
        if self._queue.waiting:
            self.submit(lambda _: None, name="flush").result()

    def _call_back(self) -> None:
        for callback in self._flush_callbacks:
            callback()

    @contextmanager
    def read(self) -> Iterator[Connection]:
        """Yield a connection on which all statements see one committed state."""
        self._check()
        try:
            connection = self._readers.take()
            try:
                SNAPSHOT(connection, {})
                yield connection
                self._readers.give_back(connection)
            except BaseException:
                _discard(connection)
                raise
        except sqlalchemy.exc.SQLAlchemyError as error:
            if isinstance(error, sqlalchemy.exc.DBAPIError) and error.connection_invalidated:
                self._readers.renew()
            raise translate(error) from error

    @contextmanager
    def migrating(self) -> Iterator[Connection]:
        """Yield a connection for schema changes, under the writer's lock; for `migrate` alone."""
        self._check()
        try:
            with self._writer.turn, self._writer.engine.connect() as connection, connection.begin():
                TAKE_TURN(connection, {})
                yield connection
        except sqlalchemy.exc.SQLAlchemyError as error:
            raise translate(error) from error

    def close(self) -> None:
        """Finish what was submitted, then close. Closing twice is allowed."""
        with self._close_guard:
            if self._closed:
                return
            if os.getpid() == self._pid and not self._writer.inside:
                self._call_back()
            self._closed = True
        if os.getpid() != self._pid:
            self._forget_inherited()
            return
        self._queue.stop()
        if not self._writer.inside:
            self._thread.join()
            with self._writer.turn:
                self._writer.discard()
        self._writer.engine.dispose()
        self._readers.dispose()

    def _refuse_inside(self, name: str) -> None:
        self._check()
        if self._writer.inside:
            raise InsideTransaction(
                f"The write {name!r} was started inside another write. Join the two units."
            )

    def _check(self) -> None:
        if os.getpid() != self._pid:
            raise ForkedTally
        if self._closed:
            raise ClosedTally

    def _forget_inherited(self) -> None:
        # The child drops its copies without closing them: closing would release the parent's file
        # locks.
        self._writer.engine.dispose(close=False)
        self._readers.engine.dispose(close=False)

    def _engine(self, *, writing: bool, size: int) -> Engine:
        try:
            engine = create_engine(
                self.url, poolclass=QueuePool, pool_size=size, max_overflow=0 if writing else 16
            )
        except ModuleNotFoundError as error:
            raise MissingExtra("psycopg", "postgres") from error

        if self.is_postgres:
            prepare_postgres(engine, self.schema)
        else:
            prepare_sqlite(
                engine,
                busy_timeout_ms=self._busy_timeout_ms,
                full_durability=self._full,
                writing=writing,
                damaged=_damaged,
            )
        return engine


class _Readers:
    """The pool of connections that read. Returned ones stay open: to open one costs more than a
    small read.
    """

    def __init__(self, engine: Engine, *, keep: int) -> None:
        self.engine = engine
        self._keep = keep
        self._idle: deque[Connection] = deque()
        self._ended = False

    def take(self) -> Connection:
        """Return a connection outside of any transaction. Raises what SQLAlchemy raises."""
        try:
            return self._idle.pop()
        except IndexError:
            return self.engine.connect()

    def give_back(self, connection: Connection) -> None:
        """End the snapshot; from here on another thread may use the connection."""
        if connection.in_transaction():  # SQLAlchemy has counted itself in
            connection.rollback()
        else:
            with driver_errors(connection, "ROLLBACK") as driver:
                driver.rollback()
        if len(self._idle) < self._keep and not self._ended:
            self._idle.append(connection)
        else:
            connection.close()

    def renew(self) -> None:
        """Close the idle connections: the server went away, and they went with it."""
        while self._idle:
            _discard(self._idle.pop())
        self.engine.dispose()

    def dispose(self) -> None:
        """Close all connections, those in use when they are given back."""
        self._ended = True
        self.renew()


class _Writer:
    """The one connection that writes, and the lock of the thread that may use it."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.turn = threading.Lock()
        """Held by the thread that writes."""
        self._connection: Connection | None = None
        self._thread: int | None = None

    @property
    def inside(self) -> bool:
        """True if the calling thread is inside a unit."""
        return self._thread == threading.get_ident()

    def commit_one(self, unit: Unit[T], name: str) -> T:
        """Run one unit in a transaction of its own, on the calling thread, which holds the turn."""
        try:
            connection = self._begin()
            self._thread = threading.get_ident()
            with write_transaction(name):
                result = unit(connection)
            _commit(connection)
        except BaseException as error:
            self.discard()
            if isinstance(error, sqlalchemy.exc.SQLAlchemyError):
                raise translate(error) from error
            raise
        finally:
            self._thread = None
        return result

    def commit_all(self, group: list[_Submitted[Any]]) -> list[tuple[Any, BaseException | None]]:
        """Run units in one transaction, each in its savepoint; return each result or error."""
        outcomes: list[tuple[Any, BaseException | None]] = []
        try:
            connection = self._begin()
            self._thread = threading.get_ident()
            # By hand: SQLAlchemy's own savepoints cost as much as a small unit.
            driver = cast(Any, connection.connection.dbapi_connection)
            for submitted in group:
                driver.execute("SAVEPOINT unit")
                try:
                    with write_transaction(submitted.name):
                        result = submitted.unit(connection)
                    driver.execute("RELEASE SAVEPOINT unit")
                    outcomes.append((result, None))
                except BaseException as error:  # noqa: BLE001 - handed to the caller, who waits for it
                    driver.execute("ROLLBACK TO SAVEPOINT unit")
                    driver.execute("RELEASE SAVEPOINT unit")
                    outcomes.append((None, _answerable(error)))
            _commit(connection)
        except BaseException as error:  # noqa: BLE001 - every caller must be answered, whatever failed
            self.discard()
            return [(None, _answerable(error))] * len(group)
        finally:
            self._thread = None
        return outcomes

    def discard(self) -> None:
        """Undo what is not committed and drop the connection; the next write opens another."""
        if self._connection is not None:
            _discard(self._connection)
            self._connection = None

    def _begin(self) -> Connection:
        connection = self._connection
        if connection is None or connection.closed or connection.invalidated:
            connection = self._connection = self.engine.connect()
        TAKE_TURN(connection, {})
        return connection


_open: weakref.WeakSet[Database] = weakref.WeakSet()


def _after_fork() -> None:
    for database in list(_open):
        database._forget_inherited()


@atexit.register
def _at_exit() -> None:
    """Write what is deferred when the interpreter ends."""
    for database in list(_open):
        if not database.closed and os.getpid() == database._pid:
            try:
                database.flush()
            except TallystickError as error:
                get_logger("storage").error("writes.lost", error=type(error).__name__)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


def _write_forever(writer: _Writer, waiting: _Queue) -> None:
    """Take waiting units, commit them together, resolve their futures; the writer's thread."""
    while group := waiting.take():
        group = [item for item in group if item.answer.set_running_or_notify_cancel()]
        for submitted in group:
            submitted.prepare()
        with writer.turn:
            if len(group) == 1:
                outcomes = [_outcome(writer, group[0])]
            else:
                outcomes = writer.commit_all(group)
        waiting.answered()
        for submitted, (result, failure) in zip(group, outcomes, strict=True):
            if failure is not None:
                submitted.answer.set_exception(failure)
            else:
                submitted.answer.set_result(result)
        del group, outcomes  # not to be kept alive while this thread waits
    waiting.end()


def _outcome(writer: _Writer, submitted: _Submitted[Any]) -> tuple[Any, BaseException | None]:
    try:
        return writer.commit_one(submitted.unit, submitted.name), None
    except BaseException as error:  # noqa: BLE001 - handed to the caller, who waits for it
        return None, error


def _commit(connection: Connection) -> None:
    if connection.in_transaction():  # SQLAlchemy has counted itself in
        connection.commit()
        return
    with driver_errors(connection, "COMMIT") as driver:
        driver.commit()


@contextmanager
def savepoint(tx: Connection) -> Iterator[None]:
    """Undo what the block wrote, and no more, if it raises."""
    driver = cast(Any, tx.connection.dbapi_connection)
    driver.execute("SAVEPOINT part")
    try:
        yield
    except BaseException:
        driver.execute("ROLLBACK TO SAVEPOINT part")
        driver.execute("RELEASE SAVEPOINT part")
        raise
    driver.execute("RELEASE SAVEPOINT part")


def _discard(connection: Connection) -> None:
    try:
        connection.close()
    except sqlalchemy.exc.SQLAlchemyError:
        connection.invalidate()


def _answerable(error: BaseException) -> BaseException:
    if isinstance(error, sqlalchemy.exc.SQLAlchemyError):
        translated = translate(error)
        translated.__cause__ = error
        return translated
    return error


def _damaged() -> CorruptTally:
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
        return _damaged()
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
