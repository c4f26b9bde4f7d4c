"""Measures of a tally: read where they are, and the durations of operations."""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tallystick.errors import Denied, InvalidInput
from tallystick.records import Actor
from tallystick.storage.rows import operation_minutes
from tallystick.storage.rows.operation_minutes import Minute, bucket_of, quantile
from tallystick.tally import Tally
from tallystick.tally.services import services_of
from tallystick_steward import Steward

OpenTally = Callable[..., Tally]
OPERATOR = Actor(user="olga", role="operator")
ADA = Actor(user="ada")


def _scraped(steward: Steward) -> dict[str, dict[tuple[tuple[str, str], ...], float]]:
    """Return what Prometheus reads: samples by name and labels."""
    found: dict[str, dict[tuple[tuple[str, str], ...], float]] = {}
    for family in text_string_to_metric_families(steward.exposition().decode()):
        for sample in family.samples:
            found.setdefault(sample.name, {})[tuple(sorted(sample.labels.items()))] = sample.value
    return found


def test_prometheus_reads_operations_by_mode_and_outcome(open_tally: OpenTally) -> None:
    with open_tally() as tally:
        ada = tally.bind(ADA)
        ada.remember("The heron nests at the weir.")
        ada.remember("The heron nests at the weir.", mode="raw")
        ada.recall("Where does the heron nest?")
        scraped = _scraped(Steward(tally.bind(OPERATOR)))

    def operations(operation: str, mode: str, outcome: str) -> float | None:
        key = (("mode", mode), ("operation", operation), ("outcome", outcome))
        return scraped["tallystick_operations_total"].get(key)

    assert operations("remember", "auto", "created") == 1
    assert operations("remember", "raw", "duplicate") == 1
    assert operations("recall", "", "confident") == 1
    assert scraped["tallystick_duplicates_suppressed_total"] == {(): 1}
    assert scraped["tallystick_memories"] == {(("state", "active"),): 1}
    assert scraped["tallystick_database_bytes"][()] > 0
    p95 = (("mode", "auto"), ("operation", "remember"), ("quantile", "0.95"))
    assert scraped["tallystick_operation_duration_seconds"][p95] > 0


def test_a_call_that_fails_is_counted_by_the_code_of_its_error(open_sqlite: OpenTally) -> None:
    with open_sqlite() as tally:
        with pytest.raises(InvalidInput):
            tally.bind(ADA).modify("none", nothing="here", reason="a test")
        minutes = services_of(tally).meter.unwritten()
    assert [each.kind for each in minutes] == ["modify..invalid_input"]


def test_measures_are_for_an_operator_of_the_whole_tally(open_sqlite: OpenTally) -> None:
    with open_sqlite() as tally, pytest.raises(Denied):
        Steward(tally.bind(ADA)).metrics()


def test_processes_add_up_in_one_row_a_minute_and_kind(open_tally: OpenTally) -> None:
    with open_tally() as tally:
        database = services_of(tally).store.database
        for micros in (1_000, 9_000):
            counted = [Minute(7, "recall..unsure", 1, micros, {bucket_of(micros): 1})]
            database.write(partial(operation_minutes.add, minutes=counted), name="test")
        database.write(lambda tx: operation_minutes.remove_before(tx, 8), name="test")
        with database.read() as connection:
            left = operation_minutes.since(connection, 0)
            [total] = operation_minutes.all_time(connection)
    assert left == []
    assert (total.kind, total.calls, total.micros) == ("recall..unsure", 2, 10_000)
    assert 9_000 <= quantile(total.buckets, 0.95) <= 9_900


def test_an_operation_is_one_line_in_the_log_without_content(
    open_sqlite: OpenTally, caplog: pytest.LogCaptureFixture
) -> None:
    with open_sqlite() as tally:
        ada = tally.bind(ADA, request_id="req-7")
        caplog.set_level(logging.INFO, logger="tallystick.operations")
        stored = ada.remember("Grey herons are private.")
        ada.recall("herons")
    [remembered, recalled] = [
        each.getMessage() for each in caplog.records if each.name == "tallystick.operations"
    ]
    for fact in (
        "operation='remember'",
        "outcome='created'",
        f"memory_id='{stored.id}'",
        "request_id='req-7'",
        "surface='python'",
        "scope_kind='private'",
        "duration_ms=",
    ):
        assert fact in remembered
    assert "operation='recall'" in recalled
    assert "heron" not in (remembered + recalled).lower()
