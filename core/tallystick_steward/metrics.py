"""Metrics: the measures of a tally, made when they are asked for, and the text that Prometheus
scrapes.
"""

from __future__ import annotations

import weakref
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal

from tallystick.errors import MissingExtra
from tallystick.memory import MemoryContext
from tallystick.records import Measure, Sample
from tallystick.records.times import DAY, HOUR, MINUTE, SECOND
from tallystick.storage import Connection
from tallystick.storage.engine.database import Database
from tallystick.storage.rows import job_list, journal_reading, measures, operation_minutes
from tallystick.storage.rows.jobs import OPEN
from tallystick.storage.rows.operation_minutes import Minute, quantile
from tallystick_steward.readings import share_of

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_QUANTILES = (0.5, 0.95, 0.99)
_LATENCY_MINUTES = 15
"""Minutes of which durations are told."""
_BUSY = "busy_tally"


@dataclass
class _Counted:
    """The events of a journal that this process has counted: only what followed is read again."""

    sequence: int = 0
    events: Counter[str] = field(default_factory=Counter)

    def follow(self, connection: Connection) -> Counter[str]:
        last = journal_reading.last_sequence(connection)
        if last > self.sequence:
            self.events.update(journal_reading.count_events(connection, self.sequence))
            self.sequence = last
        return self.events


_counted: weakref.WeakKeyDictionary[Database, _Counted] = weakref.WeakKeyDictionary()


def measure(context: MemoryContext) -> list[Measure]:
    """Return every measure of a tally at this moment. Raises StorageError."""
    now, database = context.store.clock.now(), context.store.database
    counted = _counted.setdefault(database, _Counted())
    with database.read() as connection:
        events = counted.follow(connection)
        total = operation_minutes.all_time(connection)
        lately = operation_minutes.since(connection, now // MINUTE - _LATENCY_MINUTES)
        jobs = measures.jobs_by_state(connection)
        calls = measures.calls(connection)
        ages = measures.waiting_ages(connection)
        size = measures.database_bytes(connection)
        day = journal_reading.sequence_at(connection, now - DAY)
        newest = journal_reading.last_sequence(connection)
        stages = measures.call_durations(connection, now - HOUR)
        added = events["memory.add"]
        micros = sum(call.micros for call in calls if call.purpose == "learn")
        depth = {
            state: count for state, count in job_list.counts(connection).items() if state in OPEN
        }
        return [
            _counter("operations", "Operations by mode and outcome.", _calls(total)),
            _counter("operation_seconds", "Seconds that they took together.", _seconds(total)),
            _gauge(
                "operation_duration_seconds",
                "Durations of the last 15 minutes.",
                [*_durations(lately), *_of_calls(stages)],
            ),
            _gauge(
                "busy_ratio",
                "Operations of the last 15 minutes that found the database busy.",
                _ratio(lately, _BUSY),
            ),
            _gauge(
                "recall_confident_ratio", "Recalls that were likely to answer.", _confident(total)
            ),
            _counter("journal_events", "Entries of the journal.", _each("event", events)),
            _counter(
                "duplicates_suppressed", "Texts that were known already.", events["memory.seen"]
            ),
            _gauge(
                "update_add_ratio",
                "Changes of memories for each one added.",
                events["memory.update"] / added if added else 0,
            ),
            _gauge(
                "contradictions",
                "Pairs of memories that contradict one another.",
                measures.contradictions(connection),
            ),
            _gauge(
                "memories",
                "Memories by state.",
                _each("state", measures.memories_by_state(connection)),
            ),
            _gauge(
                "jobs",
                "Jobs by kind, state and code, as long as they are kept.",
                [
                    _sample(each.jobs, kind=each.kind, state=each.state, code=each.code)
                    for each in jobs
                ],
            ),
            _gauge("queue_depth", "Jobs that have not ended.", _each("state", depth)),
            _gauge(
                "queue_age_seconds",
                "How long jobs that are due have waited.",
                [_sample(share_of(ages, each) / SECOND, quantile=str(each)) for each in _QUANTILES],
            ),
            _gauge(
                "jobs_retried",
                "Jobs that were tried again, by failed attempts.",
                _each("attempt", measures.retries(connection)),
            ),
            _gauge("extraction_success_ratio", "Jobs of learning that ended well.", _success(jobs)),
            _gauge(
                "decision_parse_failures",
                "Answers of models that were not usable.",
                sum(each.calls for each in calls if each.outcome == "model_failed"),
            ),
            _gauge(
                "provider_calls",
                "Calls of models, as long as they are kept.",
                [
                    _sample(
                        each.calls,
                        stage=each.stage,
                        provider=each.provider,
                        model=each.model,
                        outcome=each.outcome,
                    )
                    for each in calls
                ],
            ),
            _gauge("provider_tokens", "Tokens of these calls.", _tokens(calls)),
            _gauge(
                "cost_per_1000_remembers",
                "Cost of learning for 1,000 memories, in the currency of the prices.",
                micros / 1_000_000 / added * 1_000 if added else 0,
            ),
            _gauge("database_bytes", "Bytes of the database.", size),
            _gauge(
                "database_growth_bytes_per_day",
                "Growth of the last day, by its share of the journal.",
                size * max(0, newest - day + 1) / newest if newest else 0,
            ),
        ]


def exposition(found: Iterable[Measure]) -> bytes:
    """Return measures in the text format of Prometheus. Raises MissingExtra."""
    try:
        from prometheus_client import CollectorRegistry, generate_latest
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
    except ImportError as error:
        raise MissingExtra("prometheus_client", "steward") from error
    families = []
    for each in found:
        make = CounterMetricFamily if each.kind == "counter" else GaugeMetricFamily
        labels = sorted({name for sample in each.samples for name in sample.labels})
        family = make(each.name, each.help, labels=labels)
        for sample in each.samples:
            family.add_metric([sample.labels.get(name, "") for name in labels], sample.value)
        families.append(family)

    class _Made:
        def collect(self) -> list[CounterMetricFamily | GaugeMetricFamily]:
            return families

    registry = CollectorRegistry()
    registry.register(_Made())
    return generate_latest(registry)


def parts_of(kind: str) -> dict[str, str]:
    """Return the labels of a kind of operations."""
    operation, mode, outcome = (*kind.split("."), "", "")[:3]
    return {"operation": operation, "mode": mode, "outcome": outcome}


def _calls(minutes: Iterable[Minute]) -> list[Sample]:
    return [_sample(each.calls, **parts_of(each.kind)) for each in minutes]


def _seconds(minutes: Iterable[Minute]) -> list[Sample]:
    return [_sample(each.micros / SECOND, **parts_of(each.kind)) for each in minutes]


def _durations(minutes: Iterable[Minute]) -> list[Sample]:
    buckets: dict[tuple[str, str], Counter[int]] = {}
    for each in minutes:
        parts = parts_of(each.kind)
        buckets.setdefault((parts["operation"], parts["mode"]), Counter()).update(each.buckets)
    return [
        _sample(
            quantile(counted, share) / SECOND, operation=operation, mode=mode, quantile=str(share)
        )
        for (operation, mode), counted in sorted(buckets.items())
        for share in _QUANTILES
    ]


_STAGES = {"learn": "extraction", "judge": "decision"}


def _of_calls(stages: Mapping[str, list[int]]) -> list[Sample]:
    return [
        _sample(
            share_of(durations, share) / 1_000,
            operation=_STAGES.get(stage, stage),
            mode="",
            quantile=str(share),
        )
        for stage, durations in sorted(stages.items())
        for share in _QUANTILES
    ]


def _tokens(calls: Iterable[measures.Calls]) -> list[Sample]:
    counted: Counter[tuple[str, str]] = Counter()
    for each in calls:
        counted[each.provider, "input"] += each.input_tokens
        counted[each.provider, "output"] += each.output_tokens
    return [
        _sample(count, provider=provider, direction=direction)
        for (provider, direction), count in sorted(counted.items())
    ]


def _ratio(minutes: Iterable[Minute], outcome: str) -> float:
    counted = [(each.calls, each.kind.endswith(f".{outcome}")) for each in minutes]
    total = sum(count for count, _ in counted)
    return sum(count for count, is_one in counted if is_one) / total if total else 0.0


def _confident(minutes: Iterable[Minute]) -> float:
    of_recall = [each for each in minutes if each.kind in ("recall..confident", "recall..unsure")]
    return _ratio(of_recall, "confident")


def _success(jobs: Iterable[measures.Ended]) -> float:
    counted = Counter[str]()
    for each in jobs:
        if each.kind == "learn":
            counted[each.state] += each.jobs
    good, bad = counted["done"] + counted["empty"], counted["failed"] + counted["dead"]
    return good / (good + bad) if good + bad else 1.0


def _each(label: str, counts: Mapping[Any, int]) -> list[Sample]:
    return [_sample(count, **{label: str(name)}) for name, count in sorted(counts.items())]


def _sample(value: float, **labels: str) -> Sample:
    return Sample(labels=labels, value=value)


def _measure(
    kind: Literal["counter", "gauge"], name: str, help: str, found: float | Sequence[Sample]
) -> Measure:
    samples = (_sample(found),) if isinstance(found, int | float) else tuple(found)
    return Measure(name=f"tallystick_{name}", help=help, kind=kind, samples=samples)


_counter, _gauge = partial(_measure, "counter"), partial(_measure, "gauge")
