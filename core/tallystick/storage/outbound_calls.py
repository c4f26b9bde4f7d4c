"""Rows of the outbound log: calls of models that Tallystick itself made, without their content.

Budgets are counted here, so that they hold across processes and restarts.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import NamedTuple

from sqlalchemy import Connection, func, insert, select, update

from tallystick.storage import tables

__all__ = ["OutboundCall", "Spent", "add", "finish", "listed", "spent"]

_t = tables.outbound_calls


@dataclass(frozen=True)
class OutboundCall:
    """One call of a model."""

    id: str
    scope_id: int
    purpose: str
    """`extract`, `decide` or `summarize`."""
    provider: str
    model: str | None
    local: bool
    """True if it stayed on this machine."""
    subject_id: str | None
    """The memory that it was about."""
    job_id: str | None
    at: int
    """Microseconds UTC."""
    outcome: str = "started"
    """`started`, `answered`, or the code of the error."""
    characters: int = 0
    """Characters that were handed over."""
    redacted: int = 0
    """Secrets that were replaced by placeholders."""
    input_tokens: int = 0
    output_tokens: int = 0
    micros: int = 0
    """The cost in millionths of a dollar, where prices are known."""
    duration_ms: int = 0


class Spent(NamedTuple):
    """What calls cost together."""

    calls: int
    tokens: int
    micros: int


def add(tx: Connection, call: OutboundCall) -> None:
    """Insert a call, before it is made: a process that dies in it has spent it."""
    tx.execute(insert(_t), asdict(call))


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


def spent(
    connection: Connection,
    *,
    since: int | None = None,
    scope_id: int | None = None,
    job_id: str | None = None,
) -> Spent:
    """Return the sums of calls since a moment, of a scope, or of a job."""
    query = select(
        func.count(),
        func.coalesce(func.sum(_t.c.input_tokens + _t.c.output_tokens), 0),
        func.coalesce(func.sum(_t.c.micros), 0),
    )
    if since is not None:
        query = query.where(_t.c.at >= since)
    if scope_id is not None:
        query = query.where(_t.c.scope_id == scope_id)
    if job_id is not None:
        query = query.where(_t.c.job_id == job_id)
    calls, tokens, micros = connection.execute(query).one()
    return Spent(int(calls), int(tokens), int(micros))


def listed(connection: Connection, scope_id: int, *, limit: int) -> list[OutboundCall]:
    """Return the newest calls of a scope, newest first."""
    query = select(_t).where(_t.c.scope_id == scope_id).order_by(_t.c.at.desc(), _t.c.id.desc())
    rows = connection.execute(query.limit(limit)).mappings()
    return [OutboundCall(**dict(row)) for row in rows]
