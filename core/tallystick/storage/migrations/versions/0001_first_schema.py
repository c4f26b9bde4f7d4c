"""The first schema."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None

_SQLITE_TEXT_INDEX = (
    """
    CREATE VIRTUAL TABLE search_index USING fts5(
        scope, words, content='search_text', content_rowid='doc',
        tokenize="unicode61 remove_diacritics 0 tokenchars '_'"
    )
    """,
    """
    CREATE TRIGGER search_text_added AFTER INSERT ON search_text BEGIN
        INSERT INTO search_index (rowid, scope, words) VALUES (new.doc, new.scope, new.words);
    END
    """,
    """
    CREATE TRIGGER search_text_removed AFTER DELETE ON search_text BEGIN
        INSERT INTO search_index (search_index, rowid, scope, words)
        VALUES ('delete', old.doc, old.scope, old.words);
    END
    """,
    """
    CREATE TRIGGER search_text_changed AFTER UPDATE ON search_text BEGIN
        INSERT INTO search_index (search_index, rowid, scope, words)
        VALUES ('delete', old.doc, old.scope, old.words);
        INSERT INTO search_index (rowid, scope, words) VALUES (new.doc, new.scope, new.words);
    END
    """,
)

_POSTGRES_TEXT_INDEX = (
    """
    ALTER TABLE search_text ADD COLUMN lexemes tsvector
    GENERATED ALWAYS AS (array_to_tsvector(string_to_array(words, ' '))) STORED
    """,
    "CREATE INDEX ix_search_text_lexemes ON search_text USING gin (lexemes)",
)


def upgrade() -> None:
    op.create_table(
        "access_log",
        sa.Column(
            "id",
            sa.BigInteger().with_variant(sa.Integer(), "sqlite"),
            autoincrement=True,
            nullable=False,
        ),
        sa.Column("at", sa.BigInteger(), nullable=False),
        sa.Column("actor", sa.Text(), nullable=False),
        sa.Column("surface", sa.Text(), nullable=False),
        sa.Column("operation", sa.Text(), nullable=False),
        sa.Column("scopes", sa.Text(), nullable=False),
        sa.Column("results", sa.Integer(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_access_log"),
        sqlite_autoincrement=True,
    )
    op.create_table(
        "checkpoint_values",
        sa.Column(
            "thread_id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False
        ),
        sa.Column("namespace", sa.Text(), nullable=False),
        sa.Column("checkpoint_id", sa.Text(), nullable=False),
        sa.Column("channel", sa.Text(), nullable=False),
        sa.Column("value_type", sa.Text(), nullable=False),
        sa.Column("part_key", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint(
            "thread_id", "namespace", "checkpoint_id", "channel", name="pk_checkpoint_values"
        ),
    )
    op.create_index(
        "ix_checkpoint_values_thread_id_part_key",
        "checkpoint_values",
        ["thread_id", "part_key"],
        unique=False,
    )
    op.create_table(
        "checkpoint_writes",
        sa.Column(
            "thread_id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False
        ),
        sa.Column("namespace", sa.Text(), nullable=False),
        sa.Column("checkpoint_id", sa.Text(), nullable=False),
        sa.Column("task_id", sa.Text(), nullable=False),
        sa.Column("position", sa.Integer(), nullable=False),
        sa.Column("task_path", sa.Text(), nullable=False),
        sa.Column("channel", sa.Text(), nullable=False),
        sa.Column("value_type", sa.Text(), nullable=False),
        sa.Column("value", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint(
            "thread_id",
            "namespace",
            "checkpoint_id",
            "task_id",
            "position",
            name="pk_checkpoint_writes",
        ),
    )
    op.create_table(
        "journal",
        sa.Column(
            "sequence",
            sa.BigInteger().with_variant(sa.Integer(), "sqlite"),
            autoincrement=True,
            nullable=False,
        ),
        sa.Column("audit_id", sa.Text(), nullable=False),
        sa.Column("stream", sa.Text(), nullable=False),
        sa.Column("position", sa.BigInteger(), nullable=False),
        sa.Column("event", sa.Text(), nullable=False),
        sa.Column("subject_id", sa.Text(), nullable=True),
        sa.Column("body", sa.Text(), nullable=False),
        sa.Column("previous", sa.Text(), nullable=False),
        sa.Column("digest", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("sequence", name="pk_journal"),
        sa.UniqueConstraint("audit_id", name="uq_journal_audit_id"),
        sa.UniqueConstraint("stream", "position", name="uq_journal_stream_position"),
        sqlite_autoincrement=True,
    )
    op.create_index(
        "ix_journal_subject_id_sequence", "journal", ["subject_id", "sequence"], unique=False
    )
    op.create_table(
        "outbox",
        sa.Column(
            "sequence",
            sa.BigInteger().with_variant(sa.Integer(), "sqlite"),
            autoincrement=True,
            nullable=False,
        ),
        sa.Column("doc", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.PrimaryKeyConstraint("sequence", name="pk_outbox"),
        sqlite_autoincrement=True,
    )
    op.create_table(
        "scopes",
        sa.Column(
            "id",
            sa.BigInteger().with_variant(sa.Integer(), "sqlite"),
            autoincrement=True,
            nullable=False,
        ),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("secret", sa.LargeBinary(), nullable=False),
        sa.Column("documents", sa.Integer(), server_default="0", nullable=False),
        sa.Column("words", sa.BigInteger(), server_default="0", nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_scopes"),
        sa.UniqueConstraint("name", name="uq_scopes_name"),
    )
    op.create_table(
        "settings",
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("value", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("name", name="pk_settings"),
    )
    op.create_table(
        "streams",
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("count", sa.BigInteger(), nullable=False),
        sa.Column("head", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("name", name="pk_streams"),
    )
    op.create_table(
        "idempotency",
        sa.Column("scope_id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("operation", sa.Text(), nullable=False),
        sa.Column("key", sa.Text(), nullable=False),
        sa.Column("request_digest", sa.Text(), nullable=False),
        sa.Column("result", sa.Text(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(["scope_id"], ["scopes.id"], name="fk_idempotency_scope_id"),
        sa.PrimaryKeyConstraint("scope_id", "operation", "key", name="pk_idempotency"),
    )
    op.create_table(
        "jobs",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("scope_id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("subject_id", sa.Text(), nullable=False),
        sa.Column("actor", sa.Text(), nullable=False),
        sa.Column("status", sa.Text(), nullable=False),
        sa.Column("attempts", sa.Integer(), nullable=False),
        sa.Column("max_attempts", sa.Integer(), nullable=False),
        sa.Column("run_after", sa.BigInteger(), nullable=False),
        sa.Column("lease_until", sa.BigInteger(), nullable=True),
        sa.Column("leased_by", sa.Text(), nullable=True),
        sa.Column("last_error", sa.Text(), nullable=True),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("updated_at", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(["scope_id"], ["scopes.id"], name="fk_jobs_scope_id"),
        sa.PrimaryKeyConstraint("id", name="pk_jobs"),
        sa.UniqueConstraint("kind", "subject_id", name="uq_jobs_kind_subject_id"),
    )
    op.create_index("ix_jobs_status_run_after", "jobs", ["status", "run_after"], unique=False)
    op.create_table(
        "memories",
        sa.Column(
            "doc",
            sa.BigInteger().with_variant(sa.Integer(), "sqlite"),
            autoincrement=True,
            nullable=False,
        ),
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("scope_id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("content_key", sa.Text(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.Column("pinned", sa.Boolean(), nullable=False),
        sa.Column("conversation", sa.Text(), nullable=True),
        sa.Column("position", sa.BigInteger(), nullable=True),
        sa.Column("occurred_at", sa.BigInteger(), nullable=True),
        sa.Column("expires_at", sa.BigInteger(), nullable=True),
        sa.Column("extraction_status", sa.Text(), nullable=False),
        sa.Column("source_run_id", sa.Text(), nullable=True),
        sa.Column("source_step_ids", sa.Text(), nullable=False),
        sa.Column("access_count", sa.Integer(), server_default="0", nullable=False),
        sa.Column("last_accessed", sa.BigInteger(), nullable=True),
        sa.Column("forgotten_at", sa.BigInteger(), nullable=True),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("created_by", sa.Text(), nullable=False),
        sa.Column("updated_at", sa.BigInteger(), nullable=False),
        sa.Column("updated_by", sa.Text(), nullable=True),
        sa.Column("schema_version", sa.Integer(), nullable=False),
        sa.ForeignKeyConstraint(["scope_id"], ["scopes.id"], name="fk_memories_scope_id"),
        sa.PrimaryKeyConstraint("doc", name="pk_memories"),
        sa.UniqueConstraint("id", name="uq_memories_id"),
        sqlite_autoincrement=True,
    )
    op.create_index(
        "ix_memories_scope_id_state_doc", "memories", ["scope_id", "state", "doc"], unique=False
    )
    op.create_index(
        "uq_memories_active_statement",
        "memories",
        ["scope_id", "kind", "content_key"],
        unique=True,
        sqlite_where=sa.text("state = 'active' AND conversation IS NULL"),
        postgresql_where=sa.text("state = 'active' AND conversation IS NULL"),
    )
    op.create_index(
        "uq_memories_turn",
        "memories",
        ["scope_id", "conversation", "position"],
        unique=True,
        sqlite_where=sa.text("conversation IS NOT NULL"),
        postgresql_where=sa.text("conversation IS NOT NULL"),
    )
    op.create_table(
        "parts",
        sa.Column("scope_id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("key", sa.Text(), nullable=False),
        sa.Column("body", sa.LargeBinary(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(["scope_id"], ["scopes.id"], name="fk_parts_scope_id"),
        sa.PrimaryKeyConstraint("scope_id", "key", name="pk_parts"),
    )
    op.create_table(
        "runs",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("scope_id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("agent_name", sa.Text(), nullable=False),
        sa.Column("domain", sa.Text(), nullable=True),
        sa.Column("user_goal", sa.Text(), nullable=True),
        sa.Column("retention", sa.Text(), nullable=False),
        sa.Column("metadata", sa.Text(), nullable=False),
        sa.Column("started_at", sa.BigInteger(), nullable=False),
        sa.Column("ended_at", sa.BigInteger(), nullable=True),
        sa.Column("status", sa.Text(), nullable=False),
        sa.Column("schema_version", sa.Integer(), nullable=False),
        sa.ForeignKeyConstraint(["scope_id"], ["scopes.id"], name="fk_runs_scope_id"),
        sa.PrimaryKeyConstraint("id", name="pk_runs"),
    )
    op.create_index("ix_runs_scope_id_started_at", "runs", ["scope_id", "started_at"], unique=False)
    op.create_table(
        "sources",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("scope_id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("source_type", sa.Text(), nullable=False),
        sa.Column("uri", sa.Text(), nullable=True),
        sa.Column("title", sa.Text(), nullable=True),
        sa.Column("source_version", sa.Text(), nullable=True),
        sa.Column("content_hash", sa.Text(), nullable=False),
        sa.Column("reference", sa.Text(), nullable=False),
        sa.Column("privacy_class", sa.Text(), nullable=False),
        sa.Column("created_by", sa.Text(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("occurred_at", sa.BigInteger(), nullable=True),
        sa.Column("lifecycle_state", sa.Text(), nullable=False),
        sa.Column("schema_version", sa.Integer(), nullable=False),
        sa.ForeignKeyConstraint(["scope_id"], ["scopes.id"], name="fk_sources_scope_id"),
        sa.PrimaryKeyConstraint("id", name="pk_sources"),
    )
    op.create_index(
        "ix_sources_scope_id_content_hash", "sources", ["scope_id", "content_hash"], unique=False
    )
    op.create_table(
        "threads",
        sa.Column(
            "id",
            sa.BigInteger().with_variant(sa.Integer(), "sqlite"),
            autoincrement=True,
            nullable=False,
        ),
        sa.Column("scope_id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(["scope_id"], ["scopes.id"], name="fk_threads_scope_id"),
        sa.PrimaryKeyConstraint("id", name="pk_threads"),
        sa.UniqueConstraint("scope_id", "name", name="uq_threads_scope_id_name"),
        sqlite_autoincrement=True,
    )
    op.create_table(
        "checkpoints",
        sa.Column(
            "thread_id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False
        ),
        sa.Column("namespace", sa.Text(), nullable=False),
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("parent_id", sa.Text(), nullable=True),
        sa.Column("metadata", sa.Text(), nullable=False),
        sa.Column("body_type", sa.Text(), nullable=False),
        sa.Column("body", sa.LargeBinary(), nullable=False),
        sa.Column("salt", sa.LargeBinary(), nullable=True),
        sa.Column("commitment", sa.Text(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(["thread_id"], ["threads.id"], name="fk_checkpoints_thread_id"),
        sa.PrimaryKeyConstraint("thread_id", "namespace", "id", name="pk_checkpoints"),
    )
    op.create_index("ix_checkpoints_thread_id_id", "checkpoints", ["thread_id", "id"], unique=False)
    op.create_table(
        "edges",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("scope_id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("from_doc", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("to_doc", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("confidence", sa.Integer(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=True),
        sa.Column("evidence", sa.Text(), nullable=False),
        sa.Column("valid_from", sa.BigInteger(), nullable=True),
        sa.Column("valid_until", sa.BigInteger(), nullable=True),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("schema_version", sa.Integer(), nullable=False),
        sa.ForeignKeyConstraint(["from_doc"], ["memories.doc"], name="fk_edges_from_doc"),
        sa.ForeignKeyConstraint(["scope_id"], ["scopes.id"], name="fk_edges_scope_id"),
        sa.ForeignKeyConstraint(["to_doc"], ["memories.doc"], name="fk_edges_to_doc"),
        sa.PrimaryKeyConstraint("id", name="pk_edges"),
        sa.UniqueConstraint("kind", "from_doc", "to_doc", name="uq_edges_kind_from_doc_to_doc"),
    )
    op.create_index("ix_edges_to_doc", "edges", ["to_doc"], unique=False)
    op.create_table(
        "memory_sources",
        sa.Column("doc", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("source_id", sa.Text(), nullable=False),
        sa.Column("ordinal", sa.Integer(), nullable=False),
        sa.ForeignKeyConstraint(["doc"], ["memories.doc"], name="fk_memory_sources_doc"),
        sa.ForeignKeyConstraint(["source_id"], ["sources.id"], name="fk_memory_sources_source_id"),
        sa.PrimaryKeyConstraint("doc", "source_id", name="pk_memory_sources"),
    )
    op.create_index("ix_memory_sources_source_id", "memory_sources", ["source_id"], unique=False)
    op.create_table(
        "memory_versions",
        sa.Column("doc", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.Column("body", sa.Text(), nullable=True),
        sa.Column("salt", sa.LargeBinary(), nullable=True),
        sa.Column("commitment", sa.Text(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("erased_at", sa.BigInteger(), nullable=True),
        sa.ForeignKeyConstraint(["doc"], ["memories.doc"], name="fk_memory_versions_doc"),
        sa.PrimaryKeyConstraint("doc", "version", name="pk_memory_versions"),
    )
    op.create_table(
        "search_text",
        sa.Column(
            "doc",
            sa.BigInteger().with_variant(sa.Integer(), "sqlite"),
            autoincrement=False,
            nullable=False,
        ),
        sa.Column("scope_id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("scope", sa.Text(), nullable=False),
        sa.Column("words", sa.Text(), nullable=False),
        sa.Column("length", sa.Integer(), nullable=False),
        sa.ForeignKeyConstraint(["doc"], ["memories.doc"], name="fk_search_text_doc"),
        sa.ForeignKeyConstraint(["scope_id"], ["scopes.id"], name="fk_search_text_scope_id"),
        sa.PrimaryKeyConstraint("doc", name="pk_search_text"),
    )
    op.create_index("ix_search_text_scope_id", "search_text", ["scope_id"], unique=False)
    op.create_table(
        "steps",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("run_id", sa.Text(), nullable=False),
        sa.Column("step_index", sa.Integer(), nullable=False),
        sa.Column("step_kind", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=True),
        sa.Column("parent_step_id", sa.Text(), nullable=True),
        sa.Column("metadata", sa.Text(), nullable=False),
        sa.Column("started_at", sa.BigInteger(), nullable=False),
        sa.Column("ended_at", sa.BigInteger(), nullable=True),
        sa.Column("status", sa.Text(), nullable=False),
        sa.Column("schema_version", sa.Integer(), nullable=False),
        sa.ForeignKeyConstraint(["run_id"], ["runs.id"], name="fk_steps_run_id"),
        sa.PrimaryKeyConstraint("id", name="pk_steps"),
        sa.UniqueConstraint("run_id", "step_index", name="uq_steps_run_id_step_index"),
    )
    op.create_table(
        "vectors",
        sa.Column(
            "doc",
            sa.BigInteger().with_variant(sa.Integer(), "sqlite"),
            autoincrement=False,
            nullable=False,
        ),
        sa.Column("fingerprint", sa.Text(), nullable=False),
        sa.Column("scope_id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.Column("vector", sa.LargeBinary(), nullable=False),
        sa.ForeignKeyConstraint(["doc"], ["memories.doc"], name="fk_vectors_doc"),
        sa.ForeignKeyConstraint(["scope_id"], ["scopes.id"], name="fk_vectors_scope_id"),
        sa.PrimaryKeyConstraint("doc", "fingerprint", name="pk_vectors"),
    )
    op.create_index(
        "ix_vectors_scope_id_fingerprint", "vectors", ["scope_id", "fingerprint"], unique=False
    )
    op.create_table(
        "step_entries",
        sa.Column("step_id", sa.Text(), nullable=False),
        sa.Column("position", sa.Integer(), nullable=False),
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("scope_id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("at", sa.BigInteger(), nullable=False),
        sa.Column("payload_state", sa.Text(), nullable=False),
        sa.Column("part_key", sa.Text(), nullable=True),
        sa.Column("salt", sa.LargeBinary(), nullable=True),
        sa.Column("commitment", sa.Text(), nullable=False),
        sa.Column("redactions", sa.Text(), nullable=False),
        sa.Column("summary", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(["scope_id"], ["scopes.id"], name="fk_step_entries_scope_id"),
        sa.ForeignKeyConstraint(["step_id"], ["steps.id"], name="fk_step_entries_step_id"),
        sa.PrimaryKeyConstraint("step_id", "position", name="pk_step_entries"),
        sa.UniqueConstraint("id", name="uq_step_entries_id"),
    )
    op.create_index(
        "ix_step_entries_scope_id_part_key", "step_entries", ["scope_id", "part_key"], unique=False
    )

    postgres = op.get_bind().dialect.name == "postgresql"
    for statement in _POSTGRES_TEXT_INDEX if postgres else _SQLITE_TEXT_INDEX:
        op.execute(statement)
