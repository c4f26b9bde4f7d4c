"""Communities as rows: which entities of a scope are grouped, level by level.

They are derived from the mentions and made anew by the job that reads them. No text is stored, but
for the vector of what a community is about, which goes with any text that it was made from.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from sqlalchemy import Connection, delete, insert, select, update
from sqlalchemy import exists as sql_exists

from tallystick.storage.engine import tables, texts
from tallystick.storage.rows import memories

_c, _cm, _p = tables.communities, tables.community_members, tables.partitions
_ms, _s = tables.memory_sources, tables.sources
_e, _m = tables.edges, tables.memories


class Community(NamedTuple):
    """A group of entities."""

    id: str
    scope_id: int
    level: int
    """0 for the broadest ones; those within them have higher levels."""
    parent: str | None
    members: tuple[int, ...]
    fingerprint: str | None = None
    vector: bytes | None = None


class Togetherness(NamedTuple):
    """A text and the entities that it mentions together."""

    doc: int
    entities: tuple[int, ...]


def together_in(connection: Connection, scope_id: int) -> list[Togetherness]:
    """Return the active memories of a scope with the entities that they mention, oldest first."""
    query = (
        select(_e.c.from_doc, _e.c.to_doc)
        .join(_m, _m.c.doc == _e.c.from_doc)
        .where(
            _m.c.scope_id == scope_id,
            _m.c.state == "active",
            _e.c.kind == "MENTIONS",
            _e.c.valid_until.is_(None),
        )
        .order_by(_e.c.from_doc, _e.c.to_doc)
    )
    by_text: dict[int, list[int]] = defaultdict(list)
    for doc, entity in connection.execute(query):
        by_text[doc].append(entity)
    return [Togetherness(doc, tuple(entities)) for doc, entities in by_text.items()]


def divided_texts(connection: Connection, scope_id: int) -> int | None:
    """Return the number of texts that a scope had when it was divided last; None if it never
    was.
    """
    return connection.execute(select(_p.c.texts).where(_p.c.scope_id == scope_id)).scalar()


def of_scopes(connection: Connection, scope_ids: Iterable[int]) -> list[Community]:
    """Return the communities of some scopes: broad ones first, of a level the largest first."""
    ids = list(scope_ids)
    members: dict[str, list[int]] = defaultdict(list)
    joined = (
        select(_cm.c.community_id, _cm.c.doc)
        .join(_c, _c.c.id == _cm.c.community_id)
        .where(_c.c.scope_id.in_(ids))
        .order_by(_cm.c.community_id, _cm.c.doc)
    )
    for community, doc in connection.execute(joined):
        members[community].append(doc)
    rows = connection.execute(select(_c).where(_c.c.scope_id.in_(ids)))
    found = [
        Community(
            row.id,
            row.scope_id,
            row.level,
            row.parent,
            tuple(members[row.id]),
            row.fingerprint,
            row.vector,
        )
        for row in rows
        if row.id in members
    ]
    return sorted(found, key=lambda each: (each.level, -len(each.members), each.id))


def replace(
    tx: Connection, scope_id: int, communities: Sequence[Community], *, texts: int, at: int
) -> None:
    """Put these communities in the place of all that a scope has."""
    old = select(_c.c.id).where(_c.c.scope_id == scope_id)
    tx.execute(delete(_cm).where(_cm.c.community_id.in_(old)))
    tx.execute(delete(_c).where(_c.c.scope_id == scope_id))
    tx.execute(delete(_p).where(_p.c.scope_id == scope_id))
    tx.execute(insert(_p).values(scope_id=scope_id, texts=texts, made_at=at))
    if not communities:
        return
    columns = ("id", "scope_id", "level", "parent", "fingerprint", "vector")
    tx.execute(
        insert(_c), [{name: getattr(each, name) for name in columns} for each in communities]
    )
    tx.execute(
        insert(_cm),
        [{"community_id": each.id, "doc": doc} for each in communities for doc in each.members],
    )


def drop_members(tx: Connection, docs: Sequence[int], mentioned: Iterable[int]) -> None:
    """Take memories that are destroyed out of the communities, and the vectors of those whose
    entities (`mentioned`) the memories spoke of; a community of nothing goes.
    """
    query = select(_cm.c.community_id).where(_cm.c.doc.in_([*docs, *mentioned])).distinct()
    about = list(tx.execute(query).scalars())
    if not about:
        return
    tx.execute(update(_c).where(_c.c.id.in_(about)).values(texts.erased_values(_c)))
    tx.execute(delete(_cm).where(_cm.c.doc.in_(list(docs))))
    rest = select(_cm.c.community_id).where(_cm.c.community_id.in_(about))
    remove_empty(tx, sorted(set(about).difference(tx.execute(rest).scalars())))


def empty_communities(connection: Connection) -> list[str]:
    """Return the communities without a member, and those with one of another scope."""
    entity = _m.alias("entity")
    foreign = sql_exists().where(
        _cm.c.community_id == _c.c.id,
        entity.c.doc == _cm.c.doc,
        entity.c.scope_id != _c.c.scope_id,
    )
    query = select(_c.c.id).where(~sql_exists().where(_cm.c.community_id == _c.c.id) | foreign)
    return list(connection.execute(query.order_by(_c.c.id)).scalars())


def remove_empty(tx: Connection, ids: Sequence[str]) -> None:
    """Remove these communities; those within them keep their members and lose their parent."""
    if ids:
        tx.execute(delete(_cm).where(_cm.c.community_id.in_(ids)))
        tx.execute(update(_c).where(_c.c.parent.in_(ids)).values(parent=None))
        tx.execute(delete(_c).where(_c.c.id.in_(ids)))


def summaries_of(connection: Connection, docs: Iterable[int]) -> list[int]:
    """Return the summaries of communities that were made from these memories."""
    query = (
        select(_e.c.from_doc)
        .join(_m, _m.c.doc == _e.c.from_doc)
        .where(
            _e.c.to_doc.in_(list(docs)),
            _e.c.kind == "DERIVED_FROM",
            _m.c.kind == "community",
            _m.c.doc.in_(memories.written_summaries()),
        )
        .distinct()
        .order_by(_e.c.from_doc)
    )
    return list(connection.execute(query).scalars())


def unfounded_summaries(connection: Connection) -> list[int]:
    """Return the summaries of communities of which a memory is not active any more."""
    gone = select(_m.c.doc).where(_m.c.state != "active")
    query = select(_e.c.from_doc).where(
        _e.c.kind == "DERIVED_FROM",
        _e.c.from_doc.in_(memories.written_summaries()),
        _e.c.to_doc.in_(gone),
    )
    return list(connection.execute(query.distinct().order_by(_e.c.from_doc)).scalars())


def read_summaries(connection: Connection, scope_ids: Iterable[int]) -> dict[int, frozenset[int]]:
    """Return the summaries of communities of some scopes, each with the memories that it was made
    from.
    """
    query = (
        select(_e.c.from_doc, _e.c.to_doc)
        .join(_m, _m.c.doc == _e.c.from_doc)
        .where(
            _m.c.scope_id.in_(list(scope_ids)),
            _m.c.kind == "community",
            _m.c.state == "active",
            _m.c.doc.in_(memories.written_summaries()),
            _e.c.kind == "DERIVED_FROM",
        )
    )
    made_from: dict[int, set[int]] = defaultdict(set)
    for summary, doc in connection.execute(query):
        made_from[summary].add(doc)
    return {summary: frozenset(docs) for summary, docs in made_from.items()}
