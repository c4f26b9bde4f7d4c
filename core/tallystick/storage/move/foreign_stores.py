"""Databases of other products: read, and never written."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

from tallystick.errors import InvalidInput


class StoreRow(NamedTuple):
    """An item of LangGraph's SqliteStore."""

    prefix: str
    """Its namespace, the labels joined by points."""
    key: str
    value: str
    """JSON."""


def rows_of_store(file: Path) -> Iterator[StoreRow]:
    """Yield the items in the file of a SqliteStore, by namespace and key. Raises InvalidInput."""
    query = "SELECT prefix, key, value FROM store ORDER BY prefix, key"
    try:
        with closing(sqlite3.connect(f"{file.absolute().as_uri()}?mode=ro", uri=True)) as opened:
            require_tables(opened, "store")
            for prefix, key, value in opened.execute(query):
                yield StoreRow(str(prefix), str(key), str(value))
    except sqlite3.Error as error:
        raise InvalidInput(f"{file} is no database of a SqliteStore: {error}.") from error


def require_tables(connection: sqlite3.Connection, *names: str) -> None:
    """Raise sqlite3.DatabaseError unless each of these is a table of the file: the rows of a view
    may have no end.
    """
    for name in names:
        kinds = connection.execute(
            "SELECT type, sql FROM sqlite_master WHERE lower(name) = ?", (name,)
        ).fetchall()
        if not any(
            kind == "table" and not str(sql).upper().startswith("CREATE VIRTUAL")
            for kind, sql in kinds
        ):
            raise sqlite3.DatabaseError(f"{name} is no table in it")
