"""Pieces of state as rows: stored once per scope, held by the threads that need them, removed when
none does.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from sqlalchemy import Connection, bindparam, insert, select

from tallystick.storage import tables
from tallystick.storage.prepared import Prepared, integer_list, upsert
from tallystick.storage.scopes import ScopeRow

__all__ = ["add", "fetch", "hold", "hold_all_of", "keep_key", "key_of", "release", "release_all"]

_p, _h, _k = tables.tree_parts, tables.tree_holds, tables.tree_keys

_FIND = Prepared(
    select(_p.c.id).where(
        _p.c.scope_id == bindparam("scope_id"), _p.c.digest == bindparam("digest")
    )
)
_ADD = Prepared(f"{upsert(_p, ('scope_id', 'digest', 'body'))} RETURNING id")
_FETCH = Prepared(
    "SELECT id, digest, body FROM tree_parts WHERE scope_id = :scope_id "
    "AND id IN (SELECT value FROM json_each(:ids))",
    postgresql="SELECT id, digest, body FROM tree_parts WHERE scope_id = :scope_id "
    "AND id = ANY(:ids)",
)
_HOLD = Prepared(upsert(_h, ("thread_id", "part_id")))
_HOLD_ALL = Prepared(
    "INSERT INTO tree_holds (thread_id, part_id) SELECT CAST(:target AS BIGINT), part_id "
    "FROM tree_holds WHERE thread_id = :source ON CONFLICT DO NOTHING"
)
_FREE = Prepared(
    "DELETE FROM tree_parts WHERE id IN (SELECT h.part_id FROM tree_holds h "
    "WHERE h.thread_id = :thread AND NOT EXISTS (SELECT 1 FROM tree_holds o "
    "WHERE o.part_id = h.part_id AND o.thread_id <> :thread))"
)
_LET_GO = Prepared("DELETE FROM tree_holds WHERE thread_id = :thread")
_HELD = Prepared("SELECT part_id FROM tree_holds WHERE thread_id = :thread")
_LET_GO_OF = Prepared(
    "DELETE FROM tree_holds WHERE thread_id = :thread "
    "AND part_id IN (SELECT value FROM json_each(:ids))",
    postgresql="DELETE FROM tree_holds WHERE thread_id = :thread AND part_id = ANY(:ids)",
)
_FREE_OF = Prepared(
    "DELETE FROM tree_parts WHERE id IN (SELECT value FROM json_each(:ids)) "
    "AND NOT EXISTS (SELECT 1 FROM tree_holds o WHERE o.part_id = tree_parts.id)",
    postgresql="DELETE FROM tree_parts WHERE id = ANY(:ids) "
    "AND NOT EXISTS (SELECT 1 FROM tree_holds o WHERE o.part_id = tree_parts.id)",
)


def add(tx: Connection, scope_id: int, digest: bytes, body: bytes) -> int:
    """Store a piece unless the scope holds it already; its id either way."""
    values = {"scope_id": scope_id, "digest": digest}
    rows = _ADD(tx, {**values, "body": body}) or _FIND(tx, values)
    return int(rows[0][0])


def fetch(
    connection: Connection, scope_id: int, ids: Iterable[int]
) -> dict[int, tuple[bytes, bytes]]:
    """Digest and stored bytes of those pieces that are there, by id, in one query."""
    listed = list(ids)
    if not listed:
        return {}
    rows = _FETCH(connection, {"scope_id": scope_id, "ids": integer_list(connection, listed)})
    return {row[0]: (bytes(row[1]), bytes(row[2])) for row in rows}


def hold(tx: Connection, thread: int, ids: Sequence[int]) -> None:
    """Note that a thread needs these pieces."""
    if ids:
        _HOLD(tx, [{"thread_id": thread, "part_id": id} for id in ids])


def hold_all_of(tx: Connection, source: int, target: int) -> None:
    """Note that one thread needs everything that another does."""
    _HOLD_ALL(tx, {"source": source, "target": target})


def release(tx: Connection, thread: int, keep: set[int]) -> int:
    """Let go of what a thread no longer needs and remove what nobody else does; how many it let go
    of.
    """
    gone = [id for (id,) in _HELD(tx, {"thread": thread}) if id not in keep]
    if gone:
        listed = integer_list(tx, gone)
        _LET_GO_OF(tx, {"thread": thread, "ids": listed})
        _FREE_OF(tx, {"ids": listed})
    return len(gone)


def release_all(tx: Connection, thread: int) -> None:
    """Let go of everything that a thread needed and remove what nobody else does."""
    _FREE(tx, {"thread": thread})
    _LET_GO(tx, {"thread": thread})


def key_of(connection: Connection, scope_id: int, cipher: str) -> bytes | None:
    """The sealed key of a scope's digests under this cipher, or None when there is none yet."""
    encrypted = connection.execute(
        select(_k.c.sealed).where(_k.c.scope_id == scope_id, _k.c.cipher == cipher)
    ).scalar()
    return None if encrypted is None else bytes(encrypted)


def keep_key(tx: Connection, scope: ScopeRow, cipher: str, sealed: bytes) -> bytes:
    """Keep the sealed key unless there is one already; the one that is kept."""
    there = key_of(tx, scope.id, cipher)
    if there is not None:
        return there
    tx.execute(insert(_k), {"scope_id": scope.id, "cipher": cipher, "sealed": sealed})
    return sealed
