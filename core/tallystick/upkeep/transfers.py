"""Export and import: whole scopes leave a tally as an archive, and come into another one, all or
nothing.

Of the tally's own settings those that somebody chose go along, and not its owner. Derived rows and
Chroma are made anew.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any, Literal

from tallystick.errors import CorruptTally, InvalidInput, StorageError, TallystickError
from tallystick.memory import MemoryContext
from tallystick.memory.memory_write import MemoryWrite
from tallystick.records import Actor, Scope, Transfer
from tallystick.storage import Connection
from tallystick.storage.engine import migrate
from tallystick.storage.engine.private_files import is_new_or_empty, whole_folder
from tallystick.storage.engine.writes import EVERYTHING, TALLY, Writes
from tallystick.storage.move import archives, merging
from tallystick.storage.move.archives import Archive, Progress, silent
from tallystick.storage.rows import journal
from tallystick.storage.rows.idempotency import IdempotentCall
from tallystick.storage.rows.settings_rows import get_setting, set_setting
from tallystick.storage.text.scope_selection import ScopeSelection, exported_tables, state_counts
from tallystick.upkeep.imported_secrets import mask_import
from tallystick.upkeep.retention import CHOICES, require_operator
from tallystick.upkeep.unfinished import PENDING, finish_erasure

_MOST_SCOPES = 1_000
"""Scopes that an import locks one by one on PostgreSQL; for more it is alone."""


def preview_export(context: MemoryContext, actor: Actor, chosen: Sequence[Scope]) -> Transfer:
    """Count what an export of these scopes would write. Nothing is written or journaled. Raises
    Denied.
    """
    for scope in chosen:
        context.gate.require(actor, "export", scope)
    with context.store.database.read() as connection:
        facts = _write(connection, chosen, None, silent)
    # Each scope's journal says first that it was exported, as `_note` writes.
    rows = {**facts["rows"], "journal": facts["rows"].get("journal", 0) + len(chosen)}
    return _transfer("preview", {"format": archives.FORMAT, "digest": "", **facts, "rows": rows})


def export(
    context: MemoryContext,
    actor: Actor,
    chosen: Sequence[Scope],
    folder: Path,
    *,
    progress: Progress = silent,
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
            facts = _write(connection, chosen, partial, progress)
            facts |= {
                "at": context.store.clock.now(),
                "schema": migrate.HEAD,
                "version": version("tallystick"),
            }
            manifest = archives.write_manifest(partial, "export", facts)
    except OSError as error:
        raise StorageError(f"{folder} cannot be written: {error.strerror}.") from error
    return _transfer("apply", manifest)


def _write(
    connection: Connection, chosen: Sequence[Scope], folder: Path | None, progress: Progress
) -> dict[str, Any]:
    selection = ScopeSelection.of(connection, chosen, settings=CHOICES)
    selected = [(table, selection.condition(table)) for table in exported_tables()]
    return {
        **archives.write_rows(connection, folder, selected, progress),
        "scopes": list(selection.names),
        "states": state_counts(connection, selection),
    }


def _note(tx: Connection, context: MemoryContext, actor: Actor, chosen: Iterable[Scope]) -> None:
    """Note in each scope's journal that it was exported; the permission is checked once more."""
    for scope in chosen:
        context.gate.confirm(tx, actor, "export", scope)
        details = {"format": archives.FORMAT}
        journal.append(tx, _event(context, actor, f"scope:{scope}", "scope.export", details))


def import_from(
    context: MemoryContext,
    actor: Actor,
    folder: Path,
    *,
    idempotency_key: str | None = None,
    progress: Progress = silent,
) -> Transfer:
    """Read the export in `folder` into this tally, in one transaction. `progress` is called with
    the rows that were read, and how many there are. Raises Denied, InvalidInput, StateConflict,
    CorruptTally, NewerTally, UnreleasedTally.
    """
    require_operator(context, actor)
    archive = Archive(folder, "export")
    database = context.store.database
    digest = archive.manifest["digest"]
    call = IdempotentCall(actor.private_scope, "import", idempotency_key, digest)
    with database.read() as connection:
        answered = call.read_answer(connection)
    if answered is not None:
        return Transfer.load(answered)
    names = archive.manifest["scopes"]

    def unit(tx: Connection) -> Transfer:
        answered = call.read_answer(tx)
        if answered is not None:
            return Transfer.load(answered)
        merge = merging.Merge(tx, names)
        row_count, total = 0, sum(archive.rows.values())
        for table in merging.merge_order():
            for page in archive.pages(table):
                if table.name == "settings":
                    _adopt_settings(tx, page)
                else:
                    merge.add(table, page)
                row_count += len(page)
                progress(row_count, total)
        docs = merge.finish()
        now = context.store.clock.now()
        write = MemoryWrite(tx, context, actor, now, None, imported=frozenset(docs))
        warning = mask_import(write, docs, merge.scope_ids)
        if warning is not None:
            set_setting(tx, PENDING, "1")
        result = _transfer("apply", {**archive.manifest, "states": merge.states}, warning)
        details = {"format": archives.FORMAT, "digest": digest, "scopes": len(names)}
        event = _event(context, actor, TALLY, "tally.import", details, reason=warning)
        journal.append(tx, event)
        call.keep(tx, result.dump(), at=now)
        progress(total, total)
        return result

    try:
        archive.check([table.name for table in exported_tables()])
        with database.read() as connection:
            highest = merging.require_absent(connection, archive)
        if highest:
            # Others may draw numbers while the import is under way.
            database.write(lambda tx: merging.reserve_numbers(tx, highest), name="import.numbers")
        is_few = len(names) <= _MOST_SCOPES
        writes = Writes.of(TALLY, actor.private_scope, *names) if is_few else EVERYTHING
        result = database.write(unit, name="import", writes=writes)
    except TallystickError as error:
        error.args = (f"{error} Nothing was imported.",)
        raise
    if result.warnings and (context.index is None or context.index.owned):
        finish_erasure(context)
    return result


def _adopt_settings(tx: Connection, rows: Iterable[Mapping[str, Any]]) -> None:
    """Adopt the settings that somebody chose, unless this tally has its own."""
    for row in rows:
        name, value = row["name"], row["value"]
        if name not in CHOICES or not re.fullmatch(CHOICES[name], value):
            raise CorruptTally(f"The export has a setting {name!a} that no release writes.")
        if get_setting(tx, name) is None:
            set_setting(tx, name, value)


def _event(
    context: MemoryContext,
    actor: Actor,
    stream: str,
    name: str,
    details: Mapping[str, Any],
    *,
    reason: str | None = None,
) -> journal.Event:
    return journal.Event(
        stream=stream,
        event=name,
        actor=actor,
        at=context.store.clock.now(),
        audit_id=context.store.ids.new(),
        reason=reason,
        details=details,
    )


def _transfer(
    mode: Literal["preview", "apply"], manifest: Mapping[str, Any], warning: str | None = None
) -> Transfer:
    rows: Mapping[str, int] = manifest["rows"]
    return Transfer(
        mode=mode,
        format=manifest["format"],
        digest=manifest["digest"],
        scopes=tuple(manifest["scopes"]),
        memories=rows.get("memories", 0),
        states=dict(sorted(manifest["states"].items())),
        sources=rows.get("sources", 0),
        runs=rows.get("runs", 0),
        threads=rows.get("threads", 0),
        entries=rows.get("journal", 0),
        blobs=len(manifest["blobs"]),
        bytes=sum(manifest["blobs"].values()),
        warnings=() if warning is None else (warning,),
    )
