"""Fences: the code that a message shows, apart from what it says. Pure.

Who asks about code pastes it, and what is pasted is not told: a page of it has a word for every
question, and of a few lines that say what it is about nothing is left in a mean.
"""

from __future__ import annotations

import re

__all__ = ["FENCED", "code_spans", "with_blank_code", "without_code"]

FENCED = (
    r"^[ \t]*(?P<fence>`{3,}(?=[^`\n]*$)|~{3,})[^\n]*(?:\n|\Z)"
    r".*?(?:^[ \t]*(?P=fence)[`~]*[ \t]*$|\Z)"
)
"""The pattern of code between fences, for modes MULTILINE and DOTALL: as CommonMark has them, and
one that nothing closes goes up to the end.
"""

_FENCED = re.compile(FENCED, re.MULTILINE | re.DOTALL)


def code_spans(text: str) -> list[tuple[int, int]]:
    """Return the character ranges of the code between fences, the fences included, in order."""
    if "```" not in text and "~~~" not in text:
        return []
    return [match.span() for match in _FENCED.finditer(text)]


def without_code(text: str) -> str:
    """Return a text without the code between fences, or all of it where it says nothing else."""
    spans = code_spans(text)
    if not spans:
        return text
    said, end = [], 0
    for start, after in spans:
        said.append(text[end:start])
        end = after
    said.append(text[end:])
    prose = "\n".join(said)
    return prose if any(map(str.isalnum, prose)) else text


def with_blank_code(text: str) -> str:
    """Return a text of the same length in which white space stands for the code between fences."""
    return _FENCED.sub(lambda match: " " * len(match.group()), text)
