"""Storing: the documents of a batch, inside of an open transaction: new ones, new versions of those
that are there, and none twice.

A passage is a memory, stored and changed by what stores and changes every other one. It is found by
its words with the commit; its vectors come by the job that gives a scope those that it lacks.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

from tallystick.errors import StateConflict
from tallystick.memory.change import apply_modify, forget_one
from tallystick.memory.memory_write import MemoryWrite
from tallystick.memory.remember import PreparedMemory, ingest_all
from tallystick.records import ImportCounters, Memory, RecordState, part_key
from tallystick.storage import Connection
from tallystick.storage.rows import documents, memories, parts, source_rows
from tallystick.storage.rows.documents import NewChunk, StoredChunk
from tallystick.storage.rows.source_rows import StoredRecord
from tallystick_ingest.contract import Attachment
from tallystick_ingest.preparing import Batch, PreparedDocument, Source, placed, stored_id

Outcome = Literal["created", "changed", "unchanged", "duplicate", "failed"]
_CHANGED = ("content", "subject", "tags", "attributes")
"""The fields of a passage that come from its document."""
UNREAD = ("queued", "failed")
"""States of a document that is kept without its text."""
_WHY = "its source has changed"
_WHY_GONE = "its source has it no more"


class StoredDocument(NamedTuple):
    """What became of one record."""

    document_id: str
    outcome: Outcome
    chunks: int = 0
    """Memories that were made or changed."""


class _Passage(NamedTuple):
    """A passage to be stored at its place in a document."""

    passage: PreparedMemory
    document_id: str
    position: int


class StoredBatch(NamedTuple):
    """What became of a batch."""

    documents: list[StoredDocument]
    counters: ImportCounters


def store_batch(write: MemoryWrite, source: Source, batch: Batch) -> StoredBatch:
    """Store a batch; return what became of its records."""
    stored = _Storing(write, source).store(batch)
    if stored and batch.fingerprint is not None:
        write.enqueue_vectors(source.scope.id, batch.fingerprint)
    kinds = Counter(each.outcome for each in stored)
    counters = ImportCounters(
        seen=batch.size,
        stored=kinds["created"] + kinds["changed"],
        unchanged=len(batch.unchanged) + kinds["unchanged"],
        duplicate=kinds["duplicate"],
        skipped=dict(Counter(each.reason for each in batch.left if not each.is_failure)),
        failed=sum(each.is_failure for each in batch.left),
        removed=len(batch.gone),
        attachments=sum(len(each.attachments) for each in batch.documents),
        chunks=sum(each.chunks for each in stored),
    )
    return StoredBatch(stored, counters)


def record_row(
    write: MemoryWrite, source: Source, record_id: str, state: RecordState, **known: Any
) -> StoredRecord:
    """Return what is known of a record as a row."""
    place = source.scope.id, source.key, record_id
    return StoredRecord(*place, state, source.import_id, write.now, **known)


def new_document(write: MemoryWrite, document_id: str, row: Mapping[str, Any]) -> dict[str, Any]:
    """Return the row of a document that is its first version."""
    first = {"id": document_id, "version": 1, "created_at": write.now}
    return {**row, **first, "created_by": write.actor.user}


@dataclass
class _Storing:
    """The open transaction in which a batch is stored, and the rows of new documents, which are
    stored together.
    """

    write: MemoryWrite
    source: Source
    documents: list[dict[str, Any]] = field(default_factory=list)
    bodies: list[dict[str, Any]] = field(default_factory=list)
    """What arrived, as rows of `parts`."""
    passages: list[_Passage] = field(default_factory=list)

    def store(self, batch: Batch) -> list[StoredDocument]:
        """Store a batch; return what became of its documents."""
        tx, scope, key = self.write.tx, self.source.scope, self.source.key
        names = [stored_id(each.record.record_id) for each in batch.documents]
        left_names = [each.record_id for each in batch.left]
        known = source_rows.records_by_id(tx, scope.id, key, {*names, *left_names})
        digests = [each.dedupe for each in batch.documents]
        saying = source_rows.documents_saying(tx, scope.id, digests)
        named = {each.document_id for each in known.values() if each.document_id is not None}
        counts = source_rows.records_naming(tx, named)
        rows, stored = dict[str, StoredRecord](), list[StoredDocument]()
        for record_id, each in zip(names, batch.documents, strict=True):
            # Of a record that a batch has twice the later one holds.
            before = rows.get(record_id) or known.get(record_id)
            own = None if before is None else before.document_id
            is_changed = before is None or before.dedupe != each.dedupe
            if own is None and each.dedupe in saying:
                one = StoredDocument(saying[each.dedupe], "duplicate")
            elif own is None or (is_changed and counts.get(own, 1) > 1):
                # What several records say is not changed for all of them.
                one = self._add(each)
            else:
                self._store_new()
                one = self._change(each, own, is_changed=is_changed)
            saying.setdefault(each.dedupe, one.document_id)
            rows[record_id] = record_row(
                self.write,
                self.source,
                record_id,
                "embedding_pending",
                version=stored_id(each.record.version),
                dedupe=each.dedupe,
                document_id=one.document_id,
            )
            stored.append(one)
        self._store_new()
        for left in batch.left:
            before = rows.get(left.record_id) or known.get(left.record_id)
            rows[left.record_id] = record_row(
                self.write,
                self.source,
                left.record_id,
                "failed" if left.is_failure else "skipped",
                version=None if left.version is None else stored_id(left.version),
                reason=left.reason,
                detail=stored_id(left.detail[:500]),
                # What was read from it before stays, with why it could not be read again.
                document_id=None if before is None else before.document_id,
            )
        source_rows.put_records(tx, rows.values())
        for record_ids, is_gone in ((batch.unchanged, False), (batch.gone, True)):
            source_rows.note_seen(
                tx, scope.id, key, record_ids, self.source.import_id, is_gone=is_gone
            )
        return stored

    def _add(self, prepared: PreparedDocument) -> StoredDocument:
        write, scope = self.write, self.source.scope
        document_id, key = write.context.store.ids.new(), part_key(scope.secret, prepared.raw)
        body = {"scope_id": scope.id, "key": key, "body": prepared.raw, "created_at": write.now}
        self.bodies.append(body)
        row = {**self._row(prepared), "content_key": key}
        self.documents.append(new_document(write, document_id, row))
        if prepared.attachments:
            self._store_new()
            self._add_attachments(prepared, document_id)
        chunks = enumerate(prepared.chunks)
        self.passages += [_Passage(each, document_id, position) for position, each in chunks]
        return StoredDocument(document_id, "created", len(prepared.chunks))

    def _store_new(self) -> None:
        """Store the new documents of which the rows were made."""
        parts.put_keyed(self.write.tx, self.bodies)
        documents.add_documents(self.write.tx, self.documents)
        self._add_passages(self.passages)
        self.documents, self.bodies, self.passages = [], [], []

    def _row(self, prepared: PreparedDocument) -> dict[str, Any]:
        return {
            "scope_id": self.source.scope.id,
            "source": self.source.key,
            "state": "embedding",
            "body": json.dumps(prepared.body),
            "words": prepared.words,
            "occurred_at": prepared.record.occurred_at,
            "crawled_at": self.write.now,
            "updated_at": self.write.now,
        }

    def _add_attachments(self, prepared: PreparedDocument, document_id: str) -> None:
        rows = [
            {
                "name": stored_id(each.name),
                "media_type": stored_id(each.media_type),
                "size": each.size,
                "sha256": each.sha256,
                "content_key": None if each.content is None else self._put(each.content),
            }
            for each in prepared.attachments
        ]
        documents.add_attachments(self.write.tx, document_id, self.source.scope.id, rows)

    def _put(self, body: bytes) -> str:
        return parts.put(self.write.tx, self.source.scope, body, at=self.write.now)

    def _add_passages(self, passages: Sequence[_Passage]) -> None:
        """Store passages as memories, and where they stand."""
        at = self.write.now
        turns = [placed(each.passage, each.document_id, each.position, at) for each in passages]
        chunks = [
            NewChunk(self.write.docs[memory.id], each.document_id, each.position)
            for memory, each in zip(
                ingest_all(self.write, self.source.scope, turns), passages, strict=True
            )
        ]
        documents.add_chunks(self.write.tx, self.source.scope.id, chunks)

    def _change(
        self, prepared: PreparedDocument, document_id: str, *, is_changed: bool
    ) -> StoredDocument:
        """Bring a document, and the passages that differ, to what its source says now. Of records
        that say the same the document has the name of one, and only that one is read anew into it.
        """
        write, tx = self.write, self.write.tx
        row = documents.find_document(tx, document_id)
        assert row is not None
        name = json.loads(row["body"]).get("record_id")
        if not is_changed and name not in (None, prepared.body["record_id"]):
            return StoredDocument(document_id, "unchanged")
        there = documents.chunks_of(tx, [document_id]).get(document_id, [])
        stored = memories.get_docs(tx, [each.doc for each in there])
        changed, added, back, gone = 0, list[_Passage](), list[int](), list[int]()
        places = {each.position: each for each in there}
        for position, chunk in enumerate(prepared.chunks):
            place = places.pop(position, None)
            if place is None:
                added.append(_Passage(chunk, document_id, position))
                continue
            new = placed(chunk, document_id, position, write.now)
            changed += self._change_chunk(new, place, stored[place.doc])
            if not place.is_current:
                back.append(place.doc)
        for place in places.values():
            if place.is_current:
                changed += _forget_chunk(write, stored[place.doc], _WHY)
                gone.append(place.doc)
        self._add_passages(added)
        documents.set_current(tx, back, True)
        documents.set_current(tx, gone, False)
        values = {**self._row(prepared), "content_key": self._put(prepared.raw)}
        is_unread = row["state"] in UNREAD
        has_other = has_other_files(tx, document_id, prepared.attachments)
        is_same = not (is_unread or changed or added or has_other)
        if is_same and all(row[name] == values[name] for name in ("body", "content_key")):
            documents.update_document(tx, document_id, crawled_at=write.now)
            return StoredDocument(document_id, "unchanged")
        # What is only kept yet, and not read, has no version before this one.
        version = row["version"] + (not is_unread)
        documents.update_document(tx, document_id, **values, version=version)
        if row["content_key"] not in (None, values["content_key"]):
            parts.drop(tx, self.source.scope.id, row["content_key"])
        documents.drop_attachments(tx, [document_id])
        self._add_attachments(prepared, document_id)
        outcome: Outcome = "created" if is_unread else "changed"
        return StoredDocument(document_id, outcome, changed + len(added))

    def _change_chunk(
        self, chunk: PreparedMemory, place: StoredChunk, stored: memories.Stored
    ) -> int:
        """Let a passage say what its document says now; return the number of memories that changed.
        What a person hid, forgot, corrected or pinned stays as it is.
        """
        write, memory = self.write, stored.memory
        if place.is_current and not _is_followed(write, memory):
            return 0
        values: dict[str, Any] = {name: getattr(chunk.new, name) for name in _CHANGED}
        values["tags"] = tuple(chunk.new.tags)
        if place.is_current and not _differs(memory, values):
            return 0
        try:
            permitted = write.permit(stored, "correct")
        except StateConflict:
            return 0
        after = memory.model_copy(update=values)
        if place.is_current:
            fields = [name for name in _CHANGED if values[name] != getattr(memory, name)]
            apply_modify(write, permitted, after, None, fields, _WHY, chunk.reference)
            return 1
        # It left with an earlier version: its place says something anew.
        key = self._put(after.content.encode("utf-8", "surrogatepass"))
        source_id = write.add_source(self.source.scope, chunk.reference, key)
        memories.link_source(write.tx, stored.doc, source_id)
        again = after.model_copy(update={"state": "active", "corrected": None})
        write.rewrite(
            permitted,
            again,
            "memory.recover",
            reason=_WHY,
            content_key=key,
            details={"source": source_id},
        )
        return 1


def has_other_files(
    connection: Connection, document_id: str, attachments: Sequence[Attachment]
) -> bool:
    """Return True if a document is stored with other attachments than these."""
    there = documents.attachments_of(connection, document_id)
    files = [(stored_id(each.name), each.sha256) for each in attachments]
    return files != [(each["name"], each["sha256"]) for each in there]


def _is_followed(write: MemoryWrite, memory: Memory) -> bool:
    is_locked = memory.locked_until is not None and write.now < memory.locked_until
    return memory.state == "active" and memory.corrected is None and not is_locked


def _differs(memory: Memory, values: Mapping[str, Any]) -> bool:
    attributes = {**values["attributes"], "crawled_at": memory.attributes.get("crawled_at")}
    return any(
        getattr(memory, name) != (attributes if name == "attributes" else values[name])
        for name in _CHANGED
    )


def _forget_chunk(write: MemoryWrite, stored: memories.Stored, reason: str) -> int:
    if stored.memory.state == "deleted":
        return 0
    try:
        permitted = write.permit(stored, "delete")
    except StateConflict:
        return 0  # a person pinned it
    forget_one(write, permitted, reason)
    return 1


def remove_document(write: MemoryWrite, document_id: str, chunks: Sequence[StoredChunk]) -> int:
    """Forget the passages of a document that its source has no more; return their number. Each can
    be recovered for a while.
    """
    current = [each for each in chunks if each.is_current]
    stored = memories.get_docs(write.tx, [each.doc for each in current])
    count = sum(_forget_chunk(write, each, _WHY_GONE) for each in stored.values())
    documents.update_document(write.tx, document_id, removed_at=write.now, updated_at=write.now)
    return count
