"""Structure of a text: its sentences and lines, the code that it shows, its excerpt. Pure.

Who asks about code pastes it, and what is pasted is not told: a page of it has a word for every
question, and of a few lines that say what it is about nothing is left in a mean.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Sequence

# A set of characters comes first: the engine looks for it quickly.
_END = re.compile(r"[.!?。！？\n](?:(?<=[.!?])\s+|(?<=[。！？])|(?<=\n)\n*)")


def sentence_spans(text: str) -> list[tuple[int, int]]:
    """Return the character ranges of the sentences and lines that contain more than white space, in
    their order.
    """
    spans: list[tuple[int, int]] = []
    start = 0
    for match in _END.finditer(text):
        end = match.start()
        spans.append((start, end if text[end] == "\n" else end + 1))
        start = match.end()
    spans.append((start, len(text)))
    return [(start, end) for start, end in spans if text[start:end].strip()]


_CUT = "\n...\n"
_WORD = 100
"""Characters that a window may be shorter, so that it ends with a whole word."""


def excerpt(text: str, most: int) -> str:
    """Return `text` if it has at most `most` characters, else its first and its last half of them.

    A window ends with a whole word where one ends within its last hundred characters.
    """
    if len(text) <= most:
        return text
    half = most // 2
    head, tail = text[:half], text[-half:]
    for place in range(half, max(0, half - _WORD), -1):
        if text[place].isspace():
            head = text[:place]
            break
    for place in range(len(text) - half, min(len(text), len(text) - half + _WORD)):
        if text[place - 1].isspace():
            tail = text[place:]
            break
    return f"{head}{_CUT}{tail}"


FENCES = ("```", "~~~")
"""The beginnings of a fence."""
CODE_PERCENT = 0x7F
"""The bits of a text's marks that hold the percentage of it that is code between fences."""
FENCED = (
    r"^[ \t]*(?P<fence>`{3,}(?=[^`\n]*$)|~{3,})[^\n]*(?:\n|\Z)"
    r".*?(?:^[ \t]*(?P=fence)[`~]*[ \t]*$|\Z)"
)
"""The pattern of code between fences, for modes MULTILINE and DOTALL: the fenced blocks of
CommonMark, however far they are indented; one that nothing closes goes up to the end.
"""

_FENCED = re.compile(FENCED, re.MULTILINE | re.DOTALL)


def code_spans(text: str) -> list[tuple[int, int]]:
    """Return the character ranges of the code between fences, the fences included, in order."""
    if not any(fence in text for fence in FENCES):
        return []
    return [match.span() for match in _FENCED.finditer(text)]


def prose_parts(text: str) -> list[str]:
    """Return the parts of a text before, between and after its code between fences, in order; the
    whole text as one where it has none, or says nothing beside it.
    """
    parts = outside(text, code_spans(text), 0, len(text))
    return parts if any(map(str.isalnum, "".join(parts))) else [text]


def code_percent(text: str) -> int:
    """Return the percentage of a text that is code between fences."""
    if not any(fence in text for fence in FENCES):
        return 0
    prose = "\n".join(prose_parts(text))
    return max(0, round(100 * (1 - len(prose) / len(text)))) if text else 0


def outside(text: str, spans: Sequence[tuple[int, int]], start: int, end: int) -> list[str]:
    """Return the parts of `text[start:end]` before, between and after spans of it that are in
    order.
    """
    parts = []
    inside = slice(bisect_right(spans, start, key=lambda span: span[1]), bisect_left(spans, (end,)))
    for first, after in spans[inside]:
        parts.append(text[start : max(first, start)])
        start = min(after, end)
    return [*parts, text[start:end]]
