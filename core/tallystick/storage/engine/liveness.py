"""Liveness: a lock that ends with its process, or a lease that it renews, shows whether that is
still running, and a file that was made before says how much of each run it could not write.
"""

# A lease may run out while its process lives
# -------------------------------------------
# A process that was stopped for longer than `LEASE_SECONDS`, or cut off from its server, is taken
# for dead, and its runs are ended by another one (`recorder/recovery.py`). That is safe: what
# records a run checks in its own transaction that the run is still recorded by its process
# (`recordings.require_recorded_by`), and goes on in a new step where it is not.
# The lease is a row, and no lock of a session: behind a pooler a session outlives its client, and
# a server or a balancer may end an idle session whose client lives.

from __future__ import annotations

import hashlib
import json
import os
import secrets
import threading
import weakref
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

from filelock import FileLock, Timeout
from sqlalchemy import Connection, Engine

from tallystick.errors import ReadOnlyTally, TallystickError
from tallystick.logs import get_logger
from tallystick.settings import user_state
from tallystick.storage.engine.database import Database
from tallystick.storage.engine.database_errors import translated_errors, was_lost
from tallystick.storage.engine.prepared import Prepared
from tallystick.storage.engine.private_files import (
    make_private_folder,
    open_private,
    unwritable_reason,
)

_SIZE = 8_192
"""Bytes of the file: counts of some 170 runs."""


class Losses(NamedTuple):
    """What one process could not write."""

    by_run: Mapping[str, int]
    """Number of things by the id of their run."""
    further: int = 0
    """Number of things in runs that the file has no room for."""


def make_blank(file: Path) -> None:
    """Make the file, without losses. Raises OSError."""
    with open_private(file) as opened:
        opened.write(b" " * _SIZE)


def write_losses(file: Path, by_run: Mapping[str, int]) -> None:
    """Write how much of each run is lost over what the file has. Raises OSError."""
    listed: dict[str, int] = {}
    text = b""
    for run_id, count in by_run.items():
        further = sum(by_run.values()) - sum(listed.values()) - count
        body = json.dumps({"by_run": {**listed, run_id: count}, "further": further}).encode()
        if len(body) > _SIZE:
            break
        listed[run_id], text = count, body
    if text:
        descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | getattr(os, "O_BINARY", 0), 0o600)
        with os.fdopen(descriptor, "wb") as opened:
            opened.write(text.ljust(_SIZE))


def read_losses(file: Path) -> Losses:
    """Return what the file says; nothing for one that is blank or was cut off, or that another
    process has told and removed. Raises OSError.
    """
    try:
        stored = json.loads(file.read_bytes())
        by_run = {str(run_id): int(count) for run_id, count in stored["by_run"].items()}
        return Losses(by_run, int(stored["further"]))
    except (FileNotFoundError, ValueError, TypeError, KeyError, AttributeError):
        return Losses({})


_LOSSES = ".lost"
"""Ending of the file with what a process could not write, beside its lock."""
BEAT_SECONDS, LEASE_SECONDS = 10.0, 45.0
"""Time between two renewals of a lease on PostgreSQL, and the time for which each holds."""
LEASES = "alive."
"""Begins the names of leases among the settings."""
_MOMENT = "lpad(((extract(epoch FROM clock_timestamp()) + {}) * 1000000)::bigint::text, 20, '0')"
"""A time by the clock of the server, which sorts as a text."""
_RENEW = f"""
    WITH ended AS (
        DELETE FROM {{table}} WHERE name LIKE '{LEASES}%%' AND value < {_MOMENT.format(-86_400)}
    )
    INSERT INTO {{table}} (name, value) VALUES (%(name)s, {_MOMENT.format("%(seconds)s")})
    ON CONFLICT (name) DO UPDATE SET value = excluded.value
"""
"""Renews a lease, and removes those that ended a day ago."""
_IS_HELD = Prepared(f"SELECT 1 FROM settings WHERE name = :name AND value > {_MOMENT.format(0)}")


class Liveness:
    """An opened tally's sign of life: a locked file beside an embedded database, which the system
    unlocks when the process ends, however it ends; a lease in PostgreSQL. Thread-safe.
    """

    def __init__(self, folder: Path | None, database: Database) -> None:
        self.token = secrets.token_hex(16)
        """The name under which this opened tally is recorded, with what it begins."""
        self._folder = None if folder is None else folder / "alive"
        self._lost = self._folder or _state_folder(database)
        self._database = database
        self._guard = threading.Lock()
        self._lock: FileLock | None = None
        self._engine: Engine | None = None
        self._beating: threading.Thread | None = None
        self._is_renewed = False
        """True once a lease is stored by itself, whatever becomes of transactions."""
        self._closed = threading.Event()
        self._has_losses = False
        self._pid = os.getpid()

    def hold(self, tx: Connection) -> str:
        """Take the lock or the lease, until `close` or the end of the process, before a run is
        stored in a transaction; return the token. Raises StorageError.
        """
        with self._guard:
            if self._folder is None and self._beating is None:
                # A connection of its own: no writer that waits for a lock holds it up.
                self._engine = self._database.new_engine(writing=True, size=1)
                self._beating = threading.Thread(
                    target=_beat,
                    args=(weakref.ref(self), self._closed),
                    name="tallystick-liveness",
                    daemon=True,
                )
                self._beating.start()
            elif self._folder is not None and self._lock is None:
                self._lock = self._file_lock(self.token)
                with _writing(self._folder):
                    self._lock.acquire()
                    make_blank(self._folder / (self.token + _LOSSES))
            if self._folder is None and not self._is_renewed:
                # With the run: no transaction waits for a second connection.
                tx.exec_driver_sql(*self._renewal(LEASE_SECONDS))
        return self.token

    def note_losses(self, by_run: Mapping[str, int]) -> bool:
        """Note how much of each run this process could not write, for whoever opens the tally next:
        beside an embedded database; for PostgreSQL in the state folder of this user, on this
        machine. Return False where that cannot be written.
        """
        if self._lost is None:
            return False
        try:
            make_private_folder(self._lost)
            write_losses(self._lost / (self.token + _LOSSES), by_run)
        except OSError:
            return False
        self._has_losses = True
        return True

    def losses(self) -> dict[str, Losses]:
        """Return what processes that have ended could not write, by their tokens. Where their notes
        of a PostgreSQL tally cannot be read, the log says so.
        """
        if self._lost is None:
            return {}
        try:
            tokens = [file.name.removesuffix(_LOSSES) for file in self._lost.glob("*" + _LOSSES)]
            return {
                token: read_losses(self._lost / (token + _LOSSES))
                for token in sorted(tokens)
                if self.is_gone(token)
            }
        except OSError as error:
            if self._folder is not None:
                raise
            get_logger("storage").warning("losses.not_read", error=type(error).__name__)
            return {}

    def forget_losses(self, token: str) -> None:
        """Remove what a process noted: the tally says it now."""
        if self._lost is not None:
            (self._lost / (token + _LOSSES)).unlink(missing_ok=True)

    def is_gone(self, token: str | None) -> bool:
        """Return True if the process that recorded `token` has ended. No token names no living
        process.
        """
        if token == self.token:
            return False
        if token is None:
            return True
        if self._folder is None:
            if self._lost is not None and (self._lost / (token + _LOSSES)).exists():
                return True  # which it wrote at its end
            with self._database.read() as connection:
                return not _IS_HELD(connection, {"name": LEASES + token})
        lock = self._file_lock(token)
        try:
            with _writing(self._folder):
                lock.acquire()
        except Timeout:
            return False
        lock.release()
        Path(lock.lock_file).unlink(missing_ok=True)
        return True

    def close(self) -> None:
        """Release the lock or the lease. A forked child leaves it to its parent."""
        if os.getpid() != self._pid:
            return
        with self._guard:
            lock, self._lock = self._lock, None
            beating, self._beating = self._beating, None
        if beating is not None and self._engine is not None:
            self._closed.set()
            beating.join()
            # It runs out by itself where that cannot be written.
            with suppress(TallystickError):
                self._renew(0.0)
            self._engine.dispose()
        if lock is not None:
            lock.release()
            Path(lock.lock_file).unlink(missing_ok=True)
            if not self._has_losses:
                self.forget_losses(self.token)

    def _file_lock(self, token: str) -> FileLock:
        assert self._folder is not None
        with _writing(self._folder):
            make_private_folder(self._folder)
        return FileLock(str(self._folder / token), timeout=0, thread_local=False, mode=0o600)

    def _renewal(self, seconds: float) -> tuple[str, dict[str, Any]]:
        schema = self._database.schema.replace('"', '""').replace("%", "%%")
        values = {"name": LEASES + self.token, "seconds": seconds}
        return _RENEW.format(table=f'"{schema}".settings'), values

    def _renew(self, seconds: float) -> None:
        """Let the lease hold for some seconds from now. Raises StorageError."""
        assert self._engine is not None
        for is_last in (False, True):
            try:
                with (
                    translated_errors(),
                    self._database.outside(),
                    self._engine.connect() as connection,
                ):
                    connection.exec_driver_sql(*self._renewal(seconds))
                self._is_renewed = True
                return
            except TallystickError as error:
                # The server ended it while it was idle.
                if is_last or error.__cause__ is None or not was_lost(error.__cause__):
                    raise


def _beat(living: weakref.ref[Liveness], closed: threading.Event) -> None:
    """Renew a lease until its tally is closed, or forgotten by the program."""
    while not closed.wait(BEAT_SECONDS) and (liveness := living()) is not None:
        try:
            liveness._renew(LEASE_SECONDS)
        except TallystickError as error:
            get_logger("storage").warning("liveness.not_renewed", error=type(error).__name__)
        del liveness


def _state_folder(database: Database) -> Path | None:
    """Return the folder of this user for what a database cannot be told, by its address without
    the password, and its schema; None for a user without a home, as in some containers.
    """
    state = user_state()
    if state is None:
        return None
    address = database.url.set(password=None).render_as_string(hide_password=False)
    name = hashlib.sha256(f"{address} {database.schema}".encode()).hexdigest()[:32]
    return state / "lost" / name


@contextmanager
def _writing(folder: Path) -> Iterator[None]:
    """Raise ReadOnlyTally for what the system refuses inside of the block."""
    try:
        yield
    except Timeout:
        raise
    except OSError as error:
        raise ReadOnlyTally(unwritable_reason(folder.parent) or "write_failed") from error
