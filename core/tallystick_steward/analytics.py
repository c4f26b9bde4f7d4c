"""Analytics: the use of a tally, its errors, its calls and the safety of its memory, in rows; and
the timeline of one request, session or memory.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Literal

from tallystick.errors import NotFound
from tallystick.jobs import TALLY_ACTOR
from tallystick.memory import MemoryContext
from tallystick.records import Actor, AnalyticsRow, TimelineEntry
from tallystick.records.times import DAY, HOUR, MINUTE, as_datetime
from tallystick.storage import Connection
from tallystick.storage.rows import (
    journal,
    journal_reading,
    measures,
    operation_minutes,
    source_rows,
)
from tallystick.storage.rows.operation_minutes import NONE, PARTS, Minute, add_up, quantile
from tallystick_steward.events import may_see
from tallystick_steward.following import caller_of

Analysis = Literal["usage", "errors", "logs", "memory-safety", "hours", "days"]
_MOST_ENTRIES = 20_000
_FINE = frozenset({"done", "created", "duplicate", "skipped", "confident", "unsure", "changed"})
_SAFETY = (
    "memory.forget",
    "memory.recover",
    "memory.correct",
    "memory.erase",
    "memory.purge",
    "access.denied",
    "proposal.undone",
    "tally.freeze",
    "tally.thaw",
    "alert.raised",
    "repair.begin",
)
_FACTS = (
    "action",
    "alert",
    "state",
    "changed",
    "version",
    "kind",
    "operation",
    "health",
    "fields",
    "count",
    "job",
    "rule",
)
"""Details of entries that are told: names, numbers and ids."""


def analyse(context: MemoryContext, name: Analysis, since: int) -> list[AnalyticsRow]:
    """Return the rows of an analysis since a moment; the caller has checked who asks."""
    with context.store.database.read() as connection:
        if name == "logs":
            return _calls(connection, since)
        if name == "memory-safety":
            return _events(connection, since)
        minutes = operation_minutes.since(connection, since // MINUTE)
        if name == "usage":
            return [*_operations(minutes), *_sources(connection)]
        if name == "errors":
            return [*_operations(filter(_has_failed, minutes)), *_stages(connection)]
    return _in_time(minutes, HOUR if name == "hours" else DAY)


def _has_failed(each: Minute) -> bool:
    return each.parts[2] not in _FINE


def _operations(minutes: Iterable[Minute]) -> list[AnalyticsRow]:
    totals = add_up(minutes, lambda each: each.parts)
    return [
        AnalyticsRow(
            labels=dict(zip(PARTS, parts, strict=True)),
            count=total.calls,
            facts={"mean_ms": total.micros / total.calls / 1_000},
        )
        for parts, total in sorted(totals.items(), key=lambda each: -each[1].calls)
    ]


def _in_time(minutes: Sequence[Minute], width: int) -> list[AnalyticsRow]:
    """Return the operations of each hour or day, with what 95 % of the calls of remember took."""

    def place(each: Minute) -> int:
        return each.minute * MINUTE // width

    failed = add_up(filter(_has_failed, minutes), place)
    remembers = add_up((each for each in minutes if each.parts[0] == "remember"), place)
    return [
        AnalyticsRow(
            labels={"from": as_datetime(at * width).isoformat(timespec="minutes")},
            count=total.calls,
            facts={
                "failed": failed.get(at, NONE).calls,
                "remember_p95_ms": quantile(remembers.get(at, NONE).buckets, 0.95) / 1_000,
            },
        )
        for at, total in add_up(minutes, place).items()
    ]


def _stages(connection: Connection) -> list[AnalyticsRow]:
    """Return the jobs that did not end well, by the code of their stage."""
    bad = ("failed", "dead", "retry_scheduled")
    jobs = (each for each in measures.jobs_by_state(connection) if each.state in bad)
    return _rows({each[:3]: each.jobs for each in jobs}, "stage", "state", "code")


def _sources(connection: Connection) -> list[AnalyticsRow]:
    imports = source_rows.last_imports(connection)
    states = Counter((row["adapter"], row["state"]) for row in imports)
    return _rows(states, "connector", "state")


def _calls(connection: Connection, since: int) -> list[AnalyticsRow]:
    return [
        AnalyticsRow(
            labels={
                "stage": each.stage,
                "provider": each.provider,
                "model": each.model,
                "outcome": each.outcome,
            },
            count=each.calls,
            facts={"tokens": each.input_tokens + each.output_tokens, "micros": each.micros},
        )
        for each in measures.calls(connection, since)
    ]


def _events(connection: Connection, since: int) -> list[AnalyticsRow]:
    first = journal_reading.sequence_at(connection, since) - 1
    entries = journal_reading.after(
        connection, first, events=_SAFETY, limit=_MOST_ENTRIES, newest=True
    )
    counts = Counter((entry.event, caller_of(entry.actor), entry.surface) for entry in entries)
    return _rows(counts, "event", "actor", "surface")


def _rows(counts: Mapping[Any, int], *labels: str) -> list[AnalyticsRow]:
    """Return counts by tuples of the values of their labels, the most first."""
    return [
        AnalyticsRow(labels=dict(zip(labels, values, strict=True)), count=count)
        for values, count in Counter(counts).most_common()
    ]


def timeline(
    context: MemoryContext, actor: Actor, subject: str, *, limit: int
) -> list[TimelineEntry]:
    """Return what happened to a memory, in a request or session, in its order: decisions and
    automatic actions among it, each where the actor may read. Raises NotFound where there is none.
    """
    with context.store.database.read() as connection:
        entries = journal.about(connection, subject)
        acts = {entry.correlation_id for entry in entries if entry.correlation_id}
        known = {entry.audit_id for entry in entries}
        entries += [
            entry
            for entry in journal_reading.after(connection, 0, limit=_MOST_ENTRIES, newest=True)
            if entry.audit_id not in known
            and (
                subject in (entry.request_id, entry.session_id, entry.correlation_id)
                or entry.correlation_id in acts
            )
        ]
        may = partial(may_see, connection, context, actor)
        # A reason may quote what it is about: whoever inspects a scope and may not read it sees
        # what happened there, and not why.
        shown = [
            entry if may(entry, "read") else entry.replace(reason=None)
            for entry in entries
            if may(entry, "read", "inspect")
        ]
    if not shown:
        raise NotFound(f"Nothing is known of {subject[:80]!a} that {actor.user} may see.")
    shown.sort(key=lambda entry: entry.sequence)
    return [
        TimelineEntry(
            at=entry.at,
            event=entry.event,
            actor=caller_of(entry.actor),
            surface=entry.surface,
            subject_id=entry.subject_id,
            correlation_id=entry.correlation_id,
            reason=entry.reason,
            automatic=entry.surface == TALLY_ACTOR.surface,
            facts={name: entry.details[name] for name in _FACTS if name in entry.details},
            audit_id=entry.audit_id,
        )
        for entry in shown[-limit:]
    ]
