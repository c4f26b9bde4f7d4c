"""Rows of working memory: the values that a run or a thread holds under names, in a scope."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple

from sqlalchemy import Connection, bindparam, delete, func, select, tuple_
from sqlalchemy.sql.elements import ColumnElement

from tallystick.storage.engine import containment, tables
from tallystick.storage.engine.prepared import Prepared, in_list, integer_list, text_list, upsert

_t = tables.working
_KEY = ("scope_id", "lifetime", "holder", "name")
_CHANGING = ("body", "created_by", "updated_at", "expires_at")
_PUT = Prepared(upsert(_t, (*_KEY, *_CHANGING), key=_KEY, replacing=_CHANGING))


class Holder(NamedTuple):
    """The run or thread that holds values, for as long as they live; or the session, or the user,
    whose working set is kept.
    """

    lifetime: Literal["run", "thread", "session", "user"]
    id: str


class StoredValue(NamedTuple):
    """One value of a holder."""

    lifetime: Literal["run", "thread", "session", "user"]
    name: str
    body: str
    updated_at: int
    """Microseconds UTC."""
    expires_at: int


_LIVING = (
    select(_t.c.lifetime, _t.c.holder, _t.c.name, _t.c.body, _t.c.updated_at, _t.c.expires_at)
    .where(_t.c.expires_at > bindparam("at"))
    .order_by(_t.c.name)
)
_VALUES = Prepared(
    _LIVING.where(in_list(_t.c.scope_id, "scope_ids"), in_list(_t.c.holder, "holders"))
)


def put(
    tx: Connection,
    scope_id: int,
    holder: Holder,
    name: str,
    body: str,
    *,
    created_by: str,
    at: int,
    expires_at: int,
) -> None:
    """Store a value under a name of a holder, in place of an earlier one."""
    _PUT(
        tx,
        {
            "scope_id": scope_id,
            "lifetime": holder.lifetime,
            "holder": holder.id,
            "name": name,
            "body": body,
            "created_by": created_by,
            "updated_at": at,
            "expires_at": expires_at,
        },
    )


def values_of(
    connection: Connection, scope_ids: Sequence[int], holders: Sequence[Holder], *, at: int
) -> list[StoredValue]:
    """Return the values of holders that have not expired, in the order of names."""
    values = {
        "scope_ids": integer_list(connection, scope_ids),
        "holders": text_list(connection, [holder.id for holder in holders]),
        "at": at,
    }
    wanted = set(map(tuple, holders))
    return [
        StoredValue(lifetime, *rest)
        for lifetime, holder, *rest in _VALUES(connection, values)
        if (lifetime, holder) in wanted
    ]


def remove(
    tx: Connection, scope_ids: Sequence[int], holders: Sequence[Holder], name: str | None
) -> int:
    """Remove one value of holders, or all of them without a name; return their number."""
    condition = _held(scope_ids, holders)
    if name is not None:
        condition &= _t.c.name == name
    return _remove(tx, condition)


def _held(scope_ids: Sequence[int], holders: Sequence[Holder]) -> ColumnElement[bool]:
    return _t.c.scope_id.in_(scope_ids) & tuple_(_t.c.lifetime, _t.c.holder).in_(
        [tuple(holder) for holder in holders]
    )


def count_expired(connection: Connection, at: int) -> int:
    """Return the number of values that have expired, of all scopes."""
    return _count(connection, _t.c.expires_at <= at)


def remove_expired(tx: Connection, at: int) -> int:
    """Remove the values that have expired, of all scopes; return their number."""
    return _remove(tx, _t.c.expires_at <= at)


def count_with(
    connection: Connection, needles: Sequence[bytes], *, within: Sequence[int] | None
) -> int:
    """Return the number of values that contain one of `needles`, or whose name or holder does, in
    these scopes or, for None, in all.
    """
    return _count(connection, containment.holds(connection, _t, needles, within))


def remove_with(tx: Connection, needles: Sequence[bytes], *, within: Sequence[int] | None) -> int:
    """Remove the values that `count_with` counts; return their number."""
    return _remove(tx, containment.holds(tx, _t, needles, within))


def _count(connection: Connection, condition: ColumnElement[bool]) -> int:
    query = select(func.count()).select_from(_t).where(condition)
    return int(connection.execute(query).scalar_one())


def _remove(tx: Connection, condition: ColumnElement[bool]) -> int:
    return int(tx.execute(delete(_t).where(condition)).rowcount)
