"""Dates: the days that a query names, seen from a clock, and how well a moment fits them.

`dateparser` brings the words: its tables of a language name the months and weekdays, and phrases
that count back from today ("yesterday", "vor 3 Tagen", "先週"). A phrase is a date if it has digits
in the form of one, or such a name, or is such a phrase; only then the library reads it. A date
without a year is the latest one that has begun. Weeks begin on Monday, days are UTC.
"""

from __future__ import annotations

import re
from calendar import monthrange
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from functools import lru_cache
from importlib.util import find_spec, module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

from tallystick.ranking.sentences import excerpt

DAY = 24 * 3600 * 1_000_000
"""Microseconds of a day."""
_READ = 2_000
"""Characters of a query in which dates are looked for: half of them at either end, where a person
asks who pastes a log.
"""
_MOST_PHRASES = 8
"""Different phrases of one query that are read: the library takes a millisecond for each."""
_ALONE = 6
"""Letters from which on a name is a date by itself, though it is not capitalised."""
_EPOCH = date(1970, 1, 1)
_KEYS = (
    *("january", "february", "march", "april", "may", "june", "july", "august", "september"),
    *("october", "november", "december"),
    *("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday"),
)
"""The keys of names in the library's tables."""
_YEAR = r"(?:19|20)\d\d"
_DIGITS = rf"{_YEAR}-\d{{1,2}}-\d{{1,2}}|\d{{1,2}}[./]\d{{1,2}}[./](?:{_YEAR}|\d\d)"
_BACK = re.compile(r"(?:[1-9]\d*|\\1) (?:day|week|month|year) ago")
"""A meaning in the library's tables that counts back from today."""


@dataclass(frozen=True, order=True)
class Span:
    """From `start` up to `end`, exclusive; microseconds UTC."""

    start: int
    end: int


def spans(query: str, now: int, languages: Sequence[str] = ("en",)) -> tuple[Span, ...]:
    """Return the spans of time that `query` names in one of these languages (ISO 639-1), seen from
    `now`, in the order of the text; empty for none.
    """
    text = excerpt(query, _READ)
    try:
        today = datetime.fromtimestamp(now / 1_000_000, tz=UTC).date()
    except (OverflowError, OSError, ValueError):
        return ()
    by_place: dict[tuple[int, int], Span | None] = {}
    phrases: set[str] = set()
    for language in languages:
        for start, end in _phrases(text, language):
            phrases.add(text[start:end])
            if len(phrases) > _MOST_PHRASES:
                break
            if all(end <= first or start >= last for first, last in by_place):
                by_place[start, end] = _read(text[start:end], language, today)
    return tuple(dict.fromkeys(span for _, span in sorted(by_place.items()) if span is not None))


def date_fit(moment: int | None, named: Sequence[Span]) -> float:
    """Return the fit of `moment` to the nearest of the named spans: 1.0 inside, falling with the
    distance, 0.0 for None.

    Events are reported afterwards: the fit halves with every 4 days after a span and with every day
    before it, and more slowly beside longer spans, by a quarter of their length.
    """
    if moment is None:
        return 0.0
    return max((_fit(moment, span) for span in named), default=0.0)


def _fit(moment: int, span: Span) -> float:
    if span.start <= moment < span.end:
        return 1.0
    length = (span.end - span.start) / DAY - 1
    if moment >= span.end:
        distance, half = (moment - span.end) / DAY, 4 + length / 4
    else:
        distance, half = (span.start - moment) / DAY, 1 + length / 4
    fit: float = 0.5 ** min(distance / half, 60.0)
    return round(fit, 6)


@lru_cache(maxsize=4096)
def moment(text: str) -> int | None:
    """Return the moment of a text that is a whole date in English, microseconds UTC; None if it
    names no day.
    """
    if re.search(r"\d", text) is None:
        return None
    settings = {
        "TIMEZONE": "UTC",
        "RETURN_AS_TIMEZONE_AWARE": True,
        "REQUIRE_PARTS": ["day", "month", "year"],
    }
    read = _date_data(text, "en", settings)
    return None if read is None else int(read.date_obj.timestamp()) * 1_000_000


def _phrases(text: str, language: str) -> Iterator[tuple[int, int]]:
    """Yield where phrases that may be dates begin and end in a text."""
    grammar = _grammar(language)
    for match in grammar.finditer(text) if grammar is not None else ():
        alone = match.groupdict().get("alone")
        if alone is None or _is_named(text, match.start(), alone, language):
            yield match.span()


def _is_named(text: str, start: int, name: str, language: str) -> bool:
    """Return True if a name that stands by itself means a date: "in May" and "en mayo" do, "may"
    and the first word of a sentence do not.
    """
    before = text[:start].rstrip()
    if len(name) >= _ALONE:
        return True
    if name[0].isupper():
        return bool(before) and before[-1] not in ".!?:\n"
    return before.rpartition(" ")[2].lower() in ((_table(language) or {}).get("in") or ())


@lru_cache(maxsize=64)
def _joints(language: str) -> frozenset[str]:
    """Return the words that may stand within a date, as the library lists them."""
    table = _table(language) or {}
    words = [word for key in ("skip", "pertain") for word in table.get(key) or ()]
    return frozenset(word for word in words if word.isalpha())


@lru_cache(maxsize=64)
def _table(language: str) -> dict[str, Any] | None:
    """Return the library's table of a language; None where it has none.

    The file is loaded by itself: its package loads all of the library, which few queries need.
    """
    library = find_spec("dateparser")
    for folder in (library and library.submodule_search_locations) or ():
        file = Path(folder, "data", "date_translation_data", f"{language}.py")
        spec = spec_from_file_location(f"_dates_{language}", file) if file.is_file() else None
        if spec is not None and spec.loader is not None:
            module = module_from_spec(spec)
            spec.loader.exec_module(module)
            table: dict[str, Any] = module.info
            return table
    return None


@lru_cache(maxsize=64)
def _grammar(language: str) -> re.Pattern[str] | None:
    """Return the pattern of phrases that may mean a date in a language; None where the library does
    not know it.
    """
    table = _table(language)
    if table is None:
        return None
    back = [
        re.escape(phrase)
        for meaning, spellings in table["relative-type"].items()
        for phrase in spellings
        if _BACK.fullmatch(meaning)
    ]
    for meaning, patterns in table.get("relative-type-regex", {}).items():
        if _BACK.fullmatch(meaning):
            back += [re.sub(r"\(\\d.*?\)", r"\\d{1,3}", pattern) for pattern in patterns]
    names = {name.lower(): key for key in _KEYS for name in table.get(key, ()) if len(name) > 1}
    if any(re.match(r"\d", name) for name in names):
        return _unspaced_grammar(table, back, names)
    # An abbreviation is a date beside a number only: "sun" and "mar" are words too.
    longest = {key: max(map(len, table[key])) for key in names.values()}
    whole = [name for name, key in names.items() if len(name) > 2 and len(name) >= longest[key] - 1]
    joint = rf"[\s,.]+(?:(?:{_either(_joints(language))})\s+)?"
    name, day = rf"(?:{_either(names)})\.?", r"\d{1,2}(?:\w{1,2}\b)?\.?"
    dates = [
        rf"{day}{joint}{name}(?:{joint}{_YEAR})?",
        rf"{name}{joint}(?:{day}(?:{joint}{_YEAR})?(?!\d)|{_YEAR})",
        rf"(?P<alone>{_either(whole)})",
        _YEAR,
    ]
    # Spelled units only: "3 m ago" may be metres.
    back = [phrase for phrase in back if len(re.sub(r"\\.|\W", "", phrase)) > 3]
    every = "|".join([_DIGITS, *sorted(back, key=len, reverse=True), *dates])
    return re.compile(rf"(?<![\w/.-])(?:{every})(?![\w/-])", re.IGNORECASE)


def _unspaced_grammar(
    table: dict[str, Any], back: Sequence[str], names: dict[str, str]
) -> re.Pattern[str]:
    """Return the pattern for a language that writes dates as digits with a sign after each."""
    year = _either(sign for sign in table["year"] if len(sign) == 1)
    of_day = _either(sign for sign in table["day"] if len(sign) == 1)
    weekdays = [name for name, key in names.items() if key in _KEYS[12:]]
    months = [name for name, key in names.items() if key in _KEYS[:12]]
    day = rf"(?:\s*\d{{1,2}}\s*(?:{of_day}))?"
    dates = [
        rf"(?:\d{{4}}\s*(?:{year})\s*)?(?<!\d)(?:{_either(months)}){day}",
        rf"\d{{4}}\s*(?:{year})",
        _either(weekdays),
    ]
    return re.compile("|".join([_DIGITS, *sorted(back, key=len, reverse=True), *dates]))


def _either(words: Any) -> str:
    return "|".join(sorted(map(re.escape, words), key=lambda word: (-len(word), word))) or r"(?!)"


@lru_cache(maxsize=4096)
def _read(phrase: str, language: str, today: date) -> Span | None:
    """Return the span of a phrase; None if it is no date after all, such as 31 June."""
    if re.fullmatch(_YEAR, phrase):
        return _span_between(date(int(phrase), 1, 1), date(int(phrase) + 1, 1, 1))
    noon = datetime(today.year, today.month, today.day, 12)
    settings = {"RELATIVE_BASE": noon, "PREFER_DATES_FROM": "past", "TIMEZONE": "UTC"}
    read = _date_data(phrase, language, settings)
    try:
        return None if read is None else _period(read.date_obj.date(), read.period or "day")
    except (ValueError, OverflowError):
        return None


def _date_data(phrase: str, language: str, settings: dict[str, Any]) -> Any:
    """Return what the library reads from a phrase, or None."""
    from dateparser.date import DateDataParser  # type: ignore[import-untyped,unused-ignore]

    try:
        read = DateDataParser(languages=[language], settings=settings).get_date_data(phrase)
    except (ValueError, OverflowError):
        return None
    return read if read.date_obj is not None else None


def _period(day: date, period: str) -> Span:
    """Return the day, week, month or year around `day`."""
    if period == "year":
        return _span_between(date(day.year, 1, 1), date(day.year + 1, 1, 1))
    if period == "month":
        first = day.replace(day=1)
        return _span_between(first, first + timedelta(days=monthrange(day.year, day.month)[1]))
    if period == "week":
        monday = day - timedelta(days=day.weekday())
        return _span_between(monday, monday + timedelta(days=7))
    return _span_between(day, day + timedelta(days=1))


def _span_between(start: date, end: date) -> Span:
    return Span((start - _EPOCH).days * DAY, (end - _EPOCH).days * DAY)
