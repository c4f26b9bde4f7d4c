"""The OpenAI Agents SDK on a tally: its sessions, handoffs, interruptions, streams and errors."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, TypeVar

import anyio
import pytest
from agents import (
    Agent,
    GuardrailFunctionOutput,
    InputGuardrail,
    InputGuardrailTripwireTriggered,
    MaxTurnsExceeded,
    ModelProvider,
    ModelResponse,
    RunConfig,
    RunContextWrapper,
    RunHooks,
    Runner,
    RunState,
    Usage,
    function_tool,
    handoff,
)
from agents.memory import SessionSettings
from agents.run_config import CallModelData, ModelInputData
from agents.testing import ScriptedModel, assistant_message, function_call
from agents.tracing import get_trace_provider

from tallystick import Actor, Tally
from tallystick.errors import ActionDenied, ApprovalRequired, Denied, InvalidInput
from tallystick.tally import BoundTally
from tallystick_openai_agents import TallyRunner, TallySession, memory_tools

from .runtimes.base import Script, call
from .runtimes.openai_agents import Scripted
from .runtimes.ruling import ANNA, ASK, BOT, PAY, Bank, paying, rule

OpenTally = Callable[..., Tally]
T = TypeVar("T")
ITEMS: list[Any] = [
    {"role": "user", "content": "How heavy is tea? \ud800 sk-proj-" + "a1B2" * 10},
    {"type": "reasoning", "id": "r1", "summary": [], "encrypted_content": "xyz"},
    {"type": "function_call", "call_id": "c1", "name": "weigh", "arguments": '{"what": "tea"}'},
    {"type": "function_call_output", "call_id": "c1", "output": "3 tons"},
    {"type": "a_kind_of_next_year", "weight": 1.5, "parts": [None, {"deep": True}]},
    {"role": "assistant", "content": [{"type": "output_text", "text": "Heavy."}]},
]
"""Items of a conversation: with a secret, half a character, and a kind that nobody knows."""
QUIET = RunConfig(tracing_disabled=True)


def done(work: Coroutine[Any, Any, T]) -> T:
    """Return the result of asynchronous work."""
    return asyncio.run(work)


def steps_of(bound: BoundTally, run: int = 0) -> list[tuple[str, str | None, str]]:
    """Return kind, name and status of the steps of a run, the newest run first."""
    steps = bound.recordings.steps(bound.recordings.runs()[run].id)
    return [(step.step_kind, step.name, step.status) for step in steps]


# Sessions


def test_items_come_back_as_they_went_in(open_sqlite: OpenTally) -> None:
    with open_sqlite() as tally:
        session = TallySession(tally, "s")
        done(session.add_items(ITEMS[:4]))
        done(session.add_items(ITEMS[4:]))
        assert done(session.get_items()) == ITEMS
        assert done(TallySession(tally, "s").get_items(limit=3)) == ITEMS[-3:]
        assert [done(session.get_items(limit)) for limit in (0, -1)] == [[], []]


def test_the_newest_item_is_popped_and_a_session_is_cleared(open_sqlite: OpenTally) -> None:
    with open_sqlite() as tally:
        session, other = TallySession(tally, "s"), TallySession(tally, 7)
        done(session.add_items(ITEMS[:2]))
        done(session.add_items(ITEMS[2:3]))
        done(other.add_items(ITEMS))
        assert [done(session.pop_item()) for _ in range(4)] == [*ITEMS[2::-1], None]
        done(session.add_items(ITEMS))
        done(session.clear_session())
        assert done(session.get_items()) == []
        assert done(other.get_items()) == ITEMS


def test_each_item_is_popped_once_whoever_pops_at_once(open_sqlite: OpenTally) -> None:
    async def pop_and_add(session: TallySession) -> list[Any]:
        say = [session.add_items([{"role": "user", "content": f"late {i}"}]) for i in range(5)]
        popped = await asyncio.gather(*(session.pop_item() for _ in range(10)), *say)
        return [item for item in popped if item is not None]

    with open_sqlite() as tally:
        session = TallySession(tally, "s")
        said: list[Any] = [{"role": "user", "content": str(i)} for i in range(12)]
        done(session.add_items(said))
        popped = done(pop_and_add(session))
        texts = [item["content"] for item in [*popped, *done(session.get_items())]]
        assert sorted(texts) == sorted([*map(str, range(12)), *(f"late {i}" for i in range(5))])


def test_an_item_that_is_no_json_is_refused_and_nothing_of_it_is_kept(
    open_sqlite: OpenTally,
) -> None:
    with open_sqlite() as tally:
        session = TallySession(tally, "s")
        bad: Any = {"role": "user", "content": object()}
        with pytest.raises(InvalidInput, match="what JSON cannot"):
            done(session.add_items([ITEMS[0], bad]))
        assert done(session.get_items()) == []
        with pytest.raises(InvalidInput, match="needs an id"):
            TallySession(tally, "")


def test_an_id_is_another_session_for_another_user(open_sqlite: OpenTally) -> None:
    with open_sqlite() as tally:
        session = TallySession(tally, "s")
        ada, bob = (RunContextWrapper(Actor(user=user)) for user in ("ada", "bob"))
        done(session.add_items(ITEMS, wrapper=ada))
        assert done(session.get_items(wrapper=bob)) == []
        assert done(session.get_items(wrapper=ada)) == ITEMS
        with pytest.raises(Denied, match="missing_actor"):
            done(session.get_items())
        fixed = TallySession(tally.user("ada"), "s")
        assert done(fixed.get_items()) == ITEMS
        with pytest.raises(Denied, match="names another actor"):
            done(fixed.get_items(wrapper=bob))


_WRITER = """
import asyncio, sys
from tallystick import Tally
from tallystick_openai_agents import TallySession

async def main():
    with Tally.open(sys.argv[1]) as tally:
        session = TallySession(tally, "s")
        for number in range(20):
            await session.add_items([{"role": "user", "content": f"{sys.argv[2]} {number}"}])

asyncio.run(main())
"""


def test_two_processes_lose_no_item_of_a_session(tmp_path: Path) -> None:
    Tally.open(tmp_path / "t").close()
    writers = [
        subprocess.Popen([sys.executable, "-c", _WRITER, str(tmp_path / "t"), name])
        for name in ("one", "two")
    ]
    assert [writer.wait(timeout=120) for writer in writers] == [0, 0]
    with Tally.open(tmp_path / "t") as tally:
        said = [str(item.get("content")) for item in done(TallySession(tally, "s").get_items())]
    for name in ("one", "two"):
        assert [each for each in said if each.startswith(name)] == [
            f"{name} {number}" for number in range(20)
        ]
    assert len(said) == 40


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"context": False, "memory_budget": 500}, "`memory_budget` does nothing with context="),
        ({"record": False, "strict": True}, "`strict` does nothing with record="),
        ({"record": False, "capture": "user"}, "`capture` does nothing with record="),
        ({"record": False, "agent_name": "bot"}, "`agent_name` does nothing with record="),
        ({"rules": False, "task_type": "billing"}, "`task_type` does nothing with rules="),
    ],
)
def test_an_argument_of_what_is_switched_off_is_refused(
    open_sqlite: OpenTally, arguments: dict[str, Any], message: str
) -> None:
    with open_sqlite() as tally, pytest.raises(InvalidInput, match=message):
        TallyRunner(tally, **arguments)


def test_a_run_goes_on_with_its_session_and_its_pairs_stay_whole_at_a_limit(
    open_sqlite: OpenTally,
) -> None:
    @function_tool
    def weigh(what: str) -> str:
        """Weigh."""
        return f"{what}: 3 tons"

    model = ScriptedModel(
        [
            [function_call("weigh", {"what": "tea"}, call_id="c1")],
            [assistant_message("Three tons.")],
            [assistant_message("Still three.")],
        ]
    )
    agent = Agent("weigher", model=model, tools=[weigh])
    with open_sqlite() as tally:
        runner = TallyRunner(tally, strict=True)
        # The newest three begin with the result, whose call is cut off.
        session = TallySession(tally, "s", session_settings=SessionSettings(limit=2))
        for text in ("How heavy is tea?", "And now?"):
            done(runner.run(agent, text, session=session, run_config=QUIET))
        asked = model.calls[-1].input
        calls = [item.get("call_id") for item in asked if item.get("type") == "function_call"]
        results = [item["call_id"] for item in asked if item.get("type") == "function_call_output"]
        assert calls == results
        assert [str(item.get("content")) for item in asked][-1] == "And now?"
        assert len(done(session.get_items(10))) == 6
        assert {run.metadata["thread_id"] for run in tally.bind().recordings.runs()} == {"s"}


# Requests


def test_what_nobody_knows_is_sent_as_it_is_and_an_answer_stays_whole(
    open_sqlite: OpenTally,
) -> None:
    model = ScriptedModel([[assistant_message("So.")]])
    agent = Agent("weigher", model=model)
    items = [{**ITEMS[0], "content": "How heavy?"}, *ITEMS[1:], {"role": "user", "content": "So?"}]
    with open_sqlite() as tally:
        done(TallyRunner(tally, strict=True).run(agent, items, run_config=QUIET))
    assert list(model.calls[0].input) == items


def test_a_small_budget_drops_old_turns_whole(open_sqlite: OpenTally) -> None:
    model = ScriptedModel([[assistant_message("So.")]])
    agent = Agent("weigher", instructions="You weigh.", model=model)
    old = [{**ITEMS[0], "content": "old " * 400}, *ITEMS[1:4], ITEMS[5]]
    with open_sqlite() as tally:
        runner = TallyRunner(tally, budget=300, strict=True)
        done(runner.run(agent, [*old, {"role": "user", "content": "So?"}], run_config=QUIET))
    sent = list(model.calls[0].input)
    assert sent[-1] == {"role": "user", "content": "So?"}
    assert not any("old old" in str(item) for item in sent)
    kinds = [item.get("type") for item in sent]
    assert ("function_call" in kinds) == ("function_call_output" in kinds)


def test_the_filter_the_hooks_and_the_defaults_of_the_application_hold(
    open_sqlite: OpenTally,
) -> None:
    heard: list[str] = []
    model = ScriptedModel([[assistant_message("So.")]] * 2)

    class Provider(ModelProvider):
        def get_model(self, model_name: str | None) -> Any:
            heard.append(f"model {model_name}")
            return model

    class Hooks(RunHooks[Any]):
        async def on_llm_start(self, *arguments: Any) -> None:
            heard.append("starts")

        async def on_agent_end(self, *arguments: Any) -> None:
            heard.append("ends")

    def shorten(data: CallModelData[Any]) -> ModelInputData:
        return ModelInputData(input=data.model_data.input[-1:], instructions="Shortened.")

    config = RunConfig(
        model_provider=Provider(), call_model_input_filter=shorten, tracing_disabled=True
    )
    agent = Agent("weigher", instructions="Long.", model="gpt-5")
    request: list[Any] = [{"role": "user", "content": text} for text in ("One.", "Two.")]
    done(Runner.run(agent, request, run_config=config))
    with open_sqlite() as tally:
        runner = TallyRunner(tally, strict=True)
        done(runner.run(agent, request, run_config=config, hooks=Hooks()))
        [step] = tally.bind().recordings.steps(tally.bind().recordings.runs()[0].id)
    plain, ours = model.calls
    assert ours.model_settings == plain.model_settings
    assert (ours.input, ours.system_instructions) == (plain.input, plain.system_instructions)
    assert ours.output_schema == plain.output_schema
    assert step.name == "gpt-5"
    assert heard[-4:] == ["starts", "model gpt-5", "ends"][-4:] or "ends" in heard


def test_usage_and_the_model_that_answered_are_in_the_receipt(open_sqlite: OpenTally) -> None:
    usage = Usage(requests=1, input_tokens=11, output_tokens=3, total_tokens=14)
    answer = ModelResponse(output=[assistant_message("So.")], usage=usage, response_id="resp_1")
    agent = Agent("weigher", model=ScriptedModel([answer, answer]))
    with open_sqlite() as tally:
        runner, bound = TallyRunner(tally, strict=True), tally.bind()
        done(runner.run(agent, "So?", run_config=QUIET))

        async def stream() -> None:
            result = runner.run_streamed(agent, "So?", run_config=QUIET)
            async for _ in result.stream_events():
                pass

        done(stream())
        for run in bound.recordings.runs():
            [step] = bound.recordings.steps(run.id)
            [said] = [e for e in bound.recordings.entries(step.id) if e.kind == "response"]
            counts: Any = said.summary["usage"]
            assert (counts["input_tokens"], counts["output_tokens"]) == (11, 3)
            assert run.status == "completed"


def test_a_typed_output_is_kept_as_json_and_its_schema_is_recorded(open_sqlite: OpenTally) -> None:
    from pydantic import BaseModel

    class Weight(BaseModel):
        tons: int

    agent = Agent(
        "weigher", model=ScriptedModel([[assistant_message('{"tons": 3}')]]), output_type=Weight
    )
    with open_sqlite() as tally:
        runner = TallyRunner(tally, capture="both", strict=True)
        result = done(runner.run(agent, "How heavy?", run_config=QUIET))
        assert result.final_output == Weight(tons=3)
        said = [memory.content for memory in tally.bind().memories(kinds=("turn",))]
        assert sorted(said) == ["How heavy?", '{"tons":3}']


# Runs


def test_a_handoff_ends_a_run_and_begins_the_next(open_sqlite: OpenTally) -> None:
    bob = Agent("bob", model=ScriptedModel([[assistant_message("Bob here.")]]))
    over = [function_call("transfer_to_bob", {}, call_id="c1")]
    alice = Agent("alice", model=ScriptedModel([over]), handoffs=[bob])
    with open_sqlite() as tally:
        result = done(TallyRunner(tally, strict=True).run(alice, "Hello?", run_config=QUIET))
        bound = tally.bind()
        assert (result.final_output, result.last_agent) == ("Bob here.", bob)
        runs = bound.recordings.runs()
        assert [(run.agent_name, run.status, run.goal) for run in runs] == [
            ("bob", "completed", "Hello?"),
            ("alice", "completed", "Hello?"),
        ]
        assert runs[0].metadata["handed_over_by"] == runs[1].id
        assert steps_of(bound, 1)[-1] == ("tool_call", "transfer_to_bob", "completed")
        assert steps_of(bound, 0) == [("model_call", "ScriptedModel", "completed")]
        assert all(bound.recordings.verify(run.id).ok for run in runs)


def test_an_agent_that_is_a_tool_is_part_of_the_run_around_it(open_sqlite: OpenTally) -> None:
    @function_tool
    def double(value: int) -> int:
        """Twice."""
        return 2 * value

    inner = Agent("inner", model=Scripted([call("double", value=21)], "42"), tools=[double])
    tool = inner.as_tool("ask_inner", "Ask the other agent.")
    outer = Agent(
        "outer", model=Scripted([call("ask_inner", input="21?")], "It says 42."), tools=[tool]
    )
    with open_sqlite() as tally:
        done(TallyRunner(tally, strict=True).run(outer, "Hm?", run_config=QUIET))
        [run] = tally.bind().recordings.runs()
        steps = tally.bind().recordings.steps(run.id)
        named = [(step.step_kind, step.name) for step in steps]
        assert named == [
            ("model_call", "scripted"),
            ("tool_call", "ask_inner"),
            ("model_call", "scripted"),
            ("tool_call", "double"),
            ("model_call", "scripted"),
            ("model_call", "scripted"),
        ]
        parents = [step.parent_step_id for step in steps]
        assert parents[2] == parents[3] == parents[4] == steps[1].id


def test_a_question_of_an_agent_that_is_a_tool_stops_the_run_around_it(
    open_sqlite: OpenTally,
) -> None:
    bank = Bank()
    pay = function_tool(bank.tools[0])
    inner = Agent("inner", model=Scripted([call("pay", **PAY)], "paid"), tools=[pay])
    tool = inner.as_tool("cashier", "Ask the cashier.")
    outer = Agent("outer", model=Scripted([call("cashier", input="pay")], "done"), tools=[tool])
    with open_sqlite(rules=[ASK]) as tally:
        bound = tally.bind(BOT)
        runner = TallyRunner(bound, strict=True)
        result = done(runner.run(outer, "Pay.", run_config=QUIET))
        [question] = result.interruptions
        assert (question.tool_name, bank.paid) == ("pay", [])
        assert runner.approval_of(question) == tally.bind(ANNA).approvals.list()[0].id
        assert bound.recordings.runs()[0].status == "blocked"
        assert ("tool_call", "cashier", "blocked") in steps_of(bound)
        state = result.to_state()
        state.approve(question)
        result = done(runner.run(outer, state, run_config=QUIET))
        assert (result.final_output, bank.paid) == ("done", [("ben", 5)])
        assert [each.state for each in tally.bind(ANNA).approvals.list(state=None)] == ["used"]


def test_a_run_goes_on_in_another_process_from_its_stored_state(open_sqlite: OpenTally) -> None:
    bank = Bank()
    with open_sqlite(rules=[ASK]) as tally:
        bound = tally.bind(BOT)

        def agent(script: Script) -> Agent[Any]:
            return Agent("clerk", model=Scripted(script), tools=[function_tool(bank.tools[0])])

        first = agent(paying(PAY))
        result = done(TallyRunner(bound).run(first, "Pay.", run_config=QUIET))
        stored = result.to_state().to_string()

        later = agent(Script("done"))
        state = done(RunState.from_string(later, stored))
        [question] = state.get_interruptions()
        state.approve(question)
        result = done(TallyRunner(bound).run(later, state, run_config=QUIET))
        assert (result.final_output, bank.paid) == ("done", [("ben", 5)])


def test_an_answer_that_counts_always_counts_for_no_other_arguments(
    open_sqlite: OpenTally,
) -> None:
    bank = Bank()
    script = Script([call("pay", **PAY)], [call("pay", to="eve", euros=5_000)], "done")
    agent = Agent("clerk", model=Scripted(script), tools=[function_tool(bank.tools[0])])
    with open_sqlite(rules=[ASK]) as tally:
        runner = TallyRunner(tally.bind(BOT))
        result = done(runner.run(agent, "Pay.", run_config=QUIET))
        state = result.to_state()
        state.approve(result.interruptions[0], always_approve=True)
        with pytest.raises(ApprovalRequired):
            done(runner.run(agent, state, run_config=QUIET))
        assert bank.paid == [("ben", 5)]


def test_a_tool_that_asks_itself_about_some_calls_still_does(open_sqlite: OpenTally) -> None:
    bank = Bank()

    async def dear(context: Any, arguments: dict[str, Any], call_id: str) -> bool:
        return bool(arguments["euros"] > 100)

    with open_sqlite(rules=[rule("require_approval", tool=("sing",))]) as tally:
        for euros, waits in ((5, 0), (500, 1)):
            pay = function_tool(bank.tools[0], needs_approval=dear)
            payment = {"to": "ben", "euros": euros, "note": ""}
            agent = Agent("clerk", model=Scripted(paying(payment)), tools=[pay])
            result = done(TallyRunner(tally.bind(BOT)).run(agent, "Pay.", run_config=QUIET))
            assert len(result.interruptions) == waits
        assert bank.paid == [("ben", 5)]


def test_a_run_that_fails_in_the_runtime_fails_with_its_error(open_sqlite: OpenTally) -> None:
    @function_tool
    def double(value: int) -> int:
        """Twice."""
        return 2 * value

    async def trip(context: Any, agent: Any, input: Any) -> GuardrailFunctionOutput:
        return GuardrailFunctionOutput(output_info=None, tripwire_triggered=True)

    calls = [[call("double", value=number)] for number in range(3)]
    endless = Agent("endless", model=Scripted(*calls), tools=[double])
    guarded = Agent("guarded", model=Scripted("never"), input_guardrails=[InputGuardrail(trip)])
    with open_sqlite() as tally:
        runner, bound = TallyRunner(tally, strict=True), tally.bind()
        with pytest.raises(MaxTurnsExceeded):
            done(runner.run(endless, "Hm?", run_config=QUIET, max_turns=2))
        assert bound.recordings.runs()[0].status == "failed"
        assert steps_of(bound)[-1] == ("other", "endless", "failed")
        with pytest.raises(InputGuardrailTripwireTriggered):
            done(runner.run(guarded, "Hm?", run_config=QUIET))
        assert bound.recordings.runs()[0].status == "failed"

        async def stream() -> None:
            again = Agent("endless", model=Scripted(*calls), tools=[double])
            result = runner.run_streamed(again, "Hm?", run_config=QUIET, max_turns=2)
            async for _ in result.stream_events():
                pass

        with pytest.raises(MaxTurnsExceeded):
            done(stream())
        assert bound.recordings.runs()[0].status == "failed"


def test_memory_tools_go_by_the_rules_of_their_own_tally_beside_a_runner_of_another(
    open_sqlite: OpenTally,
) -> None:
    with (
        open_sqlite(rules=[rule("deny", tool=("memory_store",))]) as tally,
        Tally.open(":memory:", background=False) as other,
    ):
        script = Script([call("memory_store", content="Number 5.")], "Noted.")
        agent = Agent("keeper", model=Scripted(script), tools=memory_tools(tally))
        done(TallyRunner(other, context=False).run(agent, "Note it.", run_config=QUIET))
        assert "stopped by rule deny-tool_call" in script.sent[-1]
        assert tally.bind().memories() == []


def test_a_run_that_a_guardrail_ends_is_recorded_with_the_answer_that_came_later(
    open_sqlite: OpenTally, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a Temporal workflow the SDK raises and lets the model answer."""
    asked, ended = asyncio.Event(), asyncio.Event()

    class Slow(Scripted):
        async def get_response(self, *arguments: Any, **rest: Any) -> ModelResponse:
            asked.set()
            await ended.wait()
            return await super().get_response(*arguments, **rest)

    async def trip(context: Any, agent: Any, input: Any) -> GuardrailFunctionOutput:
        await asked.wait()
        return GuardrailFunctionOutput(output_info=None, tripwire_triggered=True)

    async def run(runner: TallyRunner, bound: BoundTally) -> None:
        agent = Agent("slow", model=Slow("Late."), input_guardrails=[InputGuardrail(trip)])
        with pytest.raises(InputGuardrailTripwireTriggered):
            await runner.run(agent, "Hm?", run_config=QUIET)
        assert bound.recordings.runs()[0].status == "running"
        ended.set()
        while bound.recordings.runs()[0].status == "running":
            await asyncio.sleep(0.01)

    monkeypatch.setattr(
        "agents.run.should_cancel_parallel_model_task_on_input_guardrail_trip", lambda: False
    )
    with open_sqlite() as tally:
        runner, bound = TallyRunner(tally, strict=True), tally.bind()
        done(run(runner, bound))
        [recorded] = bound.recordings.runs()
        assert (recorded.status, runner.failures) == ("failed", 0)
        [(model, _, answered), (other, _, failed)] = sorted(steps_of(bound))
        assert (model, answered, other, failed) == ("model_call", "completed", "other", "failed")


def test_a_stream_that_is_cancelled_ends_its_run_as_cancelled(open_sqlite: OpenTally) -> None:
    agent = Agent("slow", model=Scripted(("It ", "is ", "late.")))
    with open_sqlite() as tally:
        bound = tally.bind()

        async def stream() -> None:
            result = TallyRunner(tally).run_streamed(agent, "Hm?", run_config=QUIET)
            async for event in result.stream_events():
                if event.type == "raw_response_event":
                    result.cancel()

        done(stream())
        [run] = bound.recordings.runs()
        assert run.status == "cancelled"
        assert bound.recordings.verify(run.id).ok


def test_a_stream_that_broke_is_recorded_as_far_as_it_came(open_sqlite: OpenTally) -> None:
    agent = Agent("broken", model=Scripted(("It ", "weighs ", ConnectionError("the line is dead"))))
    with open_sqlite() as tally:
        bound = tally.bind()

        async def stream() -> None:
            result = TallyRunner(tally).run_streamed(agent, "Hm?", run_config=QUIET)
            async for _ in result.stream_events():
                pass

        with pytest.raises(ConnectionError):
            done(stream())
        [step] = bound.recordings.steps(bound.recordings.runs()[0].id)
        said = [each for each in bound.recordings.entries(step.id) if each.kind == "response"]
        assert "It weighs " in str(said[0].payload)


def test_several_runs_at_once_are_recorded_apart(open_sqlite: OpenTally) -> None:
    @function_tool
    async def wait(who: str) -> str:
        """Wait."""
        await asyncio.sleep(0)
        return who

    with open_sqlite() as tally:
        runner = TallyRunner(tally, strict=True)

        async def one(name: str) -> None:
            agent = Agent(name, model=Scripted([call("wait", who=name)], name), tools=[wait])
            actor = Actor(user=name)
            result = await runner.run(agent, name, context=actor, run_config=QUIET)
            assert result.final_output == name

        async def all_of_them() -> None:
            await asyncio.gather(*(one(f"user{number}") for number in range(8)))

        done(all_of_them())
        for number in range(8):
            name = f"user{number}"
            [run] = tally.user(name).recordings.runs()
            assert (run.agent_name, run.goal, run.status) == (name, name, "completed")
            assert len(steps_of(tally.user(name))) == 3


def test_outside_of_our_runs_a_tool_does_what_it_did(open_sqlite: OpenTally) -> None:
    bank = Bank()
    pay = function_tool(bank.tools[0])
    with open_sqlite(rules=[rule("deny", tool=("pay",))]) as tally:
        bound = tally.bind(BOT)
        mine = Agent("clerk", model=Scripted(paying(PAY)), tools=[pay])
        done(TallyRunner(bound).run(mine, "Pay.", run_config=QUIET))
        assert bank.paid == []
        plain = Agent("clerk", model=Scripted(paying(PAY)), tools=[pay])
        done(Runner.run(plain, "Pay.", run_config=QUIET))
        assert bank.paid == [("ben", 5)]
        assert len(bound.recordings.runs()) == 1


def test_nothing_switches_the_tracing_of_the_sdk_on(open_sqlite: OpenTally) -> None:
    before = vars(get_trace_provider()).get("_manual_disabled")
    model = ScriptedModel([[assistant_message("So.")]] * 2)
    with open_sqlite() as tally:
        for config in (QUIET, RunConfig(tracing_disabled=False)):
            done(TallyRunner(tally).run(Agent("quiet", model=model), "So?", run_config=config))
    quiet, loud = (each.tracing.is_disabled() for each in model.calls)
    assert (quiet, loud) == (True, False)
    assert vars(get_trace_provider()).get("_manual_disabled") == before


def test_memory_tools_without_a_runner_go_by_the_rules_and_by_who_acts(
    open_sqlite: OpenTally,
) -> None:
    deny = rule("deny", tool=("memory_forget",))
    with open_sqlite(rules=[deny]) as tally:
        ada = tally.user("ada")
        note = ada.remember("Tea at four.")
        forget = call("memory_forget", memory_id=note.id, reason="stale")
        store = call("memory_store", content="Coffee at five.")
        agent = Agent(
            "keeper",
            model=Scripted([forget, store], "done"),
            tools=memory_tools(tally, approval="elsewhere"),
        )
        result = done(Runner.run(agent, "Hm?", context=ada.actor, run_config=QUIET))
        assert "stopped by rule" in result.new_items[2].output
        assert {each.content for each in ada.memories()} == {"Tea at four.", "Coffee at five."}


@pytest.mark.parametrize("streamed", [False, True])
def test_a_rule_over_a_handoff_stops_it_before_anything_of_it_happens(
    open_sqlite: OpenTally, streamed: bool
) -> None:
    told: list[str] = []

    def agent() -> Agent[Any]:
        clerk = Agent("clerk", model=Scripted("Clerk here."))
        over = handoff(clerk, on_handoff=lambda context: told.append("clerk"))
        return Agent("first", model=Scripted([call("transfer_to_clerk")]), handoffs=[over])

    async def run(runner: TallyRunner) -> Any:
        if not streamed:
            return await runner.run(agent(), "Pay.", run_config=QUIET)
        result = runner.run_streamed(agent(), "Pay.", run_config=QUIET)
        async for _ in result.stream_events():
            pass
        return result

    with open_sqlite(rules=[rule("deny", tool=("transfer_to_clerk",))]) as tally:
        with pytest.raises(ActionDenied):
            done(run(TallyRunner(tally.bind(BOT))))
        assert told == []
        assert ("tool_call", "transfer_to_clerk", "failed") in steps_of(tally.bind(BOT))
    with open_sqlite(rules=[rule("require_approval", tool=("transfer_to_clerk",))]) as tally:
        bound = tally.bind(BOT)
        with pytest.raises(ApprovalRequired) as asked:
            done(run(TallyRunner(bound)))
        assert (told, bound.recordings.runs()[0].status) == ([], "blocked")
        tally.user(ANNA.user).approvals.approve(asked.value.approvals[0].id, reason="yes")
        assert done(run(TallyRunner(bound))).final_output == "Clerk here."
        assert told == ["clerk"]


def test_a_handoff_beside_a_call_that_waits_is_held_up_when_the_run_goes_on(
    open_sqlite: OpenTally,
) -> None:
    bank = Bank()
    clerk = Agent("clerk", model=Scripted("Clerk here."))
    both = [call("pay", **PAY), call("transfer_to_clerk")]
    tools: list[Any] = [function_tool(bank.tools[0])]
    first = Agent("first", model=Scripted(both), tools=tools, handoffs=[clerk])
    with open_sqlite(rules=[ASK, rule("deny", tool=("transfer_to_clerk",))]) as tally:
        runner = TallyRunner(tally.bind(BOT))
        stopped = done(runner.run(first, "Pay.", run_config=QUIET))
        state = stopped.to_state()
        for question in stopped.interruptions:
            state.approve(question)
        with pytest.raises(ActionDenied):
            done(runner.run(first, state, run_config=QUIET))
        assert ("tool_call", "transfer_to_clerk", "failed") in steps_of(tally.bind(BOT))


def test_a_tool_beside_an_agent_that_asks_keeps_its_result_in_the_receipt(
    open_sqlite: OpenTally,
) -> None:
    @function_tool
    async def look_up() -> str:
        """Take longer than the question of the other."""
        await anyio.sleep(0.3)
        return "The balance is nine."

    bank = Bank()
    clerk = Agent("clerk", model=Scripted(paying(PAY)), tools=[function_tool(bank.tools[0])])
    both = [call("clerk", input="pay"), call("look_up")]
    tools: list[Any] = [clerk.as_tool("clerk", "Pays."), look_up]
    boss = Agent("boss", model=Scripted(both), tools=tools)
    with open_sqlite(rules=[ASK]) as tally:
        bound = tally.bind(BOT)
        result = done(TallyRunner(bound, strict=True).run(boss, "Go.", run_config=QUIET))
        assert [each.tool_name for each in result.interruptions] == ["pay"]
        states = {name: status for kind, name, status in steps_of(bound) if kind == "tool_call"}
        assert states == {"clerk": "blocked", "look_up": "completed", "pay": "blocked"}


def test_a_stream_that_cannot_begin_leaves_no_run_open(open_sqlite: OpenTally) -> None:
    async def begin(bound: BoundTally) -> None:
        hooks: Any = object()
        with pytest.raises(TypeError):
            TallyRunner(bound).run_streamed(Agent("a", model=Scripted("never")), "Hm?", hooks=hooks)

    with open_sqlite() as tally:
        done(begin(tally.bind(BOT)))
        assert [run.status for run in tally.bind(BOT).recordings.runs()] == ["failed"]


def test_a_denied_tool_of_a_handed_over_agent_is_denied_too(open_sqlite: OpenTally) -> None:
    bank = Bank()
    clerk = Agent("clerk", model=Scripted(paying(PAY)), tools=[function_tool(bank.tools[0])])
    first = Agent("first", model=Scripted([call("transfer_to_clerk")]), handoffs=[clerk])
    with open_sqlite(rules=[rule("deny", tool=("pay",))]) as tally:
        result = done(TallyRunner(tally.bind(BOT)).run(first, "Pay.", run_config=QUIET))
        assert (result.final_output, bank.paid) == ("done", [])
    with open_sqlite(rules=[rule("deny", "model_call")]) as tally:
        first = Agent("first", model=Scripted("never"))
        with pytest.raises(ActionDenied):
            TallyRunner(tally.bind(BOT)).run_sync(first, "Hm?", run_config=QUIET)
