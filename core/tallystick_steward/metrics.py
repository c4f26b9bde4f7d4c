"""Metrics: the measures of a tally, made when they are asked for, and the text that Prometheus
scrapes.
"""

from __future__ import annotations

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
from tallystick.storage.rows import job_list, journal_reading, measures, operation_minutes
from tallystick.storage.rows.jobs import OPEN
from tallystick.storage.rows.operation_minutes import PARTS, Minute, add_up, quantile, share_with
from tallystick_steward.readings import share_of

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_QUANTILES = (0.5, 0.95, 0.99)
_LATENCY_MINUTES = 15
"""Minutes of which durations are told."""
_STAGES = {"learn": "extraction", "judge": "decision"}
"""Jobs that call models, by another name than their kind."""

_ANSWERED = ("recall..confident", "recall..unsure")

Values = Mapping[Any, float]
"""The values of a measure, by tuples of the values of its labels."""


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


def measure(context: MemoryContext) -> list[Measure]:
    """Return every measure of a tally at this moment. Raises StorageError."""
    now = context.store.clock.now()
    counted: _Counted = context.held.setdefault("steward.counted", _Counted())
    with context.store.database.read() as connection:
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
        depth = job_list.counts(connection)
        retries = measures.retries(connection)
        memories = measures.memories_by_state(connection)
        contradictions = measures.contradictions(connection)
    added = events["memory.add"]
    of_calls, tokens = Counter[tuple[str, ...]](), Counter[tuple[str, str]]()
    for each in calls:
        of_calls[each.stage, each.provider, each.model, each.outcome] += each.calls
        tokens[each.provider, "input"] += each.input_tokens
        tokens[each.provider, "output"] += each.output_tokens
    micros = sum(each.micros for each in calls if each.purpose == "learn")
    return [
        _counter(
            "operations",
            "Operations by mode and outcome.",
            {each.parts: each.calls for each in total},
            *PARTS,
        ),
        _counter(
            "operation_seconds",
            "Seconds that they took together.",
            {each.parts: each.micros / SECOND for each in total},
            *PARTS,
        ),
        _gauge(
            "operation_duration_seconds",
            "Durations of the last 15 minutes.",
            {**_durations(lately), **_call_durations(stages)},
            *("operation", "mode", "quantile"),
        ),
        _gauge(
            "busy_ratio",
            "Operations of the last 15 minutes that found the database busy.",
            share_with(lately, "busy_tally"),
        ),
        _gauge(
            "recall_confident_ratio",
            "Recalls that were likely to answer.",
            share_with((each for each in total if each.kind in _ANSWERED), "confident"),
        ),
        _counter("journal_events", "Entries of the journal.", _by(events), "event"),
        _counter("duplicates_suppressed", "Texts that were known already.", events["memory.seen"]),
        _gauge(
            "update_add_ratio",
            "Changes of memories for each one added.",
            events["memory.update"] / added if added else 0,
        ),
        _gauge("contradictions", "Pairs of memories that contradict one another.", contradictions),
        _gauge("memories", "Memories by state.", _by(memories), "state"),
        _gauge(
            "jobs",
            "Jobs by kind, state and code, as long as they are kept.",
            {(each.kind, each.state, each.code): each.jobs for each in jobs},
            *("kind", "state", "code"),
        ),
        _gauge(
            "queue_depth",
            "Jobs that have not ended.",
            {(state,): count for state, count in depth.items() if state in OPEN},
            "state",
        ),
        _gauge(
            "queue_age_seconds",
            "How long jobs that are due have waited.",
            {(share,): share_of(ages, share) / SECOND for share in _QUANTILES},
            "quantile",
        ),
        _gauge(
            "jobs_retried",
            "Jobs that were tried again, by failed attempts.",
            _by(retries),
            "attempt",
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
            of_calls,
            *("stage", "provider", "model", "outcome"),
        ),
        _gauge("provider_tokens", "Tokens of these calls.", tokens, "provider", "direction"),
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


def exposition(measured: Iterable[Measure]) -> bytes:
    """Return measures in the text format of Prometheus. Raises MissingExtra."""
    try:
        from prometheus_client import CollectorRegistry, generate_latest
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
    except ImportError as error:
        raise MissingExtra("prometheus_client", "steward") from error
    families = []
    for each in measured:
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


def _durations(minutes: Iterable[Minute]) -> Values:
    return {
        (operation, mode, share): quantile(total.buckets, share) / SECOND
        for (operation, mode), total in add_up(minutes, lambda each: each.parts[:2]).items()
        for share in _QUANTILES
    }


def _call_durations(stages: Mapping[str, Sequence[int]]) -> Values:
    return {
        (_STAGES.get(stage, stage), "", share): share_of(milliseconds, share) / 1_000
        for stage, milliseconds in stages.items()
        for share in _QUANTILES
    }


def _success(jobs: Iterable[measures.Ended]) -> float:
    counts = Counter[str]()
    for each in jobs:
        if each.kind == "learn":
            counts[each.state] += each.jobs
    good, bad = counts["done"] + counts["empty"], counts["failed"] + counts["dead"]
    return good / (good + bad) if good + bad else 1.0


def _by(counts: Mapping[Any, int]) -> Values:
    return {(name,): count for name, count in counts.items()}


def _measure(
    kind: Literal["counter", "gauge"],
    name: str,
    help: str,
    values: float | Values,
    *labels: str,
) -> Measure:
    by_labels = values if isinstance(values, Mapping) else {(): values}
    samples = [
        Sample(labels=dict(zip(labels, map(str, key), strict=True)), value=value)
        for key, value in sorted(by_labels.items())
    ]
    return Measure(name=f"tallystick_{name}", help=help, kind=kind, samples=tuple(samples))


_counter, _gauge = partial(_measure, "counter"), partial(_measure, "gauge")
