"""Documents as they are read: with their attachments, and their passages in their order."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from tallystick.access import visible_docs
from tallystick.memory import MemoryContext
from tallystick.records import (
    Actor,
    Document,
    DocumentAttachment,
    DocumentChunk,
    DocumentState,
    Scope,
)
from tallystick.storage import Connection, ScopeRow
from tallystick.storage.rows import documents, memories, scopes
from tallystick.storage.rows.documents import StoredChunk
from tallystick_ingest.visible import visible_document


def get_document(context: MemoryContext, actor: Actor, document_id: str) -> Document:
    """Return a document. Raises NotFound."""
    fingerprint = context.settled_fingerprint()
    with context.store.database.read() as connection:
        row, scope = visible_document(connection, context, actor, document_id)
        [document] = _documents_of(connection, [row], scope, fingerprint)
        files = documents.attachments_of(connection, document_id)
    context.gate.log_read(actor, "document", [scope.scope], results=1)
    names = ("name", "media_type", "size", "sha256")
    attachments = tuple(
        DocumentAttachment(
            **{name: each[name] for name in names}, is_kept=each["content_key"] is not None
        )
        for each in files
    )
    return document.replace(attachments=attachments)


def list_documents(
    context: MemoryContext, actor: Actor, scope: Scope, *, limit: int, before: str | None
) -> list[Document]:
    """Return the documents of a scope, newest first, without their attachments. Raises Denied,
    NotFound for an unknown `before`.
    """
    context.gate.require(actor, "read", scope)
    fingerprint = context.settled_fingerprint()
    with context.store.database.read() as connection:
        last = None
        if before is not None:
            row, _ = visible_document(connection, context, actor, before)
            last = (row["created_at"], before)
        found = scopes.find(connection, [scope])
        if not found:
            return []
        rows = documents.documents_of(connection, found[0].id, limit=limit, before=last)
        listed = _documents_of(connection, rows, found[0], fingerprint)
    context.gate.log_read(actor, "documents", [scope], results=len(listed))
    return listed


def _documents_of(
    connection: Connection,
    rows: Sequence[Mapping[str, Any]],
    scope: ScopeRow,
    fingerprint: str | None,
) -> list[Document]:
    ids = [row["id"] for row in rows]
    chunks = documents.chunks_of(connection, ids)
    waiting = documents.unembedded(connection, ids, fingerprint)
    return [
        _document_of(row, scope, chunks.get(row["id"], []), row["id"] in waiting) for row in rows
    ]


def _document_of(
    row: Mapping[str, Any], scope: ScopeRow, chunks: Sequence[StoredChunk], is_waiting: bool
) -> Document:
    body = json.loads(row["body"])
    state: DocumentState = row["state"]
    if state == "embedding" and not is_waiting:
        state = "done"
    return Document.load(
        {
            **{name: row[name] for name in Document.model_fields if name in row},
            **{name: body[name] for name in Document.model_fields if body.get(name) is not None},
            "scope": str(scope.scope),
            "state": state,
            "chunks": sum(each.is_current for each in chunks),
            "is_raw_kept": row["content_key"] is not None,
        }
    )


def list_chunks(context: MemoryContext, actor: Actor, document_id: str) -> list[DocumentChunk]:
    """Return the passages of a document in their order; one that is hidden, redacted or forgotten
    without its text. Raises NotFound.
    """
    now = context.store.clock.now()
    with context.store.database.read() as connection:
        _, scope = visible_document(connection, context, actor, document_id)
        there = documents.chunks_of(connection, [document_id]).get(document_id, [])
        current = [each for each in there if each.is_current]
        stored = memories.get_docs(connection, [each.doc for each in current])
        visible = visible_docs(connection, context.gate, actor, list(stored.values()), now)
    context.gate.log_read(actor, "chunks", [scope.scope], results=len(current))
    return [_chunk_of(each, stored[each.doc], each.doc in visible) for each in current]


def _chunk_of(chunk: StoredChunk, stored: memories.Stored, is_visible: bool) -> DocumentChunk:
    memory = stored.memory
    if not is_visible or memory.state in ("hidden", "redacted", "deleted"):
        return DocumentChunk(memory_id=memory.id, position=chunk.position, text=None, words=0)
    path, digest = memory.attributes.get("section_path"), memory.attributes.get("content_hash")
    return DocumentChunk(
        memory_id=memory.id,
        position=chunk.position,
        section_path=tuple(map(str, path)) if isinstance(path, list) else (),
        text=memory.content,
        words=len(memory.content.split()),
        content_hash=None if digest is None else str(digest),
    )
