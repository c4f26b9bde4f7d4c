"""Whole tallies: a copy of a file that others go on writing, all that a database has into a folder,
and the rows of an archive into a new database, which is at its place only when all of it was
found to hold.
"""

from __future__ import annotations

import errno
import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from sqlalchemy import URL, Connection, Table, and_, func, insert, inspect, select, text, true
from sqlalchemy.sql.elements import ColumnElement

from tallystick.errors import CorruptTally, StateConflict, TallyNotFound
from tallystick.storage.engine import migrate
from tallystick.storage.engine.database import Database
from tallystick.storage.engine.liveness import LEASES
from tallystick.storage.engine.prepared import driver_errors
from tallystick.storage.engine.private_files import open_private
from tallystick.storage.engine.writes import TALLY, Writes
from tallystick.storage.move import archives
from tallystick.storage.move.archives import DATABASE, Archive, Progress
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


_LONGEST_NAME = 50
"""Characters of a schema that the name of the one beside it begins with: PostgreSQL takes 63."""


def back_up(
    database: Database, folder: Path, progress: Progress, *, missing: list[str]
) -> dict[str, Any]:
    """Write all that a database of any schema has into `folder`: a copy of the file of SQLite, the
    rows of PostgreSQL. Return what the manifest has of it. Names of objects that are not there are
    added to `missing`. Raises CorruptTally, StorageError, OSError.
    """
    if database.is_postgres:
        with database.read() as connection:
            return write_whole(connection, folder, progress, missing=missing)
    file = folder / DATABASE
    copy_database(database, file, progress, missing=missing)
    copy = Database(URL.create("sqlite", database=str(file)))
    with closing(copy), copy.read() as connection:
        facts, selected = _facts(connection)
        return {**facts, "rows": archives.count_rows(connection, selected)}


def write_whole(
    connection: Connection, folder: Path, progress: Progress, *, missing: list[str]
) -> dict[str, Any]:
    """Write all rows of a database into `folder`, and return what the manifest has of them. Names
    of objects that are not there are added to `missing`. Raises StorageError, OSError.
    """
    facts, selected = _facts(connection)
    written = archives.write_rows(connection, folder, selected, progress, missing=missing)
    counters = archives.counters_of(connection, [table for table, _ in selected])
    return {**facts, **written, "counters": counters}


def is_empty(database: Database) -> bool:
    """Return True if a database of any schema has no row but settings."""
    with database.read() as connection:
        _, selected = _facts(connection)
        return not any(
            connection.execute(select(1).select_from(table).limit(1)).first()
            for table, _ in selected
            if table.name != "settings"
        )


def _facts(connection: Connection) -> tuple[dict[str, Any], archives.Selected]:
    """Return the schema of a database, and its tables with the rows that a backup has."""
    schema = migrate.revision_of(connection)
    if schema is None:
        raise TallyNotFound("There is no tally in this database.")
    selected = [
        (table, _kept_rows(table)) for table in archives.declared_tables(connection, schema)
    ]
    return {"database": connection.dialect.name, "schema": schema}, selected


def _kept_rows(table: Table) -> ColumnElement[bool]:
    if table.name != "settings":
        return true()
    names = table.c["name"]
    passing = (objects.OWN_SETTINGS, "chroma.%", f"{LEASES}%")
    return and_(*(names.not_like(each) for each in passing))


def fill(url: URL, schema: str, archive: Archive, progress: Progress) -> None:
    """Make the tables of an archive's schema in an empty database, with its rows, their numbers
    included; on PostgreSQL in a new schema. Raises CorruptTally, UnreleasedTally.
    """
    database = Database(url, schema=schema)
    with closing(database), database.migrating() as tx:
        if database.is_postgres:
            tx.execute(text(f"CREATE SCHEMA {_quote(schema)}"))
        migrate.create_schema(tx, archive.schema)
        new_tables = archives.declared_tables(tx, archive.schema)
        unknown = sorted(set(archive.rows) - {table.name for table in new_tables})
        if unknown:
            raise CorruptTally(f"The backup has a table that its schema has not: {unknown[0]!a}.")
        done, total = 0, sum(archive.rows.values())
        for table in new_tables:
            for page in archive.pages(table):
                tx.execute(insert(table), page)
                done += len(page)
                progress(done, total)
            if archives.has_counter(tx, table):
                (key,) = table.primary_key.columns
                last = archive.manifest["counters"].get(table.name, 1)
                highest = tx.execute(select(func.max(key))).scalar() or 1
                archives.move_counter(tx, table, max(highest, last))


@contextmanager
def schema_beside(url: URL, schema: str) -> Iterator[str]:
    """Yield the name of a schema that is not there; at the end the tables that were made in it move
    to `schema`, in one transaction, and what else is there stays. Where something fails nothing is
    left; what was left of one that was cut off goes with the next one. Raises StateConflict where
    `schema` has tables.
    """
    beside = f"{schema[:_LONGEST_NAME]}.restoring"
    place = Database(url, schema=schema)
    try:
        with place.migrating() as connection:
            _require_empty(connection, schema)
            connection.execute(text(f"DROP SCHEMA IF EXISTS {_quote(beside)} CASCADE"))
        try:
            yield beside
            with place.migrating() as connection:
                _require_empty(connection, schema)
                connection.execute(text(f"CREATE SCHEMA IF NOT EXISTS {_quote(schema)}"))
                for table in inspect(connection).get_table_names(schema=beside):
                    source = f"{_quote(beside)}.{_quote(table)}"
                    connection.execute(text(f"ALTER TABLE {source} SET SCHEMA {_quote(schema)}"))
                connection.execute(text(f"DROP SCHEMA {_quote(beside)}"))
        except BaseException:
            with place.migrating() as connection:
                connection.execute(text(f"DROP SCHEMA IF EXISTS {_quote(beside)} CASCADE"))
            raise
    finally:
        place.close()


def _require_empty(connection: Connection, schema: str) -> None:
    if inspect(connection).get_table_names(schema=schema):
        raise StateConflict(
            schema,
            state="in use",
            reason="it has tables",
            hint="Restore into a database that has no tally yet.",
            what="The schema",
        )


def _quote(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
