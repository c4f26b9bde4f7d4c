"""Proposals: what a learner would do, stored in the transaction that ends its work.

A proposal says what it would do and why it deserves a look. `carry_out` of the reviews does it:
when a person accepts it, or here, where it passes every check and `learning` is `apply`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from tallystick.memory.memory_write import MemoryWrite, is_locked, is_pinned_for
from tallystick.memory.reviews import carry_out, is_whole_text
from tallystick.policy.permissions import is_local_only
from tallystick.records import (
    AccessKind,
    Actor,
    ExtractedFact,
    ExtractedRelation,
    Learning,
    Proposal,
    ProposalContent,
    ProposalOrigin,
    ProposalReason,
    part_key,
)
from tallystick.storage import ScopeRow
from tallystick.storage.rows import edges, memories, occurrences, proposals
from tallystick_learning.conclude import Conclusion, Conclusions
from tallystick_learning.material import said_at
from tallystick_learning.providers import LearnedBy

_PROGRAM = Actor(user="tallystick", agent="tallystick-extract")
"""The program that draws conclusions: pins and locks hold against it as against any agent, whoever
caused its work.
"""
TRUSTED_SOURCES = frozenset({"user", "app_state", "memory", "human_approval", "policy"})
"""The origins of text that somebody of this tally said. Text of a tool, a page or a file is
anybody's.
"""
_LONGEST_REASON = 500


class Proposer:
    """Stores the proposals of one job or call in one scope, inside the open transaction, and
    applies those that pass where `mode` is `apply`.
    """

    def __init__(
        self,
        write: MemoryWrite,
        scope: ScopeRow,
        *,
        origin: ProposalOrigin,
        mode: Learning = "review",
        job_id: str | None = None,
    ) -> None:
        self._write, self._scope, self._job_id = write, scope, job_id
        self._origin: ProposalOrigin = origin
        self._mode: Learning = mode
        self.proposals: list[Proposal] = []
        self.unchanged = 0
        """The number of facts that need no memory."""

    @property
    def waiting(self) -> int:
        """The number of proposals that wait for a person."""
        return sum(each.is_open for each in self.proposals)

    def propose(self, conclusions: Conclusions, current: Mapping[int, memories.Stored]) -> None:
        """Store what a learner would do, and do it where that passes and `mode` says so. `current`
        are the texts that are as they were read. What was proposed from one of them before is not
        proposed again, whatever came of it.
        """
        proposed = {doc: self._proposed_from(source) for doc, source in current.items()}
        for conclusion in conclusions.facts:
            doc = conclusion.source.doc
            if doc in current and conclusion.fact.content not in proposed[doc]:
                self.decide(replace(conclusion, source=current[doc]), conclusions.by)

    def propose_relations(
        self, conclusions: Conclusions, current: Mapping[int, memories.Stored]
    ) -> None:
        """Store what a learner says of two names of one text as claims, each for a person."""
        for relation in conclusions.extraction.relations:
            content = f"{relation.source} {relation.relation} {relation.target}"
            names = {relation.source.casefold(), relation.target.casefold()}
            saying = [
                each
                for each in current.values()
                if all(name in each.memory.content.casefold() for name in names)
            ]
            if saying and content not in self._proposed_from(saying[0]):
                fact = ExtractedFact(
                    content=content, kind="relation", confidence=relation.confidence
                )
                reason = self._reason_of_text(saying[0], fact) or "review_mode"
                conclusion = Conclusion(fact, saying[0], "ADD")
                self._add(conclusion, conclusions.by, reason, relation=relation)

    def _proposed_from(self, source: memories.Stored) -> set[str]:
        before = proposals.of_memories(self._write.tx, [source.memory.id])
        return {
            each.record.content.content
            for each in before
            if each.scope.id == self._scope.id
            and source.memory.id in each.record.derived_from
            and each.record.content is not None
            and each.record.state != "shadow"
        }

    def decide(self, conclusion: Conclusion, by: LearnedBy) -> None:
        """Store what one fact would do, and do it where it passes and `mode` says so."""
        if conclusion.refusal is not None:
            self._add(conclusion, by, conclusion.refusal)
            return
        if conclusion.action == "NONE" or (
            conclusion.action == "ADD" and self._is_stored(conclusion)
        ):
            self._note_unchanged(conclusion, by)
            return
        reason = self._reason_to_wait(conclusion)
        proposal = self._add(conclusion, by, reason)
        if proposal.is_open and self._mode == "apply" and self._may_apply(proposal):
            self.proposals[-1] = self._apply(proposal, vector=conclusion.vector)
        elif conclusion.target is not None and proposal.is_open:
            details = _details(by, conclusion, self._job_id) | {
                "proposal": proposal.id,
                "verdict": reason,
            }
            self._write.journal_event(
                self._scope.scope, "review_needed", conclusion.target.id, details
            )

    def judge_anew(self, proposal: Proposal, hold: ProposalReason | None) -> None:
        """Apply a change of an agent that waits, or keep why it waits on."""
        target = memories.get(self._write.tx, proposal.target or "", sources=False)
        is_as_seen = target is not None and (
            (target.memory.version, target.memory.state) == (proposal.target_version, "active")
        )
        reason: ProposalReason = "contradiction"
        if target is None or not is_as_seen:
            reason = "target_changed"
        else:
            reason = self._reason_of_target(target) or hold or reason
        if reason == proposal.reason:
            return
        proposals.move(
            self._write.tx,
            proposal.id,
            before=("pending",),
            after="pending",
            reason=reason,
        )
        judged = proposal.model_copy(update={"reason": reason})
        if self._may_apply(judged):
            self._apply(judged, vector=None)

    def _may_apply(self, proposal: Proposal) -> bool:
        """Return True if a proposal passed, and the program may do for the actor what it says."""
        right: AccessKind = "write" if proposal.target is None else "correct"
        gate, actor = self._write.context.gate, program_of(self._write.actor)
        return (
            proposal.passed and gate.decide(self._write.tx, actor, right, self._scope.scope).allowed
        )

    def _apply(self, proposal: Proposal, *, vector: bytes | None) -> Proposal:
        """Do what passed the checks, as the program and not as the person."""
        assert proposal.content is not None
        change = proposal.content.change or "added"
        return carry_out(
            replace(self._write, actor=program_of(self._write.actor)),
            proposal,
            proposal.content,
            vector=vector,
            state="applied",
            reason=f"{change}, as was said later (proposal {proposal.id})",
        )

    def _is_stored(self, conclusion: Conclusion) -> bool:
        """Return True if a fact is nothing but its text, or an active memory says it in the same
        words.
        """
        scope, source, fact = self._scope, conclusion.source, conclusion.fact
        if source.scope_id == scope.id and is_whole_text(source.memory, fact.content, fact.kind):
            return True
        key = part_key(scope.secret, fact.content.encode("utf-8", "surrogatepass"))
        return occurrences.find_statement(self._write.tx, scope.id, fact.kind, key) is not None

    def _reason_to_wait(self, conclusion: Conclusion) -> ProposalReason:
        """Return what a person should know before deciding, or `invalid_target` where there is
        nothing to decide: the target is gone.
        """
        of_text = self._reason_of_text(conclusion.source, conclusion.fact)
        if conclusion.target is None:
            return of_text or conclusion.hold or "review_mode"
        target = memories.get(self._write.tx, conclusion.target.id, sources=False)
        if target is None or target.scope_id != self._scope.id:
            return "invalid_target"
        if target.memory.version != conclusion.target.version or target.memory.state != "active":
            return "target_changed"
        of_author = target.memory.created_by != conclusion.source.memory.created_by
        return (
            self._reason_of_target(target)
            or of_text
            or ("another_author" if of_author else None)
            or conclusion.hold
            or ("review_mode" if conclusion.action == "ADD" else "contradiction")
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
        return None if is_trusted(links) else "foreign_text"

    def _note_unchanged(self, conclusion: Conclusion, by: LearnedBy) -> None:
        """Journal that a fact needs no memory."""
        self.unchanged += 1
        source = conclusion.source
        details = _details(by, conclusion, self._job_id) | {"version": source.memory.version}
        reason = f"{conclusion.action} by {by.provider}"
        if conclusion.action == "ADD":
            reason = f"{reason}: it is remembered already"
        self._write.journal_event(
            source.memory.scope, "memory.none", source.memory.id, details, reason=reason
        )

    def _add(
        self,
        conclusion: Conclusion,
        by: LearnedBy,
        reason: ProposalReason,
        *,
        relation: ExtractedRelation | None = None,
    ) -> Proposal:
        """Store a proposal, and journal it without its words."""
        write, memory, fact, target = (
            self._write,
            conclusion.source.memory,
            conclusion.fact,
            conclusion.target,
        )
        is_void = reason == "invalid_target" or conclusion.refusal is not None
        proposal = Proposal(
            id=write.context.store.ids.new(),
            scope=self._scope.scope,
            origin=self._origin,
            action=conclusion.action if relation is None else "RELATE",
            kind=fact.kind,
            state="discarded" if is_void else "shadow" if self._mode == "shadow" else "pending",
            reason=reason,
            content=ProposalContent(
                content=fact.content,
                subject=fact.about or memory.subject,
                occurred_at=said_at(memory),
                valid_from=fact.valid_from,
                valid_until=fact.valid_until,
                explanation=(fact.was or "")[:_LONGEST_REASON],
                change=fact.change,
                mode=fact.mode,
                said_by=fact.said_by,
                span=fact.span[:_LONGEST_REASON],
                relation=relation,
            ),
            confidence=min(memory.confidence, fact.confidence),
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
        details = _details(by, conclusion, self._job_id) | {
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


def is_trusted(links: Iterable[memories.SourceLink]) -> bool:
    """Return True for the sources of a text that somebody of this tally said."""
    return all(link.reference.source_type in TRUSTED_SOURCES for link in links)


def program_of(actor: Actor) -> Actor:
    """Return the program that learns for an actor: what it does is never a person's own."""
    return actor.model_copy(update={"agent": _PROGRAM.agent})


def _details(by: LearnedBy, conclusion: Conclusion, job_id: str | None) -> dict[str, Any]:
    details: dict[str, Any] = {
        "provider": by.provider,
        "decision": conclusion.action,
        "confidence": conclusion.fact.confidence,
    }
    for name, value in (
        ("job", job_id),
        ("model", by.model),
        ("prompt_version", by.prompt_version),
        ("target", None if conclusion.target is None else conclusion.target.id),
    ):
        if value is not None:
            details[name] = value
    return details
