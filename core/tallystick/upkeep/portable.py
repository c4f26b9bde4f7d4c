"""Export and import: whole scopes as JSON lines and blobs, each named with its digest in a
manifest.

In an empty tally rows keep their numbers, so that references to them, inside of state too, stay
valid; beside others they get new ones (`storage.merging`). Derived rows and Chroma are made anew.
Of the tally's own settings those that somebody chose are exported, and not its owner.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from io import BufferedReader
from pathlib import Path
from typing import Any, Literal

from tallystick.errors import CorruptTally, InvalidInput, StateConflict, StorageError
from tallystick.memory import MemoryContext
from tallystick.records import (
    Actor,
    Scope,
    Transfer,
    canonical_json,
    strict_json,
    text_digest,
)
from tallystick.storage import Connection, integrity, journal, search, settings_rows
from tallystick.storage import portable as rows
from tallystick.storage.idempotency import IdempotentCall
from tallystick.storage.merging import Merge, merge_order, require_verified
from tallystick.storage.migrate import HEAD
from tallystick.storage.migrations import texts_beside
from tallystick.storage.private_files import (
    is_new_or_empty,
    make_private_folder,
    open_private,
    open_regular,
    whole_folder,
)
from tallystick.storage.scopes import FROZEN
from tallystick.upkeep.retention import WINDOWS, require_operator

__all__ = ["CHOICES", "FORMAT", "export", "import_from", "preview_export"]

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


def export(context: MemoryContext, actor: Actor, chosen: Sequence[Scope], folder: Path) -> Transfer:
    """Write these scopes to `folder`, which must be new or empty: it is there whole, or not at all.
    Raises Denied, InvalidInput, StorageError.
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
            return _write_files(connection, chosen, partial)
    except OSError as error:
        raise StorageError(f"{folder} cannot be written: {error.strerror}.") from error


def import_from(
    context: MemoryContext,
    actor: Actor,
    folder: Path,
    *,
    idempotency_key: str | None = None,
    progress: Progress = lambda done, total: None,
) -> Transfer:
    """Read `folder` into this tally, all or nothing. Raises Denied, InvalidInput, StateConflict,
    CorruptTally.

    In an empty tally rows keep their numbers. In one with rows they get others; a scope that is
    there already, from an earlier import of the same, is left as it is, and one that is another
    refuses the whole. So a call that was cut off is made again as it was. `progress` is called with
    the rows that were read, and how many there are.
    """
    require_operator(context, actor)
    manifest = _manifest(folder)
    call = IdempotentCall(actor.private_scope, "import", idempotency_key, manifest["digest"])
    with context.store.database.read() as connection:
        answered = call.answered(connection)
    if answered is not None:
        return Transfer.load(answered)
    files = _Files(folder, manifest)
    files.check()
    transfer = _transfer_of(manifest, states=files.memory_states())

    def unit(tx: Connection) -> Transfer:
        if rows.non_empty_table(tx) is None:
            present: tuple[str, ...] = ()
            _fill(tx, manifest, files, progress)
        else:
            present = _merge(tx, manifest, files, progress)
        result = transfer.model_copy(update={"present": present})
        at = context.store.clock.now()
        event = journal.Event(
            stream="tally",
            event="tally.import",
            actor=actor,
            at=at,
            audit_id=context.store.ids.new(),
            details={"format": transfer.format, "digest": transfer.digest},
        )
        journal.append(tx, event)
        call.keep(tx, result.dump(), at=at)
        return result

    return context.store.database.write(unit, name="import")


def _fill(tx: Connection, manifest: Mapping[str, Any], files: _Files, progress: Progress) -> None:
    """Import into an empty tally: rows keep their numbers."""
    own = rows.set_aside_own_journal(tx)
    for table, page in _pages(tx, rows.table_names(), manifest, files, progress):
        if table == "access_log":
            # Who looked at an empty tally has a line of his own already.
            page = [{key: value for key, value in row.items() if key != "id"} for row in page]
        rows.add_rows(tx, table, page)
    rows.upgrade_rows(tx, manifest["schema"])
    search.queue_for_index(tx, rows.docs_with_vectors(tx))
    rows.move_sequences(tx)
    rows.put_back_own_journal(tx, own)
    require_verified(tx, integrity.stream_names(tx), files.heads())


def _merge(
    tx: Connection, manifest: Mapping[str, Any], files: _Files, progress: Progress
) -> tuple[str, ...]:
    """Import beside other rows; return the scopes that were there already."""
    if manifest["schema"] < texts_beside.SCHEMA:
        raise StateConflict(
            "of this import",
            state="not empty",
            reason=f"an export of schema {manifest['schema']} is brought up to date as a whole",
            hint="Import it into a new tally, and export that.",
            what="The tally",
        )
    merge = Merge(tx, files.heads())
    for table, page in _pages(tx, merge_order(), manifest, files, progress):
        merge.add(table, page)
    search.queue_for_index(tx, merge.finish())
    return tuple(merge.present)


def _pages(
    tx: Connection,
    names: Sequence[str],
    manifest: Mapping[str, Any],
    files: _Files,
    progress: Progress,
) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """Yield the checked rows of each table, some at a time; settings are adopted on the way."""
    done, total = 0, sum(entry["lines"] for entry in manifest["files"].values())
    for table in names:
        name = f"{table}.jsonl"
        if name not in manifest["files"]:
            continue
        page: list[dict[str, Any]] = []
        for row in files.rows(name):
            done += 1
            if table == "settings":
                _adopt_setting(tx, row)
                continue
            page.append(rows.checked_row(table, row, files.binary))
            if len(page) == _PAGE:
                progress(done, total)
                yield table, page
                page = []
        if page:
            yield table, page
    progress(total, total)


def _adopt_setting(tx: Connection, row: Mapping[str, Any]) -> None:
    """Adopt a setting of the export, unless this tally has its own."""
    name = row.get("name")
    if name not in CHOICES:
        raise CorruptTally(f"The export holds the setting {name!a}, which no release writes.")
    checked = rows.checked_row("settings", row, lambda value: b"")
    if not re.fullmatch(CHOICES[name], checked["value"]):
        raise CorruptTally(f"The export holds a value of {name} that no release writes.")
    if settings_rows.get_setting(tx, str(name)) is None:
        settings_rows.set_setting(tx, str(name), checked["value"])


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


def _write_files(connection: Connection, chosen: Sequence[Scope], folder: Path) -> Transfer:
    selection = rows.ScopeSelection.of(connection, chosen, settings=CHOICES)
    files: dict[str, dict[str, Any]] = {}
    blobs: dict[str, int] = {}
    for table in rows.table_names():
        if table in rows.LEFT_OUT:
            continue
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
        files[file.name] = {"sha256": digest.hexdigest(), "lines": count}
    manifest = {
        "format": FORMAT,
        "schema": HEAD,
        "scopes": list(selection.names),
        "files": files,
        "blobs": dict(sorted(blobs.items())),
    }
    manifest["digest"] = text_digest("export", canonical_json(manifest))
    with open_private(folder / "manifest.json") as stream:
        stream.write(json.dumps(manifest, indent=2).encode() + b"\n")
    return _transfer_of(manifest, states=rows.state_counts(connection, selection))


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


def _manifest(folder: Path) -> dict[str, Any]:
    file = folder / "manifest.json"
    try:
        with open_regular(folder, "manifest.json") as stream:
            manifest: dict[str, Any] = strict_json(stream.read())
    except OSError as error:
        raise InvalidInput(f"{folder} is no export: its manifest.json cannot be read.") from error
    except ValueError as error:
        raise CorruptTally(f"{file} is damaged.") from error
    if not isinstance(manifest, dict) or "format" not in manifest or "files" not in manifest:
        raise InvalidInput(f"{folder} is no export: its manifest.json says nothing of one.")
    if type(manifest["format"]) is not int or not isinstance(manifest.get("schema"), str):
        raise CorruptTally(f"{file} is damaged.")
    if manifest["format"] not in range(1, FORMAT + 1) or manifest["schema"] > HEAD:
        raise InvalidInput(
            f"{folder} has format {manifest['format']} and schema {manifest['schema']!a}; this "
            f"release reads formats "
            f"up to {FORMAT} and schemas up to {HEAD}. Upgrade tallystick to import it."
        )
    unsigned = {key: value for key, value in manifest.items() if key != "digest"}
    try:
        matches = manifest.get("digest") == text_digest("export", canonical_json(unsigned))
    except InvalidInput as error:
        raise CorruptTally(f"{file} is damaged.") from error
    if not matches:
        raise CorruptTally(f"{file} does not match its digest.")
    if not _is_shaped(manifest):
        raise CorruptTally(f"{file} is damaged.")
    return manifest


def _is_shaped(manifest: Mapping[str, Any]) -> bool:
    """Return True if the parts of a manifest have the types that an export writes."""
    files, blobs, names = (manifest.get(key) for key in ("files", "blobs", "scopes"))
    return (
        isinstance(files, dict)
        and all(
            isinstance(entry, dict)
            and isinstance(entry.get("sha256"), str)
            and type(entry.get("lines")) is int
            for entry in files.values()
        )
        and {"memories.jsonl", "sources.jsonl", "journal.jsonl"} <= set(files)
        and isinstance(blobs, dict)
        and all(type(size) is int and size >= 0 for size in blobs.values())
        and isinstance(names, list)
        and all(isinstance(name, str) for name in names)
    )


class _Files:
    """The files of an export that its manifest names, and no other file of the machine.

    A name is one that a release writes, or the digest of a blob. A member is a regular file inside
    of the folder: a link could lead out of it, and a pipe would never end.
    """

    def __init__(self, folder: Path, manifest: Mapping[str, Any]) -> None:
        self._folder = folder
        self._expected = {name: entry["sha256"] for name, entry in manifest["files"].items()}
        self._blobs = frozenset(manifest["blobs"])

    def check(self) -> None:
        """Compare every file with its digest before anything is written. Raises CorruptTally."""
        names = {f"{table}.jsonl" for table in rows.table_names()}
        for name in self._expected:
            if name not in names:
                raise CorruptTally(f"The export names {name!a}, which no release writes.")
        if not all(re.fullmatch(r"[0-9a-f]{64}", key) for key in self._blobs):
            raise CorruptTally("The export names a blob by something that is no digest.")
        for name, sha256 in self._expected.items():
            self._require(name, sha256)
        for key in self._blobs:
            self._require(f"blobs/{key}", key)

    def rows(self, name: str) -> Iterator[dict[str, Any]]:
        """Yield the rows of a file. Raises CorruptTally."""
        with self._open(name) as stream:
            for line in stream:
                try:
                    row = strict_json(line)
                except ValueError as error:
                    raise CorruptTally(f"A line of {name} of the export is damaged.") from error
                if not isinstance(row, dict):
                    raise CorruptTally(f"A line of {name} of the export is no row.")
                yield row

    def binary(self, value: Any) -> bytes:
        """Return the bytes of a column: those in the line, or those of a blob that the manifest
        names. Raises CorruptTally.
        """
        fields = value if isinstance(value, dict) and len(value) == 1 else {}
        key, text = fields.get("blob"), fields.get("base64")
        if isinstance(key, str) and key in self._blobs:
            with self._open(f"blobs/{key}") as stream:
                return stream.read()
        if isinstance(text, str):
            try:
                return base64.b64decode(text, validate=True)
            except ValueError as error:
                raise CorruptTally("Bytes of a row of the export are damaged.") from error
        raise CorruptTally("A row of the export names bytes that the export does not have.")

    def heads(self) -> dict[str, tuple[int, str]]:
        """Return the number of entries of each journal of an export, and the digest of its last."""
        name = "streams.jsonl"
        found = self.rows(name) if name in self._expected else ()
        streams = (rows.checked_row("streams", row, self.binary) for row in found)
        return {row["name"]: (row["count"], row["head"]) for row in streams}

    def memory_states(self) -> dict[str, int]:
        """Return the number of memories of an export in each state."""
        counts = Counter(str(row.get("state")) for row in self.rows("memories.jsonl"))
        return dict(sorted(counts.items()))

    def _require(self, name: str, sha256: str) -> None:
        with self._open(name) as stream:
            digest = hashlib.file_digest(stream, "sha256").hexdigest()
        if digest != sha256:
            raise CorruptTally(
                f"{name} of the export does not match its digest. Nothing was imported."
            )

    def _open(self, name: str) -> BufferedReader:
        try:
            return open_regular(self._folder, name)
        except OSError as error:
            raise CorruptTally(f"The export lacks {name}, or it is no file of its own.") from error


def _transfer_of(manifest: Mapping[str, Any], *, states: Mapping[str, int]) -> Transfer:
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
