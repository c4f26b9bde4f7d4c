"""Who says a text, and when: whose words may replace what somebody said.

"I moved to Hamburg" is about whoever says it, what a program says is nobody's word, and a text
replaces nothing that was said after it.
"""

from __future__ import annotations

import re

from tallystick.pipeline.phrases import Phrase
from tallystick.pipeline.statements import read_statement
from tallystick.ranking.signals import is_assistant
from tallystick.records import Memory

_PROGRAMS = frozenset({"tool", "system", "function", "developer", "server", "service"})
"""Speakers that are no people by their role, beside assistants."""
_WRITERS = frozenset({"user", "human", "me", "customer", "client"})
"""Speakers that stand for whoever wrote the memory."""
_PLURAL = Phrase(
    r"(?<!\w)(?:we(?:['’](?:ve|re|ll|d))?|our|ours|us|wir|unser\w*|uns|nous|notre|nos|nosotr[oa]s"
    r"|nuestr\w+|noi|nostr\w+|nós|noss[oa]s?|wij|ons|onze)(?!\w)|我们|咱们",
    re.IGNORECASE,
)


def is_program(speaker: str | None) -> bool:
    """Return True if a speaker is a program by role: an assistant, an agent, a tool, a system."""
    return is_assistant(speaker) or (speaker or "").strip().casefold() in _PROGRAMS


def is_earlier(memory: Memory, origin: Memory) -> bool:
    """Return True if a memory was said before the text that is read, and not changed since.

    Jobs come later than what they are about, and old texts are read too: a text never replaces
    what was said after it.
    """
    if memory.version > 1 and memory.updated_at > origin.created_at:
        return False
    return _said_at(memory) < _said_at(origin)


def _said_at(memory: Memory) -> tuple[int, str]:
    moment = memory.occurred_at or memory.freshness_ts or memory.created_at
    return moment, memory.id


def is_about_another_speaker(fact: str, origin: Memory, memory: Memory) -> bool:
    """Return True if a fact of `origin` and what `memory` says speak of two people, because one of
    them is in the first person and somebody else said the other.

    Whoever writes into a scope that is not private says "we" of those who share it.
    """
    if _teller(origin) == _teller(memory):
        return False
    is_shared = origin.scope.kind != "private"
    return any(_is_of_teller(text, is_shared=is_shared) for text in (fact, memory.content))


def _teller(memory: Memory) -> str:
    speaker = (memory.speaker or "").strip().casefold()
    return (memory.created_by or "").casefold() if speaker in _WRITERS | {""} else speaker


def _is_of_teller(text: str, *, is_shared: bool) -> bool:
    statement = read_statement(_PLURAL.sub(" ", text) if is_shared else text)
    is_unnamed = statement.is_functional and not statement.subject  # "Vivo en Hamburgo"
    return statement.of_user or is_unnamed
