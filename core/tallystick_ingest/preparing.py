"""Preparing: what a source yields as documents to be stored, read and cut before any transaction.

A secret is replaced in the text as a whole before it is cut, since no rule knows half of one.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from tallystick.errors import EmbeddingError, InvalidInput, MissingExtra
from tallystick.formats import Extracted, Unextractable, extract
from tallystick.memory.context import MemoryContext
from tallystick.memory.remember import PreparedMemory, check_new
from tallystick.memory.secrets import admit_fields
from tallystick.records import (
    Actor,
    JsonObject,
    NewMemory,
    SourceRef,
    is_storable,
    part_key,
)
from tallystick.records._base import LONGEST_NAME, MOST_TAGS
from tallystick.records.framing import NOTICE, OPEN, without_recalls
from tallystick.records.memory import SourceType
from tallystick.storage import ScopeRow
from tallystick.storage.rows.source_rows import StoredRecord
from tallystick_ingest.chunking import Chunk, chunk
from tallystick_ingest.contract import (
    LARGEST_ATTACHMENT,
    Attachment,
    Removed,
    Skipped,
    SkipReason,
    SourceRecord,
    Unchanged,
    Yielded,
)

_BY_SERVICE = "redacted/1"
"""The transform of a body of which secrets were replaced."""
_READABLE = ("text/", "application/json", "application/xml")
"""Media types whose bytes are searched for secrets before they are kept."""


@dataclass(frozen=True, kw_only=True)
class Source:
    """Where records come from, and whose they become."""

    scope: ScopeRow
    key: str
    """A digest of adapter and corpus under the secret of the scope."""
    import_id: str
    """The import that reads them, or what else caused it."""
    is_resync: bool = False
    """True if records are stored anew that have the stored version."""
    author: str = ""
    """The adapter with its version."""


def source_of(scope: ScopeRow, row: Mapping[str, Any]) -> Source:
    """Return the source of an import."""
    return Source(
        scope=scope,
        key=row["source"],
        import_id=row["id"],
        is_resync=row["is_resync"],
        author=f"{row['adapter']}/{row['adapter_version']}",
    )


@dataclass(frozen=True, slots=True)
class Left:
    """A record that becomes no document."""

    record_id: str
    version: str | None
    reason: str
    detail: str
    is_failure: bool = False


@dataclass(frozen=True, slots=True)
class PreparedDocument:
    """A record that becomes a document, or a new version of one."""

    record: SourceRecord
    dedupe: str
    body: JsonObject
    """What is known of it beside its text."""
    raw: bytes
    chunks: tuple[PreparedMemory, ...]
    """Its passages in their order, without a document to belong to yet."""
    attachments: tuple[Attachment, ...]
    words: int


@dataclass
class Batch:
    """What a source yielded between two checkpoints."""

    documents: list[PreparedDocument] = field(default_factory=list)
    left: list[Left] = field(default_factory=list)
    unchanged: list[str] = field(default_factory=list)
    gone: list[str] = field(default_factory=list)
    fingerprint: str | None = None
    """That of the embedder by whose vectors the chunks will be found, where there is one here."""

    @property
    def size(self) -> int:
        """The number of records in it."""
        return len(self.documents) + len(self.left) + len(self.unchanged) + len(self.gone)


def prepare_batch(
    context: MemoryContext,
    actor: Actor,
    source: Source,
    records: Iterable[Yielded],
    known: Mapping[str, StoredRecord],
) -> Batch:
    """Return what the records of a source become; `known` is what is stored of them."""
    batch = Batch(fingerprint=fingerprint_of(context))
    for each in records:
        if isinstance(each, Unchanged):
            batch.unchanged.append(stored_id(each.record_id))
        elif isinstance(each, Removed):
            batch.gone.append(stored_id(each.record_id))
        elif isinstance(each, Skipped):
            batch.left.append(Left(stored_id(each.record_id), None, each.reason, each.detail))
        elif isinstance(each, SourceRecord):
            stored = known.get(stored_id(each.record_id))
            if not source.is_resync and is_same(stored, each.version):
                batch.unchanged.append(stored_id(each.record_id))
                continue
            prepared = prepare_record(context, actor, source, each)
            if isinstance(prepared, Left):
                batch.left.append(prepared)
            else:
                batch.documents.append(prepared)
    return batch


def is_same(stored: StoredRecord | None, version: str) -> bool:
    """Return True if a record is stored, or was left out, at a version."""
    return stored is not None and stored.version == stored_id(version) and not stored.is_gone


def fingerprint_of(context: MemoryContext) -> str | None:
    """Return the fingerprint of the embedder here; None for one far away, or that is not there."""
    if not context.local_embedder:
        return None
    try:
        return context.embedder.fingerprint
    except EmbeddingError:
        return None


def prepare_record(
    context: MemoryContext, actor: Actor, source: Source, record: SourceRecord
) -> PreparedDocument | Left:
    """Return a record as the document that it becomes, or why it becomes none."""
    try:
        extracted = extract(record.body, record.media_type, record.record_id)
    except Unextractable as error:
        return Left(stored_id(record.record_id), record.version, error.reason, error.detail)
    except MissingExtra as error:
        # Without a version, so that an import reads it again once the package is there.
        missing: SkipReason = "missing_extra"
        return Left(stored_id(record.record_id), None, missing, str(error))
    try:
        return _prepare_text(context, actor, source, record, extracted)
    except InvalidInput as error:
        return Left(
            stored_id(record.record_id), record.version, error.code, str(error), is_failure=True
        )


def _prepare_text(
    context: MemoryContext, actor: Actor, source: Source, record: SourceRecord, found: Extracted
) -> PreparedDocument | Left:
    scope = source.scope.scope
    text = found.text
    if OPEN in text or NOTICE in text:
        text = without_recalls(text, context.frame_keys.checking(actor, scope))
    title = _name(record.title or found.title or record.record_id)
    metadata = json.loads(json.dumps(dict(record.metadata), default=str))
    about: JsonObject = {
        "url": _stored(record.url),
        "parent_url": _stored(record.parent_url),
        "participants": [stored_id(each) for each in record.participants],
        "thread": _stored(record.thread),
        "metadata": metadata,
    }
    labels = tuple(map(_name, record.labels))[:MOST_TAGS]
    fields = {"content": text, "subject": title, "tags": labels, "attributes": about}
    admitted = admit_fields(context, scope, fields).fields
    text = str(admitted.get("content", text))
    title = str(admitted.get("subject", title))
    about = dict(admitted.get("attributes", about))
    labels = tuple(admitted.get("tags", labels))
    passages = chunk(text)
    if not passages:
        empty: SkipReason = "empty"
        return Left(stored_id(record.record_id), record.version, empty, "It has no words.")
    transforms = [*record.transforms, *found.transforms]
    raw = record.body
    if text != found.text:
        raw = text  # what arrived holds what may not be stored
        transforms.append(_BY_SERVICE)
    body: JsonObject = {
        **about,
        "title": title,
        "record_id": _name(record.record_id),
        "media_type": record.media_type,
        "labels": list(labels),
        "transforms": list(transforms),
    }
    reference = _reference(record, title, about, source.author)
    chunks = [
        _memory(context, text, each, record, title, labels, about, reference) for each in passages
    ]
    return PreparedDocument(
        record=record,
        dedupe=digest_of(source.scope, record),
        body=body,
        raw=raw if isinstance(raw, bytes) else raw.encode("utf-8", "surrogatepass"),
        chunks=tuple(chunks),
        attachments=tuple(_attachment(context, each) for each in record.attachments),
        words=len(text.split()),
    )


def _reference(record: SourceRecord, title: str, about: JsonObject, author: str) -> SourceRef:
    """Return where the passages of a document come from: never somebody of this tally."""
    url = about.get("url")
    address = url if isinstance(url, str) else None
    is_far = address is not None and not address.startswith("file:")
    kind: SourceType = "retrieval" if is_far else "file"
    people = about.get("participants")
    return SourceRef(
        source_type=kind,
        uri=address or stored_id(record.record_id),
        title=title,
        version=stored_id(record.version),
        author=str(people[0]) if isinstance(people, list) and people else None,
        metadata={"adapter": author} if author else {},
    )


def _memory(
    context: MemoryContext,
    text: str,
    passage: Chunk,
    record: SourceRecord,
    title: str,
    labels: Sequence[str],
    about: JsonObject,
    reference: SourceRef,
) -> PreparedMemory:
    content = text[passage.start : passage.end]
    path = [_name(each) for each in passage.section_path]
    if path[:1] == [title]:
        path = path[1:]
    attributes: JsonObject = {
        "title": title,
        "section_path": list(path),
        "content_hash": hashlib.sha256(content.encode("utf-8", "surrogatepass")).hexdigest(),
    }
    for name in ("url", "parent_url"):
        if about.get(name):
            attributes[name] = about[name]
    new = NewMemory(
        content=content,
        kind="document",
        subject=_name(" › ".join((title, *path))),
        occurred_at=record.occurred_at,
        tags=labels,
        attributes=attributes,
    )
    check_new(context, new)
    place = reference.model_copy(update={"positions": ((passage.start, passage.end),)})
    return PreparedMemory(new, place, None, ())


def placed(chunk: PreparedMemory, document_id: str, position: int, at: int) -> PreparedMemory:
    """Return a passage at its place in a document, read at a moment."""
    attributes = {**chunk.new.attributes, "document_id": document_id, "crawled_at": at}
    update = {
        "conversation": conversation_of(document_id),
        "position": position,
        "attributes": attributes,
    }
    return replace(chunk, new=chunk.new.model_copy(update=update))


def conversation_of(document_id: str) -> str:
    """Return the conversation whose turns are the passages of a document: those beside one are its
    neighbours.
    """
    return f"document:{document_id}"


def _attachment(context: MemoryContext, attachment: Attachment) -> Attachment:
    """Return an attachment as it may be stored: without its bytes where it is too large, or where a
    secret is found in them.
    """
    content = attachment.content
    if content is None:
        return attachment
    is_kept = len(content) <= LARGEST_ATTACHMENT
    if is_kept and context.secrets_in_memory != "keep":
        is_text = attachment.media_type.startswith(_READABLE)
        is_kept = not (
            is_text and context.redactor.redact_text(content.decode("utf-8", "replace"))[1]
        )
    return attachment if is_kept else replace(attachment, content=None)


def stored_id(record_id: str) -> str:
    """Return the id of a record as every database can store it."""
    return record_id if is_storable(record_id) else ascii(record_id)


def _stored(text: str | None) -> str | None:
    return None if text is None else stored_id(text)


def _name(text: str) -> str:
    """Return a text that every database can store as a name."""
    clean = text.encode("utf-8", "replace").decode().replace("\x00", "")
    clean = " ".join(clean.split())
    return clean if len(clean) <= LONGEST_NAME else f"{clean[: LONGEST_NAME - 1]}…"


def digest_of(scope: ScopeRow, record: SourceRecord) -> str:
    """Return the digest of a record's content within a scope, which tells nothing of it."""
    return part_key(scope.secret, record.dedupe_key.encode("utf-8", "surrogatepass"))


def source_key(secret: bytes, adapter: str, corpus_id: str) -> str:
    """Return the name of a corpus within a scope, which tells nothing of it."""
    named = json.dumps(["source", adapter, corpus_id])
    return part_key(secret, named.encode("utf-8", "surrogatepass"))
