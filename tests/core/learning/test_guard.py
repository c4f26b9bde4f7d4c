"""The guard: where the words of a fact stand decides what may be applied, in every language."""

from __future__ import annotations

import pytest

from tallystick.records import ExtractedFact, FactMode
from tallystick_learning.guard import (
    Evidence,
    find_span,
    is_asked,
    is_founded,
    is_set_off,
    reason_to_hold,
)

SET_OFF = {
    "double marks": ('She says "we ship on Mondays" all day', "we ship on Mondays"),
    "German marks": ("Er meint „wir fahren nach Mallorca“ und lacht", "nach Mallorca"),
    "French marks": ("Il dit « nous partons demain » toujours", "nous partons demain"),
    "corner brackets": ("客人说「六点半开门」就好", "六点半开门"),
    "full-width marks": ("她说＂明天关门＂了", "明天关门"),
    "single marks": ("He wrote 'the shop is closed' on it", "the shop is closed"),
    "a quotation that nobody closed": ('The mail: "We close in May. Regards', "We close in May"),
    "a fence": ("look at this\n```\nretries = 7\n```\nwhy?", "retries = 7"),
    "lines behind >": ("got this\n> we release weekly\nwhat now", "we release weekly"),
    "a block that a colon leads": ("The reply:\nThe house is free in May.", "free in May"),
    "a block behind a blank line": ("The reply:\n\nThe house is free.\n\nOk", "house is free"),
    "rows of a log": (
        "what is this\n2026-04-02T07:14:03Z WARN attempt=5\n2026-04-02T07:14:09Z WARN attempt=6",
        "attempt=6",
    ),
    "below the header of a mail": (
        "see\nFrom: Ida <ida@example.org>\nSubject: May\n\nWe close on Fridays.",
        "close on Fridays",
    ),
    "below a line of marks": ("ok\n----- forwarded -----\nWe close on Fridays.", "on Fridays"),
    "an indented block": ("it prints\n    port = 8080\nso", "port = 8080"),
}


@pytest.mark.parametrize("form", SET_OFF)
def test_what_is_quoted_or_pasted_is_seen_by_its_form(form: str) -> None:
    text, span = SET_OFF[form]
    place = find_span(text, span)
    assert place is not None
    assert is_set_off(text, *place)


@pytest.mark.parametrize(
    ("text", "span"),
    [
        ("I'm off on Mondays, that's new", "off on Mondays"),
        ("We don't use Evri, it's Royal Mail's turn now", "Royal Mail"),
        ('He said "never" but I moved to Kiel', "I moved to Kiel"),
        ("news: I moved to Kiel", "I moved to Kiel"),
        ("The reply:\nThe house is free.\n\nSo we go in May.", "we go in May"),
        ("- I moved to Kiel\n- I like tea", "I like tea"),
        ("l’école est à Lyon, j’y vais", "est à Lyon"),
    ],
)
def test_what_the_user_says_in_own_words_is_not_set_off(text: str, span: str) -> None:
    place = find_span(text, span)
    assert place is not None
    assert not is_set_off(text, *place)


@pytest.mark.parametrize(
    ("text", "span", "asked"),
    [
        ("Do I live in Kiel?", "I live in Kiel", True),
        ("我住在基尔吗？", "我住在基尔吗", True),
        ("هل أسكن في كيل؟", "أسكن في كيل", True),
        ("I live in Kiel. Do you?", "I live in Kiel", False),
        ("I live in Kiel, do you?", "I live in Kiel", False),
        ("¿Vivo en Kiel?", "Vivo en Kiel", True),
    ],
)
def test_a_question_is_no_statement(text: str, span: str, asked: bool) -> None:
    place = find_span(text, span)
    assert place is not None
    assert is_asked(text, *place) == asked


@pytest.mark.parametrize(
    ("content", "text", "founded"),
    [
        ("Anna pays 40 euros.", "I pay 40 euros now", True),
        ("Anna pays 45 euros.", "I pay 40 euros now", False),
        ("Anna moved on 2 March 2026.", "I moved on Monday", True),
        ("Anna lives with Boris.", "I live with my brother", False),
        ("Anna lives with Boris.", "I live with boris", True),
        ("Das Budget ist mit Fähre.", "Das Geld ist für die Reise mit dem Schiff", True),
    ],
)
def test_names_and_numbers_are_those_that_were_shown(
    content: str, text: str, founded: bool
) -> None:
    assert is_founded(content, Evidence(text, ("anna",), 2026)) == founded


def test_the_first_thing_that_speaks_against_a_fact_is_its_reason() -> None:
    text = 'I moved to Kiel. Ben says "she moved to Rome". Do I like tea?'

    def reason(
        span: str,
        mode: FactMode = "stated",
        sure: int = 90,
        best: bool = True,
        content: str | None = None,
    ) -> object:
        words = content or f"{span}."
        fact = ExtractedFact(content=words, span=span, mode=mode, confidence=sure)
        return reason_to_hold(fact, Evidence(text, is_best_target=best))

    assert reason("I moved to Kiel") is None
    assert reason("I moved to Bonn") == "span_missing"
    assert reason("she moved to Rome") == "quoted"
    assert reason("Ben says", content="Anna moved to Rome.") == "quoted", "wherever the span stands"
    assert reason("I like tea") == "question"
    assert reason("I moved to Kiel", mode="supposed") == "not_stated"
    assert reason("I moved to Kiel", sure=30) == "not_sure"
    assert reason("I moved to Kiel", best=False) == "other_target"
