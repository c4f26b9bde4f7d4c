"""Limits: how often one actor may look within a minute, where a tally sets it. Kept in memory, for
each process.

A minute's worth may come at once; then each call waits until its share of the minute has passed
(GCRA).
"""

from __future__ import annotations

import threading
from collections.abc import Mapping

from tallystick.records import Actor, Limited

__all__ = ["Limits"]

_MINUTE_US = 60 * 1_000_000
_MANY = 10_000
"""Actors beyond which those that no longer wait are forgotten."""

_Key = tuple[str, str | None, str | None, Limited]


class Limits:
    """How often each actor looked. Thread-safe."""

    def __init__(self, per_minute: Mapping[Limited, int]) -> None:
        self._per_minute = dict(per_minute)
        self._guard = threading.Lock()
        self._due: dict[_Key, int] = {}
        self._told: dict[_Key, str] = {}

    def wait(self, actor: Actor, what: Limited, now: int) -> int:
        """0, and one look is taken; or the microseconds after which the actor may look again."""
        most = self._per_minute.get(what)
        if most is None:
            return 0
        key, share = _key(actor, what), _MINUTE_US // most
        with self._guard:
            due = max(self._due.get(key, now), now)
            wait = due + share - _MINUTE_US - now
            if wait > 0:
                return wait
            if len(self._due) >= _MANY and key not in self._due:
                self._due = {key_: at for key_, at in self._due.items() if at > now}
                self._told = {
                    key_: audit_id for key_, audit_id in self._told.items() if key_ in self._due
                }
            self._due[key] = due + share
            self._told.pop(key, None)
            return 0

    def told(self, actor: Actor, what: Limited) -> str | None:
        """The audit id of the refusal under which the actor waits, where it was written down."""
        with self._guard:
            return self._told.get(_key(actor, what))

    def tell(self, actor: Actor, what: Limited, audit_id: str) -> None:
        """Note that a refusal was written down: those that follow while the actor waits are part of
        it.
        """
        with self._guard:
            self._told[_key(actor, what)] = audit_id


def _key(actor: Actor, what: Limited) -> _Key:
    return actor.user, actor.agent, actor.organization, what
