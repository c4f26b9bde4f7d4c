"""CapturedTurns: the turns of recent runs that were captured, so that several observers of one
exchange store it once.
"""

from __future__ import annotations

import threading
from collections import Counter, OrderedDict
from typing import NamedTuple

from tallystick.records import Remembered, Scope, text_digest

_RUNS = 1_024
"""Runs whose turns are remembered; the oldest go first."""


class Captured(NamedTuple):
    """A turn that was stored."""

    observer: str
    remembered: Remembered
    scope: Scope


class TurnsOfRun:
    """The turns of one run. Use it under its `guard`.

    The n-th time that an observer sees the same words of a role is the n-th turn of these words,
    whoever else observes: two times "yes" are two turns, and one that two observers see is one.
    """

    def __init__(self) -> None:
        self.guard = threading.Lock()
        """Held from looking a turn up until it is stored, so that no observer comes between."""
        self.is_new = True
        """True until the first turn of the run was looked up."""
        self._seen: Counter[tuple[str, str]] = Counter()
        self._stored: dict[str, list[Captured]] = {}

    def see(self, observer: str, words: str) -> Captured | None:
        """Count a turn that an observer sees; return it if another observer has stored it."""
        self._seen[observer, words] += 1
        number, stored = self._seen[observer, words], self._stored.get(words, [])
        return stored[number - 1] if number <= len(stored) else None

    def number(self, words: str) -> int:
        """Return the number of turns of these words that are stored."""
        return len(self._stored.get(words, []))

    def add(self, words: str, captured: Captured) -> None:
        """Note a turn that was stored."""
        self._stored.setdefault(words, []).append(captured)

    @staticmethod
    def words(role: str, text: str) -> str:
        """Return the name of words of a role: their digest, because no text is kept here."""
        return f"{role} {text_digest('turn', text.strip())}"


class CapturedTurns:
    """The turns that were captured of recent runs. Thread-safe."""

    def __init__(self) -> None:
        """Know of no run yet."""
        self._guard = threading.Lock()
        self._runs: OrderedDict[str, TurnsOfRun] = OrderedDict()

    def of(self, run_id: str) -> TurnsOfRun:
        """Return the turns of a run."""
        with self._guard:
            turns = self._runs.setdefault(run_id, TurnsOfRun())
            self._runs.move_to_end(run_id)
            while len(self._runs) > _RUNS:
                self._runs.popitem(last=False)
            return turns
