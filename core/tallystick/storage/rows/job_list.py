"""Jobs as they are listed: found, filtered and counted; nothing here changes them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, NamedTuple

from sqlalchemy import ColumnElement, Connection, func, select, tuple_

from tallystick.errors import InvalidRecord
from tallystick.records import Actor, Job, JobEvent, JobState, Scope
from tallystick.storage.engine import tables
from tallystick.storage.engine.database_errors import readable
from tallystick.storage.engine.dialects import database_clock

CANCELLED = "cancelled"

_j, _sc = tables.jobs, tables.scopes


def find(connection: Connection, job_id: str) -> Job | None:
    """Return one job of any scope, or None: the caller decides who may see it."""
    row = connection.execute(job_query().where(_j.c.id == job_id)).mappings().first()
    return None if row is None else job_of(row)


def list_jobs(
    connection: Connection,
    *,
    scope: Scope | None = None,
    kind: str | None = None,
    states: Sequence[JobState] = (),
    before: Job | None = None,
    limit: int | None = None,
) -> list[Job]:
    """Return jobs, newest first; of one scope or of all, of one kind or of all, in some states or
    in any, and only those listed after `before`.
    """
    query = job_query()
    if scope is not None:
        query = query.where(_sc.c.name == str(scope))
    if kind is not None:
        query = query.where(_j.c.kind == kind)
    if states:
        query = query.where(_j.c.state.in_(list(states)))
    if before is not None:
        query = query.where(tuple_(_j.c.created_at, _j.c.id) < tuple_(before.created_at, before.id))
    query = query.order_by(_j.c.created_at.desc(), _j.c.id.desc()).limit(limit)
    return [job_of(row) for row in connection.execute(query).mappings()]


def counts(connection: Connection) -> dict[str, int]:
    """Return the number of jobs in each state."""
    rows = connection.execute(select(_j.c.state, func.count().label("n")).group_by(_j.c.state))
    return {row.state: int(row.n) for row in rows}


def open_count(connection: Connection, kinds: Sequence[str]) -> int:
    """Return the number of jobs of these kinds that have not ended."""
    query = select(func.count()).where(_j.c.kind.in_(list(kinds)), _j.c.due_at.is_not(None))
    return int(connection.execute(query).scalar_one())


def open_subjects(connection: Connection, kind: str) -> set[str]:
    """Return the subjects of the jobs of a kind that have not ended."""
    query = select(_j.c.subject_id).where(_j.c.kind == kind, _j.c.due_at.is_not(None))
    return set(connection.execute(query).scalars())


def exists_for(connection: Connection, kind: str, subject_id: str, version: int) -> bool:
    """Return True if there is such a job, in any state."""
    query = select(_j.c.id).where(
        _j.c.kind == kind, _j.c.subject_id == subject_id, _j.c.version == version
    )
    return connection.execute(query).first() is not None


class Troubled(NamedTuple):
    """Jobs that met the same error, by the oldest of them."""

    jobs: int
    code: str
    job_id: str
    kind: str
    text: str
    age_us: int
    """Microseconds since it was enqueued."""


def failed_by_code(connection: Connection) -> list[Troubled]:
    """Return the jobs that failed or died, but for those that were cancelled, the oldest first."""
    return _count_troubled(
        connection,
        _j.c.state.in_(("failed", "dead")),
        _j.c.error_code.is_distinct_from(CANCELLED),
    )


def waiting_by_code(connection: Connection) -> list[Troubled]:
    """Return the jobs that wait for what is away, the oldest first."""
    return _count_troubled(connection, _j.c.state == "retry_scheduled", _j.c.waits > 0)


def _count_troubled(connection: Connection, *where: ColumnElement[bool]) -> list[Troubled]:
    code = func.coalesce(_j.c.error_code, "unknown")
    counts = connection.execute(
        select(code.label("code"), func.count().label("n")).where(*where).group_by(code)
    ).all()
    now, troubled = database_clock(connection), list[Troubled]()
    for row in counts:
        oldest = connection.execute(
            select(_j.c.id, _j.c.kind, _j.c.error_text, _j.c.created_at)
            .where(*where, code == row.code)
            .order_by(_j.c.created_at, _j.c.id)
            .limit(1)
        ).one()
        age, text = max(0, now - oldest.created_at), oldest.error_text or ""
        troubled.append(Troubled(int(row.n), row.code, oldest.id, oldest.kind, text, age))
    return sorted(troubled, key=lambda each: -each.age_us)


def find_open(connection: Connection, kind: str, subject_id: str, version: int = 0) -> str | None:
    """Return the id of the job about a subject that is not over, or None."""
    query = select(_j.c.id).where(
        _j.c.kind == kind,
        _j.c.subject_id == subject_id,
        _j.c.version == version,
        _j.c.due_at.is_not(None),
    )
    return connection.execute(query).scalar()


def has_answer(connection: Connection, kind: str, job_id: str, *, since: int) -> bool:
    """Return True if another job of a kind has ended since a time with an answer of a provider,
    which is what costs something.
    """
    query = select(_j.c.id).where(
        _j.c.kind == kind,
        _j.c.id != job_id,
        _j.c.state.in_(("done", "empty")),
        _j.c.cost != "{}",
        _j.c.updated_at >= since,
    )
    return connection.execute(query.limit(1)).first() is not None


def job_query() -> Any:
    """Return the query for jobs, each with the name of its scope."""
    return select(_j, _sc.c.name.label("scope_name")).outerjoin(_sc, _sc.c.id == _j.c.scope_id)


def job_of(row: Any) -> Job:
    """Return the record of a row of `job_query`. Raises CorruptTally."""
    with readable(f"job {row['id']}"):
        actor = actor_of(row["actor"])
        return Job(
            **{
                name: row[name]
                for name in Job.model_fields
                if name not in ("scope", "cost", "result", "trail", "user")
            },
            scope=None if row["scope_name"] is None else Scope.parse(row["scope_name"]),
            cost=json.loads(row["cost"]),
            result=None if row["result"] is None else json.loads(row["result"]),
            user=None if actor is None else actor.user,
            trail=tuple(JobEvent.loads(line) for line in row["trail"].splitlines()),
        )


def acting_in(
    connection: Connection, job_id: str | None, kind: str, subject_id: str
) -> Actor | None:
    """Return who enqueued a job of a kind about a subject; None where there is no such job, or that
    is erased.
    """
    query = select(_j.c.actor).where(
        _j.c.id == job_id, _j.c.kind == kind, _j.c.subject_id == subject_id
    )
    found = connection.execute(query).scalar_one_or_none()
    return None if found is None else actor_of(found)


def actor_of(text: str) -> Actor | None:
    """Return who enqueued a job, or None where that is erased."""
    try:
        return Actor.loads(text)
    except InvalidRecord:
        return None
