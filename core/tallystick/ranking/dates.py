"""Dates in a query: the spans of time that it names, read against a clock, and how well a moment
fits them.

What a phrase means is read by `dateparser`, and which phrases mean a date is taken from its tables:
months, weekdays and relative phrases ("last week", "la semana pasada", "先週") of the languages
below, dates in digits, and years. Seasons, weekends, parts of months ("early May"), ranges, open
ends ("since May") and what is told from a date ("the week before 3 June") are read in English. A
date without a year is the latest one that has begun, in a range that of its other end.
Weeks begin on Monday, days are UTC. `dateparser` is imported when a query may hold a date.

A query may be a log that somebody pasted. Of a long one the beginning and the end are read, and of
many phrases the first: what a person asks stands at either end of what they paste.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from datetime import UTC, date, datetime
from functools import lru_cache
from importlib import import_module
from typing import Any, Literal, NamedTuple

from tallystick.ranking import english_dates
from tallystick.ranking.english_dates import COUNTED, FROM, MONTHS, WEEKDAYS, YEAR, Hit
from tallystick.ranking.excerpt import excerpt
from tallystick.ranking.time_spans import (
    ALWAYS,
    DAY,
    Span,
    between,
    days,
    days_of,
    later,
    monday_of,
)

_LATIN = ("en", "es", "fr", "de", "it", "pt", "nl")
_READ = 2_000
"""Characters of a query in which dates are looked for: half of them at its beginning, half at its
end.
"""
_MOST_PHRASES = 8
"""Different phrases that `dateparser` is given for one query: it takes milliseconds for each."""

_HINT = re.compile(
    r"\d|[^\x00-\x7f]|\b(?:jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec|mon|tue|wed|thu|fri|sat|sun|day|week|month"
    r"|year|ago|yesterday|today|tonight|tomorrow|last|this|next|past|summer|winter|spring|autumn|fall|ayer|hoy|semana"
    r"|mes|hace|lunes|martes|enero|abril|agosto|hier|semaine|mois|lundi|mardi|janvier|avril|mars|mai|juin|juil|gestern"
    r"|heute|woche|monat|jahr|letzt|vor|ieri|oggi|settimana|mese|anno|luned|marzo|maggio|giugno|luglio|ontem|hoje|ano"
    r"|janeiro|maio|junho|julho|gisteren|vandaag|maand|jaar|vorig|mei)",
    re.IGNORECASE,
)
"""A pattern found in every query with a date, and in some without."""

_UNITS = ("day", "week", "month", "year")
_LEADING = (
    r"in|since|of|during|last|this|next|until|till|by|before|after|early|late|mid|between|from|and|to"
    r"|en|de|desde|depuis|im|seit|vom|a|nel|em|sinds"
)
_BEFORE_MONTH = rf"(?:{_LEADING})[\s-]+"
"""A month's name alone counts as a date after one of these only: "may" and "march" are words
too.
"""
_LEADS = re.compile(
    rf"(?!last|this|next|in\s+\d)(?:{_LEADING})[\s-]+(?!\d+\s+\w+s\b)", re.IGNORECASE
)
_DIGITS = r"(?:19|20)\d\d-\d\d-\d\d|\d{1,2}/\d{1,2}/(?:19|20)\d\d"
_ISO_DAY = re.compile(r"(?:19|20)\d\d-\d\d-\d\d", re.ASCII)
_LIBRARY_COUNT = re.compile(r"\(\\d.*?\)")
"""A number in the library's patterns."""
_NUMBERS = (
    "one",
    "two",
    "three",
    "four",
    "five",
    "six",
    "seven",
    "eight",
    "nine",
    "ten",
    "eleven",
    "twelve",
)
_SPELLED = {
    **{name: place + 1 for place, name in enumerate(_NUMBERS)},
    "a": 1,
    "an": 1,
    "a couple of": 2,
    "a few": 3,
}
_COUNT = re.compile(
    rf"\b({'|'.join(sorted(_SPELLED, key=len, reverse=True))})"
    rf"(?=\s+(?:{COUNTED})s?\s+(?:ago|before|back|after|prior)\b)",
    re.IGNORECASE,
)
_OPENING = re.compile(
    r"\b(?P<word>before|until|till|prior to|after|since|following)\s+(?:the\s+)?$", re.IGNORECASE
)
_LEAD = 40
"""Characters before a date in which a word such as "between" or "since" is looked for."""
_RANGE = re.compile(r"^\s*(?:and|to|until|till|through|-|–)\s*$", re.IGNORECASE)
_EVENT = re.compile(
    r"\b(?P<word>before|after|since|until)\s+(?:(?:the|my|our|your|his|her|their|a|an|that)\s+)"
    r"(?P<event>\w[\w'-]*(?:\s+(?!and\b|or\b|but\b|did\b|do\b|does\b|was\b|were\b)\w[\w'-]*){0,3})",
    re.IGNORECASE,
)


def spans(query: str, now: int) -> tuple[Span, ...]:
    """Return the spans of time that `query` names, seen from `now`, in the order of the text; empty
    for none. The beginning and the end of a long query are read.
    """
    query = excerpt(query, _READ)
    if _HINT.search(query) is None:
        return ()
    try:
        today = datetime.fromtimestamp(now / 1_000_000, tz=UTC).date()
    except (OverflowError, OSError, ValueError):
        return ()
    text = _COUNT.sub(lambda match: str(_SPELLED[match[1].lower()]), query)
    found = list(_date_hits(text, today))
    found += list(english_dates.beside(text, found))
    hits = sorted(found, key=lambda place: (place[0], -place[1]))
    apart: list[Hit] = []
    for start, end, span in hits:
        if not apart or start >= apart[-1][1]:
            apart.append((start, end, span))
    return tuple(dict.fromkeys(_join_ranges(text, apart)))


@lru_cache(maxsize=4096)
def moment(text: str) -> int | None:
    """Return the moment of a text that is a whole date in English, microseconds UTC; None if it
    names no day.
    """
    if re.search(r"\d", text) is None:
        return None
    from dateparser.date import DateDataParser  # type: ignore[import-untyped,unused-ignore]

    settings = {
        "TIMEZONE": "UTC",
        "RETURN_AS_TIMEZONE_AWARE": True,
        "REQUIRE_PARTS": ["day", "month", "year"],
    }
    try:
        read = DateDataParser(languages=["en"], settings=settings).get_date_data(text).date_obj
    except (ValueError, OverflowError):
        return None
    return None if read is None else int(read.timestamp()) * 1_000_000


_YESTERDAY = "yesterday gestern hier ayer ieri ontem gisteren вчера 昨天 昨日 어제"
_TOMORROW = "tomorrow demain mañana domani amanhã завтра 明天 明日 내일"
EVENT_DAYS = dict.fromkeys(_YESTERDAY.split(), -DAY) | dict.fromkeys(_TOMORROW.split(), DAY)
"""Words by which a turn tells of another day than the one on which it is said, and how far off that
is, microseconds.
"""


class EventBound(NamedTuple):
    """An event by which a query bounds a time, as in "before the trip"."""

    relation: Literal["before", "after"]
    event: str


def event_named(query: str) -> EventBound | None:
    """Return the event by which the query bounds a time, or None."""
    match = _EVENT.search(query)
    if match is None:
        return None
    is_before = match["word"].lower() in ("before", "until")
    return EventBound("before" if is_before else "after", match["event"])


def date_fit(moment: int | None, named: Sequence[Span]) -> float:
    """Return the fit of `moment` to the nearest of the named spans: 1.0 inside, falling with the
    distance, 0.0 for None.

    Events are reported afterwards: the fit halves with every 4 days after a span and with every day
    before it, and more slowly beside longer spans, by a quarter of their length. Outside of an open
    span nothing fits: "before" means before.
    """
    if moment is None:
        return 0.0
    return max((_fit(moment, span) for span in named), default=0.0)


def _fit(moment: int, span: Span) -> float:
    if span.start <= moment < span.end:
        return 1.0
    if span.start <= -ALWAYS or span.end >= ALWAYS:
        return 0.0
    length = (span.end - span.start) / DAY - 1
    if moment >= span.end:
        distance, half = (moment - span.end) / DAY, 4 + length / 4
    else:
        distance, half = (span.start - moment) / DAY, 1 + length / 4
    fit: float = 0.5 ** min(distance / half, 60.0)
    return round(fit, 6)


def _join_ranges(text: str, hits: Sequence[Hit]) -> Iterator[Span]:
    """Yield the spans, with "between … and …" joined into one and "since …" left open."""
    skip = False
    for place, (start, end, span) in enumerate(hits):
        if skip:
            skip = False
            continue
        following = hits[place + 1] if place + 1 < len(hits) else None
        before = text[max(0, start - _LEAD) : start]
        if following and _RANGE.match(text[end : following[0]]) and FROM.search(before):
            skip = True
            span = _in_year_of(
                span, text[start:end], following[2], text[following[0] : following[1]]
            )
            yield Span(min(span.start, following[2].start), max(span.end, following[2].end))
            continue
        opening = _OPENING.search(before)
        if opening is None:
            yield span
        elif opening["word"].lower() in ("before", "until", "till", "prior to"):
            yield Span(-ALWAYS, span.start if opening["word"].lower() != "until" else span.end)
        else:
            yield Span(span.start if opening["word"].lower() == "since" else span.end, ALWAYS)


def _in_year_of(span: Span, phrase: str, last: Span, last_phrase: str) -> Span:
    """Return the first date of a range, which names no year, in the year of the last one."""
    if re.search(YEAR, phrase) or not re.search(YEAR, last_phrase) or not last.is_closed:
        return span
    first, following = days_of(span)
    months = 12 * (days_of(last)[0].year - first.year)
    if later(first, months) > days_of(last)[0]:
        months -= 12
    return between(later(first, months), later(following, months))


def _date_hits(text: str, today: date) -> Iterator[Hit]:
    """(start, end, span) of each phrase, in no order; phrases may overlap."""
    yield from english_dates.phrases(text, today)
    phrases = _Phrases(today)
    for language in _languages(text):
        read = False
        for match in _grammar(language).finditer(text):
            start = match.start()
            leading = _LEADS.match(match[0])
            if leading is not None:
                start += leading.end()
            span = phrases.read(text[start : match.end()], language)
            if span is None and start > match.start():
                span = phrases.read(match[0], language)
            if span is not None:
                read = read or not re.fullmatch(YEAR, match[0])
                yield start, match.end(), span
        if read:
            return


def _languages(text: str) -> tuple[str, ...]:
    if re.search(r"[\u3040-\u30ff]", text):
        return ("ja",)
    if re.search(r"[\uac00-\ud7a3]", text):
        return ("ko",)
    if re.search(r"[\u4e00-\u9fff]", text):
        return ("zh", "ja")
    if re.search(r"[\u0400-\u04ff]", text):
        return ("ru",)
    return _LATIN


@lru_cache(maxsize=16)
def _grammar(language: str) -> re.Pattern[str]:
    """Return the pattern of phrases that mean a date in a language."""
    info: dict[str, Any] = import_module(f"dateparser.data.date_translation_data.{language}").info
    spaced = language not in ("zh", "ja", "ko")
    phrases = _relative(info, spaced)
    months = _names(info, MONTHS, shortest=3 if spaced else 2)
    weekdays = _names(info, WEEKDAYS, shortest=4 if spaced else 2)
    if not spaced:
        digits = r"[\d一二三四五六七八九十]{1,3}"
        day = rf"(?:\d{{4}}\s*[年년]\s*)?{digits}\s*[月월]\s*(?:{digits}\s*[日号일])?"
        return re.compile("|".join([*phrases, _DIGITS, day, r"\d{4}\s*[年년]", weekdays]))
    nth = r"\d{1,2}(?:st|nd|rd|th|er|\.)?"
    of = r"\s+(?:(?:of|de|del|di)\s+)?"
    dates = [
        rf"{nth}{of}{months}(?:,?{of}{YEAR})?",
        rf"(?:{_BEFORE_MONTH})?{months}\.?\s+{nth}(?:,?\s+{YEAR})?",
        rf"(?:{_BEFORE_MONTH})?{months}\.?,?{of}{YEAR}",
        rf"{_BEFORE_MONTH}{months}",
        weekdays,
        YEAR,
    ]
    return re.compile(rf"(?<!\w)(?:{'|'.join([_DIGITS, *phrases, *dates])})(?!\w)", re.IGNORECASE)


def _relative(info: dict[str, Any], spaced: bool) -> list[str]:
    """Phrases such as "last week" and "3 days ago", longest first."""
    phrases = [
        re.escape(phrase)
        for meaning, spellings in info["relative-type"].items()
        for phrase in spellings
        if any(unit in meaning for unit in (*_UNITS, *WEEKDAYS))
        and len(phrase) > (3 if spaced else 1)
    ]
    for meaning, spellings in info["relative-type-regex"].items():
        if any(unit in meaning for unit in _UNITS):
            counted = [_LIBRARY_COUNT.sub(r"\\d{1,3}", phrase) for phrase in spellings]
            # Abbreviations such as "3 m" are left out.
            phrases += [
                phrase
                for phrase in counted
                if not spaced or not re.search(r"[\s}]\w{1,2}$", phrase)
            ]
    return sorted(phrases, key=len, reverse=True)


def _names(info: dict[str, Any], keys: Sequence[str], *, shortest: int) -> str:
    names = {
        name.lower()
        for key in keys
        for name in info[key]
        if len(name) >= shortest and not name.isdigit()
    }
    return f"(?:{'|'.join(re.escape(name) for name in sorted(names, key=len, reverse=True))})"


class _Phrases:
    """Reads the phrases of one query, each once, and no more than `_MOST_PHRASES` by the library.

    What is read does not depend on what other queries have left in the cache.
    """

    def __init__(self, today: date) -> None:
        self._today = today
        self._spans: dict[tuple[str, str], Span | None] = {}

    def read(self, phrase: str, language: str) -> Span | None:
        """Return the span of a phrase; None if it is no date after all, such as 31 June, and after
        too many others.
        """
        if re.fullmatch(YEAR, phrase):
            return between(date(int(phrase), 1, 1), date(int(phrase) + 1, 1, 1))
        key = phrase, language
        if key not in self._spans:
            if len(self._spans) == _MOST_PHRASES:
                return None
            self._spans[key] = _read(phrase, language, self._today)
        return self._spans[key]


@lru_cache(maxsize=4096)
def _read(phrase: str, language: str, today: date) -> Span | None:
    """Return the span that `dateparser` reads from a phrase, or None. A day in ISO 8601 needs no
    library, and a log has one in each line.
    """
    if _ISO_DAY.fullmatch(phrase):
        with suppress(ValueError):
            return days(date.fromisoformat(phrase), 1)
    try:
        read = _parser(language, today).get_date_data(phrase)
    except (ValueError, OverflowError):
        return None
    if read.date_obj is None:
        return None
    try:
        return _period(read.date_obj.date(), read.period or "day")
    except (ValueError, OverflowError):
        return None


@lru_cache(maxsize=32)
def _parser(language: str, today: date) -> Any:
    from dateparser.date import DateDataParser  # type: ignore[import-untyped,unused-ignore]

    noon = datetime(today.year, today.month, today.day, 12)
    return DateDataParser(
        languages=[language],
        settings={"RELATIVE_BASE": noon, "PREFER_DATES_FROM": "past", "TIMEZONE": "UTC"},
    )


def _period(day: date, period: str) -> Span:
    """Return the day, week, month, quarter or year around `day`."""
    if period == "year":
        return between(date(day.year, 1, 1), date(day.year + 1, 1, 1))
    if period == "quarter":
        first = date(day.year, 3 * ((day.month - 1) // 3) + 1, 1)
        return between(first, later(first, 3))
    if period == "month":
        return between(day.replace(day=1), later(day.replace(day=1), 1))
    if period == "week":
        return days(monday_of(day), 7)
    return days(day, 1)
