"""In ordinary talk a session is shown what it needs, and each way to ask shows the same."""

from __future__ import annotations

from tests.benchmarks.everyday import (
    DATA,
    Direct,
    Learned,
    Middleware,
    load,
    measures_of,
    score,
)
from tests.benchmarks.measures import missed

DIALOGUES = load(DATA)


def test_a_working_set_holds_its_bars_beside_full_text_search() -> None:
    measures = list(measures_of(DIALOGUES, step=4, rows=("working set", "FTS5, any score")))

    assert missed(measures) == []
    asked = next(each.name for each in measures if each.name.startswith("unrelated requests"))
    assert asked == "unrelated requests answered of 250, percent"


def test_the_requests_of_an_agent_have_the_working_set() -> None:
    dialogue = next(each for each in DIALOGUES if each.language == "zh")
    scores = []
    for memory in (Direct(), Middleware(dialogue)):
        scores.append(score(memory, dialogue))
        memory.close()
    assert scores[0] == scores[1]
    assert scores[0].met


def test_with_a_model_that_is_right_facts_stand_for_turns_and_what_ended_is_not_shown() -> None:
    dialogue = next(each for each in DIALOGUES if each.language == "es")
    scores = []
    for memory in (Direct(), Learned(dialogue)):
        scores.append(score(memory, dialogue))
        memory.close()
    without, learned = scores
    assert learned.met >= 0.9 * learned.needs
    assert learned.outdated == 0 < without.outdated
    assert learned.useful / learned.shown > without.useful / without.shown
    assert learned.standing < without.standing
