"""Following: what callers forgot, and wrote in the name of others, counted by the minute.

Each entry of the journal is read once by a process: a look counts what came since the last one.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tallystick.memory import MemoryContext
from tallystick.records.times import DAY, MINUTE, SECOND
from tallystick.storage import Connection
from tallystick.storage.rows import journal_reading, memories
from tallystick.storage.rows.journal_reading import Glance

QUARTER = 15 * MINUTE
_YOUNG = 10 * SECOND
"""The age up to which several writers of a server may commit in another order."""

_Counts = Counter[tuple[str, int]]
"""What was done, by the caller and the minute."""


@dataclass
class _Followed:
    """What this process has counted of one event. Thread-safe."""

    event: str
    span: int
    """Microseconds of which the first look counts it."""
    most: int
    """Entries of a look that are counted, the newest."""
    sequence: int = -1
    """The last entry that is counted; -1 before the first look."""
    counts: _Counts = field(default_factory=Counter)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def follow(self, context: MemoryContext, connection: Connection, now: int) -> _Counts:
        """Count what came since the last look; return all of a day."""
        last = journal_reading.last_sequence(connection)
        settled = journal_reading.settled_before(connection, last, now - _YOUNG)
        with self.lock:
            if self.sequence < 0:
                self.sequence = journal_reading.sequence_at(connection, now - self.span) - 1
            settled = max(self.sequence, settled)
            self.counts += self._count(context, connection, self.sequence, settled)
            self.sequence = settled
            for place in [each for each in self.counts if each[1] < (now - DAY) // MINUTE]:
                del self.counts[place]
            # What may still be joined by an earlier entry is counted anew with each look.
            return self.counts + self._count(context, connection, settled, last)

    def _count(
        self, context: MemoryContext, connection: Connection, after: int, until: int
    ) -> _Counts:
        if until <= after:
            return Counter()
        is_add = self.event == "memory.add"
        glances = journal_reading.glances(
            connection,
            self.event,
            after=after,
            until=until,
            streams="scope:private:" if is_add else "",
            limit=self.most,
        )
        if is_add:
            glances = _of_other_users(context, connection, glances)
        return Counter((caller_of(each.actor), each.at // MINUTE) for each in glances)


def follow(
    context: MemoryContext, connection: Connection, now: int
) -> tuple[Counter[tuple[str, int]], Counter[str]]:
    """Return who forgot how many memories in each hour of a day, counted back, and who named
    another user as the speaker of how many, within 15 minutes, in a private scope, where nobody
    else speaks to the tally.
    """
    followed: tuple[_Followed, ...] = context.held.setdefault(
        "steward.followed",
        (_Followed("memory.forget", DAY, 50_000), _Followed("memory.add", QUARTER, 2_000)),
    )
    forgot, forged = Counter[tuple[str, int]](), Counter[str]()
    of_forget, of_add = (each.follow(context, connection, now) for each in followed)
    for (caller, minute), count in of_forget.items():
        forgot[caller, max(0, now // MINUTE - minute) // 60] += count
    for (caller, minute), count in of_add.items():
        if minute >= (now - QUARTER) // MINUTE:
            forged[caller] += count
    return forgot, forged


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
