"""Following: what callers forgot, and wrote in the name of others, counted by the minute.

Each entry of the journal is read once by a process: a look counts what came since the last one.
"""

from __future__ import annotations

import threading
import weakref
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tallystick.memory import MemoryContext
from tallystick.records.times import DAY, MINUTE, SECOND
from tallystick.storage import Connection
from tallystick.storage.engine.database import Database
from tallystick.storage.rows import journal_reading, memories
from tallystick.storage.rows.journal_reading import Glance

QUARTER = 15 * MINUTE
_MOST = {"memory.forget": 50_000, "memory.add": 2_000}
"""Entries of a look that are counted, the newest."""
_YOUNG = 10 * SECOND
"""The age up to which several writers of a server may commit in another order."""

Counted = Mapping[tuple[str, int], int]
"""What was done, by the caller and the minute."""


@dataclass
class _Followed:
    """What this process has counted of one journal."""

    sequence: int = -1
    """The last entry that is counted; -1 before the first look."""
    forgot: Counter[tuple[str, int]] = field(default_factory=Counter)
    forged: Counter[tuple[str, int]] = field(default_factory=Counter)
    lock: threading.Lock = field(default_factory=threading.Lock)


_followed: weakref.WeakKeyDictionary[Database, _Followed] = weakref.WeakKeyDictionary()


def follow(context: MemoryContext, connection: Connection, now: int) -> tuple[Counted, Counted]:
    """Return who forgot how many memories of a day, and who named another user as the speaker of
    how many, in a private scope, where nobody else speaks to the tally; since the process began to
    look, and 15 minutes before.
    """
    known = _followed.setdefault(context.store.database, _Followed())
    last = journal_reading.last_sequence(connection)
    settled = journal_reading.settled_before(connection, last, now - _YOUNG)
    with known.lock:
        since = dict.fromkeys(_MOST, known.sequence)
        if known.sequence < 0:
            for event, span in (("memory.forget", DAY), ("memory.add", QUARTER)):
                since[event] = journal_reading.sequence_at(connection, now - span) - 1
        for event, counts in (("memory.forget", known.forgot), ("memory.add", known.forged)):
            counts.update(_count(context, connection, event, since[event], settled))
            for place in [each for each in counts if each[1] < (now - DAY) // MINUTE]:
                del counts[place]
        known.sequence = settled = max(*since.values(), settled)
        forgot, forged = Counter(known.forgot), Counter(known.forged)
    # What may still be joined by an earlier entry is counted anew with each look.
    for event, counts in (("memory.forget", forgot), ("memory.add", forged)):
        counts.update(_count(context, connection, event, settled, last))
    return forgot, forged


def _count(
    context: MemoryContext, connection: Connection, event: str, after: int, until: int
) -> Counter[tuple[str, int]]:
    if until <= after:
        return Counter()
    is_add = event == "memory.add"
    streams = "scope:private:" if is_add else ""
    found = journal_reading.glances(
        connection, event, after=after, until=until, streams=streams, limit=_MOST[event]
    )
    if is_add:
        found = _of_other_users(context, connection, found)
    return Counter((caller_of(each.actor), each.at // MINUTE) for each in found)


def _of_other_users(
    context: MemoryContext, connection: Connection, added: list[Glance]
) -> list[Glance]:
    """Return the memories that name another user of the tally as their speaker."""
    ids = [each.subject_id for each in added if each.subject_id is not None]
    speakers = memories.speakers_of(connection, ids)
    named = {
        each: speaker
        for each in added
        if (speaker := speakers.get(each.subject_id or "")) and speaker != each.actor.get("user")
    }
    users = context.gate.users_among(set(named.values())) if named else set()
    return [each for each, speaker in named.items() if speaker in users]


def caller_of(actor: Mapping[str, Any]) -> str:
    """Return the name of a caller in the journal: the user, with the agent that acted."""
    user, agent = actor.get("user"), actor.get("agent")
    return f"{user}/{agent}" if agent else str(user)
