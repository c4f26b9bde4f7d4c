"""Held changes: what waits for a person and would change a memory, and what was changed since a
moment; each with its words and their day, as a reader is shown it beside the memory.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from tallystick.memory.context import MemoryContext
from tallystick.records import (
    Actor,
    AppliedChange,
    HeldChange,
    Memory,
    Proposal,
    ProposalContent,
    ProposalReason,
)
from tallystick.records.escaping import as_item
from tallystick.records.times import moment_text
from tallystick.storage import Connection
from tallystick.storage.rows import memories, proposals

_NOT_OWN: frozenset[ProposalReason] = frozenset(
    {"quoted", "foreign_text", "question", "not_stated", "span_missing"}
)
"""Reasons for which the words are not what the user said as true."""
_MOST = 2
"""Held changes that are shown beside one memory."""
_UNREADABLE = ("hidden", "redacted", "deleted")

Held = Mapping[str, tuple[HeldChange, ...]]
"""Id of a memory to the changes of it that wait, newest first."""


def held_changes(
    connection: Connection,
    context: MemoryContext,
    actor: Actor,
    among: Iterable[memories.Stored],
) -> Held:
    """Return for each of these memories, which the actor may read, the changes that wait and would
    replace, correct, end or contradict it as it is; memories without any are left out. Words whose
    text the actor may not see are left out with their change.
    """
    asked = {each.memory.id: each for each in among if each.memory.state == "active"}
    if not asked:
        return {}
    scope_ids = sorted({each.scope_id for each in asked.values()})
    waiting = [
        each.record
        for each in proposals.about_targets(connection, scope_ids, list(asked))
        if each.record.target_version == asked[each.record.target or ""].memory.version
    ]
    readable = _readable(
        connection, context, actor, [each for change in waiting for each in change.derived_from]
    )
    held: dict[str, tuple[HeldChange, ...]] = {}
    for proposal in waiting:
        target, words = proposal.target or "", proposal.content
        beside = held.get(target, ())
        if words is None or len(beside) == _MOST or not readable.keys() >= {*proposal.derived_from}:
            continue
        held[target] = (*beside, _held(context, proposal, words))
    return held


def _held(context: MemoryContext, proposal: Proposal, words: ProposalContent) -> HeldChange:
    is_own = proposal.reason not in _NOT_OWN
    text = words.content if is_own or not words.span else words.span
    assert proposal.action in ("UPDATE", "END", "CONTRADICTS")
    return HeldChange(
        proposal_id=proposal.id,
        action=proposal.action,
        # A model may be shown it: what was redacted on the way in is redacted on the way out.
        text=context.redactor.redact_text(text).text,
        is_own=is_own,
        said_at=proposal.created_at if words.occurred_at is None else words.occurred_at,
        reason=proposal.reason,
    )


def _readable(
    connection: Connection, context: MemoryContext, actor: Actor, memory_ids: Iterable[str]
) -> dict[str, Memory]:
    """Return the memories with a text that the actor may read, by id."""
    ids = set(filter(None, memory_ids))
    return {
        each.memory.id: each.memory
        for each in (memories.get_many(connection, sorted(ids)) if ids else ())
        if each.memory.state not in _UNREADABLE
        and context.gate.decide(connection, actor, "read", each.memory.scope).allowed
    }


def applied_since(
    connection: Connection,
    context: MemoryContext,
    actor: Actor,
    scope_ids: Sequence[int],
    since: int,
    until: int,
) -> dict[str, AppliedChange]:
    """Return the changes that learning applied in these scopes after a moment and up to another
    (microseconds UTC), and that nobody took back, by the memory that shows them: the one that was
    made, or the statement that ended another. Only what the actor may read, texts without secrets;
    oldest first, without additions.
    """
    applied = [
        each.record
        for each in proposals.applied_since(connection, scope_ids, since)
        if (each.record.decided_at or 0) <= until and each.record.action in ("UPDATE", "END")
    ]
    readable = _readable(
        connection,
        context,
        actor,
        [each for change in applied for each in (*change.derived_from, change.target or "")],
    )
    shown: dict[str, AppliedChange] = {}
    for change in applied:
        words, was = change.content, readable.get(change.target or "")
        by = change.derived_from[-1] if change.action == "END" else change.made
        if (
            words is None
            or was is None
            or by is None
            or not readable.keys() >= {*change.derived_from}
        ):
            continue
        assert change.target is not None
        shown[by] = AppliedChange(
            proposal_id=change.id,
            action=change.action,  # type: ignore[arg-type] # what is applied is a decision
            text=context.redactor.redact_text(words.span or words.content).text,
            made=change.made,
            target=change.target,
            was=context.redactor.redact_text(was.content).text,
            applied_at=change.decided_at or change.created_at,
        )
    return shown


def changes_note(
    held: Iterable[HeldChange], learned: AppliedChange | None, *, in_frame: bool = True
) -> str:
    """Return what stands behind a memory of the changes of it, those that wait and the one that
    was learned: our own words, and theirs, escaped as an item of a frame is; empty for none.
    """
    shown = as_item if in_frame else str
    notes = [f" ({words_of_held(each)}: {shown(each.text)})" for each in held]
    if learned is not None:
        said = f"; said: {shown(learned.text)}" if learned.action == "UPDATE" else ""
        notes.append(f" ({words_of_learned(learned)}: {shown(learned.was)}{said})")
    return "".join(notes)


def with_changes(
    memory: Memory, held: Iterable[HeldChange], learned: AppliedChange | None
) -> Memory:
    """Return a memory whose text says what was learned and which changes of it wait, as a compile
    chooses it.
    """
    note = changes_note(held, learned, in_frame=False)
    return memory.model_copy(update={"content": memory.content + note}) if note else memory


def words_of_learned(learned: AppliedChange) -> str:
    """Return our own words before what held until learning changed it: the day, and how."""
    day = moment_text(learned.applied_at, "%Y-%m-%d")
    return f"{day}, {'ended' if learned.action == 'END' else 'in place of'}"


def words_of_held(held: HeldChange) -> str:
    """Return our own words before a held change: its day, and whether the user said it."""
    day = moment_text(held.said_at, "%Y-%m-%d")
    return f"{day}, {'not confirmed' if held.is_own else 'quoted, not confirmed'}"
