"""Liveness: a lock that ends with its process shows whether that is still running, and a file that
was made before says how much of each run it could not write.
"""

from __future__ import annotations

import hashlib
import json
import os
import secrets
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from filelock import FileLock, Timeout
from sqlalchemy import create_engine, text
from sqlalchemy.pool import NullPool

from tallystick.errors import ReadOnlyTally, StorageError
from tallystick.logs import get_logger
from tallystick.settings import user_state
from tallystick.storage.engine.database import Database
from tallystick.storage.engine.database_errors import is_failure, translated_errors
from tallystick.storage.engine.dialects import let_go_of_socket
from tallystick.storage.engine.group_commit import discard_connection
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


class Liveness:
    """An opened tally's sign of life: a locked file beside an embedded database, an advisory lock
    in PostgreSQL.

    The operating system, or the server, releases the lock when the process ends, however it ends.
    Thread-safe.
    """

    def __init__(self, folder: Path | None, database: Database) -> None:
        self.token = secrets.token_hex(16)
        """The name under which this opened tally is recorded, with what it begins."""
        self._folder = None if folder is None else folder / "alive"
        self._lost = self._folder or _state_folder(database)
        self._database = database
        self._guard = threading.Lock()
        self._lock: Any = None
        self._is_lost = False
        """True once the session of the lock was found to have ended."""
        self._has_losses = False
        self._pid = os.getpid()
        database.on_fork(self._let_go)
        database.on_connect(self._renew)

    def hold(self) -> str:
        """Take the lock, until `close` or the end of the process; return the token. Raises
        StorageError.
        """
        with self._guard:
            if self._lock is None:
                self._lock = (
                    self._file_lock(self.token) if self._folder is not None else self._session()
                )
                if self._folder is not None:
                    with _writing(self._folder):
                        self._lock.acquire()
                        make_blank(self._folder / (self.token + _LOSSES))
                else:
                    self._call(self._lock, "pg_advisory_lock", self.token)
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
            session = self._session()
            try:
                return bool(self._call(session, "pg_try_advisory_lock", token))
            finally:
                session.close()
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
        """Release the lock. A forked child leaves it to its parent."""
        if os.getpid() != self._pid:
            return
        with self._guard:
            lock, self._lock = self._lock, None
        if lock is None:
            return
        if self._folder is None:
            lock.close()
        else:
            lock.release()
            Path(lock.lock_file).unlink(missing_ok=True)
            if not self._has_losses:
                self.forget_losses(self.token)

    def _let_go(self) -> None:
        """Leave the lock to the parent, whose end must end it. A file's lock does so by itself."""
        if self._folder is None and self._lock is not None:
            let_go_of_socket(self._lock)

    def _file_lock(self, token: str) -> FileLock:
        assert self._folder is not None
        with _writing(self._folder):
            make_private_folder(self._folder)
        return FileLock(str(self._folder / token), timeout=0, thread_local=False, mode=0o600)

    def _session(self) -> Any:
        """Return a connection of its own, to which the lock belongs."""
        with translated_errors():
            return create_engine(
                self._database.url, poolclass=NullPool, isolation_level="AUTOCOMMIT"
            ).connect()

    @staticmethod
    def _call(session: Any, function: str, token: str) -> Any:
        # 60 bits of the token: the number of an advisory lock is a signed 64-bit integer.
        with translated_errors():
            return session.execute(text(f"SELECT {function}({int(token[:15], 16)})")).scalar()

    def _renew(self) -> None:
        """Take the lock again where the server has ended its session, as when it started anew: else
        this process would be taken for one that died.
        """
        with self._guard:
            if self._lock is None or self._folder is not None or self._is_held():
                return
            try:
                session = self._session()
                # It is not to be had while the server has yet to notice that the first is gone.
                if not self._call(session, "pg_try_advisory_lock", self.token):
                    session.close()
                    return
            except StorageError as error:
                get_logger("storage").warning("liveness.lost", error=type(error).__name__)
                return
            discard_connection(self._lock)
            self._lock, self._is_lost = session, False

    def _is_held(self) -> bool:
        if not self._is_lost:
            try:
                self._lock.execute(text("SELECT 1"))
            except Exception as error:
                if not is_failure(error):
                    raise
                # Asked once more it might connect anew, without the lock.
                self._is_lost = True
        return not self._is_lost


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
