"""Documents and their imports: Import, ImportPreview, ImportedRecord, Removal, Document,
DocumentChunk.
"""

from collections.abc import Sequence
from typing import Annotated, Literal

from pydantic import Field

from tallystick.records._base import IdOf, JsonObject, Record, tuple_of
from tallystick.records.identity import Scope
from tallystick.records.times import datetime_of, optional_datetime_of

ImportState = Literal["pending", "running", "paused", "completed", "failed", "cancelled"]
"""`paused`: a person paused it, or its source wants a credential (`authorization_needed`)."""
RecordState = Literal[
    "metadata_ready",
    "content_ready",
    "extraction_pending",
    "extracted",
    "embedding_pending",
    "indexed",
    "skipped",
    "failed",
]
"""From `embedding_pending` on a record is found by its words; `indexed` also by its vectors."""
DocumentState = Literal[
    "queued", "extracting", "chunking", "embedding", "indexing", "done", "failed"
]
"""`queued`: what arrived is stored. `embedding`: it is found by its words, and its vectors are to
come. `failed`: no text could be read from what arrived, which is kept.
"""
RecordStates = Annotated[Sequence[RecordState], tuple_of(RecordState)]
"""States of records."""


class ImportCounters(Record):
    """The records of one import, counted by what became of them."""

    seen: int = 0
    """Records that were read, whatever became of them."""
    stored: int = 0
    """Records that became a document, or a new version of one."""
    unchanged: int = 0
    """Records that are stored as they are."""
    duplicate: int = 0
    """Records that say what another record of the scope does."""
    skipped: dict[str, int] = {}
    """Records that were left out, by the reason."""
    failed: int = 0
    """Records that could not be stored."""
    removed: int = 0
    """Records that the source says are gone: they stay until somebody removes them."""
    attachments: int = 0
    chunks: int = 0
    """Memories that were made or changed."""


class Import(Record):
    """One reading of a source into a scope."""

    id: str
    scope: Scope
    adapter: str
    """The name of what reads the source, such as `files`."""
    adapter_version: str
    target: str
    """What was asked to be read, such as a folder."""
    title: str
    """The name of the corpus for people."""
    source: str
    """The same for each import of a corpus."""
    privacy_class: Literal["personal", "internal", "public"]
    state: ImportState
    is_resync: bool = False
    """True if records are read again that have the stored version."""
    options: JsonObject = {}
    """What the adapter was told beside the target, such as the depth of a crawl."""
    schedule: str | None = None
    """By which the source is imported again, as cron has it, in UTC."""
    due_at: int | None = None
    """Microseconds UTC when the next import begins by itself."""
    due_time = optional_datetime_of("due_at")
    counters: ImportCounters
    waiting: int = 0
    """Records that are found by their words and have no vectors yet."""
    total: int | None = None
    """Records of the corpus: counted before they are read, or reckoned from how much of it was read
    so far; None where neither can be told.
    """
    seconds_left: int | None = None
    """How long the rest takes at the pace so far; None where that is not known."""
    vanished: int = 0
    """Records of the source that are not there any more: `remove_vanished` previews their removal.
    """
    error_code: str | None = None
    """Why it is paused, failed or tries again."""
    error_text: str | None = None
    retry_at: int | None = None
    """Microseconds UTC of the next attempt, where one failed."""
    retry_time = optional_datetime_of("retry_at")
    job_id: str | None = None
    created_by: str
    created_at: int
    created_time = datetime_of("created_at")
    updated_at: int
    """Microseconds UTC of the last batch."""
    updated_time = datetime_of("updated_at")
    ended_at: int | None = None
    ended_time = optional_datetime_of("ended_at")


class ImportedRecord(Record):
    """What an import knows of one record of its source."""

    record_id: str
    version: str | None = None
    state: RecordState
    reason: str | None = None
    """Why it was skipped."""
    detail: str | None = None
    """What was found."""
    document_id: str | None = None
    is_gone: bool = False
    updated_at: int
    updated_time = datetime_of("updated_at")


class DocumentAttachment(Record):
    """A file that belongs to a document."""

    name: str
    media_type: str
    size: int
    """Bytes."""
    sha256: str
    is_kept: bool
    """False for one of which only this is known."""


class Document(Record):
    """One message, file or page."""

    id: str
    scope: Scope
    title: str = ""
    url: str | None = None
    parent_url: str | None = None
    record_id: str | None = None
    media_type: str = ""
    state: DocumentState
    version: int
    chunks: int
    """The number of memories that it was read into."""
    words: int = 0
    participants: tuple[str, ...] = ()
    thread: str | None = None
    labels: tuple[str, ...] = ()
    metadata: JsonObject = {}
    transforms: tuple[str, ...] = ()
    """What was done to what arrived, as name/version."""
    attachments: tuple[DocumentAttachment, ...] = ()
    is_raw_kept: bool = True
    """False where what arrived is not kept beside its chunks: it was erased, or held a secret."""
    error: str | None = None
    """Why no text could be read from it."""
    occurred_at: int | None = None
    occurred_time = optional_datetime_of("occurred_at")
    crawled_at: int
    """Microseconds UTC when it was read."""
    crawled_time = datetime_of("crawled_at")
    created_at: int
    created_time = datetime_of("created_at")
    updated_at: int
    updated_time = datetime_of("updated_at")
    removed_at: int | None = None
    removed_time = optional_datetime_of("removed_at")
    created_by: str
    outcome: Literal["created", "changed", "unchanged", "duplicate", "failed"] | None = None
    """What adding it did, in the answer to that alone."""


class DocumentChunk(Record):
    """A passage of a document, which is a memory."""

    memory_id: str
    position: int
    """Its place in the document, counted from 0."""
    section_path: tuple[str, ...] = ()
    """The headings above it, the outermost first."""
    text: str | None
    """None where it is hidden, redacted or forgotten."""
    words: int
    content_hash: str | None = None
    """SHA-256 of its text."""


class ImportPreview(Record):
    """What an import would change: the source was read, and nothing was stored."""

    adapter: str
    target: str
    title: str
    new: int = 0
    """Records that would become documents."""
    changed: int = 0
    """Records that would become new versions."""
    unchanged: int = 0
    """Records that say what is stored already."""
    vanished: int = 0
    """Records that the source has no more: they stay until somebody removes them."""
    skipped: dict[str, int] = {}
    """Records that the source itself leaves out, by the reason."""
    new_records: tuple[str, ...] = ()
    """The first of the new ones, by their ids."""
    changed_records: tuple[str, ...] = ()
    vanished_records: tuple[str, ...] = ()
    is_whole: bool = True
    """False where the source was not read to its end within a minute: what vanished is not known
    then.
    """


class RemovedRecord(Record):
    """A record that is not in its source any more."""

    record_id: str
    document_id: str | None
    title: str = ""
    chunks: int = 0
    """Memories that are forgotten with it; 0 where another record is the same document."""


class Removal(Record):
    """The preview of what vanished from a source, or the result of its removal."""

    mode: Literal["preview", "apply"]
    import_id: str
    records: tuple[RemovedRecord, ...]
    forgotten: int = 0
    """Memories that left recall; each can be recovered for a while."""
    confirm_token: str | None = None
    """Permits the removal of exactly these; None where nothing vanished."""
    expires_at: int | None = None
    """Microseconds UTC from which on the token is refused."""
    expires_time = optional_datetime_of("expires_at")
    audit_id: str | None = None


ImportId = Annotated[str, IdOf("import"), Field(description="Id of an import.")]
DocumentId = Annotated[str, IdOf("document"), Field(description="Id of a document.")]
