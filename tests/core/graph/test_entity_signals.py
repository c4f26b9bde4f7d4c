"""What the graph adds to recall, for a question that names an entity."""

from __future__ import annotations

from collections.abc import Callable

from tests.core.graph.naming import namer

from tallystick.ranking import RecallWeights
from tallystick.records import Actor
from tallystick.settings import Settings
from tallystick.tally import Tally

OpenTally = Callable[..., Tally]
ALICE = Actor(user="alice")
BOB = Actor(user="bob")
ON = Settings(graph=True, learning="review")
WEIGHTS = RecallWeights(mentions=1, related=4)
TEXTS = (
    "Anna Becker reports to Otto Visser.",
    "Otto Visser lives in Delft.",
    "Rosa Moreau lives in Utrecht.",
    "Hugo Costa lives in Leiden.",
)


def test_a_question_about_somebody_reaches_whom_texts_relate_to_them(
    open_tally: OpenTally,
) -> None:
    with open_tally(settings=ON, learning_model=namer()) as tally:
        alice = tally.bind(ALICE)
        alice.remember_many(TEXTS)
        tally.drain()
        question = "Where does the boss of Anna Becker live?"
        best = alice.recall(question, weights=WEIGHTS)[:2]

        assert [hit.content for hit in best] == list(TEXTS[:2])
        assert best[0].signals["mentions"] > 0
        assert best[1].signals["related"] > 0


def test_a_question_without_an_entity_is_answered_as_without_the_graph(
    open_tally: OpenTally,
) -> None:
    questions = ("who lives where?", "tea", "report", "boss")
    answers = []
    for settings in (Settings(), ON):
        extractor = namer() if settings.graph else None
        with open_tally(settings=settings, learning_model=extractor) as tally:
            alice = tally.bind(ALICE)
            alice.remember_many(TEXTS)
            tally.drain()
            answers.append(
                [
                    [
                        (hit.content, hit.score, hit.signals)
                        for hit in alice.recall(query, weights=w)
                    ]
                    for query in questions
                    for w in (WEIGHTS, None)
                ]
            )
            with_none = alice.recall("Where does Anna Becker live?", weights=WEIGHTS)
            assert ("mentions" in with_none[0].signals) == settings.graph
            # The next one opens a tally of its own.
            for memory in alice.memories():
                alice.forget(memory.id, reason="the end")
    assert answers[0] == answers[1]


def test_what_a_text_of_another_scope_relates_is_no_hop(open_tally: OpenTally) -> None:
    with open_tally(settings=ON, learning_model=namer()) as tally:
        alice, bob = tally.bind(ALICE), tally.bind(BOB)
        alice.remember_many(TEXTS[1:])
        bob.remember(TEXTS[0])
        tally.drain()
        hits = alice.recall("Where does the boss of Anna Becker live?", weights=WEIGHTS)
        assert all("related" not in hit.signals for hit in hits)
