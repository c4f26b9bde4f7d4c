"""A tape plays what was recorded to whoever asks the same, and says in a diff where something else
is asked.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tallystick import Actor, Tally
from tallystick.errors import (
    InvalidInput,
    NotReplayable,
    RecordedFailure,
    TallystickError,
    TapeDiverged,
)
from tallystick.recorder import Player, Run, read_tape, write_tape
from tallystick.records import Divergence, Tape, TapeCall
from tallystick.records.framing import ANSWER_NOTICE, frame_quotes, signed_answer
from tallystick.settings import Settings
from tallystick.tally import BoundTally

OpenTally = Callable[..., Tally]
OPERATOR = Actor(user="local", role="operator")
KEY, OTHER_KEY = (f"sk-proj-{letter * 40}A1b2" for letter in "ab")
REFUND = {"messages": [{"role": "user", "content": "Refund order 7."}]}
REFUNDED = {"messages": [*REFUND["messages"], {"role": "tool", "content": "done"}]}


def _model(run: Run, request: Any, answer: Any = None, error: BaseException | None = None) -> None:
    step, _ = run.join("model_call", name="model")
    step.record("request", request)
    if error is not None:
        step.fail(error)
    else:
        step.record("response", {"answer": answer})
        step.end(wait=False)


def _tool(run: Run, name: str, arguments: Any, result: Any) -> None:
    with run.step("tool_call", name=name) as step:
        step.record("tool_call", {"name": name, "arguments": arguments, "tool_call_id": "c1"})
        step.record("tool_result", {"result": result})


def _refund(bound: BoundTally) -> str:
    """A run that asks, calls a tool and asks again."""
    with bound.run("clerk") as run:
        _model(run, REFUND, "I call refund.")
        _tool(run, "refund", {"order": 7}, "done")
        _model(run, REFUNDED, "It is refunded.")
    return run.id


@pytest.mark.smoke
def test_a_run_is_played_from_its_tape_without_a_model(
    open_tally: OpenTally, tmp_path: Path
) -> None:
    with open_tally() as tally:
        bound = tally.bind(OPERATOR)
        run_id = _refund(bound)
        tape = bound.recordings.tape(run_id)
        assert [(call.kind, call.name, call.response) for call in tape.calls] == [
            ("model_call", "model", {"answer": "I call refund."}),
            ("tool_call", "refund", {"result": "done"}),
            ("model_call", "model", {"answer": "It is refunded."}),
        ]
        write_tape(tape, tmp_path / "tapes" / "refund.json")

    player = Player(read_tape(tmp_path / "tapes" / "refund.json"))
    assert player.model(REFUND) == {"answer": "I call refund."}
    assert player.tool("refund", {"arguments": {"order": 7}}) == "done"
    assert (player.report.played, player.report.matches) == (2, False)
    assert player.model(REFUNDED) == {"answer": "It is refunded."}
    report = player.finish()
    assert (report.fidelity, report.calls, report.played, report.matches) == ("exact", 3, 3, True)


@given(
    request=st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(st.characters()),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
        max_leaves=8,
    )
)
def test_a_tape_is_the_same_when_it_is_read_from_its_file(
    tmp_path_factory: pytest.TempPathFactory, request: Any
) -> None:
    path = tmp_path_factory.mktemp("tape") / "tape.json"
    call = TapeCall(step_id="s1", kind="model_call", request=request, response={"answer": request})
    tape = Tape(run_id="r1", agent_name="clerk", retention="full_payloads", calls=(call,))
    write_tape(tape, path)
    assert read_tape(path) == tape
    assert Player(tape).model(request) == {"answer": request}


def test_the_first_difference_is_told_once_and_for_all(open_sqlite: OpenTally) -> None:
    with open_sqlite() as tally:
        player = tally.recordings.player(_refund(tally.bind()))
    changed = {"messages": [{"role": "user", "content": "Refund order 8."}]}
    with pytest.raises(TapeDiverged) as first:
        player.model(changed)
    step_id = player.tape.calls[0].step_id
    assert str(first.value).splitlines() == [
        f"The agent left its tape: call 1 is not the recorded one (model call model, step "
        f"{step_id[-8:]}).",
        "--- recorded",
        "+++ asked now",
        "@@ -2,5 +2,5 @@",
        '   "messages": [',
        "     {",
        '-      "content": "Refund order 7.",',
        '+      "content": "Refund order 8.",',
        '       "role": "user"',
        "     }",
    ]
    assert first.value.step_id == step_id
    # An agent that takes the error for a failed call goes on, and is told the same.
    for ask in (
        lambda: player.model(REFUND),
        lambda: player.tool("refund", {"arguments": {}}),
        player.finish,
    ):
        with pytest.raises(TapeDiverged) as again:
            ask()
        assert str(again.value) == str(first.value)
    assert player.report.divergence == Divergence(
        step_id=step_id, what=first.value.what, diff=first.value.diff
    )


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        ({"messages": []}, ": of `messages` 1 missing"),
        ({"messages": [*REFUND["messages"], {"role": "user"}]}, ": of `messages` 1 not recorded"),
        (
            {"messages": [{"role": "user"}, {"role": "tool"}]},
            ": of `messages` 1 missing and 2 not recorded",
        ),
        ({"messages": [{"role": "user"}]}, ")"),
        ({**REFUND, "stop": ["END"]}, ")"),
    ],
)
def test_a_divergence_says_how_many_messages_are_missing_or_too_many(
    open_sqlite: OpenTally, asked: Any, told: str
) -> None:
    with open_sqlite() as tally:
        player = tally.recordings.player(_refund(tally.bind()))
    with pytest.raises(TapeDiverged) as caught:
        player.model(asked)
    assert caught.value.what.endswith(told)
    assert caught.value.diff


def test_a_message_with_memories_that_is_missing_is_called_so(open_sqlite: OpenTally) -> None:
    with open_sqlite() as tally:
        bound = tally.bind()
        memories = {
            "role": "user",
            "content": frame_quotes(["Order 7 was broken on arrival."], b"key"),
        }
        with bound.run("clerk") as run:
            _model(run, {"messages": [memories, *REFUND["messages"]]}, "Yes.")
        player = tally.recordings.player(run.id)
    with pytest.raises(
        TapeDiverged, match="of `messages` 1 missing, with memories that a tally recalled"
    ):
        player.model(REFUND)


def test_a_tape_compares_frames_without_their_codes(open_sqlite: OpenTally) -> None:
    """Each tally makes codes with its own keys; what stands between the marks still counts."""

    def request(text: str, key: bytes) -> dict[str, Any]:
        answer = json.dumps(signed_answer({"notice": ANSWER_NOTICE, "memories": [text]}, key))
        told = [
            {"role": "user", "content": frame_quotes([text], key)},
            {"role": "tool", "text": answer},
        ]
        return {"messages": [*told, *REFUND["messages"]]}

    with open_sqlite() as tally:
        bound = tally.bind()
        with bound.run("clerk") as run:
            _model(run, request("Order 7 was broken.", b"one"), "Yes.")
        player = tally.recordings.player(run.id)
        assert player.model(request("Order 7 was broken.", b"two"))
        other = tally.recordings.player(run.id)
    with pytest.raises(TapeDiverged):
        other.model(request("Order 8 was broken.", b"two"))


def test_more_calls_than_were_recorded_diverge(open_sqlite: OpenTally) -> None:
    with open_sqlite() as tally:
        run_id = _refund(tally.bind())
        for name, arguments, what in (
            (
                "refund",
                {"order": 7},
                "call 2 asks the tool refund, and the tape holds no such call any more",
            ),
            ("ship", {}, "call 2 asks the tool ship, and the tape holds no such call any more"),
        ):
            player = tally.recordings.player(run_id)
            player.tool("refund", {"arguments": {"order": 7}})
            with pytest.raises(TapeDiverged) as caught:
                player.tool(name, {"arguments": arguments})
            assert (caught.value.what, caught.value.step_id, player.report.matches) == (
                what,
                None,
                False,
            )


def test_fewer_calls_than_were_recorded_diverge_at_the_end(open_sqlite: OpenTally) -> None:
    with open_sqlite() as tally:
        player = tally.recordings.player(_refund(tally.bind()))
    player.model(REFUND)
    with pytest.raises(
        TapeDiverged, match="ended before 2 of 3 recorded calls; the next was tool call refund"
    ) as raised:
        player.finish()
    assert raised.value.step_id == player.tape.calls[1].step_id


def test_calls_that_run_side_by_side_may_come_in_another_order(open_sqlite: OpenTally) -> None:
    with open_sqlite() as tally:
        with tally.bind().run("fan") as run:
            for n in range(40):
                _tool(run, "look", {"n": n}, n * n)
        player = tally.recordings.player(run.id)
    with ThreadPoolExecutor(8) as threads:
        answers = list(
            threads.map(lambda n: player.tool("look", {"arguments": {"n": n}}), reversed(range(40)))
        )
    assert answers == [n * n for n in reversed(range(40))]
    assert player.finish().matches


@pytest.mark.parametrize(
    ("recorded", "asked"), [(1, True), (1, 1.0), (0, False), ({"a": [1]}, {"a": [True]})]
)
def test_what_only_python_takes_for_the_same_diverges(
    open_sqlite: OpenTally, recorded: Any, asked: Any
) -> None:
    with open_sqlite() as tally:
        with tally.bind().run("asker") as run:
            _tool(run, "look", {"n": recorded}, "seen")
        same, other = (tally.recordings.player(run.id) for _ in range(2))
    assert same.tool("look", {"arguments": {"n": recorded}}) == "seen"
    with pytest.raises(TapeDiverged) as caught:
        other.tool("look", {"arguments": {"n": asked}})
    assert caught.value.diff


def test_equal_calls_are_answered_in_the_order_of_the_recording(open_sqlite: OpenTally) -> None:
    with open_sqlite() as tally:
        with tally.bind().run("poller") as run:
            for state in ("waiting", "waiting", "done"):
                _tool(run, "poll", {}, state)
        player = tally.recordings.player(run.id)
    assert [player.tool("poll", {"arguments": {}}) for _ in range(3)] == [
        "waiting",
        "waiting",
        "done",
    ]


class RateLimited(Exception):
    """A provider's own."""

    def __init__(self, response: Any) -> None:
        super().__init__(f"limited: {response}")


def test_a_recorded_failure_is_raised_as_what_it_was(open_sqlite: OpenTally) -> None:
    with open_sqlite() as tally:
        with tally.bind().run("clerk") as run:
            for error in (
                ConnectionError("no route"),
                OSError(5, "bad disk"),
                RateLimited("wait"),
                RateLimited("wait"),
            ):
                _model(run, REFUND, error=error)
            _model(run, REFUND, "I call refund.")
        player = tally.recordings.player(run.id, errors=[RateLimited])
        unknown = tally.recordings.player(run.id)
    with pytest.raises(ConnectionError) as caught:
        player.model(REFUND)
    assert isinstance(caught.value, RecordedFailure)
    assert (caught.value.kind, caught.value.message) == ("ConnectionError", "no route")
    assert (str(caught.value), repr(caught.value)) == ("no route", "ConnectionError('no route')")
    with pytest.raises(OSError, match="bad disk"):
        player.model(REFUND)
    with pytest.raises(RateLimited, match="limited: wait"):
        player.model(REFUND)
    with pytest.raises(RateLimited, match="limited: wait"):
        player.model(REFUND, errors=(ValueError,))
    assert player.model(REFUND) == {"answer": "I call refund."}
    assert player.finish().matches

    for _ in range(2):
        with pytest.raises(OSError):
            unknown.model(REFUND)
    with pytest.raises(RecordedFailure) as failed:
        unknown.model(REFUND)
    assert not isinstance(failed.value, RateLimited)
    assert type(failed.value).__name__ == "RateLimited"


def _asked(key: str) -> dict[str, Any]:
    messages = [
        {"role": "user", "content": f"Use {key}."},
        {"role": "user", "content": "Then list the orders."},
    ]
    return {"messages": messages}


def test_a_secret_in_a_request_matches_by_its_kind(open_sqlite: OpenTally) -> None:
    with open_sqlite() as tally:
        with tally.bind().run("clerk") as run:
            _model(run, _asked(KEY), f"I use {KEY}.")
            _tool(run, "login", {"key": KEY}, "in")
        tape = tally.recordings.tape(run.id)
    assert KEY not in tape.dumps()
    assert tape.fidelity == "exact_redacted"

    for key in (KEY, OTHER_KEY):
        player = Player(tape)
        answer: Any = player.model(_asked(key))
        assert answer["answer"].startswith("I use [redacted:")
        assert player.tool("login", {"arguments": {"key": key}}) == "in"
        assert player.finish().fidelity == "exact_redacted"

    with pytest.raises(TapeDiverged) as caught:
        Player(tape).model({"messages": _asked(KEY)["messages"][:1]})
    assert KEY not in str(caught.value)
    with pytest.raises(TapeDiverged):
        Player(tape).model(_asked("no secret"))


def test_a_placeholder_that_came_from_the_tape_matches_the_secret_it_stands_for(
    open_sqlite: OpenTally,
) -> None:
    def later(answer: Any, key: str) -> dict[str, Any]:
        return {"messages": [{"role": "assistant", "content": answer}, *_asked(key)["messages"]]}

    with open_sqlite() as tally:
        with tally.bind().run("clerk") as run:
            _model(run, _asked(KEY), f"I use {KEY}.")
            _model(run, later(f"I use {KEY}.", KEY), "Done.")
        player = tally.recordings.player(run.id)
    # The placeholder in what the tape answers has a number of its own.
    first: Any = player.model(_asked(KEY))
    assert player.model(later(first["answer"], KEY)) == {"answer": "Done."}


def test_a_tally_with_words_of_its_own_plays_by_its_own_rules(tmp_path: Path) -> None:
    with Tally.open(
        tmp_path / "tally", background=False, settings=Settings(redact_terms=("Bluebird",))
    ) as tally:
        with tally.bind().run("clerk") as run:
            _model(run, {"prompt": "Is Bluebird late?"}, "No.")
        player = tally.recordings.player(run.id)
        by_default = Player(tally.recordings.tape(run.id))
    assert player.model({"prompt": "Is Bluebird late?"}) == {"answer": "No."}
    with pytest.raises(TapeDiverged):
        by_default.model({"prompt": "Is Bluebird late?"})


def test_what_may_differ_is_ignored_on_both_sides(open_sqlite: OpenTally) -> None:
    with open_sqlite() as tally:
        with tally.bind().run("clerk") as run:
            _model(run, {"prompt": "Today is 2026-11-20. Refund order 7."}, "Yes.")
        player = tally.recordings.player(run.id, ignore=[r"\d{4}-\d\d-\d\d"])
        strict = tally.recordings.player(run.id)
        other = tally.recordings.player(run.id, ignore=[r"\d{4}-\d\d-\d\d"])
        with pytest.raises(InvalidInput, match="is no regular expression"):
            tally.recordings.player(run.id, ignore=["("])
    assert player.model({"prompt": "Today is 2027-01-02. Refund order 7."}) == {"answer": "Yes."}
    for day, text in (
        (strict, "Today is 2027-01-02. Refund order 7."),
        (other, "Today is 2027-01-02. Refund order 8."),
    ):
        with pytest.raises(TapeDiverged):
            day.model({"prompt": text})


def test_calls_inside_a_tool_are_played_with_it_unless_it_runs(open_sqlite: OpenTally) -> None:
    with open_sqlite() as tally:
        with tally.bind().run("boss") as run:
            with run.step("tool_call", name="ask_expert") as outer:
                outer.record("tool_call", {"name": "ask_expert", "arguments": {"about": 7}})
                with run.join("other", name="chain")[0]:
                    _model(run, REFUND, "I look.")
                    with run.join("tool_call", name="look")[0] as inner:
                        inner.record("tool_call", {"name": "look", "arguments": {}})
                        _model(run, REFUNDED, "Looked.")
                        inner.record("tool_result", {"result": "looked"})
                outer.record("tool_result", {"result": "the expert agrees"})
            _model(run, {"prompt": "So?"}, "Agreed.")
        taped, real = (tally.recordings.player(run.id) for _ in range(2))

    assert taped.tool("ask_expert", {"arguments": {"about": 7}}) == "the expert agrees"
    assert taped.model({"prompt": "So?"}) == {"answer": "Agreed."}
    assert taped.finish().matches

    assert (
        real.result(real.call_tool("ask_expert", {"arguments": {"about": 7}}, real=True))
        == "the expert agrees"
    )
    assert real.model(REFUND) == {"answer": "I look."}
    assert real.tool("look", {"arguments": {}}) == "looked"
    real.model({"prompt": "So?"})
    assert real.finish().matches


def test_nothing_is_played_that_was_not_kept(open_sqlite: OpenTally) -> None:
    with open_sqlite() as tally:
        with tally.bind().run("clerk", retention="metadata_only") as run:
            _model(run, REFUND, "Yes.")
        with pytest.raises(
            NotReplayable, match=r"its request was not kept \(retention metadata_only\)"
        ):
            tally.recordings.tape(run.id)


def test_nothing_is_played_that_was_erased(open_sqlite: OpenTally) -> None:
    with open_sqlite() as tally:
        bound = tally.bind(OPERATOR)
        memory = bound.remember("The heron of the harbour eats at noon.")
        with bound.run("clerk") as run:
            _model(
                run,
                {"prompt": "What do you know? The heron of the harbour eats at noon."},
                "It eats.",
            )
        preview = bound.operator.erase(memory.id, reason="asked to", mode="preview")
        bound.operator.erase(
            memory.id, reason="asked to", mode="apply", confirm_token=preview.confirm_token
        )
        with pytest.raises(NotReplayable, match="its request was erased"):
            bound.recordings.tape(run.id)


def test_a_call_that_got_no_answer_cannot_be_played(open_sqlite: OpenTally) -> None:
    with open_sqlite() as tally:
        run = tally.bind().run("clerk")
        waiting, stopped = run.step("tool_call", name="pay"), run.step("tool_call", name="look")
        for step in (waiting, stopped):
            step.record("tool_call", {"name": "?", "arguments": {}})
        waiting.end("blocked", wait=False)
        stopped.end("cancelled", wait=False)
        run.end()
        player = tally.recordings.player(run.id)
    with pytest.raises(NotReplayable, match=r"it waits for a person .*name it in `safe`"):
        player.tool("pay", {"arguments": {}})
    with pytest.raises(NotReplayable, match="ended before it had an answer"):
        player.tool("look", {"arguments": {}})


def test_a_call_that_a_person_answered_is_played_with_its_answer(open_sqlite: OpenTally) -> None:
    with open_sqlite() as tally:
        with tally.bind().run("clerk") as run:
            waiting = run.step("tool_call", name="pay")
            waiting.record("tool_call", {"name": "pay", "arguments": {"amount": 7}})
            waiting.end("blocked", wait=False)
            _tool(run, "pay", {"amount": 7}, "paid")
        player = tally.recordings.player(run.id)
    assert player.tool("pay", {"arguments": {"amount": 7}}) == "paid"
    assert player.finish().matches


def test_a_tool_that_ran_elsewhere_is_done_where_its_result_was_sent_again(
    open_sqlite: OpenTally,
) -> None:
    """Runtimes bring tools of their own, which nobody can give to the player."""
    sent = {
        "messages": [*REFUND["messages"], {"role": "tool", "content": "done", "tool_call_id": "c1"}]
    }
    with open_sqlite() as tally:
        with tally.bind().run("clerk") as run:
            _model(run, REFUND, "I call refund.")
            _tool(run, "refund", {"order": 7}, "done")
            _model(run, sent, "Once more.")
            _tool(run, "refund", {"order": 7}, "done")
        player = tally.recordings.player(run.id)
    player.model(REFUND)
    player.model(sent)
    assert player.report.played == 3
    # What came after that request was not sent with it.
    with pytest.raises(TapeDiverged, match="the agent ended before 1 of 4 recorded calls"):
        player.finish()


def test_another_actors_run_has_no_tape_to_see(open_tally: OpenTally) -> None:
    from tallystick.errors import NotFound

    with open_tally() as tally:
        run_id = _refund(tally.bind(Actor(user="anna")))
        with pytest.raises(NotFound):
            tally.bind(Actor(user="ben")).recordings.tape(run_id)
        with pytest.raises(NotFound):
            tally.bind(Actor(user="ben")).recordings.player(run_id)


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"run_id": 1}'])
def test_a_file_that_is_no_tape_is_called_so(tmp_path: Path, text: str) -> None:
    (tmp_path / "tape.json").write_text(text)
    with pytest.raises(InvalidInput, match=r"tape.json is no tape: .*`tally tape RUN` writes one"):
        read_tape(tmp_path / "tape.json")
    with pytest.raises(InvalidInput, match="is no tape"):
        read_tape(tmp_path / "absent.json")


def _nested(depth: int) -> str:
    return "[" * depth + "]" * depth


ODD_JSON = {
    "a great integer": "9" * 5_000,
    "depth": _nested(100),
    "great depth": _nested(100_000),
    "half a character": '"\\ud800"',
    **{text: text for text in ("null", "0", "-1", "1e400", "NaN", "true", '""', '"x"', "[]")},
    **{text: text for text in ("{}", '{"a": []}', '{"a": 1, "a": 2}', '"[redacted:token:1]"')},
}


def _mutated(text: str, how: str, at: float, odd: str) -> bytes:
    """The file of a tape, changed in one place."""
    body = text.encode()
    place = int(at * (len(body) - 1))
    match how:
        case "flip":
            return body[:place] + bytes((body[place] ^ (1 + len(odd) % 255),)) + body[place + 1 :]
        case "cut":
            return body[:place]
        case "twice":
            return body[:place] + body[place // 2 :]
        case _:
            values = list(re.finditer(r': ("(?:[^"\\]|\\.)*"|[\w.-]+)', text))
            chosen = values[int(at * (len(values) - 1))]
            return (text[: chosen.start(1)] + odd + text[chosen.end(1) :]).encode()


@given(
    st.sampled_from(["flip", "cut", "twice", "value"]),
    st.floats(0, 1),
    st.sampled_from(list(ODD_JSON)),
)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_changed_tape_is_refused_or_plays_what_it_says(
    tmp_path: Path, how: str, at: float, odd: str
) -> None:
    """100 files as a rule, 2,000 under `make soak`. A tape is an expected value that a person may
    edit, so it has no digest: what it plays is in the file, and differs from the recording's tape.
    """
    asked: Any = REFUND
    calls = (
        TapeCall(step_id="s1", kind="model_call", request=asked, response={"answer": "refund"}),
        TapeCall(
            step_id="s2",
            kind="tool_call",
            name="refund",
            request={"arguments": {"order": 7}},
            response={"result": "done"},
        ),
    )
    tape = Tape(run_id="r1", agent_name="clerk", retention="full_payloads", calls=calls)
    path = tmp_path / "tape.json"
    write_tape(tape, path)
    path.write_bytes(_mutated(path.read_text("utf-8"), how, at, ODD_JSON[odd]))
    try:
        changed = read_tape(path)
    except InvalidInput:
        return
    try:
        player = Player(changed)
        answers = [player.model(REFUND), player.tool("refund", {"arguments": {"order": 7}})]
        matches = player.finish().matches
    except TallystickError:
        assert changed != tape
        return
    assert matches
    if answers != [{"answer": "refund"}, "done"]:
        assert changed != tape
        said = {json.dumps(call.response, sort_keys=True) for call in changed.calls}
        assert json.dumps(answers[0], sort_keys=True) in said


@pytest.mark.parametrize("kind", ["ExceptionGroup", "UnicodeDecodeError", "a\x00b", "\ud800", ""])
def test_a_failure_of_any_name_is_played_as_a_recorded_failure(
    open_tally: OpenTally, kind: str
) -> None:
    """Also of a class that cannot be made of a message alone."""
    with open_tally() as tally:
        bound = tally.bind(OPERATOR)
        with bound.run("clerk") as run, run.step("tool_call", name="refund") as step:
            step.record("tool_call", {"arguments": {}})
            step.record("error", {"type": kind, "message": "two of them failed"})
        with pytest.raises(RecordedFailure, match="two of them failed"):
            bound.recordings.player(run.id).tool("refund", {"arguments": {}})


@pytest.mark.parametrize("result", [None, {"tons": 3}, {"result": None}, {"result": 3}, [], 0, ""])
def test_a_result_that_an_own_loop_recorded_is_played_as_it_was(
    open_tally: OpenTally, result: Any
) -> None:
    with open_tally() as tally:
        bound = tally.bind(OPERATOR)
        with bound.run("clerk") as run, run.step("tool_call", name="weigh") as step:
            step.record("tool_call", {"arguments": {}})
            step.record("tool_result", result)
        played = bound.recordings.player(run.id).tool("weigh", {"arguments": {}})
    framed = isinstance(result, dict) and "result" in result
    assert played == (result["result"] if framed else result)
