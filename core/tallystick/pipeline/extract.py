"""The default extractor: statements, entities and relations by rules, without a model.

It reads sentence by sentence and keeps their words: nothing is worded anew. Questions, wishes and
chatter give nothing. `make eval-pipeline` measures its precision and recall by kind.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import NamedTuple

from tallystick.graph import Name, names_of
from tallystick.pipeline.assertions import is_assertion
from tallystick.pipeline.phrases import (
    CHATTER,
    CONDITION,
    CONSTRAINT,
    DECISION,
    FACT,
    HYPOTHETICAL,
    PREFERENCE,
    PROCEDURE,
    RETRACTED,
)
from tallystick.ranking import analyze, with_blank_code
from tallystick.records import (
    ExtractedEntity,
    ExtractedFact,
    ExtractedRelation,
    Extraction,
    ProviderDeclaration,
)

MOST_FACTS = 40
"""Facts of one text at most; entities and relations are limited to as many each."""
LONGEST_FACT = 600
"""Characters of one fact at most."""
_READ = 200_000
"""Characters of a text that are read."""
_READ_FOR_NAMES = 20_000
"""Characters of a text that are read for names, as the graph does."""
_MOST_NAMES = 400
"""Mentions of entities that are looked at, repeats included."""
_LEAST_TERMS = 3

_ABBREVIATIONS = r"(?<!\b[A-Za-zÀ-ž])" + "".join(
    rf"(?<!\b{short})"
    for short in [
        "Dr",
        "Mr",
        "Ms",
        "Mrs",
        "St",
        "e[.]g",
        "i[.]e",
        "z[.]B",
        "bzw",
        "vs",
        "No",
        "Nr",
        "ca",
    ]
)
_GERMAN_MONTH = (
    r"(?:Januar|Februar|März|April|Mai|Juni|Juli|August|September|Oktober|November|Dezember|Uhr)\b"
)
_BOUNDARY = re.compile(
    rf"(?:{_ABBREVIATIONS}(?<!\d)\.|(?<=\d)\.(?=\s+[A-ZÀ-Þ])(?!\s+{_GERMAN_MONTH})|[!?。！？…])+[\"'”»)\]]*(?:\s+|$"
    rf"|(?<=[。！？]))|\n\s*\n"
    r"|\n(?=\s*(?:[-*•]|\d+[.)])\s)|(?<=[^\s,;:])\n(?=[A-ZÀ-Þ])"
)
_STEPS = re.compile(r"(?:^|\n)\s*1[.)] .+?\n\s*2[.)] .+", re.DOTALL)
_BULLET = re.compile(r"^\s*(?:[-*•]\s+|>\s*)+")
_QUESTION = re.compile(r"[?？]\s*[\"'”»)]*$")
_QUESTION_WORD = re.compile(
    r"^(?:what|where|when|who|why|how|which|do|does|did|is|are|was|were|can|could|would|will"
    r"|should|have|has"
    r"|was|wo|wann|wer|warum|wie|welche[rs]?|qu'|quoi|où|quand|qui|pourquoi|comment|qué|dónde"
    r"|cuándo|quién"
    r"|por qué|cómo)\b",
    re.IGNORECASE,
)
_KINDS = (
    ("decision", DECISION, 90),
    ("preference", PREFERENCE, 90),
    ("procedure", PROCEDURE, 85),
    ("constraint", CONSTRAINT, 85),
    ("fact", FACT, 80),
)
_ADDRESSED = re.compile(
    r"^(?:(?:also|and|but|so|well|oh|btw|by the way|fyi|note|remember|please (?:note|remember)"
    r"|just so you know|for the record|in fact|actually|correction|update|heads up|und|aber|also"
    r"|übrigens|et|mais|donc|y|pero|e|ma|mas)"
    r"(?: that)?[,:]?\s+)+",
    re.IGNORECASE,
)


class Sentence(NamedTuple):
    """A sentence of a text, and the characters from and up to which it goes."""

    text: str
    start: int
    end: int


class RuleExtractor:
    """Extracts by rules. Pure, local, and the same for the same text."""

    declaration = ProviderDeclaration(
        name="rules",
        model="rules-1",
        local=True,
        prompt_version="1",
        timeout_ms=2_000,
        longest_text=_READ,
        reliability="high",
    )

    def extract(self, text: str) -> Extraction:
        """Return what the sentences of a text say, in their order."""
        warnings = [] if len(text) <= _READ else [f"the first {_READ:,} characters were read"]
        text = text[:_READ]
        found = (_fact(sentence) for sentence in sentences(text))
        named = names_of(text[:_READ_FOR_NAMES])
        extraction = Extraction(
            # A few more than the limit, so that a warning says that there are more.
            facts=tuple(islice((fact for fact in found if fact is not None), 2 * MOST_FACTS)),
            entities=tuple(islice(_entities(text, named.names), _MOST_NAMES)),
            relations=tuple(
                ExtractedRelation(**each._asdict()) for each in islice(named.relations, _MOST_NAMES)
            ),
            warnings=tuple(warnings),
        )
        return capped(extraction)


def capped(extraction: Extraction) -> Extraction:
    """Return an extraction within the limits of number and length, without trivial facts and
    repeats; warnings say how much was left out.
    """
    warnings = list(extraction.warnings)
    facts: dict[tuple[str, str], ExtractedFact] = {}
    trivial = long = 0
    for fact in extraction.facts:
        if len(fact.content) > LONGEST_FACT:
            long += 1
        elif is_trivial(fact.content):
            trivial += 1
        else:
            facts.setdefault((fact.kind, " ".join(fact.content.lower().split())), fact)
    entities = {each.name.lower(): each for each in reversed(extraction.entities)}
    kept = tuple(facts.values())
    for count, problem in (
        (long, f"of more than {LONGEST_FACT} characters"),
        (trivial, "that say nothing"),
        (len(kept) - MOST_FACTS, f"beyond the first {MOST_FACTS}"),
    ):
        if count > 0:
            warnings.append(f"{count} facts {problem} were left out")
    named = tuple(
        each
        for each in reversed(entities.values())
        if each.name.strip() and len(each.name) <= LONGEST_FACT
    )
    return Extraction(
        facts=kept[:MOST_FACTS],
        entities=named[:MOST_FACTS],
        relations=tuple(dict.fromkeys(extraction.relations))[:MOST_FACTS],
        warnings=tuple(warnings),
    )


def is_trivial(text: str) -> bool:
    """Return True for chatter, and for a text with fewer than three words."""
    return CHATTER.match(text) is not None or len(analyze(text)) < _LEAST_TERMS


def sentences(text: str) -> Iterator[Sentence]:
    """Yield the sentences of a text with their places; code between fences is passed over."""
    blank = with_blank_code(text)
    steps = _STEPS.search(blank)
    if steps is not None and len(steps.group()) <= LONGEST_FACT:
        start = text.rfind("\n\n", 0, steps.start()) + 1
        yield Sentence(text[start : steps.end()].strip(), start, steps.end())
        blank = blank[:start] + " " * (steps.end() - start) + blank[steps.end() :]
    start = 0
    for match in [*_BOUNDARY.finditer(blank), None]:
        end = len(blank) if match is None else match.end()
        raw = blank[start:end]
        stripped = raw.strip()
        if stripped:
            offset = start + raw.index(stripped[0])
            bullet = _BULLET.match(stripped)
            skip = bullet.end() if bullet is not None else 0
            yield Sentence(stripped[skip:], offset + skip, offset + len(stripped))
        start = end


def _fact(sentence: Sentence) -> ExtractedFact | None:
    text = sentence.text
    plain = _ADDRESSED.sub("", text)
    if not plain or CHATTER.match(plain) is not None:
        return None
    if _QUESTION.search(text) is not None:
        return None
    if RETRACTED.search(plain) is not None:
        return _made(sentence, "fact", 90)
    if HYPOTHETICAL.match(plain) is not None:
        # "If the build hangs, restart it" asserts nothing and tells how.
        is_procedure = CONDITION.match(plain) is not None and PROCEDURE.search(plain) is not None
        return _made(sentence, "procedure", 80) if is_procedure else None
    if _QUESTION_WORD.match(plain) is not None and not text.endswith((".", "!")):
        return None
    for kind, pattern, confidence in _KINDS:
        if pattern.search(plain) is not None:
            return _made(sentence, kind, confidence)
    return _made(sentence, "fact", 70) if is_assertion(plain) else None


def _made(sentence: Sentence, kind: str, confidence: int) -> ExtractedFact:
    return ExtractedFact(
        content=sentence.text,
        kind=kind,
        confidence=confidence,
        span=(sentence.start, sentence.end),
    )


_IDENTIFIERS = (
    re.compile(r"(?<![\w.])[\w.+-]+@[\w-]+\.[\w.-]*\w"),
    re.compile(r"https?://[^\s<>\"')\]]+[\w/]"),
    re.compile(r"\b[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}\b", re.IGNORECASE),
    re.compile(r"(?<![\w/-])[A-Z][A-Z0-9]{1,9}-\d{1,6}\b"),
    re.compile(r"(?<![\w&])#\d{1,7}\b"),
    re.compile(r"(?<![\w.])(?:\d{1,3}\.){3}\d{1,3}(?::\d+)?(?!\w|\.\d)"),
    re.compile(r"`[^`\s]{2,80}`"),
    re.compile(r"(?<![\w/])(?:~|\.{1,2})?/(?:[\w.-]+/)*[\w.-]*\w"),
    re.compile(r"(?<![\w/])(?:[\w-]+/)+[\w-]+\.\w{1,5}\b"),
    re.compile(r"(?<![\w.])v\d+(?:\.\d+)+\b|(?<![\w.])\d+\.\d+\.\d+(?![\w.])"),
    re.compile(r"\b(?:[a-z]+[A-Z]\w*|[^\W_]+_\w+)\b"),
)
_MONTHS = (
    r"(?:jan(?:uary|uar|vier|eiro)?|feb(?:ruary|ruar|braio)?|febbraio|févr(?:ier)?|fevereiro"
    r"|mar(?:ch|s|zo|ço)?|märz|apr(?:il|ile)?|avril|abril|ma[iy]|mayo|maio|maggio|june?|juin|juni|ju[nl]ho"
    r"|junio|giugno|july?|juillet|juli|julio|luglio|aug(?:ust)?|août|agosto"
    r"|sept?(?:ember|embre|iembre)?|settembre|setembro|o[ck]t(?:ober|obre|ubre)?|ottobre|outubro"
    r"|nov(?:ember|embre|iembre|embro)?|de[cz](?:ember|embro)?|déc(?:embre)?|enero|gennaio|febrero"
    r"|dic(?:iembre|embre)?)"
)
_DATE = re.compile(
    rf"(?<!\w)(?:\d{{4}}-\d{{2}}-\d{{2}}|\d{{1,2}}[./]\d{{1,2}}[./]\d{{4}}"
    rf"|(?:\d{{1,2}}(?:\.|er|º|st|nd|rd|th)? (?:de |of |do )?{_MONTHS}\.?(?:,? (?:de )?\d{{4}})?)"
    rf"|(?:{_MONTHS}\.? \d{{1,2}}(?:st|nd|rd|th)?(?:,? \d{{4}})?)|(?:{_MONTHS} \d{{4}}))(?!\w)"
    r"|(?:\d{4}年)?\d{1,2}月\d{1,2}[日号]|\d{4}年\d{1,2}月",
    re.IGNORECASE,
)


def _entities(text: str, names: Sequence[Name]) -> Iterator[ExtractedEntity]:
    """Yield the dates and identifiers of a text, and the names that overlap none of them."""
    taken = bytearray(len(text))

    def take(start: int, end: int) -> bool:
        if any(taken[start:end]):
            return False
        taken[start:end] = b"\x01" * (end - start)
        return True

    for match in _DATE.finditer(text):
        take(*match.span())
        yield ExtractedEntity(name=match.group(), kind="date", confidence=95)
    for pattern in _IDENTIFIERS:
        for match in pattern.finditer(text):
            if take(*match.span()):
                yield ExtractedEntity(
                    name=match.group().strip("`"), kind="identifier", confidence=95
                )
    for name in names:
        if name.is_sure and take(name.start, name.end):
            kind = "identifier" if name.type in ("address", "code") else name.type
            confidence = 70 if kind == "name" else 80
            yield ExtractedEntity(name=name.text, kind=kind, confidence=confidence)
