"""An agent of each runtime runs again on its tape: the same requests match, others show in a
diff.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Annotated, Any

import pytest
from pydantic import AfterValidator
from tests.integrations.runtimes.base import Outcome, Runtime, Script, call, player_of
from tests.integrations.runtimes.runtimes import in_runtimes, in_ways

from tallystick import Actor, Tally
from tallystick.errors import InvalidInput, NotReplayable, RecordedFailure, TapeDiverged
from tallystick.recorder import Player
from tallystick.tally import BoundTally

OpenTally = Callable[..., Tally]
ANNA, BEN = Actor(user="anna"), Actor(user="ben")
KEY, OTHER_KEY = (f"sk-proj-{letter * 40}A1b2" for letter in "ab")


class Scale:
    """Tools that count how often they really ran."""

    def __init__(self, runtime: Runtime) -> None:
        self.ran: list[str] = []

        def weigh(what: str) -> str:
            """Weigh something."""
            self.ran.append(f"weigh {what}")
            return f"{what}: 3 tons"

        def lift(what: str) -> str:
            """Lift something."""
            self.ran.append(f"lift {what}")
            raise runtime.tool_error(f"{what} is too heavy")

        self.tools: list[Any] = [weigh, lift]


def weighing(what: str = "tea", answer: str = "Heavy.") -> Script:
    """Return a model that weighs something."""
    return Script([call("weigh", what=what)], answer)


def record_tape(
    open_tally: OpenTally, runtime: Runtime, script: Script, tools: Any = (), **options: Any
) -> tuple[Outcome, Callable[[], Player]]:
    """Run an agent, recorded; return its outcome, and a function that returns a new player."""
    with open_tally() as tally:
        outcome = runtime.run(script, tools, recorded=tally, **options)
        tape = player_of(tally).tape
    return outcome, lambda: Player(tape)


def changed_lines(error: TapeDiverged) -> set[str]:
    """Return the lines of a diff that differ, without their indentation."""
    return {f"{line[0]} {line[1:].strip().rstrip(',')}" for line in error.diff if line[0] in "+-"}


@pytest.mark.smoke
@in_ways("invoke", "ainvoke", "run", "stream", "run_stream_events", "streamed run")
def test_an_agent_runs_again_on_its_tape_and_no_tool_is_run(
    open_sqlite: OpenTally, runtime: Runtime
) -> None:
    scale = Scale(runtime)
    script = Script(
        [call("weigh", what="tea"), call("lift", what="ship")], "Three tons, and too heavy."
    )
    with open_sqlite() as tally:
        bound = tally.bind(ANNA)
        recorded = runtime.run(script, scale.tools, recorded=bound)
        tape = player_of(bound).tape
    assert set(scale.ran) == {"weigh tea", "lift ship"}
    assert [each.kind for each in tape.calls] == [
        "model_call",
        "tool_call",
        "tool_call",
        "model_call",
    ]
    assert [each.name for each in tape.calls if each.error is not None] in ([], ["lift"])

    for way in {runtime.way, runtime.ways[0], runtime.ways[-1]}:
        player = Player(tape)
        again = type(runtime)(way).run(None, scale.tools, player=player)
        assert again.text == recorded.text == "Three tons, and too heavy."
        assert sorted(again.tools) == sorted(recorded.tools)
        assert any("ship is too heavy" in result.text for result in again.tools)
        report = player.finish()
        assert (report.fidelity, report.calls, report.matches) == ("exact", 4, True)
    assert len(scale.ran) == 2


@in_runtimes()
def test_a_changed_system_prompt_is_a_divergence_with_a_diff(
    open_sqlite: OpenTally, runtime: Runtime
) -> None:
    _, new_player = record_tape(open_sqlite, runtime, Script("I cannot say."))
    player = new_player()
    with pytest.raises(TapeDiverged) as caught:
        runtime.run(player=player, system="You guess weights.")
    what, removed, added, *_ = str(caught.value).splitlines()
    step_id = player.tape.calls[0].step_id[-8:]
    # Releases of the runtimes differ in the capitals of a model's name.
    left = (
        "The agent left its tape: call 1 is not the recorded one "
        f"(model call {runtime.model_name}, step {step_id})."
    )
    assert what.casefold() == left.casefold()
    assert (removed, added) == ("--- recorded", "+++ asked now")
    lines = [line for line in caught.value.diff if line.startswith(("-  ", "+  "))]
    texts = [line.split('": ')[-1].rstrip(",") for line in lines]
    assert texts == ['"You weigh things."', '"You guess weights."'] * (len(texts) // 2)


@in_runtimes()
def test_tools_that_changed_are_divergences(open_sqlite: OpenTally, runtime: Runtime) -> None:
    def weigh(what: str, exactly: bool = False) -> str:
        """Weigh something."""
        return what

    scale = Scale(runtime)
    _, new_player = record_tape(open_sqlite, runtime, Script("I cannot say."), scale.tools)
    with pytest.raises(TapeDiverged, match="call 1 is not the recorded one"):
        runtime.run(None, [weigh, scale.tools[1]], player=new_player())
    scale.tools[0].__doc__ = "Weigh it on the big scale."
    with pytest.raises(TapeDiverged, match="call 1 is not the recorded one"):
        runtime.run(None, scale.tools, player=new_player())


@in_runtimes()
def test_settings_of_the_model_are_compared(open_sqlite: OpenTally, runtime: Runtime) -> None:
    _, new_player = record_tape(open_sqlite, runtime, Script("Heavy."), temperature=0.5)
    same = new_player()
    runtime.run(player=same, temperature=0.5)
    assert same.finish().matches
    with pytest.raises(TapeDiverged, match="call 1 is not the recorded one") as caught:
        runtime.run(player=new_player(), temperature=1.0)
    assert {'- "temperature": 0.5', '+ "temperature": 1.0'} <= changed_lines(caught.value)


@in_runtimes()
def test_an_agent_that_asks_more_or_less_than_its_tape_is_told_so(
    open_sqlite: OpenTally, runtime: Runtime
) -> None:
    scale = Scale(runtime)
    _, new_player = record_tape(open_sqlite, runtime, weighing(), scale.tools)
    more, less = new_player(), new_player()
    runtime.run(None, scale.tools, player=more)
    with pytest.raises(
        TapeDiverged, match="call 4 asks a model, and the tape holds no such call any more"
    ):
        runtime.run(None, scale.tools, player=more)
    runtime.ask_once(less, scale.tools)
    with pytest.raises(
        TapeDiverged, match="ended before 2 of 3 recorded calls; the next was tool call weigh"
    ):
        less.finish()


@in_runtimes()
def test_safe_tools_run_for_real_and_are_compared(open_sqlite: OpenTally, runtime: Runtime) -> None:
    def weigh(what: str) -> str:
        """Weigh something."""
        return f"{what}: 4 tons"

    scale = Scale(runtime)
    calls = [call("weigh", what="tea"), call("lift", what="ship")]
    # LlamaIndex sends results in the order in which its tools end, which is another here.
    script = Script(calls[:1] if runtime.name == "llama_index" else calls, "Heavy.")
    recorded, new_player = record_tape(open_sqlite, runtime, script, scale.tools)
    scale.ran.clear()
    player = new_player()
    again = runtime.run(None, scale.tools, player=player, safe={"weigh"})
    assert (again.text, scale.ran) == (recorded.text, ["weigh tea"])
    assert player.finish().matches
    with pytest.raises(TapeDiverged) as caught:
        runtime.run(None, [weigh, scale.tools[1]], player=new_player(), safe=["weigh"])
    lines = changed_lines(caught.value)
    assert any(line.startswith("- ") and "tea: 3 tons" in line for line in lines)
    assert any(line.startswith("+ ") and "tea: 4 tons" in line for line in lines)


@in_runtimes(fails={"pydantic_ai": "TapeCapability does not know the tools of its agent"})
def test_a_safe_tool_that_does_not_exist_is_refused(
    open_sqlite: OpenTally, runtime: Runtime
) -> None:
    scale = Scale(runtime)
    _, new_player = record_tape(open_sqlite, runtime, Script("Heavy."), scale.tools)
    with pytest.raises(InvalidInput, match="sing is not among the tools"):
        runtime.run(None, scale.tools, player=new_player(), safe={"sing"})


@in_runtimes("langchain", "pydantic_ai")
def test_a_tool_that_raised_raises_again(open_sqlite: OpenTally, runtime: Runtime) -> None:
    """LlamaIndex gives every error of a tool to the model."""

    def fetch() -> str:
        """Fetch it."""
        raise TimeoutError("too slow")

    with open_sqlite() as tally:
        with pytest.raises(TimeoutError):
            runtime.run(Script([call("fetch")]), [fetch], recorded=tally)
        player = player_of(tally)
    with pytest.raises(TimeoutError) as caught:
        runtime.run(None, [fetch], player=player)
    assert isinstance(caught.value, RecordedFailure)
    assert player.finish().matches


@in_runtimes()
def test_a_model_that_failed_fails_again_as_the_same_error(
    open_sqlite: OpenTally, runtime: Runtime
) -> None:
    kind = type(runtime.model_error)
    with open_sqlite() as tally:
        with pytest.raises(kind):
            runtime.run(Script(runtime.model_error), recorded=tally)
        player = player_of(tally)
    with pytest.raises(kind, match="busy") as caught:
        runtime.run(player=player)
    assert isinstance(caught.value, RecordedFailure)
    assert player.finish().matches


def _even(number: int) -> int:
    if number % 2:
        raise ValueError("it must be even")
    return number


@in_runtimes()
def test_arguments_that_do_not_fit_are_asked_for_again(
    open_sqlite: OpenTally, runtime: Runtime
) -> None:
    def count(number: Annotated[int, AfterValidator(_even)]) -> str:
        """Count."""
        return str(number)

    # The runtimes look for the class itself, which is text in this module.
    count.__annotations__["number"] = Annotated[int, AfterValidator(_even)]
    tools = [Scale(runtime).tools[0], count]
    script = Script(
        [call("weigh", wat="tea")],
        [call("weigh", what="tea")],
        [call("count", number=3)],
        [call("count", number="4")],
        "Four.",
    )
    recorded, new_player = record_tape(open_sqlite, runtime, script, tools)
    refused = any("it must be even" in result.text for result in recorded.tools)
    # LlamaIndex does not validate the arguments of a function, and the OpenAI Agents SDK keeps why
    # they do not fit to itself.
    assert refused == (runtime.name not in ("llama_index", "openai_agents"))
    player = new_player()
    assert runtime.run(None, tools, player=player).tools == recorded.tools
    assert player.finish().matches


@in_runtimes()
def test_an_agent_that_is_a_tool_is_played_as_one_or_runs_on_the_tape_itself(
    open_sqlite: OpenTally, runtime: Runtime
) -> None:
    scale = Scale(runtime)
    outer = Script([call("expert", question="tea?")], "The expert says three tons.")
    with open_sqlite() as tally:
        observer = None if runtime.inherits else tally
        expert = runtime.expert(weighing(), scale.tools, recorded=observer)
        recorded = runtime.run(outer, [expert], recorded=tally)
        played, real = player_of(tally), player_of(tally)
    assert len(played.tape.calls) == 6

    unused = runtime.expert(None, scale.tools)
    assert runtime.run(None, [unused], player=played).text == recorded.text
    assert played.finish().matches

    deep = runtime.expert(None, scale.tools, player=real)
    assert runtime.run(None, [deep], player=real, safe={"expert"}).text == recorded.text
    assert real.finish().matches
    assert scale.ran == ["weigh tea"]


_TWICE = "the observer around the tool and the one in it both record the inner calls"


@in_runtimes(fails={"langchain": _TWICE, "llama_index": _TWICE})
def test_an_agent_in_a_tool_with_an_observer_of_its_own_is_recorded_once(
    open_sqlite: OpenTally, runtime: Runtime
) -> None:
    outer = Script([call("expert", question="tea?")], "The expert says three tons.")
    with open_sqlite() as tally:
        expert = runtime.expert(weighing(), Scale(runtime).tools, recorded=tally)
        runtime.run(outer, [expert], recorded=tally)
        assert len(player_of(tally).tape.calls) == 6


@in_runtimes("langchain", "pydantic_ai")
def test_an_approved_call_is_played_in_the_run_that_was_resumed(
    open_sqlite: OpenTally, runtime: Runtime
) -> None:
    """LlamaIndex has no question of its own: a tool asks itself."""
    scale = Scale(runtime)
    asking: dict[str, Any] = {"asks_for": {"weigh"}, "answers": lambda question: True}
    with open_sqlite() as tally:
        with tally.bind().run("weigher") as run, run.active():
            recorded = runtime.run(weighing(), scale.tools, recorded=tally, **asking)
        approved, refused = (tally.recordings.player(run.id) for _ in range(2))
    assert recorded.text == "Heavy."
    assert runtime.run(None, scale.tools, player=approved, **asking).text == "Heavy."
    assert approved.finish().matches
    asking["answers"] = lambda question: False
    with pytest.raises(TapeDiverged, match="is not the recorded one"):
        runtime.run(None, scale.tools, player=refused, **asking)
    assert scale.ran == ["weigh tea"]


@in_runtimes("langchain", "pydantic_ai")
def test_a_tool_that_waits_for_a_person_is_safe_or_cannot_be_played(
    open_sqlite: OpenTally, runtime: Runtime
) -> None:
    """A run of LlamaIndex goes on with the answer, so that its tape holds it."""
    erase = runtime.patient_tool()
    with open_sqlite() as tally:
        runtime.run(Script([call("erase", value=7)]), [erase], recorded=tally)
        real, stubbed = player_of(tally), player_of(tally)
        assert len(runtime.run(None, [erase], player=real, safe={"erase"}).waiting) == 1
        assert real.finish().matches
        with pytest.raises(NotReplayable, match=r"it waits for a person .* name it in `safe`"):
            runtime.run(None, [erase], player=stubbed)


@in_runtimes()
def test_memories_in_a_request_match_where_a_tally_recalls_the_same(
    open_sqlite: OpenTally, runtime: Runtime
) -> None:
    question = "How heavy is Anna's tea?"
    with open_sqlite() as tally:
        # LlamaIndex remembers the question, so that another user plays.
        anna, ben = tally.bind(ANNA), tally.bind(BEN)
        for bound in (anna, ben):
            bound.remember("Anna's tea weighs three tons.")
        tools = Scale(runtime).tools
        script = weighing(answer="Three tons.")
        recorded = runtime.run(script, tools, prompt=question, remembering=anna, recorded=anna)
        player, without, elsewhere = (player_of(anna) for _ in range(3))
        assert "Anna's tea weighs" in json.dumps(player.tape.calls[0].request)

        def play(tape: Player, remembering: BoundTally | None) -> str:
            return runtime.run(
                None, tools, prompt=question, player=tape, remembering=remembering
            ).text

        assert play(player, ben) == recorded.text
        assert player.finish().matches
        assert ben.recordings.runs() == []

        with pytest.raises(TapeDiverged) as caught:
            play(without, None)
        assert "with memories that a tally recalled" in caught.value.what
        if runtime.name == "langchain":
            assert ": of `messages` there are others" in caught.value.what
        removed = [line for line in caught.value.diff if line.startswith("-")]
        assert any("Anna's tea weighs three tons" in line for line in removed)

        ben.remember("Anna's tea weighs nothing at all.")
        what = {
            "langchain": "1 not recorded",
            "openai_agents": "1 not recorded",
            "llama_index": "1 missing and 4",
        }
        changed = what.get(runtime.name, "there are others")
        with pytest.raises(TapeDiverged, match=f"of `messages` {changed}.*that a tally recalled"):
            play(elsewhere, ben)


@in_runtimes()
def test_a_replay_may_be_recorded_and_its_tape_is_the_same_one(
    open_sqlite: OpenTally, runtime: Runtime
) -> None:
    tools = Scale(runtime).tools
    with open_sqlite() as tally:
        runtime.run(weighing(), tools, recorded=tally)
        player = player_of(tally)
        assert runtime.run(None, tools, player=player, recorded=tally).text == "Heavy."
        again = player_of(tally)
        assert [each.kind for each in again.tape.calls] == [each.kind for each in player.tape.calls]
        assert runtime.run(None, tools, player=again).text == "Heavy."
        assert again.finish().matches


@in_runtimes()
def test_a_secret_in_the_prompt_matches_whatever_it_is(
    open_sqlite: OpenTally, runtime: Runtime
) -> None:
    tools = Scale(runtime).tools

    def texts(key: str) -> dict[str, str]:
        return {"system": f"The key is {key}.", "prompt": f"How heavy is {key}?"}

    script = weighing(KEY, f"{KEY} weighs 3 tons.")
    _, new_player = record_tape(open_sqlite, runtime, script, tools, **texts(KEY))
    assert KEY not in new_player().tape.dumps()
    for key in (KEY, OTHER_KEY):
        player = new_player()
        runtime.run(None, tools, player=player, **texts(key))
        assert player.finish().fidelity == "exact_redacted"
    other = {**texts(KEY), "prompt": "How heavy is nothing?"}
    with pytest.raises(TapeDiverged, match="is not the recorded one"):
        runtime.run(None, tools, player=new_player(), **other)


@in_runtimes()
def test_a_run_without_payloads_has_no_tape(open_sqlite: OpenTally, runtime: Runtime) -> None:
    with open_sqlite() as tally:
        with tally.bind().run("weigher", retention="metadata_only") as run, run.active():
            runtime.run(Script("I cannot say."), recorded=tally)
        with pytest.raises(NotReplayable, match="its request was not kept"):
            tally.recordings.tape(run.id)
