"""Moments are taken as people write them, and given back as microseconds and as datetimes."""

from __future__ import annotations

import contextlib
import inspect
import time
from datetime import UTC, date, datetime, timedelta, timezone
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tallystick import NewMemory, Tally, records
from tallystick.errors import InvalidInput, SettingsError
from tallystick.records import Record, as_datetime, microseconds
from tallystick.records.times import DatetimeOf
from tallystick.settings import Settings

BERLIN = ZoneInfo("Europe/Berlin")
NOON = 1_767_351_600_000_000
"""2026-01-02, 12:00 in Berlin."""


@pytest.mark.parametrize(
    "moment",
    [
        datetime(2026, 1, 2, 12, tzinfo=BERLIN),
        datetime(2026, 1, 2, 11, tzinfo=UTC),
        datetime(2026, 1, 2, 12),
        "2026-01-02T12:00:00+01:00",
        "2026-01-02T11:00:00Z",
        "2026-01-02 12:00",
        NOON,
    ],
)
def test_one_moment_is_the_same_however_it_is_written(moment: Any) -> None:
    assert microseconds(moment, BERLIN) == NOON


def test_a_date_is_its_first_moment_in_the_zone_of_the_tally() -> None:
    midnight = microseconds(datetime(2026, 1, 2, tzinfo=BERLIN))

    assert microseconds(date(2026, 1, 2), BERLIN) == midnight
    assert microseconds("2026-01-02", BERLIN) == midnight


@given(
    st.datetimes(
        timezones=st.sampled_from([UTC, BERLIN, timezone(timedelta(hours=-9))]),
        allow_imaginary=False,
    )
)
def test_a_datetime_comes_back_as_the_same_moment(moment: datetime) -> None:
    try:
        stored = microseconds(moment)
    except InvalidInput:
        assert not 1 < moment.year < 9999
        return
    assert as_datetime(stored) == moment


@pytest.mark.parametrize(
    ("moment", "says"),
    [
        (1_700_000_000, "looks like seconds.*Multiply by 1_000_000"),
        (1_700_000_000_000, "looks like milliseconds.*Multiply by 1_000,"),
        (1.5, "not float.*time.time.. gives seconds"),
        (True, "not bool"),
        ("yesterday", "no ISO 8601 text"),
        (timedelta(days=1), "not timedelta.*a distance"),
        (10**30, "no moment of the years 1 to 9999"),
        ([], "not list"),
    ],
)
def test_what_is_no_moment_is_refused_with_what_to_write(moment: Any, says: str) -> None:
    with pytest.raises(InvalidInput, match=says) as refused:
        microseconds(moment, name="since")

    assert refused.value.argument == "since"
    assert refused.value.facts() == {"argument": "since"}
    with Tally.open(":memory:") as tally, pytest.raises(InvalidInput, match=says) as in_a_record:
        tally.bind().remember_many([NewMemory(content="x", occurred_at=moment)])
    assert in_a_record.value.argument == "occurred_at"


def test_a_record_keeps_a_moment_without_an_offset_until_a_tally_knows_the_zone() -> None:
    new = NewMemory(content="x", occurred_at=datetime(2026, 1, 2, 12), expires_at="P1D")

    assert NewMemory.loads(new.dumps()) == new
    resolved = new.at(NOON, BERLIN)
    assert (resolved.occurred_at, resolved.expires_at) == (NOON, NOON + 86_400_000_000)


def test_keyword_arguments_mappings_and_records_mean_the_same_moment(tmp_path: Path) -> None:
    settings = Settings.read(time_zone="Europe/Berlin")
    with Tally.open(tmp_path / "t", settings=settings) as tally:
        mine = tally.bind()
        at = datetime(2026, 1, 2, 12)
        mine.remember("as an argument", occurred_at=at)
        mine.remember_many(
            [
                {"content": "in a mapping", "occurred_at": "2026-01-02T12:00"},
                NewMemory(content="in a record", occurred_at=at),
            ]
        )

        assert {memory.occurred_at for memory in mine.memories()} == {NOON}
        assert {memory.occurred_time for memory in mine.memories()} == {
            datetime(2026, 1, 2, 11, tzinfo=UTC)
        }


def test_a_timedelta_is_so_long_ago_in_a_filter_and_so_far_ahead_in_an_end(tmp_path: Path) -> None:
    with Tally.open(tmp_path / "t") as tally:
        mine = tally.bind()
        now = as_datetime(tally.now())
        mine.remember("The heron nested today.", occurred_at=now)
        mine.remember("The heron nested in May.", occurred_at=now - timedelta(days=60))
        last_week = mine.recall("when did the heron nest?", since=timedelta(days=7))
        kept = mine.remember("The gate code is 7341.", expires_at=timedelta(days=1))
        mine.modify(kept.id, reason="longer", expires_at=timedelta(days=2))

        assert [hit.content for hit in last_week] == ["The heron nested today."]
        left = mine.get(kept.id).expires_time
        assert left is not None
        assert timedelta(days=1) < left - now <= timedelta(days=2, hours=1)


@pytest.mark.parametrize("away", [timedelta.max, timedelta.min])
@pytest.mark.parametrize("back", [True, False])
def test_a_distance_beyond_every_calendar_is_refused_in_both_directions(
    away: timedelta, *, back: bool
) -> None:
    with pytest.raises(InvalidInput, match=r"`until`.* no moment of the years 1 to 9999"):
        microseconds(away, name="until", now=0, back=back)


@pytest.mark.parametrize("zone", ["America/New_York", "Asia/Tokyo"])
@pytest.mark.parametrize("moment", [datetime.min, datetime.max])
def test_the_ends_of_the_calendar_are_moments_or_refused_in_the_zone_of_any_machine(
    moment: datetime, zone: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TZ", zone)
    time.tzset()
    try:
        local = Settings.read(time_zone="local").zone
        with contextlib.suppress(InvalidInput):
            assert microseconds(moment, local)
    finally:
        monkeypatch.undo()
        time.tzset()


@pytest.mark.parametrize("zone", ["Mars/Olympus", "", "../etc/passwd"])
def test_a_time_zone_that_there_is_not_is_refused(zone: str) -> None:
    with pytest.raises(SettingsError, match=r"time_zone.*names no time zone"):
        Settings.read(time_zone=zone)


def test_every_moment_of_a_record_is_offered_as_a_datetime_too() -> None:
    inputs = {records.NewMemory, records.ContextItem, records.SpaceMember, records.Limited}
    without: list[str] = []
    for record in vars(records).values():
        if not (inspect.isclass(record) and issubclass(record, Record)) or record in inputs:
            continue
        offered = {
            member.field for member in vars(record).values() if isinstance(member, DatetimeOf)
        }
        for base in record.__mro__[1:]:
            offered |= {m.field for m in vars(base).values() if isinstance(m, DatetimeOf)}
        names = {
            name
            for name in record.model_fields
            if name in ("at", "freshness_ts", "last_accessed", "valid_from", "as_of")
            or name.endswith(("_at", "_until"))
        }
        without += [f"{record.__name__}.{name}" for name in sorted(names - offered)]

    assert without == []
