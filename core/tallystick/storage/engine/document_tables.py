"""The tables of documents: imports, the records of their sources, documents, attachments and the
chunks that memories are.
"""

from __future__ import annotations

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    ForeignKey,
    Index,
    Integer,
    Table,
    Text,
)

from tallystick.storage.engine.packing import PackedDigest
from tallystick.storage.engine.schema import Key, metadata

source_imports = Table(
    "source_imports",
    metadata,
    Column("id", Text, primary_key=True),
    Column("scope_id", Key, ForeignKey("scopes.id"), nullable=False),
    Column("source", Text, nullable=False),
    Column("adapter", Text, nullable=False),
    Column("adapter_version", Text, nullable=False),
    Column("privacy_class", Text, nullable=False),
    Column("target", Text, nullable=False),
    Column("corpus", Text, nullable=False),
    Column("corpus_version", Text),
    Column("title", Text, nullable=False),
    Column("lists_all", Boolean, nullable=False),
    Column("is_resync", Boolean, nullable=False),
    Column("options", Text, nullable=False),
    Column("schedule", Text),
    Column("due_at", BigInteger),
    Column("state", Text, nullable=False),
    Column("cursor", Text),
    Column("total", Integer),
    Column("counters", Text, nullable=False),
    Column("worked", BigInteger, nullable=False),
    Column("error_code", Text),
    Column("error_text", Text),
    Column("job_id", Text),
    Column("created_by", Text, nullable=False),
    Column("created_at", BigInteger, nullable=False),
    Column("updated_at", BigInteger, nullable=False),
    Column("ended_at", BigInteger),
    Index(None, "scope_id", "source", "created_at"),
    Index(None, "due_at"),
)
"""One reading of a source, with its place and its counters. `source` is a digest of adapter and
corpus, keyed by the secret of the scope; `worked` are microseconds. `due_at` is when the next one
of a `schedule` begins, in the newest import that has it.
"""

source_records = Table(
    "source_records",
    metadata,
    Column("scope_id", Key, ForeignKey("scopes.id"), primary_key=True, autoincrement=False),
    Column("source", Text, primary_key=True),
    Column("record_id", Text, primary_key=True),
    Column("version", Text),
    Column("dedupe", Text),
    Column("state", Text, nullable=False),
    Column("reason", Text),
    Column("detail", Text),
    Column("document_id", Text),
    Column("import_id", Text, nullable=False),
    Column("is_gone", Boolean, nullable=False),
    Column("updated_at", BigInteger, nullable=False),
    Index(None, "scope_id", "dedupe"),
    Index(None, "document_id"),
    Index(None, "import_id"),
)
"""What a source has, as it was read last: `import_id` is the import that saw it last, `dedupe` a
digest of what it says, keyed by the secret of the scope.
"""

documents = Table(
    "documents",
    metadata,
    Column("id", Text, primary_key=True),
    Column("scope_id", Key, ForeignKey("scopes.id"), nullable=False),
    Column("source", Text, nullable=False),
    Column("state", Text, nullable=False),
    Column("version", Integer, nullable=False),
    Column("body", Text, nullable=False),
    Column("content_key", PackedDigest),
    Column("words", Integer, nullable=False),
    Column("occurred_at", BigInteger),
    Column("crawled_at", BigInteger, nullable=False),
    Column("created_at", BigInteger, nullable=False),
    Column("updated_at", BigInteger, nullable=False),
    Column("removed_at", BigInteger),
    Column("created_by", Text, nullable=False),
    Index(None, "scope_id", "created_at"),
)
"""One message, file or page; `body` is its title, addresses and metadata as JSON, and `content_key`
names what arrived in `parts`.
"""

attachments = Table(
    "attachments",
    metadata,
    Column("document_id", Text, ForeignKey("documents.id"), primary_key=True),
    Column("position", Integer, primary_key=True),
    Column("scope_id", Key, ForeignKey("scopes.id"), nullable=False),
    Column("name", Text, nullable=False),
    Column("media_type", Text, nullable=False),
    Column("size", BigInteger, nullable=False),
    Column("sha256", Text, nullable=False),
    Column("content_key", PackedDigest),
)
"""Files of a document; the bytes of those that are kept are in `parts`."""

chunks = Table(
    "chunks",
    metadata,
    Column("doc", Key, ForeignKey("memories.doc"), primary_key=True, autoincrement=False),
    Column("scope_id", Key, ForeignKey("scopes.id"), nullable=False),
    Column("document_id", Text, ForeignKey("documents.id"), nullable=False),
    Column("position", Integer, nullable=False),
    Column("is_current", Boolean, nullable=False),
    Index(None, "document_id", "position"),
)
"""The memories that a document is read into, by their place in it; one that is not current was in
an earlier version.
"""
