"""Sources as rows: the raw material behind memories, and the memories drawn from it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from sqlalchemy import Connection, exists, select, update

from tallystick.records import Scope, Source, SourceRef
from tallystick.storage.engine import tables
from tallystick.storage.rows import memories

_s = tables.sources
_PAGE = 500


@dataclass(frozen=True)
class StoredSource:
    """A source with its scope, its reference and the key of its bytes."""

    scope_id: int
    scope: Scope
    reference: SourceRef
    content_key: str
    record: Source


class SourceText(NamedTuple):
    """What a source says, and of itself."""

    id: str
    scope_id: int
    reference: SourceRef
    content_key: str
    is_remembered: bool
    """True if a memory that was drawn from it has the same text."""


def types_of(connection: Connection, ids: Sequence[str]) -> set[str]:
    """Return the types of some sources."""
    return set(connection.execute(select(_s.c.source_type).where(_s.c.id.in_(ids))).scalars())


def in_scopes(connection: Connection, scope_ids: Sequence[int]) -> Iterator[SourceText]:
    """Yield the sources of these scopes."""
    links, texts = tables.memory_sources.c, tables.memories.c
    drawn = (links.source_id == _s.c.id) & (links.doc == texts.doc)
    same = exists().where(drawn, texts.content_key == _s.c.content_hash)
    query = select(_s.c.id, _s.c.scope_id, _s.c.reference, _s.c.content_hash, same)
    ids = connection.execute(select(_s.c.id).where(_s.c.scope_id.in_(scope_ids))).scalars().all()
    for start in range(0, len(ids), _PAGE):
        rows = connection.execute(query.where(_s.c.id.in_(ids[start : start + _PAGE]))).all()
        for source_id, scope_id, reference, key, is_remembered in rows:
            yield SourceText(
                source_id, scope_id, SourceRef.loads(reference), key, bool(is_remembered)
            )


def replace(tx: Connection, source_id: str, reference: SourceRef, content_key: str) -> None:
    """Store what a source says of itself, and the key of its text in `parts`, anew."""
    values = {
        "uri": reference.uri,
        "title": reference.title,
        "source_version": reference.version,
        "reference": reference.dumps(),
        "content_hash": content_key,
    }
    tx.execute(update(_s).where(_s.c.id == source_id).values(values))


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
    copied = Source.model_fields.keys() - {"organization", "scope", "metadata"}
    record = Source(
        **{name: getattr(row, name) for name in copied},
        organization=scope.organization,
        scope=scope,
        metadata=reference.metadata,
    )
    return StoredSource(row.scope_id, scope, reference, row.content_hash, record)
