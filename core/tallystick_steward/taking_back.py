"""Taking back: what one job, model or caller did, or what happened in a stretch of time, previewed
and then undone in one transaction.

Each change is undone only where nothing came after it, and with the right of whoever undoes it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from tallystick.access.confirm import Confirmation
from tallystick.errors import Conflict, Denied, InvalidInput, NotFound, StateConflict
from tallystick.memory import MemoryContext
from tallystick.memory import reviews as decisions
from tallystick.memory.change import CHANGEABLE, apply_modify, forget_one, recover_memory
from tallystick.memory.memory_write import MemoryWrite
from tallystick.records import Actor, JournalEntry, Json, Memory, Scope
from tallystick.storage import Connection
from tallystick.storage.rows import (
    journal_reading,
    measures,
    memories,
    memory_versions,
    proposals,
    scopes,
)
from tallystick_steward.following import caller_of

_EVENTS = ("memory.add", "memory.forget", "memory.update")
_MOST = 1_000
"""Changes that are taken back at once."""

Undone = Literal["recovered", "forgotten", "restored", "changed_since", "refused"]


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
    counts: Counter[Undone]

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
    counts: Counter[Undone] = Counter()
    if selection.is_of_proposals:
        ids = []
        for proposal_id in measures.applied_proposals(
            connection, job_id=selection.by_job, model=selection.by_model, since=selection.since
        ):
            stored = proposals.find(connection, proposal_id)
            assert stored is not None
            if _may(connection, context, actor, stored.record.scope):
                ids.append(proposal_id)
            else:
                counts["refused"] += 1
        counts["restored"] += len(ids)
        return Plan((), ids, counts)
    first = journal_reading.sequence_at(connection, selection.since) - 1
    found = journal_reading.after(connection, first, events=_EVENTS, limit=50 * _MOST, newest=True)
    entries: list[JournalEntry] = []
    seen: set[str] = set()
    for entry in found:
        memory_id = str(entry.subject_id)
        # Only the last change of a memory can be undone: that of another one came after it.
        is_last = memory_id not in seen
        seen.add(memory_id)
        if entry.at < selection.since or not selection.takes(entry):
            continue
        what = _undoing(connection, context, actor, entry, is_last=is_last)
        counts[what] += 1
        if what in ("recovered", "forgotten", "restored"):
            entries.append(entry)
    if len(entries) > _MOST:
        raise InvalidInput(f"{len(entries)} changes are more than {_MOST}: name a shorter time.")
    return Plan(entries, (), counts)


def _undoing(
    connection: Connection,
    context: MemoryContext,
    actor: Actor,
    entry: JournalEntry,
    *,
    is_last: bool,
) -> Undone:
    stored = memories.get(connection, str(entry.subject_id))
    if stored is None or not is_last:
        return "changed_since"
    if not _may(connection, context, actor, stored.memory.scope):
        return "refused"
    state = stored.memory.state
    if entry.event == "memory.forget" and state == "deleted":
        return "recovered"
    if entry.event == "memory.add" and state == "active":
        return "forgotten"
    if entry.event == "memory.update" and state == "active" and stored.memory.version > 1:
        return "restored"
    return "changed_since"


def _may(connection: Connection, context: MemoryContext, actor: Actor, scope: Scope) -> bool:
    return context.gate.decide(connection, actor, "delete", scope).allowed


def confirmation(connection: Connection, context: MemoryContext, actor: Actor) -> Confirmation:
    """Return what makes and checks the tokens of an actor's previews."""
    rows = scopes.find(connection, [actor.private_scope])
    secret = rows[0].secret if rows else None
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
            _undo(write, entry, reason, vectors.get(entry.audit_id))
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
            and (memory := _earlier(connection, str(entry.subject_id), entry.event)) is not None
        }
    return {audit_id: context.vector_for(memory) for audit_id, memory in texts.items()}


def _earlier(connection: Connection, memory_id: str, event: str) -> Memory | None:
    """Return a memory with the text that it has once an event is undone; None where that is
    erased.
    """
    stored = memories.get(connection, memory_id)
    if stored is None or event == "memory.forget":
        return None if stored is None else stored.memory
    version = stored.memory.version
    before = memory_versions.earlier_body(connection, stored.doc, version, lambda body: True)
    if before is None:
        return None
    fields: dict[str, Any] = {name: before[name] for name in CHANGEABLE if name in before}
    return stored.memory.replace(**fields)


def _undo(write: MemoryWrite, entry: JournalEntry, reason: str, vector: bytes | None) -> None:
    memory_id = str(entry.subject_id)
    stored = memories.get(write.tx, memory_id)
    assert stored is not None
    if entry.event == "memory.add":
        forget_one(write, write.permit(stored, "delete"), reason)
        return
    if entry.event == "memory.forget":
        again = recover_memory(write.tx, write.context, stored, write.now)
        permitted = write.permit(stored, "delete")
        write.rewrite(permitted, again, "memory.recover", reason=reason, vector=vector)
        return
    memory = _earlier(write.tx, memory_id, entry.event)
    if memory is None:
        raise StateConflict(memory_id, state="erased", reason="its text was destroyed")
    changed = [name for name in CHANGEABLE if getattr(memory, name) != getattr(stored.memory, name)]
    apply_modify(write, write.permit(stored, "correct"), memory, vector, changed, reason)
