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


class OpenMemoryRow(NamedTuple):
    """A memory in the database of OpenMemory."""

    id: str
    user: str
    app: str
    content: str
    state: str
    metadata: str
    """JSON."""
    categories: str
    """JSON: a list of names."""
    created_at: str
    """Without an offset: UTC."""
    updated_at: str


_OPEN_MEMORY = """
SELECT memories.id, users.user_id, coalesce(apps.name, ''), memories.content,
    coalesce(memories.state, 'active'), coalesce(memories.metadata, '{}'),
    (
        SELECT json_group_array(categories.name) FROM memory_categories
        JOIN categories ON categories.id = memory_categories.category_id
        WHERE memory_categories.memory_id = memories.id
    ),
    coalesce(memories.created_at, ''), coalesce(memories.updated_at, '')
FROM memories
JOIN users ON users.id = memories.user_id
LEFT JOIN apps ON apps.id = memories.app_id
ORDER BY memories.created_at, memories.id
"""


def rows_of_openmemory(file: Path) -> Iterator[OpenMemoryRow]:
    """Yield the memories in the database of OpenMemory, oldest first. Raises InvalidInput."""
    tables = ("memories", "users", "apps", "categories", "memory_categories")
    try:
        with closing(sqlite3.connect(f"{file.absolute().as_uri()}?mode=ro", uri=True)) as opened:
            require_tables(opened, *tables)
            for row in opened.execute(_OPEN_MEMORY):
                yield OpenMemoryRow(*map(str, row))
    except sqlite3.Error as error:
        raise InvalidInput(f"{file} is no database of OpenMemory: {error}.") from error


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
