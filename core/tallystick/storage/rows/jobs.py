"""The job queue: durable follow-up work with a lease, retries and a trail.

A job is enqueued in the transaction that makes it necessary. States: `pending` → `leased` → `done`,
`empty`, `failed` or `dead`; or back by `retry_scheduled`. Leases use the database's own clock, so
that workers on machines with different clocks agree, and each lease has a number: what a worker
does with a lease that it has lost changes nothing.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from sqlalchemy import (
    ColumnElement,
    Connection,
    Select,
    and_,
    case,
    delete,
    func,
    literal_column,
    or_,
    select,
    true,
    update,
)

from tallystick.records import Actor, Job, JobEvent, JobState, JsonObject
from tallystick.storage.engine import containment, tables
from tallystick.storage.engine.dialects import database_clock
from tallystick.storage.engine.prepared import Prepared, PreparedIn, integer_list, text_list, upsert
from tallystick.storage.rows.job_list import CANCELLED, actor_of, job_of, job_query

EMBED = "embed"
"""The kind of job that gives a memory a vector."""
REEMBED = "reembed"
"""The kind of job that gives the memories of a scope vectors of the current embedder."""
TALLY_ACTOR = Actor(user="tallystick", surface="upkeep")
"""The tally itself, for jobs of upkeep: they have no authority over any scope, and need none."""

OPEN: tuple[JobState, ...] = ("pending", "leased", "retry_scheduled")
OVER: tuple[JobState, ...] = ("done", "empty", "failed", "dead")
NORMAL_PRIORITY = 100
LEASE_EXPIRED = "lease_expired"

_j, _sc = tables.jobs, tables.scopes
_SECOND = 1_000_000
_FIRST_PAUSE = 2 * _SECOND
_LONGEST_PAUSE = 300 * _SECOND
"""The ceiling of the pause between two attempts, microseconds."""
_FARTHEST = 3_600 * _SECOND
"""No job is due later than this from now. One that is was written by a clock that has been set
back since.
"""
_MAX_ATTEMPTS = 5
_TEXT = 500
"""Characters of an error's text that are stored."""
_TRAIL = 2_000
"""Characters of a trail after which repeated attempts are no longer added to it."""


@dataclass(frozen=True)
class LeasedJob:
    """A leased piece of work, with the authority under which it runs."""

    id: str
    kind: str
    subject_id: str
    version: int
    scope_id: int | None
    actor: Actor | None
    """None where the stored actor is not readable: then it may not run."""
    attempts: int
    waits: int
    lease: int
    """The number of this lease."""
    failed_at: int | None = None
    """When it failed last, where that is not made up for."""
    payload: JsonObject = field(default_factory=dict)


_SAME = ("kind", "subject_id", "version")
_GIVEN = ("id", "scope_id", *_SAME, "payload", "actor", "priority", "created_at", "updated_at")
_NEW: dict[str, Any] = dict.fromkeys(("attempts", "waits", "leases", "turn", "due_at"), 0)
_NEW |= {
    "state": "pending",
    "max_attempts": _MAX_ATTEMPTS,
    "progress": 0,
    "cost": "{}",
    "trail": "",
}
"""What every job begins with."""
_INSERT = Prepared(f"{upsert(_j, (*_GIVEN, *_NEW), key=_SAME)} RETURNING id")


def enqueue(
    tx: Connection,
    *,
    kind: str,
    subject_id: str,
    scope_id: int | None,
    actor: Actor,
    job_id: str,
    at: int,
    version: int = 0,
    payload: JsonObject | None = None,
    priority: int = NORMAL_PRIORITY,
    restart: tuple[JobState, ...] = OVER,
    is_new: bool = False,
    delay: int | None = None,
) -> str:
    """Add a job in the transaction that makes it necessary; return its id, or that of the same job
    (kind, subject and version) that is there already. One that has ended in a state of `restart`
    starts anew. `is_new` says that the subject was made in this transaction, and has no job yet.
    With a `delay` it is due so many microseconds from now, also where it waits already; less than
    an hour.
    """
    same = select(_j.c.id, _j.c.state).where(
        _j.c.kind == kind, _j.c.subject_id == subject_id, _j.c.version == version
    )
    existing = None if is_new else tx.execute(same).first()
    if existing is None:
        row = {
            **_NEW,
            "id": job_id,
            "scope_id": scope_id,
            "kind": kind,
            "subject_id": subject_id,
            "version": version,
            "payload": json.dumps(payload or {}),
            "actor": actor.dumps(),
            "priority": priority,
            "created_at": at,
            "updated_at": at,
        }
        # Nothing is returned where another process has added it meanwhile.
        existing = None if _INSERT(tx, row) else tx.execute(same).one()
    job = job_id if existing is None else str(existing.id)
    if existing is not None and existing.state in restart:
        over = and_(_j.c.id == job, _j.c.state.in_(restart))
        _start_anew(tx, over, code="enqueued", actor=actor.dumps())
    if delay is not None:
        # One that a model's outage holds back keeps its own pause.
        tx.execute(
            update(_j)
            .where(_j.c.id == job, _j.c.state == "pending")
            .values(due_at=database_clock(tx) + delay if delay else 0)
        )
    return job


def make_due(tx: Connection, job_ids: Sequence[str]) -> list[str]:
    """Let jobs that wait for their time begin now; return those that did."""
    waiting = and_(_j.c.id.in_(list(job_ids)), _j.c.state == "pending")
    return list(tx.execute(update(_j).where(waiting).values(due_at=0).returning(_j.c.id)).scalars())


_DUE = Prepared(
    "SELECT 1 FROM jobs WHERE kind IN (SELECT value FROM json_each(:kinds)) "
    "AND state IN ('pending', 'retry_scheduled', 'leased') "
    "AND due_at IS NOT NULL AND (due_at <= :now OR due_at > :farthest) AND (scope_id IS NULL "
    "OR scope_id NOT IN (SELECT value FROM json_each(:without))) LIMIT 1"
)


def due(
    connection: Connection, kinds: Sequence[str], *, without: Collection[int | None] = ()
) -> bool:
    """Return True if a job of these kinds, in other scopes than `without`, can be leased now, or
    its lease ran out.
    """
    now = database_clock(connection)
    values = {
        "kinds": text_list(connection, kinds),
        "now": now,
        "farthest": now + _FARTHEST,
        "without": integer_list(connection, [each for each in without if each is not None]),
    }
    return bool(_DUE(connection, values))


def due_in_turn(connection: Connection, kinds: Sequence[str], *, limit: int) -> list[Job]:
    """Return the jobs of these kinds that can be leased now: the first of each scope, then the
    second, and so on; of a scope by priority and age.
    """
    place = func.row_number().over(
        partition_by=_j.c.scope_id, order_by=(_j.c.priority, _j.c.created_at, _j.c.id)
    )
    waiting = (
        select(_j.c.id, place.label("place"))
        .where(_j.c.kind.in_(list(kinds)), _due(database_clock(connection)))
        .subquery()
    )
    query = (
        job_query()
        .join(waiting, waiting.c.id == _j.c.id)
        .order_by(waiting.c.place, _j.c.created_at, _j.c.id)
        .limit(limit)
    )
    return [job_of(row) for row in connection.execute(query).mappings()]


def lease(
    tx: Connection,
    *,
    kind: str,
    worker: str,
    most: int,
    seconds: int,
    job_id: str | None = None,
    without: Collection[int | None] = (),
) -> list[LeasedJob]:
    """Lease up to `most` jobs that are due for `seconds`, in turn from each scope that waits: the
    one that was served longest ago first, and of a scope by priority and age.

    A scope waits for at most one job of each other scope. With `job_id` only that job is looked at.
    Nothing is leased of the scopes in `without`.
    """
    reap(tx)
    now = database_clock(tx)
    chosen = true() if job_id is None else _j.c.id == job_id
    condition = and_(_j.c.kind == kind, _due(now), chosen, _outside(without))
    # Two workers never wait for one another's jobs; SQLite has one writer.
    query = select(_j).where(condition).with_for_update(skip_locked=True)
    rows: list[Any] = []
    rows += _in_turn(tx, condition, query, most) if job_id is None else tx.execute(query).all()
    if not rows:
        return []
    turn = 1 + (tx.execute(select(func.max(_j.c.turn))).scalar_one() or 0)
    line = _line(now, "leased", worker=worker)
    for offset, row in enumerate(rows):
        tx.execute(
            update(_j)
            .where(_j.c.id == row.id)
            .values(
                state="leased",
                leased_by=worker,
                leases=_j.c.leases + 1,
                turn=turn + offset,
                due_at=now + seconds * _SECOND,
                progress=0,
                trail=_append_to_trail(line, bounded=True),
                updated_at=now,
            )
        )
    return [
        LeasedJob(
            id=row.id,
            kind=row.kind,
            subject_id=row.subject_id,
            version=row.version,
            scope_id=row.scope_id,
            actor=actor_of(row.actor),
            attempts=row.attempts,
            waits=row.waits,
            lease=row.leases + 1,
            failed_at=row.updated_at if row.state == "retry_scheduled" else None,
            payload=json.loads(row.payload),
        )
        for row in rows
    ]


def _in_turn(tx: Connection, condition: Any, query: Select[Any], most: int) -> list[Any]:
    """Return the jobs of a condition that are leased, in turn from each scope that waits."""
    waiting = list(tx.execute(select(_j.c.scope_id).where(condition).distinct()).scalars())
    of_scope, last = _j.c.scope_id.is_not_distinct_from, func.coalesce(func.max(_j.c.turn), 0)
    turns = {each: tx.execute(select(last).where(of_scope(each))).scalar_one() for each in waiting}
    served = sorted(waiting, key=lambda scope_id: (turns[scope_id], scope_id or 0))[:most]
    share = -(-most // max(1, len(served)))
    query = query.order_by(_j.c.priority, _j.c.created_at, _j.c.id).limit(share)
    rows = [
        (round_, place, row)
        for place, each in enumerate(served)
        for round_, row in enumerate(tx.execute(query.where(of_scope(each))).all())
    ]
    return [row for *_, row in sorted(rows, key=lambda item: item[:2])[:most]]


def reap(tx: Connection) -> list[str]:
    """Take back the leases that ran out, which their workers did not live to end; return the jobs.

    It counts as an attempt: a job that kills its workers is dead after the last one.
    """
    now = database_clock(tx)
    rows = tx.execute(
        select(_j.c.id, _j.c.attempts, _j.c.max_attempts, _j.c.waits)
        .where(_due(now, ["leased"]))
        .with_for_update(skip_locked=True)
    ).all()
    for row in rows:
        is_last = row.attempts + 1 >= row.max_attempts
        state: JobState = "dead" if is_last else "retry_scheduled"
        tx.execute(
            update(_j)
            .where(_j.c.id == row.id)
            .values(
                state=state,
                attempts=row.attempts + 1,
                due_at=None if is_last else now + _pause(row.id, row.attempts + row.waits),
                leased_by=None,
                error_code=LEASE_EXPIRED,
                error_text="Its worker ended, or stood still, while it held the job.",
                trail=_append_to_trail(_line(now, state, code=LEASE_EXPIRED)),
                updated_at=now,
            )
        )
    return [row.id for row in rows]


_LEASED = (
    select(_j.c.id, _j.c.leases).where(_j.c.state == literal_column("'leased'")).order_by(_j.c.id)
)
_HELD, _HOLD = PreparedIn(_LEASED, _j.c.id), PreparedIn(_LEASED.with_for_update(), _j.c.id)
_HOLD_UNLOCKED = PreparedIn(_LEASED.with_for_update(skip_locked=True), _j.c.id)


def list_held(connection: Connection, jobs: Iterable[LeasedJob]) -> list[LeasedJob]:
    """Return those jobs whose lease still holds."""
    return _held(_HELD, connection, jobs)


def hold(
    tx: Connection, jobs: Iterable[LeasedJob], *, skip_locked: bool = False
) -> list[LeasedJob]:
    """Same as `list_held`, inside of the transaction that moves them: nobody else takes back,
    renews or cancels them before it ends. With `skip_locked` those are left out which another one
    moves.
    """
    return _held(_HOLD_UNLOCKED if skip_locked else _HOLD, tx, jobs)


def _held(query: PreparedIn, tx: Connection, jobs: Iterable[LeasedJob]) -> list[LeasedJob]:
    leases = {job.id: job for job in jobs}
    current = dict(query(tx, sorted(leases)))
    return [job for job in leases.values() if current.get(job.id) == job.lease]


def renew(tx: Connection, jobs: Iterable[LeasedJob], *, seconds: int) -> list[LeasedJob]:
    """Let the leases that still hold run for `seconds` from now; return their jobs, without those
    of which something is stored at this moment.
    """
    still = hold(tx, jobs, skip_locked=True)
    now = database_clock(tx)
    tx.execute(
        update(_j)
        .where(_j.c.id.in_([job.id for job in still]))
        .values(due_at=now + seconds * _SECOND, updated_at=now)
    )
    return still


def note_progress(
    tx: Connection,
    job: LeasedJob,
    finished: int,
    total: int | None,
    cost: Mapping[str, int] | None = None,
) -> bool:
    """Store how far a job is; return False where its lease was lost."""
    if not hold(tx, [job]):
        return False
    values: dict[str, Any] = {"progress": finished, "total": total}
    if cost:
        values["cost"] = _add_cost(tx, job, cost)
    tx.execute(update(_j).where(_j.c.id == job.id).values(**values))
    return True


def finish(
    tx: Connection,
    jobs: Iterable[LeasedJob],
    *,
    state: JobState = "done",
    result: JsonObject | None = None,
    cost: Mapping[str, int] | None = None,
) -> None:
    """End jobs as `done` or `empty`, in the transaction that stores what they made."""
    now = database_clock(tx)
    line = _line(now, state)
    jobs = list(jobs)
    if cost:
        for job in jobs:
            tx.execute(update(_j).where(_j.c.id == job.id).values(cost=_add_cost(tx, job, cost)))
    _move(
        tx,
        jobs,
        state=state,
        due_at=None,
        leased_by=None,
        error_code=None,
        error_text=None,
        result=None if result is None else json.dumps(result),
        trail=_append_to_trail(line),
        updated_at=now,
    )


def end(
    tx: Connection, jobs: Iterable[LeasedJob], state: JobState, *, code: str, text: str
) -> None:
    """End jobs as `failed` or `dead`, with the reason."""
    now = database_clock(tx)
    _move(
        tx,
        jobs,
        state=state,
        due_at=None,
        leased_by=None,
        error_code=code,
        error_text=text[:_TEXT],
        trail=_append_to_trail(_line(now, state, code=code)),
        updated_at=now,
    )


def wait(
    tx: Connection,
    jobs: Iterable[LeasedJob],
    *,
    code: str,
    text: str,
    seconds: float | None = None,
) -> None:
    """Let jobs be tried again with a growing pause, without end: what they need is away, where it
    says so for `seconds`, less than an hour.
    """
    for job in jobs:
        values: dict[str, Any] = {"waits": _j.c.waits + 1}
        _reschedule(tx, job, code=code, text=text, values=values, seconds=seconds)


def retry(
    tx: Connection, jobs: Iterable[LeasedJob], *, code: str, text: str, last: JobState = "failed"
) -> list[str]:
    """Let jobs be tried again with a growing pause; after their last attempt they end as `last`.
    Return the ids of those that ended.
    """
    ended, limits = list[str](), dict[str, int]()
    held = {job.id: job for job in jobs}
    query = select(_j.c.id, _j.c.attempts, _j.c.max_attempts).where(_j.c.id.in_(list(held)))
    for row in tx.execute(query):
        # What it came further by since its lease has set them back.
        held[row.id] = replace(held[row.id], attempts=row.attempts)
        limits[row.id] = row.max_attempts
    for job in held.values():
        counted = {"attempts": job.attempts + 1}
        if job.id in limits and job.attempts + 1 >= limits[job.id]:
            _move(tx, [job], **counted)
            end(tx, [job], last, code=code, text=text)
            ended.append(job.id)
        else:
            _reschedule(tx, job, code=code, text=text, values=counted)
    return ended


def release(tx: Connection, jobs: Iterable[LeasedJob]) -> None:
    """Give jobs back that were not begun: their worker stops."""
    now = database_clock(tx)
    _move(
        tx,
        jobs,
        state="pending",
        due_at=0,
        leased_by=None,
        trail=_append_to_trail(_line(now, "pending", code="released"), bounded=True),
        updated_at=now,
    )


def hurry(tx: Connection, kinds: Sequence[str], *, first: bool = False) -> None:
    """Let the jobs of these kinds that wait for their next attempt be due at once; with `first`
    also those that wait for their first one.
    """
    states = ("retry_scheduled", "pending") if first else ("retry_scheduled",)
    waiting = and_(_j.c.kind.in_(list(kinds)), _j.c.state.in_(states), _j.c.due_at > 0)
    tx.execute(update(_j).where(_j.c.id.in_(_select_unlocked(waiting))).values(due_at=0))


def requeue(
    tx: Connection, job_ids: Sequence[str] | None = None, *, under_way: bool = False
) -> list[str]:
    """Let jobs that failed, died or wait for a retry be done anew at once; return their ids. Those
    `under_way` too, on which their workers can store nothing more.

    Without ids it takes all that failed or died, but for those that somebody cancelled.
    """
    if job_ids is None:
        chosen = and_(
            _j.c.state.in_(("failed", "dead")), _j.c.error_code.is_distinct_from(CANCELLED)
        )
    else:
        states = ("failed", "dead", "retry_scheduled", *(("leased",) if under_way else ()))
        chosen = and_(_j.c.id.in_(list(job_ids)), _j.c.state.in_(states))
    return _start_anew(tx, chosen, code="requeued")


def cancel(tx: Connection, job_id: str) -> bool:
    """End a job that has not ended as `dead`; return False where it has. A worker that holds it can
    store nothing more.
    """
    now = database_clock(tx)
    changed = tx.execute(
        update(_j)
        .where(_j.c.id == job_id, _j.c.state.in_(OPEN))
        .values(
            state="dead",
            due_at=None,
            leased_by=None,
            error_code=CANCELLED,
            error_text=None,
            trail=_append_to_trail(_line(now, "dead", code=CANCELLED)),
            updated_at=now,
        )
    ).rowcount
    return bool(changed)


def erase_texts(tx: Connection, needles: Sequence[bytes], *, within: Sequence[int] | None) -> None:
    """Remove the jobs of these scopes, or for None of all, that hold one of `needles` in what they
    were given, found or failed with. A worker that holds one can store nothing more; a vector that
    is missing then is made by the next pass over its scope.
    """
    tx.execute(delete(_j).where(containment.holds(tx, _j, needles, within)))


def _due(
    now: int, states: Sequence[JobState] = ("pending", "retry_scheduled")
) -> ColumnElement[bool]:
    return and_(
        _j.c.state.in_(states),
        _j.c.due_at.is_not(None),
        or_(_j.c.due_at <= now, _j.c.due_at > now + _FARTHEST),
    )


def _outside(scope_ids: Collection[int | None]) -> ColumnElement[bool]:
    """The condition that a job is of none of these scopes; one without a scope is of none."""
    held = [scope_id for scope_id in scope_ids if scope_id is not None]
    return or_(_j.c.scope_id.is_(None), _j.c.scope_id.not_in(held)) if held else true()


_COME_FURTHER = Prepared(
    "UPDATE jobs SET progress = :finished, total = :total, attempts = 0, waits = 0 WHERE id = :id"
)


def come_further(tx: Connection, job: LeasedJob, finished: int, total: int | None) -> None:
    """Store how far a job is that is held; its earlier attempts are forgotten."""
    _COME_FURTHER(tx, {"id": job.id, "finished": finished, "total": total})


def _reschedule(
    tx: Connection,
    job: LeasedJob,
    *,
    code: str,
    text: str,
    values: Mapping[str, Any],
    seconds: float | None = None,
) -> None:
    now = database_clock(tx)
    pause = _pause(job.id, job.attempts + job.waits)
    if seconds is not None:
        pause = min(int(seconds * _SECOND), _FARTHEST - _SECOND)
    _move(
        tx,
        [job],
        **values,
        state="retry_scheduled",
        due_at=now + pause,
        leased_by=None,
        error_code=code,
        error_text=text[:_TEXT],
        trail=_append_to_trail(_line(now, "retry_scheduled", code=code), bounded=True),
        updated_at=now,
    )


def _move(tx: Connection, jobs: Iterable[LeasedJob], **values: Any) -> None:
    """Change jobs whose lease still holds."""
    still = hold(tx, jobs)
    if still:
        tx.execute(update(_j).where(_j.c.id.in_([job.id for job in still])).values(**values))


def start_again(tx: Connection, kind: str, subject_id: str) -> None:
    """Let a job that is over start anew, with the authority that it had; one under way or absent is
    left alone.
    """
    over = and_(_j.c.kind == kind, _j.c.subject_id == subject_id, _j.c.state.in_(("done", "empty")))
    _start_anew(tx, over, code="enqueued")


def _select_unlocked(condition: ColumnElement[bool]) -> Select[tuple[str]]:
    """Return the query for the jobs of a condition that nobody else moves at this moment."""
    # Jobs are moved under the lock of their scope, and those of all scopes under that of jobs. Who
    # holds several rows and waits for one more might wait for somebody who waits for it: so nobody
    # does. A job that has ended or waits is locked only by who starts it anew, which was wanted.
    return select(_j.c.id).where(condition).with_for_update(skip_locked=True)


def _start_anew(
    tx: Connection, condition: ColumnElement[bool], *, code: str, **values: Any
) -> list[str]:
    """Start the jobs of a condition anew, but for those that somebody starts at this moment; return
    their ids, the oldest first.
    """
    now = database_clock(tx)
    moved = tx.execute(
        update(_j)
        .where(_j.c.id.in_(_select_unlocked(condition)))
        .values(
            state="pending",
            attempts=0,
            waits=0,
            due_at=0,
            progress=0,
            result=None,
            error_code=None,
            error_text=None,
            trail=_append_to_trail(_line(now, "pending", code=code), bounded=True),
            updated_at=now,
            **values,
        )
        .returning(_j.c.created_at, _j.c.id)
    )
    return [row.id for row in sorted(moved.all())]


def _pause(job_id: str, tries: int) -> int:
    """Return the pause after a number of earlier tries, microseconds: doubled each time up to a
    ceiling, of which half is spread so that jobs that failed together do not return together.
    """
    whole = min(_LONGEST_PAUSE, _FIRST_PAUSE << min(tries, 20))
    digest = hashlib.sha256(f"{job_id}:{tries}".encode()).digest()
    return whole // 2 + whole // 2 * digest[0] // 255


def _line(at: int, state: JobState, **facts: str | None) -> str:
    return JobEvent(at=at, state=state, **facts).dumps(defaults=False) + "\n"


def _append_to_trail(line: str, *, bounded: bool = False) -> Any:
    longer = _j.c.trail + line
    if not bounded:
        return longer
    return case((func.length(_j.c.trail) > _TRAIL, _j.c.trail), else_=longer)


def _add_cost(tx: Connection, job: LeasedJob, cost: Mapping[str, int]) -> str:
    text = tx.execute(select(_j.c.cost).where(_j.c.id == job.id)).scalar_one()
    return json.dumps(dict(Counter(json.loads(text)) + Counter(cost)), sort_keys=True)
