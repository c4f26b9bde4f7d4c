"""Every table, once: SQLAlchemy Core, for SQLite and PostgreSQL alike.

Text that a person wrote is in `memory_versions`, `search_text` and `parts`, all of which can be
erased. `journal` contains ids, counts, digests and reason codes only. Times are integer
microseconds UTC; JSON is stored as text, because digests are taken of the stored bytes.
"""

from __future__ import annotations

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    Table,
    Text,
    UniqueConstraint,
    text,
)

from tallystick.storage.engine.derived_tables import communities as communities
from tallystick.storage.engine.derived_tables import community_members as community_members
from tallystick.storage.engine.derived_tables import derived as derived
from tallystick.storage.engine.derived_tables import entity_names as entity_names
from tallystick.storage.engine.derived_tables import item_summaries as item_summaries
from tallystick.storage.engine.derived_tables import partitions as partitions
from tallystick.storage.engine.derived_tables import recall_segments as recall_segments
from tallystick.storage.engine.derived_tables import relation_mentions as relation_mentions
from tallystick.storage.engine.derived_tables import relations as relations
from tallystick.storage.engine.derived_tables import search_text as search_text
from tallystick.storage.engine.derived_tables import vectors as vectors
from tallystick.storage.engine.document_tables import attachments as attachments
from tallystick.storage.engine.document_tables import chunks as chunks
from tallystick.storage.engine.document_tables import documents as documents
from tallystick.storage.engine.document_tables import source_imports as source_imports
from tallystick.storage.engine.document_tables import source_records as source_records
from tallystick.storage.engine.packing import PackedBytes, PackedDigest, PackedId, PackedText
from tallystick.storage.engine.schema import Key, Ordered
from tallystick.storage.engine.schema import metadata as metadata
from tallystick.storage.engine.steward_tables import operation_minutes as operation_minutes
from tallystick.storage.engine.synthesis_tables import synthesis_quotes as synthesis_quotes
from tallystick.storage.engine.synthesis_tables import synthesis_runs as synthesis_runs

settings = Table(
    "settings",
    metadata,
    Column("name", Text, primary_key=True),
    Column("value", Text, nullable=False),
)
"""Facts of the tally: its id, its owner, the embedder of its vectors, the generation of the index.
"""

scopes = Table(
    "scopes",
    metadata,
    Column("id", Key, primary_key=True, autoincrement=True),
    Column("name", Text, nullable=False, unique=True),
    Column("secret", LargeBinary, nullable=False),
    Column("revision", BigInteger, nullable=False, server_default="0"),
    Column("floor", BigInteger, nullable=False, server_default="0"),
)
"""Each scope with the key of its part keys and the revision of its searchable text.

`floor` is the revision at which text was last erased: what was derived before is not used again.
"""

spaces = Table(
    "spaces",
    metadata,
    Column("id", Text, primary_key=True),
    Column("scope", Text, nullable=False, unique=True),
    Column("version", Integer, nullable=False),
    Column("body", Text, nullable=False),
)
"""Stored scopes with their members, one row per scope; `body` is the MemorySpace as JSON."""

access_tokens = Table(
    "access_tokens",
    metadata,
    Column("id", Text, primary_key=True),
    Column("digest", Text, nullable=False, unique=True),
    Column("created_at", BigInteger, nullable=False),
    Column("expires_at", BigInteger, nullable=False),
    Column("body", Text, nullable=False),
)
"""Tokens of access over a network; `digest` is that of the secret, `body` the AccessToken as
JSON.
"""

approvals = Table(
    "approvals",
    metadata,
    Column("id", Text, primary_key=True),
    Column("scope_id", Key, ForeignKey("scopes.id"), nullable=False),
    Column("state", Text, nullable=False),
    Column("action", Text, nullable=False),
    Column("subject", Text, nullable=False),
    Column("arguments", Text),
    Column("digest", Text, nullable=False),
    Column("rule_id", Text, nullable=False),
    Column("reason", Text, nullable=False),
    Column("asked_by", Text, nullable=False),
    Column("surface", Text, nullable=False),
    Column("run_id", Text),
    Column("step_id", Text),
    Column("receipts", Text, nullable=False),
    Column("created_at", BigInteger, nullable=False),
    Column("expires_at", BigInteger, nullable=False),
    Column("decided_by", Text),
    Column("decided_reason", Text),
    Column("decided_at", BigInteger),
    Column("used_at", BigInteger),
    Column("schema_version", Integer, nullable=False),
    Index(
        "uq_approvals_open",
        "scope_id",
        "digest",
        unique=True,
        sqlite_where=text("state IN ('pending', 'granted')"),
    ),
    Index(None, "scope_id", "state", "created_at"),
    Index(None, "run_id"),
)
"""Actions that wait for a person, and what was decided. `arguments` is for showing and can be
erased; `digest` is keyed by the secret of the scope and covers the exact arguments.
"""

anchors = Table(
    "anchors",
    metadata,
    Column("stream", Text, primary_key=True),
    Column("count", BigInteger, nullable=False),
    Column("head", Text, nullable=False),
    Column("created_at", BigInteger, nullable=False),
)
"""The end of the purged part of a stream: the number of entries removed, and the digest of the
last.
"""

streams = Table(
    "streams",
    metadata,
    Column("name", Text, primary_key=True),
    Column("count", BigInteger, nullable=False),
    Column("head", Text, nullable=False),
)
"""The head of each hash chain."""

journal = Table(
    "journal",
    metadata,
    Column("sequence", Key, primary_key=True, autoincrement=True),
    Column("audit_id", PackedId, nullable=False, unique=True),
    Column("stream", Text, nullable=False),
    Column("position", BigInteger, nullable=False),
    Column("event", Text, nullable=False),
    Column("subject_id", PackedId),
    Column("body", PackedText, nullable=False),
    Column("previous", PackedDigest, nullable=False),
    Column("digest", PackedDigest, nullable=False),
    Column("texts", PackedText),
    Column("salt", LargeBinary),
    UniqueConstraint("stream", "position"),
    Index(None, "subject_id", "sequence"),
    sqlite_autoincrement=True,
)
"""Append-only. `body` is canonical JSON and contains everything that the digest covers; `texts` is
what people wrote, to which the body commits, until it is erased.
"""

parts = Table(
    "parts",
    metadata,
    Column("scope_id", Key, ForeignKey("scopes.id"), primary_key=True),
    Column("key", PackedDigest, primary_key=True),
    Column("body", PackedBytes, nullable=False),
    Column("created_at", BigInteger, nullable=False),
)
"""Bodies stored once per scope under their keyed digest: sources, payloads, checkpoint values."""

sources = Table(
    "sources",
    metadata,
    Column("id", PackedId, primary_key=True),
    Column("scope_id", Key, ForeignKey("scopes.id"), nullable=False),
    Column("source_type", Text, nullable=False),
    Column("uri", Text),
    Column("title", Text),
    Column("source_version", Text),
    Column("content_hash", PackedDigest, nullable=False),
    Column("reference", PackedText, nullable=False),
    Column("privacy_class", Text, nullable=False),
    Column("created_by", Text, nullable=False),
    Column("created_at", BigInteger, nullable=False),
    Column("occurred_at", BigInteger),
    Column("lifecycle_state", Text, nullable=False),
    Column("schema_version", Integer, nullable=False),
    Index(None, "scope_id", "content_hash"),
)
"""Raw material; `content_hash` is the key of its bytes in `parts`, `reference` the SourceRef as
given.
"""

memories = Table(
    "memories",
    metadata,
    Column("doc", Key, primary_key=True, autoincrement=True),
    Column("id", PackedId, nullable=False, unique=True),
    Column("scope_id", Key, ForeignKey("scopes.id"), nullable=False),
    Column("kind", Text, nullable=False),
    Column("content_key", PackedDigest, nullable=False),
    Column("state", Text, nullable=False),
    Column("version", Integer, nullable=False),
    Column("pinned", Boolean, nullable=False),
    Column("conversation", Text),
    Column("position", BigInteger),
    Column("occurred_at", BigInteger),
    Column("expires_at", BigInteger),
    Column("extraction_status", Text, nullable=False),
    Column("source_run_id", Text),
    Column("source_step_ids", Text, nullable=False),
    Column("access_count", Integer, nullable=False, server_default="0"),
    Column("last_accessed", BigInteger),
    Column("forgotten_at", BigInteger),
    Column("created_at", BigInteger, nullable=False),
    Column("created_by", Text, nullable=False),
    Column("updated_at", BigInteger, nullable=False),
    Column("updated_by", Text),
    Column("schema_version", Integer, nullable=False),
    Column("valid_from", BigInteger),
    Column("valid_until", BigInteger),
    Column("locked_until", BigInteger),
    # Loose statements collapse while active; a turn is identified by its place instead.
    Index(
        "uq_memories_active_statement",
        "scope_id",
        "kind",
        "content_key",
        unique=True,
        sqlite_where=text("state = 'active' AND conversation IS NULL"),
    ),
    Index(
        "uq_memories_turn",
        "scope_id",
        "conversation",
        "position",
        unique=True,
        sqlite_where=text("conversation IS NOT NULL"),
    ),
    Index(None, "scope_id", "state", "doc"),
    Index("ix_memories_pinned", "scope_id", "state", "doc", sqlite_where=text("pinned")),
    sqlite_autoincrement=True,
)
"""One row per memory: identity, state and the columns that queries filter by. Its text is in its
versions.
"""

memory_versions = Table(
    "memory_versions",
    metadata,
    Column("doc", Key, ForeignKey("memories.doc"), primary_key=True),
    Column("version", Integer, primary_key=True),
    Column("body", PackedText),
    Column("salt", LargeBinary),
    Column("commitment", PackedDigest, nullable=False),
    Column("created_at", BigInteger, nullable=False),
    Column("erased_at", BigInteger),
)
"""The text of a memory at one time; the journal contains its `commitment` only."""

memory_sources = Table(
    "memory_sources",
    metadata,
    Column("doc", Key, ForeignKey("memories.doc"), primary_key=True),
    Column("source_id", PackedId, ForeignKey("sources.id"), primary_key=True),
    Column("ordinal", Integer, nullable=False),
    Index(None, "source_id"),
    sqlite_with_rowid=False,
)

edges = Table(
    "edges",
    metadata,
    Column("id", Text, primary_key=True),
    Column("scope_id", Key, ForeignKey("scopes.id"), nullable=False),
    Column("kind", Text, nullable=False),
    Column("from_doc", Key, ForeignKey("memories.doc"), nullable=False),
    Column("to_doc", Key, ForeignKey("memories.doc"), nullable=False),
    Column("confidence", Integer, nullable=False),
    Column("reason", Text),
    Column("evidence", Text, nullable=False),
    Column("valid_from", BigInteger),
    Column("valid_until", BigInteger),
    Column("created_at", BigInteger, nullable=False),
    Column("schema_version", Integer, nullable=False),
    UniqueConstraint("kind", "from_doc", "to_doc"),
    Index(None, "to_doc"),
)

working = Table(
    "working",
    metadata,
    Column("scope_id", Key, ForeignKey("scopes.id"), primary_key=True, autoincrement=False),
    Column("lifetime", Text, primary_key=True),
    Column("holder", Text, primary_key=True),
    Column("name", Text, primary_key=True),
    Column("body", Text, nullable=False),
    Column("created_by", Text, nullable=False),
    Column("updated_at", BigInteger, nullable=False),
    Column("expires_at", BigInteger, nullable=False),
    Index(None, "expires_at"),
)
"""Working memory of runs and of threads, by the id of its holder: overwritten in place, without
versions, removed when it expires.
"""

store_items = Table(
    "store_items",
    metadata,
    Column("scope_id", Key, ForeignKey("scopes.id"), primary_key=True, autoincrement=False),
    Column("namespace", Text, primary_key=True),
    Column("key", Text, primary_key=True),
    Column("doc", Key, ForeignKey("memories.doc"), nullable=False),
    Column("ttl", BigInteger),
    Index(None, "doc"),
)
"""Memories that are addressed by a namespace (a JSON list of its labels) and a key."""

proposals = Table(
    "proposals",
    metadata,
    Column("id", Text, primary_key=True),
    Column("scope_id", Key, ForeignKey("scopes.id"), nullable=False),
    Column("origin", Text, nullable=False),
    Column("action", Text, nullable=False),
    Column("kind", Text, nullable=False),
    Column("state", Text, nullable=False),
    Column("reason", Text, nullable=False),
    Column("payload", Text),
    Column("confidence", Integer, nullable=False),
    Column("sources", Text, nullable=False),
    Column("derived_from", Text, nullable=False),
    Column("target_id", Text),
    Column("target_version", Integer),
    Column("made_id", Text),
    Column("suggested_scope", Text),
    Column("provider", Text, nullable=False),
    Column("model", Text),
    Column("prompt_version", Text),
    Column("job_id", Text),
    Column("run_id", Text),
    Column("step_id", Text),
    Column("created_at", BigInteger, nullable=False),
    Column("created_by", Text, nullable=False),
    Column("decided_at", BigInteger),
    Column("decided_by", Text),
    Column("decided_reason", Text),
    Column("schema_version", Integer, nullable=False),
    Index(None, "scope_id", "state", "created_at"),
    Index(None, "target_id"),
)
"""Suggestions of extraction and reflection, and what became of each. `payload` is their words and
can be erased.
"""

outbound_calls = Table(
    "outbound_calls",
    metadata,
    Column("id", Text, primary_key=True),
    Column("scope_id", Key, ForeignKey("scopes.id"), nullable=False),
    Column("purpose", Text, nullable=False),
    Column("provider", Text, nullable=False),
    Column("model", Text),
    Column("local", Boolean, nullable=False),
    Column("subject_id", Text),
    Column("job_id", Text),
    Column("outcome", Text, nullable=False),
    Column("characters", BigInteger, nullable=False),
    Column("redacted", Integer, nullable=False),
    Column("input_tokens", BigInteger, nullable=False),
    Column("output_tokens", BigInteger, nullable=False),
    Column("micros", BigInteger, nullable=False),
    Column("duration_ms", BigInteger, nullable=False),
    Column("at", BigInteger, nullable=False),
    Index(None, "scope_id", "at"),
    Index(None, "at"),
)
"""Calls of models that Tallystick itself made, without content: budgets are counted here."""

jobs = Table(
    "jobs",
    metadata,
    Column("id", Text, primary_key=True),
    Column("scope_id", Key, ForeignKey("scopes.id")),
    Column("kind", Text, nullable=False),
    Column("subject_id", PackedId, nullable=False),
    Column("version", BigInteger, nullable=False),
    Column("payload", Text, nullable=False),
    Column("actor", Text, nullable=False),
    Column("state", Text, nullable=False),
    Column("priority", Integer, nullable=False),
    Column("attempts", Integer, nullable=False),
    Column("max_attempts", Integer, nullable=False),
    Column("waits", Integer, nullable=False),
    Column("leases", Integer, nullable=False),
    Column("turn", BigInteger, nullable=False),
    Column("due_at", BigInteger),
    Column("leased_by", Text),
    Column("progress", Integer, nullable=False),
    Column("total", Integer),
    Column("cost", Text, nullable=False),
    Column("result", Text),
    Column("error_code", Text),
    Column("error_text", Text),
    Column("trail", Text, nullable=False),
    Column("created_at", BigInteger, nullable=False),
    Column("updated_at", BigInteger, nullable=False),
    Index(
        "ix_jobs_open",
        "kind",
        "scope_id",
        "priority",
        "created_at",
        "id",
        "due_at",
        sqlite_where=text("due_at IS NOT NULL"),
    ),
    Index(None, "scope_id", "turn"),
    Index(None, "turn"),
    Index(None, "subject_id"),
    UniqueConstraint("kind", "subject_id", "version"),
)
"""Durable follow-up work; it carries its actor's authority."""

idempotency = Table(
    "idempotency",
    metadata,
    Column("scope_id", Key, ForeignKey("scopes.id"), primary_key=True),
    Column("operation", Text, primary_key=True),
    Column("key", Text, primary_key=True),
    Column("request_digest", Text, nullable=False),
    Column("result", Text, nullable=False),
    Column("created_at", BigInteger, nullable=False),
)
"""First answers of mutating calls. `key` is a keyed digest of what the caller gave: nobody can read
it, and the same key finds the answer.
"""

access_log = Table(
    "access_log",
    metadata,
    Column("id", Key, primary_key=True, autoincrement=True),
    Column("at", BigInteger, nullable=False),
    Column("actor", Text, nullable=False),
    Column("surface", Text, nullable=False),
    Column("operation", Text, nullable=False),
    Column("scopes", Text, nullable=False),
    Column("results", Integer, nullable=False),
    sqlite_autoincrement=True,
)
"""Allowed reads, written in batches and outside the chain."""

runs = Table(
    "runs",
    metadata,
    Column("id", Text, primary_key=True),
    Column("scope_id", Key, ForeignKey("scopes.id"), nullable=False),
    Column("agent_name", Text, nullable=False),
    Column("domain", Text),
    Column("user_goal", Text),
    Column("retention", Text, nullable=False),
    Column("metadata", Text, nullable=False),
    Column("started_at", BigInteger, nullable=False),
    Column("ended_at", BigInteger),
    Column("status", Text, nullable=False),
    Column("schema_version", Integer, nullable=False),
    Column("process", Text),
    Column("gaps", Integer, nullable=False, server_default="0"),
    Index(None, "scope_id", "started_at"),
)

steps = Table(
    "steps",
    metadata,
    Column("id", Text, primary_key=True),
    Column("run_id", Text, ForeignKey("runs.id"), nullable=False),
    Column("step_index", Integer, nullable=False),
    Column("step_kind", Text, nullable=False),
    Column("name", Text),
    Column("parent_step_id", Text),
    Column("metadata", Text, nullable=False),
    Column("started_at", BigInteger, nullable=False),
    Column("ended_at", BigInteger),
    Column("status", Text, nullable=False),
    Column("schema_version", Integer, nullable=False),
    UniqueConstraint("run_id", "step_index"),
)

step_entries = Table(
    "step_entries",
    metadata,
    Column("step_id", Text, ForeignKey("steps.id"), primary_key=True),
    Column("position", Integer, primary_key=True),
    Column("id", Text, nullable=False, unique=True),
    Column("scope_id", Key, ForeignKey("scopes.id"), nullable=False),
    Column("kind", Text, nullable=False),
    Column("at", BigInteger, nullable=False),
    Column("payload_state", Text, nullable=False),
    Column("part_key", PackedDigest),
    Column("salt", LargeBinary),
    Column("commitment", PackedDigest, nullable=False),
    Column("redactions", Text, nullable=False),
    Column("summary", Text, nullable=False),
    Column("base_id", Text),
    Column("copied", Text),
    Index(None, "scope_id", "part_key"),
    Index(
        None,
        "base_id",
        sqlite_where=text("base_id IS NOT NULL"),
    ),
)
"""The inputs and outputs of a step; payloads are in `parts` and can be erased with their salt.

With a base, a payload is its own part with ranges of the base's in it, which `copied` lists: a
prompt that grew is stored once.
"""

threads = Table(
    "threads",
    metadata,
    Column("id", Key, primary_key=True, autoincrement=True),
    Column("scope_id", Key, ForeignKey("scopes.id"), nullable=False),
    Column("name", Text, nullable=False),
    Column("created_at", BigInteger, nullable=False),
    Column("epoch", Integer, nullable=False, server_default="0"),
    Column("puts", BigInteger, nullable=False, server_default="0"),
    Column("states", BigInteger, nullable=False, server_default="0"),
    Column("seal", Text, nullable=False, server_default=""),
    Column("writer", Text, nullable=False, server_default=""),
    Column("lifetime", BigInteger),
    Column("expires_at", BigInteger),
    UniqueConstraint("scope_id", "name"),
    Index(None, "scope_id", "expires_at"),
    sqlite_autoincrement=True,
)
"""A thread of checkpoints belongs to a scope: another scope's thread of the same name is another
thread.

`epoch` moves when something is removed, `puts` when something is put; `seal` is the sum of the
codes of its states. Its journal is named by its number, so that the chain does not contain its
name.
"""

thread_states = Table(
    "thread_states",
    metadata,
    Column("thread_id", Key, ForeignKey("threads.id"), primary_key=True, autoincrement=False),
    Column("id", Ordered, primary_key=True),
    Column("namespace", Text, primary_key=True),
    Column("parent_id", Text),
    Column("position", BigInteger, nullable=False),
    Column("marks", Text, nullable=False),
    Column("metadata", LargeBinary, nullable=False),
    Column("state", LargeBinary, nullable=False),
    Column("code", LargeBinary, nullable=False),
    sqlite_with_rowid=False,
)
"""One row per checkpoint: `state` contains its body and the roots of its values, `marks` the
fingerprints of its metadata, by which filters search.
"""

thread_writes = Table(
    "thread_writes",
    metadata,
    Column("thread_id", Key, ForeignKey("threads.id"), primary_key=True, autoincrement=False),
    Column("checkpoint_id", Ordered, primary_key=True),
    Column("namespace", Text, primary_key=True),
    Column("task_id", Text, primary_key=True),
    Column("position", Integer, primary_key=True),
    Column("task_path", Text, nullable=False),
    Column("channel", Text, nullable=False),
    Column("value", LargeBinary, nullable=False),
    Column("code", LargeBinary, nullable=False),
    sqlite_with_rowid=False,
)
"""Pending writes. They may arrive before their checkpoint, so nothing here refers to it."""

tree_parts = Table(
    "tree_parts",
    metadata,
    Column("id", Key, primary_key=True, autoincrement=True),
    Column("scope_id", Key, ForeignKey("scopes.id"), nullable=False),
    Column("digest", LargeBinary, nullable=False),
    Column("body", LargeBinary, nullable=False),
    Index("uq_tree_parts_digest", "scope_id", "digest", unique=True),
    sqlite_autoincrement=True,
)
"""Pieces of state, stored once per scope. An id is never given twice, so that a cached one stays
valid.
"""

tree_holds = Table(
    "tree_holds",
    metadata,
    Column("thread_id", Key, ForeignKey("threads.id"), primary_key=True, autoincrement=False),
    Column("part_id", Key, primary_key=True, autoincrement=False),
    Index(None, "part_id"),
    sqlite_with_rowid=False,
)
"""The pieces that each thread needs: a piece that no thread needs is removed."""

tree_keys = Table(
    "tree_keys",
    metadata,
    Column("scope_id", Key, ForeignKey("scopes.id"), primary_key=True, autoincrement=False),
    Column("cipher", Text, primary_key=True),
    Column("sealed", LargeBinary, nullable=False),
)
"""The key of a scope's digests where state is encrypted; readable with the cipher's own key only.
"""
