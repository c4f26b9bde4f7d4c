"""Finding by words and by vectors: the only place that reads the search tables.

Every query carries the numbers of the scopes that policy allowed; statistics are those scopes' own.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from sqlalchemy import (
    ColumnElement,
    Connection,
    bindparam,
    delete,
    exists,
    func,
    insert,
    literal_column,
    or_,
    select,
    text,
)

from tallystick.storage import scopes, tables

__all__ = [
    "Filters",
    "Point",
    "TextMatch",
    "VectorRow",
    "add_text",
    "add_vectors",
    "count_vectors",
    "docs_missing_vectors",
    "drop",
    "count_points",
    "match_text",
    "page_of_points",
    "points",
    "scan_vectors",
    "vectors_of",
    "without_vector",
]

_x, _v, _m = tables.search_text, tables.vectors, tables.memories
_ADD_TEXT, _ADD_VECTOR = insert(_x), insert(_v)
_LENGTH = select(_x.c.scope_id, _x.c.length).where(_x.c.doc == bindparam("doc"))
_DROP_TEXT = delete(_x).where(_x.c.doc == bindparam("doc"))
_DROP_VECTORS = delete(_v).where(_v.c.doc == bindparam("doc"))


@dataclass(frozen=True)
class Filters:
    """What a candidate must be, beside in scope and active."""

    now: int
    """Microseconds UTC; what expired before is left out."""
    kinds: tuple[str, ...] = ()
    conversation: str | None = None


@dataclass(frozen=True)
class TextMatch:
    """A memory that holds at least one of the words."""

    doc: int
    words: str
    """All its words, separated by one space, as analyzed when it was written."""
    length: int
    """How many words those are."""


@dataclass(frozen=True)
class VectorRow:
    """The stored vector of one memory."""

    doc: int
    vector: bytes
    """float16, little endian."""


def add_text(tx: Connection, doc: int, scope_id: int, words: Sequence[str]) -> None:
    """Make a memory findable by `words` and count them into its scope's statistics."""
    tx.execute(
        _ADD_TEXT,
        {
            "doc": doc,
            "scope_id": scope_id,
            "scope": f"s{scope_id}",
            "words": " ".join(words),
            "length": len(words),
        },
    )
    scopes.add_text(tx, scope_id, documents=1, words=len(words))


def add_vectors(tx: Connection, rows: Iterable[tuple[int, int, int, bytes]], fingerprint: str) -> None:
    """Store (doc, scope id, version, vector) rows under one embedder."""
    values = [
        {"doc": doc, "fingerprint": fingerprint, "scope_id": scope_id, "version": version, "vector": vector}
        for doc, scope_id, version, vector in rows
    ]
    if values:
        tx.execute(_ADD_VECTOR, values)


def drop(tx: Connection, doc: int) -> None:
    """Make a memory unfindable: its words, its vectors of every embedder, its share of the statistics."""
    row = tx.execute(_LENGTH, {"doc": doc}).first()
    if row is not None:
        tx.execute(_DROP_TEXT, {"doc": doc})
        scopes.add_text(tx, row.scope_id, documents=-1, words=-row.length)
    tx.execute(_DROP_VECTORS, {"doc": doc})


def match_text(
    connection: Connection, scope_ids: Sequence[int], terms: Sequence[str], filters: Filters
) -> list[TextMatch]:
    """Every memory of these scopes that holds at least one of `terms` (already analyzed)."""
    if not terms or not scope_ids:
        return []
    query = select(_x.c.doc, _x.c.words, _x.c.length).where(
        _x.c.scope_id.in_(list(scope_ids)), *_allowed(_x.c.doc, filters)
    )
    if connection.dialect.name == "postgresql":
        wanted = " | ".join("'" + term.replace("'", "''") + "'" for term in terms)
        query = query.where(literal_column("search_text.lexemes").op("@@")(text("CAST(:wanted AS tsquery)")))
        rows = connection.execute(query, {"wanted": wanted})
    else:
        # Scope stands inside the match, so that rows of other scopes are not even visited.
        inside = " OR ".join(f"s{scope_id}" for scope_id in scope_ids)
        words = " OR ".join(f'"{term}"' for term in terms)
        matching = text("SELECT rowid FROM search_index WHERE search_index MATCH :wanted")
        query = query.where(_x.c.doc.in_(matching))
        rows = connection.execute(query, {"wanted": f"scope:({inside}) AND words:({words})"})
    return [TextMatch(row.doc, row.words, row.length) for row in rows]


def scan_vectors(
    connection: Connection, scope_ids: Sequence[int], fingerprint: str, filters: Filters
) -> list[VectorRow]:
    """The vector of every memory of these scopes, by number."""
    query = (
        select(_v.c.doc, _v.c.vector)
        .where(_v.c.scope_id.in_(list(scope_ids)), _v.c.fingerprint == fingerprint, *_allowed(_v.c.doc, filters))
        .order_by(_v.c.doc)
    )
    return [VectorRow(row.doc, bytes(row.vector)) for row in connection.execute(query)]


def vectors_of(
    connection: Connection, scope_ids: Sequence[int], fingerprint: str, docs: Sequence[int], filters: Filters
) -> list[VectorRow]:
    """The vectors of those of `docs` that still stand in these scopes: how proposals are checked."""
    query = select(_v.c.doc, _v.c.vector).where(
        _v.c.doc.in_(list(docs)),
        _v.c.scope_id.in_(list(scope_ids)),
        _v.c.fingerprint == fingerprint,
        *_allowed(_v.c.doc, filters),
    )
    return [VectorRow(row.doc, bytes(row.vector)) for row in connection.execute(query.order_by(_v.c.doc))]


def count_vectors(connection: Connection, scope_ids: Sequence[int], fingerprint: str) -> int:
    """How many vectors of this embedder these scopes hold."""
    query = select(func.count()).where(_v.c.scope_id.in_(list(scope_ids)), _v.c.fingerprint == fingerprint)
    return int(connection.execute(query).scalar() or 0)


def docs_missing_vectors(connection: Connection, fingerprint: str, *, limit: int) -> list[int]:
    """Findable memories, of any scope, that have no vector of this embedder yet, oldest first.

    Those whose embedding is a job that waits or died are left to the job queue.
    """
    has_vector = exists().where(_v.c.doc == _x.c.doc, _v.c.fingerprint == fingerprint)
    jobs = tables.jobs
    has_job = exists().where(
        _m.c.doc == _x.c.doc, jobs.c.subject_id == _m.c.id, jobs.c.kind == "embed", jobs.c.status != "done"
    )
    query = select(_x.c.doc).where(~has_vector, ~has_job).order_by(_x.c.doc).limit(limit)
    return [row.doc for row in connection.execute(query)]


def without_vector(connection: Connection, fingerprint: str, docs: Sequence[int]) -> set[int]:
    """Those of `docs` that are findable and have no vector of this embedder."""
    findable = select(_x.c.doc).where(_x.c.doc.in_(list(docs)))
    done = select(_v.c.doc).where(_v.c.doc.in_(list(docs)), _v.c.fingerprint == fingerprint)
    return set(connection.execute(findable).scalars()) - set(connection.execute(done).scalars())


@dataclass(frozen=True)
class Point:
    """A vector as Chroma is told of it."""

    doc: int
    scope_id: int
    version: int
    vector: bytes


def page_of_points(connection: Connection, fingerprint: str, *, after: int, most: int) -> list[Point]:
    """The current vectors under one embedder with a doc above `after`, by doc."""
    query = (
        select(_v.c.doc, _v.c.scope_id, _v.c.version, _v.c.vector)
        .where(_v.c.fingerprint == fingerprint, _v.c.doc > after)
        .order_by(_v.c.doc)
        .limit(most)
    )
    return [Point(row.doc, row.scope_id, row.version, bytes(row.vector)) for row in connection.execute(query)]


def count_points(connection: Connection, fingerprint: str) -> int:
    """How many vectors there are under one embedder."""
    query = select(func.count()).select_from(_v).where(_v.c.fingerprint == fingerprint)
    return int(connection.execute(query).scalar() or 0)


def points(connection: Connection, fingerprint: str, docs: Sequence[int]) -> list[Point]:
    """The current vectors of `docs` under one embedder; what is gone is left out."""
    query = (
        select(_v.c.doc, _v.c.scope_id, _v.c.version, _v.c.vector)
        .where(_v.c.doc.in_(list(docs)), _v.c.fingerprint == fingerprint)
        .order_by(_v.c.doc)
    )
    return [Point(row.doc, row.scope_id, row.version, bytes(row.vector)) for row in connection.execute(query)]


def _allowed(doc: ColumnElement[int], filters: Filters) -> list[ColumnElement[bool]]:
    conditions: list[ColumnElement[bool]] = [
        _m.c.doc == doc,
        _m.c.state == "active",
        or_(_m.c.expires_at.is_(None), _m.c.expires_at > filters.now),
    ]
    if filters.kinds:
        conditions.append(_m.c.kind.in_(list(filters.kinds)))
    if filters.conversation is not None:
        conditions.append(_m.c.conversation == filters.conversation)
    return conditions
