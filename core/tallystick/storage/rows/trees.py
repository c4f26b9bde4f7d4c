"""Pieces of state as rows: stored once per scope, held by the threads that need them, removed with
the last of these.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from sqlalchemy import Connection, bindparam, insert, select

from tallystick.storage.engine import tables
from tallystick.storage.engine.prepared import Prepared, integer_list, upsert
from tallystick.storage.rows.scopes import ScopeRow

_p, _h, _k = tables.tree_parts, tables.tree_holds, tables.tree_keys

_FIND = Prepared(
    select(_p.c.id).where(
        _p.c.scope_id == bindparam("scope_id"), _p.c.digest == bindparam("digest")
    )
)
_ADD = Prepared(f"{upsert(_p, ('scope_id', 'digest', 'body'))} RETURNING id")
_FETCH = Prepared(
    "SELECT id, digest, body FROM tree_parts WHERE scope_id = :scope_id "
    "AND id IN (SELECT value FROM json_each(:ids))"
)
_HOLD = Prepared(upsert(_h, ("thread_id", "part_id")))
_HOLD_ALL = Prepared(
    "INSERT INTO tree_holds (thread_id, part_id) SELECT CAST(:target AS BIGINT), part_id "
    "FROM tree_holds WHERE thread_id = :source ON CONFLICT DO NOTHING"
)
_REMOVE = Prepared(
    "DELETE FROM tree_parts WHERE id IN (SELECT h.part_id FROM tree_holds h "
    "WHERE h.thread_id = :thread AND NOT EXISTS (SELECT 1 FROM tree_holds o "
    "WHERE o.part_id = h.part_id AND o.thread_id <> :thread))"
)
_RELEASE = Prepared("DELETE FROM tree_holds WHERE thread_id = :thread")
_HOLDS_OF = Prepared("SELECT part_id FROM tree_holds WHERE thread_id = :thread")
_RELEASE_SOME = Prepared(
    "DELETE FROM tree_holds WHERE thread_id = :thread "
    "AND part_id IN (SELECT value FROM json_each(:ids))"
)
_REMOVE_SOME = Prepared(
    "DELETE FROM tree_parts WHERE id IN (SELECT value FROM json_each(:ids)) "
    "AND NOT EXISTS (SELECT 1 FROM tree_holds o WHERE o.part_id = tree_parts.id)"
)


class TreePart(NamedTuple):
    """A piece of state as it is stored."""

    digest: bytes
    body: bytes


def add(tx: Connection, scope_id: int, digest: bytes, body: bytes) -> int:
    """Store a piece unless the scope has it already; return its id either way."""
    values = {"scope_id": scope_id, "digest": digest}
    rows = _ADD(tx, {**values, "body": body}) or _FIND(tx, values)
    return int(rows[0][0])


def fetch(connection: Connection, scope_id: int, ids: Iterable[int]) -> dict[int, TreePart]:
    """Return the pieces that exist, by id, in one query."""
    id_list = list(ids)
    if not id_list:
        return {}
    rows = _FETCH(connection, {"scope_id": scope_id, "ids": integer_list(connection, id_list)})
    return {row[0]: TreePart(bytes(row[1]), bytes(row[2])) for row in rows}


def hold(tx: Connection, thread: int, ids: Sequence[int]) -> None:
    """Record that a thread needs these pieces."""
    if ids:
        _HOLD(tx, [{"thread_id": thread, "part_id": id} for id in ids])


def hold_all_of(tx: Connection, source: int, target: int) -> None:
    """Record that one thread needs every piece that another does."""
    _HOLD_ALL(tx, {"source": source, "target": target})


def release(tx: Connection, thread: int, keep: set[int]) -> int:
    """Release the pieces of a thread that are not in `keep`, and remove those that no other thread
    needs; return the number released.
    """
    released = [id for (id,) in _HOLDS_OF(tx, {"thread": thread}) if id not in keep]
    if released:
        ids = integer_list(tx, released)
        _RELEASE_SOME(tx, {"thread": thread, "ids": ids})
        _REMOVE_SOME(tx, {"ids": ids})
    return len(released)


def release_all(tx: Connection, thread: int) -> None:
    """Release every piece of a thread, and remove those that no other thread needs."""
    _REMOVE(tx, {"thread": thread})
    _RELEASE(tx, {"thread": thread})


def find_key(connection: Connection, scope_id: int, cipher: str) -> bytes | None:
    """Return the encrypted key of a scope's digests under a cipher, or None if there is none
    yet.
    """
    encrypted = connection.execute(
        select(_k.c.sealed).where(_k.c.scope_id == scope_id, _k.c.cipher == cipher)
    ).scalar()
    return None if encrypted is None else bytes(encrypted)


def add_key(tx: Connection, scope: ScopeRow, cipher: str, encrypted: bytes) -> bytes:
    """Store the encrypted key unless there is one already; return the stored one."""
    stored = find_key(tx, scope.id, cipher)
    if stored is not None:
        return stored
    tx.execute(insert(_k), {"scope_id": scope.id, "cipher": cipher, "sealed": encrypted})
    return encrypted
