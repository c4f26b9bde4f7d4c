"""Liveness: a lock that ends with its process shows whether that is still running."""

from __future__ import annotations

import os
import secrets
import threading
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout
from sqlalchemy import create_engine, text
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.pool import NullPool

from tallystick.storage.database import Database
from tallystick.storage.database_errors import translate
from tallystick.storage.dialects import let_go_of_socket
from tallystick.storage.private_files import make_private_folder

__all__ = ["Liveness"]


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
        self._database = database
        self._guard = threading.Lock()
        self._lock: Any = None
        self._pid = os.getpid()
        database.on_fork(self._let_go)

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
                    self._lock.acquire()
                else:
                    self._call(self._lock, "pg_advisory_lock", self.token)
        return self.token

    def is_gone(self, token: str | None) -> bool:
        """Return True if the process that recorded `token` has ended; one that recorded none was of
        an older release.
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

    def _let_go(self) -> None:
        """Leave the lock to the parent, whose end must end it. A file's lock does so by itself."""
        if self._folder is None and self._lock is not None:
            let_go_of_socket(self._lock)

    def _file_lock(self, token: str) -> FileLock:
        assert self._folder is not None
        make_private_folder(self._folder)
        return FileLock(str(self._folder / token), timeout=0, thread_local=False, mode=0o600)

    def _session(self) -> Any:
        """Return a connection of its own, to which the lock belongs."""
        try:
            return create_engine(
                self._database.url, poolclass=NullPool, isolation_level="AUTOCOMMIT"
            ).connect()
        except SQLAlchemyError as error:
            raise translate(error) from error

    @staticmethod
    def _call(session: Any, function: str, token: str) -> Any:
        # 60 bits of the token: the number of an advisory lock is a signed 64-bit integer.
        return session.execute(text(f"SELECT {function}({int(token[:15], 16)})")).scalar()
