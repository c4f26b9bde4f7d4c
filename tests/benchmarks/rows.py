"""The same rows by sqlite3 alone: what operations write is noted, and done again on a copy of the
same database.

The copy stands where the database stood before, so that the statements meet the same rows, indexes
and keys; its settings are those of a tally. `same` holds the two against each other afterwards,
table by table.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from tallystick import Tally
from tallystick.storage.engine.prepared import Prepared
from tallystick.tally.services import services_of

Statements = list[tuple[str, Any]]

_WRITES = ("INSERT", "UPDATE", "DELETE")


def bare(path: Path, *, synchronous: str = "NORMAL") -> sqlite3.Connection:
    """sqlite3 itself, with the settings of a tally."""
    connection = sqlite3.connect(path, isolation_level=None)
    for setting in (
        "journal_mode=WAL",
        f"synchronous={synchronous}",
        "foreign_keys=ON",
        "temp_store=MEMORY",
        "cache_size=-16000",
        "wal_autocheckpoint=4000",
    ):
        connection.execute(f"PRAGMA {setting}")
    return connection


def as_it_comes(path: Path) -> sqlite3.Connection:
    """sqlite3 with none of its settings changed: a rollback journal, and the disk is waited for at
    each commit.
    """
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("PRAGMA journal_mode=DELETE")  # what a new file has
    return connection


def copied(tally: Tally, path: Path) -> None:
    """Copy the database of a tally as it stands."""
    with closing(sqlite3.connect(_file(tally))) as source, closing(sqlite3.connect(path)) as copy:
        source.backup(copy)


@contextmanager
def noted(operations: list[Statements]) -> Iterator[Callable[[], None]]:
    """Note what is written inside the block; the function given begins the next operation."""
    plain = Prepared.__call__

    def call(self: Prepared, connection: Any, values: Any) -> Any:
        text, in_order, _ = self.translate("sqlite")
        if operations and text.lstrip().startswith(_WRITES):
            rows = [values] if isinstance(values, dict) else values
            operations[-1] += [(text, in_order(row)) for row in rows]
        return plain(self, connection, values)

    Prepared.__call__ = call  # type: ignore[method-assign]
    try:
        yield lambda: operations.append([])
    finally:
        Prepared.__call__ = plain  # type: ignore[method-assign]


def replayed(
    path: Path,
    operations: list[Statements],
    clock: Callable[[], float] = time.perf_counter,
    connect: Callable[[Path], sqlite3.Connection] = bare,
) -> list[float]:
    """Do the operations again, each in a transaction of its own; the milliseconds of each."""
    times = []
    with closing(connect(path)) as connection:
        for statements in operations:
            began = clock()
            connection.execute("BEGIN IMMEDIATE")
            for text, values in statements:
                connection.execute(text, values)
            connection.execute("COMMIT")
            times.append((clock() - began) * 1_000)
    return times


def same(tally: Tally, path: Path) -> None:
    """Raise where a table of the copy holds other rows than that of the tally: then something was
    not noted.
    """
    with closing(sqlite3.connect(_file(tally))) as ours, closing(sqlite3.connect(path)) as theirs:
        for (name,) in ours.execute(
            "SELECT name FROM sqlite_master WHERE type = 'table'"
        ).fetchall():
            query = f'SELECT * FROM "{name}"'
            for one, other in zip(ours.execute(query), theirs.execute(query), strict=True):
                if one != other:
                    raise AssertionError(f"a row of {name} was not written by sqlite3: {one[:3]}")


def _file(tally: Tally) -> str:
    folder = services_of(tally).store.location.folder
    assert folder is not None
    return str(folder / "tally.db")
