"""Conversations: what recall makes of a chat whose assistant answers at length."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import TypeAlias

import numpy as np
import pytest

from tallystick import Actor, BoundTally, Tally
from tallystick.ranking import SIGNALS, Corpus, Entry, indexed_words
from tallystick.ranking.signals import answered_at_length
from tallystick.records import Hit, NewMemory

OpenTally = Callable[..., Tally]
Turns: TypeAlias = list[tuple[str, str]]
ANNA = Actor(user="anna")

_PAGE = (
    "Great question! Here is a plan for your {0}. First, write down what the {0} needs and when. "
    "Second, set a deadline for the {0} and a budget that leaves room. Third, look at libraries "
    "which others use for a {0}, compare their cost, and choose one. Finally, test the {0} each "
    "week, keep notes of every change, and tell those who depend on it. Would you like an example?"
)


def _chat() -> Turns:
    """A user who tells while asking, and an assistant that answers with a page."""
    asked = [
        ("I'm setting the deadline of my budget app to March 3, can you plan it?", "budget app"),
        ("I use Flask and Chart.js for the dashboard, is that a good choice?", "dashboard"),
        ("My cache holds 512 entries, how do I test it?", "cache"),
        ("Dana reviews the login form on Mondays, what should she look at?", "login form"),
    ]
    return [turn for ask, topic in asked for turn in (("user", ask), ("assistant", _page(topic)))]


def _page(topic: str) -> str:
    return _PAGE.format(topic)


def _remembered(bound: BoundTally, turns: Turns, conversation: str = "chat") -> None:
    bound.remember_many(
        NewMemory(
            content=text, speaker=speaker, kind="turn", conversation=conversation, position=place
        )
        for place, (speaker, text) in enumerate(turns)
    )


@pytest.mark.parametrize(
    ("query", "answer"),
    [
        ("What is the deadline of my budget app?", "March 3"),
        ("Which libraries does my dashboard use?", "Chart.js"),
        ("How many entries does the cache hold?", "512"),
        ("Could you suggest what to test in the login form each week?", "Dana"),
    ],
)
def test_a_user_who_tells_while_asking_is_found_before_the_page_that_repeats_it(
    open_tally: OpenTally, query: str, answer: str
) -> None:
    with open_tally() as tally:
        anna = tally.bind(ANNA)
        _remembered(anna, _chat())
        first = anna.recall(query)[0]
        assert (answer in first.content, first.memory.speaker) == (True, "user")


def test_a_chat_about_code_is_judged_by_what_is_said_in_it(open_tally: OpenTally) -> None:
    """Code that a user pastes makes messages long, and tells nothing."""
    pasted = "\n```python\n" + "if row.value > 10: total = total + row.value\n" * 12 + "```"
    with open_tally() as tally:
        anna = tally.bind(ANNA)
        chat = [(who, f"{text}{pasted}" if who == "user" else text) for who, text in _chat()]
        _remembered(anna, chat)
        found = anna.recall("What is the deadline of my budget app?", limit=20)
        assert (found[0].memory.speaker, "March 3" in found[0].content) == ("user", True)
        penalised = [hit for hit in found if hit.signals.get("long_answers")]
        assert {hit.memory.speaker for hit in penalised} == {"assistant"}


def test_what_the_assistant_said_is_found_where_it_is_asked_for(open_tally: OpenTally) -> None:
    with open_tally() as tally:
        anna = tally.bind(ANNA)
        _remembered(anna, _chat())
        found = anna.recall("What did the assistant recommend for the cache?")
        assert found[0].memory.speaker == "assistant"
        assert found[0].signals["speaker"] == 1


def test_friends_who_are_called_user_and_assistant_are_friends(open_tally: OpenTally) -> None:
    """Their turns are of one length, so that both tell."""
    with open_tally() as tally:
        anna = tally.bind(ANNA)
        _remembered(
            anna,
            [
                ("user", "Which instrument do you practise in the evening?"),
                ("assistant", "The cello, and on Sundays I sing in a choir."),
                ("user", "Lovely! I only have time for my garden."),
                ("assistant", "Do you grow tomatoes again this year?"),
            ],
        )
        found = anna.recall("Who practises the cello?")
        assert any(hit.content.startswith("The cello") for hit in found[:2])
        assert _signals(found, "long_answers") == set()


def test_each_conversation_is_judged_by_its_own_turns(open_tally: OpenTally) -> None:
    with open_tally() as tally:
        anna = tally.bind(ANNA)
        _remembered(anna, _chat())
        _remembered(
            anna,
            [
                ("user", "Did the cache of the bakery open at six?"),
                ("assistant", "No, at seven; its owner was late again."),
            ],
            conversation="between friends",
        )
        found = anna.recall("cache owner", limit=20)
        penalised = {hit.memory.conversation for hit in found if hit.signals.get("long_answers")}
        assert penalised == {"chat"}


def _signals(found: object, name: str) -> set[float]:
    hits: list[Hit] = list(found)  # type: ignore[call-overload]
    return {hit.signals[name] for hit in hits if name in hit.signals}


def _entry(doc: int, speaker: str, text: str | None, conversation: str = "chat") -> Entry:
    words = None if text is None else indexed_words([text])
    return Entry(doc, words, 0, speaker, "turn", conversation, doc, None, None, None)


def test_what_was_found_of_a_conversation_follows_its_turns() -> None:
    """A corpus that grew says what one that was made at once says, also after turns left."""
    turns = [*_chat(), *[("assistant", "Yes.")] * 3, *_chat()]
    corpus = Corpus.empty()
    states = []
    entries: list[Entry] = []
    for doc, (speaker, text) in enumerate(turns):
        entries.append(_entry(doc, speaker, text))
        corpus = corpus.update([entries[-1]])
        states.append((corpus, list(entries)))
    gone = [_entry(doc, "assistant", None) for doc in (1, 3, 5, 7, 15, 17)]
    lasting = [entry for entry in entries if entry.doc not in {entry.doc for entry in gone}]
    states.append((corpus.update(gone), lasting))

    def judged(corpus: Corpus) -> bool:
        rows = np.flatnonzero(corpus.alive)
        long = set(answered_at_length(corpus, rows).tolist())
        (answer,) = long
        return bool(answer)

    grown = [judged(corpus) for corpus, _ in states]
    assert grown == [judged(Corpus.empty().update(entries)) for _, entries in states]
    assert set(grown) == {True, False}


def test_a_loose_note_belongs_to_no_chat() -> None:
    note = Entry(
        9, indexed_words(["A note."]), 0, "assistant", "note", None, None, None, None, None
    )
    chat = [_entry(doc, speaker, text) for doc, (speaker, text) in enumerate(_chat())]
    corpus = Corpus.empty().update([*chat, note])
    rows = corpus.rows_of([0, 9, 1])
    assert answered_at_length(corpus, rows).tolist() == [True, False, True]


def test_a_conversation_lifts_its_turns_less_where_there_are_few() -> None:
    (session,) = [signal for signal in SIGNALS if signal.name == "session"]
    scores = np.array([2.0, 1.0, 0.0, 0.0] + [0.0] * 12)

    def lifts(*sessions: int) -> list[float]:
        values = session.measure(SimpleNamespace(session=np.array(sessions)), scores)  # type: ignore[arg-type]
        assert values is not None
        return list(values)

    few, many = lifts(0, 0, 1, 1, *[2] * 12), lifts(0, 0, 1, 1, *range(2, 14))
    assert 0 < few[0] < many[0]
    assert many[1] == many[0]
    assert lifts(*[-1] * 16)[0] > 1, "what is in no conversation keeps its own"


def test_a_name_is_a_word_where_others_say_it(open_tally: OpenTally) -> None:
    chat = [
        ("Momo", "Plot 14 is finally ours."),
        ("kestrel", "Tuba is in Porto until June, so six of us."),
        ("Momo", "I can bring the copies on Thursday."),
        ("Tuba", "Who has my trowel?"),
        ("Pip", "It lies in the green crate."),
        ("Tuba", "And what grows on my third?"),
    ]
    with open_tally(owner=ANNA) as tally:
        bound = tally.bind()
        _remembered(bound, chat)
        hits = bound.recall("Where was Tuba in spring?")
    by_text = {hit.memory.content: hit.signals for hit in hits}
    assert by_text[chat[1][1]]["text"] > 0
    assert "speaker" not in by_text[chat[1][1]]
    assert by_text[chat[3][1]]["text"] == 0
    assert by_text[chat[3][1]]["speaker"] == 1


def test_a_page_that_tells_something_of_its_own_keeps_its_place(open_tally: OpenTally) -> None:
    pages = [_page("budget app"), f"{_page('login form')} Sluice gates lock the form at night."]
    with open_tally(owner=ANNA) as tally:
        bound = tally.bind()
        _remembered(
            bound,
            [
                ("user", "How do I plan my budget app?"),
                ("assistant", pages[0]),
                ("user", "What guards my login form?"),
                ("assistant", pages[1]),
            ],
        )
        told = bound.recall("Which sluice gates are there?")
        repeated = bound.recall("What is my budget app?")
    assert told[0].memory.content == pages[1]
    signals = {hit.memory.content: hit.signals.get("long_answers", 0) for hit in repeated}
    assert told[0].signals.get("long_answers", 0) < signals[pages[0]] <= 1
    assert repeated[0].memory.content == "How do I plan my budget app?"


@pytest.mark.parametrize(("kind", "lent"), [("turn", True), ("document", False)])
def test_a_passage_of_a_document_stands_for_itself_and_a_turn_answers_the_one_before(
    kind: str, lent: bool, open_tally: OpenTally
) -> None:
    texts = [*["Rainfall was low that year."] * 3, "The sluice gates close at night.", "At nine."]
    with open_tally(owner=ANNA) as tally:
        bound = tally.bind()
        bound.remember_many(
            NewMemory(content=text, kind=kind, conversation="one", position=place)
            for place, text in enumerate(texts)
        )
        found = bound.recall("When do the sluice gates close?", limit=9)
    beside = next(hit for hit in found if hit.memory.content == "At nine.")
    assert (beside.signals.get("neighbours", 0) > 0) is lent
    assert (beside.signals["words"] > 0.1) is lent
