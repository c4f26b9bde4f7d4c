"""A recorded answer as a stream again: in as many pieces as it had chunks, cut at the same places
each time.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import pairwise
from typing import Any

from tallystick.records import TapeCall

_MAX_PIECES = 16
"""Most pieces of an answer that was not recorded as a stream: about one for each word."""


def stream_pieces(call: TapeCall, texts: Sequence[str]) -> list[list[str]]:
    """Cut the texts of a recorded answer into pieces: each into one at least, together into as many
    as the answer had chunks.

    There are fewer pieces if the texts have fewer characters than the stream had chunks, and more
    if there are more texts than chunks. A piece is empty only if it is the whole of an empty text.
    No piece begins within a character as a person sees it, or within an escape of JSON.
    """
    characters = [_characters(text) for text in texts]
    words = sum(len(text.split()) for text in texts)
    chunks = call.chunks if call.chunks is not None else min(words, _MAX_PIECES)
    lengths = [len(parts) for parts in characters]
    return [
        list(_cut(parts, share))
        for parts, share in zip(characters, _shares(lengths, chunks), strict=True)
    ]


def _shares(lengths: Sequence[int], chunks: int) -> Iterator[int]:
    """Yield the number of pieces of each text: one, and a share of the rest in proportion to its
    length.
    """
    rest, total, before = max(0, chunks - len(lengths)), sum(lengths), 0
    for length in lengths:
        share = rest * (before + length) // total - rest * before // total if total else 0
        before += length
        yield 1 + share


def _cut(characters: Sequence[str], pieces: int) -> Iterator[str]:
    """Yield characters in at most `pieces` pieces of about the same length."""
    count = max(1, min(pieces, len(characters)))
    ends = [len(characters) * place // count for place in range(count + 1)]
    return ("".join(characters[start:end]) for start, end in pairwise(ends))


def _characters(text: str) -> list[str]:
    """Return the parts that are never cut: characters as a person sees them, and escapes of JSON,
    two of which may be one character.
    """
    characters: list[str] = _pattern().findall(text)
    return characters


@lru_cache(maxsize=1)
def _pattern() -> Any:
    # The import takes a twentieth of a second, and only a tape played as a stream needs it.
    import regex  # type: ignore[import-untyped]

    return regex.compile(
        r"\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}"
        r"|\\u[0-9a-fA-F]{4}"
        r"|[\ud800-\udbff][\udc00-\udfff]"
        r"|\\?\X"
    )
