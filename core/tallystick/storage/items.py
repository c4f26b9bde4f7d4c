"""Items of stores: which memory stands under a namespace and a key.

A namespace is kept as the JSON list of its labels, so that no label can pass for another or for
two.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy import Connection, bindparam, delete, func, or_, select
from sqlalchemy.dialects import postgresql, sqlite

from tallystick.storage import tables

__all__ = ["Row", "beneath", "find", "forget_docs", "set_item"]

_i = tables.store_items


@dataclass(frozen=True)
class Row:
    """One address."""

    namespace: tuple[str, ...]
    key: str
    doc: int
    ttl: int | None
    """Microseconds that it lives after it was put, or read."""


_FIND = select(_i.c.doc, _i.c.ttl).where(
    _i.c.scope_id == bindparam("scope_id"),
    _i.c.namespace == bindparam("namespace"),
    _i.c.key == bindparam("key"),
)


def find(connection: Connection, scope_id: int, namespace: Sequence[str], key: str) -> Row | None:
    """The memory that was last put at an address, whatever became of it."""
    row = connection.execute(
        _FIND, {"scope_id": scope_id, "namespace": _spelled(namespace), "key": key}
    ).first()
    return None if row is None else Row(tuple(namespace), key, row.doc, row.ttl)


def set_item(tx: Connection, scope_id: int, row: Row) -> None:
    """Let an address name a memory."""
    statement = (postgresql if tx.dialect.name == "postgresql" else sqlite).insert(_i)
    tx.execute(
        statement.on_conflict_do_update(
            index_elements=["scope_id", "namespace", "key"],
            set_={"doc": statement.excluded.doc, "ttl": statement.excluded.ttl},
        ),
        {
            "scope_id": scope_id,
            "namespace": _spelled(row.namespace),
            "key": row.key,
            "doc": row.doc,
            "ttl": row.ttl,
        },
    )


def beneath(connection: Connection, scope_id: int, prefix: Sequence[str]) -> list[Row]:
    """Every address whose namespace is `prefix` or begins with its labels, by namespace and key."""
    query = select(_i).where(_i.c.scope_id == scope_id).order_by(_i.c.namespace, _i.c.key)
    if prefix:
        # The list without its bracket and with a comma: where another label follows.
        within = f"{_spelled(prefix)[:-1]},"
        query = query.where(
            or_(
                _i.c.namespace == _spelled(prefix),
                func.substr(_i.c.namespace, 1, len(within)) == within,
            )
        )
    rows = connection.execute(query)
    return [Row(tuple(json.loads(row.namespace)), row.key, row.doc, row.ttl) for row in rows]


def forget_docs(tx: Connection, docs: Sequence[int]) -> None:
    """Let no address name these memories any more."""
    if docs:
        tx.execute(delete(_i).where(_i.c.doc.in_(list(docs))))


def _spelled(namespace: Sequence[str]) -> str:
    # ASCII: each character is one, so that lengths and comparisons are the same in every database.
    return json.dumps(list(namespace), separators=(",", ":"))
