"""Items of stores: the memory under a namespace and a key; and files: the memory under a path.

A namespace is stored as the JSON list of its labels, so that no label can pass for another or for
two. The address of a file has no label: no store of a runtime puts or lists one there.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import ColumnElement, Connection, and_, bindparam, delete, func, or_, select
from sqlalchemy import Row as RowLike

from tallystick.storage.engine import tables
from tallystick.storage.engine.prepared import Prepared, upsert

_i, _m = tables.store_items, tables.memories
FILES: tuple[str, ...] = ()
"""The namespace of files."""


@dataclass(frozen=True)
class Row:
    """One address with the memory that it names."""

    namespace: tuple[str, ...]
    key: str
    doc: int
    ttl: int | None
    """Microseconds that the item lives after it was put, or read."""


_FIND = select(_i.c.doc, _i.c.ttl).where(
    _i.c.scope_id == bindparam("scope_id"),
    _i.c.namespace == bindparam("namespace"),
    _i.c.key == bindparam("key"),
)


_KEY = ("scope_id", "namespace", "key")
_SET = Prepared(upsert(_i, (*_KEY, "doc", "ttl"), key=_KEY, replacing=("doc", "ttl")))


def find(connection: Connection, scope_id: int, namespace: Sequence[str], key: str) -> Row | None:
    """Return the row of the memory that was last put at an address, even a forgotten one; None
    where there was none.
    """
    row = connection.execute(
        _FIND, {"scope_id": scope_id, "namespace": _spell_namespace(namespace), "key": key}
    ).first()
    return None if row is None else Row(tuple(namespace), key, row.doc, row.ttl)


def set_item(tx: Connection, scope_id: int, row: Row) -> None:
    """Let an address name a memory."""
    _SET(
        tx,
        {
            "scope_id": scope_id,
            "namespace": _spell_namespace(row.namespace),
            "key": row.key,
            "doc": row.doc,
            "ttl": row.ttl,
        },
    )


def drop(tx: Connection, scope_id: int, namespace: Sequence[str], key: str) -> None:
    """Let an address name no memory."""
    address = (_i.c.namespace == _spell_namespace(namespace)) & (_i.c.key == key)
    tx.execute(delete(_i).where(_i.c.scope_id == scope_id, address))


def files(connection: Connection, scope_id: int, now: int) -> list[Row]:
    """Return the addresses of files whose memory is active and not past its end, by path."""
    query = select(_i).join(_m, _m.c.doc == _i.c.doc).order_by(_i.c.key)
    is_file = _i.c.namespace == _spell_namespace(FILES)
    return [
        _row(row)
        for row in connection.execute(query.where(_i.c.scope_id == scope_id, is_file, _lives(now)))
    ]


def beneath(
    connection: Connection,
    scope_id: int,
    prefix: Sequence[str],
    *,
    among: Collection[int] | None = None,
) -> list[Row]:
    """Return every address whose namespace is `prefix` or begins with its labels, by namespace and
    key; only those of the memories `among`, where they are given.
    """
    query = select(_i).where(*_within(scope_id, prefix)).order_by(_i.c.namespace, _i.c.key)
    if among is not None:
        query = query.where(_i.c.doc.in_(list(among)))
    return [_row(row) for row in connection.execute(query)]


def living(
    connection: Connection,
    scope_id: int,
    prefix: Sequence[str],
    now: int,
    *,
    limit: int | None = None,
    offset: int = 0,
) -> list[Row]:
    """Return the addresses beneath `prefix` whose memory is active and not past its end, the last
    changed first.
    """
    query = select(_i).join(_m, _m.c.doc == _i.c.doc).where(*_within(scope_id, prefix), _lives(now))
    query = query.order_by(_m.c.updated_at.desc(), _i.c.namespace, _i.c.key)
    return [_row(row) for row in connection.execute(query.limit(limit).offset(offset))]


def namespaces(connection: Connection, scope_id: int, now: int) -> list[tuple[str, ...]]:
    """Return every namespace with such an address, in order."""
    query = select(_i.c.namespace).join(_m, _m.c.doc == _i.c.doc)
    rows = connection.execute(query.where(*_within(scope_id, ()), _lives(now)).distinct())
    return sorted(tuple(json.loads(name)) for name in rows.scalars())


def _within(scope_id: int, prefix: Sequence[str]) -> list[ColumnElement[bool]]:
    if not prefix:
        return [_i.c.scope_id == scope_id, _i.c.namespace != _spell_namespace(FILES)]
    # The list without its bracket and with a comma: where another label follows.
    within = f"{_spell_namespace(prefix)[:-1]},"
    begins = func.substr(_i.c.namespace, 1, len(within)) == within
    return [_i.c.scope_id == scope_id, or_(_i.c.namespace == _spell_namespace(prefix), begins)]


def _lives(now: int) -> ColumnElement[bool]:
    ends = or_(_m.c.expires_at.is_(None), _m.c.expires_at > now)
    return and_(_m.c.state == "active", ends)


def _row(row: RowLike[Any]) -> Row:
    return Row(tuple(json.loads(row.namespace)), row.key, row.doc, row.ttl)


def _spell_namespace(namespace: Sequence[str]) -> str:
    # ASCII: each character is one, so that lengths and comparisons are the same in every database.
    return json.dumps(list(namespace), separators=(",", ":"))
