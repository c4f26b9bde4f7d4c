"""Reviews: a person decides what policy left open. Each decision has a reason and stays in the
journal of its scope; what was rejected or deferred stays to be read.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tallystick.errors import Denied, InvalidInput, NotFound, StateConflict
from tallystick.memory import MemoryContext
from tallystick.memory.change import forget_one, require_reason
from tallystick.memory.correct import CorrectionRequest, apply_correction
from tallystick.memory.memory_write import MemoryWrite
from tallystick.memory.remember import PreparedMemory, check_new, ingest_one
from tallystick.memory.secrets import admit_fields
from tallystick.records import (
    Actor,
    Memory,
    NewMemory,
    Proposal,
    ProposalContent,
    ProposalState,
    ReviewDecision,
    Reviewed,
    ReviewEntry,
    Scope,
    SourceRef,
    is_storable,
)
from tallystick.storage import Connection
from tallystick.storage.engine.writes import Writes
from tallystick.storage.rows import edges, journal, memories, memory_versions, proposals
from tallystick.storage.rows.idempotency import IdempotentCall
from tallystick.storage.rows.proposals import StoredProposal

OPEN: tuple[ProposalState, ...] = ("pending", "deferred")
_STATES: Mapping[ReviewDecision, ProposalState] = {
    "accept": "accepted",
    "edit": "edited",
    "defer": "deferred",
    "reject": "rejected",
    "undo": "undone",
}
_DONE: tuple[ProposalState, ...] = ("applied", "accepted", "edited")
_EDITABLE = ("content", "kind", "subject", "attributes", "confidence", "valid_from")
_UNFIT = ("hidden", "redacted", "deleted")
_INHERITED = ("speaker", "category", "tags", "importance", "valid_until", "expires_at")
_INHERITED_ATTRIBUTES = ("local_only", "sensitivity")
"""Attributes that hold for whatever is concluded from a text."""


def list_proposals(
    context: MemoryContext,
    actor: Actor,
    scope: Scope,
    *,
    states: Sequence[ProposalState],
    limit: int,
    after: str | None,
) -> list[Proposal]:
    """Return the proposals of a scope, oldest first; the words of one whose sources the actor may
    no longer see are left out. Raises Denied, InvalidInput, NotFound for an unknown `after`.
    """
    context.gate.require(actor, "read", scope)
    with context.store.database.read() as connection:
        last = None
        if after is not None:
            stored = _visible(connection, context, actor, after)
            last = (stored.record.created_at, stored.record.id)
        page = proposals.of_scope(connection, scope, states, limit=limit, after=last)
        shown = [_as_it_stands(connection, context, actor, each.record) for each in page]
    context.gate.log_read(actor, "reviews", [scope], results=len(shown))
    return shown


def review_of(context: MemoryContext, actor: Actor, proposal_id: str) -> Reviewed:
    """Return a proposal with everything that happened to it, oldest first. Raises NotFound."""
    with context.store.database.read() as connection:
        stored = _visible(connection, context, actor, proposal_id)
        entries = journal.about(connection, proposal_id)
        record = _as_it_stands(connection, context, actor, stored.record)
    context.gate.log_read(actor, "reviews", [record.scope], results=1)
    return Reviewed(
        proposal=record,
        history=tuple(
            ReviewEntry(
                event=entry.event,
                at=entry.at,
                actor=entry.actor,
                surface=entry.surface,
                reason=entry.reason,
                audit_id=entry.audit_id,
            )
            for entry in entries
        ),
    )


def _visible(
    connection: Connection, context: MemoryContext, actor: Actor, proposal_id: str
) -> StoredProposal:
    stored = proposals.find(connection, proposal_id) if is_storable(proposal_id) else None
    if (
        stored is None
        or not context.gate.decide(connection, actor, "read", stored.record.scope).allowed
    ):
        raise NotFound(f"There is no proposal {proposal_id[:80]!a} that {actor.user} may see.")
    return stored


def _as_it_stands(
    connection: Connection, context: MemoryContext, actor: Actor, proposal: Proposal
) -> Proposal:
    """Return a proposal as the actor may see it, and as it stands: without its words where one of
    the memories that it was drawn from is gone or of a scope that is closed to the actor, and with
    the reason `target_changed` where its target did since.
    """
    is_open = proposal.state in OPEN and _has_target(proposal)
    if is_open and _target_of(connection, proposal) is None:
        proposal = proposal.model_copy(update={"reason": "target_changed"})
    for memory_id in proposal.derived_from:
        origin = memories.get(connection, memory_id, sources=False)
        if (
            origin is None
            or origin.memory.state in _UNFIT
            or not context.gate.decide(connection, actor, "read", origin.memory.scope).allowed
        ):
            return proposal.model_copy(update={"content": None, "decided_reason": None})
    return proposal


def decide(
    context: MemoryContext,
    actor: Actor,
    proposal_id: str,
    decision: ReviewDecision,
    *,
    reason: str,
    changes: Mapping[str, Any],
    idempotency_key: str | None = None,
    correlation_id: str | None = None,
) -> Proposal:
    """Accept, edit, defer or reject a proposal, or undo what came of it, by a person and for a
    reason.

    Raises NotFound, Denied (`person_required` for an agent, and a reason of its own where a source
    was hidden since), InvalidInput, StateConflict where it was decided or its target changed, and
    IdempotencyMismatch; then nothing changed.
    """
    require_reason(reason)
    unknown = sorted(set(changes) - set(_EDITABLE))
    if unknown or bool(changes) != (decision == "edit"):
        raise InvalidInput(
            f"`changes` belong to the decision edit, and are of {', '.join(_EDITABLE)}.",
            argument="changes",
        )
    with context.store.database.read() as connection:
        before = _visible(connection, context, actor, proposal_id)
        # Locked with the scope of the proposal: none of its origins is forgotten meanwhile.
        origins = [
            origin.memory.scope
            for memory_id in before.record.derived_from
            if (origin := memories.get(connection, memory_id, sources=False)) is not None
        ]
    _require_person(context, actor, before.record.scope)
    words = before.record.content
    vector = None
    if words is not None and decision in ("accept", "edit"):
        words = _edit_content(words, changes)
        admitted = admit_fields(context, before.record.scope, dict(words)).fields
        words = words.model_copy(update=dict(admitted))
        [vector] = context.vectors_for([words.content]).blobs

    def unit(tx: Connection) -> Proposal:
        stored = _visible(tx, context, actor, proposal_id)
        scope = stored.record.scope
        context.gate.confirm(tx, actor, "write", scope)
        arguments = [proposal_id, decision, reason, dict(changes)]
        call = IdempotentCall(stored.scope, "review", idempotency_key, arguments)
        answered = call.read_answer(tx)
        if answered is not None:
            return _visible(tx, context, actor, proposal_id).record
        write = MemoryWrite(tx, context, actor, context.store.clock.now(), correlation_id)
        proposal = stored.record
        if decision == "undo":
            undone = _undo(write, proposal, reason)
            call.keep(tx, {"id": proposal_id}, at=write.now)
            return undone
        if proposal.state not in OPEN or proposal.content is None:
            raise StateConflict(
                proposal_id, state=proposal.state, reason="it was decided, or its words are gone"
            )
        state = _STATES[decision]
        if decision in ("accept", "edit"):
            _require_sources(tx, context, actor, proposal)
            if "kind" in changes:
                proposal = proposal.model_copy(update={"kind": changes["kind"]})
            if "confidence" in changes:
                proposal = proposal.model_copy(update={"confidence": changes["confidence"]})
            assert words is not None
            decided = carry_out(write, proposal, words, vector=vector, state=state, reason=reason)
        else:
            decided = _move_proposal(write, proposal, state, reason=reason)
        call.keep(tx, {"id": proposal_id}, at=write.now)
        return decided

    with context.gate.journaling(actor):
        return context.store.database.write_mostly(
            unit, name="review", writes=Writes.of(before.record.scope, *origins)
        )


def _require_person(context: MemoryContext, actor: Actor, scope: Scope) -> None:
    context.gate.require_person(actor, "write", scope)
    if actor.agent is not None:
        raise context.gate.refusal(actor, "person_required", "write", scope)


def _edit_content(words: ProposalContent, changes: Mapping[str, Any]) -> ProposalContent:
    own = {name: changes[name] for name in changes if name not in ("kind", "confidence")}
    return ProposalContent.load({**words.dump(), **own}) if own else words


def _require_sources(
    tx: Connection, context: MemoryContext, actor: Actor, proposal: Proposal
) -> None:
    """Raise NotFound or Denied where a memory that a proposal was drawn from may no longer be
    concluded from.
    """
    for memory_id in proposal.derived_from:
        origin = context.visible(tx, actor, memory_id, "read", sources=False)
        decision = context.gate.confirm_and_decide(tx, actor, "reflect", origin.memory.scope)
        state = origin.memory.state
        if state in _UNFIT:
            reason = {"deleted": "source_deleted"}.get(state, f"{state}_source")
            raise Denied(decision.model_copy(update={"allowed": False, "reason": reason}))


def carry_out(
    write: MemoryWrite,
    proposal: Proposal,
    words: ProposalContent,
    *,
    vector: bytes | None,
    state: ProposalState,
    reason: str,
) -> Proposal:
    """Do what a proposal says, inside the open transaction, and note its state.

    Nothing is destroyed: what is replaced stays as history below its replacement, with reason,
    evidence and validity; what is withdrawn can be recovered.
    """
    made_id: str | None = None
    target = _require_target(write, proposal) if _has_target(proposal) else None
    if proposal.action in ("ADD", "UPDATE", "CONTRADICTS", "RELATE"):
        made_id = _make(write, proposal, words, vector)
    if proposal.action == "UPDATE" and made_id != proposal.target:
        assert proposal.target is not None
        request = CorrectionRequest(
            "supersede",
            reason,
            other_id=made_id,
            evidence=_evidence(write, proposal),
            valid_from=_since(words, target),
        )
        apply_correction(write, proposal.target, request)
    if (
        proposal.action in ("ADD", "CONTRADICTS")
        and target is not None
        and made_id != target.memory.id
    ):
        made = None if made_id is None else memories.get(write.tx, made_id)
        assert made is not None
        edges.add(
            write.tx,
            edge_id=write.context.store.ids.new(),
            # An exception points to what holds but for it.
            kind="CONTRADICTS" if proposal.action == "CONTRADICTS" else "REFERENCES",
            scope_id=made.scope_id,
            from_doc=made.doc,
            to_doc=target.doc,
            at=write.now,
            reason=reason,
            evidence=_evidence(write, proposal),
        )
    if proposal.action == "END":
        assert proposal.target is not None
        # Of the future too: it holds until then.
        ended = words.valid_until or words.valid_from
        request = CorrectionRequest("mark_stale", reason, valid_from=ended)
        apply_correction(write, proposal.target, request)
    if proposal.action == "PROMOTE":
        raise InvalidInput("A promotion is previewed: use `promote` with an explicit scope.")
    return _move_proposal(write, proposal, state, reason=reason, words=words, made_id=made_id)


def _since(words: ProposalContent, target: memories.Stored | None) -> int | None:
    """Return since when a correction holds: since ever, in place of what was never true. What is
    replaced holds until its replacement does.
    """
    if words.change != "corrects" or target is None:
        return None
    memory = target.memory
    return memory.valid_from or memory.occurred_at or memory.created_at


def _undo(write: MemoryWrite, proposal: Proposal, reason: str) -> Proposal:
    """Take back what came of a proposal: what it made is forgotten, and its target holds again as
    before. Raises StateConflict where nothing came of it, or where either was changed since.
    """
    tx = write.tx
    if proposal.state not in _DONE:
        raise StateConflict(
            proposal.id, state=proposal.state, reason="nothing was done that could be undone"
        )
    made = None if proposal.made is None else memories.get(tx, proposal.made)
    target = None if proposal.target is None else memories.get(tx, proposal.target)
    corrected = {"UPDATE": "supersede", "END": "mark_stale"}.get(proposal.action)
    if corrected is not None and target is not None and proposal.made != proposal.target:
        if target.memory.corrected != corrected:
            raise StateConflict(
                proposal.id,
                state=proposal.state,
                reason="the memory that it changed was changed again since",
                hint="Undo the later change first.",
            )
        apply_correction(write, target.memory.id, CorrectionRequest("restore", reason))
    # What was there before, such as the text itself, stays.
    if made is not None and made.memory.created_at == proposal.decided_at:
        first = next(memory_versions.bodies(tx, [made.doc]), None)
        is_edited = first is not None and first.body["content"] != made.memory.content
        if made.memory.state == "superseded" or (made.memory.state == "active" and is_edited):
            raise StateConflict(
                proposal.id,
                state=proposal.state,
                reason="what it made was replaced or edited since",
                hint="Undo the later change first.",
            )
        if made.memory.state != "deleted":
            forget_one(write, write.permit(made, "delete"), reason)
    return _move_proposal(write, proposal, "undone", reason=reason, before=_DONE)


def _has_target(proposal: Proposal) -> bool:
    return proposal.target is not None and proposal.action != "NONE"


def _target_of(connection: Connection, proposal: Proposal) -> memories.Stored | None:
    """Return the memory that a proposal is about while it is as it was then, else None."""
    target = None if proposal.target is None else memories.get(connection, proposal.target)
    is_as_it_was = (
        target is not None
        and target.memory.scope == proposal.scope
        and target.memory.state == "active"
        and target.memory.version == proposal.target_version
    )
    return target if is_as_it_was else None


def _require_target(write: MemoryWrite, proposal: Proposal) -> memories.Stored:
    target = _target_of(write.tx, proposal)
    if target is None:
        raise StateConflict(
            proposal.id,
            state=proposal.state,
            reason="the memory that it is about changed since it was proposed",
            hint="Reject it, and reflect anew.",
        )
    return target


def _make(
    write: MemoryWrite, proposal: Proposal, words: ProposalContent, vector: bytes | None
) -> str:
    """Write the memory of a proposal, linked with what it was drawn from; return its id, or that of
    the text where this says nothing else.
    """
    tx = write.tx
    attributes = dict(words.attributes)
    if words.relation is not None:
        attributes["relation"] = words.relation.dump()
    origins = [
        origin
        for memory_id in proposal.derived_from
        if (origin := memories.get(tx, memory_id)) is not None
    ]
    for origin in origins:
        if origin.memory.scope == proposal.scope and is_whole_text(
            origin.memory, words.content, proposal.kind
        ):
            return origin.memory.id
    inherited = _inherited_fields(proposal, origins)
    if words.said_by is not None:
        attributes["said_by"] = words.said_by
    new = NewMemory.load(
        {
            **inherited,
            "content": words.content,
            "kind": "claim" if proposal.kind == "relation" else proposal.kind,
            "subject": words.subject,
            "attributes": _inherited_attributes(origins) | attributes,
            "confidence": proposal.confidence,
            "occurred_at": words.occurred_at,
            # What is said of the future is known from now on.
            "valid_from": None if words.valid_from is None else min(words.valid_from, write.now),
            "valid_until": words.valid_until or inherited.get("valid_until"),
        }
    )
    check_new(write.context, new)
    reference = SourceRef(source_type="memory", version=proposal.prompt_version)
    [scope] = [each.scope for each in [proposals.find(tx, proposal.id)] if each is not None]
    by = proposal.provider if proposal.model is None else f"{proposal.provider}:{proposal.model}"
    prepared = PreparedMemory(
        new, reference, vector, (), extraction_model=by, prompt_version=proposal.prompt_version
    )
    result = ingest_one(write, scope, prepared)
    stored = memories.get(tx, result.id)
    assert stored is not None
    linked = {link.source_id for link in stored.memory.sources}
    # What somebody said already stands by itself: it does not go with what a model read.
    is_said = result.status == "duplicate" and not edges.leaving(
        tx, "DERIVED_FROM", [stored.doc], most=1
    )
    for origin in () if is_said else origins:
        if origin.doc == stored.doc:
            continue
        edges.add(
            tx,
            edge_id=write.context.store.ids.new(),
            kind="DERIVED_FROM",
            scope_id=scope.id,
            from_doc=stored.doc,
            to_doc=origin.doc,
            at=write.now,
            evidence=proposal.sources,
        )
        for link in origin.memory.sources if origin.scope_id == scope.id else ():
            if link.source_id not in linked:
                memories.link_source(tx, stored.doc, link.source_id)
    return result.id


def _inherited_fields(proposal: Proposal, origins: Sequence[memories.Stored]) -> dict[str, Any]:
    """Return what a conclusion has of the one memory of its scope that it was drawn from."""
    if len(origins) != 1 or origins[0].memory.scope != proposal.scope:
        return {}
    memory = origins[0].memory
    return {name: getattr(memory, name) for name in _INHERITED}


def _inherited_attributes(origins: Sequence[memories.Stored]) -> dict[str, Any]:
    return {
        name: value
        for origin in origins
        for name, value in origin.memory.attributes.items()
        if name in _INHERITED_ATTRIBUTES
    }


def _evidence(write: MemoryWrite, proposal: Proposal) -> tuple[str, ...]:
    """Return the sources of a proposal that its scope has."""
    linked: list[str] = []
    for memory_id in proposal.derived_from:
        origin = memories.get(write.tx, memory_id)
        if origin is not None and origin.memory.scope == proposal.scope:
            linked += [link.source_id for link in origin.memory.sources]
    return tuple(source_id for source_id in proposal.sources if source_id in linked)


def _move_proposal(
    write: MemoryWrite,
    proposal: Proposal,
    state: ProposalState,
    *,
    reason: str,
    words: ProposalContent | None = None,
    made_id: str | None = None,
    before: Sequence[ProposalState] = OPEN,
) -> Proposal:
    moved = proposals.move(
        write.tx,
        proposal.id,
        before=before,
        after=state,
        decided_by=write.actor.identity(),
        decided_reason=reason,
        decided_at=write.now,
        content=words,
        made=made_id,
        kind=proposal.kind,
        confidence=proposal.confidence,
    )
    assert moved, "the writer reads and moves in one turn"
    details = {"state": state, "action": proposal.action}
    write.journal_event(
        proposal.scope,
        f"proposal.{state}",
        proposal.id,
        details if made_id is None else {**details, "made": made_id},
        reason=reason,
    )
    decided = proposals.find(write.tx, proposal.id)
    assert decided is not None
    return decided.record


def is_whole_text(memory: Memory, content: str, kind: str) -> bool:
    """Return True if a conclusion is nothing but the text of a loose memory: its kind says no more
    either.
    """
    return (
        memory.conversation is None
        and kind in ("fact", memory.kind)
        and _plain(content) == _plain(memory.content)
    )


def _plain(text: str) -> str:
    return " ".join(text.split()).strip(" .!。").casefold()
