"""Apply: what policy lets happen of checked decisions, in the transaction that ends their job.

Everything is decided again against what is stored now. Nothing is destroyed: a memory that is
replaced stays as history below its replacement, and one that is withdrawn is a tombstone that can
be recovered. What a rule stops leaves both sides, linked as contradicting, and a proposal.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from tallystick.graph import ReadPage, link_page
from tallystick.memory.change import forget_one, is_locked, is_pinned_for
from tallystick.memory.memory_write import MemoryWrite
from tallystick.pipeline.decide import CheckedDecision
from tallystick.pipeline.telling import is_program
from tallystick.records import (
    Actor,
    ExtractedFact,
    Extraction,
    ExtractionStatus,
    JsonObject,
    Learning,
    Memory,
    Proposal,
    ProposalAction,
    ProposalContent,
    ProposalReason,
    ProposalState,
    ProviderDeclaration,
)
from tallystick.storage import edges, journal, memories, occurrences, parts, proposals

_PROGRAM = Actor(user="tallystick", agent="tallystick-extract")
"""The program that draws conclusions: pins and locks hold against it as against any agent, whoever
caused its work.
"""
_TRANSFORM = "learning-1"
_TRUSTED_SOURCES = frozenset({"user", "app_state", "memory", "human_approval", "policy"})
"""The origins of text that may replace or withdraw what somebody said. Text of a tool, a page or a
file is anybody's.
"""
_INHERITED = ("local_only", "sensitivity")
"""Attributes that hold for whatever is concluded from a text."""


@dataclass(frozen=True)
class LearnedBy:
    """Who drew a conclusion, for its history."""

    provider: str
    model: str | None = None
    prompt_version: str | None = None
    run_id: str | None = None
    step_id: str | None = None

    @classmethod
    def of(cls, declaration: ProviderDeclaration) -> LearnedBy:
        """Return the names of a provider that is called without a record."""
        return cls(declaration.name, declaration.model, declaration.prompt_version)


@dataclass(frozen=True)
class Conclusions:
    """What was drawn from one memory, ready to be applied: everything slow was done before."""

    extraction: Extraction
    checked: Sequence[CheckedDecision]
    vectors: Sequence[bytes | None]
    """The vector of each fact."""
    extracted_by: LearnedBy
    decided_by: LearnedBy
    mode: Learning
    job_id: str
    names: ReadPage | None = None
    """What the graph gets of the text, where it is on and a model read the text."""


@dataclass
class Outcome:
    """The number of decisions by what became of them."""

    added: int = 0
    updated: int = 0
    deleted: int = 0
    unchanged: int = 0
    waiting: int = 0
    discarded: int = 0
    made: list[str] = field(default_factory=list)

    def as_json(self) -> JsonObject:
        """Return the numbers that are not zero."""
        counts: JsonObject = {
            name: count for name, count in vars(self).items() if isinstance(count, int) and count
        }
        return counts


def apply(write: MemoryWrite, origin: memories.Stored, conclusions: Conclusions) -> Outcome:
    """Apply conclusions inside the open transaction; return what became of them."""
    applier = _Applier(write, origin, conclusions)
    for decision in conclusions.checked:
        applier.carry_out(decision)
    if conclusions.mode != "shadow" and conclusions.names is not None:
        link_page(write, conclusions.names)
    status: ExtractionStatus = "empty" if conclusions.extraction.is_empty else "done"
    memories.set_extraction_status(write.tx, origin.doc, status)
    return applier.outcome


class _Applier:
    """The decisions about one memory, carried out one after the other."""

    def __init__(
        self, write: MemoryWrite, origin: memories.Stored, conclusions: Conclusions
    ) -> None:
        self.write, self.origin, self.conclusions = write, origin, conclusions
        self.outcome = Outcome()
        self._facts = conclusions.extraction.facts

    def carry_out(self, decision: CheckedDecision) -> None:
        """Carry out one decision, or leave it to a person."""
        if decision.is_discarded or decision.fact >= len(self._facts):
            self._propose(decision, "discarded", decision.verdict)
            self.outcome.discarded += 1
            return
        mode = self.conclusions.mode
        if decision.action == "NONE":
            self._leave(decision)
            return
        target = self._current(decision)
        verdict = self._verdict(decision, target)
        if verdict in ("already_said", "nothing_new"):
            self._leave(decision, verdict)
        elif mode == "shadow":
            reason = "shadow_mode" if verdict == "by_policy" else verdict
            self._propose(decision, "pending", reason)
            self.outcome.waiting += 1
        elif verdict == "by_policy" and (decision.action == "ADD" or mode == "full"):
            self._apply(decision, target)
        else:
            self._block(decision, target, "add_only_mode" if verdict == "by_policy" else verdict)

    def _current(self, decision: CheckedDecision) -> memories.Stored | None:
        if decision.target is None:
            return None
        return memories.get(self.write.tx, decision.target.id, sources=False)

    def _verdict(self, decision: CheckedDecision, target: memories.Stored | None) -> ProposalReason:
        """Return `by_policy`, or the rule that stops a decision by what is stored now."""
        if decision.action == "ADD":
            return decision.verdict
        assert decision.target is not None
        if target is None or target.scope_id != self.origin.scope_id:
            return "invalid_target"
        memory, tx = target.memory, self.write.tx
        if memory.version != decision.target.version or memory.state != "active":
            return "target_changed"
        if is_pinned_for(tx, target, _PROGRAM):
            return "pinned_memory"
        if is_locked(memory, _PROGRAM, self.write.now):
            return "manual_override"
        if edges.sharing(tx, target.doc).origin is not None:
            return "shared_memory"
        if memory.conversation is not None:
            return "conversation_turn"
        if not decision.is_applicable:
            return decision.verdict
        if not self._is_trusted():
            return "foreign_text"
        return "by_policy"

    def _is_trusted(self) -> bool:
        """Return True if the text is of somebody who may take back what was said."""
        if is_program(self.origin.memory.speaker):
            return False
        references = memories.source_refs(self.write.tx, [self.origin.doc])[self.origin.doc]
        return all(link.reference.source_type in _TRUSTED_SOURCES for link in references)

    def _apply(self, decision: CheckedDecision, target: memories.Stored | None) -> None:
        made = None
        if decision.action == "DELETE":
            assert target is not None
            forget_one(self.write, target, self._why(decision), details=self._details(decision))
            self.outcome.deleted += 1
        else:
            made = self._add(decision)
            if decision.action == "UPDATE":
                assert target is not None
                self._supersede(decision, target, made)
                self.outcome.updated += 1
            else:
                self.outcome.added += 1
        self._propose(decision, "applied", "by_policy", made=made)

    def _block(
        self,
        decision: CheckedDecision,
        target: memories.Stored | None,
        verdict: ProposalReason,
    ) -> None:
        """Let both sides stay, and ask a person."""
        fact = self._facts[decision.fact]
        if verdict == "invalid_target" or (decision.action == "ADD" and verdict == "trivial"):
            self._propose(decision, "discarded", verdict)
            self.outcome.discarded += 1
            return
        made = None
        is_statement = decision.action == "UPDATE" and fact.confidence >= _SURE
        if is_statement and target is not None:
            made = self._add(decision)
            if made.doc != target.doc:
                edges.add(
                    self.write.tx,
                    edge_id=self.write.context.store.ids.new(),
                    kind="CONTRADICTS",
                    scope_id=self.origin.scope_id,
                    from_doc=made.doc,
                    to_doc=target.doc,
                    at=self.write.now,
                    reason=verdict,
                    evidence=[link.source_id for link in self.origin.memory.sources],
                )
        proposal = self._propose(decision, "pending", verdict, made=made)
        if target is not None:
            details = self._details(decision) | {"proposal": proposal.id, "verdict": verdict}
            self.write.journal_event(
                self.origin.memory.scope, "review_needed", target.memory.id, details
            )
        self.outcome.waiting += 1

    def _leave(self, decision: CheckedDecision, verdict: ProposalReason | None = None) -> None:
        """Note that a fact needs no memory, and that its target was said once more."""
        target = self._current(decision)
        details = self._details(decision) | {"version": self.origin.memory.version}
        if verdict is not None:
            details["verdict"] = verdict
        is_same = (
            decision.is_applicable
            and target is not None
            and target.scope_id == self.origin.scope_id
            and target.memory.state == "active"
            and target.doc != self.origin.doc
        )
        if is_same and self.conclusions.mode != "shadow":
            assert target is not None
            self._merge(decision, target)
            details["target"] = target.memory.id
        self.write.journal_event(
            self.origin.memory.scope,
            "memory.none",
            self.origin.memory.id,
            details,
            reason=self._why(decision),
        )
        self.outcome.unchanged += 1

    def _merge(self, decision: CheckedDecision, target: memories.Stored) -> None:
        """Link the sources of the text to a memory that says the same."""
        linked = {
            link.source_id
            for link in memories.get_docs(self.write.tx, [target.doc])[target.doc].memory.sources
        }
        for link in self.origin.memory.sources:
            if link.source_id not in linked:
                memories.link_source(self.write.tx, target.doc, link.source_id)
        details = self._details(decision) | {
            "version": target.memory.version,
            "from": self.origin.memory.id,
        }
        self.write.journal_event(
            self.origin.memory.scope,
            "memory.merge",
            target.memory.id,
            details,
            reason=self._why(decision),
        )

    def _add(self, decision: CheckedDecision) -> memories.Stored:
        """Return the memory of a fact: a new one, one that says the same already, or the text
        itself where it is nothing but the fact.
        """
        fact, origin, tx = self._facts[decision.fact], self.origin, self.write.tx
        memory = origin.memory
        if memory.conversation is None and _plain(fact.content) == _plain(memory.content):
            return origin
        key = parts.put(
            tx, origin.scope, fact.content.encode("utf-8", "surrogatepass"), at=self.write.now
        )
        same = occurrences.find_statement(tx, origin.scope_id, fact.kind, key)
        if same is not None:
            stored = memories.get_docs(tx, [same.doc])[same.doc]
            self._merge(decision, stored)
            return stored
        by = self.conclusions.extracted_by
        new = Memory(
            id=self.write.context.store.ids.new(),
            scope=memory.scope,
            kind=fact.kind,
            subject=fact.subject or memory.subject,
            content=fact.content,
            speaker=memory.speaker,
            category=memory.category,
            sources=memory.sources,
            source_run_id=memory.source_run_id,
            source_step_ids=memory.source_step_ids,
            confidence=min(fact.confidence, memory.confidence),
            importance=memory.importance,
            valid_from=memory.valid_from,
            valid_until=memory.valid_until,
            freshness_ts=memory.freshness_ts,
            expires_at=memory.expires_at,
            tags=memory.tags,
            attributes={
                name: value for name, value in memory.attributes.items() if name in _INHERITED
            },
            occurred_at=memory.occurred_at,
            transform_version=_TRANSFORM,
            extraction_model=by.provider if by.model is None else f"{by.provider}:{by.model}",
            prompt_version=by.prompt_version,
            created_at=self.write.now,
            updated_at=self.write.now,
            created_by=self.write.actor.user,
        )
        doc, committed = memories.insert_memory(tx, new, scope=origin.scope, content_key=key)
        for ordinal, link in enumerate(memory.sources):
            memories.link_source(tx, doc, link.source_id, ordinal=ordinal)
        edges.add(
            tx,
            edge_id=self.write.context.store.ids.new(),
            kind="DERIVED_FROM",
            scope_id=origin.scope_id,
            from_doc=doc,
            to_doc=origin.doc,
            at=self.write.now,
        )
        details = self._details(decision) | {
            "version": 1,
            "kind": new.kind,
            "commitment": committed,
            "derived_from": [memory.id],
        }
        self.write.journal_event(
            memory.scope, "memory.add", new.id, details, reason=self._why(decision)
        )
        vector = self.conclusions.vectors[decision.fact]
        self.write.show(new, doc=doc, scope_id=origin.scope_id, vector=vector)
        self.outcome.made.append(new.id)
        return memories.get_docs(tx, [doc])[doc]

    def _supersede(
        self, decision: CheckedDecision, target: memories.Stored, made: memories.Stored
    ) -> None:
        """Place a memory below the one that replaces it; what it says stays, as history."""
        since = made.memory.occurred_at or made.memory.valid_from or self.write.now
        until = target.memory.valid_until
        replaced = target.memory.model_copy(
            update={
                "state": "superseded",
                "corrected": "supersede",
                "valid_until": since if until is None else min(since, until),
            }
        )
        edges.add(
            self.write.tx,
            edge_id=self.write.context.store.ids.new(),
            kind="SUPERSEDES",
            scope_id=self.origin.scope_id,
            from_doc=made.doc,
            to_doc=target.doc,
            at=self.write.now,
            reason=self._who(decision),
            evidence=[link.source_id for link in self.origin.memory.sources],
            valid_from=replaced.valid_until,
        )
        details = self._details(decision) | {
            "correction": "supersede",
            "before": "active",
            "after": "superseded",
            "other": made.memory.id,
        }
        self.write.rewrite(
            target, replaced, "memory.correct", reason=self._why(decision), details=details
        )

    def _why(self, decision: CheckedDecision) -> str:
        """Return who decided what, with the reason that the decider gave: it is data."""
        by = self._who(decision)
        return f"{by}: {decision.reason[:500]}" if decision.reason else by

    def _who(self, decision: CheckedDecision) -> str:
        return f"{decision.action} by {self.conclusions.decided_by.provider}"

    def _details(self, decision: CheckedDecision) -> dict[str, Any]:
        by = self.conclusions.decided_by
        details: dict[str, Any] = {
            "decision": decision.action,
            "confidence": decision.confidence,
            "provider": by.provider,
            "job": self.conclusions.job_id,
        }
        if by.model is not None:
            details["model"] = by.model
        if by.prompt_version is not None:
            details["prompt_version"] = by.prompt_version
        return details

    def _propose(
        self,
        decision: CheckedDecision,
        state: ProposalState,
        reason: ProposalReason,
        *,
        made: memories.Stored | None = None,
    ) -> Proposal:
        """Store a decision with what became of it, and journal it without its words."""
        fact = self._facts[decision.fact] if decision.fact < len(self._facts) else None
        by, memory = self.conclusions.decided_by, self.origin.memory
        action: ProposalAction = decision.action
        proposal = Proposal(
            id=self.write.context.store.ids.new(),
            scope=memory.scope,
            action=action,
            kind="fact" if fact is None else fact.kind,
            state=state,
            reason=reason,
            content=None if fact is None else _words(fact, decision),
            confidence=decision.confidence,
            sources=tuple(link.source_id for link in memory.sources),
            derived_from=(memory.id,),
            target=None if decision.target is None else decision.target.id,
            target_version=None if decision.target is None else decision.target.version,
            made=None if made is None else made.memory.id,
            provider=by.provider,
            model=by.model,
            prompt_version=by.prompt_version,
            job_id=self.conclusions.job_id,
            run_id=by.run_id,
            step_id=by.step_id,
            created_at=self.write.now,
            created_by=self.write.actor.identity(),
        )
        proposals.add(self.write.tx, proposal, scope=self.origin.scope)
        details = self._details(decision) | {"state": state, "verdict": reason}
        if proposal.target is not None:
            details["target"] = proposal.target
        journal.append(
            self.write.tx,
            journal.Event(
                stream=f"scope:{memory.scope}",
                event="proposal.add",
                actor=self.write.actor,
                at=self.write.now,
                audit_id=self.write.context.store.ids.new(),
                correlation_id=self.write.correlation_id,
                subject_id=proposal.id,
                details=details,
            ),
        )
        return proposal


_SURE = 60
"""The confidence of a fact from which on it is kept beside the memory that it contradicts."""


def _words(fact: ExtractedFact, decision: CheckedDecision) -> ProposalContent:
    return ProposalContent(
        content=fact.content,
        subject=fact.subject,
        occurred_at=fact.occurred_at,
        explanation=decision.reason[:500],
    )


def _plain(text: str) -> str:
    return " ".join(text.split()).strip(" .!。").casefold()
