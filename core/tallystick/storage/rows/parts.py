"""Bodies stored once per scope under a keyed digest: what sources, payloads and checkpoint values
stand on.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import Connection, bindparam, delete, except_, exists, or_, select

from tallystick.records import part_key
from tallystick.storage.engine import tables, texts
from tallystick.storage.engine.prepared import PreparedRow, upsert
from tallystick.storage.rows import objects
from tallystick.storage.rows.scopes import ScopeRow

_t = tables.parts
_GET = select(_t.c.body).where(_t.c.scope_id == bindparam("scope_id"), _t.c.key == bindparam("key"))
_NAMING = texts.part_columns(tables.metadata)
_PUT = PreparedRow(upsert(_t, ("scope_id", "key", "body", "created_at")))


def put(tx: Connection, scope: ScopeRow, body: bytes, *, at: int) -> str:
    """Store `body` unless the scope holds it already; its key either way."""
    key = part_key(scope.secret, body)
    put_keyed(tx, [{"scope_id": scope.id, "key": key, "body": body, "created_at": at}])
    return key


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
    return None if body is None else objects.resolve_body(connection, body)


def drop(tx: Connection, scope_id: int, key: str) -> None:
    """Remove a body, unless a row still names it."""
    named = [exists().where(each.table.c.scope_id == scope_id, each == key) for each in _NAMING]
    if not tx.execute(select(or_(*named))).scalar():
        objects.doom(tx, scope_id, [key])
        tx.execute(delete(_t).where(_t.c.scope_id == scope_id, _t.c.key == key))


def list_orphans(connection: Connection) -> list[tuple[int, str]]:
    """Return the bodies that no row names, each by its scope and key."""
    named = [select(each.table.c.scope_id, each) for each in _NAMING]
    rows = connection.execute(except_(select(_t.c.scope_id, _t.c.key), *named))
    return [(row.scope_id, row.key) for row in rows]
