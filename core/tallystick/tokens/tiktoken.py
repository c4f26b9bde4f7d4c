"""Exact counts by an encoding of tiktoken."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tiktoken import Encoding

_LONG_SPACE = re.compile(r"\s{10000}")


class TiktokenCounter:
    """Counts as models with this encoding do. Thread-safe.

    Text that looks like a special token (`<|endoftext|>`) is counted as the text it is.
    """

    exact = True

    def __init__(self, encoding: Encoding) -> None:
        self._encoding = encoding
        self.method = f"tiktoken:{encoding.name}"

    def count(self, text: str) -> int:
        """Tokens in `text`. A run of 10,000 spaces is counted by itself, which may add one
        token.
        """
        # The encoder's pattern overflows its stack on a run of several 100,000 spaces, past any
        # handling.
        total, start = 0, 0
        for space in _LONG_SPACE.finditer(text):
            total += len(self._encoding.encode_ordinary(text[start : space.end()]))
            start = space.end()
        return total + len(self._encoding.encode_ordinary(text[start:] if start else text))
