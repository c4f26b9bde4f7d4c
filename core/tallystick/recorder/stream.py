"""How a recorded answer comes as a stream again: in as many pieces as it came in, cut at the same
places each time.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import pairwise
from typing import Any

from tallystick.records import TapeCall

__all__ = ["streamed"]

_UNCOUNTED = 16
"""Pieces, at most, of an answer that was not recorded as a stream: about one for each word."""


def streamed(call: TapeCall, texts: Sequence[str]) -> list[list[str]]:
    """The texts of a recorded answer, each in its pieces: one at least, and together as many as
    there were chunks.

    There are fewer where the texts have fewer characters than the stream had chunks, and more where
    they are more than these. No piece but an only one is empty. None begins within what a person
    sees as one character, or within an escape of JSON.
    """
    characters = [_characters(text) for text in texts]
    words = sum(len(text.split()) for text in texts)
    chunks = call.chunks if call.chunks is not None else min(words, _UNCOUNTED)
    lengths = [len(one) for one in characters]
    return [
        list(_cut(one, share))
        for one, share in zip(characters, _shares(lengths, chunks), strict=True)
    ]


def _shares(lengths: Sequence[int], chunks: int) -> Iterator[int]:
    """How many chunks each text comes in: one, and of the rest what its length is of all
    lengths.
    """
    rest, total, before = max(0, chunks - len(lengths)), sum(lengths), 0
    for length in lengths:
        share = rest * (before + length) // total - rest * before // total if total else 0
        before += length
        yield 1 + share


def _cut(characters: Sequence[str], pieces: int) -> Iterator[str]:
    """Characters in at most so many pieces of about the same length."""
    count = max(1, min(pieces, len(characters)))
    ends = [len(characters) * place // count for place in range(count + 1)]
    return ("".join(characters[start:end]) for start, end in pairwise(ends))


def _characters(text: str) -> list[str]:
    """What is not to be cut: characters as a person sees them, and escapes of JSON, of which two
    may be a character.
    """
    found: list[str] = _pattern().findall(text)
    return found


@lru_cache(maxsize=1)
def _pattern() -> Any:
    # It takes a twentieth of a second, and only a tape that is played as a stream needs it.
    import regex  # type: ignore[import-untyped]

    return regex.compile(
        r"\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}"
        r"|\\u[0-9a-fA-F]{4}"
        r"|[\ud800-\udbff][\udc00-\udfff]"
        r"|\\?\X"
    )
