"""Decisions: what becomes of facts beside the memories that they may be about.

A decider proposes. The checks look at structure only: a target must be a candidate that the decider
was shown, and a fact has one decision. Whatever passes them waits for a person.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from tallystick.errors import Denied, ExtractionError
from tallystick.memory import RecallRequest, newest, recall
from tallystick.policy.permissions import is_local_only
from tallystick.ports import Decider
from tallystick.ranking import sentence_spans
from tallystick.recorder.outbound import OutboundSubject
from tallystick.records import (
    Actor,
    DecisionAction,
    DecisionCandidate,
    ExtractedFact,
    Hit,
    Memory,
    MemoryDecision,
    ProposalReason,
    ProviderDeclaration,
    Scope,
)
from tallystick_learning.extract import EXTRACTED_KINDS
from tallystick_learning.providers import LearnedBy, LearningContext, ask_first

CHANGING: tuple[DecisionAction, ...] = ("UPDATE", "DELETE")
"""Decisions that replace or withdraw a memory."""
_TARGETED: tuple[DecisionAction, ...] = (*CHANGING, "CONTRADICTS")
"""Decisions that are about a memory."""
_CANDIDATES = 8
"""Memories that a decider may choose its target from, for one fact."""
_TARGETS = ("note", *EXTRACTED_KINDS)
"""Kinds of memories that a decision may be about."""
_LONGEST_CANDIDATE = 2_000
"""Characters of a memory that may be a target: a longer one says more than a fact can replace."""


class Decided(NamedTuple):
    """Decisions, who made them, and what the decider was not shown."""

    decisions: Sequence[MemoryDecision]
    by: LearnedBy
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True)
class CheckedDecision:
    """A decision after the checks."""

    fact: int
    action: DecisionAction
    target: DecisionCandidate | None
    confidence: int
    reason: str
    """The sentence of the decider. It is data."""
    refusal: ProposalReason | None = None
    """Why it is discarded, so that no person may carry it out either."""
    is_contested: bool = False
    """True if another decision of the same text is about its target."""


def find_candidates(
    context: LearningContext,
    actor: Actor,
    scope: Scope,
    memory: Memory,
    facts: Sequence[ExtractedFact],
) -> list[list[DecisionCandidate]]:
    """Return for each fact of a memory the memories of a scope that it may be about: those that
    recall finds by it, best first, then the newest ones. There are none where the actor may not
    read, or where nobody decides.
    """
    if not context.deciders:
        return [[] for _ in facts]
    reading = context.memory.silent() if is_local_only(memory.attributes) else context.memory
    is_far = not all(each.declaration.local for each in context.deciders)
    request = RecallRequest(
        limit=3 * _CANDIDATES, kinds=_TARGETS, states=("active",), sources=False
    )

    def is_fitting(candidate: Memory) -> bool:
        is_kept_here = is_far and is_local_only(candidate.attributes)
        return not is_kept_here and _may_be_target(candidate, memory)

    candidates: list[list[DecisionCandidate]] = []
    try:
        latest = newest(reading, actor, [scope], request, logged=False)
        for fact in facts:
            hits = recall(reading, actor, [scope], fact.content, request, logged=False)
            # What is replaced may share no word with what replaces it.
            by_id: dict[str, Hit] = {}
            for hit in (*hits, *latest):
                if is_fitting(hit.memory):
                    by_id.setdefault(hit.memory.id, hit)
            best = list(by_id.values())[:_CANDIDATES]
            candidates.append([_candidate(hit) for hit in best])
    except Denied:
        return [[] for _ in facts]
    return candidates


def _candidate(hit: Hit) -> DecisionCandidate:
    return DecisionCandidate(
        id=hit.memory.id,
        version=hit.memory.version,
        content=hit.memory.content,
        kind=hit.memory.kind,
        score=hit.score,
        occurred_at=hit.memory.occurred_at,
    )


def _may_be_target(memory: Memory, origin: Memory) -> bool:
    return (
        memory.id != origin.id
        and _is_earlier(memory, origin)
        and memory.conversation is None
        and len(memory.content) <= _LONGEST_CANDIDATE
        # A text that says several things is not replaced by what is new about one of them.
        and len(sentence_spans(memory.content)) == 1
    )


def _is_earlier(memory: Memory, origin: Memory) -> bool:
    """Return True if a memory was said before the text that is read, and not changed since.

    Jobs come later than what they are about, and old texts are read too: a text never replaces
    what was said after it.
    """
    if memory.version > 1 and memory.updated_at > origin.created_at:
        return False
    return _time_of(memory) < _time_of(origin)


def _time_of(memory: Memory) -> tuple[int, str]:
    moment = memory.occurred_at or memory.freshness_ts or memory.created_at
    return moment, memory.id


def decide(
    context: LearningContext,
    subject: OutboundSubject,
    facts: Sequence[ExtractedFact],
    candidates: Sequence[Sequence[DecisionCandidate]],
    *,
    extracted_by: LearnedBy,
) -> Decided:
    """Return the decisions of the first decider that answers; none are made where there is nothing
    to decide between. Raises ExtractionError.
    """
    if not any(candidates):
        return Decided((), extracted_by)
    outbound = context.outbound

    def ask(decider: Decider) -> Decided:
        declared = decider.declaration
        originals: dict[str, str] = {}

        def clean(text: str) -> str:
            return outbound.hide(declared, text, originals).text

        sent = [each.model_copy(update={"content": clean(each.content)}) for each in facts]
        shown = [
            [each.model_copy(update={"content": clean(each.content)}) for each in choices]
            for choices in candidates
        ]
        shown, left_out = _fitting(sent, shown, declared)
        warnings: tuple[str, ...] = ()
        if left_out:
            limit = f"{declared.name} takes {declared.longest_text:,} characters"
            if not any(shown):
                warning = f"{limit}, which no candidate fits: nothing was decided"
                return Decided((), extracted_by, (warning,))
            warnings = (f"{limit}: {left_out} candidates were not shown",)
        # A run of its own names what is shown beside the memory, so that it goes with each of them.
        others = [each.id for choices in shown for each in choices]
        within = replace(subject, others=others, run=None)
        try:
            answered = outbound.call(
                "decide",
                declared,
                within,
                _request(sent, shown),
                lambda: decider.decide(sent, shown),
                originals=originals,
            )
        finally:
            within.close()
        decisions = _require_decisions(answered.value)
        return Decided(decisions, LearnedBy.of(declared, answered), warnings)

    return ask_first(context.deciders, subject.memory, ask)


def _request(
    facts: Sequence[ExtractedFact], candidates: Sequence[Sequence[DecisionCandidate]]
) -> dict[str, Any]:
    return {
        "facts": [each.dump() for each in facts],
        "candidates": [[each.dump() for each in choices] for choices in candidates],
    }


def _fitting(
    facts: Sequence[ExtractedFact],
    candidates: Sequence[Sequence[DecisionCandidate]],
    declared: ProviderDeclaration,
) -> tuple[list[list[DecisionCandidate]], int]:
    """Return the candidates that one call has room for beside all facts, the best of each fact
    first, and how many were left out.
    """
    shown: list[list[DecisionCandidate]] = [list(choices) for choices in candidates]
    left_out = 0
    while any(shown) and len(str(_request(facts, shown))) > declared.longest_text:
        max(shown, key=len).pop()
        left_out += 1
    return shown, left_out


def _require_decisions(value: object) -> Sequence[MemoryDecision]:
    if not isinstance(value, (list, tuple)) or not all(
        isinstance(each, MemoryDecision) for each in value
    ):
        raise ExtractionError("The decider returned something else than MemoryDecision records.")
    return value


def check_decisions(
    facts: Sequence[ExtractedFact],
    candidates: Sequence[Sequence[DecisionCandidate]],
    decisions: Sequence[MemoryDecision],
) -> list[CheckedDecision]:
    """Return the decisions about facts in their order, each with the reason for which it is
    discarded, if one is. A fact without a decision is an addition.

    Of several decisions about one fact all but the first are discarded: a model that answers twice
    has answered nothing.
    """
    checked: list[CheckedDecision] = []
    decided: set[int] = set()
    for decision in sorted(decisions, key=lambda each: each.fact):
        if decision.fact >= len(facts):
            checked.append(_mark_checked(decision, None, "invalid_target"))
        elif decision.fact in decided:
            checked.append(_mark_checked(decision, None, "contradiction_in_batch"))
        else:
            decided.add(decision.fact)
            checked.append(_check_target(decision, candidates[decision.fact]))
    for place, fact in enumerate(facts):
        if place not in decided:
            addition = MemoryDecision(fact=place, action="ADD", confidence=fact.confidence)
            checked.append(_mark_checked(addition, None))
    return sorted(_mark_contested(checked), key=lambda each: each.fact)


def _check_target(
    decision: MemoryDecision, candidates: Sequence[DecisionCandidate]
) -> CheckedDecision:
    target = next((each for each in candidates if each.id == decision.target), None)
    # Invented, of another scope, or one that nobody was shown: all the same here.
    is_unknown = decision.target is not None and target is None
    if is_unknown or (decision.action in _TARGETED and target is None):
        return _mark_checked(decision, None, "invalid_target")
    return _mark_checked(decision, None if decision.action == "ADD" else target)


def _mark_checked(
    decision: MemoryDecision,
    target: DecisionCandidate | None,
    refusal: ProposalReason | None = None,
) -> CheckedDecision:
    return CheckedDecision(
        decision.fact, decision.action, target, decision.confidence, decision.reason, refusal
    )


def _mark_contested(checked: Sequence[CheckedDecision]) -> list[CheckedDecision]:
    """Mark the decisions that would change a memory which another one of the text is about too."""
    targets = [each.target.id for each in checked if each.target is not None]
    return [
        replace(each, is_contested=True)
        if each.action in CHANGING and each.target is not None and targets.count(each.target.id) > 1
        else each
        for each in checked
    ]
