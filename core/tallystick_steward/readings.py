"""Readings: what health and alerts are judged by, from one snapshot of the rows that are there."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from tallystick.jobs.embedding import Unembedded, unembedded
from tallystick.memory import MemoryContext
from tallystick.records.times import DAY, HOUR, MINUTE, SECOND
from tallystick.storage import Connection
from tallystick.storage.rows import (
    job_list,
    journal,
    journal_reading,
    measures,
    operation_minutes,
    scopes,
    settings_rows,
)
from tallystick.storage.rows.measures import Calls, Ended
from tallystick.storage.rows.operation_minutes import Minute, add_up, quantile, share_with
from tallystick.upkeep.unfinished import PENDING
from tallystick_steward.following import QUARTER, caller_of, follow

_FREEZES = {"mutations": scopes.FROZEN, "autonomy": scopes.AUTONOMY_FROZEN}
_OVER = ("done", "empty", "failed", "dead")
OF_THE_TEXT = frozenset({"text_refused", "model_refused"})
"""Codes of jobs that failed by their own text: nothing else is wrong then."""


@dataclass(frozen=True)
class Spike:
    """A caller who did much more within an hour than in the median hour of the day before."""

    caller: str
    count: int
    median: float


@dataclass(frozen=True)
class Readings:
    """The state of a tally at one moment. Times are microseconds."""

    now: int
    ages: Sequence[int]
    """How long each job that is due has waited, in order."""
    ended: Sequence[Ended]
    """Jobs that were moved within 15 minutes."""
    expired_leases: int
    waiting: int
    """Jobs that wait for a provider that is away."""
    minutes: Sequence[Minute]
    """Operations of the last day."""
    calls: Sequence[Calls]
    """Calls of models within an hour."""
    unwritable: str | None
    erasure_pending: bool
    free_disk: float | None
    """The share of the disk that is free; None for a database on a server."""
    last_backup: int | None
    made_at: int | None
    """The time of the first entry of the tally's journal that is left."""
    unembedded_scopes: int
    has_embedder: bool
    deletes: Sequence[Spike]
    reads: Sequence[Spike]
    undone: int
    forged: Mapping[str, int]
    """Memories of 15 minutes by the caller who named another user as their speaker."""
    frozen: Sequence[str]

    @property
    def dead(self) -> int:
        """Jobs that died within 15 minutes, but for those that failed by their own text."""
        return sum(
            each.jobs
            for each in self.ended
            if each.state in ("failed", "dead") and each.code not in OF_THE_TEXT
        )

    @property
    def dead_percent(self) -> float:
        """Of the jobs that ended within 15 minutes."""
        over = sum(each.jobs for each in self.ended if each.state in _OVER)
        return 100 * self.dead / over if over else 0.0

    @property
    def age_p95(self) -> float:
        """How long 95 % of the jobs that are due have waited at most, seconds."""
        return share_of(self.ages, 0.95) / SECOND

    def busy_percent(self, minutes: int, *, before: int = 0) -> float:
        """Return how many operations found the database busy, of so many minutes up to `before`."""
        return 100 * share_with(self._within(minutes, before), "busy_tally")

    def p95_ms(self, prefix: str, minutes: int, *, before: int = 0) -> float | None:
        """Return the milliseconds that 95 % of the operations with a prefix took at most; None
        where there was none.
        """
        within = (each for each in self._within(minutes, before) if each.kind.startswith(prefix))
        total = add_up(within, lambda each: prefix).get(prefix)
        return None if total is None else quantile(total.buckets, 0.95) / 1_000

    def _within(self, minutes: int, before: int) -> list[Minute]:
        last = self.now // MINUTE - before
        return [each for each in self.minutes if last - minutes < each.minute <= last]


def share_of(ordered: Sequence[int], share: float) -> int:
    """Return the value that a share of ordered values do not exceed; 0 of none."""
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else 0


def read(context: MemoryContext) -> Readings:
    """Return the readings of this moment. Raises StorageError."""
    now, limits = context.store.clock.now(), context.settings.alerts
    folder = context.store.location.folder
    with context.store.database.read() as connection:
        database_now, leased = measures.leases(connection)
        forgot, forged = follow(context, connection, now)
        given = Counter[tuple[str, int]]()
        for actor, hour, count in journal_reading.read_counts(connection, now, HOUR):
            given[caller_of(json.loads(actor)), hour] += count
        backups = journal.of_tally(connection, "tally.backup", limit=1)
        first = journal.within(connection, "tally", limit=1, newest=False)
        return Readings(
            now=now,
            ages=measures.waiting_ages(connection),
            ended=measures.jobs_by_state(connection, database_now - QUARTER),
            expired_leases=sum(each.due_at <= database_now for each in leased),
            waiting=sum(each.jobs for each in job_list.waiting_by_code(connection)),
            minutes=operation_minutes.since(connection, (now - DAY) // MINUTE),
            calls=measures.calls(connection, now - HOUR),
            unwritable=context.store.database.unwritable,
            erasure_pending=settings_rows.get_setting(connection, PENDING) == "1",
            free_disk=None if folder is None else _free_share(str(folder)),
            last_backup=backups[0].at if backups else None,
            made_at=first[0].at if first else None,
            unembedded_scopes=len(lacking_vectors(connection, context)),
            has_embedder=context.settled_fingerprint() is not None,
            deletes=_spikes(forgot, limits.deletes, limits.spike_factor),
            reads=_spikes(given, limits.reads, limits.spike_factor),
            undone=measures.count_undone(connection, now - DAY),
            forged={caller: count for caller, count in forged.items() if count >= limits.forged},
            frozen=[
                what for what, name in _FREEZES.items() if scopes.is_frozen(connection, name=name)
            ],
        )


def lacking_vectors(connection: Connection, context: MemoryContext) -> list[Unembedded]:
    """Return the scopes that have texts without a vector; none where no embedder is on this
    machine.
    """
    is_here = context.local_embedder and context.settled_fingerprint() is not None
    return unembedded(connection, context) if is_here else []


def _free_share(folder: str) -> float | None:
    try:
        usage = shutil.disk_usage(folder)
    except OSError:
        return None
    return usage.free / usage.total if usage.total else None


def _spikes(counted: Mapping[tuple[str, int], int], least: int, factor: float) -> list[Spike]:
    """Return the callers who did at least so much within the hour, and so many times the median of
    their hours before; by the caller and the hour, counted back.
    """
    spikes = []
    for caller in sorted({caller for caller, _ in counted}):
        count = counted.get((caller, 0), 0)
        usual = median(counted.get((caller, hour), 0) for hour in range(1, 24))
        if count >= least and count > factor * usual:
            spikes.append(Spike(caller, count, usual))
    return spikes
