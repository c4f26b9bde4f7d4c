"""Rows of documents in the making, and of the memories that they quote."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from sqlalchemy import Connection, delete, func, insert, literal, select, tuple_, update

from tallystick.records import EdgeKind
from tallystick.storage.engine import tables, texts

_r, _q, _m = tables.synthesis_runs, tables.synthesis_quotes, tables.memories
Row = Mapping[str, Any]
"""The columns of a row, by name."""
_PAGE = 500


def put_run(tx: Connection, row: Row) -> None:
    """Insert a run, or store it as it is now."""
    result = tx.execute(update(_r).where(_r.c.id == row["id"]).values(**row))
    if result.rowcount == 0:
        tx.execute(insert(_r), dict(row))


def set_quotes(tx: Connection, run_id: str, scope_id: int, memory_ids: Collection[str]) -> None:
    """Note the memories that a run quotes, in place of those that it quoted before."""
    tx.execute(delete(_q).where(_q.c.run_id == run_id))
    if memory_ids:
        quoted = select(literal(run_id), _m.c.doc, literal(scope_id)).where(
            _m.c.id.in_(sorted(memory_ids))
        )
        tx.execute(insert(_q).from_select(["run_id", "doc", "scope_id"], quoted))


def find_run(connection: Connection, run_id: str) -> Row | None:
    """Return one run of any scope, or None: the caller decides who may see it."""
    row = connection.execute(select(_r).where(_r.c.id == run_id)).mappings().first()
    return None if row is None else dict(row)


def runs_of(
    connection: Connection, scope_id: int, *, limit: int, before: tuple[int, str] | None = None
) -> list[Row]:
    """Return the runs of a scope, newest first; `before` is the moment and the id of the last one
    of the page before.
    """
    query = select(_r).where(_r.c.scope_id == scope_id)
    if before is not None:
        query = query.where(tuple_(_r.c.created_at, _r.c.id) < tuple_(*before))
    query = query.order_by(_r.c.created_at.desc(), _r.c.id.desc()).limit(limit)
    return [dict(row) for row in connection.execute(query).mappings()]


def count_damaged(connection: Connection) -> int:
    """Return the number of runs whose body is no JSON."""
    count = 0
    for body in connection.execute(select(_r.c.body)).scalars():
        try:
            json.loads(body)
        except ValueError:
            count += 1
    return count


def count_runs(connection: Connection) -> int:
    """Return the number of runs."""
    return int(connection.execute(select(func.count()).select_from(_r)).scalar_one())


def destroy_quoting(tx: Connection, docs: Sequence[int]) -> None:
    """Destroy the text of the runs that quote one of these memories: a draft repeats its words."""
    runs = select(_q.c.run_id).where(_q.c.doc.in_(list(docs)))
    tx.execute(update(_r).where(_r.c.id.in_(runs)).values(**texts.erased_values(_r)))


def docs_of_sources(connection: Connection, source_ids: Collection[str]) -> set[int]:
    """Return the memories that were drawn from some sources, by number, of any scope."""
    links = tables.memory_sources
    ids, docs = sorted(source_ids), set[int]()
    for start in range(0, len(ids), _PAGE):
        query = select(links.c.doc).where(links.c.source_id.in_(ids[start : start + _PAGE]))
        docs |= set(connection.execute(query).scalars())
    return docs


def docs_linked(connection: Connection, kind: EdgeKind, to_docs: Collection[int]) -> set[int]:
    """Return the memories with a valid link of a kind to some others, by number, of any scope."""
    edges = tables.edges
    ids, docs = sorted(to_docs), set[int]()
    for start in range(0, len(ids), _PAGE):
        query = select(edges.c.from_doc).where(
            edges.c.kind == kind,
            edges.c.to_doc.in_(ids[start : start + _PAGE]),
            edges.c.valid_until.is_(None),
        )
        docs |= set(connection.execute(query).scalars())
    return docs
