"""Reading a tally that cannot be written: on a read-only or full disk, or without permission.

SQLite reads a database with a write-ahead log where it can use the log's index in `tally.db-shm`.
So it opens such a database read-only where both files are there, left by a process that has it open
or that died, and applies what the log holds. Where there is no log, because the last process closed
it, SQLite would have to make both files. That is avoided by opening the database as immutable:
SQLite then takes no lock and looks at no log (https://sqlite.org/wal.html, "Read-Only Databases").

Must hold: no connection is immutable while there is a log, and what is read while the file changes
is not believed. Else a reader without permission, on a disk that somebody else may write, would
miss what is committed, or mix two states.
"""

from __future__ import annotations

import os
import shutil
import sqlite3
from pathlib import Path
from typing import NamedTuple

from tallystick.errors import UnwritableReason

LOW_SPACE = 256 * 1024
"""Free bytes below which a disk counts as full: SQLite's log and its index need them."""


class FileState(NamedTuple):
    """What shows that somebody else writes a database."""

    has_log: bool
    inode: int = 0
    size: int = 0
    changed_at: int = 0


class ReadOnlyFile:
    """The file of an SQLite database that this process does not write. Thread-safe."""

    def __init__(self, file: Path, *, busy_timeout_ms: int) -> None:
        self._file = file
        self._log = file.with_name(file.name + "-wal")
        self._timeout = busy_timeout_ms / 1_000

    def connect(self) -> sqlite3.Connection:
        """Return a new connection that only reads. Raises sqlite3.Error."""
        # The index is read as it is, or made in memory: where it may be written, SQLite empties the
        # one that a dead process left.
        options = "readonly_shm=1" if self.state().has_log else "immutable=1"
        return sqlite3.connect(
            f"{self._file.as_uri()}?mode=ro&{options}",
            uri=True,
            timeout=self._timeout,
            check_same_thread=False,
        )

    def state(self) -> FileState:
        """Return the state of the file and its log as they are now."""
        try:
            has_log = self._log.stat().st_size > 0
        except OSError:
            has_log = False
        if has_log:
            return FileState(has_log=True)  # SQLite's locks keep what is read in one state
        try:
            found = self._file.stat()
        except OSError:
            return FileState(has_log=False)
        return FileState(False, found.st_ino, found.st_size, found.st_mtime_ns)


def file_unwritable(folder: Path) -> UnwritableReason | None:
    """Return why this process may not write the database in `folder`; None where it may, or where
    there is none.
    """
    database = folder / "tally.db"
    if not database.exists() or os.access(database, os.W_OK):
        return None
    return unwritable_reason(folder)


def unwritable_reason(folder: Path) -> UnwritableReason | None:
    """Return why a tally's folder cannot be written, as the system says it; None where it can."""
    if hasattr(os, "statvfs") and os.statvfs(folder).f_flag & getattr(os, "ST_RDONLY", 1):
        return "read_only"
    paths = [folder, *folder.glob("tally.db*")]
    if not all(os.access(path, os.W_OK) for path in paths):
        return "no_permission"
    return "disk_full" if shutil.disk_usage(folder).free < LOW_SPACE else None
