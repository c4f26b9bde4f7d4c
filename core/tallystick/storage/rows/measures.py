"""Measures of the rows that are there anyway: jobs, calls of models, memories, the file. Nothing
here is stored, and nothing here reads a text.
"""

from __future__ import annotations

from typing import NamedTuple

from sqlalchemy import Connection, exists, func, or_, select, text

from tallystick.records import Scope
from tallystick.storage.engine import tables
from tallystick.storage.engine.dialects import database_clock, is_postgres
from tallystick.storage.rows.job_list import CANCELLED

_j, _o, _p, _m, _e, _s = (
    tables.jobs,
    tables.outbound_calls,
    tables.proposals,
    tables.memories,
    tables.edges,
    tables.scopes,
)
_OPEN = ("pending", "retry_scheduled", "leased")
_PAGES = text("SELECT page_count * page_size FROM pragma_page_count(), pragma_page_size()")
_RELATIONS = text(
    "SELECT sum(pg_total_relation_size(c.oid)) FROM pg_class AS c "
    "JOIN pg_namespace AS n ON n.oid = c.relnamespace "
    "WHERE n.nspname = current_schema() AND c.relkind = 'r'"
)


class Ended(NamedTuple):
    """Jobs of one kind that are in one state with one code."""

    kind: str
    state: str
    code: str
    jobs: int


class Calls(NamedTuple):
    """Calls of one provider for one purpose that ended alike."""

    purpose: str
    stage: str
    """The kind of the job that made them; the purpose where there was none."""
    provider: str
    model: str
    outcome: str
    calls: int
    input_tokens: int
    output_tokens: int
    micros: int


def jobs_by_state(connection: Connection, since: int = 0) -> list[Ended]:
    """Return the jobs that were moved at a time of the database or later, by kind, state and
    code; without those that somebody cancelled.
    """
    code = func.coalesce(_j.c.error_code, "")
    query = (
        select(_j.c.kind, _j.c.state, code.label("code"), func.count().label("n"))
        .where(_j.c.updated_at >= since, code != CANCELLED)
        .group_by(_j.c.kind, _j.c.state, code)
    )
    return [Ended(row.kind, row.state, row.code, int(row.n)) for row in connection.execute(query)]


def last_success(connection: Connection, kind: str) -> int:
    """Return when a job of a kind last ended well, by the time of the database; 0 where none is
    kept.
    """
    query = select(func.max(_j.c.updated_at)).where(
        _j.c.kind == kind, _j.c.state.in_(("done", "empty"))
    )
    return int(connection.execute(query).scalar() or 0)


def retries(connection: Connection) -> dict[int, int]:
    """Return the number of jobs that were tried again, by their attempts that failed."""
    query = select(_j.c.attempts, func.count().label("n")).where(_j.c.attempts > 0)
    return {
        int(row.attempts): int(row.n) for row in connection.execute(query.group_by(_j.c.attempts))
    }


def waiting_ages(connection: Connection) -> list[int]:
    """Return for each job that could be leased now how long that has been so, microseconds, in
    order; for a leased one since its lease ran out.
    """
    now = database_clock(connection)
    query = select(_j.c.due_at, _j.c.updated_at).where(
        _j.c.due_at.is_not(None), _j.c.due_at <= now, _j.c.state.in_(_OPEN)
    )
    return sorted(
        max(0, now - max(row.due_at, row.updated_at)) for row in connection.execute(query)
    )


class Leased(NamedTuple):
    """A job in the hands of a worker."""

    id: str
    worker: str
    due_at: int
    updated_at: int


def leases(connection: Connection) -> tuple[int, list[Leased]]:
    """Return the time of the database, and the jobs that are leased."""
    query = select(_j.c.id, _j.c.leased_by, _j.c.due_at, _j.c.updated_at).where(
        _j.c.state == "leased"
    )
    rows = [
        Leased(row.id, row.leased_by or "", row.due_at, row.updated_at)
        for row in connection.execute(query)
    ]
    return database_clock(connection), rows


def calls(connection: Connection, since: int = 0) -> list[Calls]:
    """Return the calls of models since a moment, in sums."""
    stage = func.coalesce(_j.c.kind, _o.c.purpose).label("stage")
    model = func.coalesce(_o.c.model, "").label("model")
    by = (_o.c.purpose, stage, _o.c.provider, model, _o.c.outcome)
    query = (
        select(
            *by,
            func.count().label("n"),
            func.sum(_o.c.input_tokens).label("read"),
            func.sum(_o.c.output_tokens).label("written"),
            func.sum(_o.c.micros).label("micros"),
        )
        .select_from(_o.outerjoin(_j, _j.c.id == _o.c.job_id))
        .where(_o.c.at >= since)
        .group_by(*by)
    )
    return [
        Calls(
            row.purpose,
            row.stage,
            row.provider,
            row.model,
            row.outcome,
            int(row.n),
            int(row.read),
            int(row.written),
            int(row.micros),
        )
        for row in connection.execute(query)
    ]


def call_durations(connection: Connection, since: int) -> dict[str, list[int]]:
    """Return the milliseconds of the calls that were answered since a moment, in order, by the kind
    of job or the purpose.
    """
    stage = func.coalesce(_j.c.kind, _o.c.purpose).label("stage")
    query = (
        select(stage, _o.c.duration_ms)
        .select_from(_o.outerjoin(_j, _j.c.id == _o.c.job_id))
        .where(_o.c.at >= since, _o.c.outcome == "answered")
        .order_by(_o.c.duration_ms)
    )
    durations: dict[str, list[int]] = {}
    for row in connection.execute(query):
        durations.setdefault(row.stage, []).append(int(row.duration_ms))
    return durations


def database_bytes(connection: Connection) -> int:
    """Return the bytes of the database, without those of its log of writes."""
    query = _RELATIONS if is_postgres(connection) else _PAGES
    return int(connection.execute(query).scalar() or 0)


def memories_by_state(connection: Connection) -> dict[str, int]:
    """Return the number of memories in each state."""
    query = select(_m.c.state, func.count().label("n")).group_by(_m.c.state)
    return {row.state: int(row.n) for row in connection.execute(query)}


def contradictions(connection: Connection) -> int:
    """Return how many pairs of memories contradict one another."""
    query = select(func.count()).where(_e.c.kind == "CONTRADICTS")
    return int(connection.execute(query).scalar_one())


def count_undone(connection: Connection, since: int) -> int:
    """Return the number of proposals that were undone since a moment."""
    query = select(func.count()).where(_p.c.state == "undone", _p.c.decided_at >= since)
    return int(connection.execute(query).scalar_one())


def applied_proposals(
    connection: Connection, *, job_id: str | None, model: str | None, since: int, until: int
) -> dict[str, Scope]:
    """Return the proposals of one job, or of one model, that were carried out from `since` until
    before `until` and can be undone, newest first: their scopes by id.
    """
    query = (
        select(_p.c.id, _s.c.name)
        .join(_s, _s.c.id == _p.c.scope_id)
        .where(
            _p.c.state.in_(("accepted", "edited", "applied")),
            _p.c.decided_at >= since,
            _p.c.decided_at < until,
        )
        .order_by(_p.c.decided_at.desc(), _p.c.id.desc())
    )
    if job_id is not None:
        query = query.where(_p.c.job_id == job_id)
    if model is not None:
        query = query.where(or_(_p.c.model == model, _p.c.provider + ":" + _p.c.model == model))
    return {row.id: Scope.parse(row.name) for row in connection.execute(query)}


def never_learned(connection: Connection, scope_id: int, user: str, *, after: int) -> list[int]:
    """Return the active memories of a scope above a number that no learner was given, in order:
    of conversations what the user said, and no conclusions.
    """
    is_concluded = exists().where(_e.c.from_doc == _m.c.doc, _e.c.kind == "DERIVED_FROM")
    query = select(_m.c.doc).where(
        _m.c.scope_id == scope_id,
        _m.c.doc > after,
        _m.c.state == "active",
        _m.c.extraction_status == "none",
        or_(_m.c.conversation.is_(None), _m.c.created_by == user),
        ~is_concluded,
    )
    return list(connection.execute(query.order_by(_m.c.doc)).scalars())
