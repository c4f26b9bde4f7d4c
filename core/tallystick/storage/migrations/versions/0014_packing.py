"""Packing: SQLite stores texts, bodies and digests in a form that is several times as small. What
is read is the same, byte for byte; PostgreSQL stores as before.
"""

from typing import Any

from alembic import op

from tallystick.storage.packing import FUNCTIONS

revision = "0014"
down_revision = "0013"

_TEXTS = {
    "journal": ("body", "texts"),
    "sources": ("reference",),
    "memory_versions": ("body",),
    "search_text": ("words",),
}
_DIGESTS = {
    "journal": ("previous", "digest"),
    "parts": ("key",),
    "sources": ("content_hash",),
    "memories": ("content_key",),
    "memory_versions": ("commitment",),
    "step_entries": ("part_key", "commitment"),
    "checkpoint_values": ("part_key",),
}
_IDS = {
    "journal": ("audit_id", "subject_id"),
    "sources": ("id",),
    "memories": ("id",),
    "jobs": ("subject_id",),
}
_NAMES = {"vectors": ("fingerprint",)}
_BYTES = {"parts": ("body",)}
_VECTORS = {"vectors": ("vector",)}
_MEMORY_SOURCES = (
    "ALTER TABLE memory_sources RENAME TO memory_sources_before",
    "DROP INDEX ix_memory_sources_source_id",
    "CREATE TABLE memory_sources (doc INTEGER NOT NULL, source_id TEXT NOT NULL, "
    "ordinal INTEGER NOT NULL, "
    "CONSTRAINT pk_memory_sources PRIMARY KEY (doc, source_id), "
    "CONSTRAINT fk_memory_sources_doc FOREIGN KEY(doc) REFERENCES memories (doc), "
    "CONSTRAINT fk_memory_sources_source_id FOREIGN KEY(source_id) REFERENCES sources (id)"
    ") WITHOUT ROWID",
    "INSERT INTO memory_sources SELECT doc, packed_id(source_id), ordinal "
    "FROM memory_sources_before",
    "DROP TABLE memory_sources_before",
    "CREATE INDEX ix_memory_sources_source_id ON memory_sources (source_id)",
)


def upgrade() -> None:
    bind = op.get_bind()
    if bind.dialect.name != "sqlite":
        return
    raw: Any = bind.connection.dbapi_connection
    for name, function in FUNCTIONS.items():
        raw.create_function(name, 1, function, deterministic=True)
    op.execute("PRAGMA defer_foreign_keys=ON")
    for table in dict.fromkeys((*_TEXTS, *_DIGESTS, *_IDS, *_NAMES, *_BYTES)):
        changes = [
            f"{column} = {function}({column})"
            for columns, function in (
                (_TEXTS, "packed_text"),
                (_DIGESTS, "packed_digest"),
                (_IDS, "packed_id"),
                (_NAMES, "packed_name"),
                (_BYTES, "packed_bytes"),
                (_VECTORS, "packed_vector"),
            )
            for column in columns.get(table, ())
        ]
        op.execute(f"UPDATE {table} SET {', '.join(changes)}")
    for statement in _MEMORY_SOURCES:
        op.execute(statement)
