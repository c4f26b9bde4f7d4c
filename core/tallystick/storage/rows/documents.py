"""Rows of documents: what arrived, its attachments and the memories that its chunks are."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from sqlalchemy import Connection, Exists, delete, exists, func, insert, select, tuple_, update

from tallystick.storage.engine import tables, texts
from tallystick.storage.engine.prepared import Prepared, insert_row
from tallystick.storage.rows import parts

_d, _a, _c, _m, _v = (
    tables.documents,
    tables.attachments,
    tables.chunks,
    tables.memories,
    tables.vectors,
)
_PAGE = 500
_ADD_DOCUMENT, _ADD_CHUNK = Prepared(insert_row(_d)), Prepared(insert_row(_c))
Row = Mapping[str, Any]
"""The columns of a row, by name."""


class StoredChunk(NamedTuple):
    """A chunk of a document, as a memory."""

    doc: int
    memory_id: str
    position: int
    is_current: bool
    """False for one of an earlier version, which this one has no text for."""


def add_documents(tx: Connection, rows: Sequence[Mapping[str, Any]]) -> None:
    """Insert documents; columns that a row lacks are empty."""
    if rows:
        names = _d.columns.keys()
        _ADD_DOCUMENT(tx, [{name: row.get(name) for name in names} for row in rows])


def update_document(tx: Connection, document_id: str, **values: Any) -> None:
    """Change a document."""
    tx.execute(update(_d).where(_d.c.id == document_id).values(**values))


def find_document(connection: Connection, document_id: str) -> Row | None:
    """Return one document of any scope, or None: the caller decides who may see it."""
    return _first(connection.execute(select(_d).where(_d.c.id == document_id)))


def find_documents(connection: Connection, document_ids: Collection[str]) -> dict[str, Row]:
    """Return documents of any scope by their ids."""
    ids, rows = sorted(document_ids), dict[str, Row]()
    for start in range(0, len(ids), _PAGE):
        query = select(_d).where(_d.c.id.in_(ids[start : start + _PAGE]))
        rows |= {row["id"]: dict(row) for row in connection.execute(query).mappings()}
    return rows


def documents_of(
    connection: Connection, scope_id: int, *, limit: int, before: tuple[int, str] | None = None
) -> list[Row]:
    """Return the documents of a scope that were not removed, newest first."""
    query = select(_d).where(_d.c.scope_id == scope_id, _d.c.removed_at.is_(None))
    if before is not None:
        query = query.where(tuple_(_d.c.created_at, _d.c.id) < tuple_(*before))
    query = query.order_by(_d.c.created_at.desc(), _d.c.id.desc()).limit(limit)
    return [dict(row) for row in connection.execute(query).mappings()]


class NewChunk(NamedTuple):
    """A memory that is a chunk of a document, at its place in it."""

    doc: int
    document_id: str
    position: int


def add_chunks(tx: Connection, scope_id: int, chunks: Sequence[NewChunk]) -> None:
    """Note that memories are the chunks of documents."""
    if chunks:
        _ADD_CHUNK(
            tx, [{**each._asdict(), "scope_id": scope_id, "is_current": True} for each in chunks]
        )


def set_current(tx: Connection, docs: Sequence[int], is_current: bool) -> None:
    """Note that chunks are, or are not, those of the document as it is now."""
    if docs:
        tx.execute(update(_c).where(_c.c.doc.in_(list(docs))).values(is_current=is_current))


def chunks_of(
    connection: Connection, document_ids: Collection[str]
) -> dict[str, list[StoredChunk]]:
    """Return the chunks of documents, those of earlier versions too, in their order."""
    ids, chunks = sorted(document_ids), dict[str, list[StoredChunk]]()
    for start in range(0, len(ids), _PAGE):
        query = (
            select(_c.c.document_id, _c.c.doc, _m.c.id, _c.c.position, _c.c.is_current)
            .join(_m, _m.c.doc == _c.c.doc)
            .where(_c.c.document_id.in_(ids[start : start + _PAGE]))
            .order_by(_c.c.document_id, _c.c.position)
        )
        for document_id, *chunk in connection.execute(query):
            chunks.setdefault(document_id, []).append(StoredChunk(*chunk))
    return chunks


def unembedded(
    connection: Connection, document_ids: Collection[str], fingerprint: str | None
) -> set[str]:
    """Return those of some documents of which a chunk has no vector of an embedder yet; of any
    embedder, where its fingerprint is not known.
    """
    has_vector = _has_vector(fingerprint)
    ids, incomplete = sorted(document_ids), set[str]()
    for start in range(0, len(ids), _PAGE):
        query = (
            select(_c.c.document_id)
            .join(_m, _m.c.doc == _c.c.doc)
            .where(
                _c.c.document_id.in_(ids[start : start + _PAGE]),
                _c.c.is_current,
                _m.c.state == "active",
                ~has_vector,
            )
        )
        incomplete |= set(connection.execute(query.distinct()).scalars())
    return incomplete


def _has_vector(fingerprint: str | None) -> Exists:
    here = exists().where(_v.c.doc == _c.c.doc)
    return here if fingerprint is None else here.where(_v.c.fingerprint == fingerprint)


def waiting_count(connection: Connection, import_id: str, fingerprint: str | None) -> int:
    """Return the number of records of an import of which a chunk has no vector yet; see
    `unembedded`.
    """
    records = tables.source_records
    has_vector = _has_vector(fingerprint)
    query = (
        select(func.count(func.distinct(records.c.document_id)))
        .join(_c, _c.c.document_id == records.c.document_id)
        .join(_m, _m.c.doc == _c.c.doc)
        .where(
            records.c.import_id == import_id, _c.c.is_current, _m.c.state == "active", ~has_vector
        )
    )
    return int(connection.execute(query).scalar_one())


def add_attachments(
    tx: Connection, document_id: str, scope_id: int, rows: Iterable[Mapping[str, Any]]
) -> None:
    """Store the attachments of a document that has none."""
    values = [
        {**row, "document_id": document_id, "scope_id": scope_id, "position": position}
        for position, row in enumerate(rows)
    ]
    if values:
        tx.execute(insert(_a), values)


def attachments_of(connection: Connection, document_id: str) -> list[Row]:
    """Return the attachments of a document, in their order."""
    query = select(_a).where(_a.c.document_id == document_id).order_by(_a.c.position)
    return [dict(row) for row in connection.execute(query).mappings()]


def drop_attachments(tx: Connection, document_ids: Sequence[str]) -> None:
    """Remove the attachments of documents."""
    here = _a.c.document_id.in_(document_ids)
    bodies = tx.execute(
        select(_a.c.scope_id, _a.c.content_key).where(here, _a.c.content_key.is_not(None))
    ).all()
    tx.execute(delete(_a).where(here))
    for scope_id, key in bodies:
        parts.drop(tx, scope_id, key)


def destroy_raw(tx: Connection, docs: Sequence[int], *, keep_rows: bool) -> None:
    """Destroy what arrived of the documents of which a current chunk is destroyed, with their
    attachments: a chunk is a part of what arrived. With its last chunk goes what is known of the
    document itself, and without `keep_rows` that there was one.
    """
    own = _c.c.doc.in_(list(docs))
    touched = sorted(
        set(tx.execute(select(_c.c.document_id).where(own, _c.c.is_current)).scalars())
    )
    if not touched:
        return
    others = select(_c.c.document_id, _c.c.is_current).where(_c.c.document_id.in_(touched), ~own)
    left = tx.execute(others).all()
    stays = {row.document_id for row in left if row.is_current}
    bodies = tx.execute(
        select(_d.c.id, _d.c.scope_id, _d.c.content_key).where(_d.c.id.in_(touched))
    ).all()
    drop_attachments(tx, touched)
    for row in bodies:
        emptied = {} if row.id in stays else texts.erased_values(_d)
        update_document(tx, row.id, **{**emptied, "content_key": None})
        if row.content_key is not None:
            parts.drop(tx, row.scope_id, row.content_key)
    gone = sorted(set(touched) - {row.document_id for row in left})
    if gone and not keep_rows:
        records = tables.source_records
        tx.execute(delete(_c).where(own, _c.c.document_id.in_(gone)))
        tx.execute(delete(records).where(records.c.document_id.in_(gone)))
        tx.execute(delete(_d).where(_d.c.id.in_(gone)))


def hand_over(tx: Connection, docs: Sequence[int], user: str) -> None:
    """Let the documents of a user to which memories belong be of their scope instead."""
    owner = select(tables.scopes.c["name"]).where(tables.scopes.c.id == _d.c.scope_id)
    named = select(_c.c.document_id).where(_c.c.doc.in_(list(docs)))
    mine = _d.c.id.in_(named) & (_d.c.created_by == user)
    tx.execute(update(_d).where(mine).values(created_by=owner.scalar_subquery()))


def _first(rows: Any) -> Row | None:
    row = rows.mappings().first()
    return None if row is None else dict(row)
