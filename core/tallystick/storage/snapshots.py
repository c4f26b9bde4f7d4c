"""Snapshots: every row of a database as it was at one moment, in files, while others go on writing.

On SQLite it is the file of the database, by SQLite's own online copy inside one read. On PostgreSQL
it is a file of COPY lines for each table, compressed, all of one REPEATABLE READ snapshot: it needs
no `pg_dump`, and a newer server reads it. The tables are found in the database, not taken from this
release: a snapshot of an older schema is as good.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import re
import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, BinaryIO

import zstandard
from sqlalchemy import URL, Connection, create_engine, inspect, text

from tallystick.errors import CorruptTally, StateConflict, StorageError
from tallystick.storage import migrate, objects, tables
from tallystick.storage.database import Database
from tallystick.storage.database_errors import translated_errors
from tallystick.storage.dialects import prepare_postgres
from tallystick.storage.prepared import driver_errors
from tallystick.storage.private_files import make_private_folder, open_private

DATABASE = "tally.db"
HEADS = "heads.jsonl"
"""One line a chain: its name, its number of entries and the digest of the last one."""
_TABLE = re.compile(r"[a-z_]{1,63}\.copy\.zst")
_OBJECT = re.compile(r"object-[0-9a-f]{32}")
_REVISIONS = "alembic_version"
_PAGES = 2_000
"""Pages of SQLite that are copied between two reports of progress."""
_CHUNK = 1 << 20
_WHOLE = ("the copy of the database is whole",)
_WAIT_MS = 10_000
_LONGEST_NAME = 50
"""Characters of a schema that the name of the one beside it begins with: PostgreSQL takes 63."""

Progress = Callable[[int, int], None]
Head = tuple[str, int, str]
"""A chain: its name, its number of entries and the digest of the last one."""
Check = Callable[[Mapping[str, int], Sequence[Head]], None]
"""Called with the rows of each table and with the chains, by name, before they are kept."""


@dataclass(frozen=True)
class Snapshot:
    """What was written: the schema of the rows, how many each table has, and what restores them."""

    database: str
    schema: str
    counts: Mapping[str, int]
    columns: Mapping[str, Sequence[str]]
    """The columns of each table in the order of its file; empty on SQLite."""
    sequences: Mapping[str, int]
    """The last number that each table's counter gave; empty on SQLite, whose file has them."""
    tally_id: str | None
    objects: tuple[objects.Reference, ...] = ()
    """The bodies that are outside of the database; their files are beside its own."""
    checked: tuple[str, ...] = ()
    """What was found to hold of the copy."""


def is_of_a_server(database: str) -> bool:
    """Return True for a snapshot of a database that is a server."""
    return database == "postgresql"


def is_member(name: str) -> bool:
    """Return True for the name of a file that `write` makes."""
    if _OBJECT.fullmatch(name) is not None:
        return True
    return name in {DATABASE, HEADS} or _TABLE.fullmatch(name) is not None


def object_file(folder: Path, reference: objects.Reference) -> Path:
    """Return the file of a snapshot that has a body from outside of the database."""
    return folder / f"object-{reference.name.rsplit('/', 1)[1]}"


def object_body(folder: Path, reference: objects.Reference) -> bytes | None:
    """Return the body of a reference as a snapshot has it; None for one that was left out. Raises
    OSError.
    """
    file = object_file(folder, reference)
    return file.read_bytes() if file.exists() else None


def write(database: Database, folder: Path, progress: Progress) -> Snapshot:
    """Write a snapshot into `folder`, which exists; each file is on disk when this returns.

    `progress` is called with the pages or tables that are copied and how many there are. Raises
    StorageError, CorruptTally, OSError.
    """
    if database.is_postgres:
        snapshot = _write_tables(database, folder, progress)
    else:
        snapshot = _write_file(database, folder, progress)
    left_out: list[str] = []
    for reference in snapshot.objects:
        body = _body_of(database, reference)
        if body is None:
            left_out.append(reference.name)
            continue
        with open_private(object_file(folder, reference)) as file:
            file.write(body)
            _flush(file)
    if left_out:
        text = (
            f"{len(left_out)} bodies outside of the database are not there, such as {left_out[0]}: "
            "they were erased meanwhile, or lost, and are left out"
        )
        return replace(snapshot, checked=(*snapshot.checked, text))
    return snapshot


def _body_of(database: Database, reference: objects.Reference) -> bytes | None:
    """Return a body of a snapshot; None for one that is not there: erased since, or lost. Raises
    CorruptTally for one that was altered, StorageError.
    """
    blobs = database.attached.required()
    if blobs.get(reference.name) is None:
        return None
    return objects.read(blobs, reference)


# SQLite


def _write_file(database: Database, folder: Path, progress: Progress) -> Snapshot:
    file = folder / DATABASE
    open_private(file).close()
    with (
        database.read() as connection,
        closing(sqlite3.connect(file)) as target,
        driver_errors(connection, "backup") as source,
    ):
        # The first read fixes the snapshot; a copy in steps would otherwise begin anew at each
        # commit of another process.
        source.execute("SELECT 1 FROM sqlite_master").fetchone()
        with _own_errors():
            source.backup(
                target,
                pages=_PAGES,
                progress=lambda _status, left, total: progress(total - left, total),
            )
        # One file, without a log beside it.
        target.execute("PRAGMA journal_mode=DELETE")
        moved = tuple(objects.referenced(connection))
    _to_disk(file)
    with _read_only(file) as copy:
        problems = [row[0] for row in copy.execute("PRAGMA integrity_check(5)")]
        if problems != ["ok"]:
            raise CorruptTally(f"The database is damaged: {problems[0]}. Run `tally doctor`.")
        counts = _counted(copy)
        (schema,) = copy.execute(f"SELECT version_num FROM {_REVISIONS}").fetchone()
        _write_heads(folder, copy.execute(_HEADS))
        row = copy.execute(_TALLY_ID).fetchone()
    return Snapshot(
        "sqlite", schema, counts, {}, {}, None if row is None else row[0], moved, _WHOLE
    )


@contextmanager
def _own_errors() -> Iterator[None]:
    """Tell a full disk of the copy from one of the tally. Raises OSError."""
    try:
        yield
    except sqlite3.OperationalError as error:
        if error.sqlite_errorcode == sqlite3.SQLITE_FULL:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)) from error
        raise


_HEADS = "SELECT name, count, head FROM streams ORDER BY name"
_TALLY_ID = "SELECT value FROM settings WHERE name = 'tally_id'"


def _counted(copy: sqlite3.Connection) -> dict[str, int]:
    found = copy.execute("SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name")
    names = [name for (name,) in found if not name.startswith("sqlite_") and name != _REVISIONS]
    return {name: copy.execute(f'SELECT COUNT(*) FROM "{name}"').fetchone()[0] for name in names}


@contextmanager
def _read_only(file: Path) -> Iterator[sqlite3.Connection]:
    with closing(
        sqlite3.connect(f"{file.absolute().as_uri()}?mode=ro&immutable=1", uri=True)
    ) as connection:
        yield connection


def copy_back(backup: Path, folder: Path, check: Check) -> None:
    """Copy the file of a snapshot into `folder`, which is made; `check` is called with what it
    has. Raises OSError.
    """
    make_private_folder(folder)
    file = folder / DATABASE
    with (backup / DATABASE).open("rb") as source, open_private(file) as target:
        while chunk := source.read(_CHUNK):
            target.write(chunk)
        _flush(target)
    with _read_only(file) as copy:
        check(_counted(copy), [tuple(row) for row in copy.execute(_HEADS)])


# PostgreSQL


def _write_tables(database: Database, folder: Path, progress: Progress) -> Snapshot:
    with database.read() as connection:
        names = _tables_in_order(connection)
        columns = {name: _columns(connection, name) for name in names}
        for done, name in enumerate(names):
            progress(done, len(names))
            query = f"COPY {_quoted(name)} ({_listed(columns[name])}) TO STDOUT"
            with (
                open_private(folder / f"{name}.copy.zst") as file,
                zstandard.ZstdCompressor().stream_writer(file, closefd=False) as packed,
                driver_errors(connection, query) as driver,
                driver.cursor() as cursor,
                cursor.copy(query) as lines,
            ):
                for chunk in lines:
                    packed.write(chunk)
            _to_disk(folder / f"{name}.copy.zst")
        counts = row_counts(connection)
        schema = migrate.revision_of(connection)
        _write_heads(folder, _stored_heads(connection))
        tally_id = connection.execute(text(_TALLY_ID)).scalar()
        sequences = _sequences(connection, names)
        moved = tuple(objects.referenced(connection))
    progress(len(names), len(names))
    if schema is None:
        raise StorageError("The database has no tally in this schema.")
    return Snapshot("postgresql", schema, counts, columns, sequences, tally_id, moved)


def _tables_in_order(connection: Connection) -> list[str]:
    """Return the tables of the database, each behind those that it refers to."""
    ordered = inspect(connection).get_sorted_table_and_fkc_names()
    return [name for name, _ in ordered if name is not None and _is_kept(name)]


def _is_kept(table: str) -> bool:
    """Return False for the schema's own table, which no snapshot has."""
    return table != _REVISIONS


def _columns(connection: Connection, table: str) -> list[str]:
    return [column["name"] for column in inspect(connection).get_columns(table)]


def _counters(names: Sequence[str]) -> list[tuple[str, str]]:
    """Return the tables whose key is a counter, with the key."""
    found = [tables.metadata.tables[name] for name in names if name in tables.metadata.tables]
    return [
        (table.name, next(iter(table.primary_key.columns)).name)
        for table in found
        if table.autoincrement_column is not None
    ]


def _sequences(connection: Connection, names: Sequence[str]) -> dict[str, int]:
    last: dict[str, int] = {}
    for table, key in _counters(names):
        counter = connection.execute(_COUNTER, {"table": _quoted(table), "key": key}).scalar()
        if counter is None:
            continue
        query = text(f"SELECT last_value FROM {counter} WHERE is_called")
        value = connection.execute(query).scalar()
        if value is not None:
            last[table] = int(value)
    return last


_COUNTER = text("SELECT pg_get_serial_sequence(:table, :key)")


def copy_in(
    url: URL,
    schema: str,
    backup: Path,
    snapshot: Snapshot,
    check: Check,
    progress: Progress,
) -> str:
    """Make a schema beside another one, with the rows of a snapshot, and return its name; `check`
    is called with what it has. Nobody opens a tally there: `move_in` brings it to its place. One
    that was cut off before is removed. Raises StateConflict where there are tables, CorruptTally.
    """
    beside = f"{schema[:_LONGEST_NAME]}.restoring"
    with _alone(url, schema) as connection:
        _require_empty(connection, schema)
    with _alone(url, beside) as connection:
        connection.execute(text(f"DROP SCHEMA IF EXISTS {_quoted(beside)} CASCADE"))
        connection.execute(text(f"CREATE SCHEMA {_quoted(beside)}"))
        migrate.create(connection, snapshot.schema)
        _fill(connection, backup, snapshot, progress)
        check(row_counts(connection), _stored_heads(connection))
    return beside


def move_in(url: URL, beside: str, schema: str) -> None:
    """Move the tables that `copy_in` made into their schema, in one transaction; what else is in
    that schema stays. Raises StateConflict where it has tables by now.
    """
    with _alone(url, schema) as connection:
        _require_empty(connection, schema)
        connection.execute(text(f"CREATE SCHEMA IF NOT EXISTS {_quoted(schema)}"))
        for table in inspect(connection).get_table_names(schema=beside):
            place = f"{_quoted(beside)}.{_quoted(table)}"
            connection.execute(text(f"ALTER TABLE {place} SET SCHEMA {_quoted(schema)}"))
        connection.execute(text(f"DROP SCHEMA {_quoted(beside)}"))


def remove(url: URL, beside: str) -> None:
    """Remove a schema that `copy_in` made."""
    with _alone(url, beside) as connection:
        connection.execute(text(f"DROP SCHEMA IF EXISTS {_quoted(beside)} CASCADE"))


def _require_empty(connection: Connection, schema: str) -> None:
    if inspect(connection).get_table_names(schema=schema):
        raise StateConflict(
            schema,
            state="in use",
            reason="it has tables",
            hint="Restore into a database that has no tally yet.",
            what="The schema",
        )


@contextmanager
def _alone(url: URL, schema: str) -> Iterator[Connection]:
    """Yield a transaction that holds up nobody: nobody knows the schema yet."""
    engine = create_engine(url)
    prepare_postgres(engine, schema, busy_timeout_ms=_WAIT_MS)
    try:
        with translated_errors(), engine.begin() as connection:
            yield connection
    finally:
        engine.dispose()


def _fill(connection: Connection, folder: Path, snapshot: Snapshot, progress: Progress) -> None:
    columns = snapshot.columns
    names = _tables_in_order(connection)
    unknown = sorted(set(columns) - set(names))
    if unknown:
        raise CorruptTally(f"The backup has a table that its schema has not: {unknown[0]!a}.")
    for done, name in enumerate(name for name in names if name in columns):
        progress(done, len(columns))
        if not set(columns[name]) <= set(_columns(connection, name)):
            raise CorruptTally(f"The backup has columns of {name} that its schema has not.")
        query = f"COPY {_quoted(name)} ({_listed(columns[name])}) FROM STDIN"
        with (
            (folder / f"{name}.copy.zst").open("rb") as file,
            zstandard.ZstdDecompressor().stream_reader(file) as unpacked,
            driver_errors(connection, query) as driver,
            driver.cursor() as cursor,
            cursor.copy(query) as lines,
        ):
            while chunk := unpacked.read(_CHUNK):
                lines.write(chunk)
    for table, key in _counters(names):
        if table in snapshot.sequences:
            place = {"table": _quoted(table), "key": key, "last": snapshot.sequences[table]}
            connection.execute(_MOVE, place)
    progress(len(columns), len(columns))


_MOVE = text("SELECT setval(pg_get_serial_sequence(:table, :key), :last)")


def row_counts(connection: Connection) -> dict[str, int]:
    """Return the number of rows of every table."""
    names = sorted(filter(_is_kept, inspect(connection).get_table_names()))
    return {
        name: int(connection.execute(text(f"SELECT COUNT(*) FROM {_quoted(name)}")).scalar_one())
        for name in names
    }


def _stored_heads(connection: Connection) -> list[Head]:
    return [(row[0], int(row[1]), row[2]) for row in connection.execute(text(_HEADS))]


# Heads and files


def _write_heads(folder: Path, rows: Any) -> None:
    with open_private(folder / HEADS) as file:
        for name, count, head in rows:
            file.write(json.dumps([name, count, head]).encode() + b"\n")
        _flush(file)


def heads_in(folder: Path) -> list[Head]:
    """Return the chains of a snapshot by name. Raises OSError, CorruptTally."""
    try:
        with (folder / HEADS).open("rb") as file:
            lines = [json.loads(line) for line in file]
        return [(name, int(count), head) for name, count, head in lines]
    except (TypeError, ValueError) as error:
        raise CorruptTally(f"{HEADS} of the backup is damaged.") from error


def file_digest(file: Path) -> tuple[str, int]:
    """Return the SHA-256 and the size of a file. Raises OSError."""
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest(), file.stat().st_size


def _to_disk(file: Path) -> None:
    with file.open("rb+") as stream:
        os.fsync(stream.fileno())


def _flush(file: BinaryIO) -> None:
    file.flush()
    os.fsync(file.fileno())


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _listed(names: Sequence[str]) -> str:
    return ", ".join(_quoted(name) for name in names)
