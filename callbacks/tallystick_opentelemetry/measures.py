"""Measures of a tally as OpenTelemetry metrics, read when the reader of metrics collects."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from functools import partial

from opentelemetry.metrics import CallbackOptions, MeterProvider, Observation

from tallystick.records import Measure
from tallystick.tally import BoundTally
from tallystick_steward import Steward

_SAME_SECONDS = 5.0
"""Seconds for which one reading serves all instruments of a collection."""


def observe_measures(bound: BoundTally, provider: MeterProvider) -> None:
    """Let the meters of `provider` have the measures of a tally, under the names that Prometheus
    has, as an operator. Raises Denied.

    They are read from the tally when metrics are collected, and at no other time.
    """
    reading = _Reading(Steward(bound).metrics)
    meter = provider.get_meter("tallystick.steward")
    for each in reading.measures().values():
        read = partial(_observations, reading, each.name)
        make = (
            meter.create_observable_counter
            if each.kind == "counter"
            else meter.create_observable_gauge
        )
        make(each.name, callbacks=[read], description=each.help)


class _Reading:
    """The measures of one collection. Thread-safe."""

    def __init__(self, read: Callable[[], list[Measure]]) -> None:
        self._read = read
        self._guard = threading.Lock()
        self._at: float | None = None
        self._measures: dict[str, Measure] = {}

    def measures(self) -> dict[str, Measure]:
        """Return the measures by name, read again where they are older than a collection."""
        with self._guard:
            now = time.monotonic()
            if self._at is None or now - self._at > _SAME_SECONDS:
                self._measures = {each.name: each for each in self._read()}
                self._at = now
            return self._measures


def _observations(reading: _Reading, name: str, options: CallbackOptions) -> Iterable[Observation]:
    for sample in reading.measures()[name].samples:
        yield Observation(sample.value, dict(sample.labels))
