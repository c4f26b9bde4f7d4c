"""Rate limits: the calls of one kind that an actor may make within a minute, in all processes.

The calls of a minute may come at once; after them each waits until its share of the minute has
passed (GCRA). Each process counts in memory, and shares what it counted with the others after every
twentieth of a minute's calls: so a limit holds to within a twentieth for each further process and
what is on its way to the database, and a call that is allowed waits for no disk.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Mapping
from concurrent.futures import Future
from dataclasses import dataclass

from tallystick.aio import on_event_loop
from tallystick.errors import StorageError
from tallystick.records import Actor, Limited, canonical_json
from tallystick.storage import Connection
from tallystick.storage.engine.database import Database
from tallystick.storage.engine.writes import TALLY, Writes
from tallystick.storage.rows import settings_rows

NETWORK_LIMITS: Mapping[Limited, int] = {
    "read": 6_000,
    "inspect": 6_000,
    "preview": 600,
    "export": 60,
    "write": 60_000,
    "modify": 6_000,
    "forget": 3_000,
    "erase": 60,
}
"""The calls a minute of who comes with an access token, where the settings say nothing."""
_MINUTE_US = 60 * 1_000_000
_SHARED_US = _MINUTE_US // 20
"""The part of a minute that is counted before other processes are told."""
_MAX_ACTORS = 10_000
"""The actors beyond which those that no longer wait are dropped."""

_Key = tuple[str, str | None, str | None, Limited]


@dataclass
class _Count:
    """The calls of one kind of one actor, in microseconds of a minute's share."""

    due: int = 0
    """When all calls so far have passed their share."""
    unshared: int = 0
    """The part that other processes do not know of."""
    refusal_id: str | None = None


class Limits:
    """The calls of each actor. Thread-safe."""

    def __init__(self, per_minute: Mapping[Limited, int], database: Database | None = None) -> None:
        """Allow these calls; processes that share a `database` count together."""
        self._per_minute = dict(per_minute)
        self._database = database
        self._guard = threading.Lock()
        self._counts: dict[_Key, _Count] = {}

    def most(self, actor: Actor, limited: Limited) -> int | None:
        """Return the calls that a minute allows an actor; None for no limit."""
        if limited in self._per_minute:
            return self._per_minute[limited]
        has_token = actor.credential is not None and actor.credential.token_id is not None
        return NETWORK_LIMITS[limited] if has_token else None

    def wait(self, actor: Actor, limited: Limited, now: int, *, count: int = 1) -> int:
        """Count `count` calls and return 0, or return the microseconds after which the actor may
        make them; they must not be more than a minute's worth.
        """
        most = self.most(actor, limited)
        if most is None:
            return 0
        key, share = _key(actor, limited), count * (_MINUTE_US // most)
        known = self._counts.get(key)
        shared = self._look(key) if known is None or not known.unshared else 0
        with self._guard:
            if len(self._counts) >= _MAX_ACTORS and key not in self._counts:
                self._counts = {
                    other: kept for other, kept in self._counts.items() if kept.due > now
                }
            counted = self._counts.setdefault(key, _Count())
            counted.due = max(counted.due, shared, now)
            wait = counted.due + share - _MINUTE_US - now
            if wait > 0:
                return wait
            counted.due += share
            counted.unshared += share
            counted.refusal_id = None
            is_full = counted.unshared >= _SHARED_US
        if is_full:
            self._share(key, counted, now)
        return 0

    def refusal_id(self, actor: Actor, limited: Limited) -> str | None:
        """Return the audit id of the refusal under which the actor waits, if it was journaled."""
        counted = self._counts.get(_key(actor, limited))
        return None if counted is None else counted.refusal_id

    def note_refusal(self, actor: Actor, limited: Limited, audit_id: str) -> None:
        """Note that a refusal was journaled: those that follow while the actor waits are part of
        it.
        """
        with self._guard:
            self._counts.setdefault(_key(actor, limited), _Count()).refusal_id = audit_id

    def _look(self, key: _Key) -> int:
        """Return when the calls that all processes have told of have passed their share."""
        if self._database is None or on_event_loop():
            return 0
        with self._database.read() as connection:
            return settings_rows.get_rate(connection, _name(key))

    def _share(self, key: _Key, counted: _Count, now: int) -> None:
        """Tell the other processes of a count, and learn of theirs; nobody waits for it."""
        if self._database is None or self._database.unwritable is not None:
            return
        with self._guard:
            told, counted.unshared = counted.unshared, 0

        def unit(tx: Connection) -> int:
            return settings_rows.add_rate(tx, _name(key), told, now)

        def finish(answer: Future[int]) -> None:
            with self._guard:
                if answer.exception() is None:
                    counted.due = max(counted.due, answer.result() + counted.unshared)
                else:
                    counted.unshared += told

        try:
            future = self._database.submit(unit, name="rate", writes=Writes.of(TALLY))
        except StorageError:  # it is being closed
            return
        future.add_done_callback(finish)


def _key(actor: Actor, limited: Limited) -> _Key:
    return actor.user, actor.agent, actor.organization, limited


def _name(key: _Key) -> str:
    """Return the name under which the database has a count: nobody's name is in it."""
    return hashlib.sha256(canonical_json([*key])).hexdigest()[:32]
