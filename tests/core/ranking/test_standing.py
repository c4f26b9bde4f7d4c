"""Standing instructions: found for a question that asks for help, and given at the start."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from tallystick import Actor, BoundTally, Tally
from tallystick.ranking import RecallWeights
from tallystick.ranking.standing import asks_for_help, in_turn, is_standing, states_preference
from tallystick.records import NewMemory

OpenTally = Callable[..., Tally]
ANNA = Actor(user="anna")

ASKED_FOR = (
    "Always format code with syntax highlighting when I ask about implementation details.",
    "Please never use emojis.",
    "From now on, answer in French.",
    "ok, and always run the tests first",
    "I have a question. When I ask about Python, show type hints.",
    "Make sure to always cite a source.",
    "I want you to always explain why.",
    "Ab jetzt bitte auf Deutsch antworten.",
    "Bitte immer kurz antworten.",
    "Antworte mir bitte immer auf Deutsch, wenn ich frage.",
    "À partir de maintenant, réponds en français.",
    "Réponds toujours en français.",
    "De ahora en adelante responde en español.",
    "Responde siempre en español",
    "D'ora in poi rispondi in italiano.",
    "A partir de agora, responde em português.",
    "Voortaan graag in het Nederlands.",
    "Zawsze odpowiadaj krótko.",
    "Всегда отвечай кратко.",
    "从现在开始用中文回答。",
    "これからは日本語で答えてください。",
    "앞으로는 한국어로 답해줘",
)
TOLD = (
    "I always run in the morning.",
    "She never eats meat.",
    "Always wanted to go there!",
    "Never been there.",
    "Always a pleasure!",
    "Never mind.",
    "Keep going and never give up!",
    "Trips like these are great - always full of memories!",
    "I'll see you in the future.",
    "From now on I will run daily.",
    "When I asked her, she laughed.",
    "Ich gehe immer laufen.",
    "Ab jetzt bin ich Vegetarier.",
    "J'ai toujours aimé ça.",
    "Siempre me ha gustado.",
    "Mi hermana siempre come tarde.",
)


@pytest.mark.parametrize("text", ASKED_FOR)
def test_what_is_asked_for_from_now_on_is_told(text: str) -> None:
    assert is_standing(text)


@pytest.mark.parametrize("text", TOLD)
def test_what_somebody_always_does_asks_for_nothing(text: str) -> None:
    assert not is_standing(text)


@pytest.mark.parametrize(
    "text",
    [
        "I'm keeping it small, so I prefer simple dependencies.",
        "We'd rather deploy on Fridays.",
        "I like tabs better than spaces.",
        "Ich bevorzuge kurze Antworten.",
        "Je préfère le train.",
        "Prefiero el tren.",
        "Ik heb liever thee.",
        "Я предпочитаю чай.",
        "我更喜欢喝茶",
        "お茶のほうが好きです",
    ],
)
def test_a_preference_is_told(text: str) -> None:
    assert states_preference(text)


@pytest.mark.parametrize("text", ["I like tea.", "She prefers tea.", "Do you prefer tea?"])
def test_what_is_liked_or_asked_is_no_preference_of_who_says_it(text: str) -> None:
    assert not states_preference(text)


@pytest.mark.parametrize(
    "query",
    [
        "How should I format my references?",
        "Could you show me a login form?",
        "Explain the caching layer",
        "Wie kann ich das testen?",
        "¿Cómo puedo probarlo?",
        "请帮我写一封信",
        "手紙の書き方を教えて",
    ],
)
def test_a_request_asks_for_help(query: str) -> None:
    assert asks_for_help(query)


@pytest.mark.parametrize(
    "query",
    [
        "What did we decide about the cache?",
        "Can you remind me what I said about Leo?",
        "Can you list what I brought up in our conversations?",
        "How do Jon and Gina destress?",
        "Where does Mia live?",
        "Was haben wir entschieden?",
    ],
)
def test_a_question_about_what_was_does_not(query: str) -> None:
    assert not asks_for_help(query)


def test_one_is_lifted_most_and_the_others_less_and_less() -> None:
    scores = np.array([1.0, 5.0, 3.0, 4.0])
    flags = np.array([True, False, True, True])
    assert in_turn(scores, flags).tolist() == [1 / 3, 0.0, 1 / 2, 1.0]
    assert in_turn(scores, np.zeros(4, dtype=bool)).tolist() == [0.0] * 4


def _chat(bound: BoundTally) -> None:
    said = [
        ("user", "Always name the torque when I ask about my bike."),
        ("assistant", "Always happy to. When you ask about your bike, I will name it."),
        *(
            (("user", f"I tried the {tool} for my bike today, it slipped twice."))
            for tool in ("wrench", "pump", "clamp", "spanner", "brush", "lever", "file", "vice")
        ),
        ("user", "Always answer in metric units."),
    ]
    bound.remember_many(
        NewMemory(content=text, kind="turn", speaker=speaker, conversation="bike", position=place)
        for place, (speaker, text) in enumerate(said)
    )


def test_a_question_for_help_finds_what_was_asked_for_from_now_on(open_sqlite: OpenTally) -> None:
    with open_sqlite() as tally:
        anna = tally.bind(ANNA)
        _chat(anna)
        asking = "How should I tighten the brake cable of my bike?"
        hits = anna.recall(asking, limit=3)
        lifted = {hit.memory.content: hit.signals.get("standing") for hit in hits}
        assert 1.0 in lifted.values()
        assert all("Always" in text for text, value in lifted.items() if value)
        without = anna.recall(asking, limit=20, weights=RecallWeights(standing=0))
        assert without[0].memory.content != hits[0].memory.content
        told = anna.recall("Which tool slipped on the bike?", limit=20)
        assert all("standing" not in hit.signals for hit in told)


def test_a_question_for_help_finds_what_is_preferred(open_sqlite: OpenTally) -> None:
    with open_sqlite() as tally:
        anna = tally.bind(ANNA)
        _chat(anna)
        preferred = "I prefer tools without a battery for my bike."
        anna.remember(preferred, kind="turn", speaker="user")
        lifted = {
            hit.memory.content: hit.signals.get("preference")
            for hit in anna.recall("Which pump would you suggest for my bike?", limit=20)
        }
        assert lifted.pop(preferred) == 1.0
        assert not any(lifted.values())
        assert preferred in [
            item.text.removeprefix("user: ")
            for item in anna.wake().items
            if item.chosen_as == "preference"
        ]


def test_the_assistant_asks_for_nothing(open_sqlite: OpenTally) -> None:
    with open_sqlite() as tally:
        anna = tally.bind(ANNA)
        anna.remember("Always clean the chain first.", speaker="assistant", kind="turn")
        anna.remember("The chain of my bike squeaks.", speaker="user", kind="turn")
        found = anna.recall("How should I clean the chain?")
        assert all(not hit.signals.get("standing") for hit in found)
        assert all(item.chosen_as != "standing" for item in anna.wake().items)


def test_what_stays_on_this_machine_asks_for_nothing_by_that(open_sqlite: OpenTally) -> None:
    with open_sqlite() as tally:
        anna = tally.bind(ANNA)
        anna.remember("The heron nests in March.", attributes={"local_only": True})
        assert all(item.chosen_as != "standing" for item in anna.wake().items)
        assert "standing" not in anna.recall("Can you help me find herons?")[0].signals


def test_a_wake_gives_them_before_what_is_recent(open_sqlite: OpenTally) -> None:
    with open_sqlite() as tally:
        anna = tally.bind(ANNA)
        _chat(anna)
        for place in range(60):
            anna.remember(f"The tide came at {place} past the hour and nobody minded it at all.")
        items = anna.wake(budget_tokens=400).items
        assert [item.text for item in items if item.chosen_as == "standing"] == [
            "user: Always answer in metric units.",
            "user: Always name the torque when I ask about my bike.",
        ]
        assert items[0].chosen_as == "standing"


def test_a_wake_gives_none_that_was_taken_back(open_sqlite: OpenTally) -> None:
    with open_sqlite() as tally:
        anna = tally.bind(ANNA)
        kept = anna.remember("Always answer in metric units.", kind="note")
        gone = anna.remember("Never use tables.", kind="note")
        anna.forget(gone.id, reason="changed my mind")
        chosen = [item.id for item in anna.wake().items if item.chosen_as == "standing"]
        assert chosen == [kept.id]
