"""Sources as rows: the raw material behind memories, and the memories drawn from it."""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import Connection, select

from tallystick.records import Scope, Source, SourceRef
from tallystick.storage import memories, tables

_s = tables.sources


@dataclass(frozen=True)
class StoredSource:
    """A source with its scope, its reference and the key of its bytes."""

    scope_id: int
    scope: Scope
    reference: SourceRef
    content_key: str
    record: Source


def memories_of(connection: Connection, source_id: str) -> list[memories.Stored]:
    """Return the memories that were derived from a source, oldest first."""
    links = tables.memory_sources
    docs = connection.execute(
        select(links.c.doc).where(links.c.source_id == source_id).order_by(links.c.doc)
    ).scalars()
    stored = memories.get_docs(connection, docs)
    return [stored[doc] for doc in sorted(stored)]


def find(connection: Connection, source_id: str) -> StoredSource | None:
    """Return a source of any scope, or None."""
    names = tables.scopes
    query = (
        select(_s, names.c.name)
        .join(names, names.c.id == _s.c.scope_id)
        .where(_s.c.id == source_id)
    )
    row = connection.execute(query).first()
    if row is None:
        return None
    scope, reference = Scope.parse(row.name), SourceRef.loads(row.reference)
    record = Source(
        id=row.id,
        organization=scope.organization,
        scope=scope,
        source_type=row.source_type,
        uri=row.uri,
        title=row.title,
        source_version=row.source_version,
        content_hash=row.content_hash,
        metadata=reference.metadata,
        privacy_class=row.privacy_class,
        created_by=row.created_by,
        created_at=row.created_at,
        occurred_at=row.occurred_at,
        lifecycle_state=row.lifecycle_state,
        schema_version=row.schema_version,
    )
    return StoredSource(row.scope_id, scope, reference, row.content_hash, record)
