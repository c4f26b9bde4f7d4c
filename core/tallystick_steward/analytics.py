"""Analytics: the use of a tally, its errors, its calls and the safety of its memory, in rows; and
the timeline of one request, session or memory.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Literal

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
from tallystick.storage.rows.operation_minutes import quantile
from tallystick_steward.events import may_see
from tallystick_steward.following import caller_of
from tallystick_steward.metrics import parts_of

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


def analyse(context: MemoryContext, name: str, since: int) -> list[AnalyticsRow]:
    """Return the rows of an analysis since a moment; the caller has checked who asks."""
    with context.store.database.read() as connection:
        if name == "usage":
            return [*_operations(connection, since, fine=True), *_sources(connection)]
        if name == "errors":
            return [*_operations(connection, since, fine=False), *_stages(connection)]
        if name in ("hours", "days"):
            return _in_time(connection, since, HOUR if name == "hours" else DAY)
        if name == "logs":
            return _calls(connection, since)
        return _events(connection, since, _SAFETY)


def _operations(connection: Connection, since: int, *, fine: bool) -> list[AnalyticsRow]:
    counts: Counter[str] = Counter()
    micros: Counter[str] = Counter()
    for each in operation_minutes.since(connection, since // MINUTE):
        if fine or parts_of(each.kind)["outcome"] not in _FINE:
            counts[each.kind] += each.calls
            micros[each.kind] += each.micros
    return [
        AnalyticsRow(
            labels=parts_of(kind), count=count, facts={"mean_ms": micros[kind] / count / 1_000}
        )
        for kind, count in counts.most_common()
    ]


def _in_time(connection: Connection, since: int, width: int) -> list[AnalyticsRow]:
    """Return the operations of each hour or day, with what 95 % of the calls of remember took."""
    counts: Counter[int] = Counter()
    failed: Counter[int] = Counter()
    buckets: dict[int, Counter[int]] = {}
    for each in operation_minutes.since(connection, since // MINUTE):
        place = each.minute * MINUTE // width
        counts[place] += each.calls
        parts = parts_of(each.kind)
        if parts["outcome"] not in _FINE:
            failed[place] += each.calls
        if parts["operation"] == "remember":
            buckets.setdefault(place, Counter()).update(each.buckets)
    return [
        AnalyticsRow(
            labels={"from": as_datetime(place * width).isoformat(timespec="minutes")},
            count=counts[place],
            facts={
                "failed": failed[place],
                "remember_p95_ms": quantile(buckets.get(place, {}), 0.95) / 1_000,
            },
        )
        for place in sorted(counts)
    ]


def _stages(connection: Connection) -> list[AnalyticsRow]:
    """Return the jobs that did not end well, by the code of their stage."""
    return [
        AnalyticsRow(
            labels={"stage": each.kind, "state": each.state, "code": each.code}, count=each.jobs
        )
        for each in measures.jobs_by_state(connection)
        if each.state in ("failed", "dead", "retry_scheduled")
    ]


def _sources(connection: Connection) -> list[AnalyticsRow]:
    counts: Counter[tuple[str, str]] = Counter()
    for row in source_rows.last_imports(connection):
        counts[row["adapter"], row["state"]] += 1
    return [
        AnalyticsRow(labels={"connector": connector, "state": state}, count=count)
        for (connector, state), count in counts.most_common()
    ]


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


def _events(connection: Connection, since: int, events: Iterable[str]) -> list[AnalyticsRow]:
    first = journal_reading.sequence_at(connection, since) - 1
    found = journal_reading.after(
        connection, first, events=tuple(events), limit=_MOST_ENTRIES, newest=True
    )
    counts = Counter((entry.event, caller_of(entry.actor), entry.surface) for entry in found)
    return [
        AnalyticsRow(labels={"event": event, "actor": actor, "surface": surface}, count=count)
        for (event, actor, surface), count in counts.most_common()
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
        shown = [
            entry
            for entry in entries
            if may_see(connection, context, actor, entry, "read", "inspect")
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
