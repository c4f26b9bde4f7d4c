"""Learning: the jobs that draw facts from what was remembered, and decide what becomes of them.

A job reads one memory, asks the extractor and the decider outside of any transaction, checks every
decision, and applies what policy allows in the transaction that ends it. Whatever fails, the memory
stays as it was said, and recallable.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, NamedTuple, Protocol, TypeVar

from tallystick.errors import Denied, EgressDenied, ExtractionError
from tallystick.graph import ReadPage, read_extraction
from tallystick.logs import get_logger
from tallystick.memory import MemoryContext, RecallRequest, recall
from tallystick.memory.context import is_local_only
from tallystick.memory.memory_write import MemoryWrite
from tallystick.pipeline.apply import Conclusions, LearnedBy, Outcome, apply
from tallystick.pipeline.decide import RuleDecider, Thresholds, check_decisions
from tallystick.pipeline.extract import RuleExtractor, capped, sentences
from tallystick.pipeline.outbound import Answered, Outbound, OutboundSubject
from tallystick.pipeline.phrases import INSTRUCTION
from tallystick.pipeline.runner import Ended, Work
from tallystick.pipeline.statements import queries_about
from tallystick.pipeline.telling import is_about_another_speaker, is_earlier
from tallystick.ports import Decider, Extractor, Summarizer
from tallystick.records import (
    Actor,
    DecisionCandidate,
    ExtractedFact,
    Extraction,
    Hit,
    Learning,
    Memory,
    MemoryDecision,
    ProviderDeclaration,
)
from tallystick.storage import Connection, jobs, memories

_LEASE_SECONDS = 180
_CANDIDATES = 8
"""Memories that a decider may choose its target from, for one fact."""
_TYPED = ("fact", "preference", "constraint", "decision", "procedure", "plan")
"""Kinds of memories that are one fact already: nothing is extracted from them."""
_TARGETS = ("note", "claim", *_TYPED)
"""Kinds of memories that a decision may be about."""
_EXTRACTED_KINDS = (*_TYPED, "claim")
"""Kinds that an extractor may give a fact; any other becomes `fact`."""


class _Provider(Protocol):
    @property
    def declaration(self) -> ProviderDeclaration: ...


P = TypeVar("P", bound=_Provider)
R = TypeVar("R")


@dataclass(frozen=True)
class LearningContext:
    """How a tally learns: its mode, its providers in the order of preference, and their limits."""

    memory: MemoryContext
    outbound: Outbound
    """What calls of providers go through."""
    mode: Learning = "off"
    extractors: Sequence[Extractor] = (RuleExtractor(),)
    deciders: Sequence[Decider] = (RuleDecider(),)
    thresholds: Thresholds = field(default_factory=Thresholds)
    summarizer: Summarizer | None = None
    """Summarizes the communities of the graph."""


class LearningHandler:
    """Carries out the jobs of the kind `jobs.EXTRACT`."""

    kind = jobs.EXTRACT
    batch = 16
    lease_seconds = _LEASE_SECONDS
    is_upkeep = False
    changes_memory = True
    is_autonomous = True

    def __init__(self, context: LearningContext) -> None:
        self._context = context

    def handle(self, work: Work) -> int:
        """Learn from the memories of these jobs in their order, each in a commit of its own. Raises
        ExtractionError, LeaseLost.
        """
        made = 0
        for job in work.jobs:
            if work.is_stopping:
                break
            made += self._learn(work, job)
        return made

    def _learn(self, work: Work, job: jobs.LeasedJob) -> int:
        context, actor = self._context, job.actor
        assert actor is not None
        with context.memory.store.database.read() as connection:
            stored = memories.get(connection, job.subject_id)
        if stored is None or not self._is_asked_for(job, stored):
            work.commit(lambda tx, allowed: {job.id: Ended("empty")})
            return 0
        try:
            conclusions = self._conclude(actor, job, stored)
        except ExtractionError as error:
            is_final = error.retry == "never" or job.attempts + 1 >= _ATTEMPTS
            if error.retry == "until_back" or not is_final:
                raise
            self._fail(work, job, stored, error)
            return 0
        outcome = Outcome()

        def unit(tx: Connection, allowed: Sequence[jobs.LeasedJob]) -> dict[str, Ended]:
            nonlocal outcome
            if job.id not in {each.id for each in allowed}:
                return {}
            current = memories.get(tx, job.subject_id)
            if current is None or not self._is_asked_for(job, current):
                return {job.id: Ended("empty")}
            now = context.memory.store.clock.now()
            write = MemoryWrite(tx, context.memory, actor.on("learning"), now, None)
            outcome = apply(write, current, conclusions)
            is_empty = conclusions.extraction.is_empty
            result = outcome.as_json() | {
                "facts": len(conclusions.extraction.facts),
                "provider": conclusions.extracted_by.provider,
                "warnings": list(conclusions.extraction.warnings),
            }
            return {job.id: Ended("empty" if is_empty else "done", result=result)}

        work.commit(unit)
        return len(outcome.made)

    def _is_asked_for(self, job: jobs.LeasedJob, stored: memories.Stored) -> bool:
        return (
            self._context.mode != "off"
            and stored.memory.state == "active"
            and stored.memory.version == job.version
        )

    def _fail(
        self, work: Work, job: jobs.LeasedJob, stored: memories.Stored, error: ExtractionError
    ) -> None:
        """End the job as failed, which is neither empty nor success, and mark the memory."""

        def unit(tx: Connection, allowed: Sequence[jobs.LeasedJob]) -> dict[str, Ended]:
            memories.set_extraction_status(tx, stored.doc, "failed")
            return {job.id: Ended("failed", code=error.code, text=str(error))}

        work.commit(unit)
        get_logger("pipeline").warning("extraction.failed", error=type(error).__name__)

    def _conclude(self, actor: Actor, job: jobs.LeasedJob, stored: memories.Stored) -> Conclusions:
        """Return what is to be applied: every call of a provider is made here."""
        context, memory = self._context, stored.memory
        subject = OutboundSubject(actor, memory, stored.scope_id, job.id)
        try:
            extraction, extracted_by = self._extract(subject)
            candidates = self._candidates(actor, memory, extraction.facts)
            decisions, decided_by, reliable, warnings = self._decide(
                subject, extraction.facts, candidates
            )
            extraction = extraction.model_copy(
                update={"warnings": (*extraction.warnings, *warnings)}
            )
        finally:
            subject.close()
        vectors = context.memory.vectors_for([fact.content for fact in extraction.facts])
        return Conclusions(
            extraction=extraction,
            checked=check_decisions(
                extraction.facts,
                candidates,
                decisions,
                text=stored.memory.content,
                thresholds=context.thresholds,
                reliable=reliable,
                instructs=INSTRUCTION.search(stored.memory.content) is not None,
            ),
            vectors=vectors.blobs,
            extracted_by=extracted_by,
            decided_by=decided_by,
            mode=context.mode,
            job_id=job.id,
            names=self._names(stored, extraction, extracted_by),
        )

    def _names(
        self, stored: memories.Stored, extraction: Extraction, by: LearnedBy
    ) -> ReadPage | None:
        """Return what the graph gets of a text that a model read; what rules read of it, the graph
        reads itself.
        """
        context = self._context.memory
        is_new = by.provider != RuleExtractor.declaration.name and (
            extraction.entities or extraction.relations
        )
        return read_extraction(context, stored, extraction) if context.graph and is_new else None

    def _extract(self, subject: OutboundSubject) -> tuple[Extraction, LearnedBy]:
        """Return what the first extractor that answers draws from the text."""
        memory = subject.memory
        if memory.kind in _TYPED:
            fact = ExtractedFact(
                content=memory.content,
                kind=memory.kind,
                confidence=memory.confidence,
                subject=memory.subject,
            )
            return Extraction(facts=(fact,)), LearnedBy("given")
        outbound = self._context.outbound

        def ask(extractor: Extractor) -> tuple[Extraction, LearnedBy]:
            declared = extractor.declaration
            text, warnings = _cut(memory.content, declared)
            hidden = outbound.hidden(declared, text)
            if isinstance(extractor, RuleExtractor):
                return extractor.extract(text), LearnedBy.of(declared)
            answered = outbound.call(
                "extract",
                declared,
                subject,
                hidden.text,
                lambda: extractor.extract(hidden.text),
                redacted=len(hidden.originals),
            )
            found = _checked_extraction(answered.value)
            facts = tuple(
                each.model_copy(update={"content": hidden.restored(each.content)})
                for each in found.facts
            )
            found = found.model_copy(
                update={"facts": facts, "warnings": (*found.warnings, *warnings)}
            )
            return found, _learned_by(declared, answered)

        extraction, by = _first(self._allowed(self._context.extractors, memory), ask)
        return _known_kinds(capped(extraction)), by

    def _decide(
        self,
        subject: OutboundSubject,
        facts: Sequence[ExtractedFact],
        candidates: Sequence[Sequence[DecisionCandidate]],
    ) -> _Decided:
        """Return the decisions of the first decider that answers."""
        rules = RuleDecider()
        if not any(candidates):
            # With nothing to decide between, no model is asked.
            return _Decided(rules.decide(facts, candidates), LearnedBy.of(rules.declaration))
        outbound = self._context.outbound

        def ask(decider: Decider) -> _Decided:
            declared = decider.declaration
            if isinstance(decider, RuleDecider):
                return _Decided(decider.decide(facts, candidates), LearnedBy.of(declared))
            originals: dict[str, str] = {}

            def clean(text: str) -> str:
                return outbound.hidden(declared, text, originals).text

            asked = [each.model_copy(update={"content": clean(each.content)}) for each in facts]
            shown = [
                [each.model_copy(update={"content": clean(each.content)}) for each in choices]
                for choices in candidates
            ]
            shown, left_out = _fitting(asked, shown, declared)
            warnings: tuple[str, ...] = ()
            if left_out:
                limit = f"{declared.name} takes {declared.longest_text:,} characters"
                warnings = (f"{limit}: {left_out} candidates were not shown",)
                if not any(shown):
                    warnings = (f"{limit}, which no candidate fits: rules decided",)
                    decided = rules.decide(facts, candidates)
                    return _Decided(decided, LearnedBy.of(rules.declaration), True, warnings)
            answered = outbound.call(
                "decide",
                declared,
                subject,
                _sent(asked, shown),
                lambda: decider.decide(asked, shown),
                redacted=len(originals),
            )
            decisions = _checked_decisions(answered.value)
            by = _learned_by(declared, answered)
            return _Decided(decisions, by, declared.reliability != "low", warnings)

        return _first(self._allowed(self._context.deciders, subject.memory), ask)

    def _allowed(self, providers: Sequence[P], memory: Memory) -> Sequence[P]:
        """Return the providers that a memory may be given. Raises EgressDenied for none."""
        if not is_local_only(memory.attributes):
            return providers
        local = [each for each in providers if each.declaration.local]
        if not local:
            raise EgressDenied(
                "The memory stays on this machine, and no provider of extraction is on it."
            )
        return local

    def _candidates(
        self, actor: Actor, memory: Memory, facts: Sequence[ExtractedFact]
    ) -> list[list[DecisionCandidate]]:
        """Return for each fact the memories of the scope that it may be about, best first; none
        where the actor may not read there.
        """
        context = self._context.memory
        if is_local_only(memory.attributes):
            context = context.silent()
        request = RecallRequest(
            limit=3 * _CANDIDATES, kinds=_TARGETS, states=("active",), sources=False
        )
        found: list[list[DecisionCandidate]] = []
        for fact in facts:
            hits: dict[str, Hit] = {}
            for query in queries_about(fact.content):
                try:
                    recalled = recall(context, actor, [memory.scope], query, request, logged=False)
                except Denied:
                    return [[] for _ in facts]
                fitting = [
                    hit
                    for hit in recalled
                    if self._may_be_target(hit.memory, memory)
                    and not is_about_another_speaker(fact.content, memory, hit.memory)
                ]
                # Half of them by other words at most: the own words say more.
                most = _CANDIDATES if not hits else _CANDIDATES + _CANDIDATES // 2
                for hit in fitting:
                    if len(hits) < most:
                        hits.setdefault(hit.memory.id, hit)
            found.append(
                [
                    DecisionCandidate(
                        id=hit.memory.id,
                        version=hit.memory.version,
                        content=hit.memory.content,
                        kind=hit.memory.kind,
                        score=hit.score,
                        occurred_at=hit.memory.occurred_at,
                    )
                    for hit in hits.values()
                ]
            )
        return found

    def _may_be_target(self, memory: Memory, origin: Memory) -> bool:
        is_far = not all(each.declaration.local for each in self._context.deciders)
        return (
            memory.id != origin.id
            and is_earlier(memory, origin)
            and memory.conversation is None
            and len(memory.content) <= _LONGEST_CANDIDATE
            # A text that says several things is not replaced by what is new about one of them.
            and len(list(islice(sentences(memory.content), 2))) == 1
            and not (is_far and is_local_only(memory.attributes))
        )


_ATTEMPTS = 5
_LONGEST_CANDIDATE = 2_000
"""Characters of a memory that may be a target: a longer one says more than a fact can replace."""


def _first(providers: Sequence[P], ask: Callable[[P], R]) -> R:
    """Return the answer of the first provider that gives one: the preferred, else the next. Raises
    the error of the preferred one where none does.
    """
    errors: list[ExtractionError] = []
    for provider in providers:
        try:
            return ask(provider)
        except ExtractionError as error:
            errors.append(error)
    # What is away may come back: then the preferred one is asked again.
    raise next((each for each in errors if each.retry == "until_back"), errors[0])


def _cut(text: str, declared: ProviderDeclaration) -> tuple[str, tuple[str, ...]]:
    if len(text) <= declared.longest_text:
        return text, ()
    return text[: declared.longest_text], (
        f"the first {declared.longest_text:,} characters were read",
    )


class _Decided(NamedTuple):
    """Decisions, who made them, whether it is reliable, and what it was not shown."""

    decisions: Sequence[MemoryDecision]
    by: LearnedBy
    reliable: bool = True
    warnings: tuple[str, ...] = ()


def _sent(
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
    while any(shown) and len(str(_sent(facts, shown))) > declared.longest_text:
        max(shown, key=len).pop()
        left_out += 1
    return shown, left_out


def _learned_by(declared: ProviderDeclaration, answered: Answered) -> LearnedBy:
    return LearnedBy(
        declared.name,
        answered.model,
        declared.prompt_version,
        answered.run_id,
        answered.step_id,
    )


def _checked_extraction(value: object) -> Extraction:
    if not isinstance(value, Extraction):
        raise ExtractionError(
            f"The extractor returned {type(value).__name__} where an Extraction was expected."
        )
    return value


def _checked_decisions(value: object) -> Sequence[MemoryDecision]:
    if not isinstance(value, (list, tuple)) or not all(
        isinstance(each, MemoryDecision) for each in value
    ):
        raise ExtractionError("The decider returned something else than MemoryDecision records.")
    return value


def _known_kinds(extraction: Extraction) -> Extraction:
    """Return an extraction whose facts have a kind that may be extracted."""
    unknown = sum(each.kind not in _EXTRACTED_KINDS for each in extraction.facts)
    if not unknown:
        return extraction
    facts = tuple(
        each if each.kind in _EXTRACTED_KINDS else each.model_copy(update={"kind": "fact"})
        for each in extraction.facts
    )
    warning = f"{unknown} facts had a kind that is never extracted, and became facts"
    return extraction.model_copy(
        update={"facts": facts, "warnings": (*extraction.warnings, warning)}
    )
