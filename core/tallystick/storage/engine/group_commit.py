"""Group commit: the writer's thread, and the units that wait for it; and the connections that read.

Units that arrive while a write is under way share one commit, each inside its own savepoint. Every
caller is answered only after the commit.
"""

# How a commit may be delayed
# ---------------------------
# A commit costs more than the rows in it, and a change of thread about as much as a small unit.
# Five mechanisms share the first and avoid the second. None of them weakens a promise: what was
# answered is committed.
#
# 1. Group commit (`write`, `_Writer.commit_all`). Units that wait when the writer's thread becomes
#    free run in one transaction, at most `_GROUP` of them, each in a savepoint; on PostgreSQL only
#    such as declared the same (`writes`), so that a commit never holds the locks of two scopes.
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
#    called, or the interpreter ends.
#    Used by: `recorder/write_queue.py`; `on_flush` by `kit/background.py` too.
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

from __future__ import annotations

import os
import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar, cast

import sqlalchemy.exc
from sqlalchemy import Connection, Engine

from tallystick.errors import ClosedTally, CorruptTally
from tallystick.ports import write_transaction
from tallystick.storage.engine.batches import Batch, Read, batch_of, end_batch, flush
from tallystick.storage.engine.database_errors import answerable, is_failure, translate, was_lost
from tallystick.storage.engine.dialects import take_turn
from tallystick.storage.engine.outcomes import Transaction, is_committed, transaction_of
from tallystick.storage.engine.prepared import driver_errors
from tallystick.storage.engine.writes import EVERYTHING, Writes, declare_writes

T = TypeVar("T")
Unit = Callable[[Connection], T]
"""A function of the open transaction."""

_GROUP = 256
"""Most units in one commit: bounds how long a reader of the answer waits for others."""

_PAUSE, _LONGEST = 0.05, 0.5
"""Seconds without new work after which deferred units are written, and after which they are written
at the latest.

Beside a thread that computes, a write costs twice as much and holds that thread up: it is better
done when that thread pauses.
"""


@dataclass
class Submitted(Generic[T]):
    """A unit that waits for the writer, and its future result."""

    unit: Unit[T]
    name: str
    writes: Writes = EVERYTHING
    reads: Sequence[Read] = ()
    """What is read with the locks, on PostgreSQL."""
    answer: Future[T] = field(default_factory=Future)
    size: Callable[[], int] = field(default=lambda: 0)
    """A number that changes when work was added to the unit."""
    prepare: Callable[[], None] = field(default=lambda: None)
    """Called before the database is taken; must not raise."""


class CommitQueue:
    """The units that wait for a writer, in order of submission."""

    def __init__(self, *, mixed: bool = True) -> None:
        """Begin without units; those that write different things share a commit only if `mixed`."""
        self._mixed = mixed
        self._waiting: deque[Submitted[Any]] = deque()
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

    def put(self, submitted: Submitted[Any], *, deferred: bool) -> None:
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

    def finish_units(self) -> None:
        """Note that the units which were taken are answered."""
        self._busy = False

    def take(self) -> list[Submitted[Any]]:
        """Wait for units and take as many as share a commit; none once the writer is to end."""
        self.finish_units()
        while not self._waiting:
            if self.stopped:
                return []
            if self._wake.get() == "deferred":
                self._gather()
                # Units that come from here on wake the writer again; earlier ones are taken below.
                self._wake_sent = False
        group: list[Submitted[Any]] = []
        self._busy = True
        while self._waiting and len(group) < _GROUP:
            if group and not self._mixed and self._waiting[0].writes != group[0].writes:
                break
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


class SameFile:
    """The file of an SQLite database by its identity, as it was when it was opened."""

    def __init__(self, file: str | None) -> None:
        """Take the path of the file; None where the database is a server's."""
        self._file = file
        self._opened = self._identity()

    def require(self) -> None:
        """Raise CorruptTally if the path has no longer the file that was opened: what is committed
        to that one is found by nobody.
        """
        now = self._identity()
        self._opened = self._opened or now
        if now != self._opened:
            what = "is gone" if now is None else "is another file"
            raise CorruptTally(
                f"The database {self._file} {what} since this process opened it, and nothing more "
                "is written. Close the tally and open it again, once its file is back."
            )

    def _identity(self) -> tuple[int, int] | None:
        if self._file is None:
            return None
        try:
            found = os.stat(self._file)
        except OSError:
            return None
        return found.st_dev, found.st_ino


class Writer:
    """A connection that writes, and the lock of the thread that may use it."""

    def __init__(self, engine: Engine, file: SameFile) -> None:
        self.engine = engine
        self._file = file
        self.turn = threading.Lock()
        """Held by the thread that writes."""
        self._connection: Connection | None = None
        self._transaction: Transaction | None = None
        self._thread: int | None = None

    @property
    def inside(self) -> bool:
        """True if the calling thread is inside a unit."""
        return self._thread == threading.get_ident()

    def commit_one(self, unit: Unit[T], name: str, writes: Writes, reads: Sequence[Read] = ()) -> T:
        """Run one unit in a transaction of its own, on the calling thread, which holds the turn."""
        results: list[T] = []
        try:
            connection = self._begin(writes, reads)
            self._thread = threading.get_ident()
            declare_writes(connection, writes)
            with write_transaction(name):
                results.append(unit(connection))
            batch = batch_of(connection)
            self._file.require()
            _commit(connection)
            self._discard_failed(batch)
        except BaseException as error:
            is_there = self._is_there(error, committing=bool(results))
            if not is_there:
                if is_failure(error):
                    raise translate(error, committing=is_there is None) from error
                raise
        finally:
            self._thread = None
        return results[0]

    def commit_all(self, group: list[Submitted[Any]]) -> list[tuple[Any, BaseException | None]]:
        """Run units in one transaction, each in its savepoint; return each result or error."""
        outcomes: list[tuple[Any, BaseException | None]] = []
        committing = False
        try:
            connection = self._begin(group[0].writes)
            self._thread = threading.get_ident()
            # By hand: SQLAlchemy's own savepoints cost as much as a small unit.
            driver = cast(Any, connection.connection.dbapi_connection)
            for submitted in group:
                batch = batch_of(connection)
                try:
                    declare_writes(connection, submitted.writes)
                    if batch is None:
                        driver.execute("SAVEPOINT unit")
                    else:
                        batch.add("SAVEPOINT unit")
                        batch.read_ahead(connection, submitted.reads)
                    with write_transaction(submitted.name):
                        result = submitted.unit(connection)
                    if batch is None:
                        driver.execute("RELEASE SAVEPOINT unit")
                    else:
                        batch.add("RELEASE SAVEPOINT unit")
                        batch.flush(connection)
                        batch.clear()
                    outcomes.append((result, None))
                except BaseException as error:
                    if not _in_transaction(driver) or was_lost(error):
                        raise
                    if batch is not None:
                        batch.clear()
                    driver.execute("ROLLBACK TO SAVEPOINT unit")
                    driver.execute("RELEASE SAVEPOINT unit")
                    outcomes.append((None, answerable(error)))
            committing = True
            batch = batch_of(connection)
            self._file.require()
            _commit(connection)
            self._discard_failed(batch)
        except BaseException as error:  # noqa: BLE001 - every caller must be answered, whatever failed
            is_there = self._is_there(error, committing=committing)
            if not is_there:
                return [(None, answerable(error, committing=is_there is None))] * len(group)
        finally:
            self._thread = None
        return outcomes

    def _is_there(self, error: BaseException, *, committing: bool) -> bool | None:
        """Drop the connection after an error; return whether its transaction is committed all the
        same, None where that is not known.
        """
        self.discard()
        if not committing or not was_lost(error):
            return False
        return is_committed(self.engine, self._transaction)

    def _discard_failed(self, batch: Batch | None) -> None:
        """Drop the connection after a commit if it prepares no statements any more."""
        if batch is not None and batch.has_failed:
            self.discard()

    def discard(self) -> None:
        """Undo what is not committed and drop the connection; the next write opens another."""
        if self._connection is not None:
            discard_connection(self._connection)
            self._connection = None

    def close_idle(self) -> None:
        """Close the connection, so that somebody else has room; for the holder of the turn."""
        connection, self._connection = self._connection, None
        if connection is not None:
            _close(connection)

    def inherited_connection(self) -> Connection | None:
        """Return the connection that a forked child has a copy of, or None."""
        return self._connection

    def _begin(self, writes: Writes, reads: Sequence[Read] = ()) -> Connection:
        connection = self._connection
        if connection is not None and not connection.closed and not connection.invalidated:
            try:
                take_turn(connection, writes, reads)
            except Exception as error:
                if not was_lost(error):
                    raise
                # The server ended it while it was idle: nothing was written, so another will do.
                self.discard()
            else:
                self._transaction = transaction_of(connection)
                return connection
        # SQLite makes the file that is not there: it would write to one of nobody.
        self._file.require()
        connection = self._connection = self.engine.connect()
        take_turn(connection, writes, reads)
        self._transaction = transaction_of(connection)
        return connection


class WriteLine:
    """A writer, the units that wait for it, and the thread that commits them."""

    def __init__(self, engine: Engine, file: SameFile, *, mixed: bool) -> None:
        self.queue, self.writer = CommitQueue(mixed=mixed), Writer(engine, file)
        self.thread = threading.Thread(
            target=write_forever,
            args=(self.writer, self.queue),
            name="tallystick-writer",
            daemon=True,
        )
        self.thread.start()


class Readers:
    """The pool of connections that read. Returned ones stay open: to open one costs more than a
    small read.

    On a server as many threads read at once as connections are kept, and others wait. A thread that
    reads while it reads has another connection: it would wait for itself.
    """

    def __init__(self, engine: Engine, *, keep: int, wait_seconds: float | None) -> None:
        """Wait so long for another thread; None where as many may read as like."""
        self.engine = engine
        self._keep = keep
        self._wait_seconds = wait_seconds
        self._free = threading.Semaphore(keep)
        self._waited: set[object] = set()
        """The connections for which a thread took its turn."""
        self._idle: deque[Connection] = deque()
        self._ended = False
        self._used: dict[object, int] = {}
        """What is in use, by the thread that took it."""
        self._running = threading.Event()
        """Clear while a fork waits or is under way."""
        self._running.set()

    def take(self) -> Connection:
        """Return a connection outside of any transaction. Raises what SQLAlchemy raises."""
        key = object()
        if self._wait_seconds is not None and not self.used_here():
            if not self._free.acquire(timeout=self._wait_seconds):
                raise sqlalchemy.exc.TimeoutError
            self._waited.add(key)
        self.enter(key)
        try:
            try:
                connection = self._idle.pop()
            except IndexError:
                connection = self.engine.connect()
            self._used[connection] = threading.get_ident()
            if key in self._waited:
                self._waited.remove(key)
                self._waited.add(connection)
            return connection
        finally:
            self.leave(key)

    def enter(self, key: object) -> None:
        """Note that `key` is in use by this thread, after a fork that is under way. A thread that
        uses another one does not wait: the fork waits for it.
        """
        while True:
            used_here = self.used_here()
            self._used[key] = threading.get_ident()
            if used_here or self._running.is_set():
                return
            del self._used[key]
            self._running.wait()

    def leave(self, key: object) -> None:
        """Note that `key` is in use no longer."""
        self._used.pop(key, None)
        if key in self._waited:
            self._waited.remove(key)
            self._free.release()

    def used_here(self) -> bool:
        """Return True if the calling thread uses a connection."""
        return bool(self._used) and threading.get_ident() in list(self._used.values())

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
        self.leave(connection)

    def discard(self, connection: Connection) -> None:
        """Drop a connection that failed."""
        discard_connection(connection)
        self.leave(connection)

    def pause(self, until: float) -> bool:
        """Wait until no connection is in use, let nobody take one, and close all of them; False if
        that takes longer than `until`.
        """
        self._running.clear()
        while self._used:
            if time.monotonic() > until:
                self._running.set()
                return False
            time.sleep(0.0005)
        self.renew()
        return True

    def resume(self) -> None:
        """Let threads take connections again."""
        self._running.set()

    def inherited_connections(self) -> list[Connection]:
        """Return the connections that a forked child has copies of."""
        used = [key for key in self._used if isinstance(key, Connection)]
        return [*used, *self._idle]

    def renew(self) -> None:
        """Close the idle connections: the server went away, and they went with it."""
        while self._idle:
            discard_connection(self._idle.pop())
        self.engine.dispose()

    def close_idle(self) -> None:
        """Close the idle connections, so that somebody else has room."""
        with suppress(IndexError):
            while True:
                _close(self._idle.pop())

    def dispose(self) -> None:
        """Close all connections, those in use when they are given back."""
        self._ended = True
        self.renew()


def write_forever(writer: Writer, waiting: CommitQueue) -> None:
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
        waiting.finish_units()
        for submitted, (result, failure) in zip(group, outcomes, strict=True):
            if failure is not None:
                submitted.answer.set_exception(failure)
            else:
                submitted.answer.set_result(result)
        del group, outcomes  # not to be kept alive while this thread waits
    waiting.end()


def _outcome(writer: Writer, submitted: Submitted[Any]) -> tuple[Any, BaseException | None]:
    try:
        return writer.commit_one(
            submitted.unit, submitted.name, submitted.writes, submitted.reads
        ), None
    except BaseException as error:  # noqa: BLE001 - handed to the caller, who waits for it
        return None, error


def _commit(connection: Connection) -> None:
    batch = batch_of(connection)
    if connection.in_transaction():  # SQLAlchemy has counted itself in
        flush(connection)
        end_batch(connection)
        connection.commit()
        return
    if batch is not None:
        batch.commit(connection)
        end_batch(connection)
        return
    with driver_errors(connection, "COMMIT") as driver:
        driver.commit()


@contextmanager
def savepoint(tx: Connection) -> Iterator[None]:
    """Undo what the block wrote, and no more, if it raises."""
    driver = cast(Any, tx.connection.dbapi_connection)
    flush(tx)
    driver.execute("SAVEPOINT part")
    try:
        yield
        flush(tx)
    except BaseException:
        batch = batch_of(tx)
        if batch is not None:
            batch.clear()
        if _in_transaction(driver):
            driver.execute("ROLLBACK TO SAVEPOINT part")
            driver.execute("RELEASE SAVEPOINT part")
        raise
    driver.execute("RELEASE SAVEPOINT part")


def is_undone(tx: Connection) -> bool:
    """Return True if the database undid the whole transaction by itself, as SQLite may on a full
    disk, where what is written from here on would be committed statement by statement, and as
    PostgreSQL does where the connection is gone.
    """
    if tx.invalidated:
        return True
    driver = tx.connection.dbapi_connection
    return bool(getattr(driver, "closed", False)) or not _in_transaction(driver)


def _in_transaction(driver: Any) -> bool:
    return bool(getattr(driver, "in_transaction", True))


def _close(connection: Connection) -> None:
    """Close a connection, which else would go back to its pool and stay open there."""
    if not connection.closed:
        connection.invalidate()
        connection.close()


def discard_connection(connection: Connection) -> None:
    if not connection.closed and not connection.invalidated:
        driver = connection.connection.dbapi_connection
        if getattr(driver, "closed", False):
            # The server is gone: there is nobody to be asked for a rollback.
            connection.invalidate()
    try:
        connection.close()
    except Exception as error:
        if not is_failure(error):
            raise
        if not connection.closed:
            connection.invalidate()
