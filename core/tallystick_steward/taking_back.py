"""Taking back: what one job, model or caller did, or what happened in a stretch of time, previewed
and then undone in one transaction.

Each change is undone only where nothing came after it, and with the right of whoever undoes it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from tallystick.access.confirm import Confirmation
from tallystick.errors import Conflict, Denied, InvalidInput, NotFound
from tallystick.memory import MemoryContext
from tallystick.memory import reviews as decisions
from tallystick.memory.memory_write import MemoryWrite
from tallystick.memory.undo import EVENTS, Undone, may_undo, undo, undone_memory, would_undo
from tallystick.records import AccessKind, Actor, JournalEntry, Json, Scope
from tallystick.storage import Connection
from tallystick.storage.rows import journal_reading, measures, memories, scopes
from tallystick_steward.events import may_see
from tallystick_steward.following import caller_of

_MOST = 1_000
"""Changes that are taken back at once."""

Outcome = Undone | Literal["changed_since", "refused"]


@dataclass(frozen=True)
class Selection:
    """The changes that are to be taken back."""

    by_job: str | None = None
    by_model: str | None = None
    by_actor: str | None = None
    act: str | None = None
    """The correlation id of one act."""
    since: int = 0
    until: int = 2**62

    def require(self) -> None:
        """Raise InvalidInput unless it names one thing, or a stretch of time."""
        if self == Selection():
            raise InvalidInput("Say what to take back: by_job, by_model, by_actor, or since.")
        named = [each for each in (self.by_job, self.by_model, self.by_actor, self.act) if each]
        if len(named) > 1:
            raise InvalidInput("Name one of by_job, by_model and by_actor, or a stretch of time.")
        if self.since >= self.until:
            raise InvalidInput("`since` has to be before `until`.", argument="since")

    @property
    def is_of_proposals(self) -> bool:
        """True if it is about what learning did."""
        return self.by_job is not None or self.by_model is not None

    def takes(self, entry: JournalEntry) -> bool:
        """Return True for an entry of the journal that it is about."""
        if entry.at >= self.until:
            return False
        if self.act is not None:
            return entry.correlation_id == self.act
        if self.by_actor is None:
            return True
        return self.by_actor in (caller_of(entry.actor), entry.actor.get("user"))


class Plan(NamedTuple):
    """What taking back would do."""

    entries: Sequence[JournalEntry]
    """Changes that can be undone, newest first."""
    proposals: Sequence[str]
    counts: Counter[Outcome]

    @property
    def number(self) -> int:
        """How many changes it would undo."""
        return len(self.entries) + len(self.proposals)

    @property
    def facts(self) -> dict[str, int]:
        """How many of each kind there are."""
        return {str(name): count for name, count in self.counts.items() if count}

    def as_json(self) -> Json:
        """Return what a token confirms."""
        return [[entry.audit_id for entry in self.entries], list(self.proposals)]


def plan(
    connection: Connection, context: MemoryContext, actor: Actor, selection: Selection
) -> Plan:
    """Return what can be taken back. Raises InvalidInput for more than 1,000 changes."""
    selection.require()
    if selection.is_of_proposals:
        return _plan_proposals(connection, context, actor, selection)
    counts: Counter[Outcome] = Counter()
    entries: list[JournalEntry] = []
    now = context.store.clock.now()
    first = journal_reading.sequence_at(connection, selection.since) - 1
    for entry in journal_reading.after(
        connection, first, events=EVENTS, limit=50 * _MOST, newest=True
    ):
        if entry.at < selection.since or not selection.takes(entry):
            continue
        if not (actor.operates_tally or may_see(connection, context, actor, entry, "read")):
            continue  # nor does anybody else hear how much was done there
        stored = memories.get(connection, str(entry.subject_id))
        undone = None if stored is None else would_undo(stored.memory, entry)
        if stored is None or undone is None:
            counts["changed_since"] += 1
        elif not (
            _may(connection, context, actor, stored.memory.scope)
            and may_undo(connection, context, actor, stored, entry, now)
        ):
            counts["refused"] += 1
        else:
            counts[undone] += 1
            entries.append(entry)
    if len(entries) > _MOST:
        raise InvalidInput(f"{len(entries)} changes are more than {_MOST}: name a shorter time.")
    return Plan(entries, (), counts)


def _plan_proposals(
    connection: Connection, context: MemoryContext, actor: Actor, selection: Selection
) -> Plan:
    """Return which changes of learning can be taken back."""
    scopes_by_id = measures.applied_proposals(
        connection,
        job_id=selection.by_job,
        model=selection.by_model,
        since=selection.since,
        until=selection.until,
    )
    counts: Counter[Outcome] = Counter()
    ids: list[str] = []
    for proposal_id, scope in scopes_by_id.items():
        if _may(connection, context, actor, scope):
            ids.append(proposal_id)
            counts["restored"] += 1
        elif actor.operates_tally or _may(connection, context, actor, scope, "read"):
            counts["refused"] += 1
    return Plan((), ids, counts)


def _may(
    connection: Connection,
    context: MemoryContext,
    actor: Actor,
    scope: Scope,
    access: AccessKind = "delete",
) -> bool:
    return context.gate.decide(connection, actor, access, scope).allowed


def confirmation(tx: Connection, context: MemoryContext, actor: Actor) -> Confirmation:
    """Return what makes and checks the tokens of an actor's previews."""
    secret = scopes.ensure(tx, actor.private_scope).secret
    return Confirmation(context.gate, secret, "take_back", actor)


def take_back(
    context: MemoryContext, actor: Actor, selection: Selection, *, reason: str, confirm_token: str
) -> Plan:
    """Undo exactly what a preview showed: memories in one transaction, proposals one by one, each
    whole. Raises StateConflict where it changed since, Denied, NotFound.
    """
    correlation_id = actor.correlation_id or ""
    vectors = _vectors(context, actor, selection)

    def unit(tx: Connection) -> Plan:
        now = context.store.clock.now()
        chosen = plan(tx, context, actor, selection)
        confirmation(tx, context, actor).require(
            confirm_token, chosen.as_json(), now=now, subject="the changes", what="Repair"
        )
        write = MemoryWrite(tx, context, actor, now, correlation_id)
        for entry in chosen.entries:
            stored = memories.get(tx, str(entry.subject_id))
            assert stored is not None
            # What came back just before may say the same.
            if may_undo(tx, context, actor, stored, entry, now):
                undo(write, stored, entry, reason=reason, vector=vectors.get(entry.audit_id))
            elif undone := would_undo(stored.memory, entry):
                chosen.counts[undone] -= 1
                chosen.counts["refused"] += 1
        return chosen

    with context.gate.journaling(actor):
        done = context.store.database.write(unit, name="steward.take_back")
    left = list[str]()
    for proposal_id in done.proposals:
        try:
            decisions.decide(
                context,
                actor,
                proposal_id,
                "undo",
                reason=reason,
                changes={},
                correlation_id=correlation_id,
            )
        except (Conflict, Denied, NotFound):
            left.append(proposal_id)
    if left:
        done.counts["restored"] -= len(left)
        done.counts["changed_since"] += len(left)
    return done


def _vectors(context: MemoryContext, actor: Actor, selection: Selection) -> dict[str, bytes | None]:
    """Return the vectors of what comes back, by the entry that took it away: made before the
    transaction, as the embedder may be slow. The token says that the texts are still those.
    """
    with context.store.database.read() as connection:
        chosen = plan(connection, context, actor, selection)
        texts = {
            entry.audit_id: memory
            for entry in chosen.entries
            if entry.event != "memory.add"
            and (stored := memories.get(connection, str(entry.subject_id))) is not None
            and (memory := undone_memory(connection, stored, entry)) is not None
        }
    return {audit_id: context.vector_for(memory) for audit_id, memory in texts.items()}
