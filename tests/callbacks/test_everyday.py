"""In ordinary talk a session is shown what it needs, and each way to ask shows the same."""

from __future__ import annotations

from tests.benchmarks.everyday import (
    DATA,
    Direct,
    Fts5,
    Learned,
    Middleware,
    Score,
    answered_unrelated,
    load,
    score,
)

DIALOGUES = load(DATA)


def test_a_working_set_has_more_of_what_is_needed_than_full_text_search() -> None:
    ours, theirs = Score(), Score()
    for dialogue in DIALOGUES:
        memory = Direct()
        ours.add(score(memory, dialogue))
        memory.close()
        theirs.add(score(Fts5(), dialogue))

    assert ours.needs == theirs.needs
    assert ours.met > 1.3 * theirs.met
    assert ours.useful / ours.shown > theirs.useful / theirs.shown
    assert ours.silent > theirs.silent
    assert ours.outdated < theirs.outdated


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
    assert learned.met >= without.met
    assert learned.outdated == 0 < without.outdated
    assert learned.useful / learned.shown > without.useful / without.shown
    assert learned.standing < without.standing


def test_what_has_nothing_to_do_with_a_user_is_answered_with_nothing() -> None:
    counts = answered_unrelated(DIALOGUES, step=4).values()

    assert sum(asked for _, asked in counts) == 250
    assert sum(answered for answered, _ in counts) <= 0.05 * 250
