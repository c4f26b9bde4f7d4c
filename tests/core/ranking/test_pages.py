"""Pages: what an assistant told, in a sentence of a long answer, is found."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import TypeAlias

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tallystick import Actor, BoundTally, Tally
from tallystick.embedding import StaticEmbedder
from tallystick.ranking import (
    Corpus,
    Entry,
    PageReader,
    Question,
    Ranked,
    RecallWeights,
    ask,
    indexed_words,
    sentence_spans,
)
from tallystick.ranking.confidence import evidence_of
from tallystick.ranking.pages import BestSentence, Pages, best_sentences, in_turn_if_better
from tallystick.records import NewMemory
from tallystick.settings import Settings
from tallystick.testing import HashEmbedder

OpenTally = Callable[..., Tally]
Turns: TypeAlias = list[tuple[str, str]]
ANNA = Actor(user="anna")

_FILLER = (
    "Here is a plan that leaves room for a change of mind.",
    "First, write down which steps matter most and by when they are due.",
    "Then compare three options, with what each of them costs and who decides.",
    "Many people find that plans are easier to settle in the morning.",
    "Keep a budget of hours and look at it every week.",
    "Finally, review what worked, and tell those who depend on it.",
)
_FOUND = {
    "The rear axle of that model takes a torque of 40 newton metres.": "Can you look that up?",
    "Doctor Ohara opens her practice at seven on Thursdays.": "And what did you find there?",
    "The night train to Vienna leaves from platform nine.": "Please check it for me.",
}
"""What the assistant found, and the line of the user that it answers."""
_SAID = (
    "My bike is a green tourer from 2019, what should I keep in mind?",
    "I see a doctor for my knee each month, can you plan around that?",
    "My sister lives in Vienna, could you draft a message to her?",
)


def _page(found: str = "") -> str:
    return " ".join([*_FILLER[:3], found, *_FILLER[3:]])


def _chat() -> Turns:
    lines = [*((line, "") for line in _SAID), *((line, found) for found, line in _FOUND.items())]
    return [turn for line, found in lines for turn in (("user", line), ("assistant", _page(found)))]


def _remembered(bound: BoundTally, turns: Turns) -> None:
    bound.remember_many(
        NewMemory(content=text, speaker=speaker, kind="turn", conversation="chat", position=place)
        for place, (speaker, text) in enumerate(turns)
    )


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("Which torque does the rear axle take?", "40 newton metres"),
        ("When does Doctor Ohara open her practice?", "seven on Thursdays"),
        ("From which platform does the night train leave?", "platform nine"),
        ("What did you tell me about the platform of the night train?", "platform nine"),
    ],
)
@pytest.mark.parametrize("embedder", [StaticEmbedder, HashEmbedder])
def test_what_an_assistant_told_in_one_sentence_of_a_page_is_found_first(
    open_tally: OpenTally, query: str, found: str, embedder: type
) -> None:
    with open_tally(embedder=embedder()) as tally:
        anna = tally.bind(ANNA)
        _remembered(anna, _chat())
        recalled = anna.recall(query)
        assert (found in recalled[0].content, recalled[0].memory.speaker) == (True, "assistant")
        assert recalled.confident


def test_the_signal_says_how_far_a_page_was_lifted_and_its_weight_turns_that_off(
    open_tally: OpenTally,
) -> None:
    query = "Which torque does the rear axle take?"
    with open_tally() as tally:
        anna = tally.bind(ANNA)
        _remembered(anna, _chat())
        first = anna.recall(query)[0]
        assert first.signals["sentence"] > 0
        assert first.signals["long_answers"] == 1.0
        without = anna.recall(query, weights=RecallWeights(sentence=0.0))
        assert without[0].memory.speaker == "user"
        assert all("sentence" not in hit.signals for hit in without)


def test_a_page_that_repeats_what_the_user_said_stays_behind_it(open_tally: OpenTally) -> None:
    with open_tally() as tally:
        anna = tally.bind(ANNA)
        told = "My bike is a green tourer from 2019"
        _remembered(anna, [*_chat(), ("user", "Thanks!"), ("assistant", _page(f"So: {told}."))])
        found = anna.recall("Which colour has my bike, the tourer from 2019?")
        assert (found[0].memory.speaker, told in found[0].content) == ("user", True)


def test_confidence_sees_the_sentence_of_a_page_and_its_own_vector_where_that_has_none() -> None:
    question, corpus = Question("Which torque?"), Corpus.empty()
    page = {"text": 1.0, "words": 0.9, "vector": 0.6}
    for vector, seen in ((0.4, 0.4), (0.8, 0.6), (None, 0.6)):
        hit = Ranked(1, 1.0, page, BestSentence(1.0, 0.5, vector))
        evidence = evidence_of(question, [hit], [corpus, *_many()], vectors=True)
        assert evidence is not None
        assert (evidence.words, evidence.vector) == (0.5, seen)


def _many() -> list[Corpus]:
    """Texts enough for rarity to say something."""
    entries = [
        Entry(doc, indexed_words(["and"]), 0, None, "turn", "chat", doc, None, None, None)
        for doc in range(60)
    ]
    return [Corpus.empty().updated(entries, dimension=0)]


def test_code_that_a_page_shows_tells_nothing(open_tally: OpenTally) -> None:
    """Its words find the page as before, and lift it no further."""
    code = "```python\nrear_axle_torque = take(rear, axle, torque)  # which torque\n```"
    with open_tally() as tally:
        anna = tally.bind(ANNA)
        page = f"{' '.join(_FILLER)}\n\n{code}\n"
        chat = [(who, page if who == "assistant" else text) for who, text in _chat()]
        _remembered(anna, chat)
        found = anna.recall("Which torque does the rear axle take?", limit=20)
        assert {hit.memory.speaker for hit in found} == {"user", "assistant"}
        assert all("sentence" not in hit.signals for hit in found)


def test_a_page_that_is_forgotten_is_not_read(open_tally: OpenTally) -> None:
    with open_tally() as tally:
        anna = tally.bind(ANNA)
        _remembered(anna, _chat())
        query = "Which torque does the rear axle take?"
        anna.forget(anna.recall(query)[0].memory.id, reason="wrong")
        assert not any("newton" in hit.content for hit in anna.recall(query))


_ODD_PAGES = (
    "x\n" * 3_000,
    "\u0130" * 900 + " torque axle.",
    "```\n" + "code\n" * 900 + "```",
    "word " * 20_000,
    "\u3002" * 2_000,
    "\u200b" * 3_000,
    "a.b.c." * 3_000,
    "\U0001f600" * 800 + " torque.",
)


@pytest.mark.parametrize(
    "query",
    [
        "???",
        "the of and",
        "a" * 5000,
        "你好吗",
        "😀",
        "İ Ⅷ ﬁ",
        "Which torque?",
        "What did you tell me?",
        "rear axle " * 900,
    ],
)
def test_odd_pages_and_odd_questions_are_answered_in_the_order_of_their_scores(
    open_sqlite: OpenTally, query: str
) -> None:
    with open_sqlite() as tally:
        anna = tally.bind(ANNA)
        odd = [turn for page in _ODD_PAGES for turn in (("user", "And?"), ("assistant", page))]
        _remembered(anna, [*_chat(), *odd])
        scores = [hit.score for hit in anna.recall(query, limit=30)]
        assert scores == sorted(scores, reverse=True)


def test_pages_of_a_large_scope_are_read_as_those_in_memory(open_tally: OpenTally) -> None:
    lifted = []
    for large in (10**6, 10):
        with open_tally(settings=Settings.read(large_scope=large)) as tally:
            anna = tally.bind(ANNA)
            if large > 10:
                _remembered(anna, [*_chat(), *_chat()[:4]])
            found = anna.recall("From which platform does the night train leave on Thursdays?")
            assert found.path.startswith("database" if large == 10 else "exact")
            lifted.append([(hit.content, hit.signals.get("sentence")) for hit in found])
    in_memory, from_database = lifted
    assert [content for content, _ in from_database] == [content for content, _ in in_memory]
    assert [value for _, value in from_database] == pytest.approx(
        [value for _, value in in_memory], abs=1e-3
    )
    assert any(value for _, value in in_memory)


def test_a_sentence_is_worth_the_same_on_a_page_as_alone() -> None:
    """What lifts a page is that it has more of the question, never that it is a page."""
    lines = ["Nora leaves for Vienna on the night train.", "Felix starts at the bakery in May."]
    texts = [*lines, *(_page(line) for line in lines), _page("Nora leaves Oslo by night train.")]
    entries = [
        Entry(doc, indexed_words([text]), 0, None, "turn", "chat", doc, None, None, None)
        for doc, text in enumerate(texts)
    ]
    corpus = Corpus.empty().updated(entries, dimension=0)
    question = ask("Who leaves for Vienna on the night train?", [corpus], 0)
    embed = StaticEmbedder().embed_words
    text = corpus.text_scores(question.weights, average=question.average_length)
    own = {
        "text": text,
        "words": np.array([1.0, 0.0, 1.0, 0.3, 0.6]),
        "vector": np.zeros(len(texts)),
    }
    best = best_sentences(
        question,
        [Pages(corpus, np.arange(2, 5), texts[2:])],
        own,
        np.arange(5) < 2,
        {"text": 0.5, "words": 0.0, "vector": 0.5},
        PageReader(contents=lambda _: {}, nearness=lambda _: None),
        embed,
    )
    assert [round(page.lead, 6) for page in best][:1] == [0.0]
    assert all(page.lead < 0 for page in best[1:])
    assert best[0].words == pytest.approx(1.0)


@given(st.lists(st.floats(-9, 9, allow_subnormal=False), max_size=8))
def test_pages_that_say_more_than_others_are_lifted_each_less_than_the_one_before(
    leads: Sequence[float],
) -> None:
    told = in_turn_if_better(np.array(leads, dtype=np.float64))
    assert [value > 0 for value in told] == [lead > 0 for lead in leads]
    by_lead = told[np.argsort(-np.array(leads, dtype=np.float64), kind="stable")]
    assert (by_lead <= 1 / np.arange(1, len(leads) + 1)).all()
    assert (np.diff(by_lead) <= 0).all()


def test_who_asks_what_the_assistant_told_is_given_its_pages_by_their_sentences() -> None:
    told = in_turn_if_better(np.array([-3.0, 2.0, -1.0]), asked=True)
    assert told.tolist() == [1 / 3, 1.0, 1 / 2]


_ENDS = re.compile(r"(?<=[.!?])\s+|(?<=[。！？])|\n+")


@given(st.text("ab.!?。！\n \t", max_size=20))
def test_sentences_end_after_their_mark_and_at_the_end_of_a_line(text: str) -> None:
    sentences = [text[start:end] for start, end in sentence_spans(text)]
    assert sentences == [part for part in _ENDS.split(text) if part.strip()]
