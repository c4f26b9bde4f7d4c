"""What is told from another date, ranges of days, and parts of months and years."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tallystick.ranking import spans
from tallystick.ranking.time_spans import ALWAYS, DAY

NOW = int(datetime(2023, 11, 20, 12, tzinfo=UTC).timestamp()) * 1_000_000


def days_named(query: str) -> list[tuple[str, str]]:
    """The first and the last day of each span, `…` for none."""
    return [(_day(span.start), _day(span.end - 1)) for span in spans(query, NOW)]


def _day(moment: int) -> str:
    if not -ALWAYS < moment < ALWAYS - 1:
        return "…"
    return f"{datetime.fromtimestamp(moment // 1_000_000, tz=UTC):%Y-%m-%d}"


@pytest.mark.parametrize(
    ("query", "first", "last"),
    [
        ("What did John do the week before August 3, 2023?", "2023-07-27", "2023-08-02"),
        ("Where was Tim in the week before 16 November 2023?", "2023-11-09", "2023-11-15"),
        ("the week after 7 July 2023", "2023-07-08", "2023-07-14"),
        ("in the week of August 3, 2023", "2023-07-31", "2023-08-06"),
        ("the last week before 3 June 2023", "2023-05-27", "2023-06-02"),
        ("What broke the day after 3 August?", "2023-08-04", "2023-08-04"),
        ("two days before May 5", "2023-05-03", "2023-05-03"),
        ("a week after 3 June 2023", "2023-06-04", "2023-06-10"),
        ("2 weeks before June 3, 2023", "2023-05-20", "2023-05-26"),
        ("the 2 weeks before June 3, 2023", "2023-05-20", "2023-06-02"),
        ("the 3 months after May 2022", "2022-06-01", "2022-08-31"),
        ("the month prior to June 2023", "2023-05-01", "2023-05-31"),
        ("the year before 2020", "2019-01-01", "2019-12-31"),
        ("a month after 31 January 2023", "2023-02-01", "2023-02-28"),
        # A Saturday, a Sunday and a Monday: what has begun is neither before nor after.
        ("the weekend before 3 June 2023", "2023-05-27", "2023-05-28"),
        ("the weekend before 4 June 2023", "2023-05-27", "2023-05-28"),
        ("the weekend before 5 June 2023", "2023-06-03", "2023-06-04"),
        ("the weekend of 1 June 2023", "2023-06-03", "2023-06-04"),
        ("the weekend after 3 June 2023", "2023-06-10", "2023-06-11"),
        ("the weekend after 2 June 2023", "2023-06-03", "2023-06-04"),
        ("the Friday before 20 October 2023", "2023-10-13", "2023-10-13"),
        ("the Friday before 22 October 2023", "2023-10-20", "2023-10-20"),
        ("the Friday following 20 October 2023", "2023-10-27", "2023-10-27"),
        ("two Fridays before 22 October 2023", "2023-10-13", "2023-10-13"),
    ],
)
def test_what_is_told_from_another_date(query: str, first: str, last: str) -> None:
    assert days_named(query) == [(first, last)]


@pytest.mark.parametrize(
    ("query", "first", "last"),
    [
        ("since the week before 3 June 2023", "2023-05-27", "…"),
        ("until the day before 3 May 2023", "…", "2023-05-02"),
        ("every day after 3 May 2023", "2023-05-04", "…"),
        ("How many days after 3 May 2023 was it?", "2023-05-04", "…"),
        ("before August 3, 2023", "…", "2023-08-02"),
        ("after Mar 3rd", "2023-03-04", "…"),
    ],
)
def test_what_has_one_end_stays_open(query: str, first: str, last: str) -> None:
    assert days_named(query) == [(first, last)]


@pytest.mark.parametrize(
    ("query", "first", "last"),
    [
        ("Where was John between August 11 and August 15 2023?", "2023-08-11", "2023-08-15"),
        ("from August 11 to 15, 2022", "2022-08-11", "2022-08-15"),
        ("August 11-15, 2023", "2023-08-11", "2023-08-15"),
        ("between 11 and 15 August 2023", "2023-08-11", "2023-08-15"),
        ("the 5th to the 7th of May 2021", "2021-05-05", "2021-05-07"),
        ("5–6 May", "2023-05-05", "2023-05-06"),
        ("December 5 to 6", "2022-12-05", "2022-12-06"),
        ("between May 5 and May 12", "2023-05-05", "2023-05-12"),
        ("between 20 December and 5 January 2023", "2022-12-20", "2023-01-05"),
    ],
)
def test_a_range_of_days_is_one_span(query: str, first: str, last: str) -> None:
    assert days_named(query) == [(first, last)]


@pytest.mark.parametrize("query", ["May 5 and 12 others", "from May 15 to 12", "on May 5 to 2023"])
def test_what_is_no_range_is_none(query: str) -> None:
    assert days_named(query)[0] in {("2023-05-05", "2023-05-05"), ("2023-05-15", "2023-05-15")}


@pytest.mark.parametrize(
    ("query", "first", "last"),
    [
        ("the first half of September 2022", "2022-09-01", "2022-09-15"),
        ("the second half of February 2023", "2023-02-16", "2023-02-28"),
        ("the second half of 2022", "2022-07-01", "2022-12-31"),
        ("in early 2023", "2023-01-01", "2023-04-30"),
        ("mid-2023", "2023-05-01", "2023-08-31"),
        ("at the end of 2022", "2022-09-01", "2022-12-31"),
        ("the last quarter of 2022", "2022-10-01", "2022-12-31"),
        ("Q3 2022", "2022-07-01", "2022-09-30"),
    ],
)
def test_parts_of_months_and_years(query: str, first: str, last: str) -> None:
    assert days_named(query) == [(first, last)]


@given(
    st.dates(datetime(1990, 1, 1).date(), datetime(2090, 1, 1).date()),
    st.sampled_from(["day", "week", "weekend", "month", "year", "Tuesday"]),
    st.integers(1, 9),
)
def test_before_and_after_lie_on_their_sides(day: object, unit: str, count: int) -> None:
    [at] = spans(f"on {day}", NOW)
    [before] = spans(f"{count} {unit}s before {day}", NOW)
    [after] = spans(f"{count} {unit}s after {day}", NOW)
    assert before.start < before.end <= at.start
    assert at.end <= after.start < after.end
    if unit == "Tuesday":
        tuesday = datetime.fromtimestamp(before.start // 1_000_000, tz=UTC)
        assert (tuesday.weekday(), before.end - before.start) == (1, DAY)
        assert (
            timedelta(0) < timedelta(microseconds=at.start - before.start) <= timedelta(7 * count)
        )
