"""Analyses: the words of the texts that were split last, so that a text is split once while it is
asked, stored, compared and compiled. One memory for the process: it holds nothing of a scope.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from hashlib import blake2b
from typing import TypeVar, cast

from tallystick.costs import count

_SHORTEST, _LONGEST = 64, 20_000
"""Characters of the texts that are kept: shorter ones cost less than a look-up, longer ones come
once.
"""
_ENTRY, _WORD = 200, 24
"""Bytes that an entry takes, and each of its words, whose texts are kept elsewhere."""
_Words = TypeVar("_Words", bound=Sequence[object])


class Analyses:
    """The words of texts by their digest, those used last. Thread-safe."""

    def __init__(self, most_bytes: int = 8 * 1024 * 1024) -> None:
        self._most = most_bytes
        self._guard = threading.Lock()
        self._entries: OrderedDict[tuple[str, bytes], Sequence[object]] = OrderedDict()
        self._bytes = 0

    @property
    def bytes(self) -> int:
        """The approximate size of what is kept."""
        return self._bytes

    def known(self, form: str, text: str) -> Sequence[object] | None:
        """Return the words of a text in one form, if they are kept."""
        with self._guard:
            return self._entries.get((form, _digest(text)))

    def words(self, form: str, text: str, split: Callable[[str], _Words]) -> _Words:
        """Return the words of a text in one form, which nobody may change; split now unless they
        are kept.
        """
        if not _SHORTEST <= len(text) <= _LONGEST:
            return split(text)
        key = (form, _digest(text))
        with self._guard:
            words = self._entries.get(key)
            if words is not None:
                self._entries.move_to_end(key)
                return cast(_Words, words)
        count("analyses")
        new = split(text)
        with self._guard:
            if key not in self._entries:
                self._entries[key] = new
                self._bytes += _size(new)
            while self._bytes > self._most and self._entries:
                self._bytes -= _size(self._entries.popitem(last=False)[1])
        return new

    def clear(self) -> None:
        """Forget every text."""
        with self._guard:
            self._entries.clear()
            self._bytes = 0


def _digest(text: str) -> bytes:
    return blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest()


def _size(words: Sequence[object]) -> int:
    return _ENTRY + _WORD * len(words)


ANALYSES = Analyses()
"""Those of this process."""
