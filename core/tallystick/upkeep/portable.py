"""Exports: whole scopes as JSON lines and blobs, each named with its digest in a manifest.

Of the tally's own settings those that somebody chose are exported, and not its owner. `imports`
brings an export into another tally.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from tallystick.errors import InvalidInput, StorageError
from tallystick.memory import MemoryContext
from tallystick.records import (
    Actor,
    Scope,
    Transfer,
    canonical_json,
    text_digest,
)
from tallystick.storage import Connection, journal, migrate
from tallystick.storage import portable as rows
from tallystick.storage.private_files import (
    is_new_or_empty,
    make_private_folder,
    open_private,
    whole_folder,
)
from tallystick.storage.scopes import FROZEN
from tallystick.upkeep.retention import WINDOWS

FORMAT = 2
"""Raised when the shape of an export changes; later releases read earlier formats."""
CHOICES = {**dict.fromkeys(WINDOWS, r"keep|[1-9][0-9]{0,4}"), FROZEN: r"[01]"}
"""Settings that somebody chose, with the form of their values: they are exported, and give way to
those of the importing tally.
"""
_INLINE = 4_096
"""Bytes up to which a binary value is stored in its line; longer ones are blobs of their own."""
_PAGE = 500
Progress = Callable[[int, int], None]
"""Called with the rows that were read or written, and how many there are."""


def preview_export(context: MemoryContext, actor: Actor, chosen: Sequence[Scope]) -> Transfer:
    """Count what an export of these scopes would write. Nothing is written or journaled, and no
    digest is made. Raises Denied.
    """
    for scope in chosen:
        context.gate.require(actor, "export", scope)
    with context.store.database.read() as connection:
        selection = rows.ScopeSelection.of(connection, chosen, settings=CHOICES)
        lines: dict[str, int] = {}
        blobs: dict[str, int] = {}
        for table in rows.table_names():
            if table in rows.LEFT_OUT:
                continue
            lines[table] = rows.count_rows(connection, selection, table)
            for value in rows.binary_values(connection, selection, table):
                if len(value) > _INLINE:
                    blobs[hashlib.sha256(value).hexdigest()] = len(value)
        states = rows.state_counts(connection, selection)
    return _transfer("preview", selection.names, lines, blobs, states)


def export(
    context: MemoryContext,
    actor: Actor,
    chosen: Sequence[Scope],
    folder: Path,
    *,
    progress: Progress = lambda done, total: None,
) -> Transfer:
    """Write these scopes to `folder`, which must be new or empty: it is there whole, or not at all.
    `progress` is called with the rows that were written, and how many there are. Raises Denied,
    InvalidInput, StorageError.
    """
    for scope in chosen:
        context.gate.require(actor, "export", scope)
    if not is_new_or_empty(folder):
        raise InvalidInput(f"{folder} is there already. Export into a new folder.")
    with context.gate.journaling(actor):
        context.store.database.write(lambda tx: _note(tx, context, actor, chosen), name="export")
    context.gate.flush()
    try:
        with whole_folder(folder) as partial, context.store.database.read() as connection:
            make_private_folder(partial / "blobs")
            return _write_files(connection, chosen, partial, progress)
    except OSError as error:
        raise StorageError(f"{folder} cannot be written: {error.strerror}.") from error


def _note(tx: Connection, context: MemoryContext, actor: Actor, chosen: Iterable[Scope]) -> None:
    """Note in each scope's journal that it was exported; the permission is checked once more."""
    for scope in chosen:
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


def _write_files(
    connection: Connection, chosen: Sequence[Scope], folder: Path, progress: Progress
) -> Transfer:
    selection = rows.ScopeSelection.of(connection, chosen, settings=CHOICES)
    names = [table for table in rows.table_names() if table not in rows.LEFT_OUT]
    done, total = 0, sum(rows.count_rows(connection, selection, table) for table in names)
    files: dict[str, dict[str, Any]] = {}
    blobs: dict[str, int] = {}
    for table in names:
        digest, count = hashlib.sha256(), 0
        file = folder / f"{table}.jsonl"
        with open_private(file) as stream:
            for row in rows.rows_of(connection, selection, table):
                line = (
                    json.dumps(
                        _encode(row, folder, blobs), ensure_ascii=True, separators=(",", ":")
                    )
                    + "\n"
                )
                stream.write(line.encode())
                digest.update(line.encode())
                count += 1
                if count % _PAGE == 0:
                    progress(done + count, total)
        done += count
        progress(done, total)
        files[file.name] = {"sha256": digest.hexdigest(), "lines": count}
    manifest = {
        "format": FORMAT,
        "schema": migrate.HEAD,
        "scopes": list(selection.names),
        "files": files,
        "blobs": dict(sorted(blobs.items())),
    }
    manifest["digest"] = text_digest("export", canonical_json(manifest))
    with open_private(folder / "manifest.json") as stream:
        stream.write(json.dumps(manifest, indent=2).encode() + b"\n")
    return transfer_of(manifest, states=rows.state_counts(connection, selection))


def _encode(row: Mapping[Any, Any], folder: Path, blobs: dict[str, int]) -> dict[str, Any]:
    """Return a row as its line; long binary values become blobs, which are written."""
    line: dict[str, Any] = {}
    for name, value in row.items():
        if isinstance(value, bytes | memoryview):
            body = bytes(value)
            if len(body) > _INLINE:
                key = hashlib.sha256(body).hexdigest()
                if key not in blobs:
                    with open_private(folder / "blobs" / key) as stream:
                        stream.write(body)
                    blobs[key] = len(body)
                line[name] = {"blob": key}
            else:
                line[name] = {"base64": base64.b64encode(body).decode()}
        else:
            line[name] = value
    return line


def transfer_of(manifest: Mapping[str, Any], *, states: Mapping[str, int]) -> Transfer:
    lines = {
        name.removesuffix(".jsonl"): entry["lines"] for name, entry in manifest["files"].items()
    }
    transfer = _transfer("apply", manifest["scopes"], lines, manifest["blobs"], states)
    return transfer.model_copy(update={"format": manifest["format"], "digest": manifest["digest"]})


def _transfer(
    mode: Literal["preview", "apply"],
    names: Iterable[str],
    lines: Mapping[str, int],
    blobs: Mapping[str, int],
    states: Mapping[str, int],
) -> Transfer:
    return Transfer(
        mode=mode,
        format=FORMAT,
        scopes=tuple(names),
        memories=lines["memories"],
        states=dict(states),
        sources=lines["sources"],
        runs=lines.get("runs", 0),
        threads=lines.get("threads", 0),
        entries=lines["journal"],
        blobs=len(blobs),
        bytes=sum(blobs.values()),
    )
