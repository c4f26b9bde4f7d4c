"""Archives: rows as JSON lines, a file for each table, long bytes as blobs, and a manifest that has
the digest of each.

It is the one format in which rows leave a database: the export of scopes, the backup of a
PostgreSQL tally, and the way from one kind of database to the other. All rows of an archive are of
one snapshot. The copy of an SQLite file has a manifest of the same form.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
import re
import shutil
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import partial
from io import BufferedReader
from pathlib import Path
from typing import Any, BinaryIO, Literal

from sqlalchemy import Column, Connection, MetaData, Table, func, select, text
from sqlalchemy.sql.elements import ColumnElement

from tallystick.errors import CorruptTally, InvalidInput
from tallystick.records import canonical_json, is_storable, strict_json, text_digest
from tallystick.spool import sync_folder
from tallystick.storage.engine import migrate, tables, texts
from tallystick.storage.engine.dialects import is_postgres
from tallystick.storage.engine.private_files import (
    make_private_folder,
    open_private,
    open_regular,
)
from tallystick.storage.rows import objects

FORMAT = 3
"""Raised when the form of an archive changes."""
DATABASE = "tally.db"
"""The file of an SQLite tally, in a backup of it as in its folder."""
_MANIFEST = "manifest.json"
_REVISIONS = "alembic_version"
_INLINE = 4_096
"""Bytes up to which a binary value is stored in its line; longer ones are blobs of their own."""
_PAGE = 500
_CHUNK = 1 << 20
_MEMBER = re.compile(r"[a-z_]{1,63}\.jsonl|tally\.db")
_SHA256 = re.compile(r"[0-9a-f]{64}")
_SHAPE: Mapping[str, type] = {
    "blobs": dict,
    "counters": dict,
    "database": str,
    "files": dict,
    "rows": dict,
    "schema": str,
    "scopes": list,
    "states": dict,
    "version": str,
    "at": int,
}

Kind = Literal["export", "backup"]
Progress = Callable[[int, int], None]
"""Called with the rows or pages that were read or written, and how many there are."""
Selected = Sequence[tuple[Table, ColumnElement[bool]]]
"""Tables, each with the condition for the rows that are meant."""


def silent(done: int, total: int) -> None:
    """Tell nobody how far the work is."""


def declared_tables(connection: Connection, revision: str) -> list[Table]:
    """Return the tables of a schema that archives have, each behind those that it refers to. Those
    of an earlier schema are found in the database.
    """
    declared: MetaData = tables.metadata
    if revision != migrate.HEAD:
        declared = MetaData()
        declared.reflect(connection, only=_is_table_of_rows)
    return texts.tables_that_leave(declared, "export", "backup")


def _is_table_of_rows(name: str, _: MetaData) -> bool:
    return name != _REVISIONS


def write_rows(
    connection: Connection,
    folder: Path | None,
    selected: Selected,
    progress: Progress,
    *,
    missing: list[str] | None = None,
) -> dict[str, Any]:
    """Write the selected rows into `folder`, and return what the manifest has of them. Without a
    folder they are only counted. Names of objects that are not there are added to `missing`; where
    that is None, they raise CorruptTally. Raises StorageError, OSError.
    """
    counts = count_rows(connection, selected)
    done, total = 0, sum(counts.values())
    attached = objects.attached_to(connection)
    blobs: dict[str, int] = {}
    encode = partial(_encode_bytes, folder=folder, blobs=blobs)
    encoder = json.JSONEncoder(separators=(",", ":"), default=encode)
    if folder is not None:
        make_private_folder(folder / "blobs")
    for table, rows in selected:
        with open_private(Path(os.devnull if folder is None else folder / _file_of(table))) as file:
            for row in _read(connection, table, rows):
                if table.name == tables.parts.name:
                    body = objects.self_contained(attached, row["body"], missing=missing)
                    row["body"] = body
                file.write(encoder.encode(row).encode() + b"\n")
                done += 1
                if done % _PAGE == 0:
                    progress(done, total)
            if folder is not None:
                _to_disk(file)
    if folder is not None:
        sync_folder(folder / "blobs")
    progress(total, total)
    blobs = dict(sorted(blobs.items()))
    return {"database": connection.dialect.name, "rows": counts, "blobs": blobs}


def count_rows(connection: Connection, selected: Selected) -> dict[str, int]:
    """Return the number of selected rows of each table."""
    return {
        table.name: int(
            connection.execute(select(func.count()).select_from(table).where(rows)).scalar_one()
        )
        for table, rows in selected
    }


def _read(
    connection: Connection, table: Table, rows: ColumnElement[bool]
) -> Iterator[dict[str, Any]]:
    query = select(table).where(rows).order_by(*table.primary_key.columns)
    # In pieces: PostgreSQL would hand over a whole table at once.
    for row in connection.execute(query.execution_options(yield_per=_PAGE)):
        yield dict(row._mapping)


def _encode_bytes(
    value: bytes | memoryview, *, folder: Path | None, blobs: dict[str, int]
) -> dict[str, str]:
    """Return bytes as they are in a line; long ones become a blob, which is written."""
    body = bytes(value)
    if len(body) <= _INLINE:
        return {"base64": base64.b64encode(body).decode()}
    key = hashlib.sha256(body).hexdigest()
    if key not in blobs and folder is not None:
        with open_private(folder / "blobs" / key) as file:
            file.write(body)
            _to_disk(file)
    blobs[key] = len(body)
    return {"blob": key}


def write_manifest(folder: Path, kind: Kind, facts: Mapping[str, Any]) -> dict[str, Any]:
    """Write the manifest of what is in `folder`, with the digest of every file, and return it."""
    files: dict[str, Any] = {}
    for member in sorted(folder.iterdir()):
        if member.is_file():
            with member.open("rb") as stream:
                sha256 = hashlib.file_digest(stream, "sha256").hexdigest()
            files[member.name] = {"sha256": sha256, "size": member.stat().st_size}
    empty: dict[str, Any] = {"blobs": {}, "counters": {}, "scopes": [], "states": {}}
    manifest = {"format": FORMAT, "kind": kind, **empty, **facts, "files": files}
    manifest["digest"] = text_digest(kind, canonical_json(manifest))
    with open_private(folder / _MANIFEST) as file:
        file.write(json.dumps(manifest, indent=2).encode() + b"\n")
        _to_disk(file)
    return manifest


def _to_disk(file: BinaryIO) -> None:
    file.flush()
    os.fsync(file.fileno())


def _file_of(table: Table) -> str:
    return f"{table.name}.jsonl"


class Archive:
    """An archive as it is read: the files that its manifest names, and no other file of the
    machine.

    A name is one that a release writes, or the digest of a blob. A member is a regular file inside
    of the folder: a link could lead out of it, and a pipe would never end.
    """

    def __init__(self, folder: Path, kind: Kind) -> None:
        """Read the manifest of `folder`. Raises InvalidInput, NewerTally, UnreleasedTally,
        CorruptTally.
        """
        self.folder, self.kind = folder, kind
        self.manifest = self._read_manifest()
        self.rows: dict[str, int] = self.manifest["rows"]
        self._sizes: dict[str, int] = {}

    @property
    def schema(self) -> str:
        """The schema of its rows."""
        schema: str = self.manifest["schema"]
        return schema

    def check(self, names: Collection[str]) -> None:
        """Compare every file with its digest before anything is written. One that is none of these
        `names`, of tables or of the copy of a database, is refused. Raises CorruptTally.
        """
        for name, entry in self.manifest["files"].items():
            if name.removesuffix(".jsonl") not in names or not _MEMBER.fullmatch(name):
                raise self._corrupt(f"names {name!a}, which no release writes")
            self._require(name, entry["sha256"])
        for key in self.manifest["blobs"]:
            if not _SHA256.fullmatch(key):
                raise self._corrupt("names a blob by something that is no digest")
            self._require(f"blobs/{key}", key)

    def pages(self, table: Table) -> Iterator[list[dict[str, Any]]]:
        """Yield the checked rows of a table, some at a time. Raises CorruptTally."""
        name, count = _file_of(table), 0
        page: list[dict[str, Any]] = []
        if name in self.manifest["files"]:
            with self.open(name) as stream:
                for line in stream:
                    page.append(self._row(table, line))
                    count += 1
                    if len(page) == _PAGE:
                        yield page
                        page = []
        if count != self.rows.get(table.name, 0):
            raise CorruptTally(f"{name} of the {self.kind} has not the lines it should have.")
        if page:
            yield page

    def open(self, name: str) -> BufferedReader:
        """Open a member. Raises CorruptTally."""
        try:
            return open_regular(self.folder, name)
        except OSError as error:
            raise self._corrupt(f"lacks {name}, or it is no file of its own") from error

    def copy_out(self, name: str, target: Path) -> None:
        """Copy a member to a new file, which is on disk when this returns. Raises CorruptTally,
        OSError.
        """
        with self.open(name) as stream, open_private(target) as file:
            shutil.copyfileobj(stream, file, _CHUNK)
            _to_disk(file)

    def _require(self, name: str, sha256: str) -> None:
        with self.open(name) as stream:
            digest = hashlib.file_digest(stream, "sha256").hexdigest()
        if digest != sha256:
            raise CorruptTally(
                f"{name} of the {self.kind} does not match its digest. Nothing was changed."
            )

    def _row(self, table: Table, line: bytes) -> dict[str, Any]:
        """Return a row as it is stored: all columns of its table, each with a value of its type."""
        try:
            row = strict_json(line)
        except ValueError as error:
            raise self._corrupt(f"has a damaged line of {table.name}") from error
        if not isinstance(row, dict) or row.keys() != set(table.columns.keys()):
            raise self._corrupt(f"has a row of {table.name} with other columns")
        values = {column.name: self._value(column, row[column.name]) for column in table.columns}
        if table.name == tables.parts.name and objects.is_reference(values["body"]):
            raise self._corrupt("has a part that is elsewhere")
        return values

    def _value(self, column: Column[Any], value: Any) -> Any:
        if value is None and column.nullable:
            return None
        kind = column.type.python_type
        if kind is bytes:
            return self._binary(value)
        if kind is bool:
            fits = isinstance(value, bool)
        elif kind is int:
            fits = type(value) is int and -(2**63) <= value < 2**63
        else:
            fits = isinstance(value, str) and is_storable(value)
        if not fits:
            raise self._corrupt(f"has a value of {column} that no release writes")
        return value

    def _binary(self, value: Any) -> bytes:
        """Return the bytes of a column: those in the line, or those of a blob that the manifest
        names.
        """
        fields = value if isinstance(value, dict) and len(value) == 1 else {}
        key, encoded = fields.get("blob"), fields.get("base64", "-")
        if isinstance(key, str) and key in self.manifest["blobs"]:
            with self.open(f"blobs/{key}") as stream:
                return stream.read()
        try:
            return base64.b64decode(encoded, validate=True)
        except (TypeError, ValueError) as error:
            raise self._corrupt("names bytes that it does not have") from error

    def _read_manifest(self) -> dict[str, Any]:
        not_one = f"{self.folder} is no {self.kind}"
        try:
            with open_regular(self.folder, _MANIFEST) as stream:
                manifest = strict_json(stream.read())
        except OSError as error:
            raise InvalidInput(f"{not_one}: its {_MANIFEST} cannot be read.") from error
        except ValueError as error:
            raise CorruptTally(f"The {_MANIFEST} of {self.folder} is damaged.") from error
        if not isinstance(manifest, dict) or not isinstance(manifest.get("kind"), str):
            raise InvalidInput(f"{not_one}: its {_MANIFEST} says nothing of one.")
        if manifest["kind"] != self.kind:
            verb = "restore" if self.kind == "export" else "import"
            raise InvalidInput(f"{not_one}. `tally {verb}` reads what is there.")
        if manifest.get("format") != FORMAT:
            raise InvalidInput(
                f"{self.folder} has format {manifest.get('format')!a}; this release reads {FORMAT}."
            )
        unsigned = {key: value for key, value in manifest.items() if key != "digest"}
        try:
            digest = text_digest(self.kind, canonical_json(unsigned))
        except InvalidInput as error:
            raise self._corrupt(f"has a damaged {_MANIFEST}") from error
        if manifest.get("digest") != digest:
            raise self._corrupt(f"has a {_MANIFEST} that does not match its digest")
        if not _is_shaped(manifest):
            raise self._corrupt(f"has a damaged {_MANIFEST}")
        if manifest["schema"] != migrate.HEAD:
            migrate.refuse_unknown(manifest["schema"])
        return manifest

    def _corrupt(self, problem: str) -> CorruptTally:
        return CorruptTally(f"The {self.kind} {problem}.")


def _is_shaped(manifest: Mapping[str, Any]) -> bool:
    """Return True if the parts of a manifest have the types that are written."""
    if any(type(manifest.get(name)) is not kind for name, kind in _SHAPE.items()):
        return False
    counted = (manifest[name].values() for name in ("blobs", "counters", "rows", "states"))
    return (
        all(type(count) is int and count >= 0 for counts in counted for count in counts)
        and all(isinstance(name, str) for name in manifest["scopes"])
        and all(
            isinstance(entry, dict)
            and isinstance(entry.get("sha256"), str)
            and type(entry.get("size")) is int
            for entry in manifest["files"].values()
        )
    )


def counters_of(connection: Connection, chosen: Sequence[Table]) -> dict[str, int]:
    """Return the last number that the counter of each table's key gave; none of one that gave no
    number yet.
    """
    last: dict[str, int] = {}
    for table in chosen:
        if not has_counter(connection, table):
            continue
        query = _LAST_SQLITE
        if is_postgres(connection):
            counter = connection.execute(_COUNTER, _place(table)).scalar_one()
            query = text(f"SELECT last_value FROM {counter} WHERE is_called")
        number = connection.execute(query, {"name": table.name}).scalar()
        if number is not None:
            last[table.name] = int(number)
    return last


def move_counter(tx: Connection, table: Table, highest: int) -> None:
    """Let the counter of a table's key continue behind a number, if it is not there yet. No other
    writer may be under way.
    """
    values = {**_place(table), "highest": highest}
    if is_postgres(tx):
        tx.execute(_MOVE, values)
    elif not tx.execute(_MOVE_SQLITE, values).rowcount:
        tx.execute(_BEGIN_SQLITE, values)


def has_counter(connection: Connection, table: Table) -> bool:
    """Return True if the database counts the keys of a table. SQLite gives those of others by their
    rows.
    """
    if is_postgres(connection):
        return connection.execute(_COUNTER, _place(table)).scalar() is not None
    return bool(table.dialect_options["sqlite"]["autoincrement"])


def _place(table: Table) -> dict[str, str]:
    return {"name": table.name, "key": next(iter(table.primary_key.columns)).name}


_OWN = "pg_get_serial_sequence(quote_ident(:name), :key)"
_COUNTER = text(f"SELECT {_OWN}")
_MOVE = text(f"SELECT setval({_OWN}, GREATEST(CAST(:highest AS BIGINT), nextval({_OWN})))")
_LAST_SQLITE = text("SELECT seq FROM sqlite_sequence WHERE name = :name")
_MOVE_SQLITE = text("UPDATE sqlite_sequence SET seq = MAX(seq, :highest) WHERE name = :name")
_BEGIN_SQLITE = text("INSERT INTO sqlite_sequence (name, seq) VALUES (:name, :highest)")
