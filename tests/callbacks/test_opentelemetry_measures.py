"""Measures of a tally as OpenTelemetry metrics."""

from __future__ import annotations

from pathlib import Path

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader

from tallystick.errors import Denied
from tallystick.records import Actor
from tallystick.tally import Tally
from tallystick_opentelemetry import observe_measures


def test_a_meter_has_the_measures_that_prometheus_has(tmp_path: Path) -> None:
    reader = InMemoryMetricReader()
    provider = MeterProvider(metric_readers=[reader])
    with Tally.open(tmp_path, background=False) as tally:
        tally.bind().remember("The heron nests at the weir.")
        observe_measures(tally.bind(), provider)
        data = reader.get_metrics_data()
        assert data is not None
        values = {
            metric.name: [point.value for point in metric.data.data_points]  # type: ignore[union-attr]
            for resource in data.resource_metrics
            for scope in resource.scope_metrics
            for metric in scope.metrics
        }
        with pytest.raises(Denied):
            observe_measures(tally.bind(Actor(user="bob")), provider)
    provider.shutdown()
    assert values["tallystick_memories"] == [1]
    assert values["tallystick_operations"] == [1]
