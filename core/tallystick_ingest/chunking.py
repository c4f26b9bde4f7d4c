"""Chunking: the text of a document in passages, cut at its headings of the second and third level.

The passages follow one another without a gap: together they are the text. Each has 50 to 800 words
and at most LONGEST characters; fewer than 50 has only the one passage of a short text, and one that
ends at a word of thousands of characters.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from tallystick.formats import Heading, headings

FEWEST_WORDS, MOST_WORDS = 50, 800
LONGEST = 12_000
"""Characters of a passage: words may be of any length."""
_WORD = re.compile(r"\S+")
_CUT_AT = 3
"""The level of the innermost headings at which a text is cut."""
_BREAKS = ("\n\n", "\n", " ")
"""Where a long section is cut, the best places first."""


@dataclass(frozen=True, slots=True)
class Chunk:
    """A passage of a text."""

    start: int
    end: int
    """Characters from and up to which it goes."""
    section_path: tuple[str, ...]
    """The headings that it stands under, the outermost first."""


@dataclass(frozen=True)
class _Text:
    """A text with the places of its words."""

    text: str

    @cached_property
    def starts(self) -> list[int]:
        """Where each word begins."""
        return [match.start() for match in _WORD.finditer(self.text)]

    def words(self, start: int, end: int) -> int:
        """Return the number of words in a span, with the rest of one in which it begins."""
        if end - start <= LONGEST:
            return len(self.text[start:end].split())
        is_rest = 0 < start < end and not any(map(str.isspace, self.text[start - 1 : start + 1]))
        begun = bisect_right(self.starts, end - 1) - bisect_right(self.starts, start - 1)
        return begun + is_rest

    def is_small(self, start: int, end: int) -> bool:
        """Return True for a span with fewer words than a passage has."""
        return self.words(start, end) < FEWEST_WORDS

    def fits(self, start: int, end: int) -> bool:
        """Return True for a span that one passage can have."""
        return end - start <= LONGEST and self.words(start, end) <= MOST_WORDS


def chunk(text: str) -> list[Chunk]:
    """Return the passages of a Markdown-like text, in their order; none of a text without words."""
    whole = _Text(text)
    if not text or text.isspace():
        return []
    merged: list[Chunk] = []
    for piece in (part for section in _sections(text) for part in _cut(whole, section)):
        merged.append(piece)
        while len(merged) > 1 and (
            whole.is_small(merged[-2].start, merged[-2].end)
            and whole.fits(merged[-2].start, merged[-1].end)
        ):
            last = merged.pop()
            merged[-1] = _join(merged[-1], last)
    return _without_small(whole, merged)


def _join(first: Chunk, second: Chunk) -> Chunk:
    """Return two passages as one: under the heading that leads to the second, where it is one."""
    leads = second.section_path[: len(first.section_path)] == first.section_path
    return Chunk(first.start, second.end, second.section_path if leads else first.section_path)


def _without_small(whole: _Text, chunks: list[Chunk]) -> list[Chunk]:
    """Return passages of which those with too few words were joined with the one before, or share
    its words where that would be too long.
    """
    result: list[Chunk] = []
    for each in chunks:
        before = result[-1] if result else None
        is_short = before is not None and (
            whole.is_small(each.start, each.end) or whole.is_small(before.start, before.end)
        )
        if before is None or not is_short:
            result.append(each)
        elif whole.fits(before.start, each.end):
            result[-1] = Chunk(before.start, each.end, before.section_path)
        else:
            place = _share(whole, before.start, each.end)
            if whole.fits(before.start, place) and whole.fits(place, each.end):
                result[-1] = Chunk(before.start, place, before.section_path)
                path = before.section_path if place < each.start else each.section_path
                result.append(Chunk(place, each.end, path))
            else:
                result.append(each)
    return result


def _share(whole: _Text, start: int, end: int) -> int:
    """Return the beginning of the word in the middle of a span, or its end."""
    return min(_nth(whole, start, whole.words(start, end) // 2), end)


def _sections(text: str) -> Iterator[Chunk]:
    """Yield the sections of a text."""
    start, here = 0, tuple[str, ...]()
    path: list[Heading] = []
    for heading in headings(text):
        if heading.level > _CUT_AT:
            continue
        if heading.start > start:
            yield Chunk(start, heading.start, here)
        path = [*(each for each in path if each.level < heading.level), heading]
        start, here = heading.start, tuple(each.text for each in path)
    yield Chunk(start, len(text), here)


def _cut(whole: _Text, section: Chunk) -> Iterator[Chunk]:
    """Yield the parts of a section that passages can have, of about the same length."""
    start, end = section.start, section.end
    while not whole.fits(start, end):
        words = whole.words(start, end)
        parts = max(-(-words // MOST_WORDS), -(-(end - start) // LONGEST))
        most = max(1, -(-words // parts) - 1)
        place = _break(whole, start, min(_nth(whole, start, most), start + LONGEST))
        yield Chunk(start, place, section.section_path)
        start = place
    yield Chunk(start, end, section.section_path)


def _nth(whole: _Text, start: int, count: int) -> int:
    """Return where the word begins that comes behind so many of a span."""
    number = bisect_right(whole.starts, start - 1) + count
    return whole.starts[number] if number < len(whole.starts) else len(whole.text)


def _break(whole: _Text, start: int, most: int) -> int:
    """Return the best place to cut in the last third of a span: behind a paragraph, a line or a
    word; else its end.
    """
    least = most - (most - start) // 3
    for mark in _BREAKS:
        place = whole.text.rfind(mark, least, most)
        if place >= 0:
            return place + len(mark)
    return most
