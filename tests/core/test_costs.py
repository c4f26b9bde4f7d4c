"""What a piece of work took: counted where it is done, and shown with its step."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tallystick import ContextItem, Tally
from tallystick.costs import COSTS, Cost, costs_in, count, measured, totals
from tallystick.ranking.analyses import ANALYSES
from tallystick.settings import Settings

NOTE = "The harbour master keeps the tide table of the northern quay in the third drawer."


def test_an_outer_piece_has_what_an_inner_one_took_and_the_sums_have_it_once() -> None:
    before = totals()
    with measured("compile") as outer:
        count("reads")
        with measured("recall") as inner:
            count("reads")
            count("embeddings")

    assert (inner.cost.reads, inner.cost.embeddings) == (1, 1)
    assert (outer.cost.reads, outer.cost.embeddings) == (2, 1)
    assert outer.cost.cpu_us >= inner.cost.cpu_us
    after = totals()
    for piece in ("compile", "recall"):
        assert after[piece].reads - before.get(piece, Cost()).reads == 1


def test_nothing_is_counted_outside_of_a_piece() -> None:
    before = totals()
    count("reads")
    assert totals() == before


def test_what_is_found_says_what_it_took(tmp_path: Path) -> None:
    with Tally.open(tmp_path / "tally", background=False) as tally:
        bound = tally.bind()
        bound.remember(NOTE)
        found = bound.recall("Where is the tide table?")
    assert found.cost.reads > 0
    assert found.cost.wall_us > 0


@pytest.mark.parametrize("is_set", [True, False])
def test_a_step_keeps_what_its_pieces_took_where_that_is_asked_for(
    tmp_path: Path, is_set: bool
) -> None:
    settings = Settings.read(record_costs=is_set)
    with Tally.open(tmp_path / "tally", background=False, settings=settings) as tally:
        bound = tally.bind()
        with bound.run("clerk") as run, run.step("model_call") as step:
            bound.recall("Where is the tide table?")
            bound.compile([ContextItem(id="q", kind="user_msg", content="Where?")], budget=500)
        metadata = bound.recordings.step(step.id).metadata
        assert bound.recordings.verify(run.id).ok
    costs: Any = metadata.get(COSTS, {})
    assert set(costs) == ({"recall", "compile"} if is_set else set())


def test_a_text_is_split_into_words_once_while_it_is_asked_and_stored(tmp_path: Path) -> None:
    ANALYSES.clear()
    with Tally.open(tmp_path / "tally", background=False) as tally:
        bound = tally.bind()
        with measured("recall") as asked:
            bound.recall(NOTE)
        with measured("remember") as stored:
            bound.remember(NOTE)
        with measured("recall") as again:
            bound.recall(NOTE)
    assert (asked.cost.analyses, stored.cost.analyses, again.cost.analyses) == (1, 0, 0)


def test_the_words_of_texts_are_bounded_and_go_with_an_erasure(tmp_path: Path) -> None:
    ANALYSES.clear()
    with Tally.open(tmp_path / "tally", background=False) as tally:
        bound = tally.bind()
        bound.remember_many([f"{NOTE} It is number {number}." for number in range(50)])
        assert 0 < ANALYSES.bytes < 8 * 1024 * 1024
        known = tally.bind().memories(limit=1)[0]
        erase = bound.operator.erase
        token = erase(known.id, reason="asked for").confirm_token
        erase(known.id, reason="asked for", mode="apply", confirm_token=token)
        assert ANALYSES.bytes == 0


@pytest.mark.parametrize("own", [5, None, ["a"], {"recall": 5}, {"recall": {"reads": "x"}}])
def test_a_caller_s_own_metadata_of_that_name_cost_no_step_its_recall(
    tmp_path: Path, own: Any
) -> None:
    settings = Settings.read(record_costs=True)
    with Tally.open(tmp_path / "tally", background=False, settings=settings) as tally:
        bound = tally.bind()
        with bound.run("coder") as run:
            with run.step("model_call", metadata={COSTS: own}) as counted:
                bound.recall("Where is the tide table?")
            with run.step("other", metadata={COSTS: own}) as idle:
                pass
        assert set(costs_in(bound.recordings.step(counted.id).metadata)) == {"recall"}
        step = bound.recordings.step(idle.id)
        assert (costs_in(step.metadata), step.metadata[COSTS]) == ({}, own)
