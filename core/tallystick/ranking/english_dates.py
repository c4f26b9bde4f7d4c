"""Phrases of English for spans of time that `dateparser` does not read: seasons, weekends, parts of
months and years, ranges of days, and what is told from another date ("the week before 3 June").
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from datetime import date, timedelta

from tallystick.ranking.time_spans import Span, between, days, days_of, later, monday_of

Hit = tuple[int, int, Span]
"""Where a phrase begins and ends in a text, and the span that it means."""

YEAR = r"(?:19|20)\d\d"
MONTHS = (
    "january",
    "february",
    "march",
    "april",
    "may",
    "june",
    "july",
    "august",
    "september",
    "october",
    "november",
    "december",
)
WEEKDAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
FROM = re.compile(r"\b(?:between|from)\s+(?:the\s+)?$", re.IGNORECASE)
_MONTH_KEYS = tuple(month[:3] for month in MONTHS)
_MONTH_NAMES = (
    r"(?P<month>jan(?:uary)?|feb(?:ruary)?|mar(?:ch)?|apr(?:il)?|may|june?|july?|aug(?:ust)?"
    r"|sept?(?:ember)?|oct(?:ober)?|nov(?:ember)?|dec(?:ember)?)\.?"
)
_OF_YEAR = rf"(?:,?\s+(?:of\s+)?(?P<year>{YEAR}))?\b"
_LEAD = 40
"""Characters before a date in which what leads to it is looked for."""

_SEASONS = {"winter": 12, "spring": 3, "summer": 6, "autumn": 9, "fall": 9}
_SEASON = re.compile(
    rf"\b(?:(?P<which>last|this|in|the|during)\s+){{0,4}}(?P<season>winter|spring|summer|autumn|fall)"
    rf"(?:\s+(?:of\s+)?(?P<year>{YEAR}))?\b",
    re.IGNORECASE,
)
_PART = r"(?P<part>early|mid|late|(?:middle|start|beginning|end)(?=\s+of\b))(?:\s+(?:in|of))?"
_HALF = r"(?P<half>first|second|latter|other)\s+half\s+(?:of|in)"
_PART_OF_MONTH = re.compile(
    rf"\b(?:{_PART}|{_HALF}"
    r"|(?P<nth>first|second|third|fourth|last)\s+(?P<unit>week|weekend)\s+(?:of|in))"
    rf"[\s-]+(?:the\s+month\s+of\s+)?{_MONTH_NAMES}{_OF_YEAR}",
    re.IGNORECASE,
)
"""A part of a month: "early May", "mid-June 2023", "the last week of October 2023"."""
_PART_OF_YEAR = re.compile(
    rf"\b(?:{_PART}|{_HALF}|(?P<nth>first|second|third|fourth|last)\s+quarter\s+(?:of|in)"
    rf"|q(?P<quarter>[1-4])\s+(?:of\s+)?)[\s-]*(?:the\s+year\s+)?(?P<year>{YEAR})\b",
    re.IGNORECASE,
)
"""A part of a year: "early 2023", "the second half of 2022", "Q3 2021"."""
_NTH = ("first", "second", "third", "fourth")
_DAY = r"(\d{1,2})(?:st|nd|rd|th)?"
_TO = r"\s*(-|–|\bto\b|\band\b|\buntil\b|\btill\b|\bthrough\b)\s*(?:the\s+)?"
_DAYS_OF_MONTH = (
    re.compile(rf"\b{_MONTH_NAMES}\s+{_DAY}{_TO}{_DAY}(?!\w){_OF_YEAR}", re.IGNORECASE),
    re.compile(rf"(?<!\w){_DAY}{_TO}{_DAY}\s+(?:of\s+)?{_MONTH_NAMES}{_OF_YEAR}", re.IGNORECASE),
)
"""Days of one month: "August 11 to 15, 2023", "5-6 May"."""
_WEEKEND = re.compile(r"\b(?P<which>last|this|past|next|the)\s+weekend\b", re.IGNORECASE)
COUNTED = f"day|weekend|week|month|year|{'|'.join(WEEKDAYS)}"
"""What is counted from a date."""
_BESIDE = re.compile(
    r"(?<!\beach\s)(?<!\bevery\s)\b(?P<lead>(?:(?:the|last|whole|entire|very)\s+){0,3})"
    rf"(?:(?P<count>\d{{1,3}})\s+)?(?P<unit>{COUNTED})(?P<many>s?)\s+"
    r"(?P<side>before|prior\s+to|preceding|after|following|of)\s+(?:the\s+)?$",
    re.IGNORECASE,
)


def phrases(text: str, today: date) -> Iterator[Hit]:
    """Yield what is meant by itself, in no order; phrases may overlap."""
    for match in _SEASON.finditer(text):
        if match["which"] or match["year"]:
            yield match.start("season"), match.end(), _season(match, today)
    for match in _PART_OF_MONTH.finditer(text):
        yield match.start(), match.end(), _part_of_month(match, today)
    for match in _PART_OF_YEAR.finditer(text):
        yield match.start(), match.end(), _part_of_year(match)
    for pattern in _DAYS_OF_MONTH:
        for match in pattern.finditer(text):
            span = _days_of_month(match, today)
            if span is not None:
                yield match.start(), match.end(), span
    for match in _WEEKEND.finditer(text):
        yield match.start("which"), match.end(), _weekend(match["which"].lower(), today)


def beside(text: str, hits: Sequence[Hit]) -> Iterator[Hit]:
    """Yield what is told from one of the dates that were found: the week, weekend, Friday before or
    after it, 3 days before it, the week of it. "The 2 weeks before" are both, "2 weeks before" is
    the first of them.
    """
    for start, end, span in hits:
        lead = max(0, start - _LEAD)
        match = _BESIDE.search(text[lead:start])
        if match is None or not span.is_closed:
            continue
        with suppress(ValueError, OverflowError):
            told = _told(match, *days_of(span))
            if told is not None:
                yield lead + match.start(), end, told


def _told(match: re.Match[str], first: date, following: date) -> Span | None:
    """Return the span beside the days from `first` up to `following`."""
    unit, side = match["unit"].lower(), match["side"].lower()
    count = int(match["count"] or 1)
    is_all = count > 1 and match["lead"].strip() != ""
    if side == "of":
        if (following - first).days > 1:  # the last week of October is a part of it
            return None
        monday = monday_of(first)
        return {"week": days(monday, 7), "weekend": days(monday + timedelta(days=5), 2)}.get(unit)
    if count == 0 or (match["many"] and match["count"] is None):
        return None
    before = side in ("before", "preceding") or side.startswith("prior")
    if unit in WEEKDAYS or unit == "weekend":
        return _nth_beside(unit, count, first, following, before=before)
    if unit in ("day", "week"):
        size = 1 if unit == "day" else 7
        start = (
            first - timedelta(days=size * count)
            if before
            else following + timedelta(days=0 if is_all else size * (count - 1))
        )
        return days(start, size * count if is_all else size)
    size = 1 if unit == "month" else 12
    start = later(first, -size * count) if before else later(following, size * (count - 1))
    if is_all:
        return between(start, first) if before else between(following, later(start, size))
    return between(start, later(start, size))


def _nth_beside(unit: str, count: int, first: date, following: date, *, before: bool) -> Span:
    """Return the weekday or weekend that is the nearest, or the one after so many."""
    day = 5 if unit == "weekend" else WEEKDAYS.index(unit)
    size = 2 if unit == "weekend" else 1
    if before:
        # A weekend that has begun is none before.
        found = first - timedelta(days=(first.weekday() - day) % 7 or 7)
        if found + timedelta(days=size) > first:
            found -= timedelta(days=7)
        return days(found - timedelta(days=7 * (count - 1)), size)
    found = following + timedelta(days=(day - following.weekday()) % 7)
    return days(found + timedelta(days=7 * (count - 1)), size)


def _season(match: re.Match[str], today: date) -> Span:
    first = _SEASONS[match["season"].lower()]
    if match["year"]:
        year = int(match["year"])
    else:
        year = today.year if date(today.year, first, 1) <= today else today.year - 1
        if match["which"].lower() == "last" and today < later(date(year, first, 1), 3):
            year -= 1
    return between(date(year, first, 1), later(date(year, first, 1), 3))


def _first_of_month(match: re.Match[str], today: date) -> date:
    """Return the first day of the month that is named: without a year, of the latest that has
    begun.
    """
    month = _MONTH_KEYS.index(match["month"][:3].lower()) + 1
    if match["year"]:
        return date(int(match["year"]), month, 1)
    return date(today.year if month <= today.month else today.year - 1, month, 1)


def _part_of_month(match: re.Match[str], today: date) -> Span:
    """Return the third of a month that is early, in the midst or late, or one of its halves, weeks
    or weekends. Weeks are counted from its first day, the last one to its last day; a weekend is of
    the month of its Saturday.
    """
    first = _first_of_month(match, today)
    following = later(first, 1)
    if match["half"]:
        middle = first + timedelta(days=15)
        is_first = match["half"].lower() == "first"
        return between(first, middle) if is_first else between(middle, following)
    if match["part"]:
        start, end = ((0, 10), (10, 20), (20, 31))[_third(match["part"])]
        last = min(first + timedelta(days=end), following)
        return between(first + timedelta(days=start), last)
    nth = match["nth"].lower()
    if match["unit"].lower() == "week":
        if nth == "last":
            return between(following - timedelta(days=7), following)
        return days(first + timedelta(days=7 * _NTH.index(nth)), 7)
    if nth == "last":
        saturday = following - timedelta(days=(following.weekday() - 5) % 7 or 7)
    else:
        saturday = first + timedelta(days=(5 - first.weekday()) % 7 + 7 * _NTH.index(nth))
    return days(saturday, 2)


def _part_of_year(match: re.Match[str]) -> Span:
    """Return the third of a year that is early, in the midst or late, or a half or quarter."""
    if match["half"]:
        months, place = 6, 0 if match["half"].lower() == "first" else 1
    elif match["part"]:
        months, place = 4, _third(match["part"])
    elif match["quarter"]:
        months, place = 3, int(match["quarter"]) - 1
    else:
        nth = match["nth"].lower()
        months, place = 3, 3 if nth == "last" else _NTH.index(nth)
    first = later(date(int(match["year"]), 1, 1), months * place)
    return between(first, later(first, months))


def _third(part: str) -> int:
    """Return the place of a third that is called early, in the midst or late."""
    return {"e": 0, "s": 0, "b": 0, "m": 1, "l": 2}[
        "l" if part.lower() == "end" else part[0].lower()
    ]


def _days_of_month(match: re.Match[str], today: date) -> Span | None:
    """Return the days of a range, None for what is none: the 5th to the 3rd, or 5 and 6 without
    a "between".
    """
    begin, joint, end = match.groups()[1:4] if match.re is _DAYS_OF_MONTH[0] else match.groups()[:3]
    if joint.lower() == "and" and FROM.search(match.string[: match.start()][-_LEAD:]) is None:
        return None
    first = _first_of_month(match, today)
    if not match["year"] and first + timedelta(days=int(begin) - 1) > today:
        first = later(first, -12)
    following = later(first, 1)
    start, last = (first + timedelta(days=int(day) - 1) for day in (begin, end))
    return between(start, last + timedelta(days=1)) if first <= start < last < following else None


def _weekend(which: str, today: date) -> Span:
    step = {"next": 1, "this": 0}.get(
        which, -1 if today.weekday() < 5 or which in ("last", "past") else 0
    )
    return days(monday_of(today) + timedelta(days=5 + 7 * step), 2)
