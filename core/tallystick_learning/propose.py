"""Proposals: what a model concluded, stored for a person in the transaction that ends its work.

No memory changes here. A proposal says what it would do and why it deserves a look; `reviews`
carries out what a person accepts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tallystick.memory.memory_write import MemoryWrite, is_locked, is_pinned_for
from tallystick.memory.reviews import is_whole_text
from tallystick.policy.permissions import is_local_only
from tallystick.records import (
    Actor,
    ExtractedFact,
    ExtractedRelation,
    Extraction,
    Memory,
    Proposal,
    ProposalAction,
    ProposalContent,
    ProposalOrigin,
    ProposalReason,
    part_key,
)
from tallystick.storage import ScopeRow
from tallystick.storage.rows import edges, memories, occurrences, proposals
from tallystick_learning.decide import CheckedDecision
from tallystick_learning.providers import LearnedBy

_PROGRAM = Actor(user="tallystick", agent="tallystick-extract")
"""The program that draws conclusions: pins and locks hold against it as against any agent, whoever
caused its work.
"""
_TRUSTED_SOURCES = frozenset({"user", "app_state", "memory", "human_approval", "policy"})
"""The origins of text that somebody of this tally said. Text of a tool, a page or a file is
anybody's.
"""
_LONGEST_REASON = 500


@dataclass(frozen=True)
class Conclusions:
    """What was drawn from one memory, ready to be stored: everything slow was done before."""

    extraction: Extraction
    checked: Sequence[CheckedDecision]
    extracted_by: LearnedBy
    decided_by: LearnedBy


class Proposer:
    """Stores the proposals of one job or call in one scope, inside the open transaction."""

    def __init__(
        self,
        write: MemoryWrite,
        scope: ScopeRow,
        *,
        origin: ProposalOrigin,
        job_id: str | None = None,
    ) -> None:
        self._write, self._scope, self._job_id = write, scope, job_id
        self._origin: ProposalOrigin = origin
        self.proposals: list[Proposal] = []
        self.unchanged = 0
        """The number of facts that need no memory."""

    @property
    def waiting(self) -> int:
        """The number of proposals that wait for a person."""
        return sum(each.is_open for each in self.proposals)

    def propose(self, source: memories.Stored, conclusions: Conclusions) -> None:
        """Store what a model wants done with the facts of one memory. What was proposed from it
        before is not proposed again, whatever came of it.
        """
        proposed_contents = self._proposed_from(source)
        facts = conclusions.extraction.facts
        for decision in conclusions.checked:
            fact = facts[decision.fact] if decision.fact < len(facts) else None
            if fact is None or fact.content not in proposed_contents:
                self._propose_decision(source, conclusions, decision, fact)

    def propose_relations(self, source: memories.Stored, conclusions: Conclusions) -> None:
        """Store what a model says of two names of one memory as claims, each for a person."""
        proposed_contents = self._proposed_from(source)
        for relation in conclusions.extraction.relations:
            fact = ExtractedFact(
                content=f"{relation.source} {relation.relation} {relation.target}",
                kind="relation",
                confidence=relation.confidence,
            )
            if fact.content not in proposed_contents:
                reason = self._reason_of_text(source, fact) or "review_mode"
                by = conclusions.extracted_by
                self._add(source, by, "RELATE", reason, fact=fact, relation=relation)

    def _proposed_from(self, source: memories.Stored) -> set[str]:
        before = proposals.of_memories(self._write.tx, [source.memory.id])
        return {
            each.record.content.content
            for each in before
            if each.scope.id == self._scope.id
            and source.memory.id in each.record.derived_from
            and each.record.content is not None
        }

    def _propose_decision(
        self,
        source: memories.Stored,
        conclusions: Conclusions,
        decision: CheckedDecision,
        fact: ExtractedFact | None,
    ) -> None:
        by = conclusions.decided_by
        if fact is None or decision.refusal is not None:
            reason = decision.refusal or "invalid_target"
            self._add(source, by, decision.action, reason, fact=fact, decision=decision)
            return
        if decision.action == "NONE" or (
            decision.action == "ADD" and self._is_stored(source, fact)
        ):
            self._note_unchanged(source, by, decision)
            return
        reason = self._reason_to_wait(source, fact, decision)
        proposal = self._add(source, by, decision.action, reason, fact=fact, decision=decision)
        if decision.target is not None and proposal.is_open:
            details = _details(by, decision, self._job_id) | {
                "proposal": proposal.id,
                "verdict": reason,
            }
            self._write.journal_event(
                self._scope.scope, "review_needed", decision.target.id, details
            )

    def _is_stored(self, source: memories.Stored, fact: ExtractedFact) -> bool:
        """Return True if a fact is nothing but its text, or an active memory says it in the same
        words.
        """
        scope = self._scope
        if source.scope_id == scope.id and is_whole_text(source.memory, fact.content, fact.kind):
            return True
        key = part_key(scope.secret, fact.content.encode("utf-8", "surrogatepass"))
        return occurrences.find_statement(self._write.tx, scope.id, fact.kind, key) is not None

    def _reason_to_wait(
        self, source: memories.Stored, fact: ExtractedFact, decision: CheckedDecision
    ) -> ProposalReason:
        """Return what a person should know before deciding, or `invalid_target` where there is
        nothing to decide: the target is gone.
        """
        if decision.target is None:
            return self._reason_of_text(source, fact) or "review_mode"
        target = memories.get(self._write.tx, decision.target.id, sources=False)
        if target is None or target.scope_id != self._scope.id:
            return "invalid_target"
        if target.memory.version != decision.target.version or target.memory.state != "active":
            return "target_changed"
        return (
            self._reason_of_target(target)
            or self._reason_of_text(source, fact)
            or ("another_author" if source.memory.created_by != target.memory.created_by else None)
            or ("contradiction_in_batch" if decision.is_contested else "contradiction")
        )

    def _reason_of_target(self, target: memories.Stored) -> ProposalReason | None:
        """Return what protects a memory from agents, if something does."""
        tx = self._write.tx
        if is_pinned_for(tx, target, _PROGRAM):
            return "pinned_memory"
        if is_locked(target.memory, _PROGRAM, self._write.now):
            return "manual_override"
        return None if edges.sharing(tx, target.doc).origin is None else "shared_memory"

    def _reason_of_text(
        self, source: memories.Stored, fact: ExtractedFact
    ) -> ProposalReason | None:
        """Return what is special about where a fact is from, if something is."""
        redactor = self._write.context.redactor
        if is_local_only(source.memory.attributes) or redactor.redact_text(fact.content)[1]:
            return "sensitive"
        if source.scope_id != self._scope.id:
            return "scope_crossing"
        links = memories.source_refs(self._write.tx, [source.doc]).get(source.doc, [])
        is_trusted = all(link.reference.source_type in _TRUSTED_SOURCES for link in links)
        return None if is_trusted else "foreign_text"

    def _note_unchanged(
        self, source: memories.Stored, by: LearnedBy, decision: CheckedDecision
    ) -> None:
        """Journal that a fact needs no memory."""
        self.unchanged += 1
        details = _details(by, decision, self._job_id) | {"version": source.memory.version}
        reason = f"{decision.action} by {by.provider}"
        if decision.action == "ADD":
            reason = f"{reason}: it is remembered already"
        elif decision.reason:
            reason = f"{reason}: {decision.reason[:_LONGEST_REASON]}"
        self._write.journal_event(
            source.memory.scope, "memory.none", source.memory.id, details, reason=reason
        )

    def _add(
        self,
        source: memories.Stored,
        by: LearnedBy,
        action: ProposalAction,
        reason: ProposalReason,
        *,
        fact: ExtractedFact | None,
        decision: CheckedDecision | None = None,
        relation: ExtractedRelation | None = None,
    ) -> Proposal:
        """Store a proposal, and journal it without its words."""
        write, memory = self._write, source.memory
        is_void = reason == "invalid_target" or (decision is not None and decision.refusal)
        target = None if decision is None else decision.target
        content = None
        if fact is not None:
            content = ProposalContent(
                content=fact.content,
                subject=fact.subject or memory.subject,
                occurred_at=memory.occurred_at if fact.occurred_at is None else fact.occurred_at,
                explanation="" if decision is None else decision.reason[:_LONGEST_REASON],
                relation=relation,
            )
        proposal = Proposal(
            id=write.context.store.ids.new(),
            scope=self._scope.scope,
            origin=self._origin,
            action=action,
            kind="fact" if fact is None else fact.kind,
            state="discarded" if is_void else "pending",
            reason=reason,
            content=content,
            confidence=_confidence(memory, fact, decision),
            sources=tuple(link.source_id for link in memory.sources),
            derived_from=(memory.id,),
            target=None if target is None else target.id,
            target_version=None if target is None else target.version,
            suggested_scope=self._suggested_scope(),
            provider=by.provider,
            model=by.model,
            prompt_version=by.prompt_version,
            job_id=self._job_id,
            run_id=by.run_id,
            step_id=by.step_id,
            created_at=write.now,
            created_by=write.actor.identity(),
        )
        proposals.add(write.tx, proposal, scope=self._scope)
        details = _details(by, decision, self._job_id) | {
            "state": proposal.state,
            "verdict": reason,
            "kind": proposal.kind,
            "from": memory.id,
        }
        write.journal_event(self._scope.scope, "proposal.made", proposal.id, details)
        self.proposals.append(proposal)
        return proposal

    def _suggested_scope(self) -> str | None:
        """Return the project that a private conclusion would belong to, where there is just one."""
        projects = sorted(self._write.actor.projects)
        if (
            self._origin != "reflection"
            or self._scope.scope.kind != "private"
            or len(projects) != 1
        ):
            return None
        return f"project:{projects[0]}"


def _confidence(
    memory: Memory, fact: ExtractedFact | None, decision: CheckedDecision | None
) -> int:
    """Return the least confidence of the text, the fact and the decision, percent."""
    parts = [memory.confidence]
    if fact is not None:
        parts.append(fact.confidence)
    if decision is not None:
        parts.append(decision.confidence)
    return min(parts)


def _details(by: LearnedBy, decision: CheckedDecision | None, job_id: str | None) -> dict[str, Any]:
    details: dict[str, Any] = {"provider": by.provider}
    if decision is not None:
        details |= {"decision": decision.action, "confidence": decision.confidence}
    for name, value in (
        ("job", job_id),
        ("model", by.model),
        ("prompt_version", by.prompt_version),
        ("target", None if decision is None or decision.target is None else decision.target.id),
    ):
        if value is not None:
            details[name] = value
    return details
