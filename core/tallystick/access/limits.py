"""Rate limits: the calls of one kind that an actor may make within a minute. Counted in memory, for
each process.

The calls of a minute may come at once; after them each waits until its share of the minute has
passed (GCRA).
"""

from __future__ import annotations

import threading
from collections.abc import Mapping

from tallystick.records import Actor, Limited

_MINUTE_US = 60 * 1_000_000
_MAX_ACTORS = 10_000
"""The actors beyond which those that no longer wait are dropped."""

_Key = tuple[str, str | None, str | None, Limited]


class Limits:
    """The calls of each actor. Thread-safe."""

    def __init__(self, per_minute: Mapping[Limited, int]) -> None:
        self.per_minute = dict(per_minute)
        """The calls that a minute allows; a kind that is not there has no limit."""
        self._guard = threading.Lock()
        self._due: dict[_Key, int] = {}
        self._refusal_ids: dict[_Key, str] = {}

    def wait(self, actor: Actor, limited: Limited, now: int, *, count: int = 1) -> int:
        """Count `count` calls and return 0, or return the microseconds after which the actor may
        make them; they must not be more than a minute's worth.
        """
        most = self.per_minute.get(limited)
        if most is None:
            return 0
        key, share = _key(actor, limited), count * (_MINUTE_US // most)
        with self._guard:
            due = max(self._due.get(key, now), now)
            wait = due + share - _MINUTE_US - now
            if wait > 0:
                return wait
            if len(self._due) >= _MAX_ACTORS and key not in self._due:
                self._due = {other: at for other, at in self._due.items() if at > now}
                self._refusal_ids = {
                    other: audit_id
                    for other, audit_id in self._refusal_ids.items()
                    if other in self._due
                }
            self._due[key] = due + share
            self._refusal_ids.pop(key, None)
            return 0

    def refusal_id(self, actor: Actor, limited: Limited) -> str | None:
        """Return the audit id of the refusal under which the actor waits, if it was journaled."""
        with self._guard:
            return self._refusal_ids.get(_key(actor, limited))

    def note_refusal(self, actor: Actor, limited: Limited, audit_id: str) -> None:
        """Note that a refusal was journaled: those that follow while the actor waits are part of
        it.
        """
        with self._guard:
            self._refusal_ids[_key(actor, limited)] = audit_id


def _key(actor: Actor, limited: Limited) -> _Key:
    return actor.user, actor.agent, actor.organization, limited
