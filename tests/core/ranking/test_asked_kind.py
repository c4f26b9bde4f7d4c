"""A question that asks where or who is answered by a place or a person."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tallystick import Tally
from tallystick.ranking import RecallWeights
from tallystick.ranking.asked_kind import asked_kind
from tallystick.ranking.signals import asks_when

OpenTally = Callable[..., Tally]


@pytest.mark.parametrize(
    ("query", "like"),
    [
        ("Where does Nora work?", "city"),
        ("where did I park the car", "city"),
        ("Thanks. Can you tell me where we met?", "city"),
        ("Which city does Felix live in these days?", "city"),
        ("Who gave me the green lamp?", "friend"),
        ("Whose birthday is in June?", "friend"),
    ],
)
def test_where_asks_for_places_and_who_for_people(query: str, like: str) -> None:
    assert like in asked_kind(query)


@pytest.mark.parametrize(
    "query",
    [
        "Which instrument does Leo practise?",
        "What did the man say who sold the lamp where we met?",
        "Wo arbeitet Nora?",
        "",
    ],
)
def test_other_queries_ask_for_neither(query: str) -> None:
    assert asked_kind(query) == ()


def test_a_place_answers_where(open_sqlite: OpenTally) -> None:
    with open_sqlite() as tally:
        bound = tally.bind()
        for text in (
            "Nora likes sailing in the morning wind.",
            "Nora was sailing on the lake again.",
            "The weather was nice on Sunday.",
        ):
            bound.remember(text)
        asking = "Where does Nora like sailing?"
        hits = bound.recall(asking)
        assert hits[0].memory.content == "Nora was sailing on the lake again."
        assert hits[0].signals["asked_kind"] > 0.4
        plain = bound.recall(asking, weights=RecallWeights(asked_kind=0))
        assert plain[0].memory.content == "Nora likes sailing in the morning wind."
        assert all("asked_kind" not in hit.signals for hit in bound.recall("What does Nora do?"))


def test_a_word_of_the_question_is_no_answer_to_it(open_sqlite: OpenTally) -> None:
    with open_sqlite() as tally:
        bound = tally.bind()
        bound.remember("The bakery opens early.")
        [hit] = bound.recall("Where is the bakery?")
        assert hit.signals.get("asked_kind", 0.0) < 0.5


@pytest.mark.parametrize(
    ("query", "asks"),
    [
        ("When is the wedding?", True),
        ("Tell me when the wedding is.", True),
        ("I forgot. When did she leave?", True),
        ("What did she say when he left?", False),
        ("How do you cope when the server is down?", False),
        ("On what day is the wedding?", True),
    ],
)
def test_when_asks_for_a_time_where_it_is_what_the_sentence_asks_first(
    query: str, asks: bool
) -> None:
    assert asks_when(query) == asks
