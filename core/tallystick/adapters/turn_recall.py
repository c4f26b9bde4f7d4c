"""Recall for a turn: the same answer in every runtime.

An agent calls its model several times for one request of the user. The request is recalled once:
the same hits are shown at each call, so that the prompt keeps its prefix, until one of them was
changed, forgotten or withdrawn.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import NamedTuple
from weakref import WeakKeyDictionary

from tallystick.records import Hit
from tallystick.tally import BoundTally, Tally

__all__ = ["recall_for_turn"]

_TURNS = 256
"""Turns per tally whose hits are kept; the oldest go first."""


class _Turn(NamedTuple):
    """One request of one user in one conversation or run."""

    actor: str
    scope: str
    turn: str
    text: str
    limit: int
    outside_of: str | None


class _Turns:
    """The hits of recent turns on one tally. Thread-safe."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._hits: OrderedDict[_Turn, list[Hit]] = OrderedDict()

    def get(self, turn: _Turn) -> list[Hit] | None:
        with self._guard:
            return self._hits.get(turn)

    def put(self, turn: _Turn, hits: list[Hit]) -> None:
        with self._guard:
            self._hits[turn] = hits
            while len(self._hits) > _TURNS:
                self._hits.popitem(last=False)


_turns: WeakKeyDictionary[Tally, _Turns] = WeakKeyDictionary()
_guard = threading.Lock()


def recall_for_turn(
    bound: BoundTally,
    text: str,
    *,
    limit: int,
    turn: str | None,
    outside_of: str | None = None,
) -> list[Hit]:
    """Return the hits for the latest request of a user, best first, at most `limit`.

    `turn` identifies the request: the run that answers it, or its conversation and its place there.
    The same words in another turn are recalled anew, so that what was learnt since is found, and
    always where `turn` is None. `outside_of` names a conversation whose own turns are left out,
    because its messages are in the prompt already. An empty text, or a limit of 0, recalls nothing.
    Raises as `recall`.
    """
    text = text.strip()
    if not text or limit < 1:
        return []
    if turn is None:
        return _recall(bound, text, limit, outside_of)
    key = _Turn(str(bound.actor), str(bound.scope), turn, text, limit, outside_of)
    with _guard:
        turns = _turns.setdefault(bound.tally, _Turns())
    hits = turns.get(key)
    if hits is None or not bound.still_stand(hits):
        hits = _recall(bound, text, limit, outside_of)
        turns.put(key, hits)
    return list(hits)


def _recall(bound: BoundTally, text: str, limit: int, outside_of: str | None) -> list[Hit]:
    if outside_of is None:
        return list(bound.recall(text, limit=limit))
    # Twice as many are asked for, because some may be left out.
    hits = bound.recall(text, limit=2 * limit)
    return [hit for hit in hits if hit.memory.conversation != outside_of][:limit]
