"""Jobs and the outbound log as somebody may see and steer them: an operator all of them, others
those of their scope.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tallystick.errors import NotFound, StateConflict
from tallystick.memory import MemoryContext
from tallystick.memory.change import require_reason
from tallystick.records import Actor, Job, JobState, OutboundCall, Scope
from tallystick.storage import Connection
from tallystick.storage.engine.writes import JOBS, TALLY, Writes
from tallystick.storage.rows import job_list, jobs, journal, outbound_calls
from tallystick.storage.rows.idempotency import IdempotentCall
from tallystick.upkeep.copies import OperatorScopes


def list_jobs(
    context: MemoryContext,
    actor: Actor,
    scope: Scope,
    *,
    kind: str | None,
    states: Sequence[JobState],
    limit: int,
    before: str | None = None,
) -> list[Job]:
    """Return jobs, newest first: for an operator of every scope, else of `scope`; and only those
    listed after the one with the id `before`. Raises Denied, and NotFound for an unknown `before`.
    """
    everywhere = actor.operates_tally
    if not everywhere:
        context.gate.require(actor, "read", scope)
    with context.store.database.read() as connection:
        last = None if before is None else _require_readable(context, connection, actor, before)
        return job_list.list_jobs(
            connection,
            scope=None if everywhere else scope,
            kind=kind,
            states=states,
            before=last,
            limit=limit,
        )


def get_job(context: MemoryContext, actor: Actor, job_id: str) -> Job:
    """Return one job. Raises NotFound alike for one that is not there and one of others."""
    with context.store.database.read() as connection:
        return _require_readable(context, connection, actor, job_id)


def _require_readable(
    context: MemoryContext, connection: Connection, actor: Actor, job_id: str
) -> Job:
    job = job_list.find(connection, job_id)
    if job is None or not _may(context, connection, actor, job, "read"):
        raise NotFound(f"There is no job {job_id!a} that {actor.user} may see.")
    return job


def retry_jobs(
    context: MemoryContext,
    actor: Actor,
    job_ids: Sequence[str] | None,
    *,
    reason: str,
    idempotency_key: str | None,
) -> list[str]:
    """Let jobs that failed, died or wait be done anew at once; without ids all that failed or died
    and that this actor may steer, but for those that were cancelled. Return their ids.

    Raises InvalidInput without a reason, NotFound, and StateConflict for a job that is under way or
    has nothing left to do.
    """
    require_reason(reason)
    chosen = None if job_ids is None else sorted(job_ids)
    call = IdempotentCall(actor.private_scope, "jobs.retry", idempotency_key, [chosen, reason])

    def unit(tx: Connection) -> list[str]:
        answered = call.read_answer(tx)
        if answered is not None:
            return [str(job_id) for job_id in answered["jobs"]]
        if chosen is None:
            job_ids = [
                job.id
                for job in job_list.list_jobs(tx, states=("failed", "dead"))
                if job.error_code != job_list.CANCELLED and _may(context, tx, actor, job, "write")
            ]
        else:
            job_ids = [_require_writable(context, tx, actor, job_id).id for job_id in chosen]
        requeued = jobs.requeue(tx, job_ids)
        if chosen is not None and len(requeued) < len(job_ids):
            rest = next(job_id for job_id in job_ids if job_id not in requeued)
            job = job_list.find(tx, rest)
            raise StateConflict(
                rest,
                state=job.state if job else "gone",
                reason="only one that failed, died or waits for its next attempt can be retried",
                what="Job",
            )
        if requeued:
            details = {"jobs": requeued[:100], "count": len(requeued)}
            note_repair(tx, context, actor, "jobs.retry", details, reason=reason)
        call.keep(tx, {"jobs": requeued}, at=context.store.clock.now())
        return requeued

    return context.store.database.write(unit, name="jobs.retry", writes=_writes(actor))


def cancel_job(
    context: MemoryContext,
    actor: Actor,
    job_id: str,
    *,
    reason: str,
    idempotency_key: str | None,
) -> Job:
    """End a job that has not ended; a worker that holds it stores nothing more. Return it.

    Raises NotFound, and StateConflict for a job that has ended.
    """
    require_reason(reason)
    call = IdempotentCall(actor.private_scope, "jobs.cancel", idempotency_key, [job_id, reason])

    def unit(tx: Connection) -> Job:
        answered = call.read_answer(tx)
        if answered is None:
            _require_writable(context, tx, actor, job_id)
            if not jobs.cancel(tx, job_id):
                # Its worker may have ended it between both statements.
                state = _require_writable(context, tx, actor, job_id).state
                raise StateConflict(
                    job_id, state=state, reason="there is nothing to cancel", what="Job"
                )
            note_repair(tx, context, actor, "jobs.cancel", {"jobs": [job_id]}, reason=reason)
            call.keep(tx, {}, at=context.store.clock.now())
        job = job_list.find(tx, job_id)
        assert job is not None
        return job

    return context.store.database.write(unit, name="jobs.cancel", writes=_writes(actor))


def _writes(actor: Actor) -> Writes:
    """Return what steering jobs writes: rows of jobs of any scope, the journal of the tally, and
    the answer, which is kept in the scope of the actor.
    """
    return Writes.of(JOBS, TALLY, actor.private_scope)


def _require_writable(context: MemoryContext, tx: Connection, actor: Actor, job_id: str) -> Job:
    job = job_list.find(tx, job_id)
    if job is None or not _may(context, tx, actor, job, "write"):
        raise NotFound(f"There is no job {job_id!a} that {actor.user} may steer.")
    return job


def _may(
    context: MemoryContext, connection: Connection, actor: Actor, job: Job, access: Any
) -> bool:
    if actor.operates_tally:
        return True
    return (
        job.scope is not None and context.gate.decide(connection, actor, access, job.scope).allowed
    )


def note_repair(
    tx: Connection,
    context: MemoryContext,
    actor: Actor,
    event: str,
    details: dict[str, Any],
    *,
    reason: str,
    stream: str = "tally",
) -> None:
    """Note in the tally's journal, or in a stream of its own, what an operator repaired, and why: a
    part of the act under way, or an act of its own.
    """
    journal.append(
        tx,
        journal.Event(
            stream=stream,
            event=event,
            actor=actor,
            at=context.store.clock.now(),
            audit_id=context.store.ids.new(),
            reason=reason,
            correlation_id=actor.correlation_id or context.store.ids.new(),
            details=details,
        ),
    )


def list_outbound_calls(
    context: MemoryContext,
    actor: Actor,
    scope: Scope,
    *,
    purpose: str | None,
    limit: int,
    before: str | None,
) -> list[OutboundCall]:
    """Return calls of models that the tally itself made, newest first: for an operator of every
    scope, else of `scope`. Raises Denied, and NotFound for an unknown `before`.
    """
    with context.store.database.read() as connection:
        everywhere = OperatorScopes(connection, context, actor, "read").whole
    if not everywhere:
        context.gate.require(actor, "read", scope)
    with context.store.database.read() as connection:
        last = None if before is None else outbound_calls.find(connection, before)
        if before is not None and (last is None or not (everywhere or last.scope == scope)):
            raise NotFound(f"There is no outbound call {before!a} that {actor.user} may see.")
        return outbound_calls.list_calls(
            connection,
            scope=None if everywhere else scope,
            purpose=purpose,
            before=last,
            limit=limit,
        )
