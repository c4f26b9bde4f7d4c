"""The job queue: durable follow-up work with a lease, retries and a dead-letter state.

Leases use the database's own clock, so that workers on machines with different clocks agree.
States: `ready` → `leased` → `done`, or back to `ready` after a failure, or `dead` when the attempts
are used up.
"""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import ColumnElement, Connection, and_, func, insert, or_, select, update

from tallystick.errors import InvalidRecord
from tallystick.records import Actor
from tallystick.storage import tables
from tallystick.storage.dialects import database_clock

__all__ = ["EMBED", "Job", "bury", "counts", "due", "enqueue", "fail", "finish", "lease"]

EMBED = "embed"
"""The kind of job that gives a memory a vector."""

_j = tables.jobs
_BACKOFF_US = 2_000_000


@dataclass(frozen=True)
class Job:
    """A leased piece of work, with the authority under which it runs."""

    id: str
    kind: str
    subject_id: str
    scope_id: int
    actor: Actor | None
    """None where the stored actor is not readable: then it may not run."""
    attempts: int


def enqueue(
    tx: Connection,
    *,
    kind: str,
    subject_id: str,
    scope_id: int,
    actor: Actor,
    job_id: str,
    at: int,
    max_attempts: int = 5,
) -> str:
    """Add a job in the transaction that makes it necessary; return its id, or that of the same job
    that waits already.
    """
    existing = tx.execute(
        select(_j.c.id, _j.c.status).where(_j.c.kind == kind, _j.c.subject_id == subject_id)
    ).first()
    if existing is not None:
        if existing.status in {"done", "dead"}:
            tx.execute(
                update(_j)
                .where(_j.c.id == existing.id)
                .values(status="ready", attempts=0, run_after=0, last_error=None, updated_at=at)
            )
        return str(existing.id)
    tx.execute(
        insert(_j),
        {
            "id": job_id,
            "scope_id": scope_id,
            "kind": kind,
            "subject_id": subject_id,
            "actor": actor.dumps(),
            "status": "ready",
            "attempts": 0,
            "max_attempts": max_attempts,
            "run_after": 0,
            "created_at": at,
            "updated_at": at,
        },
    )
    return job_id


def due(connection: Connection, *, kind: str) -> bool:
    """Return True if a job of this kind can be leased now."""
    return (
        connection.execute(
            select(_j.c.id).where(_j.c.kind == kind, _due(database_clock(connection))).limit(1)
        ).first()
        is not None
    )


def lease(tx: Connection, *, kind: str, worker: str, most: int, seconds: int) -> list[Job]:
    """Lease up to `most` jobs that are due, or whose lease ran out, for `seconds`."""
    now = database_clock(tx)
    rows = tx.execute(
        select(_j)
        .where(_j.c.kind == kind, _due(now))
        .order_by(_j.c.created_at, _j.c.id)
        .limit(most)
    ).all()
    if rows:
        tx.execute(
            update(_j)
            .where(_j.c.id.in_([row.id for row in rows]))
            .values(
                status="leased",
                leased_by=worker,
                lease_until=now + seconds * 1_000_000,
                attempts=_j.c.attempts + 1,
                updated_at=now,
            )
        )
    return [
        Job(row.id, row.kind, row.subject_id, row.scope_id, _actor(row.actor), row.attempts + 1)
        for row in rows
    ]


def _actor(text: str) -> Actor | None:
    try:
        return Actor.loads(text)
    except InvalidRecord:
        return None


def bury(tx: Connection, job_ids: list[str], *, error: str) -> None:
    """Mark jobs as dead, with the reason."""
    tx.execute(
        update(_j)
        .where(_j.c.id.in_(job_ids))
        .values(
            status="dead",
            lease_until=None,
            leased_by=None,
            last_error=error,
            updated_at=database_clock(tx),
        )
    )


def finish(tx: Connection, job_ids: list[str]) -> None:
    """Mark jobs as done."""
    tx.execute(
        update(_j)
        .where(_j.c.id.in_(job_ids))
        .values(
            status="done",
            lease_until=None,
            leased_by=None,
            last_error=None,
            updated_at=database_clock(tx),
        )
    )


def fail(tx: Connection, job_ids: list[str], *, error: str) -> None:
    """Let jobs that failed be tried again with growing delay; after their last attempt they are
    dead.
    """
    now = database_clock(tx)
    for row in tx.execute(
        select(_j.c.id, _j.c.attempts, _j.c.max_attempts).where(_j.c.id.in_(job_ids))
    ).all():
        dead = row.attempts >= row.max_attempts
        tx.execute(
            update(_j)
            .where(_j.c.id == row.id)
            .values(
                status="dead" if dead else "ready",
                run_after=now + _BACKOFF_US * 2 ** (row.attempts - 1),
                lease_until=None,
                leased_by=None,
                last_error=error,
                updated_at=now,
            )
        )


def counts(connection: Connection) -> dict[str, int]:
    """Return the number of jobs in each state."""
    rows = connection.execute(select(_j.c.status, func.count().label("n")).group_by(_j.c.status))
    return {row.status: int(row.n) for row in rows}


def _due(now: int) -> ColumnElement[bool]:
    return or_(
        and_(_j.c.status == "ready", _j.c.run_after <= now),
        and_(_j.c.status == "leased", _j.c.lease_until <= now),
    )
