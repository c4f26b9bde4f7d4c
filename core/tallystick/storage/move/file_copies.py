"""Copies of the file of an SQLite tally, by SQLite's own online copy: others go on writing."""

from __future__ import annotations

import errno
import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path

from sqlalchemy import URL

from tallystick.errors import CorruptTally
from tallystick.storage.engine.database import Database
from tallystick.storage.engine.prepared import driver_errors
from tallystick.storage.engine.private_files import open_private
from tallystick.storage.engine.writes import TALLY, Writes
from tallystick.storage.move.archives import Progress
from tallystick.storage.rows import objects

_PAGES = 2_000
"""Pages that are copied between two reports of progress."""


def copy_database(
    database: Database, file: Path, progress: Progress, *, missing: list[str]
) -> None:
    """Copy a database as it is at one moment into a new file, which needs no object and is on disk
    when this returns. `progress` is called with the pages that were copied. Names of objects that
    are not there are added to `missing`. Raises CorruptTally, StorageError, OSError.
    """
    open_private(file).close()
    with (
        database.read() as connection,
        closing(sqlite3.connect(file)) as target,
        driver_errors(connection, "backup") as source,
        _own_errors(),
    ):
        # The first read fixes the snapshot; a copy in steps would otherwise begin anew at each
        # commit of another process.
        source.execute("SELECT 1 FROM sqlite_master").fetchone()
        source.backup(
            target,
            pages=_PAGES,
            progress=lambda _status, left, total: progress(total - left, total),
        )
    copy = Database(URL.create("sqlite", database=str(file)))
    with closing(copy):
        with copy.read() as connection:
            has_objects = next(objects.list_references(connection), None) is not None
        if has_objects:
            bring_back = partial(objects.bring_back, attached=database.attached, missing=missing)
            copy.write(bring_back, name="backup.objects", writes=Writes.of(TALLY))
    with closing(sqlite3.connect(file)) as target, _own_errors():
        # One file, without a log beside it.
        target.execute("PRAGMA journal_mode=DELETE")
        problems = [row[0] for row in target.execute("PRAGMA integrity_check(5)")]
    if problems != ["ok"]:
        raise CorruptTally(f"The database is damaged: {problems[0]}. Run `tally doctor`.")
    with file.open("rb+") as stream:
        os.fsync(stream.fileno())


@contextmanager
def _own_errors() -> Iterator[None]:
    """Tell a full disk of the copy from one of the tally. Raises OSError."""
    try:
        yield
    except sqlite3.OperationalError as error:
        if error.sqlite_errorcode == sqlite3.SQLITE_FULL:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)) from error
        raise
