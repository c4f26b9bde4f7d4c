"""One rule of redaction: a form in text, and what confirms it."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

Check = Callable[[re.Match[str]], bool]


@dataclass(frozen=True)
class Rule:
    """One kind of thing to redact."""

    kind: str
    """The name in the placeholder: lower-case letters, digits and underscores."""
    pattern: re.Pattern[str]
    """Redacts the group `secret` where the pattern has one, else all of it. Quantifiers must be
    bounded.
    """
    keywords: tuple[str, ...] = ()
    """The pattern runs only where one of these occurs, case aside; lower-case. Empty: it always
    runs.
    """
    check: Check | None = None
    """Confirms a match: checksums, lengths, placeholders."""
    certain: bool = False
    """True if its form alone is proof: redacted even in fields that contain ids."""
    anchors: tuple[str, ...] = ()
    """The pattern is tried only where one of these begins, case aside, which is many times as fast
    as a search; lower-case. Empty: it is searched for.
    """
    needs: tuple[str, ...] = ()
    """Words of which one must occur beside a keyword; lower-case. Empty: none."""

    def __post_init__(self) -> None:
        for name in ("keywords", "anchors", "needs"):
            object.__setattr__(self, name, tuple(getattr(self, name)))


def rule_of(
    kind: str, pattern: str, *keywords: str, check: Check | None = None, certain: bool = True
) -> Rule:
    """Return the rule of a form in ASCII."""
    words = tuple(word.lower() for word in keywords)
    return Rule(kind, re.compile(pattern, re.ASCII), words, check, certain)
