"""Rules of reflection: the decisions, procedures, plans, tasks, artifacts and claims that a text
states, read without a model. Pure.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from tallystick.graph import names_of
from tallystick.records import ExtractedFact, ExtractedRelation

RULES_VERSION = "reflection-1"
_SENTENCE = re.compile(r"(?<=[.!。！])\s+|\n+")
_SHORTEST, _LONGEST, _MOST = 12, 500, 20
"""Characters of a statement, and statements of one text."""

_RULES: tuple[tuple[str, int, re.Pattern[str]], ...] = tuple(
    (kind, confidence, re.compile(form, re.IGNORECASE))
    for kind, confidence, form in (
        ("decision", 95, r"^\W*(?:decision|decided|entscheidung|beschluss|decisión|décision)\s*:"),
        ("task", 95, r"^\W*(?:todo|to do|action item|aufgabe|tarea|tâche)\s*:|^\W*\[ \]"),
        ("plan", 95, r"^\W*plan\s*:"),
        ("procedure", 95, r"^\W*(?:procedure|how to|runbook|anleitung)\b.*:"),
        ("artifact", 95, r"^\W*artifact\s*:"),
        (
            "decision",
            85,
            r"\b(?:we|i|they|the team)\s+(?:\w+\s+)?(?:decided|agreed|chose|settled on|picked"
            r"|have chosen|will go with|are going with)\b"
            r"|\b(?:wir|ich) (?:haben|habe) (?:uns |mich )?.*\b(?:entschieden|beschlossen)\b"
            r"|\bhemos decidido\b|\bnous avons décidé\b",
        ),
        (
            "procedure",
            80,
            r"^(?:to|in order to|before|after|when|whenever) [^,]{3,80}, (?:always |first )?"
            r"(?:run|use|open|call|check|write|ask|set|add|make|merge|restart|start|stop)\b"
            r"|\b(?:always|never) (?:run|use|merge|deploy|commit|call|check|restart|push)\b",
        ),
        (
            "plan",
            75,
            r"\b(?:plans?|planned|planning|intends?) to\b"
            r"|\b(?:will|going to)\b.*\b(?:next (?:week|month|sprint|quarter|year)|tomorrow"
            r"|on (?:mon|tues|wednes|thurs|fri|satur|sun)day)\b"
            r"|\b(?:wir|ich) (?:planen|plane|wollen|will)\b",
        ),
        (
            "task",
            75,
            r"\b(?:needs? to|has to|have to|must) (?:be )?(?:fix|add|writ|updat|test|migrat|check"
            r"|remov|review|document|deploy|send|call|prepar|finish|renam)\w*",
        ),
        (
            "artifact",
            75,
            r"\b(?:wrote|created|saved|published|merged|deployed|generated|exported)\b.*"
            r"(?:[\w.-]+/[\w./-]+|https?://|`[^`]+`|\b[\w-]+\.(?:md|py|pdf|json|csv|png|sql|yaml)\b)",
        ),
        (
            "claim",
            70,
            r"\b(?:shows?|showed|proves?|found|measured|means) that\b|\bturns? out\b"
            r"|\broot cause\b|\b(?:is|was) caused by\b|\bbecause of\b",
        ),
    )
)
_HYPOTHESIS = re.compile(
    r"\b(?:if we|maybe|perhaps|might|could|what if|should we|not sure|i think|vielleicht"
    r"|eventuell|quizás|peut-être)\b",
    re.IGNORECASE,
)
_NEGATED = re.compile(
    r"\b(?:did|have|has|do|does)(?:n['’]t| not) (?:decide|agree|choose|yet)", re.IGNORECASE
)
_CHANGE = re.compile(
    r"\b(?:instead of|no longer|rather than|replac(?:e|es|ed|ing)|changed? (?:from|to|our)"
    r"|switch(?:ed|ing)? (?:from|to)|not .{1,40} any ?more|supersedes?|revers(?:e|ed)"
    r"|nicht mehr|anstatt|statt|en lugar de|au lieu de)\b",
    re.IGNORECASE,
)
_UNSURE = 30
"""What a hypothesis takes from the confidence, percent."""


class Reading(NamedTuple):
    """One statement of a text."""

    fact: ExtractedFact
    relation: ExtractedRelation | None = None
    """For the kind `relation`."""


def read_text(text: str) -> list[Reading]:
    """Return the statements of a text, in order; a sentence is one statement at most. Questions
    state nothing.
    """
    readings: list[Reading] = []
    place = 0
    for sentence in _SENTENCE.split(text):
        start = text.find(sentence, place)
        place = start + len(sentence)
        plain = sentence.strip().lstrip("-*• ")
        if not _SHORTEST <= len(plain) <= _LONGEST or plain.endswith(("?", "？")):
            continue
        reading = _read(plain, (start, place))
        if reading is not None:
            readings.append(reading)
        if len(readings) == _MOST:
            break
    return readings


def _read(sentence: str, span: tuple[int, int]) -> Reading | None:
    unsure = _UNSURE if _HYPOTHESIS.search(sentence) else 0
    if not _NEGATED.search(sentence):
        for kind, confidence, form in _RULES:
            if form.search(sentence):
                return Reading(
                    ExtractedFact(
                        content=sentence, kind=kind, confidence=confidence - unsure, span=span
                    )
                )
    said = names_of(sentence).relations
    if not said:
        return None
    first = said[0]
    relation = ExtractedRelation(
        source=first.source,
        relation=first.relation,
        target=first.target,
        confidence=first.confidence - unsure,
    )
    return Reading(
        ExtractedFact(content=sentence, kind="relation", confidence=relation.confidence, span=span),
        relation,
    )


def is_change(text: str) -> bool:
    """Return True if a statement says that something is otherwise than it was."""
    return _CHANGE.search(text) is not None
