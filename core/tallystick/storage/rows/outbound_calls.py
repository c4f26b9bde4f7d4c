"""Rows of the outbound log: calls of models that Tallystick itself made, without their content.

Budgets are counted here, so that they hold across processes and restarts.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from sqlalchemy import ColumnElement, Connection, func, insert, select, tuple_, update

from tallystick.records import OutboundCall, Scope
from tallystick.storage.engine import tables

_t, _sc = tables.outbound_calls, tables.scopes


class Spent(NamedTuple):
    """What calls cost together."""

    calls: int
    tokens: int
    micros: int


def add(tx: Connection, call: OutboundCall, scope_id: int) -> None:
    """Insert a call, before it is made: a process that dies in it has spent it."""
    row = {name: getattr(call, name) for name in OutboundCall.model_fields if name != "scope"}
    tx.execute(insert(_t), {**row, "scope_id": scope_id})


def finish(
    tx: Connection,
    call_id: str,
    *,
    outcome: str,
    model: str | None,
    input_tokens: int,
    output_tokens: int,
    micros: int,
    duration_ms: int,
) -> None:
    """Store how a call ended and what it cost."""
    tx.execute(
        update(_t)
        .where(_t.c.id == call_id)
        .values(
            outcome=outcome,
            model=func.coalesce(model, _t.c.model),
            input_tokens=input_tokens,
            output_tokens=output_tokens,
            micros=micros,
            duration_ms=duration_ms,
        )
    )


def sum_spent(
    connection: Connection,
    *,
    purposes: Sequence[str],
    since: int | None = None,
    scope_id: int | None = None,
    job_id: str | None = None,
) -> Spent:
    """Return the sums of calls for these purposes since a moment, of a scope, or of a job."""
    query = select(
        func.count(),
        func.coalesce(func.sum(_t.c.input_tokens + _t.c.output_tokens), 0),
        func.coalesce(func.sum(_t.c.micros), 0),
    ).where(*_conditions(purposes, since, scope_id, job_id))
    calls, tokens, micros = connection.execute(query).one()
    return Spent(int(calls), int(tokens), int(micros))


def under_way(
    connection: Connection,
    *,
    purposes: Sequence[str],
    since: int,
    scope_id: int | None = None,
    job_id: str | None = None,
) -> int:
    """Return how many calls for these purposes that began since a moment have not ended, of a scope
    or of a job.
    """
    query = select(func.count()).where(
        _t.c.outcome == "started", *_conditions(purposes, since, scope_id, job_id)
    )
    return int(connection.execute(query).scalar_one())


def _conditions(
    purposes: Sequence[str], since: int | None, scope_id: int | None, job_id: str | None
) -> list[ColumnElement[bool]]:
    conditions: list[ColumnElement[bool]] = [_t.c.purpose.in_(list(purposes))]
    if since is not None:
        conditions.append(_t.c.at >= since)
    if scope_id is not None:
        conditions.append(_t.c.scope_id == scope_id)
    if job_id is not None:
        conditions.append(_t.c.job_id == job_id)
    return conditions


def find(connection: Connection, call_id: str) -> OutboundCall | None:
    """Return a call, or None."""
    row = connection.execute(_calls().where(_t.c.id == call_id)).mappings().one_or_none()
    return None if row is None else _record(row)


def list_calls(
    connection: Connection,
    *,
    scope: Scope | None = None,
    purpose: str | None = None,
    before: OutboundCall | None = None,
    limit: int,
) -> list[OutboundCall]:
    """Return calls, newest first; of one scope or of all, for one purpose or any, and only those
    listed after `before`.
    """
    query = _calls()
    if scope is not None:
        query = query.where(_sc.c.name == str(scope))
    if purpose is not None:
        query = query.where(_t.c.purpose == purpose)
    if before is not None:
        query = query.where(tuple_(_t.c.at, _t.c.id) < tuple_(before.at, before.id))
    query = query.order_by(_t.c.at.desc(), _t.c.id.desc()).limit(limit)
    return [_record(row) for row in connection.execute(query).mappings()]


def _calls() -> Any:
    return select(_t, _sc.c.name.label("scope")).join(_sc, _sc.c.id == _t.c.scope_id)


def _record(row: Any) -> OutboundCall:
    fields = {name: row[name] for name in OutboundCall.model_fields if name != "scope"}
    return OutboundCall(**fields, scope=Scope.parse(row["scope"]))
