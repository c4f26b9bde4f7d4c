"""Slices: a long text in pieces of one topic each, so that length hides nothing."""

from __future__ import annotations

import re

__all__ = ["SLICE", "slices"]

SLICE = 700
"""Characters of the longest slice."""

_ENDS = (
    re.compile(r"\n\s*\n"),
    re.compile(r"\n"),
    re.compile(r"(?<=[.!?…])\s|(?<=[。！？])"),
    re.compile(r"\s"),
)
"""Boundaries at which a text may be cut, best first: paragraph, line, sentence, word."""


def slices(text: str, *, most: int = SLICE) -> list[str]:
    """Return `text` cut into pieces of at most `most` characters, in order; joined they are `text`
    again.

    A cut falls on the best boundary in the second half of the piece, else in the middle of a word.
    """
    pieces = []
    start = 0
    while len(text) - start > most:
        end = _cut(text, start + most // 2, start + most)
        pieces.append(text[start:end])
        start = end
    pieces.append(text[start:])
    return pieces


def _cut(text: str, low: int, high: int) -> int:
    for boundary in _ENDS:
        last = None
        for match in boundary.finditer(text, low, high):
            last = match.end()
        if last is not None:
            return last
    return high
