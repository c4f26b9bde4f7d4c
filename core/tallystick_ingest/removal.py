"""Removal: what vanished from a source is forgotten after a preview, and with its token alone."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Literal

from tallystick.access import Confirmation
from tallystick.errors import StateConflict
from tallystick.memory import MemoryContext
from tallystick.memory.change import require_reason
from tallystick.memory.memory_write import MemoryWrite
from tallystick.records import Actor, Json, Removal, RemovedRecord
from tallystick.storage import Connection
from tallystick.storage.engine.writes import Writes
from tallystick.storage.rows import documents, source_rows
from tallystick.storage.rows.source_rows import StoredRecord
from tallystick_ingest.imports import is_newest
from tallystick_ingest.storing import remove_document
from tallystick_ingest.visible import visible_import

_PURPOSE = "import.remove"


def remove_vanished(
    context: MemoryContext,
    actor: Actor,
    import_id: str,
    *,
    reason: str,
    mode: Literal["preview", "apply"],
    confirm_token: str | None,
) -> Removal:
    """Preview the removal of what a completed import did not find any more, or carry it out with
    the preview's token: its memories are forgotten, and can be recovered for a while.

    Raises NotFound, Denied (`confirm_token_required`), and StateConflict for an import that has not
    completed, or where something else is gone by now.
    """
    require_reason(reason)
    with context.store.database.read() as connection:
        row, scope = visible_import(connection, context, actor, import_id)
        newest = is_newest(connection, row)
    decision = context.gate.require(actor, "delete", scope.scope)
    if row["state"] != "completed" or not newest:
        raise StateConflict(
            import_id,
            state=row["state"],
            reason="only the newest import of a source says what it has, once it is completed",
            hint="Start it anew, and preview when it is.",
            what="Import",
        )
    confirmation = Confirmation(context.gate, scope.secret, _PURPOSE, actor)

    def find_gone(connection: Connection) -> tuple[list[StoredRecord], Removal]:
        records = source_rows.vanished(
            connection, scope.id, row["source"], import_id, lists_all=row["lists_all"]
        )
        shown = _shown(connection, records)
        return records, Removal(mode="preview", import_id=import_id, records=shown)

    with context.store.database.read() as connection:
        _, preview = find_gone(connection)
    if mode == "preview":
        if not preview.records:
            return preview
        now = context.store.clock.now()
        token, end = confirmation.token(_token_content(reason, preview), now=now)
        return preview.replace(confirm_token=token, expires_at=end)
    if confirm_token is None:
        raise confirmation.refusal(decision)
    count = sum(each.chunks for each in preview.records)
    context.gate.admit(actor, "forget", scope.scope, count=count)

    def unit(tx: Connection) -> Removal:
        context.gate.confirm(tx, actor, "delete", scope.scope)
        records, current = find_gone(tx)
        write = MemoryWrite(tx, context, actor, context.store.clock.now(), import_id)
        content = _token_content(reason, current)
        confirmation.require(
            confirm_token, content, now=write.now, subject=import_id, what="Import"
        )
        own = _own(tx, records)
        chunks = documents.chunks_of(tx, own)
        count = sum(remove_document(write, each, chunks.get(each, [])) for each in own)
        source_rows.remove_records(tx, records)
        details = {"records": len(records), "memories": count}
        audit_id = write.journal_event(
            scope.scope, "import.remove", import_id, details, reason=reason
        )
        return current.replace(mode="apply", forgotten=count, audit_id=audit_id)

    with context.gate.journaling(actor):
        return context.store.database.write_mostly(
            unit, name="import.remove", writes=Writes.of(scope.scope)
        )


def _own(connection: Connection, records: Sequence[StoredRecord]) -> list[str]:
    """Return the documents of records that no other record is."""
    named = [each.document_id for each in records if each.document_id is not None]
    counts = source_rows.records_naming(connection, named)
    return sorted({each for each in named if counts.get(each, 0) <= named.count(each)})


def _shown(connection: Connection, records: Sequence[StoredRecord]) -> tuple[RemovedRecord, ...]:
    own = set(_own(connection, records))
    rows = documents.find_documents(connection, own)
    chunks = documents.chunks_of(connection, own)
    return tuple(
        RemovedRecord(
            record_id=each.record_id,
            document_id=each.document_id,
            title=str(json.loads(rows[each.document_id]["body"]).get("title", ""))
            if each.document_id in rows
            else "",
            chunks=sum(chunk.is_current for chunk in chunks.get(each.document_id or "", [])),
        )
        for each in records
    )


def _token_content(reason: str, removal: Removal) -> Json:
    return [reason, [each.dump() for each in removal.records]]
