"""Dates: the spans of time that a query names, and that other queries name none."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from tallystick.ranking import Span, date_fit, spans

NOW = int(datetime(2023, 8, 24, 12, tzinfo=UTC).timestamp()) * 1_000_000
DAY = 24 * 3600 * 1_000_000
LANGUAGES = ("en", "de", "fr", "es", "it", "pt", "nl", "ru")


def _moment(day: str) -> int:
    return int(datetime.fromisoformat(day).replace(tzinfo=UTC).timestamp()) * 1_000_000


@pytest.mark.parametrize(
    ("query", "language", "first", "last"),
    [
        ("What did we do last week?", "en", "2023-08-14", "2023-08-21"),
        ("in May", "en", "2023-05-01", "2023-06-01"),
        ("in august", "en", "2023-08-01", "2023-09-01"),
        ("on 7 May 2022", "en", "2022-05-07", "2022-05-08"),
        ("What was on the 7th of May, 2022?", "en", "2022-05-07", "2022-05-08"),
        ("May 7th", "en", "2023-05-07", "2023-05-08"),
        ("Sep 3", "en", "2022-09-03", "2022-09-04"),
        ("Who called on Friday?", "en", "2023-08-18", "2023-08-19"),
        ("yesterday", "en", "2023-08-23", "2023-08-24"),
        ("2 months ago", "en", "2023-06-01", "2023-07-01"),
        ("in 2021", "en", "2021-01-01", "2022-01-01"),
        ("the log of 2022-05-07", "en", "2022-05-07", "2022-05-08"),
        ("Was war letzten Monat?", "de", "2023-07-01", "2023-08-01"),
        ("Was war am 3. März?", "de", "2023-03-03", "2023-03-04"),
        ("vor 3 Tagen", "de", "2023-08-21", "2023-08-22"),
        ("¿Qué hicimos la semana pasada?", "es", "2023-08-14", "2023-08-21"),
        ("en mayo", "es", "2023-05-01", "2023-06-01"),
        ("le 5 mai 2022", "fr", "2022-05-05", "2022-05-06"),
        ("5 мая 2022", "ru", "2022-05-05", "2022-05-06"),
        ("上周我们做了什么?", "zh", "2023-08-14", "2023-08-21"),
        ("2022年5月7日的会议", "zh", "2022-05-07", "2022-05-08"),
        ("先週何をした?", "ja", "2023-08-14", "2023-08-21"),
        ("지난주에 뭐 했어?", "ko", "2023-08-14", "2023-08-21"),
    ],
)
def test_a_query_names_a_span_of_time(query: str, language: str, first: str, last: str) -> None:
    assert spans(query, NOW, (language,)) == (Span(_moment(first), _moment(last)),)


def test_several_dates_are_several_spans_in_their_order() -> None:
    named = spans("Between 7 May 2022 and yesterday, or in 2021?", NOW)
    assert [span.start for span in named] == [
        _moment(day) for day in ("2022-05-07", "2023-08-23", "2021-01-01")
    ]


SUBJECTS = [
    "my sister",
    "the sun",
    "our dog",
    "the second car",
    "a march band",
    "someone",
    "the may queen",
    "Dr. Weeks",
    "that decade",
    "this hour",
    "a sat nav",
    "the mon repos hotel",
    "Augusta",
    "a friend",
    "ten people",
    "the mars bar",
    "his junior",
    "a decent plan",
    "the fall guy",
    "a spring onion",
]
QUESTIONS = [
    "What does {} like?",
    "Where did {} go?",
    "when did {} go to Paris",
    "How long did {} stay?",
    "may {} come along?",
    "Why is {} on the list?",
    "who told {} so soon",
    "Tell me about {}, please.",
    "is {} still here at 9 or 10",
    "{} had 31 of them",
]
ODD = [
    "ok thanks",
    "we",
    "on the sun",
    "May I ask what the sun did?",
    "We march on",
    "",
    "31 of them",
    "what should I cook today?",
    "remind me tomorrow",
    "wo ist so ein Hund",
    "mi di do so",
    "son y mar",
    "v1.2.2022 fails",
    "31 June 2023",
]


def test_200_questions_without_a_date_name_none() -> None:
    questions = [question.format(subject) for subject in SUBJECTS for question in QUESTIONS]
    assert len({*questions}) == 200
    named = {text: spans(text, NOW, LANGUAGES) for text in [*questions, *ODD]}
    assert {text: dates for text, dates in named.items() if dates} == {}


def test_a_question_without_a_date_never_reaches_the_library(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(*_: object) -> None:
        raise AssertionError("read")

    monkeypatch.setattr("tallystick.ranking.dates._date_data", refuse)
    for question in QUESTIONS:
        spans(question.format("my sister"), NOW, LANGUAGES)


@hypothesis_settings(max_examples=60, deadline=None)
@given(st.text(max_size=60), st.integers(-(2**62), 2**62))
def test_any_text_and_any_moment_can_be_asked(text: str, now: int) -> None:
    for span in spans(text, now, (*LANGUAGES, "zh", "ja", "ko", "xx")):
        assert span.start < span.end


def test_the_fit_is_full_inside_and_falls_faster_before_than_after() -> None:
    day = Span(NOW, NOW + DAY)
    assert date_fit(NOW, [day]) == 1.0
    assert date_fit(NOW + 5 * DAY, [day]) == 0.5
    assert date_fit(NOW - DAY, [day]) == 0.5
    assert date_fit(None, [day]) == 0.0
    assert date_fit(NOW, []) == 0.0
