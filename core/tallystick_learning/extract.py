"""Extraction: ask the extractors what a text says, and keep their answer within limits."""

from __future__ import annotations

from tallystick.errors import ExtractionError
from tallystick.ports import Extractor
from tallystick.recorder.outbound import OutboundSubject
from tallystick.records import (
    ExtractedEntity,
    ExtractedFact,
    Extraction,
    Memory,
    ProviderDeclaration,
)
from tallystick_learning.providers import LearnedBy, LearningContext, ask_first

MOST_FACTS = 40
"""Facts of one text at most; entities and relations are limited to as many each."""
LONGEST_FACT = 600
"""Characters of one fact at most."""
FACT_KINDS = ("fact", "preference", "constraint", "decision", "procedure", "plan")
"""Kinds of memories that are one fact already: nothing is extracted from them."""
EXTRACTED_KINDS = (*FACT_KINDS, "claim", "task", "artifact")
"""Kinds that an extractor may give a fact; any other becomes `fact`."""


def extract(context: LearningContext, subject: OutboundSubject) -> tuple[Extraction, LearnedBy]:
    """Return what the first extractor that answers draws from the text of a memory, within the
    limits. Raises ExtractionError.
    """
    memory, outbound = subject.memory, context.outbound

    def ask(extractor: Extractor) -> tuple[Extraction, LearnedBy]:
        declared = extractor.declaration
        text, warnings = _cut(memory.content, declared)
        hidden = outbound.hide(declared, text)
        answered = outbound.call(
            "extract",
            declared,
            subject,
            hidden.text,
            lambda: extractor.extract(hidden.text),
            originals=hidden.originals,
        )
        extraction = answered.value
        if not isinstance(extraction, Extraction):
            raise ExtractionError(
                f"The extractor returned {type(extraction).__name__} where an Extraction was "
                "expected."
            )
        facts = tuple(
            each.model_copy(update={"content": hidden.restore(each.content)})
            for each in extraction.facts
        )
        update = {"facts": facts, "warnings": (*extraction.warnings, *warnings)}
        return extraction.model_copy(update=update), LearnedBy.of(declared, answered)

    extraction, by = ask_first(context.extractors, memory, ask)
    return _known_kinds(cap_extraction(extraction)), by


def fact_of(memory: Memory) -> Extraction:
    """Return a memory that is a fact already as the one fact of its text."""
    fact = ExtractedFact(
        content=memory.content,
        kind=memory.kind,
        confidence=memory.confidence,
        subject=memory.subject,
    )
    return Extraction(facts=(fact,))


def cap_extraction(extraction: Extraction) -> Extraction:
    """Return an extraction within the limits of number and length, without repeats; warnings say
    how much was left out.
    """
    warnings = list(extraction.warnings)
    facts: dict[tuple[str, str], ExtractedFact] = {}
    long = 0
    for fact in extraction.facts:
        if len(fact.content) > LONGEST_FACT:
            long += 1
        elif fact.content.strip():
            facts.setdefault((fact.kind, " ".join(fact.content.lower().split())), fact)
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


def _cut(text: str, declared: ProviderDeclaration) -> tuple[str, tuple[str, ...]]:
    if len(text) <= declared.longest_text:
        return text, ()
    warning = f"the first {declared.longest_text:,} characters were read"
    return text[: declared.longest_text], (warning,)


def _known_kinds(extraction: Extraction) -> Extraction:
    """Return an extraction whose facts have a kind that may be extracted."""
    unknown = sum(each.kind not in EXTRACTED_KINDS for each in extraction.facts)
    if not unknown:
        return extraction
    facts = tuple(
        each if each.kind in EXTRACTED_KINDS else each.model_copy(update={"kind": "fact"})
        for each in extraction.facts
    )
    warning = f"{unknown} facts had a kind that is never extracted, and became facts"
    return extraction.model_copy(
        update={"facts": facts, "warnings": (*extraction.warnings, warning)}
    )
