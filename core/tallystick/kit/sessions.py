"""Sessions that several observers watch: who of them records, by the id that they share.

An adapter in the agent's process records a session as runs of one thread. A hook, which is a
process of its own for each event, would record the same calls and words a second time: it leaves
them to the adapter, and the journal says so.
"""

from __future__ import annotations

from collections.abc import Iterable

from tallystick.records import Actor, RunRecord, Scope, text_digest
from tallystick.records._base import JsonObject
from tallystick.storage import Connection
from tallystick.storage.engine.writes import Writes
from tallystick.storage.rows import journal, recordings
from tallystick.storage.rows.idempotency import IdempotentCall
from tallystick.tally import BoundTally
from tallystick.tally.services import services_of
from tallystick.tally.session_turns import DAY_US, OBSERVER, scopes_of_session


def note(
    bound: BoundTally,
    event: str,
    details: JsonObject,
    *,
    actor: Actor | None = None,
    subject_id: str | None = None,
) -> None:
    """Journal an event in the bound scope, by the actor of the view or another. Raises
    StorageError.
    """
    store = services_of(bound).store
    entry = journal.Event(
        stream=f"scope:{bound.scope}",
        event=event,
        actor=actor or bound.actor,
        at=store.clock.now(),
        audit_id=store.ids.new(),
        subject_id=subject_id,
        details=details,
    )
    store.database.write(
        lambda tx: journal.append(tx, entry), name=event, writes=Writes.of(bound.scope)
    )


def journal_opened(
    bound: BoundTally, scope: Scope, memory_ids: Iterable[str], *, step_id: str
) -> None:
    """Journal in a scope of somebody else that its memories are opened, each by its id, before
    their text in a recorded step is shown. Raises StorageError.
    """
    there = bound.tally.bind(bound.actor, scope)
    for memory_id in memory_ids:
        note(there, "memory.opened", {"step": step_id}, subject_id=memory_id)


SPOOLED = "spooled"
"""The metadata of a run that has the id under which its event waited in the spool."""
_SPOOLED_RUNS = 10_000
_RUNS = 50
"""Runs of a session that are looked at, the newest."""


def recorded_elsewhere(bound: BoundTally, session: str, observer: str) -> RunRecord | None:
    """Return the newest run of this session that another observer records, in the bound scope or in
    another one of the actor's; None if none does.

    A run of another process counts as soon as it is stored. Raises Denied where the actor may not
    record in the bound scope.
    """
    services, actor = services_of(bound), bound.actor
    services.gate.require(actor, "record", bound.scope)
    store = services.store
    store.database.flush()
    with store.database.read() as connection:
        for scope in scopes_of_session(actor, bound.scope):
            if not services.gate.decide(connection, actor, "record", scope).allowed:
                continue
            runs = recordings.runs_of_thread(
                connection, scope, session, since=store.clock.now() - DAY_US, limit=_RUNS
            )
            for run in runs:
                if run.metadata.get(OBSERVER) != observer:
                    return run
    return None


def is_recorded_from_spool(bound: BoundTally, session: str, event_id: str, *, since: int) -> bool:
    """Return True if an event that waited in the spool since a time (microseconds UTC) is recorded
    in the bound scope: a run of it has ended, or one that was cut off has its step.
    """
    store = services_of(bound).store
    store.database.flush()
    with store.database.read() as connection:
        runs = recordings.runs_of_thread(
            connection, bound.scope, session, since=since, limit=_SPOOLED_RUNS
        )
        for run in runs:
            if run.metadata.get(SPOOLED) == event_id and (
                run.status not in ("running", "interrupted")
                or recordings.steps_of(connection, run.id, limit=1)
            ):
                return True
    return False


def is_first_to_record(bound: BoundTally, session: str, call_id: str) -> bool:
    """Return True for the first who tells of a call of a session in the bound scope, in whatever
    process, and False for all others: a hook that is installed twice tells of each call twice.
    """
    store = services_of(bound).store
    key = text_digest("session-call", f"{session} {call_id}")
    call = IdempotentCall(bound.scope, "session.call", key, None)

    def unit(tx: Connection) -> bool:
        if call.read_answer(tx) is not None:
            return False
        call.keep(tx, {}, at=store.clock.now())
        return True

    return store.database.write(unit, name="session.call", writes=Writes.of(bound.scope))


def note_seen_again(
    bound: BoundTally, session: str, *, observer: str, what: str, run: RunRecord
) -> None:
    """Journal that an observer saw something of a session that the observer of `run` records.

    The id of the session is a text of others: it stands beside the chain, where it can be erased.
    """
    note(
        bound,
        "session.seen_again",
        {"observer": observer, "seen": what},
        actor=bound.actor.traced(session_id=session),
        subject_id=run.id,
    )
