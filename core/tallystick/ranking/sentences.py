"""Sentences: where the sentences and lines of a text begin and end. Pure."""

from __future__ import annotations

import re

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
