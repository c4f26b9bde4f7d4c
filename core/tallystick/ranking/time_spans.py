"""Spans of time in whole days, and how they are made from dates."""

from __future__ import annotations

from calendar import monthrange
from dataclasses import dataclass
from datetime import date, timedelta

DAY = 24 * 3600 * 1_000_000
"""Microseconds of a day."""
ALWAYS = 2**62
"""The end of a span without end; its negative is the beginning of one without beginning."""
_EPOCH = date(1970, 1, 1)


@dataclass(frozen=True, order=True)
class Span:
    """From `start` up to `end`, exclusive; microseconds UTC."""

    start: int
    end: int

    @property
    def is_closed(self) -> bool:
        """True if it has a beginning and an end."""
        return self.start > -ALWAYS and self.end < ALWAYS


def between(start: date, end: date) -> Span:
    """Return the days from `start` up to `end`, exclusive."""
    return Span((start - _EPOCH).days * DAY, (end - _EPOCH).days * DAY)


def days(first: date, count: int) -> Span:
    """Return so many days."""
    return between(first, first + timedelta(days=count))


def days_of(span: Span) -> tuple[date, date]:
    """Return the day on which a closed span begins, and the one after its last."""
    return (
        _EPOCH + timedelta(days=span.start // DAY),
        _EPOCH + timedelta(days=-(-span.end // DAY)),
    )


def later(day: date, months: int) -> date:
    """Return the same day so many months later, or the last of its month where that has none."""
    year, month = divmod(day.year * 12 + day.month - 1 + months, 12)
    return date(year, month + 1, min(day.day, monthrange(year, month + 1)[1]))


def monday_of(day: date) -> date:
    """Return the first day of the week of a day."""
    return day - timedelta(days=day.weekday())
