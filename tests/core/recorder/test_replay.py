"""A replay that is kept is a run of its own: it says of what, with which changes, and how it
compares.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tallystick import Actor, ContextItem, Tally
from tallystick.errors import InvalidInput, NotReplayable
from tallystick.records import ReplayRecipe
from tallystick.tally import BoundTally

OpenTally = Callable[..., Tally]
ASK = ContextItem(id="ask", kind="user_msg", content="When does the heron nest?")


def _recorded(bound: BoundTally) -> tuple[str, str]:
    """A recorded step with two memories in its context; its id and that of a memory's source."""
    steps = [
        bound.remember(text) for text in ("The heron nests in March.", "The stork nests in April.")
    ]
    with bound.run("planner", goal="birds") as run, run.step("model_call", name="scripted") as step:
        compiled = bound.compile([*bound.recall("heron and stork nest"), ASK], budget=1_000)
        step.record("request", {"items": [item.content for item in compiled.selected_items]})
        step.record("response", {"answer": "In March."})
    source = steps[0].source_id
    assert source is not None
    return step.id, source


def test_a_mutated_replay_is_kept_with_its_recipe_its_comparison_and_ids_of_its_own(
    open_tally: OpenTally,
) -> None:
    with open_tally() as tally:
        me = tally.bind(Actor(user="anna"))
        step_id, source = _recorded(me)
        requests: list[Any] = []

        def model(request: Any) -> Any:
            requests.append(request)
            return {"answer": "Nobody knows."}

        result = me.recordings.replay(
            step_id, call=model, without_sources=[source], notes="what if we forgot the heron?"
        )

        assert result.run_id != me.recordings.step(step_id).run_id
        assert result.diff is not None
        assert [change.item_id for change in result.diff.removed]
        assert "The heron nests" not in str(requests)
        assert "The stork nests" in str(requests)
        assert result.response_matches is False

        assert result.run_id is not None
        assert result.step_id is not None
        run = me.recordings.run(result.run_id)
        assert (run.agent_name, run.goal, run.status) == ("planner", "birds", "completed")
        origin: Any = run.metadata["replay_of"]
        assert origin["step_id"] == step_id
        payloads = {entry.kind: entry.payload for entry in me.recordings.entries(result.step_id)}
        assert list(payloads) == ["note", "compile_request", "compiled", "request", "response"]
        note: Any = payloads["note"]
        assert ReplayRecipe.load(note["recipe"]) == result.recipe
        assert note["recipe"]["notes"] == "what if we forgot the heron?"
        assert note["comparison"]["response_matches"] is False
        assert me.recordings.verify(run.id).ok

        again = me.recordings.preview_replay(result.step_id, call=model)
        assert (again.request_matches, again.response_matches, again.warnings) == (True, True, ())


def test_an_exact_replay_is_kept_with_what_was_answered_now(open_tally: OpenTally) -> None:
    with open_tally() as tally:
        me = tally.bind(Actor(user="anna"))
        step_id, _ = _recorded(me)
        result = me.recordings.replay(step_id, call=lambda request: {"answer": "In March."})
        assert (result.request_matches, result.response_matches) == (True, True)
        assert result.step_id is not None
        receipt_entry = me.recordings.receipt(result.step_id).entries[0].summary["replay"]
        assert isinstance(receipt_entry, dict)
        assert (
            receipt_entry["source_step_id"],
            receipt_entry["fidelity"],
            receipt_entry["response_matches"],
        ) == (
            step_id,
            "exact",
            True,
        )


def test_a_replay_whose_model_fails_is_kept_as_failed(open_tally: OpenTally) -> None:
    def broken(request: Any) -> Any:
        raise ConnectionError("no route")

    with open_tally() as tally:
        me = tally.bind(Actor(user="anna"))
        step_id, _ = _recorded(me)
        with pytest.raises(ConnectionError):
            me.recordings.replay(step_id, call=broken, token_budget=500)
        newest = me.recordings.runs()[0]
        assert (newest.status, [step.status for step in me.recordings.steps(newest.id)]) == (
            "failed",
            ["failed"],
        )


def test_a_replay_without_keeping_records_nothing(open_tally: OpenTally) -> None:
    with open_tally() as tally:
        me = tally.bind(Actor(user="anna"))
        step_id, source = _recorded(me)
        assert me.recordings.preview_replay(step_id, without_sources=[source]).run_id is None
        assert len(me.recordings.runs()) == 1


def test_a_source_that_nothing_comes_from_is_refused(open_tally: OpenTally) -> None:
    with open_tally() as tally:
        me = tally.bind(Actor(user="anna"))
        step_id, _ = _recorded(me)
        with pytest.raises(InvalidInput, match="nowhere"):
            me.recordings.preview_replay(step_id, without_sources=["nowhere"])


def test_a_recipe_is_followed_as_it_is_and_on_another_step_too(open_sqlite: OpenTally) -> None:
    with open_sqlite() as tally:
        me = tally.bind(Actor(user="anna"))
        first, source = _recorded(me)
        recipe = me.recordings.preview_replay(
            first, without_sources=[source], notes="no heron"
        ).recipe
        with pytest.raises(InvalidInput, match="token_budget"):
            me.recordings.preview_replay(first, recipe=recipe, token_budget=500)
        with me.run("planner") as run, run.step("model_call") as step:
            me.compile([*me.recall("heron nest"), ASK], budget=900)
            step.record("request", {"items": []})
        again = me.recordings.preview_replay(step.id, recipe=recipe)
        assert (again.recipe.source_step_id, again.recipe.source_run_id) == (step.id, run.id)
        assert (again.recipe.without_sources, again.recipe.notes) == ((source,), "no heron")
        assert again.diff is not None
        assert len(again.diff.removed) == 1


def test_a_replay_counts_tokens_as_a_compile_for_its_model_does(open_tally: OpenTally) -> None:
    with open_tally() as tally:
        me = tally.bind(Actor(user="anna"))
        with me.run("planner") as run, run.step("model_call") as step:
            me.compile([ASK], budget=1_000, model="gpt-4")
        other = me.compile([ASK], budget=1_000, model="gpt-4o")
        again = me.recordings.replay(step.id, model_override="gpt-4o")
        assert again.step_id is not None
        assert me.recordings.compiled(again.step_id).compiled.token_method == other.token_method


def test_a_step_that_compiled_nothing_says_so(open_tally: OpenTally) -> None:
    with open_tally() as tally:
        me = tally.bind(Actor(user="anna"))
        with me.run("planner") as run, run.step("model_call") as step:
            step.record("request", {"messages": []})
        with pytest.raises(NotReplayable) as refused:
            me.recordings.preview_replay(step.id, token_budget=100)
    assert "recorded no compiled context" in str(refused.value)
    assert "Record with retention" not in str(refused.value)
