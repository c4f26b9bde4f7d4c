"""Files of a tally: for the user who runs it alone, whatever the umask, and read where they cannot
be written.

On Windows files have the access rights of their folder; there nothing is changed.
"""

from __future__ import annotations

import os
import shutil
import sqlite3
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from io import BufferedReader
from pathlib import Path
from typing import BinaryIO, NamedTuple

from tallystick.errors import StorageError, UnwritableReason
from tallystick.spool import sync_folder

_FOLDER, _FILE = 0o700, 0o600
_PARTIAL = ".partial"
_OTHERS = 0o077
"""Permissions of the group and of everybody else."""


def make_private_folder(folder: Path) -> None:
    """Make a folder, and those above it, that only this user may enter. Raises OSError."""
    if not folder.is_dir():
        folder.parent.mkdir(parents=True, exist_ok=True)
        folder.mkdir(mode=_FOLDER, exist_ok=True)


@contextmanager
def whole_folder(place: Path) -> Iterator[Path]:
    """Yield a new folder that only this user may enter; what is in it is at `place` at the end,
    whole and on disk. `place` is new or empty (`is_new_or_empty`). Where something fails nothing is
    left; what was left of one that was cut off goes with the next one. Raises OSError.
    """
    place = place.expanduser().absolute()
    # A folder that is there may be where a disk is mounted: nothing can be moved in its place.
    is_there = place.is_dir()
    partial = place / _PARTIAL if is_there else place.with_name(f".{place.name}{_PARTIAL}")
    shutil.rmtree(partial, ignore_errors=True)
    try:
        make_private_folder(partial)
        yield partial
        sync_folder(partial)
        if is_there:
            for member in sorted(partial.iterdir(), key=lambda each: each.stat().st_mtime_ns):
                member.rename(place / member.name)
            partial.rmdir()
            sync_folder(place)
        else:
            partial.rename(place)
            sync_folder(place.parent)
    except BaseException:
        shutil.rmtree(partial, ignore_errors=True)
        raise


def is_new_or_empty(place: Path) -> bool:
    """Return True if nothing is at a place, or an empty folder: one that `whole_folder` takes.
    Raises StorageError where it cannot be looked at.
    """
    try:
        if not place.is_dir():
            return not place.exists()
        return all(each.name == _PARTIAL for each in place.iterdir())
    except OSError as error:
        raise StorageError(f"{str(place)[:200]} cannot be read: {error.strerror}.") from error


def open_private(file: Path) -> BinaryIO:
    """Open a file for writing that only this user may read. Raises OSError.

    A file that is there keeps its permissions: somebody gave it these.
    """
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | getattr(os, "O_BINARY", 0)
    return os.fdopen(os.open(file, flags, _FILE), "wb")


def open_regular(folder: Path, name: str) -> BufferedReader:
    """Open a regular file inside of `folder` for reading, through no link: a link could lead out of
    it, and a pipe would never end. Raises OSError.
    """
    file = folder / name
    if file.parent != folder and file.parent.is_symlink():
        raise OSError("a link")
    flags = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
    if file.is_symlink():
        raise OSError("a link")
    number = os.open(file, flags | getattr(os, "O_BINARY", 0))
    if not stat.S_ISREG(os.fstat(number).st_mode):
        os.close(number)
        raise OSError("no regular file")
    return os.fdopen(number, "rb")


def is_own(stream: BinaryIO) -> bool:
    """Return True if an open file belongs to the user of this process."""
    return os.name == "nt" or os.fstat(stream.fileno()).st_uid == os.geteuid()


def restrict_tally(folder: Path) -> None:
    """Take the rights of others from the folder of a tally and the files in it, and make its
    database so: SQLite gives its log the rights of the database.

    A file of another user, or on a disk that is read-only, stays as it is; the doctor names it.
    Raises OSError where the folder cannot be read.
    """
    if os.name == "nt":
        return
    restrict(folder)
    database = folder / "tally.db"
    if not database.exists() and os.access(folder, os.W_OK):
        # Never one that is there: closing it would end the locks that SQLite holds on it.
        with suppress(FileExistsError):
            os.close(os.open(database, os.O_RDWR | os.O_CREAT | os.O_EXCL, _FILE))
    for path in folder.iterdir():
        restrict(path)


def wider_than_private(folder: Path) -> list[str]:
    """Return the names of the folder and of the files in it that others may read or write."""
    if os.name == "nt":
        return []
    return [
        path.name
        for path in (folder, *sorted(folder.iterdir()))
        if not path.is_symlink() and path.stat().st_mode & _OTHERS
    ]


def restrict(path: Path) -> None:
    """Take the rights of others from a folder or a regular file, where this user may. Raises
    OSError where it is not there.
    """
    if os.name == "nt":
        return
    mode = path.lstat().st_mode
    if not mode & _OTHERS or not (stat.S_ISDIR(mode) or stat.S_ISREG(mode)):
        return
    try:
        path.chmod(stat.S_IMODE(mode) & ~_OTHERS)
    except OSError:
        # Not ours to change; `wider_than_private` shows it.
        return


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
