"""Spaces as rows: one per scope, the record as JSON, its version for concurrent changes."""

from __future__ import annotations

from collections.abc import Iterable

from sqlalchemy import Connection, bindparam, insert, select, update

from tallystick.records import MemorySpace, Scope
from tallystick.storage.engine import tables
from tallystick.storage.engine.prepared import Prepared

_t = tables.spaces
_OF = Prepared(select(_t.c.body).where(_t.c.scope == bindparam("scope")))
_ALL = select(_t.c.body).order_by(_t.c.scope)


def add(tx: Connection, space: MemorySpace) -> None:
    """Write a new space; the database refuses a second one of the scope."""
    tx.execute(insert(_t), _row(space))


def replace(tx: Connection, space: MemorySpace) -> None:
    """Write `space` over its earlier version."""
    tx.execute(update(_t).where(_t.c.id == space.id).values(**_row(space)))


def of_scopes(connection: Connection, scopes: Iterable[Scope]) -> dict[Scope, MemorySpace]:
    """Return the spaces of those scopes that have one."""
    spaces = [
        MemorySpace.loads(body)
        for scope in scopes
        for (body,) in _OF(connection, {"scope": str(scope)})
    ]
    return {space.scope: space for space in spaces}


def all_spaces(connection: Connection) -> list[MemorySpace]:
    """Return every space, by the name of its scope: the caller decides who may see it."""
    return [MemorySpace.loads(body) for body in connection.execute(_ALL).scalars()]


def _row(space: MemorySpace) -> dict[str, object]:
    return {
        "id": space.id,
        "scope": str(space.scope),
        "version": space.version,
        "body": space.dumps(),
    }
