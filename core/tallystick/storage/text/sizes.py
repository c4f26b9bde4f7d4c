"""Sizes: where the bytes of a tally are, by kind, with the indexes of each table."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from sqlalchemy import Connection, func, select, text
from sqlalchemy.exc import OperationalError

from tallystick.storage.engine import tables
from tallystick.storage.engine.dialects import is_postgres, unpack
from tallystick.storage.index.segment_files import FOLDER

_PAGES = text("SELECT name, sum(pgsize) AS bytes FROM dbstat GROUP BY name")
_TREES = text("SELECT name, tbl_name FROM sqlite_schema")
_POSTGRES = text(
    "SELECT c.relname AS name, pg_total_relation_size(c.oid) AS bytes FROM pg_class AS c "
    "JOIN pg_namespace AS n ON n.oid = c.relnamespace "
    "WHERE n.nspname = current_schema() AND c.relkind = 'r'"
)


def bytes_by_table(connection: Connection) -> dict[str, int] | None:
    """Return the bytes of each table with its indexes; None where this build of SQLite does not
    tell them.
    """
    if is_postgres(connection):
        return {row.name: int(row.bytes) for row in connection.execute(_POSTGRES)}
    try:
        pages = connection.execute(_PAGES).all()
    except OperationalError:
        return None
    table_of = {row.name: row.tbl_name for row in connection.execute(_TREES)}
    sizes: Counter[str] = Counter()
    for row in pages:
        sizes[table_of.get(row.name, row.name)] += int(row.bytes)
    return dict(sizes)


def bytes_of_text(connection: Connection) -> int:
    """Return the bytes of what arrived to be remembered, each text of a scope once."""
    parts, sources = tables.parts, tables.sources
    body = unpack(connection, parts.c.body)
    size = func.octet_length if is_postgres(connection) else func.length
    is_source = (
        select(sources.c.id)
        .where(sources.c.scope_id == parts.c.scope_id, sources.c.content_hash == parts.c.key)
        .exists()
    )
    return int(connection.execute(select(func.sum(size(body))).where(is_source)).scalar() or 0)


def bytes_of_files(folder: Path) -> Counter[str]:
    """Return the bytes of an embedded tally's files by kind: `database`, `log of writes`, `Chroma`,
    `segments of recall`, `other files`.
    """
    sizes: Counter[str] = Counter()
    for file in folder.rglob("*"):
        if file.is_symlink() or not file.is_file():
            continue
        place = file.relative_to(folder).parts
        if place[0] == "chroma":
            kind = "Chroma"
        elif place[0] == FOLDER:
            kind = "segments of recall"
        elif file.name == "tally.db":
            kind = "database"
        else:
            kind = "log of writes" if file.name.startswith("tally.db-") else "other files"
        sizes[kind] += file.stat().st_size
    return sizes
