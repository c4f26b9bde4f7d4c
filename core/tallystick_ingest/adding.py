"""Adding one document: what arrived is kept first, then read."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, replace

from tallystick.memory import MemoryContext
from tallystick.memory.memory_write import MemoryWrite
from tallystick.records import Actor, Document, Scope, part_key
from tallystick.storage import Connection, ScopeRow
from tallystick.storage.engine.writes import Writes
from tallystick.storage.rows import documents, parts, scopes, source_rows
from tallystick.storage.rows.source_rows import StoredRecord
from tallystick_ingest.contract import SourceRecord
from tallystick_ingest.documents import get_document
from tallystick_ingest.preparing import (
    Batch,
    Left,
    PreparedDocument,
    Source,
    fingerprint_of,
    prepare_record,
    source_key,
    stored_id,
)
from tallystick_ingest.storing import StoredDocument, store_batch

_GIVEN = "given"
"""The source of what somebody adds, and the import that it names."""


@dataclass(frozen=True)
class _Place:
    source: Source
    record_id: str


def record_of(
    body: str | bytes, *, name: str | None, media_type: str, title: str, url: str | None
) -> SourceRecord:
    """Return what somebody gives as a record: of the same name or address it is the same one."""
    digest = hashlib.sha256(
        body if isinstance(body, bytes) else body.encode("utf-8", "surrogatepass")
    ).hexdigest()
    return SourceRecord(
        record_id=url or name or digest,
        version=digest,
        dedupe_key=digest,
        body=body,
        media_type=stored_id(media_type),
        title=title,
        url=None if url is None else stored_id(url),
    )


def add_document(
    context: MemoryContext, actor: Actor, scope: Scope, record: SourceRecord
) -> Document:
    """Store a document in a scope, or a new version of the one of the same name; return it. One of
    which no text can be read is kept, and `failed`. Raises Denied.
    """
    context.gate.require(actor, "write", scope)
    with context.gate.journaling(actor):
        place = _keep(context, actor, scope, record)
        prepared = prepare_record(context, actor, place.source, record)
        stored = _store(context, actor, place, prepared)
    added = get_document(context, actor, stored.document_id)
    return added.replace(outcome=stored.outcome)


def _keep(context: MemoryContext, actor: Actor, scope: Scope, record: SourceRecord) -> _Place:
    """Store what arrived where it is no text that its passages hold anyway; return its place."""
    store, name = context.store, stored_id(record.record_id)

    def unit(tx: Connection) -> ScopeRow:
        context.gate.confirm(tx, actor, "write", scope)
        row = scopes.ensure(tx, scope)
        key = source_key(row.secret, _GIVEN, "")
        known = source_rows.records_by_id(tx, row.id, key, [name]).get(name)
        if not isinstance(record.body, bytes) or (known and known.document_id is not None):
            return row
        if source_rows.documents_saying(tx, row.id, [_digest(row, record)]):
            return row
        now, document_id = store.clock.now(), store.ids.new()
        body = {"title": stored_id(record.title), "record_id": name, "url": record.url}
        values = {
            "id": document_id,
            "scope_id": row.id,
            "source": key,
            "state": "queued",
            "version": 1,
            "body": json.dumps({**body, "media_type": record.media_type}),
            "content_key": parts.put(tx, row, record.body, at=now),
            "words": 0,
            "crawled_at": now,
            "created_at": now,
            "updated_at": now,
            "created_by": actor.user,
        }
        documents.add_documents(tx, [values])
        source_rows.put_records(tx, [_record(row, key, name, document_id, now)])
        return row

    row = store.database.write(unit, name="document.keep", writes=Writes.of(scope))
    key = source_key(row.secret, _GIVEN, "")
    return _Place(Source(scope=row, key=key, import_id=_GIVEN), name)


def _digest(scope: ScopeRow, record: SourceRecord) -> str:
    return part_key(scope.secret, record.dedupe_key.encode())


def _record(scope: ScopeRow, key: str, name: str, document_id: str, now: int) -> StoredRecord:
    return StoredRecord(
        scope_id=scope.id,
        source=key,
        record_id=name,
        version=None,
        dedupe=None,
        state="content_ready",
        reason=None,
        detail=None,
        document_id=document_id,
        import_id=_GIVEN,
        is_gone=False,
        updated_at=now,
    )


def _store(
    context: MemoryContext, actor: Actor, place: _Place, prepared: PreparedDocument | Left
) -> StoredDocument:
    scope = place.source.scope.scope
    batch = Batch(fingerprint=fingerprint_of(context))
    if isinstance(prepared, Left):
        batch.left.append(replace(prepared, is_failure=True))
    else:
        batch.documents.append(prepared)

    def unit(tx: Connection) -> StoredDocument:
        context.gate.confirm(tx, actor, "write", scope)
        write = MemoryWrite(tx, context, actor, context.store.clock.now(), None)
        stored = store_batch(write, place.source, batch)
        if not isinstance(prepared, Left):
            return stored.documents[0]
        return _fail(write, place, prepared)

    return context.store.database.write_mostly(unit, name="document.store", writes=Writes.of(scope))


def _fail(write: MemoryWrite, place: _Place, left: Left) -> StoredDocument:
    """Note why a document has no text; what was read from it before stays."""
    source, tx = place.source, write.tx
    known = source_rows.records_by_id(tx, source.scope.id, source.key, [place.record_id])
    document_id = known[place.record_id].document_id
    row = None if document_id is None else documents.find_document(tx, document_id)
    if row is None or document_id is None:
        raise _refusal(left)
    body = json.dumps({**json.loads(row["body"]), "error": f"{left.reason}: {left.detail}"})
    is_first = row["state"] == "queued"
    values = {"state": "failed"} if is_first else {}
    documents.update_document(tx, document_id, body=body, **values, updated_at=write.now)
    return StoredDocument(document_id, "failed")


def _refusal(left: Left) -> Exception:
    from tallystick.errors import InvalidInput

    return InvalidInput(f"`content` is no document: {left.reason}. {left.detail}".strip())
