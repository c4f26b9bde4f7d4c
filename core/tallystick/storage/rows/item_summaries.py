"""Item summaries as rows: short forms of the texts of memories, each beside its memory.

A text that several memories say is summarized once, and each has the summary as a row of its own,
which goes with its text.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from sqlalchemy import Connection, delete, exists, select

from tallystick.storage.engine import tables
from tallystick.storage.engine.prepared import Prepared, upsert
from tallystick.storage.rows import memories

_i, _m, _e = tables.item_summaries, tables.memories, tables.edges
_MADE = ("digest", "summary", "made_by", "made_at")
_PUT = Prepared(upsert(_i, ("doc", *_MADE), key=("doc",), replacing=_MADE))


def put(tx: Connection, doc: int, *, digest: str, summary: str, made_by: str, at: int) -> None:
    """Keep a summary of the text of a memory, in the place of the one before."""
    values = {"digest": digest, "summary": summary, "made_by": made_by, "made_at": at}
    _PUT(tx, {"doc": doc, **values})


def drop(tx: Connection, docs: Sequence[int]) -> None:
    """Remove the summaries of memories that do not say this any more."""
    tx.execute(delete(_i).where(_i.c.doc.in_(docs)))


def read(connection: Connection, memory_ids: Collection[str]) -> dict[str, str]:
    """Return the summaries of memories, each under the digest of the text that it is of."""
    query = select(_i.c.digest, _i.c.summary).join(_m, _m.c.doc == _i.c.doc)
    rows = connection.execute(query.where(_m.c.id.in_(list(memory_ids))))
    return {row.digest: row.summary for row in rows}


def find(connection: Connection, scope_id: int, digest: str) -> tuple[str, str] | None:
    """Return the summary of a text that a memory of a scope has, and who made it."""
    query = (
        select(_i.c.summary, _i.c.made_by)
        .join(_m, _m.c.doc == _i.c.doc)
        .where(_i.c.digest == digest, _m.c.scope_id == scope_id)
    )
    row = connection.execute(query.order_by(_i.c.doc).limit(1)).first()
    return None if row is None else (row.summary, row.made_by)


def unfounded(connection: Connection) -> list[int]:
    """Return the memories that have a summary and are not shown any more."""
    gone = _m.c.state.not_in(memories.FINDABLE)
    query = select(_i.c.doc).join(_m, _m.c.doc == _i.c.doc).where(gone)
    return list(connection.execute(query.order_by(_i.c.doc)).scalars())


def remembered(connection: Connection, memory_ids: Collection[str]) -> list[tuple[int, int]]:
    """Return the active memories of the kind `summary` that were concluded from one of these alone,
    in its scope, each behind its origin; the oldest first.
    """
    summary, other = _m.alias("summary"), _e.alias("other")
    more = exists().where(
        other.c.from_doc == _e.c.from_doc,
        other.c.kind == "DERIVED_FROM",
        other.c.to_doc != _e.c.to_doc,
    )
    query = (
        select(_m.c.doc, summary.c.doc)
        .join(_e, _e.c.to_doc == _m.c.doc)
        .join(summary, summary.c.doc == _e.c.from_doc)
        .where(
            _m.c.id.in_(list(memory_ids)),
            _e.c.kind == "DERIVED_FROM",
            _e.c.valid_until.is_(None),
            summary.c.kind == "summary",
            summary.c.state == "active",
            summary.c.scope_id == _m.c.scope_id,
            ~more,
        )
    )
    return [(row[0], row[1]) for row in connection.execute(query.order_by(summary.c.doc))]
