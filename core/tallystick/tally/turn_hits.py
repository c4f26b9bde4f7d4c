"""TurnHits: the hits of recent turns, so that a turn is recalled once."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Sequence
from typing import NamedTuple

from tallystick.records import Hit

_TURNS = 256
"""Turns whose hits are kept; the oldest go first."""


class Turn(NamedTuple):
    """One request of one user in one conversation or run."""

    actor: str
    scope: str
    turn: str
    text: str
    limit: int
    outside_of: str | None
    namespace: tuple[str, ...] | None


class TurnHits:
    """The hits of recent turns on one tally. Thread-safe."""

    def __init__(self) -> None:
        """Keep nothing yet."""
        self._guard = threading.Lock()
        self._hits: OrderedDict[Turn, list[Hit]] = OrderedDict()

    def get(self, turn: Turn) -> list[Hit] | None:
        """Return the hits of a turn, best first; None if it was not recalled or is too old."""
        with self._guard:
            return self._hits.get(turn)

    def put(self, turn: Turn, hits: Sequence[Hit]) -> None:
        """Keep the hits of a turn."""
        with self._guard:
            self._hits[turn] = list(hits)
            while len(self._hits) > _TURNS:
                self._hits.popitem(last=False)
