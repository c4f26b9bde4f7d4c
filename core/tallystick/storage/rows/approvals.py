"""Rows of approvals: actions that wait for a person. Which state may follow which is decided above.

Every change names the state that it starts from, so that two writers never both make it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, bindparam, func, insert, select, tuple_, update
from sqlalchemy import delete as delete_from
from sqlalchemy.sql.elements import ColumnElement

from tallystick.records import Approval, ApprovalState, Scope
from tallystick.storage.engine import containment, tables, texts
from tallystick.storage.engine.prepared import Prepared, row_of
from tallystick.storage.rows import scopes
from tallystick.storage.rows.scopes import ScopeRow

OPEN: tuple[ApprovalState, ...] = ("pending", "granted")
"""States from which an approval still leads somewhere."""
_t = tables.approvals
_FIND = Prepared(select(_t).where(_t.c.id == bindparam("id")))
_COLUMNS = tuple(column.name for column in _t.columns)


@dataclass(frozen=True)
class StoredApproval:
    """An approval with what only storage knows of it."""

    record: Approval
    scope: ScopeRow
    digest: str
    """Keyed digest of the exact action; it stays out of every chain."""


def add(tx: Connection, stored: StoredApproval) -> None:
    """Insert a new approval; the database refuses a second open one of the same action."""
    record = stored.record
    row = row_of(
        _t,
        record,
        scope_id=stored.scope.id,
        digest=stored.digest,
        arguments=json.dumps(record.arguments),
        asked_by=json.dumps(record.asked_by),
        receipts=json.dumps(record.receipts),
    )
    tx.execute(insert(_t), row)


def find(connection: Connection, approval_id: str) -> StoredApproval | None:
    """Return one approval of any scope, or None: the caller decides who may see it."""
    rows = _FIND(connection, {"id": approval_id})
    return _load_approval(connection, dict(zip(_COLUMNS, rows[0], strict=True))) if rows else None


def newest_of(
    connection: Connection, scope_id: int, digest: str, states: Sequence[ApprovalState]
) -> StoredApproval | None:
    """Return the newest approval of exactly this action in one of these states, or None."""
    query = (
        select(_t)
        .where(_t.c.scope_id == scope_id, _t.c.digest == digest, _t.c.state.in_(states))
        .order_by(_t.c.created_at.desc(), _t.c.id.desc())
        .limit(1)
    )
    row = connection.execute(query).mappings().first()
    return None if row is None else _load_approval(connection, row)


def of_scope(
    connection: Connection,
    scope: Scope,
    state: ApprovalState | None,
    *,
    limit: int,
    before: Approval | None = None,
) -> list[StoredApproval]:
    """Return the approvals of a scope, in one state or any, newest first, and only those listed
    after `before`.
    """
    rows = scopes.find(connection, [scope])
    if not rows:
        return []
    query = select(_t).where(_t.c.scope_id == rows[0].id)
    if state is not None:
        query = query.where(_t.c.state == state)
    if before is not None:
        query = query.where(tuple_(_t.c.created_at, _t.c.id) < tuple_(before.created_at, before.id))
    query = query.order_by(_t.c.created_at.desc(), _t.c.id.desc()).limit(limit)
    return [_load_approval(connection, row) for row in connection.execute(query).mappings()]


def overdue(connection: Connection, scope_id: int, now: int) -> list[StoredApproval]:
    """Return the open approvals of a scope whose time is over, oldest first."""
    query = select(_t).where(
        _t.c.scope_id == scope_id, _t.c.state.in_(OPEN), _t.c.expires_at <= now
    )
    rows = connection.execute(query.order_by(_t.c.created_at, _t.c.id)).mappings()
    return [_load_approval(connection, row) for row in rows]


def move(
    tx: Connection,
    approval_id: str,
    *,
    before: ApprovalState,
    after: ApprovalState,
    **columns: Any,
) -> bool:
    """Move an approval from one state to another and set columns; False if it is in another one."""
    changed = tx.execute(
        update(_t)
        .where(_t.c.id == approval_id, _t.c.state == before)
        .values(state=after, **columns)
    )
    return bool(changed.rowcount)


def with_text(
    connection: Connection, needles: Sequence[bytes], *, within: Sequence[int] | None
) -> list[StoredApproval]:
    """Return the approvals whose arguments, or the reasons given, contain one of `needles`, in
    these scopes or, for None, in all.
    """
    return _having(connection, containment.holds(connection, _t, needles, within))


def of_runs(
    connection: Connection, run_ids: Iterable[str], *, step_id: str | None = None
) -> list[StoredApproval]:
    """Return the approvals of runs, or of one step of them, that have their arguments."""
    condition = _t.c.run_id.in_(list(run_ids)) & _t.c.arguments.is_not(None)
    return _having(
        connection, condition if step_id is None else condition & (_t.c.step_id == step_id)
    )


def erase_arguments(
    tx: Connection, approval_ids: Iterable[str], *, needles: Sequence[bytes] | None = None
) -> None:
    """Remove the arguments of approvals, their digests and the reason that a person gave, and the
    names of what was to be called: with `needles` those that contain one of them.
    """
    chosen: ColumnElement[bool] = _t.c.id.in_(list(approval_ids))
    emptied = dict(texts.erased_values(_t))
    subject = {"subject": emptied.pop("subject")}
    tx.execute(update(_t).where(chosen).values(emptied))
    if needles is not None:
        chosen = chosen & containment.contains_name(tx, _t.c.subject, needles)
    tx.execute(update(_t).where(chosen).values(subject))


def count_old(connection: Connection, before: int) -> int:
    """Return the number of approvals that were over before a moment."""
    query = select(func.count()).select_from(_t).where(_old(before))
    return int(connection.execute(query).scalar_one())


def remove_old(tx: Connection, before: int) -> None:
    """Remove the approvals that `count_old` counts."""
    tx.execute(delete_from(_t).where(_old(before)))


def _old(before: int) -> ColumnElement[bool]:
    return (_t.c.created_at < before) & (_t.c.expires_at < before)


def _having(connection: Connection, condition: ColumnElement[bool]) -> list[StoredApproval]:
    query = select(_t).where(condition).order_by(_t.c.created_at, _t.c.id)
    return [_load_approval(connection, row) for row in connection.execute(query).mappings()]


def _load_approval(connection: Connection, row: Any) -> StoredApproval:
    fields = dict(row)
    scope = scopes.get_by_id(connection, fields.pop("scope_id"))
    digest = fields.pop("digest")
    arguments, decided_by = fields["arguments"], fields["decided_by"]
    fields |= {
        "scope": scope.scope,
        "arguments": None if arguments is None else json.loads(arguments),
        "arguments_erased": arguments is None,
        "asked_by": json.loads(fields["asked_by"]),
        "receipts": json.loads(fields["receipts"]),
        "decided_by": None if decided_by is None else json.loads(decided_by),
    }
    return StoredApproval(Approval.load(fields), scope, digest)
