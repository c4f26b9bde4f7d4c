"""Export and import: whole scopes as JSON lines and blobs, each named with its digest in a
manifest.

Rows keep their numbers, so that what refers to them, inside of state too, stays true; that is why
an import needs an empty tally. What is derived from the rest, Chroma and the outbox, is made anew;
of what a tally knows of itself its choices go along, and who it belongs to stays.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, LargeBinary, Table, delete, func, insert, select, text, true
from sqlalchemy.sql.elements import ColumnElement

from tallystick.access.gate import FROZEN
from tallystick.errors import CorruptTally, InvalidInput, StateConflict, StorageError
from tallystick.memory import MemoryContext
from tallystick.records import Actor, Scope, Transfer, canonical_json, text_digest
from tallystick.storage import journal, outbox, scopes, settings_rows, tables
from tallystick.storage.idempotency import Once
from tallystick.storage.migrate import HEAD
from tallystick.upkeep.retention import JOURNAL_WINDOW, require_operator

__all__ = ["FORMAT", "LEFT_OUT", "Chosen", "export", "import_from"]

FORMAT = 2
"""Raised when the shape of an export changes; later releases read earlier formats."""
_CHOICES = (JOURNAL_WINDOW, FROZEN)
"""Settings that somebody chose: they go along, and give way to what the other tally has chosen
already.
"""
_OWN = "tally"
"""The journal of what concerns a tally as a whole; it stays where it is."""
_INLINE = 4_096
"""Bytes up to which a binary value stands in its line; longer ones are blobs of their own."""
_PAGE = 500
LEFT_OUT = {"outbox", "checkpoints", "checkpoint_values", "checkpoint_writes"}
"""What is derived, and tables of the first schema, which are empty."""

_t = tables
_Rows = Iterator[dict[str, Any]]


def export(context: MemoryContext, actor: Actor, wanted: Sequence[Scope], folder: Path) -> Transfer:
    """Write these scopes to `folder`, which must be new or empty. Raises Denied, InvalidInput,
    StorageError.
    """
    for scope in wanted:
        context.gate.require(actor, "export", scope)
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise InvalidInput(f"{folder} is there already. Export into a new folder.")
    with context.gate.journaling(actor):
        context.store.database.write(lambda tx: _note(tx, context, actor, wanted), name="export")
    context.gate.flush()
    try:
        (folder / "blobs").mkdir(parents=True, exist_ok=True)
        with context.store.database.read() as connection:
            return _written(connection, wanted, folder)
    except OSError as error:
        raise StorageError(f"{folder} cannot be written: {error.strerror}.") from error


def import_from(
    context: MemoryContext, actor: Actor, folder: Path, *, idempotency_key: str | None = None
) -> Transfer:
    """Read `folder` into an empty tally, all or nothing. Raises Denied, InvalidInput,
    StateConflict, CorruptTally.
    """
    require_operator(context, actor)
    manifest = _manifest(folder)
    once = Once(actor.private_scope, "import", idempotency_key, manifest["digest"])
    with context.store.database.read() as connection:
        answered = once.answered(connection)
    if answered is not None:
        return Transfer.load(answered)
    blobs = _checked(folder, manifest)
    done = _transfer(manifest)

    def unit(tx: Connection) -> None:
        _require_empty(tx)
        own = _set_aside(tx)
        for table in tables.metadata.sorted_tables:
            name = f"{table.name}.jsonl"
            if name not in manifest["files"]:
                continue
            rows: list[dict[str, Any]] = []
            for row in _lines(folder / name):
                if table is _t.settings:
                    _choose(tx, row)
                    continue
                if table is _t.access_log:
                    # Who looked at an empty tally has a line of his own already.
                    row.pop("id", None)
                rows.append(_decoded(table, row, blobs))
                if len(rows) == _PAGE:
                    tx.execute(insert(table), rows)
                    rows = []
            if rows:
                tx.execute(insert(table), rows)
        outbox.append(
            tx,
            list(
                tx.execute(select(_t.vectors.c.doc).distinct().order_by(_t.vectors.c.doc)).scalars()
            ),
        )
        if tx.dialect.name == "postgresql":
            _move_sequences(tx)
        if own:
            tx.execute(insert(_t.journal), own)
        at = context.store.clock.now()
        event = journal.Event(
            stream="tally",
            event="tally.import",
            actor=actor,
            at=at,
            audit_id=context.store.ids.new(),
            details={"format": done.format, "digest": done.digest},
        )
        journal.append(tx, event)
        once.keep(tx, done.dump(), at=at)

    context.store.database.write(unit, name="import")
    return done


def _choose(tx: Connection, row: Mapping[str, Any]) -> None:
    """Take a choice over, unless this tally has made its own."""
    name = row.get("name")
    if name not in _CHOICES:
        raise CorruptTally(f"The export holds the setting {name!r}, which no release writes.")
    if settings_rows.get_setting(tx, str(name)) is None:
        settings_rows.set_setting(tx, str(name), str(row["value"]))


def _note(tx: Connection, context: MemoryContext, actor: Actor, wanted: Iterable[Scope]) -> None:
    """Say in each scope's journal that it was taken out; the permission is asked once more."""
    for scope in wanted:
        context.gate.confirm(tx, actor, "export", scope)
        event = journal.Event(
            stream=f"scope:{scope}",
            event="scope.export",
            actor=actor,
            at=context.store.clock.now(),
            audit_id=context.store.ids.new(),
            details={"format": FORMAT},
        )
        journal.append(tx, event)


@dataclass(frozen=True)
class Chosen:
    """What belongs to the scopes that are exported."""

    names: tuple[str, ...]
    ids: tuple[int, ...]
    streams: tuple[str, ...]
    reads: tuple[str, ...]
    """The scopes of lines of the access log that are about these alone, as they are written there.
    """

    @classmethod
    def of(cls, connection: Connection, wanted: Sequence[Scope]) -> Chosen:
        rows = scopes.find(connection, wanted)
        ids = tuple(sorted(row.id for row in rows))
        runs = connection.execute(select(_t.runs.c.id).where(_t.runs.c.scope_id.in_(ids))).scalars()
        names = tuple(sorted(str(scope) for scope in wanted))
        named = {row.id: str(row.scope) for row in rows}
        threads = connection.execute(
            select(_t.threads.c.scope_id, _t.threads.c.name).where(_t.threads.c.scope_id.in_(ids))
        )
        streams = [f"scope:{name}" for name in names]
        streams += [f"run:{run}" for run in runs]
        streams += [f"thread:{named[row.scope_id]}/{row.name}" for row in threads]
        looked = connection.execute(select(_t.access_log.c.scopes).distinct()).scalars()
        reads = tuple(text for text in looked if set(json.loads(text)) <= set(names))
        return cls(names, ids, tuple(streams), reads)

    def condition(self, table: Table) -> ColumnElement[bool]:
        """Which rows of a table belong to them."""
        docs = select(_t.memories.c.doc).where(_t.memories.c.scope_id.in_(self.ids))
        columns = table.c
        if table.name == "scopes":
            return columns.id.in_(self.ids)
        if table.name == "settings":
            return columns["name"].in_(_CHOICES)
        if table.name == "access_log":
            return columns.scopes.in_(self.reads)
        if table.name == "spaces":
            return columns.scope.in_(self.names)
        if table.name == "edges":
            return columns.from_doc.in_(docs) & columns.to_doc.in_(docs)
        if table.name == "streams":
            return columns["name"].in_(self.streams)
        if "stream" in columns:
            return columns.stream.in_(self.streams)
        if "scope_id" in columns:
            return columns.scope_id.in_(self.ids)
        if "doc" in columns:
            return columns.doc.in_(docs)
        if table.name == "steps":
            return columns.run_id.in_(select(_t.runs.c.id).where(_t.runs.c.scope_id.in_(self.ids)))
        if "thread_id" in columns:
            return columns.thread_id.in_(
                select(_t.threads.c.id).where(_t.threads.c.scope_id.in_(self.ids))
            )
        raise StorageError(f"The table {table.name} has no way to be exported.")


def _written(connection: Connection, wanted: Sequence[Scope], folder: Path) -> Transfer:
    chosen = Chosen.of(connection, wanted)
    files: dict[str, dict[str, Any]] = {}
    blobs: dict[str, int] = {}
    for table in tables.metadata.sorted_tables:
        if table.name in LEFT_OUT:
            continue
        digest, count = hashlib.sha256(), 0
        file = folder / f"{table.name}.jsonl"
        query = select(table).where(chosen.condition(table)).order_by(*table.primary_key.columns)
        with file.open("wb") as stream:
            for row in connection.execute(query).mappings():
                line = (
                    json.dumps(
                        _encoded(row, folder, blobs), ensure_ascii=True, separators=(",", ":")
                    )
                    + "\n"
                )
                stream.write(line.encode())
                digest.update(line.encode())
                count += 1
        files[file.name] = {"sha256": digest.hexdigest(), "lines": count}
    manifest = {
        "format": FORMAT,
        "schema": HEAD,
        "scopes": list(chosen.names),
        "files": files,
        "blobs": dict(sorted(blobs.items())),
    }
    manifest["digest"] = text_digest("export", canonical_json(manifest))
    (folder / "manifest.json").write_text(json.dumps(manifest, indent=2) + "\n", encoding="utf-8")
    return _transfer(manifest)


def _encoded(row: Mapping[Any, Any], folder: Path, blobs: dict[str, int]) -> dict[str, Any]:
    line: dict[str, Any] = {}
    for name, value in row.items():
        if isinstance(value, bytes | memoryview):
            body = bytes(value)
            if len(body) > _INLINE:
                key = hashlib.sha256(body).hexdigest()
                if key not in blobs:
                    (folder / "blobs" / key).write_bytes(body)
                    blobs[key] = len(body)
                line[name] = {"blob": key}
            else:
                line[name] = {"base64": base64.b64encode(body).decode()}
        else:
            line[name] = value
    return line


def _decoded(table: Table, row: dict[str, Any], blobs: Path) -> dict[str, Any]:
    for column in table.columns:
        value = row.get(column.name)
        if isinstance(column.type, LargeBinary) and isinstance(value, dict):
            key = value.get("blob")
            row[column.name] = (
                base64.b64decode(value["base64"]) if key is None else (blobs / key).read_bytes()
            )
    return row


def _manifest(folder: Path) -> dict[str, Any]:
    file = folder / "manifest.json"
    try:
        manifest: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise InvalidInput(f"{folder} is no export: its manifest.json cannot be read.") from error
    except ValueError as error:
        raise CorruptTally(f"{file} is damaged.") from error
    if not isinstance(manifest, dict) or "format" not in manifest or "files" not in manifest:
        raise InvalidInput(f"{folder} is no export: its manifest.json says nothing of one.")
    if manifest["format"] not in range(1, FORMAT + 1) or manifest["schema"] > HEAD:
        raise InvalidInput(
            f"{folder} has format {manifest['format']} and schema {manifest['schema']}; this "
            f"release reads formats "
            f"up to {FORMAT} and schemas up to {HEAD}. Upgrade tallystick to import it."
        )
    said = manifest.get("digest")
    if said != text_digest(
        "export", canonical_json({k: v for k, v in manifest.items() if k != "digest"})
    ):
        raise CorruptTally(f"{file} does not match its digest.")
    return manifest


def _checked(folder: Path, manifest: Mapping[str, Any]) -> Path:
    """Hold every file against its digest before anything is written. Raises CorruptTally."""
    known = {f"{table.name}.jsonl" for table in tables.metadata.sorted_tables}
    expected = {name: one["sha256"] for name, one in manifest["files"].items()}
    if not all(re.fullmatch(r"[0-9a-f]{64}", key) for key in manifest["blobs"]):
        raise CorruptTally("The export names a blob by something that is no digest.")
    expected |= {f"blobs/{key}": key for key in manifest["blobs"]}
    for name, sha256 in expected.items():
        if not name.startswith("blobs/") and name not in known:
            raise CorruptTally(f"The export names {name}, which no release writes.")
        file = folder / name
        try:
            with file.open("rb") as stream:
                found = hashlib.file_digest(stream, "sha256").hexdigest()
        except OSError as error:
            raise CorruptTally(f"The export lacks {name}.") from error
        if found != sha256:
            raise CorruptTally(
                f"{name} of the export does not match its digest. Nothing was imported."
            )
    return folder / "blobs"


def _require_empty(tx: Connection) -> None:
    for table, there in (
        (_t.scopes, true()),
        (_t.journal, _t.journal.c.stream != _OWN),
        (_t.spaces, true()),
    ):
        if tx.execute(select(func.count()).select_from(table).where(there)).scalar_one():
            raise StateConflict(
                "of this import",
                state="not empty",
                reason=f"it holds {table.name}",
                hint="Import into a new tally.",
                what="Tally",
            )


def _set_aside(tx: Connection) -> list[dict[str, Any]]:
    """Take what the tally journals of itself out of the way of the numbers that come; it is put
    back behind them.
    """
    mine = _t.journal.c.stream == _OWN
    rows = [
        dict(row)
        for row in tx.execute(
            select(_t.journal).where(mine).order_by(_t.journal.c.sequence)
        ).mappings()
    ]
    tx.execute(delete(_t.journal).where(mine))
    return [{name: value for name, value in row.items() if name != "sequence"} for row in rows]


def _move_sequences(tx: Connection) -> None:
    """Let PostgreSQL's counters go on behind the numbers that were brought along."""
    for table in tables.metadata.sorted_tables:
        key = next(iter(table.primary_key.columns))
        if table.autoincrement_column is None:
            continue
        tx.execute(
            text(
                f"SELECT setval(pg_get_serial_sequence(current_schema() || '.{table.name}', "
                f"'{key.name}'), "
                f"GREATEST((SELECT MAX({key.name}) FROM {table.name}), 1))"
            )
        )


def _lines(file: Path) -> _Rows:
    with file.open(encoding="utf-8") as stream:
        for line in stream:
            yield json.loads(line)


def _transfer(manifest: Mapping[str, Any]) -> Transfer:
    lines = {name: one["lines"] for name, one in manifest["files"].items()}
    return Transfer(
        format=manifest["format"],
        digest=manifest["digest"],
        scopes=tuple(manifest["scopes"]),
        memories=lines["memories.jsonl"],
        sources=lines["sources.jsonl"],
        entries=lines["journal.jsonl"],
        blobs=len(manifest["blobs"]),
        bytes=sum(manifest["blobs"].values()),
    )
