"""A tape answers what was recorded, once and in whatever order, and the first request that differs ends it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tallystick import Actor, Tally
from tallystick.errors import InvalidInput, NotReplayable, RecordedFailure, TapeDiverged
from tallystick.recorder import Player, read_tape, write_tape
from tallystick.records import Json, Tape
from tallystick.tally import BoundTally

SECRET = "ghp_" + "a1B2" * 9


def _recorded(bound: BoundTally) -> str:
    """A run: a question, two tools side by side, one of which fails, and a question that holds a secret."""
    with bound.run("clerk") as run:
        with run.step("model_call", name="m") as step:
            step.record("request", {"messages": ["Where are orders 7 and 8?"]})
            step.record("response", {"answer": "I look them up."})
        tools = [run.step("tool_call", name="find_order") for _ in range(2)]
        for number, tool in enumerate(tools, start=7):
            tool.record("tool_call", {"name": "find_order", "arguments": {"number": number}})
        tools[0].record("tool_result", {"result": "on its way"})
        tools[0].close()
        tools[1].fail(LookupError("no order 8"))
        with run.step("model_call", name="m") as step:
            step.record("request", {"messages": ["Where are orders 7 and 8?", f"The key is {SECRET}."]})
            step.record("response", {"answer": "7 is on its way."})
        with run.step("other") as step:
            step.record("note", "no call")
    return run.id


@pytest.fixture(scope="module")
def tape(tmp_path_factory: pytest.TempPathFactory) -> Tape:
    with Tally.open(tmp_path_factory.mktemp("tape") / "tally", background=False) as tally:
        bound = tally.bind()
        return bound.recorder.tape(_recorded(bound))


def _first(player: Player) -> Json:
    return player.model({"messages": ["Where are orders 7 and 8?"]})


def _eighth(player: Player) -> None:
    with pytest.raises(RecordedFailure, match="LookupError: no order 8"):
        player.tool("find_order", {"arguments": {"number": 8}})


def _last(player: Player, secret: str = SECRET) -> Json:
    return player.model({"messages": ["Where are orders 7 and 8?", f"The key is {secret}."]})


def test_an_agent_that_asks_the_same_is_answered_the_same_though_its_tools_come_in_another_order(tape: Tape) -> None:
    player = Player(tape)

    assert _first(player) == {"answer": "I look them up."}
    _eighth(player)
    assert player.tool("find_order", {"arguments": {"number": 7}, "tool_call_id": "another"}) == "on its way"
    assert _last(player) == {"answer": "7 is on its way."}

    report = player.finish()
    assert (report.matches, report.fidelity, report.calls, report.played) == (True, "exact_redacted", 4, 4)


def test_no_secret_stands_on_a_tape_and_what_is_asked_is_redacted_before_it_is_compared(tape: Tape) -> None:
    assert SECRET not in tape.dumps()
    player = Player(tape)

    assert _last(player) == {"answer": "7 is on its way."}
    with pytest.raises(TapeDiverged) as told:
        _last(player, secret="no secret at all")
    assert SECRET not in str(told.value)


def test_each_recorded_call_is_played_once(tape: Tape) -> None:
    player = Player(tape)
    _first(player)

    with pytest.raises(TapeDiverged, match=r"call 2 is not the recorded one \(model call m, step "):
        _first(player)


def test_a_call_beyond_the_recorded_ones_is_told_as_one_too_many(tape: Tape) -> None:
    player = Player(tape)

    with pytest.raises(TapeDiverged, match="call 1 asks the tool cancel_order, which the tape does not") as told:
        player.tool("cancel_order", {"arguments": {"number": 7}})

    assert told.value.step_id is None
    assert any('"number": 7' in line for line in told.value.diff)


def test_the_first_difference_is_what_is_told_from_then_on(tape: Tape) -> None:
    player = Player(tape)
    with pytest.raises(TapeDiverged) as first:
        player.model({"messages": ["Where is order 9?"]})
    assert '-    "Where are orders 7 and 8?"' in first.value.diff
    assert '+    "Where is order 9?"' in first.value.diff

    for go_on in (_first, _last, Player.finish):
        with pytest.raises(TapeDiverged) as again:
            go_on(player)
        assert (again.value.step_id, again.value.diff) == (first.value.step_id, first.value.diff)
    assert not player.report.matches


def test_an_agent_that_ends_early_is_told_what_it_left_out(tape: Tape) -> None:
    player = Player(tape)
    _first(player)
    _eighth(player)

    with pytest.raises(TapeDiverged, match=r"ended before 2 of 4 recorded calls; the next was tool call find_order"):
        player.finish()


def test_a_tool_that_runs_for_real_is_held_against_the_tape_and_counts_as_played(tape: Tape) -> None:
    player = Player(tape)
    player.passed("find_order", {"arguments": {"number": 8}})
    assert player.report.played == 1

    with pytest.raises(TapeDiverged, match="call 2 is not the recorded one"):
        player.passed("find_order", {"arguments": {"number": 8}})


def test_a_tape_comes_back_from_its_file_and_a_damaged_one_is_refused(tape: Tape, tmp_path: Path) -> None:
    write_tape(tape, tmp_path / "clerk.json")
    assert read_tape(tmp_path / "clerk.json") == tape

    for content in (b"", b"{}", b"\xff\xfe", (tmp_path / "clerk.json").read_bytes()[:-9]):
        (tmp_path / "broken.json").write_bytes(content)
        with pytest.raises(InvalidInput, match="is no tape"):
            read_tape(tmp_path / "broken.json")
    with pytest.raises(InvalidInput, match="is no tape"):
        read_tape(tmp_path / "absent.json")


def test_what_was_not_kept_makes_no_tape(open_tally: Callable[..., Tally]) -> None:
    with open_tally() as tally:
        bound = tally.bind(Actor(user="ada"))
        with bound.run("quiet", retention="metadata_only") as quiet, quiet.step("model_call") as step:
            step.record("request", {"messages": []})
        with pytest.raises(NotReplayable, match="its request was not kept"):
            bound.recorder.tape(quiet.id)
