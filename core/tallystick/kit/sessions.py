"""Sessions that several observers watch: who of them records, by the id that they share.

An adapter in the agent's process records a session as runs of one thread. A hook, which is a
process of its own for each event, would record the same calls and words a second time: it leaves
them to the adapter, and the journal says so. Hooks that reach the tally through several paths, such
as a plugin and the settings of a client, tell of each event once for each: the first path answers
and records.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from tallystick.records import Actor, ContextCandidate, RunRecord, Scope, text_digest
from tallystick.records._base import JsonObject
from tallystick.storage import Connection
from tallystick.storage.engine.writes import Writes
from tallystick.storage.rows import journal, recordings
from tallystick.storage.rows.idempotency import IdempotentCall
from tallystick.tally import BoundTally
from tallystick.tally.services import services_of
from tallystick.tally.session_turns import DAY_US, OBSERVER, scopes_of_session


def stored_text(bound: BoundTally, text: str) -> str:
    """Return a text as the content of a memory in the bound scope is stored: without secrets,
    unless the tally keeps them.
    """
    from tallystick.memory import secrets

    return secrets.stored_text(services_of(bound).memory, bound.scope, text)


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


def closed_to(bound: BoundTally, scope: Scope) -> str | None:
    """Return whose memories a recording of a scope may hold, where the actor may not read them; or
    None.
    """
    services = services_of(bound)
    with services.store.database.read() as connection:
        if services.gate.decide(connection, bound.actor, "read", scope).allowed:
            return None
    return scope.key if scope.kind == "private" else str(scope)


def journal_opened(
    bound: BoundTally, scope: Scope, items: Iterable[ContextCandidate], *, step_id: str
) -> None:
    """Journal in a scope of somebody else that the memories among these items are opened, each by
    its id, before their text in a recorded step is shown. Raises StorageError.
    """
    there = bound.tally.bind(bound.actor, scope)
    for memory_id in (item.memory_id for item in items):
        if memory_id is not None:
            note(there, "memory.opened", {"step": step_id}, subject_id=memory_id)


SPOOLED = "spooled"
"""The metadata of a run that has the id under which its event waited in the spool."""
_SPOOLED_RUNS = 10_000
_RUNS = 50
"""Runs of a session that are looked at, the newest."""
_EVENT = "session.event"
_DOUBLE_US = 30_000_000
"""Microseconds within which two paths tell of one event: the time that clients give a hook."""


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
    in the bound scope: a run of it has ended well, or one that was cut off or failed has its step.
    """
    store = services_of(bound).store
    store.database.flush()
    with store.database.read() as connection:
        runs = recordings.runs_of_thread(
            connection, bound.scope, session, since=since, limit=_SPOOLED_RUNS
        )
        for run in runs:
            if run.metadata.get(SPOOLED) == event_id and (
                run.status not in ("running", "interrupted", "failed")
                or recordings.steps_of(connection, run.id, limit=1)
            ):
                return True
    return False


@dataclass(frozen=True)
class EventClaim:
    """Who of several paths told of an event of a session first."""

    path: str
    """The path that told first; the others leave the event to it."""
    is_new: bool
    """Whether this very call told first."""
    answer: dict[str, Any] | None = None
    """What the first path answered, once it has."""


def claim_event(
    bound: BoundTally,
    session: str,
    key: str,
    *,
    path: str,
    once: bool,
    at: int | None = None,
    spooled: str | None = None,
) -> EventClaim:
    """Tell of an event of a session through a path, in the bound scope, in whatever process; return
    who told of it first.

    With `once` the key is the event's own, and is told of once by all. Without, it is what the
    event says, which may be said again: of a burst, each path tells as often as it happened, and
    the path that is ahead is first. `at` is when it was told, microseconds UTC, by default now;
    `spooled` is its id in the spool, under which it may be taken again after a crash. Raises Denied
    where the actor may not record in the bound scope.
    """
    services = services_of(bound)
    services.gate.require(bound.actor, "record", bound.scope)
    store = services.store
    call = _event_call(bound, session, key)
    moment = store.clock.now() if at is None else at

    def unit(tx: Connection) -> EventClaim:
        kept = call.read_answer(tx)
        known = kept if kept and (once or abs(moment - kept["at"]) <= _DOUBLE_US) else {}
        paths: dict[str, Any] = known.get("paths", {})
        mine = paths.get(path)
        if spooled is not None and mine is not None and mine["spooled"] == spooled:
            # Taken by a process that died: the same verdict as then.
            return EventClaim(known["first"], mine["is_new"], known.get("answer"))
        ahead = max((each["times"] for name, each in paths.items() if name != path), default=0)
        # A path that joins a burst tells of its last event.
        times = (max(ahead - 1, 0) if mine is None else mine["times"]) + 1
        is_new = not paths if once else times > ahead
        entry = {"times": times, "spooled": spooled, "is_new": is_new}
        stored = {**known, "at": moment, "paths": {**paths, path: entry}}
        if is_new:
            stored |= {"first": path, "answer": None}
        (call.keep if kept is None else call.replace)(tx, stored, at=store.clock.now())
        return EventClaim(stored["first"], is_new, stored.get("answer"))

    return store.database.write(unit, name=_EVENT, writes=Writes.of(bound.scope))


def answer_claim(bound: BoundTally, session: str, key: str, answer: dict[str, Any]) -> None:
    """Keep what the first path answered, for the others that tell of the same event."""
    store = services_of(bound).store
    call = _event_call(bound, session, key)

    def unit(tx: Connection) -> None:
        kept = call.read_answer(tx)
        if kept is not None:
            call.replace(tx, {**kept, "answer": answer}, at=store.clock.now())

    store.database.write(unit, name=_EVENT, writes=Writes.of(bound.scope))


def claimed_answer(bound: BoundTally, session: str, key: str) -> dict[str, Any] | None:
    """Return what the first path answered; None while it has not."""
    with services_of(bound).store.database.read() as connection:
        kept = _event_call(bound, session, key).read_answer(connection)
    return None if kept is None else kept.get("answer")


def _event_call(bound: BoundTally, session: str, key: str) -> IdempotentCall:
    return IdempotentCall(
        bound.scope, _EVENT, text_digest("session-event", f"{session} {key}"), None
    )


def note_seen_again(
    bound: BoundTally,
    session: str,
    *,
    observer: str,
    what: str,
    why: str,
    run: RunRecord | None = None,
    path: str | None = None,
    active: str | None = None,
) -> None:
    """Journal that an observer saw something of a session that another records: the observer of
    `run`, or the `active` one of several paths to the same observer, and why it is that one.

    The id of the session is a text of others: it stands beside the chain, where it can be erased.
    """
    paths = {"path": path, "active": active}
    note(
        bound,
        "session.seen_again",
        {
            "observer": observer,
            "seen": what,
            "why": why,
            **{name: value for name, value in paths.items() if value is not None},
        },
        actor=bound.actor.traced(session_id=session),
        subject_id=None if run is None else run.id,
    )
