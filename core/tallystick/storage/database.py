"""The database: one writer at a time with group commit, a pool of readers, two dialects.

A write is a function of the open transaction (a *unit*). Whoever writes while nobody else does runs
its unit itself: a handover to another thread costs as much as a small unit. Units that arrive while
a write is under way go to the writer's thread and share one commit, each inside its own savepoint.
Every caller is answered only after the commit. A unit is marked as inside a transaction, so that an
embedder or model called from one is refused.

Every writing transaction begins with BEGIN IMMEDIATE on SQLite and with one advisory lock on
PostgreSQL: one writer at a time, over all processes, so that the journal's sequence is the order of
commits.
"""

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
from sqlalchemy import URL, Connection, Engine, create_engine, event
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
from tallystick.storage.prepared import Prepared, driver_errors

__all__ = ["Connection", "Database", "Unit", "savepoint", "translate"]

T = TypeVar("T")
Unit = Callable[[Connection], T]

_GROUP = 256
"""Most units in one commit: bounds how long a reader of the answer waits for others."""

_PAUSE, _LONGEST = 0.05, 0.5
"""Seconds without more of it after which work that nobody waits for is done, and after which it is
done at the latest.

Beside a thread that computes a write costs twice as much, and holds that thread up: it is better
done when it pauses.
"""

_WRITER_LOCK = 0x7A11_5710
"""The advisory lock that makes PostgreSQL writers take turns."""

_CHECKPOINT_PAGES = 4_000
"""Pages in the write-ahead log at which a commit moves them into the database file, which waits for
the disk: 16 MB.

A small write changes some thirty pages, mostly the same ones, so that a fourth as many moves write
much less in all.
"""

_TAKE_TURN = Prepared("BEGIN IMMEDIATE", postgresql=f"SELECT pg_advisory_xact_lock({_WRITER_LOCK})")
_SNAPSHOT = Prepared(
    "BEGIN", postgresql="SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY"
)


@dataclass
class _Job(Generic[T]):
    unit: Unit[T]
    name: str
    answer: Future[T] = field(default_factory=Future)
    grown: Callable[[], int] = field(default=lambda: 0)
    """A number that changes when more was added to what it will do."""
    ready: Callable[[], None] = field(default=lambda: None)
    """Called before the database is taken; must not raise."""


class _Jobs:
    """What waits for the writer, in order of submission."""

    def __init__(self) -> None:
        self._waiting: deque[_Job[Any]] = deque()
        self._bell: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._rung = False
        self._ended = False
        self._busy = False
        self.stopped = False

    @property
    def waiting(self) -> bool:
        """Whether anything was put that is not answered yet."""
        return bool(self._waiting) or self._busy

    def put(self, job: _Job[Any], *, soon: bool) -> None:
        """Add a job. What may wait rings once for all that comes within the window."""
        self._waiting.append(job)
        if self._ended:
            self.end()
        elif not soon:
            self._bell.put("now")
        elif not self._rung:
            self._rung = True
            self._bell.put("soon")

    def ring(self) -> None:
        """Let the writer begin now, if anything waits."""
        if self._waiting:
            self._bell.put("now")

    def stop(self) -> None:
        """Let the writer end once nothing waits."""
        self.stopped = True
        self._bell.put("now")

    def answered(self) -> None:
        """Say that what was taken is answered."""
        self._busy = False

    def take(self) -> list[_Job[Any]]:
        """Wait for work and take as much as shares a commit; nothing once the writer is to end."""
        self.answered()
        while not self._waiting:
            if self.stopped:
                return []
            if self._bell.get() == "soon":
                self._gather()
                # Whoever comes from here on rings again; whoever came before is taken below.
                self._rung = False
        group: list[_Job[Any]] = []
        self._busy = True
        while self._waiting and len(group) < _GROUP:
            group.append(self._waiting.popleft())
        return group

    def _gather(self) -> None:
        """Wait until no more comes for a while, or somebody is in a hurry."""
        latest, before = time.monotonic() + _LONGEST, -1
        while (
            grown := sum(job.grown() for job in list(self._waiting))
        ) != before and time.monotonic() < latest:
            before = grown
            with suppress(queue.Empty):
                self._bell.get(timeout=_PAUSE)
                return

    def end(self) -> None:
        """Refuse what came too late, now and from here on."""
        self._ended = True
        while self._waiting:
            try:
                job = self._waiting.popleft()
            except IndexError:
                return
            if job.answer.set_running_or_notify_cancel():
                job.answer.set_exception(ClosedTally())


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
        self._jobs = _Jobs()
        self._writer = _Writer(self._engine(writing=True, size=1))
        self._readers = _Readers(
            self._engine(writing=False, size=max(1, readers)), keep=max(1, readers)
        )
        self._gathered: list[Callable[[], None]] = []
        self._close_guard = threading.Lock()
        self._thread = threading.Thread(
            target=_write_forever,
            args=(self._writer, self._jobs),
            name="tallystick-writer",
            daemon=True,
        )
        self._thread.start()
        _open.add(self)

    @property
    def closed(self) -> bool:
        """Whether `close` was called."""
        return self._closed

    @property
    def busy_timeout_ms(self) -> int:
        """How long a write waits for another process, milliseconds."""
        return self._busy_timeout_ms

    @property
    def is_postgres(self) -> bool:
        """Whether this is PostgreSQL rather than SQLite."""
        return self.url.get_backend_name() == "postgresql"

    def write(self, unit: Unit[T], *, name: str) -> T:
        """Run `unit` in a write transaction and return its result after the commit.

        If `unit` raises, its own writes are undone and the error is raised here; others in the same
        commit stay. Raises BusyTally, CorruptTally or StorageError for failures of the database.
        """
        self._refuse_inside(name)
        if self._jobs.waiting or self._writer.turn.locked():
            return self.submit(unit, name=name).result()
        with self._writer.turn:
            return self._writer.commit_one(unit, name)

    def submit(
        self,
        unit: Unit[T],
        *,
        name: str,
        soon: bool = False,
        grown: Callable[[], int] = lambda: 0,
        ready: Callable[[], None] = lambda: None,
    ) -> Future[T]:
        """Queue `unit` and return at once; the future is done after the commit, in the order of
        submission.

        With `soon` it waits for company, as work may that nobody waits for: for a twentieth of a
        second, and while `grown` keeps changing up to half a second. `ready` is called on the
        writer's thread before it takes the database, for what others need not wait for; it must not
        raise.
        """
        self._refuse_inside(name)
        job = _Job(unit, name, grown=grown, ready=ready)
        self._jobs.put(job, soon=soon)
        return job.answer

    def gathers(self, hand_over: Callable[[], None]) -> None:
        """Call `hand_over` before settling and closing: it submits what waits elsewhere for a
        write.
        """
        self._gathered.append(hand_over)

    def hurry(self) -> None:
        """Let what was submitted to be written soon be written now."""
        self._jobs.ring()

    def settle(self) -> None:
        """Wait until everything that was submitted is committed or refused."""
        if self._writer.inside:
            return
        self._hand_over()
        if self._jobs.waiting:
            self.submit(lambda _: None, name="settle").result()

    def _hand_over(self) -> None:
        for hand_over in self._gathered:
            hand_over()

    @contextmanager
    def read(self) -> Iterator[Connection]:
        """A connection on which all statements see one committed state."""
        self._check()
        try:
            connection = self._readers.take()
            try:
                _SNAPSHOT(connection, {})
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
        """A connection for schema changes, holding the writer's lock; used by `migrate` alone."""
        self._check()
        try:
            with self._writer.turn, self._writer.engine.connect() as connection, connection.begin():
                _TAKE_TURN(connection, {})
                yield connection
        except sqlalchemy.exc.SQLAlchemyError as error:
            raise translate(error) from error

    def close(self) -> None:
        """Finish what was submitted, then close. Closing twice is allowed."""
        with self._close_guard:
            if self._closed:
                return
            if os.getpid() == self._pid and not self._writer.inside:
                self._hand_over()
            self._closed = True
        if os.getpid() != self._pid:
            self._forget_inherited()
            return
        self._jobs.stop()
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
            schema = self.schema.replace('"', '""')

            @event.listens_for(engine, "connect")
            def _enter_schema(raw: Any, _record: Any) -> None:
                with raw.cursor() as cursor:
                    cursor.execute(f'SET search_path TO "{schema}"')
                    cursor.execute("SET synchronous_commit TO on")
                raw.commit()

            return engine

        @event.listens_for(engine, "connect")
        def _set_up(raw: Any, _record: Any) -> None:
            # pysqlite's own transaction handling defers the lock; ours are begun explicitly below.
            raw.isolation_level = None
            cursor = raw.cursor()
            cursor.execute(f"PRAGMA busy_timeout={self._busy_timeout_ms}")
            if writing:
                try:
                    cursor.execute("PRAGMA journal_mode=WAL")
                except (
                    UnicodeDecodeError
                ) as error:  # what SQLite says of a damaged schema quotes it
                    raise _damaged() from error
            cursor.execute("PRAGMA foreign_keys=ON")
            cursor.execute(f"PRAGMA synchronous={'FULL' if self._full else 'NORMAL'}")
            cursor.execute("PRAGMA temp_store=MEMORY")
            cursor.execute("PRAGMA cache_size=-16000")
            cursor.execute(f"PRAGMA wal_autocheckpoint={_CHECKPOINT_PAGES}")
            if not writing:
                cursor.execute("PRAGMA query_only=ON")
            cursor.close()

        return engine


class _Readers:
    """Connections that read. Those that were given back stay set up: to set one up costs more than
    a small read.
    """

    def __init__(self, engine: Engine, *, keep: int) -> None:
        self.engine = engine
        self._keep = keep
        self._idle: deque[Connection] = deque()
        self._ended = False

    def take(self) -> Connection:
        """A connection outside of any transaction. Raises what SQLAlchemy raises."""
        try:
            return self._idle.pop()
        except IndexError:
            return self.engine.connect()

    def give_back(self, connection: Connection) -> None:
        """End what was read; from here on another thread may have the connection."""
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
        """Close those that nobody uses: the server went away, and they went with it."""
        while self._idle:
            _discard(self._idle.pop())
        self.engine.dispose()

    def dispose(self) -> None:
        """Close them all, those in use when they are given back."""
        self._ended = True
        self.renew()


class _Writer:
    """The one connection that writes, and whose turn it is."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.turn = threading.Lock()
        """Held by the thread that writes."""
        self._connection: Connection | None = None
        self._thread: int | None = None

    @property
    def inside(self) -> bool:
        """Whether the calling thread is inside a unit."""
        return self._thread == threading.get_ident()

    def commit_one(self, unit: Unit[T], name: str) -> T:
        """Run one unit in a transaction of its own, on the calling thread, which holds the turn."""
        try:
            connection = self._begun()
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

    def commit_all(self, group: list[_Job[Any]]) -> list[tuple[Any, BaseException | None]]:
        """Run units in one transaction, each in its savepoint; for each its result or its error."""
        outcomes: list[tuple[Any, BaseException | None]] = []
        try:
            connection = self._begun()
            self._thread = threading.get_ident()
            # By hand: SQLAlchemy's own savepoints cost as much as a small unit.
            driver = cast(Any, connection.connection.dbapi_connection)
            for job in group:
                driver.execute("SAVEPOINT unit")
                try:
                    with write_transaction(job.name):
                        result = job.unit(connection)
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
        """Undo what is not committed and give the connection back; the next write takes another."""
        if self._connection is not None:
            _discard(self._connection)
            self._connection = None

    def _begun(self) -> Connection:
        connection = self._connection
        if connection is None or connection.closed or connection.invalidated:
            connection = self._connection = self.engine.connect()
        _TAKE_TURN(connection, {})
        return connection


_open: weakref.WeakSet[Database] = weakref.WeakSet()


def _after_fork() -> None:
    for database in list(_open):
        database._forget_inherited()


@atexit.register
def _at_exit() -> None:
    """What nobody waits for is written all the same when the interpreter ends."""
    for database in list(_open):
        if not database.closed and os.getpid() == database._pid:
            try:
                database.settle()
            except TallystickError as error:
                get_logger("storage").error("writes.lost", error=type(error).__name__)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


def _write_forever(writer: _Writer, jobs: _Jobs) -> None:
    """The writer's thread: take what is waiting, commit it together, answer everyone."""
    while group := jobs.take():
        group = [job for job in group if job.answer.set_running_or_notify_cancel()]
        for job in group:
            job.ready()
        with writer.turn:
            if len(group) == 1:
                outcomes = [_outcome(writer, group[0])]
            else:
                outcomes = writer.commit_all(group)
        jobs.answered()
        for job, (result, failed) in zip(group, outcomes, strict=True):
            if failed is not None:
                job.answer.set_exception(failed)
            else:
                job.answer.set_result(result)
        del group, outcomes
    jobs.end()


def _outcome(writer: _Writer, job: _Job[Any]) -> tuple[Any, BaseException | None]:
    try:
        return writer.commit_one(job.unit, job.name), None
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
    """Undo what the block wrote, and no more, when it raises."""
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
    """The error of our tree for a failure of the database; SQL and values stay out of its
    message.
    """
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
