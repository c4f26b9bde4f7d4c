"""Confidence: a score means the same in every question, and nothing known is said to be nothing."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tests.benchmarks.facts import LANGUAGES, UNRELATED, UNRELATED_OF_MINE, Facts, chat, facts

from tallystick import Actor, BoundTally, Tally
from tallystick.errors import InvalidInput
from tallystick.records import NewMemory

OpenTally = Callable[..., Tally]
ANNA = Actor(user="anna")


def _remembered(bound: BoundTally, talk: Facts, speakers: tuple[str, str]) -> None:
    bound.remember_many(
        NewMemory(content=text, speaker=speakers[place % 2], kind="turn", conversation="talk")
        for place, text in enumerate(talk.turns)
    )


@pytest.mark.parametrize("kind", ["friends", "assistant", "Chinese"])
def test_nothing_is_shown_for_unrelated_requests_and_answers_are(
    open_sqlite: OpenTally, kind: str
) -> None:
    """At most one in twenty of unrelated requests is taken to be answered, also of those from
    somebody who speaks of himself, and of questions that are answered at most one in fifty is not.
    """
    talk = chat(seed=7) if kind == "assistant" else facts(LANGUAGES.get(kind, ENGLISH), seed=7)
    speakers = ("user", "assistant") if kind == "assistant" else ("Ada", "Ben")
    with open_sqlite() as tally:
        anna = tally.bind(ANNA)
        _remembered(anna, talk, speakers)
        shown = [anna.recall(text).confident for text in UNRELATED[1::2]]
        of_mine = [anna.recall(text).confident for text in UNRELATED_OF_MINE[1::2]]
        answered = [anna.recall(question).confident for question, _ in talk.questions]
    assert sum(shown) <= len(shown) / 20
    assert sum(of_mine) <= len(of_mine) / 20
    assert sum(answered) >= len(answered) * 49 / 50


ENGLISH = LANGUAGES["English"]


def test_a_pronoun_is_no_evidence(open_sqlite: OpenTally) -> None:
    with open_sqlite() as tally:
        anna = tally.bind(ANNA)
        anna.remember_many(["I moved to Leeds in May.", "My sister keeps bees.", "Rent is due."])
        assert anna.recall("I need a present. What does my sister like?").confident
        for request in (
            "I need a poem about compilers.",
            "My class starts soon. Explain how volcanoes work.",
            "Can you make my Dockerfile smaller?",
            "Ich brauche ein Gedicht über Vulkane.",
        ):
            assert not anna.recall(request).confident, request


@pytest.mark.parametrize(
    ("question", "nonsense"),
    [
        ("What do I do for a living?", "I own a red bicycle."),
        ("How old am I?", "I turned 3 corners and got lost."),
        pytest.param(
            "Where do I live?",
            "I live in my headphones.",
            marks=pytest.mark.xfail(strict=True, reason="one shared word, and near in meaning"),
        ),
    ],
)
def test_nonsense_that_looks_like_an_introduction_answers_nothing(
    open_sqlite: OpenTally, question: str, nonsense: str
) -> None:
    with open_sqlite() as tally:
        anna = tally.bind(ANNA)
        anna.remember_many(
            [
                nonsense,
                "I'm a stickler for grammar.",
                "I write firmware for hearing aids.",
                "My commute from Croydon takes an hour.",
                "I'm a vegetarian.",
                "My 41st birthday was loud.",
            ]
        )
        assert len(anna.recall(question, only_confident=True)) == 0


def test_a_score_compares_across_questions(open_sqlite: OpenTally) -> None:
    with open_sqlite() as tally:
        anna = tally.bind(ANNA)
        anna.remember_many(["I am allergic to nuts.", "My sister keeps bees.", "Rent is due."])
        known = anna.recall("What am I allergic to?")
        unknown = anna.recall("Write a haiku about compilers.")
        assert known[0].content == "I am allergic to nuts."
        assert (known.confident, unknown.confident) == (True, False)
        assert known[0].score == known.confidence > 0.5
        assert all(hit.score < 0.25 for hit in unknown)
        assert sorted((hit.score for hit in known), reverse=True) == [hit.score for hit in known]


def test_min_score_keeps_what_is_likely_to_answer(open_sqlite: OpenTally) -> None:
    with open_sqlite() as tally:
        anna = tally.bind(ANNA)
        anna.remember_many(["I am allergic to nuts.", "My sister keeps bees.", "Rent is due."])
        every = anna.recall("What am I allergic to?")
        some = anna.recall("What am I allergic to?", min_score=0.5)
        assert [hit.memory.id for hit in some] == [
            hit.memory.id for hit in every if hit.score >= 0.5
        ]
        assert len(anna.recall("Write a haiku about compilers.", min_score=0.5)) == 0
        for wrong in (-0.1, 1.1):
            with pytest.raises(InvalidInput, match="min_score"):
                anna.recall("nuts", min_score=wrong)


def test_an_empty_tally_is_confident_of_nothing(open_sqlite: OpenTally) -> None:
    with open_sqlite() as tally:
        found = tally.bind(ANNA).recall("What am I allergic to?")
        assert (len(found), found.confident, found.confidence) == (0, False, 0.0)


def test_what_was_withheld_is_recorded_as_withheld_and_not_as_read(open_sqlite: OpenTally) -> None:
    with open_sqlite() as tally:
        anna = tally.bind(ANNA)
        anna.remember_many(["I am allergic to nuts.", "My sister keeps bees."])
        with anna.run("cook") as run, run.step("model_call") as step:
            for text in ("What am I allergic to?", "Write a haiku about compilers."):
                anna.recall(text, only_confident=True)

        known, unknown = [
            entry for entry in anna.recordings.entries(step.id) if entry.kind == "memory_read"
        ]
        found = len(anna.recall("Write a haiku about compilers."))
        assert known.summary["memories"] != []
        assert "withheld" not in known.summary
        assert (unknown.summary["memories"], unknown.summary["withheld"]) == ([], found)
        assert found > 0
        assert unknown.payload == {"query": "Write a haiku about compilers.", "hits": []}


def test_only_confident_gives_all_or_nothing(open_sqlite: OpenTally) -> None:
    with open_sqlite() as tally:
        anna = tally.bind(ANNA)
        anna.remember_many(["I am allergic to nuts.", "My sister keeps bees.", "Rent is due."])
        every = anna.recall("What am I allergic to?")
        known = anna.recall("What am I allergic to?", only_confident=True)
        found = len(anna.recall("Write a haiku about compilers."))
        unknown = anna.recall("Write a haiku about compilers.", only_confident=True)
        assert ([hit.memory.id for hit in known], known.withheld) == (
            [hit.memory.id for hit in every],
            0,
        )
        assert (len(unknown), unknown.withheld, unknown.confident) == (0, found, False)
        assert found > 0
