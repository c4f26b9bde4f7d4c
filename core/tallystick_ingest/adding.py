"""Adding one document: what arrived is kept first, then read."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace

from tallystick.errors import InvalidInput
from tallystick.memory import MemoryContext
from tallystick.memory.memory_write import MemoryWrite
from tallystick.records import Actor, Document, Scope
from tallystick.storage import Connection
from tallystick.storage.engine.writes import Writes
from tallystick.storage.rows import documents, parts, scopes, source_rows
from tallystick_ingest.contract import SourceRecord
from tallystick_ingest.documents import get_document
from tallystick_ingest.preparing import (
    Batch,
    Left,
    PreparedDocument,
    Source,
    digest_of,
    fingerprint_of,
    prepare_record,
    source_key,
    stored_id,
)
from tallystick_ingest.storing import StoredDocument, new_document, record_row, store_batch

_GIVEN = "given"
"""The source of what somebody adds, and the import that it names."""


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
        source = _keep(context, actor, scope, record)
        prepared = prepare_record(context, actor, source, record)
        stored = _store(context, actor, source, prepared)
    added = get_document(context, actor, stored.document_id)
    return added.replace(outcome=stored.outcome)


def _keep(context: MemoryContext, actor: Actor, scope: Scope, record: SourceRecord) -> Source:
    """Store what arrived where it is no text that its passages hold anyway; return its source."""
    store, name = context.store, stored_id(record.record_id)

    def unit(tx: Connection) -> Source:
        context.gate.confirm(tx, actor, "write", scope)
        row = scopes.ensure(tx, scope)
        source = Source(scope=row, key=source_key(row.secret, _GIVEN, ""), import_id=_GIVEN)
        known = source_rows.records_by_id(tx, row.id, source.key, [name]).get(name)
        if not isinstance(record.body, bytes) or (known and known.document_id is not None):
            return source
        if source_rows.documents_saying(tx, row.id, [digest_of(row, record)]):
            return source
        write = MemoryWrite(tx, context, actor, store.clock.now(), None)
        document_id = store.ids.new()
        body = {"title": stored_id(record.title), "record_id": name, "url": record.url}
        values = {
            "scope_id": row.id,
            "source": source.key,
            "state": "queued",
            "body": json.dumps({**body, "media_type": record.media_type}),
            "content_key": parts.put(tx, row, record.body, at=write.now),
            "words": 0,
            "crawled_at": write.now,
            "updated_at": write.now,
        }
        documents.add_documents(tx, [new_document(write, document_id, values)])
        kept = record_row(write, source, name, "content_ready", document_id=document_id)
        source_rows.put_records(tx, [kept])
        return source

    return store.database.write(unit, name="document.keep", writes=Writes.of(scope))


def _store(
    context: MemoryContext, actor: Actor, source: Source, prepared: PreparedDocument | Left
) -> StoredDocument:
    scope = source.scope.scope
    batch = Batch(fingerprint=fingerprint_of(context))
    if isinstance(prepared, Left):
        batch.left.append(replace(prepared, is_failure=True))
    else:
        batch.documents.append(prepared)

    def unit(tx: Connection) -> StoredDocument:
        context.gate.confirm(tx, actor, "write", scope)
        write = MemoryWrite(tx, context, actor, context.store.clock.now(), None)
        stored = store_batch(write, source, batch)
        if isinstance(prepared, Left):
            return _fail(write, source, prepared)
        return stored.documents[0]

    return context.store.database.write_mostly(unit, name="document.store", writes=Writes.of(scope))


def _fail(write: MemoryWrite, source: Source, left: Left) -> StoredDocument:
    """Note why a document has no text; what was read from it before stays."""
    tx, name = write.tx, left.record_id
    document_id = source_rows.records_by_id(tx, source.scope.id, source.key, [name])[
        name
    ].document_id
    row = None if document_id is None else documents.find_document(tx, document_id)
    if row is None or document_id is None:
        detail = f"`content` is no document: {left.reason}. {left.detail}".strip()
        raise InvalidInput(detail)
    body = json.dumps({**json.loads(row["body"]), "error": f"{left.reason}: {left.detail}"})
    values = {"state": "failed"} if row["state"] == "queued" else {}
    documents.update_document(tx, document_id, body=body, **values, updated_at=write.now)
    return StoredDocument(document_id, "failed")
