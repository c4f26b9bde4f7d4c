"""The default decider, and the rules by which every decision is checked before it is applied.

The decider proposes by comparing sentences. The rules hold for it as for a model: a target must be
a candidate, nothing that a person protects is touched, and what a sentence does not support waits
for a person.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import combinations

from tallystick.pipeline.changes import is_about_another, read, says_a_change, takes_back_another
from tallystick.pipeline.grounding import has_words_of, is_said
from tallystick.pipeline.statements import Comparison, Relation, compare, read_statement
from tallystick.pipeline.tense import tells_a_change
from tallystick.records import (
    DecisionAction,
    DecisionCandidate,
    ExtractedFact,
    MemoryDecision,
    ProposalReason,
    ProviderDeclaration,
)

_CHANGING: tuple[DecisionAction, ...] = ("UPDATE", "DELETE")
_LEAST_WEIGHT = 0.5
"""How well a fact is about its target at least, where the rules read no relation of the two."""
_TOLD_WEIGHT = 0.6
"""The same, where the fact tells what happened, and no word says that it changed anything.
"""
_RIVAL = 5
"""Points of confidence by which another candidate may be less sure and still be meant as well."""
_MARGIN = 0.15
"""How much better a fact may be about another candidate before the target is in doubt."""


@dataclass(frozen=True)
class Thresholds:
    """The confidence, in percent, below which a decision waits for a person."""

    add: int = 60
    change: int = 80
    """For what replaces or withdraws a memory."""


@dataclass(frozen=True)
class CheckedDecision:
    """A decision after the rules: what may be applied, and why the rest may not."""

    fact: int
    action: DecisionAction
    """The decision as it was made."""
    target: DecisionCandidate | None
    confidence: int
    reason: str
    """The sentence of the decider. It is data."""
    verdict: ProposalReason
    """`by_policy` for what may be applied; else the rule that stops it."""
    is_discarded: bool = False
    """True if no person may apply it either: its target is none."""

    @property
    def is_applicable(self) -> bool:
        """True if it may be applied without a person."""
        return self.verdict == "by_policy"


class RuleDecider:
    """Decides by comparing sentences. Pure, local, and the same for the same input."""

    declaration = ProviderDeclaration(
        name="rules",
        model="rules-1",
        local=True,
        prompt_version="1",
        timeout_ms=2_000,
        reliability="high",
    )

    def decide(
        self, facts: Sequence[ExtractedFact], candidates: Sequence[Sequence[DecisionCandidate]]
    ) -> Sequence[MemoryDecision]:
        """Return one decision for each fact."""
        return [
            self._decide_one(place, fact, choices)
            for place, (fact, choices) in enumerate(zip(facts, candidates, strict=True))
        ]

    def _decide_one(
        self, place: int, fact: ExtractedFact, candidates: Sequence[DecisionCandidate]
    ) -> MemoryDecision:
        compared = [
            (compare(fact.content, candidate.content), candidate) for candidate in candidates
        ]
        for relation, action, reason in _ACTIONS:
            related = [pair for pair in compared if pair[0].relation == relation]
            if not related:
                continue
            comparison, candidate = max(
                related, key=lambda pair: (pair[0].confidence, pair[0].support, pair[1].score)
            )
            return MemoryDecision(
                fact=place,
                action=action,
                target=candidate.id,
                confidence=min(comparison.confidence, fact.confidence)
                if action == "NONE"
                else comparison.confidence,
                reason=reason,
            )
        if read_statement(fact.content).retracts:
            return MemoryDecision(
                fact=place, action="NONE", confidence=90, reason="It takes back what is not known."
            )
        return MemoryDecision(
            fact=place, action="ADD", confidence=fact.confidence, reason="No memory says it."
        )


_ACTIONS: tuple[tuple[Relation, DecisionAction, str], ...] = (
    ("retracted", "DELETE", "It takes back what the memory says."),
    ("same", "NONE", "The memory says the same."),
    ("opposite", "UPDATE", "It denies or ends what the memory says."),
    ("changed", "UPDATE", "It gives another value to what the memory is about."),
)
"""What becomes of a fact by its relation to a candidate, the first that applies."""


def check_decisions(
    facts: Sequence[ExtractedFact],
    candidates: Sequence[Sequence[DecisionCandidate]],
    decisions: Sequence[MemoryDecision],
    *,
    text: str,
    thresholds: Thresholds,
    reliable: bool = True,
    instructs: bool = False,
) -> list[CheckedDecision]:
    """Return the decisions about the facts that were drawn from `text`, in their order, each with
    the rule that stops it, if one does. A fact that nothing was decided about is added, if it is
    sure enough.

    Of several decisions about one fact all but the first are discarded: a model that answers twice
    has answered nothing. `reliable` False lets nothing be replaced or withdrawn without a person.
    So does `instructs`: the text that the facts are from tells its reader what to do.
    """
    checked: list[CheckedDecision] = []
    decided: set[int] = set()
    for decision in sorted(decisions, key=lambda each: each.fact):
        if decision.fact >= len(facts):
            checked.append(_discarded(decision, "invalid_target"))
        elif decision.fact in decided:
            checked.append(_discarded(decision, "contradiction_in_batch"))
        else:
            decided.add(decision.fact)
            checked.append(
                _checked(
                    facts[decision.fact],
                    candidates[decision.fact],
                    decision,
                    text,
                    thresholds,
                    reliable,
                )
            )
    for place, fact in enumerate(facts):
        if place not in decided:
            undecided = MemoryDecision(fact=place, action="ADD", confidence=fact.confidence)
            checked.append(_checked(fact, candidates[place], undecided, text, thresholds, reliable))
    checked = _without_contradictions(facts, checked)
    if instructs:
        checked = [
            replace(each, verdict="instruction_in_text")
            if each.is_applicable and each.action in _CHANGING
            else each
            for each in checked
        ]
    return sorted(checked, key=lambda each: each.fact)


def _checked(
    fact: ExtractedFact,
    candidates: Sequence[DecisionCandidate],
    decision: MemoryDecision,
    text: str,
    thresholds: Thresholds,
    reliable: bool,
) -> CheckedDecision:
    target = next((each for each in candidates if each.id == decision.target), None)
    needs_target = decision.action in _CHANGING
    if decision.target is not None and target is None:
        # Invented, of another scope, or one that nobody was shown: all the same here.
        return _discarded(decision, "invalid_target")
    if needs_target and target is None:
        return _discarded(decision, "invalid_target")
    verdict: ProposalReason = "by_policy"
    if decision.action == "NONE" and target is not None:
        if compare(fact.content, target.content).relation != "same":
            if not _may_say_the_same(fact, candidates, target):
                # Whoever says so, the fact is not lost.
                added = decision.model_copy(
                    update={"action": "ADD", "target": None, "confidence": fact.confidence}
                )
                return _checked(fact, candidates, added, text, thresholds, reliable)
            verdict = "ambiguous"
    elif decision.action == "ADD":
        if min(decision.confidence, fact.confidence) < thresholds.add:
            verdict = "low_confidence"
        elif not has_words_of(fact.content, text):
            verdict = "not_in_text"
        elif read_statement(fact.content).retracts:
            verdict = "nothing_new"
        elif any(compare(fact.content, each.content).relation == "same" for each in candidates):
            verdict = "already_said"
    elif target is not None:
        is_sure = decision.confidence >= thresholds.change and fact.confidence >= thresholds.add
        if not (reliable and is_sure):
            verdict = "low_confidence"
        elif not is_said(fact.content, text):
            verdict = "not_in_text"
        else:
            verdict = _supported(fact, candidates, decision.action, target)
    return CheckedDecision(
        decision.fact, decision.action, target, decision.confidence, decision.reason, verdict
    )


def _may_say_the_same(
    fact: ExtractedFact, candidates: Sequence[DecisionCandidate], target: DecisionCandidate
) -> bool:
    """Return True if a memory may say what a fact says, in other words: the fact is about it, and
    about no other candidate more.
    """
    if is_about_another(read(fact.content), read(target.content), likeness=target.score):
        return False
    weight = _weight(compare(fact.content, target.content), target)
    return weight >= _LEAST_WEIGHT and all(
        _weight(compare(fact.content, each.content), each) <= weight + _MARGIN
        for each in candidates
    )


def _supported(
    fact: ExtractedFact,
    candidates: Sequence[DecisionCandidate],
    action: DecisionAction,
    target: DecisionCandidate,
) -> ProposalReason:
    """Return `by_policy` where the words of the fact support the decision: they are about the
    target, about no other candidate more, and say that something ended where it is withdrawn.
    """
    read_fact = read_statement(fact.content)
    if action == "UPDATE" and read_fact.retracts:
        return "nothing_new"
    compared = {each.id: compare(fact.content, each.content) for each in candidates}
    chosen = compared[target.id]
    if chosen.relation == "same":
        return "already_said"
    weights = {each.id: _weight(compared[each.id], each) for each in candidates}
    weight = weights[target.id]
    new = read(fact.content)
    others = [each for each in candidates if each.id != target.id]
    if any(weights[each.id] > weight + _MARGIN for each in others):
        return "ambiguous"
    if chosen.relation == "unrelated":
        is_near = any(
            weights[each.id] > weight
            or (
                weights[each.id] > weight - _MARGIN
                and not is_about_another(new, read(each.content), likeness=each.score)
            )
            for each in others
        )
        old = read(target.content)
        is_another = is_about_another(new, old, likeness=target.score)
        if read_fact.retracts:
            is_another = is_another and takes_back_another(read_fact.terms, old)
        if weight < _LEAST_WEIGHT or is_near or is_another:
            return "ambiguous"
    elif any(
        compared[each.id].relation == chosen.relation
        and compared[each.id].confidence >= chosen.confidence - _RIVAL
        and weights[each.id] > weight - _MARGIN
        and compare(each.content, target.content).relation != "same"
        for each in others
    ):
        return "ambiguous"
    is_denied = not read_fact.positive and chosen.relation != "unrelated"
    if action == "DELETE" and not (read_fact.retracts or read_fact.ended or is_denied):
        return "destructive"
    is_change = (
        read_fact.changed
        or read_fact.ended
        or read_fact.retracts
        or says_a_change(read(fact.content), read(target.content))
    )
    if is_change or chosen.relation != "unrelated":
        return "by_policy"
    is_told = tells_a_change(fact.content) and not tells_a_change(target.content)
    return "by_policy" if is_told and weight >= _TOLD_WEIGHT else "ambiguous"


def _weight(comparison: Comparison, candidate: DecisionCandidate) -> float:
    """Return how well a fact is about a memory: by the words that both share and by how alike
    recall finds them, each from 0 to 1; a relation that the rules read counts as much as both.
    """
    is_related = comparison.relation in ("changed", "opposite", "retracted")
    return comparison.support + candidate.score + (2.0 if is_related else 0.0)


def _without_contradictions(
    facts: Sequence[ExtractedFact], checked: Sequence[CheckedDecision]
) -> list[CheckedDecision]:
    """Stop what replaces or withdraws a memory that another decision of the batch is about too, or
    by a fact that another fact of the batch contradicts.
    """
    named = Counter(
        each.target.id for each in checked if each.target is not None and not each.is_discarded
    )
    contradicted = {
        place
        for first, second in combinations(range(len(facts)), 2)
        if compare(facts[second].content, facts[first].content).relation in ("changed", "opposite")
        for place in (first, second)
    }
    return [
        CheckedDecision(
            each.fact,
            each.action,
            each.target,
            each.confidence,
            each.reason,
            "contradiction_in_batch",
        )
        if each.is_applicable
        and each.action in _CHANGING
        and each.target is not None
        and (named[each.target.id] > 1 or each.fact in contradicted)
        else each
        for each in checked
    ]


def _discarded(decision: MemoryDecision, verdict: ProposalReason) -> CheckedDecision:
    return CheckedDecision(
        decision.fact,
        decision.action,
        None,
        decision.confidence,
        decision.reason,
        verdict,
        is_discarded=True,
    )
