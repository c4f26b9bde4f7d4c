"""Conclusions: one call of a learner, its answer within limits, and what the guard says of each
fact. Nothing is stored here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from tallystick.errors import ExtractionError
from tallystick.ports import Learner
from tallystick.ranking.signals import USER
from tallystick.recorder.outbound import Hidden, OutboundSubject
from tallystick.records import (
    Actor,
    DecisionAction,
    ExtractedEntity,
    ExtractedFact,
    Extraction,
    FactChange,
    KnownFact,
    LearningRequest,
    Memory,
    ProposalReason,
    ProviderDeclaration,
    SaidTurn,
    Scope,
)
from tallystick.records.times import as_datetime
from tallystick.storage.rows import memories
from tallystick_learning.guard import MOST_CHANGES, Evidence, find_span, reason_to_hold
from tallystick_learning.material import (
    EXTRACTED_KINDS,
    LONGEST_FACT,
    MOST_FACTS,
    Material,
    gather,
    is_best_target,
    is_earlier,
    said_at,
)
from tallystick_learning.providers import LearnedBy, LearningContext, ask_first

T = TypeVar("T", SaidTurn, KnownFact)

ACTIONS: Mapping[FactChange, DecisionAction] = {
    "replaces": "UPDATE",
    "corrects": "UPDATE",
    "ends": "END",
    "exception": "ADD",
    "same_as": "NONE",
    "contradicts": "CONTRADICTS",
}
"""What each change does."""
CHANGING: tuple[DecisionAction, ...] = ("UPDATE", "END")
"""Actions that replace or end a memory."""
_TARGETED: tuple[DecisionAction, ...] = (*CHANGING, "CONTRADICTS")
"""Actions that are about a memory."""


@dataclass(frozen=True)
class Conclusion:
    """A fact with what it would do, after the checks."""

    fact: ExtractedFact
    source: memories.Stored
    """The text that says it."""
    action: DecisionAction
    target: Memory | None = None
    hold: ProposalReason | None = None
    """What the guard has against applying it."""
    refusal: ProposalReason | None = None
    """Why it is discarded, so that no person may carry it out either."""
    vector: bytes | None = None
    """The vector of its words, where it may be applied."""


@dataclass(frozen=True)
class Conclusions:
    """What was drawn from the texts of one call, ready to be stored: everything slow was done
    before.
    """

    origins: Sequence[memories.Stored]
    extraction: Extraction
    facts: Sequence[Conclusion]
    by: LearnedBy


def conclude(
    context: LearningContext,
    actor: Actor,
    scope: Scope,
    origins: Sequence[memories.Stored],
    before: Sequence[memories.Stored] = (),
    *,
    job_id: str | None = None,
    applies: bool = False,
) -> Conclusions:
    """Return what a learner draws from texts of one scope, in one call, and would do with it in
    `scope`; where it `applies`, with the vectors of the facts. Raises ExtractionError.
    """
    material = gather(context.memory, actor, scope, origins, before, may_leave=context.is_far)
    others = [each.memory.id for each in (*origins[1:], *before)]
    subject = OutboundSubject(
        actor,
        origins[0].memory,
        origins[0].scope_id,
        job_id,
        others=[*others, *(each.id for each in material.known)],
    )
    try:
        extraction, by = _ask(context, subject, material.request())
    finally:
        subject.close()
    extraction = _known_kinds(cap_extraction(extraction))
    placed, unplaced = _place_facts(extraction.facts, origins)
    if unplaced:
        warning = f"{unplaced} facts were of no turn that was read, and were left out"
        update = {"warnings": (*extraction.warnings, warning)}
        extraction = extraction.model_copy(update=update)
    targets = [fact.target for fact, _ in placed]
    conclusions = _hold_what_clashes(
        [_check(context, material, fact, source, targets) for fact, source in placed]
    )
    if applies:
        texts = [each.fact.content for each in conclusions]
        vectors = context.memory.vectors_for(texts).blobs
        conclusions = [
            replace(each, vector=one) for each, one in zip(conclusions, vectors, strict=True)
        ]
    return Conclusions(origins, extraction, conclusions, by)


def _ask(
    context: LearningContext, subject: OutboundSubject, request: LearningRequest
) -> tuple[Extraction, LearnedBy]:
    outbound = context.outbound

    def ask(learner: Learner) -> tuple[Extraction, LearnedBy]:
        declared = learner.declaration
        originals: dict[str, str] = {}

        def clean(text: str) -> str:
            return outbound.hide(declared, text, originals).text

        shown, warnings = _fitting(
            request.model_copy(
                update={
                    # An author or a speaker may be a name or an address.
                    "author": clean(request.author),
                    "turns": tuple(
                        each.model_copy(
                            update={"text": clean(each.text), "speaker": clean(each.speaker)}
                        )
                        for each in request.turns
                    ),
                    "known": tuple(_with_text(each, clean(each.text)) for each in request.known),
                }
            ),
            declared,
        )
        # A run of its own names what is shown, so that it goes with each of them.
        within = replace(subject, run=None)
        try:
            answered = outbound.call(
                "learn",
                declared,
                within,
                shown.dump(),
                lambda: learner.learn(shown),
                originals=originals,
            )
        finally:
            within.close()
        extraction = answered.value
        if not isinstance(extraction, Extraction):
            raise ExtractionError(
                f"The learner returned {type(extraction).__name__} where an Extraction was "
                "expected."
            )
        facts = tuple(_restore(each, Hidden("", originals)) for each in extraction.facts)
        update = {"facts": facts, "warnings": (*extraction.warnings, *warnings)}
        return extraction.model_copy(update=update), LearnedBy.of(declared, answered)

    return ask_first(context.learners, subject.memory, ask)


def _with_text(record: T, text: str) -> T:
    return record.model_copy(update={"text": text})


def _restore(fact: ExtractedFact, hidden: Hidden) -> ExtractedFact:
    """Return a fact with what the placeholders stand for."""
    names = ("content", "span", "about", "was", "said_by")
    values = {name: getattr(fact, name) for name in names}
    return fact.model_copy(
        update={name: hidden.restore(value) for name, value in values.items() if value}
    )


def _fitting(
    request: LearningRequest, declared: ProviderDeclaration
) -> tuple[LearningRequest, tuple[str, ...]]:
    """Return as much of a request as one call takes: first known facts are left out, the last
    ones first, then earlier turns, and then the longest turn is cut; with what was left out.
    """
    most, left_out, is_cut = declared.longest_text, 0, False
    while (over := _characters(request) - most) > 0:
        if request.known:
            request = request.model_copy(update={"known": request.known[:-1]})
            left_out += 1
        elif len(request.new_turns) < len(request.turns):
            request = request.model_copy(update={"turns": request.turns[1:]})
        else:
            longest = max(request.turns, key=lambda each: len(each.text))
            if not longest.text:
                break
            cut = _with_text(longest, longest.text[: max(0, len(longest.text) - over)])
            turns = tuple(cut if each is longest else each for each in request.turns)
            request, is_cut = request.model_copy(update={"turns": turns}), True
    limit = f"{declared.name} takes {most:,} characters"
    warnings = [f"{limit}: {left_out} known facts were not shown"] if left_out else []
    if is_cut:
        warnings.append(f"{limit}: the beginning of the longest text was read")
    return request, tuple(warnings)


def _characters(request: LearningRequest) -> int:
    turns = sum(len(each.text) for each in request.turns)
    return turns + sum(len(each.text) for each in request.known)


def cap_extraction(extraction: Extraction) -> Extraction:
    """Return an extraction within the limits of number and length, without repeats; warnings say
    how much was left out.
    """
    warnings = list(extraction.warnings)
    facts: dict[tuple[str, str, str | None], ExtractedFact] = {}
    long = 0
    for fact in extraction.facts:
        if len(fact.content) > LONGEST_FACT:
            long += 1
        elif fact.content.strip():
            words = " ".join(fact.content.lower().split())
            facts.setdefault((fact.kind, words, fact.target), fact)
    for count, problem in (
        (long, f"of more than {LONGEST_FACT} characters"),
        (len(facts) - MOST_FACTS, f"beyond the first {MOST_FACTS}"),
    ):
        if count > 0:
            warnings.append(f"{count} facts {problem} were left out")
    entities: dict[str, ExtractedEntity] = {}
    for entity in extraction.entities:
        if entity.name.strip() and len(entity.name) <= LONGEST_FACT:
            entities.setdefault(entity.name.casefold(), entity)
    return Extraction(
        facts=tuple(facts.values())[:MOST_FACTS],
        entities=tuple(entities.values())[:MOST_FACTS],
        relations=tuple(dict.fromkeys(extraction.relations))[:MOST_FACTS],
        warnings=tuple(warnings),
    )


def _known_kinds(extraction: Extraction) -> Extraction:
    """Return an extraction whose facts have a kind that may be learned."""
    unknown = sum(each.kind not in EXTRACTED_KINDS for each in extraction.facts)
    if not unknown:
        return extraction
    facts = tuple(
        each if each.kind in EXTRACTED_KINDS else each.model_copy(update={"kind": "fact"})
        for each in extraction.facts
    )
    warning = f"{unknown} facts had a kind that is never learned, and became facts"
    return extraction.model_copy(
        update={"facts": facts, "warnings": (*extraction.warnings, warning)}
    )


def _place_facts(
    facts: Sequence[ExtractedFact], origins: Sequence[memories.Stored]
) -> tuple[list[tuple[ExtractedFact, memories.Stored]], int]:
    """Return each fact with the text that says it: the one that it names, unless its span stands
    in another one only; and the number of facts that are of none.
    """
    by_handle = {f"t{number}": each for number, each in enumerate(origins, start=1)}
    placed: list[tuple[ExtractedFact, memories.Stored]] = []
    for fact in facts:
        named = by_handle.get((fact.turn or "").strip())
        saying = [each for each in origins if find_span(each.memory.content, fact.span)]
        source = named if named in saying or not saying else saying[0]
        if source is None and len(origins) == 1:
            source = origins[0]
        if source is not None:
            placed.append((fact, source))
    return placed, len(facts) - len(placed)


def _check(
    context: LearningContext,
    material: Material,
    fact: ExtractedFact,
    source: memories.Stored,
    targets: Sequence[str | None],
) -> Conclusion:
    """Return a fact with what it would do; `targets` are the handles that the answer names."""
    action: DecisionAction = "ADD" if fact.change is None else ACTIONS[fact.change]
    handles = {f"k{number}": each for number, each in enumerate(material.known, start=1)}
    target = handles.get((fact.target or "").strip())
    # Invented, of another scope, or one that nobody was shown: all the same here.
    is_unknown = fact.target is not None and target is None
    is_later = target is not None and not is_earlier(target, source.memory)
    if is_unknown or is_later or (action in _TARGETED and target is None):
        return Conclusion(fact, source, action, refusal="invalid_target")
    if action == "ADD" and fact.change is None:
        target = None
    speakers = {source.memory.speaker, source.memory.created_by, material.actor.user, USER}
    if fact.said_by is not None and fact.said_by.casefold() not in {
        each.casefold() for each in speakers if each is not None
    }:
        # Whoever else said it, for the speaker it is reported.
        fact = fact.model_copy(update={"mode": "reported"})
    beside = [each.memory.content for each in (*material.before, *material.origins)]
    evidence = Evidence(
        source.memory.content,
        (*beside, *(each.content for each in material.known), material.actor.user),
        as_datetime(said_at(source.memory)).year,
        is_best_target=target is None
        or action not in _TARGETED
        or is_best_target(
            context.memory,
            material.actor,
            material.scope,
            source.memory,
            fact.content,
            target.id,
            others={handles[each].id for each in targets if each in handles},
        ),
    )
    return Conclusion(fact, source, action, target, reason_to_hold(fact, evidence))


def _hold_what_clashes(conclusions: Sequence[Conclusion]) -> list[Conclusion]:
    """Hold changes of a memory that another fact of the answer is about too, and those beyond the
    most that one answer makes.
    """
    targets = [
        each.target.id
        for each in conclusions
        if each.target is not None and each.action in _TARGETED
    ]
    changes, held = 0, list[Conclusion]()
    for each in conclusions:
        hold = each.hold
        if each.action in CHANGING and each.target is not None and each.refusal is None:
            changes += 1
            if targets.count(each.target.id) > 1:
                hold = hold or "contradiction_in_batch"
            if changes > MOST_CHANGES:
                hold = hold or "too_many"
        held.append(replace(each, hold=hold))
    return held
