"""Edges between memories as rows. An edge that is no longer valid is closed, not removed:
`valid_until` is the moment since when.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from sqlalchemy import (
    Connection,
    and_,
    bindparam,
    delete,
    exists,
    insert,
    literal_column,
    or_,
    select,
    update,
)

from tallystick.records import EdgeKind
from tallystick.storage.engine import containment, tables, texts
from tallystick.storage.engine.prepared import Prepared, in_list, integer_list

_LONGEST_CHAIN = 32
"""How many edges of one kind are followed, one from the other."""

_e = tables.edges
_from, _to = tables.memories.alias("from_memory"), tables.memories.alias("to_memory")


@dataclass(frozen=True)
class EdgeRow:
    """An edge with the numbers and ids of both its ends."""

    id: str
    kind: EdgeKind
    from_doc: int
    to_doc: int
    from_id: str
    to_id: str
    reason: str | None
    evidence: tuple[str, ...]
    valid_from: int | None
    valid_until: int | None


_SELECT = (
    select(_e, _from.c.id.label("from_id"), _to.c.id.label("to_id"))
    .join(_from, _from.c.doc == _e.c.from_doc)
    .join(_to, _to.c.doc == _e.c.to_doc)
)


def drop_reasons_with(
    tx: Connection, needles: Sequence[bytes], *, within: Sequence[int] | None
) -> None:
    """Remove the reasons of edges that contain one of `needles`, in these scopes or, for None, in
    all.
    """
    condition = containment.holds(tx, _e, needles, within)
    tx.execute(update(_e).where(condition).values(texts.erased_values(_e)))


def add(
    tx: Connection,
    *,
    edge_id: str,
    kind: EdgeKind,
    scope_id: int,
    from_doc: int,
    to_doc: int,
    at: int,
    reason: str | None = None,
    evidence: Sequence[str] = (),
    valid_from: int | None = None,
    confidence: int = 100,
) -> None:
    """Link two memories, with a confidence in percent; a closed edge of the same kind between the
    two is opened again.
    """
    same = and_(_e.c.kind == kind, _e.c.from_doc == from_doc, _e.c.to_doc == to_doc)
    values = {
        "reason": reason,
        "evidence": json.dumps(list(evidence)),
        "valid_from": valid_from,
        "valid_until": None,
        "confidence": confidence,
    }
    if tx.execute(update(_e).where(same).values(**values)).rowcount:
        return
    tx.execute(
        insert(_e),
        {
            "id": edge_id,
            "scope_id": scope_id,
            "kind": kind,
            "from_doc": from_doc,
            "to_doc": to_doc,
            "created_at": at,
            "schema_version": 1,
            **values,
        },
    )


def close(tx: Connection, edge_ids: Iterable[str], *, at: int) -> None:
    """Close edges that are no longer valid."""
    tx.execute(update(_e).where(_e.c.id.in_(list(edge_ids))).values(valid_until=at))


_SHARES = (_e.c.kind == literal_column("'SHARES'")) & _e.c.valid_until.is_(None)
_SHARED = Prepared(
    select(_e.c.id, _e.c.from_doc, _e.c.to_doc)
    .where(_e.c.to_doc == bindparam("doc"), _SHARES)
    .union_all(
        select(_e.c.id, _e.c.from_doc, _e.c.to_doc).where(
            _e.c.from_doc == bindparam("doc"), _SHARES
        )
    )
)
_WITHDRAWN = Prepared(
    select(_e.c.id).where(
        _e.c.from_doc == bindparam("doc"),
        _e.c.kind == literal_column("'SHARES'"),
        _e.c.valid_until.is_not(None),
    )
)


class SharedCopy(NamedTuple):
    """A copy that follows a memory of another scope."""

    edge_id: str
    doc: int


@dataclass(frozen=True)
class Sharing:
    """The copies of a memory, and the memory that it is a copy of."""

    copies: tuple[SharedCopy, ...] = ()
    """The copies that follow it."""
    origin: int | None = None
    """The number of the memory that it follows itself, if it is a shared copy."""


def sharing(connection: Connection, doc: int) -> Sharing:
    """Return the copies of a memory, and the memory that it is a copy of."""
    rows = _SHARED(connection, {"doc": doc})
    origins = [to_doc for _, from_doc, to_doc in rows if from_doc == doc]
    copies = tuple(
        SharedCopy(edge_id, from_doc) for edge_id, from_doc, to_doc in rows if to_doc == doc
    )
    return Sharing(copies, origins[0] if origins else None)


def withdrawn(connection: Connection, doc: int) -> bool:
    """Return True if a memory is a copy that was shared once and is no longer."""
    return bool(_WITHDRAWN(connection, {"doc": doc}))


def was_linked(connection: Connection, kind: EdgeKind, from_doc: int, to_doc: int) -> bool:
    """Return True if two memories are linked so, or once were."""
    query = select(_e.c.id).where(
        _e.c.kind == kind, _e.c.from_doc == from_doc, _e.c.to_doc == to_doc
    )
    return connection.execute(query).first() is not None


def leaving(
    connection: Connection, kind: EdgeKind, docs: Iterable[int], *, most: int | None
) -> list[EdgeRow]:
    """Return every valid edge of `kind` that leaves one of `docs`, oldest first, at most `most`,
    or all of them.
    """
    query = _SELECT.where(
        _e.c.kind == kind, _e.c.from_doc.in_(list(docs)), _e.c.valid_until.is_(None)
    )
    return [
        _row(row)
        for row in connection.execute(query.order_by(_e.c.created_at, _e.c.id).limit(most))
    ]


def of(connection: Connection, doc: int) -> list[EdgeRow]:
    """Return every valid edge of a memory, in either direction, oldest first."""
    query = _SELECT.where(or_(_e.c.from_doc == doc, _e.c.to_doc == doc), _e.c.valid_until.is_(None))
    return [_row(row) for row in connection.execute(query.order_by(_e.c.created_at, _e.c.id))]


def touching(connection: Connection, docs: Iterable[int], *, most: int) -> list[EdgeRow]:
    """Return every valid edge with one of `docs` at an end, oldest first, at most `most`."""
    ends = list(docs)
    if not ends:
        return []
    query = _SELECT.where(
        or_(_e.c.from_doc.in_(ends), _e.c.to_doc.in_(ends)), _e.c.valid_until.is_(None)
    )
    return [
        _row(row)
        for row in connection.execute(query.order_by(_e.c.created_at, _e.c.id).limit(most))
    ]


class Contradiction(NamedTuple):
    """Two memories that contradict one another, or that a person said do not."""

    id: str
    from_doc: int
    to_doc: int
    is_open: bool


_CONTRADICTS = select(_e.c.id, _e.c.from_doc, _e.c.to_doc, _e.c.valid_until.is_(None)).where(
    _e.c.kind == literal_column("'CONTRADICTS'")
)
_CONTRADICTIONS = Prepared(
    _CONTRADICTS.where(in_list(_e.c.from_doc, "docs")).union_all(
        _CONTRADICTS.where(in_list(_e.c.to_doc, "docs"))
    )
)


def contradictions(connection: Connection, docs: Sequence[int]) -> list[Contradiction]:
    """Return the edges `CONTRADICTS` of some memories, in either direction, closed ones too."""
    rows = _CONTRADICTIONS(connection, {"docs": integer_list(connection, docs)})
    return [Contradiction(row[0], row[1], row[2], bool(row[3])) for row in rows]


def following(
    connection: Connection, kind: EdgeKind, docs: Iterable[int], *, forward: bool
) -> dict[int, EdgeRow]:
    """Return the newest edge of `kind` that leaves each of `docs` (`forward`) or comes to it, by
    number; those without one are left out.
    """
    end = _e.c.from_doc if forward else _e.c.to_doc
    query = _SELECT.where(_e.c.kind == kind, end.in_(list(docs)), _e.c.valid_until.is_(None))
    rows = [_row(row) for row in connection.execute(query.order_by(_e.c.created_at, _e.c.id))]
    return {row.from_doc if forward else row.to_doc: row for row in rows}


def follow_to_end(
    connection: Connection, kind: EdgeKind, docs: Iterable[int], *, forward: bool
) -> dict[int, int]:
    """Return for each of `docs` the number at the end of its chain of edges of `kind`; those that
    no such edge leaves (`forward`) or comes to are left out.
    """
    ends = {doc: doc for doc in docs}
    for _ in range(_LONGEST_CHAIN if ends else 0):
        links = following(connection, kind, set(ends.values()), forward=forward)
        if not links:
            break
        ends = {
            doc: (links[end].to_doc if forward else links[end].from_doc) if end in links else end
            for doc, end in ends.items()
        }
    return {doc: end for doc, end in ends.items() if end != doc}


def without_end(
    connection: Connection, kind: EdgeKind, states: Iterable[str], end_states: Iterable[str]
) -> list[int]:
    """Return the memories in some states which valid edges of `kind` leave, of which none leads to
    a memory in one of `end_states`.
    """
    leaves = and_(_e.c.kind == kind, _e.c.from_doc == _from.c.doc, _e.c.valid_until.is_(None))
    ends = exists().where(leaves, _to.c.doc == _e.c.to_doc, _to.c.state.in_(list(end_states)))
    query = select(_from.c.doc).where(
        _from.c.state.in_(list(states)), exists().where(leaves), ~ends
    )
    return list(connection.execute(query.order_by(_from.c.doc)).scalars())


def within(connection: Connection, scope_ids: Iterable[int]) -> list[EdgeRow]:
    """Return every edge of these scopes, closed ones included."""
    query = _SELECT.where(_e.c.scope_id.in_(list(scope_ids))).order_by(_e.c.created_at, _e.c.id)
    return [_row(row) for row in connection.execute(query)]


def remove(tx: Connection, doc: int) -> int:
    """Remove every edge of a memory; return their number."""
    return int(tx.execute(delete(_e).where(or_(_e.c.from_doc == doc, _e.c.to_doc == doc))).rowcount)


def _row(row: Any) -> EdgeRow:
    return EdgeRow(
        row.id,
        row.kind,
        row.from_doc,
        row.to_doc,
        row.from_id,
        row.to_id,
        row.reason,
        tuple(json.loads(row.evidence)),
        row.valid_from,
        row.valid_until,
    )


def with_kind(
    connection: Connection, kind: EdgeKind, scope_ids: Iterable[int], *, most: int
) -> list[int]:
    """Return the memories of some scopes that a valid edge of `kind` leaves, oldest first."""
    query = (
        select(_e.c.from_doc)
        .where(_e.c.kind == kind, _e.c.scope_id.in_(list(scope_ids)), _e.c.valid_until.is_(None))
        .distinct()
        .order_by(_e.c.from_doc)
        .limit(most)
    )
    return list(connection.execute(query).scalars())
