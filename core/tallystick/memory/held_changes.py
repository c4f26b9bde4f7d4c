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
    readable = _readable_origins(connection, context, actor, waiting)
    held: dict[str, tuple[HeldChange, ...]] = {}
    for proposal in waiting:
        target, words = proposal.target or "", proposal.content
        beside = held.get(target, ())
        if words is None or len(beside) == _MOST or not readable.issuperset(proposal.derived_from):
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


def _readable_origins(
    connection: Connection,
    context: MemoryContext,
    actor: Actor,
    waiting: Sequence[Proposal],
) -> set[str]:
    """Return the texts of these proposals that the actor may read."""
    ids = {memory_id for each in waiting for memory_id in each.derived_from}
    return {
        each.memory.id
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
) -> list[AppliedChange]:
    """Return the changes that learning applied in these scopes, which the actor may read, after a
    moment (microseconds UTC), and that nobody took back; oldest first, without additions.
    """
    applied = [each.record for each in proposals.applied_since(connection, scope_ids, since)]
    readable = _readable_origins(connection, context, actor, applied)
    targets = {each.target for each in applied if each.target is not None}
    known = {each.memory.id: each.memory for each in memories.get_many(connection, sorted(targets))}
    return [
        AppliedChange(
            proposal_id=each.id,
            action=each.action,  # type: ignore[arg-type] # what is applied is a decision
            text=each.content.content,
            made=each.made,
            target=each.target,
            was=known[each.target].content if each.target in known else None,
            applied_at=each.decided_at or each.created_at,
        )
        for each in applied
        if each.content is not None
        and each.target is not None
        and readable.issuperset(each.derived_from)
    ]


def held_note(held: Iterable[HeldChange]) -> str:
    """Return what a frame says behind a memory of the changes that wait: our own words, and theirs
    escaped; empty for none.
    """
    return "".join(f" ({words_of_held(each)}: {as_item(each.text)})" for each in held)


def with_held(memory: Memory, held: Iterable[HeldChange]) -> Memory:
    """Return a memory whose text says which changes of it wait, as a compile chooses it."""
    note = "".join(f" ({words_of_held(each)}: {each.text})" for each in held)
    return memory.model_copy(update={"content": memory.content + note}) if note else memory


def words_of_held(held: HeldChange) -> str:
    """Return our own words before a held change: its day, and whether the user said it."""
    day = moment_text(held.said_at, "%Y-%m-%d")
    return f"{day}, {'not confirmed' if held.is_own else 'quoted, not confirmed'}"
