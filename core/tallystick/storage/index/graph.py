"""The graph as rows: the names of entities, which memories mention them, and what is said of two.

A mention is an edge of the kind MENTIONS from a memory to an entity of the same scope. It counts
while its memory is active; nothing stores a count, so that none can be wrong.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from sqlalchemy import (
    Connection,
    bindparam,
    delete,
    exists,
    func,
    literal_column,
    or_,
    select,
)

from tallystick.storage.engine import tables
from tallystick.storage.engine.prepared import Prepared, insert_row, upsert
from tallystick.storage.index import communities
from tallystick.storage.index.marks import Mark, Row

UNREAD_KINDS = ("entity", "community", "store_item", "working")
"""Kinds of memories that the graph reads no names from: its own, and items that a runtime keeps
apart by their namespace.
"""

NAME = "graph"
"""The name of its marks."""

_n, _r, _rm = tables.entity_names, tables.relations, tables.relation_mentions
_e, _m, _ms, _x = tables.edges, tables.memories, tables.memory_sources, tables.search_text
_IS_MENTION = (_e.c.kind == literal_column("'MENTIONS'")) & _e.c.valid_until.is_(None)
_MENTIONED = Prepared(select(_e.c.to_doc).where(_e.c.from_doc == bindparam("doc"), _IS_MENTION))
_ADD_NAME = Prepared(insert_row(_n, "scope_id", "name", "doc", "type", "fingerprint", "vector"))
_ADD_RELATION = Prepared(insert_row(_r, "scope_id", "from_doc", "name", "to_doc", "created_at"))
_ADD_EVIDENCE = Prepared(
    upsert(
        _rm,
        ("relation_id", "doc", "confidence"),
        key=("relation_id", "doc"),
        replacing=("confidence",),
    )
)


class EntityName(NamedTuple):
    """A name of an entity that the graph made."""

    name: str
    doc: int
    type: str
    fingerprint: str | None = None
    vector: bytes | None = None


class Mention(NamedTuple):
    """A memory that mentions an entity."""

    doc: int
    entity: int


class RelationRow(NamedTuple):
    """What active memories say of two entities."""

    from_doc: int
    name: str
    to_doc: int
    mentions: tuple[int, ...]
    """The memories that say it, oldest first."""
    confidence: int
    """Of the one that is surest, percent."""


class Drift(NamedTuple):
    """What of the graph is not as it must be; each is empty in a graph that is true."""

    orphans: tuple[int, ...]
    """Entities that nothing mentions."""
    strays: tuple[str, ...]
    """Edges of mentions that end at no entity, or in another scope."""
    shown: tuple[int, ...]
    """Entities that are shown though no active memory mentions them."""
    relations: tuple[int, ...]
    """Relations without a text that says so, or across scopes."""
    communities: tuple[str, ...] = ()
    """Communities without an entity, or with one of another scope."""


def find_names(connection: Connection, scope_id: int, names: Iterable[str]) -> dict[str, int]:
    """Return the entities of a scope with these names, by name; those that are unknown are left
    out.
    """
    ordered = sorted(set(names))
    docs: dict[str, int] = {}
    for start in range(0, len(ordered), 500):
        query = select(_n.c.name, _n.c.doc).where(
            _n.c.scope_id == scope_id, _n.c.name.in_(ordered[start : start + 500])
        )
        docs.update((row.name, row.doc) for row in connection.execute(query))
    return docs


def names_in(connection: Connection, scope_ids: Iterable[int]) -> list[EntityName]:
    """Return every name of the entities of some scopes, the oldest entity first."""
    query = select(_n.c.name, _n.c.doc, _n.c.type, _n.c.fingerprint, _n.c.vector).where(
        _n.c.scope_id.in_(list(scope_ids))
    )
    return [
        EntityName(row.name, row.doc, row.type, row.fingerprint, row.vector)
        for row in connection.execute(query.order_by(_n.c.doc, _n.c.name))
    ]


def is_empty(connection: Connection, scope_ids: Iterable[int]) -> bool:
    """Return True if the graph has no entity in these scopes."""
    query = select(_n.c.doc).where(_n.c.scope_id.in_(list(scope_ids))).limit(1)
    return connection.execute(query).first() is None


def count_entities(connection: Connection) -> int:
    """Return the number of entities of the graph, in all scopes."""
    return int(connection.execute(select(func.count(_n.c.doc.distinct()))).scalar_one())


def add_name(tx: Connection, scope_id: int, name: EntityName) -> None:
    """Note the name of an entity that was just made."""
    _ADD_NAME(tx, {**name._asdict(), "scope_id": scope_id})


def made_here(connection: Connection, docs: Iterable[int]) -> set[int]:
    """Return those of these memories that are entities of the graph."""
    return set(
        connection.execute(select(_n.c.doc).where(_n.c.doc.in_(list(docs))).distinct()).scalars()
    )


def mentioned_by(connection: Connection, doc: int) -> set[int]:
    """Return the entities that a memory mentions."""
    return {entity for (entity,) in _MENTIONED(connection, {"doc": doc})}


def entities_of(connection: Connection, docs: Iterable[int]) -> list[Mention]:
    """Return the entities that these memories mention, as pairs."""
    query = select(_e.c.from_doc, _e.c.to_doc).where(_e.c.from_doc.in_(list(docs)), _IS_MENTION)
    return [Mention(*row) for row in connection.execute(query.order_by(_e.c.from_doc, _e.c.to_doc))]


def mentions(connection: Connection, entities: Iterable[int]) -> list[Mention]:
    """Return the active memories that mention these entities, newest first."""
    query = (
        select(_e.c.from_doc, _e.c.to_doc)
        .join(_m, _m.c.doc == _e.c.from_doc)
        .where(_e.c.to_doc.in_(list(entities)), _IS_MENTION, _m.c.state == "active")
        .order_by(_e.c.from_doc.desc(), _e.c.to_doc)
    )
    return [Mention(*row) for row in connection.execute(query)]


def living_mentions(connection: Connection, entities: Iterable[int]) -> dict[int, int]:
    """Return the number of active memories that mention each of these entities; those without are
    left out.
    """
    query = (
        select(_e.c.to_doc, func.count())
        .join(_m, _m.c.doc == _e.c.from_doc)
        .where(_e.c.to_doc.in_(list(entities)), _IS_MENTION, _m.c.state == "active")
        .group_by(_e.c.to_doc)
    )
    return {entity: int(count) for entity, count in connection.execute(query)}


def add_relation(
    tx: Connection,
    scope_id: int,
    from_doc: int,
    name: str,
    to_doc: int,
    *,
    evidence: int,
    confidence: int,
    at: int,
) -> None:
    """Note that the memory `evidence` says it of two entities; a triple that is known gains
    evidence.
    """
    same = select(_r.c.id).where(
        _r.c.from_doc == from_doc, _r.c.name == name, _r.c.to_doc == to_doc
    )
    relation_id = tx.execute(same).scalar()
    if relation_id is None:
        ends = {"from_doc": from_doc, "name": name, "to_doc": to_doc}
        _ADD_RELATION(tx, {**ends, "scope_id": scope_id, "created_at": at})
        relation_id = tx.execute(same).scalar_one()
    _ADD_EVIDENCE(tx, {"relation_id": relation_id, "doc": evidence, "confidence": confidence})


def relations_of(connection: Connection, entities: Iterable[int]) -> list[RelationRow]:
    """Return what active memories say of these entities and others, oldest first."""
    ends = list(entities)
    query = (
        select(_r.c.id, _r.c.from_doc, _r.c.name, _r.c.to_doc, _rm.c.doc, _rm.c.confidence)
        .join(_rm, _rm.c.relation_id == _r.c.id)
        .join(_m, _m.c.doc == _rm.c.doc)
        .where(or_(_r.c.from_doc.in_(ends), _r.c.to_doc.in_(ends)), _m.c.state == "active")
        .order_by(_r.c.id, _rm.c.doc)
    )
    relations: dict[int, RelationRow] = {}
    for row in connection.execute(query):
        relation = relations.get(row.id)
        relations[row.id] = RelationRow(
            row.from_doc,
            row.name,
            row.to_doc,
            (*(relation.mentions if relation else ()), row.doc),
            max(relation.confidence if relation else 0, row.confidence),
        )
    return list(relations.values())


def unread(
    connection: Connection, scope_id: int, mark: Mark, *, limit: int | None = None
) -> list[Row]:
    """Return the active memories of a scope behind the mark of the graph, in the order in which
    they follow.
    """
    query = (
        select(_x.c.revision, _x.c.doc)
        .join(_m, _m.c.doc == _x.c.doc)
        .where(_x.c.scope_id == scope_id, _x.c.revision >= mark.revision)
        .where((_x.c.revision > mark.revision) | (_x.c.doc > mark.doc))
        .where(_m.c.state == "active", _m.c.kind.not_in(UNREAD_KINDS))
    )
    query = query.order_by(_x.c.revision, _x.c.doc).limit(limit)
    return [Row(*row) for row in connection.execute(query)]


def count_texts(connection: Connection, scope_id: int) -> int:
    """Return the number of texts of a scope that the graph reads."""
    is_read = (_m.c.state == "active") & _m.c.kind.not_in(UNREAD_KINDS)
    query = select(func.count()).where(_m.c.scope_id == scope_id, is_read)
    return int(connection.execute(query).scalar_one())


def drop_mentions(tx: Connection, doc: int) -> set[int]:
    """Remove what a memory mentions and says of entities; return those entities."""
    mentioned = mentioned_by(tx, doc)
    tx.execute(delete(_e).where(_e.c.from_doc == doc, _e.c.kind == "MENTIONS"))
    _drop_evidence(tx, [doc])
    return mentioned


def _drop_evidence(tx: Connection, docs: Sequence[int]) -> None:
    relation_ids = list(
        tx.execute(select(_rm.c.relation_id).where(_rm.c.doc.in_(docs)).distinct()).scalars()
    )
    if relation_ids:
        tx.execute(delete(_rm).where(_rm.c.doc.in_(docs)))
        tx.execute(
            delete(_r).where(
                _r.c.id.in_(relation_ids), ~exists().where(_rm.c.relation_id == _r.c.id)
            )
        )


def remove(tx: Connection, docs: Sequence[int]) -> set[int]:
    """Remove the relations and memberships of these memories, whose other rows are removed next;
    return the entities that they mention.
    """
    mentioned = {entity for _, entity in entities_of(tx, docs)}
    _drop_evidence(tx, docs)
    about = select(_r.c.id).where(or_(_r.c.from_doc.in_(docs), _r.c.to_doc.in_(docs)))
    _remove_relations(tx, list(tx.execute(about).scalars()))
    communities.drop_members(tx, docs, mentioned)
    return mentioned - set(docs)


def _remove_relations(tx: Connection, ids: Sequence[int]) -> None:
    if ids:
        tx.execute(delete(_rm).where(_rm.c.relation_id.in_(ids)))
        tx.execute(delete(_r).where(_r.c.id.in_(ids)))


def without_mention(connection: Connection, docs: Iterable[int] | None = None) -> list[int]:
    """Return the entities of the graph, or those of `docs`, that nothing mentions and nobody
    confirmed: a pin, or a source beside the graph's own, confirms one.
    """
    mention = exists().where(_e.c.to_doc == _m.c.doc, _IS_MENTION)
    more = select(func.count()).where(_ms.c.doc == _m.c.doc).scalar_subquery() > literal_column("1")
    query = select(_m.c.doc).where(
        exists().where(_n.c.doc == _m.c.doc), ~mention, _m.c.pinned.is_(False), ~more
    )
    if docs is not None:
        query = query.where(_m.c.doc.in_(list(docs)))
    return list(connection.execute(query.order_by(_m.c.doc)).scalars())


def drift(connection: Connection) -> Drift:
    """Return what of the graph, in all scopes, is not as it must be."""
    source, entity = _m.alias("source"), _m.alias("entity")
    strays = (
        select(_e.c.id)
        .join(source, source.c.doc == _e.c.from_doc)
        .join(entity, entity.c.doc == _e.c.to_doc)
        .where(
            _e.c.kind == "MENTIONS",
            or_(entity.c.kind != "entity", source.c.scope_id != entity.c.scope_id),
        )
    )
    ends = select(_m.c.scope_id).where(_m.c.doc == _r.c.from_doc).scalar_subquery()
    other = select(_m.c.scope_id).where(_m.c.doc == _r.c.to_doc).scalar_subquery()
    unsaid = select(_r.c.id).where(
        or_(
            ~exists().where(_rm.c.relation_id == _r.c.id),
            ends != _r.c.scope_id,
            other != _r.c.scope_id,
        )
    )
    living = exists().where(
        _e.c.to_doc == _m.c.doc,
        _IS_MENTION,
        _e.c.from_doc == source.c.doc,
        source.c.state == "active",
    )
    shown = (
        select(_m.c.doc)
        .where(
            exists().where(_n.c.doc == _m.c.doc),
            exists().where(_e.c.to_doc == _m.c.doc, _IS_MENTION),
            _m.c.state == "active",
            ~living,
        )
        .order_by(_m.c.doc)
    )
    return Drift(
        tuple(without_mention(connection)),
        tuple(connection.execute(strays.order_by(_e.c.id)).scalars()),
        tuple(connection.execute(shown).scalars()),
        tuple(connection.execute(unsaid.order_by(_r.c.id)).scalars()),
        tuple(communities.empty_communities(connection)),
    )


def remove_drift(tx: Connection, drift: Drift) -> None:
    """Remove stray edges, relations that nothing says and communities of nothing."""
    if drift.strays:
        tx.execute(delete(_e).where(_e.c.id.in_(drift.strays)))
    _remove_relations(tx, drift.relations)
    communities.remove_empty(tx, drift.communities)
