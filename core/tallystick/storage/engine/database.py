"""The database: writers with group commit, a pool of readers, two dialects.

A write is a function of the open transaction (a *unit*). A caller that writes while nobody else
does runs its unit itself. Units that arrive while a write is under way go to the writer's thread
and share one commit, each inside its own savepoint. Every caller is answered only after the commit.
A unit is marked as inside a transaction, so that an embedder or model called from one is refused.

Every writing transaction begins with BEGIN IMMEDIATE on SQLite: one writer at a time, over all
processes. On PostgreSQL it begins with the locks of what its units declared
(`storage/engine/writes.py`): one writer at a time of a scope, over all processes, and several
connections that write in each. So order is the position within a stream; the keys of rows are given
before their transactions commit, and say nothing of what is committed.
"""

# What a reader sees
# ------------------
# A read takes one snapshot with its first statement (`begin_read`) and keeps it to its end: all of
# its statements see one committed state, and scope decisions and the rows they allow belong
# together. A read therefore never sees units that are queued; a caller that must see its own
# deferred work calls `flush` first. On SQLite the connection is `query_only` besides.
# Must hold: a connection returns to the pool only after ROLLBACK. Else it would show its next user
# an old state, and keep the write-ahead log from being emptied.

from __future__ import annotations

import atexit
import os
import sys
import threading
import time
import weakref
import zlib
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from math import ceil
from pathlib import Path
from typing import Any, TypeVar

from sqlalchemy import URL, Connection, Engine, create_engine
from sqlalchemy.pool import QueuePool

from tallystick.aio import on_event_loop
from tallystick.costs import count
from tallystick.errors import (
    BusyTally,
    ClosedTally,
    ForkedTally,
    InsideTransaction,
    MissingExtra,
    ReadOnlyTally,
    TallystickError,
    UnwritableReason,
)
from tallystick.logs import get_logger
from tallystick.storage.engine.batches import Read
from tallystick.storage.engine.blob_stores import ATTACHED, Attached
from tallystick.storage.engine.database_errors import (
    damaged_database,
    is_failure,
    translate,
    translated_errors,
    was_lost,
)
from tallystick.storage.engine.dialects import (
    SETTINGS,
    STATEMENTS,
    TRY_TURN,
    WAIT_FOR_TURN,
    begin_alone,
    begin_read,
    let_go_of_socket,
    prepare_postgres,
    prepare_sqlite,
    transaction_settings,
)
from tallystick.storage.engine.forks import refuse_unsafe, watch
from tallystick.storage.engine.group_commit import (
    Readers,
    SameFile,
    Submitted,
    Unit,
    WriteLine,
)
from tallystick.storage.engine.private_files import FileState, ReadOnlyFile
from tallystick.storage.engine.writes import EVERYTHING, RUNS, UndeclaredWrite, Writes

T = TypeVar("T")

_SPARE_READERS = 16
"""Connections beyond `readers` that may be open: of threads that read while they read, and of many
that read a file.
"""
_LAST_TRIES = 3
"""Busy timeouts for which a database that is closed tries to write what waits."""


class Database:
    """An open database. Thread-safe; not shareable with a forked child."""

    def __init__(
        self,
        url: URL,
        *,
        busy_timeout_ms: int = 10_000,
        full_durability: bool = False,
        readers: int = 4,
        writers: int = 1,
        prepare_threshold: int | None = None,
        schema: str = "tallystick",
        unwritable: UnwritableReason | None = None,
    ) -> None:
        """Open the database; one that is `unwritable` is only read, and each write raises
        ReadOnlyTally. PostgreSQL may have several `writers`, each a connection, and prepares a
        statement after `prepare_threshold` times (`prepare_postgres`).
        """
        if url.database and url.get_backend_name() == "sqlite":
            refuse_unsafe(url.database)
        self.url = url
        self.schema = schema
        self._busy_timeout_ms = busy_timeout_ms
        self._full = full_durability
        self._prepare_threshold = prepare_threshold
        self._pid = os.getpid()
        self._closed = False
        self._unwritable: UnwritableReason | None = unwritable
        self._file: ReadOnlyFile | None = None
        if unwritable is not None and url.database and not self.is_postgres:
            self._file = ReadOnlyFile(Path(url.database), busy_timeout_ms=busy_timeout_ms)
        self._file_state: FileState | None = None
        """The state of a file that is only read, when its connections were opened."""
        self.attached = Attached()
        """Where large bodies of this database are, outside of it."""
        count = writers if self.is_postgres else 1
        self._lines = tuple(
            WriteLine(
                self.new_engine(writing=unwritable is None, size=1),
                SameFile(None if self.is_postgres else url.database),
                mixed=not self.is_postgres,
            )
            for _ in range(count)
        )
        self._readers = Readers(
            self.new_engine(writing=False, size=max(1, readers)),
            keep=max(1, readers),
            wait_seconds=busy_timeout_ms / 1_000 if self.is_postgres else None,
        )
        self._flush_callbacks: list[Callable[[], None]] = []
        self._fork_callbacks: list[Callable[[], None]] = []
        self._exit_callbacks: list[Callable[[], object]] = []
        self._lost_callbacks: list[Callable[[], object]] = []
        self._close_guard = threading.Lock()
        _open.add(self)
        watch(self)

    @property
    def closed(self) -> bool:
        """True after `close` was called, and where the interpreter ends: what was submitted is
        written by then, and the threads that write are gone.
        """
        return self._closed or sys.is_finalizing()

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
    def unwritable(self) -> UnwritableReason | None:
        """Why every write raises ReadOnlyTally; None where the database was opened for writing."""
        return self._unwritable

    @property
    def is_remote(self) -> bool:
        """True if the database is a server, so that a read costs a way there and back."""
        return self.is_postgres

    def write(
        self,
        unit: Unit[T],
        *,
        name: str,
        writes: Writes = EVERYTHING,
        reads: Sequence[Read] = (),
    ) -> T:
        """Run `unit` in a write transaction and return its result after the commit. On PostgreSQL
        `reads`, the statements that it runs first, are sent along with its locks.

        If `unit` raises, its own writes are undone and the error is raised here; others in the same
        commit stay. `writes` says what it writes: others that write something else need not wait
        for it. Raises BusyTally, CorruptTally or StorageError for failures of the database.
        """
        self._refuse_inside(name)
        line = self._line_of(writes)
        count("writes")
        if line.queue.waiting or line.writer.turn.locked():
            return self._put(unit, name, writes, reads).result()
        with line.writer.turn:
            return line.writer.commit_one(unit, name, writes, reads)

    def write_mostly(self, unit: Unit[T], *, name: str, writes: Writes) -> T:
        """Same as `write`, for a unit that seldom writes more than `writes`, as where a memory has
        copies in other scopes: then it is undone, and carried out again alone. It must change
        nothing but what the transaction undoes.
        """
        try:
            return self.write(unit, name=name, writes=writes)
        except UndeclaredWrite:
            return self.write(unit, name=name)

    def _line_of(self, writes: Writes) -> WriteLine:
        """Return the line of what is written: units of one scope are committed in their order."""
        if len(self._lines) == 1 or writes.names is None:
            return self._lines[0]
        place = zlib.crc32("\n".join(sorted(writes.names)).encode())
        return self._lines[place % len(self._lines)]

    @property
    def _inside(self) -> bool:
        return any(line.writer.inside for line in self._lines)

    def require_writable(self) -> None:
        """Raise ReadOnlyTally where the database was opened for reading alone."""
        if self._unwritable is not None:
            raise ReadOnlyTally(self._unwritable)

    def write_if_possible(
        self, unit: Unit[object], *, name: str, writes: Writes = EVERYTHING
    ) -> bool:
        """Same as `write`, for what a read leaves behind; False where the disk takes no write,
        which is logged.
        """
        try:
            self.write(unit, name=name, writes=writes)
        except ReadOnlyTally as error:
            get_logger("storage").warning("write.skipped", name=name, reason=error.reason)
            return False
        return True

    def write_soon(
        self,
        unit: Unit[T],
        *,
        name: str,
        failed: Callable[[], None],
        writes: Writes = EVERYTHING,
    ) -> bool:
        """Same as `write_if_possible`; on an event loop it returns at once, and `failed` is called
        if the write fails. What this process writes afterwards to the same
        scopes is committed after it.
        """
        if self._unwritable is not None or not on_event_loop():
            return self.write_if_possible(unit, name=name, writes=writes)

        def note_failure(answer: Future[T]) -> None:
            error = answer.exception()
            if error is not None:
                get_logger("storage").warning("write.failed", name=name, error=type(error).__name__)
                failed()

        self.submit(unit, name=name, writes=writes).add_done_callback(note_failure)
        return True

    def submit(
        self,
        unit: Unit[T],
        *,
        name: str,
        writes: Writes = EVERYTHING,
        reads: Sequence[Read] = (),
        deferred: bool = False,
        size: Callable[[], int] = lambda: 0,
        prepare: Callable[[], None] = lambda: None,
    ) -> Future[T]:
        """Queue `unit` and return at once; the future is done after the commit, in the order of
        submission of units that declare the same `writes`.

        A deferred unit waits for others, as no caller waits for it: a twentieth of a second, and
        while `size` keeps changing up to half a second. `prepare` is called on the writer's thread
        before it takes the database, for work that must not hold up other writers; it must not
        raise.
        """
        self._refuse_inside(name)
        count("writes")
        return self._put(unit, name, writes, reads, deferred=deferred, size=size, prepare=prepare)

    def _put(
        self,
        unit: Unit[T],
        name: str,
        writes: Writes,
        reads: Sequence[Read],
        *,
        deferred: bool = False,
        size: Callable[[], int] = lambda: 0,
        prepare: Callable[[], None] = lambda: None,
    ) -> Future[T]:
        submitted = Submitted(unit, name, writes, reads, size=size, prepare=prepare)
        self._line_of(writes).queue.put(submitted, deferred=deferred)
        return submitted.answer

    def on_flush(self, callback: Callable[[], None]) -> None:
        """Call `callback` before a flush and before closing: it submits work that is collected
        elsewhere.
        """
        self._flush_callbacks.append(callback)

    def on_fork(self, callback: Callable[[], None]) -> None:
        """Call `callback` in each forked child: it lets go of what only the parent may use."""
        self._fork_callbacks.append(callback)

    def on_exit(self, callback: Callable[[], object]) -> None:
        """Call `callback` where the interpreter ends and this is open: it writes what is collected
        elsewhere and may be lost without harm to other writes.
        """
        self._exit_callbacks.append(callback)

    def on_lost_at_exit(self, callback: Callable[[], object]) -> None:
        """Call `callback` where the interpreter ends and what waits could not be written."""
        self._lost_callbacks.append(callback)

    def commit_now(self) -> None:
        """Let the units that were deferred be committed without further delay; does not wait."""
        for line in self._lines:
            line.queue.wake()

    def flush(self) -> None:
        """Wait until everything that was submitted is committed or refused."""
        if self._inside:
            return
        self._call_back()
        for line in self._lines:
            if line.queue.waiting:
                last = Submitted(lambda _: None, "flush", RUNS)
                line.queue.put(last, deferred=False)
                last.answer.result()

    def _write_what_waits(self) -> None:
        """Write all that waits, at the end; a database that is busy is asked several times."""
        until = time.monotonic() + _LAST_TRIES * self._busy_timeout_ms / 1_000
        with suppress(TallystickError):
            while True:
                try:
                    self.flush()
                    break
                except BusyTally:
                    if time.monotonic() > until:
                        raise
        self._call_back()

    def _call_back(self) -> None:
        for callback in self._flush_callbacks:
            callback()

    @contextmanager
    def read(self) -> Iterator[Connection]:
        """Yield a connection on which all statements see one committed state."""
        self._check()
        count("reads")
        try:
            connection = self._snapshot()
            try:
                yield connection
                self._refuse_changed()
                self._readers.give_back(connection)
            except BaseException:
                self._readers.discard(connection)
                raise
        except Exception as error:
            if not is_failure(error):
                raise
            if was_lost(error):
                self._readers.renew()
            raise translate(error) from error

    def _snapshot(self) -> Connection:
        """Return a connection that has begun to read. One that the server ended while it was idle
        is replaced, once.
        """
        if self._file is not None and self._file_state != (state := self._file.state()):
            self._file_state = state
            self._readers.renew()
        for is_last in (False, True):
            connection = self._readers.take()
            try:
                begin_read(connection)
            except BaseException as error:
                self._readers.discard(connection)
                if is_last or not was_lost(error):
                    raise
                self._readers.renew()
            else:
                break
        return connection

    def _refuse_changed(self) -> None:
        """Raise BusyTally where the file of a read-only tally changed while it was read."""
        if self._file is not None and self._file_state != self._file.state():
            raise BusyTally("Another process wrote the tally while it was read. Try again.")

    @contextmanager
    def turn_of(self, name: str, *, wait: bool) -> Iterator[bool]:
        """Let one process at a time do what has this name, on PostgreSQL; yield False where another
        does it and this one was not to wait. SQLite knows no such turn, and yields True.

        The turn is that of a connection, and ends where the server ends it: what is done under it
        is checked when it is committed. Raises BusyTally after the busy timeout.
        """
        if not self.is_postgres:
            yield True
            return
        with self.read() as connection:
            yield bool((WAIT_FOR_TURN if wait else TRY_TURN)(connection, {"name": name})[0][0])

    @contextmanager
    def outside(self) -> Iterator[None]:
        """Note that the block has a connection of its own open, for which a fork waits."""
        key = object()
        self._readers.enter(key)
        try:
            yield
        finally:
            self._readers.leave(key)

    @contextmanager
    def migrating(self) -> Iterator[Connection]:
        """Yield a connection on which tables are changed or written anew, as the only writer."""
        self._refuse_inside("migrate")
        writer = self._lines[0].writer
        with translated_errors(), writer.turn:
            writer.discard()
            with writer.engine.connect() as connection, connection.begin():
                begin_alone(connection)
                yield connection

    def close(self) -> None:
        """Finish what was submitted, then close. Closing twice is allowed, and closing in a forked
        child, which leaves everything to the parent.
        """
        if self.is_inherited:
            self._closed = True
            return
        with self._close_guard:
            if self.closed:
                return
            if not self._inside:
                self._write_what_waits()
            self._closed = True
        for line in self._lines:
            line.queue.stop()
        for line in self._lines:
            if not line.writer.inside:
                line.thread.join()
                with line.writer.turn:
                    line.writer.discard()
            line.writer.engine.dispose()
        self._readers.dispose()

    def _refuse_inside(self, name: str) -> None:
        self._check()
        if self._inside:
            raise InsideTransaction(
                f"The write {name!r} was started inside another write. Join the two units."
            )
        self.require_writable()

    @property
    def is_inherited(self) -> bool:
        """True in a child that was forked after this was opened."""
        return os.getpid() != self._pid

    def _check(self) -> None:
        if self.is_inherited:
            raise ForkedTally
        if self.closed:
            raise ClosedTally

    # For forks: see `storage/engine/forks.py`

    @property
    def fork_wait(self) -> float:
        """Seconds that a fork waits at most: a write may wait for another process so long."""
        return self._busy_timeout_ms / 1_000 + 1.0

    def pause(self, until: float) -> bool:
        """Close all connections and let nobody open one; False if that takes too long, or if the
        calling thread uses one itself.
        """
        if os.getpid() != self._pid:
            return True
        if self._inside or self._readers.used_here():
            return False
        held: list[WriteLine] = []
        for line in self._lines:
            if not line.writer.turn.acquire(timeout=max(0.0, until - time.monotonic())):
                break
            held.append(line)
        if len(held) < len(self._lines) or not self._readers.pause(until):
            for line in held:
                line.writer.turn.release()
            return False
        for line in self._lines:
            line.writer.discard()
            line.writer.engine.dispose()
        return True

    @contextmanager
    def quiet(self) -> Iterator[None]:
        """Let nobody of this process read or write inside of the block: who comes waits. Raises
        BusyTally where those who are there do not leave in time.
        """
        if not self.pause(time.monotonic() + self.fork_wait):
            raise BusyTally("A read or a write of this process holds the database. Try again.")
        try:
            yield
        finally:
            self.resume()

    def resume(self) -> None:
        """Undo `pause`, in the parent."""
        if os.getpid() == self._pid:
            self._readers.resume()
            for line in self._lines:
                line.writer.turn.release()

    def forget(self, *, paused: bool) -> str | None:
        """Drop what was inherited, in the child; return the file that it cannot open again."""
        for callback in self._fork_callbacks:
            callback()
        if paused:
            return None
        # Closed by nobody: SQLite would look at locks that are the parent's, and a server would be
        # told goodbye in the parent's name.
        writing = [line.writer.inherited_connection() for line in self._lines]
        connections = [*writing, *self._readers.inherited_connections()]
        _inherited.append((self, connections))
        if self.is_postgres:
            for connection in connections:
                let_go_of_socket(connection)
            return None
        return self.url.database

    def _close_idle(self) -> None:
        """Close the connections that nobody uses."""
        self._readers.close_idle()
        for line in self._lines:
            if line.writer.turn.acquire(blocking=False):
                try:
                    line.writer.close_idle()
                finally:
                    line.writer.turn.release()

    def new_engine(self, *, writing: bool, size: int) -> Engine:
        """Return an engine of `size` connections to this database."""
        try:
            engine = create_engine(
                self.url,
                poolclass=QueuePool,
                pool_size=size,
                max_overflow=0 if writing else _SPARE_READERS,
                pool_timeout=self._busy_timeout_ms / 1_000,
                connect_args=self._connect_arguments(),
                execution_options={
                    ATTACHED: self.attached,
                    "compiled_cache": STATEMENTS,
                    SETTINGS: transaction_settings(
                        self.schema, busy_timeout_ms=self._busy_timeout_ms
                    ),
                },
                **({} if self._file is None else {"creator": self._file.connect}),
                # No column has that type, and to look for it takes a transaction of its own.
                **({"use_native_hstore": False} if self.is_postgres else {}),
            )
        except ModuleNotFoundError as error:
            raise MissingExtra("psycopg", "postgres") from error

        if self.is_postgres:
            prepare_postgres(
                engine,
                prepare_threshold=self._prepare_threshold,
                wait_seconds=self._busy_timeout_ms / 1_000,
                make_room=self._close_idle,
            )
        else:
            prepare_sqlite(
                engine,
                busy_timeout_ms=self._busy_timeout_ms,
                full_durability=self._full,
                writing=writing,
                damaged=damaged_database,
            )
        return engine

    def _connect_arguments(self) -> dict[str, Any]:
        if not self.is_postgres:
            return {}
        # Transactions begin explicitly, with more than the driver's BEGIN. Through a pooler the
        # server may prepare nothing before it is known as one.
        arguments: dict[str, Any] = {
            "autocommit": True,
            "prepare_threshold": None,
            "client_encoding": "utf8",
        }
        if "connect_timeout" not in self.url.query:
            # Whole seconds, and the driver takes 1 for 2.
            arguments["connect_timeout"] = max(2, ceil(self._busy_timeout_ms / 1_000))
        return arguments


_open: weakref.WeakSet[Database] = weakref.WeakSet()
_inherited: list[object] = []
"""What a forked child has copies of and must not close, nor let the interpreter collect."""


@atexit.register
def _at_exit() -> None:
    """Write what is deferred when the interpreter ends."""
    for database in list(_open):
        if not database.closed and os.getpid() == database._pid:
            for callback in database._exit_callbacks:
                # Its error is logged by who collected.
                with suppress(TallystickError):
                    callback()
            try:
                database.flush()
            except TallystickError as error:
                get_logger("storage").error("writes.lost", error=type(error).__name__)
                for callback in database._lost_callbacks:
                    callback()
