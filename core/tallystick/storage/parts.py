"""Bodies stored once per scope under a keyed digest: what sources, payloads and checkpoint values
stand on.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from sqlalchemy import Connection, bindparam, select

from tallystick.records import part_key
from tallystick.storage import objects, tables
from tallystick.storage.prepared import Prepared, upsert
from tallystick.storage.scopes import ScopeRow

_t = tables.parts
_GET = select(_t.c.body).where(_t.c.scope_id == bindparam("scope_id"), _t.c.key == bindparam("key"))
_GET_MANY = select(_t.c.key, _t.c.body).where(
    _t.c.scope_id == bindparam("scope_id"), _t.c.key.in_(bindparam("keys", expanding=True))
)
_PUT = Prepared(upsert(_t, ("scope_id", "key", "body", "created_at")))
_CHUNK = 500


def put(tx: Connection, scope: ScopeRow, body: bytes, *, at: int) -> str:
    """Store `body` unless the scope holds it already; its key either way."""
    key = part_key(scope.secret, body)
    put_keyed(tx, [{"scope_id": scope.id, "key": key, "body": body, "created_at": at}])
    return key


def put_many(tx: Connection, scope: ScopeRow, bodies: Iterable[bytes], *, at: int) -> list[str]:
    """Same as `put` for many bodies at once; keys in the order of the bodies."""
    keyed = [(part_key(scope.secret, body), body) for body in bodies]
    rows = [
        {"scope_id": scope.id, "key": key, "body": body, "created_at": at}
        for key, body in dict(keyed).items()
    ]
    put_keyed(tx, rows)
    return [key for key, _ in keyed]


def put_keyed(tx: Connection, rows: Sequence[Mapping[str, Any]]) -> None:
    """Store bodies that are keyed already, of any scopes: rows with `scope_id`, `key`, `body` and
    `created_at`.
    """
    if not rows:
        return
    for row in rows:
        if len(row["body"]) >= objects.SMALLEST:
            objects.note_large(tx, row["scope_id"], row["key"], row["body"])
    if any(row["body"].startswith(objects.MARK) for row in rows):
        rows = [{**row, "body": objects.stored_form(row["body"])} for row in rows]
    # In one order everywhere: two units that store the same bodies then wait one for the other.
    _PUT(tx, sorted(rows, key=lambda row: (row["scope_id"], row["key"])))


def get(connection: Connection, scope_id: int, key: str) -> bytes | None:
    """The body, or None when it was erased or never stored. Raises CorruptTally, StorageError where
    it was moved to object storage and cannot be read there.
    """
    body = connection.execute(_GET, {"scope_id": scope_id, "key": key}).scalar()
    return None if body is None else objects.resolved(connection, body)


def get_many(connection: Connection, scope_id: int, keys: Iterable[str]) -> dict[str, bytes]:
    """The bodies that are there, by key."""
    unique_keys = list(dict.fromkeys(keys))
    bodies: dict[str, bytes] = {}
    for start in range(0, len(unique_keys), _CHUNK):
        rows = connection.execute(
            _GET_MANY, {"scope_id": scope_id, "keys": unique_keys[start : start + _CHUNK]}
        )
        bodies.update((row.key, objects.resolved(connection, row.body)) for row in rows)
    return bodies
