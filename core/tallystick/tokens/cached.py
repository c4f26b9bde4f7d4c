"""A counter that remembers: the same text is counted once."""

from __future__ import annotations

import hashlib
import threading
from collections import OrderedDict

from tallystick.errors import InvalidInput
from tallystick.ports import TokenCounter

_SHORT = 64
"""Texts up to this many characters are their own key; of longer ones only a digest is kept."""


class CachedCounter:
    """Wraps a counter: same numbers, same method. Thread-safe if `counter` is.

    Keeps the counts of the `cache_size` texts used last. Long texts are not kept, only their
    digests.
    """

    def __init__(self, counter: TokenCounter, *, cache_size: int = 16_384) -> None:
        if cache_size < 0:
            raise InvalidInput("`cache_size` must be at least 0.")
        self._counter = counter
        self._most = cache_size
        self._guard = threading.Lock()
        self._counts: OrderedDict[str | bytes, int] = OrderedDict()

    @property
    def method(self) -> str:
        """The method of the counter inside."""
        return self._counter.method

    @property
    def exact(self) -> bool:
        """True if the counter inside is exact."""
        return self._counter.exact

    def count(self, text: str) -> int:
        """Return the tokens in `text`, as the counter inside counts them."""
        key = (
            text
            if len(text) <= _SHORT
            else hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()
        )
        with self._guard:
            cached = self._counts.get(key)
            if cached is not None:
                self._counts.move_to_end(key)
                return cached
        count = self._counter.count(text)
        with self._guard:
            self._counts[key] = count
            while len(self._counts) > self._most:
                self._counts.popitem(last=False)
        return count
