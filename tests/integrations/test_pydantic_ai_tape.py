"""Agents of PydanticAI run again on their tape: the same requests match, others show in a diff."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import pytest
from pydantic import BaseModel
from pydantic_ai import (
    Agent,
    DeferredToolRequests,
    DeferredToolResults,
    ModelRetry,
    RunContext,
    Tool,
)
from pydantic_ai.exceptions import ApprovalRequired, ModelHTTPError
from pydantic_ai.messages import (
    ModelMessage,
    ModelResponse,
    ModelResponsePart,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
)
from pydantic_ai.models.function import AgentInfo, DeltaToolCall, DeltaToolCalls, FunctionModel
from pydantic_ai.models.test import TestModel
from pydantic_ai.settings import ModelSettings

from tallystick import Actor, Tally
from tallystick.errors import NotReplayable, RecordedFailure, TapeDiverged
from tallystick.recorder import Player
from tallystick.tally import BoundTally
from tallystick_pydantic_ai import Tallystick, TapeCapability

OpenTally = Callable[..., Tally]
ANNA = Actor(user="anna")
KEY, OTHER_KEY = (f"sk-proj-{letter * 40}A1b2" for letter in "ab")

Said = str | Sequence[ModelResponsePart] | Exception


def _scripted(*script: Said) -> FunctionModel:
    """A model that says what its script says next, streamed or not."""
    replies = iter(script)

    def answer(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        parts = next(replies)
        if isinstance(parts, Exception):
            raise parts
        return ModelResponse(parts=[TextPart(parts)] if isinstance(parts, str) else list(parts))

    async def stream(
        messages: list[ModelMessage], info: AgentInfo
    ) -> AsyncIterator[str | DeltaToolCalls]:
        parts = next(replies)
        if isinstance(parts, str):
            for word in parts.split():
                yield f"{word} "
        elif not isinstance(parts, Exception):
            for place, part in enumerate(parts):
                assert isinstance(part, ToolCallPart)
                yield {
                    place: DeltaToolCall(
                        part.tool_name, part.args_as_json_str(), tool_call_id=part.tool_call_id
                    )
                }

    return FunctionModel(answer, stream_function=stream)


def _call(name: str, **arguments: Any) -> ToolCallPart:
    return ToolCallPart(name, arguments, tool_call_id=f"call_{name}")


class Scale:
    """Tools that say how often they really ran."""

    def __init__(self) -> None:
        self.ran: list[str] = []

        def weigh(what: str) -> str:
            """Weigh something."""
            self.ran.append(f"weigh {what}")
            return f"{what}: 3 tons"

        def lift(what: str) -> str:
            """Lift something."""
            self.ran.append(f"lift {what}")
            raise ModelRetry(f"{what} is too heavy")

        self.tools: list[Any] = [weigh, lift]


def _agent(model: Any, tools: Sequence[Any] = (), **options: Any) -> Agent[Any, Any]:
    return Agent(model, tools=tools, **{"instructions": "You weigh things.", **options})


def _run(agent: Agent[Any, Any], prompt: str | None = "How heavy?", **options: Any) -> Any:
    return asyncio.run(agent.run(prompt, **options)).output


def _play(
    agent: Agent[Any, Any], player: Player, prompt: str | None = "How heavy?", **options: Any
) -> Any:
    """What the agent says when it plays the tape; its own model would fail."""
    tape = TapeCapability(player, safe=options.pop("safe", ()))
    more = options.pop("capabilities", [])
    return _run(agent, prompt, capabilities=[*more, tape], **options)


def _watched(tally: Tally | BoundTally) -> list[Any]:
    return [Tallystick(tally, tools=False, context=False)]


def _player(tally: Tally | BoundTally, **options: Any) -> Player:
    bound = tally.bind() if isinstance(tally, Tally) else tally
    return bound.recordings.player(bound.runs()[0].run_id, **options)


@pytest.mark.smoke
def test_an_agent_runs_again_on_its_tape_and_no_tool_is_run(open_tally: OpenTally) -> None:
    scale = Scale()
    with open_tally() as tally:
        anna = tally.bind(ANNA)
        model = _scripted(
            [_call("weigh", what="tea"), _call("lift", what="ship")],
            [_call("weigh", what="ship")],
            "Three tons each.",
        )
        assert _run(_agent(model, scale.tools), capabilities=_watched(anna)) == "Three tons each."
        assert len(scale.ran) == 3
        player = _player(anna)

    assert [(call.kind, call.error is not None) for call in player.tape.calls] == [
        ("model_call", False),
        ("tool_call", False),
        ("tool_call", True),
        ("model_call", False),
        ("tool_call", False),
        ("model_call", False),
    ]
    assert _play(_agent(_scripted(), scale.tools), player) == "Three tons each."
    assert len(scale.ran) == 3
    report = player.finish()
    assert (report.fidelity, report.calls, report.matches) == ("exact", 6, True)


def test_a_changed_instruction_is_a_divergence_with_a_diff(open_sqlite: OpenTally) -> None:
    with open_sqlite() as tally:
        _run(_agent(_scripted("I cannot say.")), capabilities=_watched(tally))
        player = _player(tally)
    with pytest.raises(TapeDiverged) as caught:
        _play(_agent(_scripted(), instructions="You guess weights."), player)
    assert caught.value.what.startswith(
        "call 1 is not the recorded one (model call function:answer:stream, step "
    )
    changed = [line.strip() for line in caught.value.diff if line.startswith(("-  ", "+  "))]
    assert '-      "instructions": "You weigh things.",' in changed
    assert '+      "instructions": "You guess weights.",' in changed


def test_changed_tools_and_settings_are_divergences(open_sqlite: OpenTally) -> None:
    def weigh(what: str, exactly: bool = False) -> str:
        """Weigh something."""
        return what

    scale = Scale()
    with open_sqlite() as tally:
        settings = ModelSettings(temperature=0.5)
        _run(
            _agent(_scripted("Heavy."), scale.tools, model_settings=settings),
            capabilities=_watched(tally),
        )
        same, tools, warmer = (_player(tally) for _ in range(3))
    _play(_agent(_scripted(), scale.tools, model_settings=settings), same)
    assert same.finish().matches
    with pytest.raises(TapeDiverged, match="call 1 is not the recorded one"):
        _play(_agent(_scripted(), [weigh, scale.tools[1]], model_settings=settings), tools)
    with pytest.raises(TapeDiverged, match="call 1 is not the recorded one"):
        _play(
            _agent(_scripted(), scale.tools, model_settings=ModelSettings(temperature=1.0)), warmer
        )


def test_an_agent_that_asks_more_or_less_than_its_tape_is_told_so(open_sqlite: OpenTally) -> None:
    async def first_only(agent: Agent[Any, Any], player: Player) -> None:
        async with agent.iter("How heavy?", capabilities=[TapeCapability(player)]) as steps:
            async for node in steps:
                if Agent.is_call_tools_node(node):
                    break

    scale = Scale()
    with open_sqlite() as tally:
        _run(
            _agent(_scripted([_call("weigh", what="tea")], "Heavy."), scale.tools),
            capabilities=_watched(tally),
        )
        more, less = _player(tally), _player(tally)
    _play(_agent(_scripted(), scale.tools), more)
    with pytest.raises(
        TapeDiverged, match="call 4 asks a model, and the tape holds no such call any more"
    ):
        _play(_agent(_scripted(), scale.tools), more)
    asyncio.run(first_only(_agent(_scripted(), scale.tools), less))
    with pytest.raises(
        TapeDiverged, match="ended before 2 of 3 recorded calls; the next was tool call weigh"
    ):
        less.finish()


def test_safe_tools_run_for_real_and_are_compared(open_sqlite: OpenTally) -> None:
    def weigh(what: str) -> str:
        """Weigh something."""
        return f"{what}: 4 tons"

    scale = Scale()
    with open_sqlite() as tally:
        _run(
            _agent(_scripted([_call("weigh", what="tea")], "Heavy."), scale.tools),
            capabilities=_watched(tally),
        )
        player, other = _player(tally), _player(tally)
    scale.ran.clear()
    assert _play(_agent(_scripted(), scale.tools), player, safe={"weigh"}) == "Heavy."
    assert scale.ran == ["weigh tea"]
    assert player.finish().matches
    with pytest.raises(TapeDiverged) as caught:
        _play(_agent(_scripted(), [weigh, scale.tools[1]]), other, safe={"weigh"})
    assert any(line.startswith("+") and "tea: 4 tons" in line for line in caught.value.diff)


class Weight(BaseModel):
    """An answer."""

    tons: int


@dataclass
class Parcel:
    """What a tool gives back."""

    tons: int
    seen: datetime


def test_results_that_are_objects_reach_the_model_as_they_did(open_sqlite: OpenTally) -> None:
    def weigh(what: str) -> Weight:
        """Weigh something."""
        return Weight(tons=3)

    def look(since: datetime) -> Parcel:
        """Look at something."""
        return Parcel(4, since)

    with open_sqlite() as tally:
        calls = [_call("weigh", what="tea"), _call("look", since="2026-11-20T10:00:00Z")]
        _run(_agent(_scripted(calls, "Heavy."), [weigh, look]), capabilities=_watched(tally))
        player = _player(tally)
    assert _play(_agent(_scripted(), [weigh, look]), player) == "Heavy."
    assert player.finish().matches


def test_a_tool_that_raised_raises_again(open_sqlite: OpenTally) -> None:
    def fetch() -> str:
        """Fetch it."""
        raise TimeoutError("too slow")

    with open_sqlite() as tally:
        with pytest.raises(TimeoutError):
            _run(_agent(_scripted([_call("fetch")]), [fetch]), capabilities=_watched(tally))
        player = _player(tally)
    with pytest.raises(TimeoutError) as caught:
        _play(_agent(_scripted(), [fetch]), player)
    assert isinstance(caught.value, RecordedFailure)
    assert player.finish().matches


def test_arguments_that_do_not_fit_are_asked_for_again(open_sqlite: OpenTally) -> None:
    scale = Scale()
    with open_sqlite() as tally:
        model = _scripted([_call("weigh", wat="tea")], [_call("weigh", what="tea")], "Heavy.")
        _run(_agent(model, scale.tools), capabilities=_watched(tally))
        player = _player(tally)
    assert _play(_agent(_scripted(), scale.tools), player) == "Heavy."
    assert player.finish().matches


def test_a_model_that_failed_fails_again_as_what_it_was(open_sqlite: OpenTally) -> None:
    broken = ModelHTTPError(503, "scripted", "busy")
    with open_sqlite() as tally:
        with pytest.raises(ModelHTTPError):
            _run(_agent(_scripted(broken)), capabilities=_watched(tally))
        player = _player(tally)
    with pytest.raises(ModelHTTPError, match="busy") as caught:
        _play(_agent(_scripted()), player)
    assert isinstance(caught.value, RecordedFailure)


def test_structured_output_is_played(open_sqlite: OpenTally) -> None:
    scale = Scale()
    with open_sqlite() as tally:
        model = _scripted([_call("weigh", what="tea")], "no tool", [_call("final_result", tons=3)])
        assert _run(
            _agent(model, scale.tools, output_type=Weight), capabilities=_watched(tally)
        ) == Weight(tons=3)
        player, other = _player(tally), _player(tally)
    # The model was asked again, since it gave no answer of that type.
    assert len(player.tape.calls) == 4
    assert _play(_agent(_scripted(), scale.tools, output_type=Weight), player) == Weight(tons=3)
    assert player.finish().matches
    with pytest.raises(TapeDiverged, match="call 1 is not the recorded one"):
        _play(_agent(_scripted(), scale.tools, output_type=bool), other)


def test_the_test_model_may_stand_for_the_one_that_was_recorded(open_sqlite: OpenTally) -> None:
    with open_sqlite() as tally:
        answer = _run(_agent(TestModel(), Scale().tools[:1]), capabilities=_watched(tally))
        player = _player(tally)
    assert _play(_agent(TestModel(), Scale().tools[:1]), player) == answer
    assert player.finish().matches


def test_a_streamed_run_is_played_streamed_or_not(open_sqlite: OpenTally) -> None:
    async def streamed(agent: Agent[Any, Any], capabilities: list[Any]) -> list[str]:
        async with agent.run_stream("How heavy?", capabilities=capabilities) as result:
            return [piece async for piece in result.stream_text(debounce_by=None)]

    async def events(agent: Agent[Any, Any], capabilities: list[Any]) -> list[str]:
        async with agent.run_stream_events("How heavy?", capabilities=capabilities) as stream:
            return [event.event_kind async for event in stream]

    scale = Scale()
    with open_sqlite() as tally:
        agent = _agent(_scripted([_call("weigh", what="tea")], "Three tons."), scale.tools)
        assert asyncio.run(streamed(agent, _watched(tally)))[-1] == "Three tons. "
        players = [_player(tally) for _ in range(3)]
    silent = _agent(_scripted(), scale.tools)
    assert asyncio.run(streamed(silent, [TapeCapability(players[0])]))[-1] == "Three tons. "
    assert {"part_start", "function_tool_result"} <= set(
        asyncio.run(events(silent, [TapeCapability(players[1])]))
    )
    assert _play(silent, players[2]) == "Three tons. "
    assert all(player.finish().matches for player in players)
    assert scale.ran == ["weigh tea"]


def test_an_agent_that_is_a_tool_is_played_as_one_or_runs_on_the_tape_itself(
    open_sqlite: OpenTally,
) -> None:
    def boss(model: Any, inner: Agent[Any, Any], capabilities: list[Any]) -> Agent[Any, Any]:
        async def ask_expert(question: str) -> str:
            """Ask the expert."""
            return str((await inner.run(question, capabilities=capabilities)).output)

        return _agent(model, [ask_expert])

    scale = Scale()
    with open_sqlite() as tally:
        expert = _agent(_scripted([_call("weigh", what="tea")], "Three tons."), scale.tools)
        outer = _scripted([_call("ask_expert", question="tea?")], "The expert says three tons.")
        answer = _run(boss(outer, expert, _watched(tally)), capabilities=_watched(tally))
        played, real = _player(tally), _player(tally)
    assert len(played.tape.calls) == 6
    silent = _agent(_scripted(), scale.tools)
    assert _play(boss(_scripted(), silent, []), played) == answer
    assert played.finish().matches

    assert (
        _play(boss(_scripted(), silent, [TapeCapability(real)]), real, safe={"ask_expert"})
        == answer
    )
    assert real.finish().matches
    assert scale.ran == ["weigh tea"]


def test_a_tool_that_waits_for_approval_is_played_when_it_was_given(open_sqlite: OpenTally) -> None:
    paid: list[int] = []

    def pay(amount: int) -> str:
        """Pay."""
        paid.append(amount)
        return f"paid {amount}"

    async def drive(agent: Agent[Any, Any], capabilities: list[Any], approve: bool = True) -> Any:
        waiting = await agent.run("Pay 7.", capabilities=capabilities)
        assert isinstance(waiting.output, DeferredToolRequests)
        results = DeferredToolResults(approvals={waiting.output.approvals[0].tool_call_id: approve})
        return (
            await agent.run(
                message_history=waiting.all_messages(),
                deferred_tool_results=results,
                capabilities=capabilities,
            )
        ).output

    def agent(model: Any) -> Agent[Any, Any]:
        return _agent(
            model, [Tool(pay, requires_approval=True)], output_type=[str, DeferredToolRequests]
        )

    with open_sqlite() as tally:
        with tally.bind().run("payer") as run, run.active():
            answer = asyncio.run(
                drive(agent(_scripted([_call("pay", amount=7)], "Paid.")), _watched(tally))
            )
        approved, denied = (tally.recordings.player(run.id) for _ in range(2))
    assert answer == "Paid."
    assert asyncio.run(drive(agent(_scripted()), [TapeCapability(approved)])) == "Paid."
    assert approved.finish().matches
    with pytest.raises(TapeDiverged):
        asyncio.run(drive(agent(_scripted()), [TapeCapability(denied)], approve=False))
    assert paid == [7]


def test_a_tool_that_asks_for_approval_itself_is_safe_or_cannot_be_played(
    open_sqlite: OpenTally,
) -> None:
    def pay(ctx: RunContext[Any], amount: int) -> str:
        """Pay."""
        if not ctx.tool_call_approved:
            raise ApprovalRequired
        return f"paid {amount}"

    def agent(model: Any) -> Agent[Any, Any]:
        return _agent(model, [pay], output_type=[str, DeferredToolRequests])

    with open_sqlite() as tally:
        _run(agent(_scripted([_call("pay", amount=7)])), "Pay 7.", capabilities=_watched(tally))
        real, stubbed = _player(tally), _player(tally)
    assert isinstance(_play(agent(_scripted()), real, "Pay 7.", safe={"pay"}), DeferredToolRequests)
    assert real.finish().matches
    with pytest.raises(NotReplayable, match=r"it waits for a person .* name it in `safe`"):
        _play(agent(_scripted()), stubbed, "Pay 7.")


def test_memories_in_a_request_match_where_the_same_tally_recalls_them(
    open_tally: OpenTally,
) -> None:
    with open_tally() as tally:
        anna = tally.bind(ANNA)
        anna.remember("Anna's tea weighs three tons.")
        agent = _agent(_scripted("Three tons."))
        _run(agent, "How heavy is Anna's tea?", capabilities=[Tallystick(anna)])
        player, without = _player(anna), _player(anna)
        assert "Anna's tea weighs" in json.dumps(player.tape.calls[0].request)

        silent = _agent(_scripted())
        again = [Tallystick(anna, record=False)]
        assert (
            _play(silent, player, "How heavy is Anna's tea?", capabilities=again) == "Three tons."
        )
        assert player.finish().matches
        with pytest.raises(TapeDiverged) as caught:
            _play(
                silent,
                without,
                "How heavy is Anna's tea?",
                capabilities=[Tallystick(anna, record=False, context=False)],
            )
        assert "with memories that a tally recalled" in caught.value.what
        assert any(
            line.startswith("-") and "Anna's tea weighs three tons" in line
            for line in caught.value.diff
        )


def test_a_replay_may_be_recorded_and_its_tape_is_the_same_one(open_sqlite: OpenTally) -> None:
    scale = Scale()
    with open_sqlite() as tally:
        _run(
            _agent(_scripted([_call("weigh", what="tea")], "Heavy."), scale.tools),
            capabilities=_watched(tally),
        )
        silent = _agent(_scripted(), scale.tools)
        for watched_first in (True, False):
            player = _player(tally)
            capabilities = [*_watched(tally), TapeCapability(player)]
            assert (
                _run(silent, capabilities=capabilities if watched_first else capabilities[::-1])
                == "Heavy."
            )
            assert player.finish().matches
        first, second, third = (tally.recordings.tape(run.run_id) for run in tally.bind().runs())
        kinds = ["model_call", "tool_call", "model_call"]
        assert [[call.kind for call in tape.calls] for tape in (first, second, third)] == [
            kinds
        ] * 3


def test_a_secret_in_the_prompt_matches_whatever_it_is(open_sqlite: OpenTally) -> None:
    def agent(model: Any, key: str, tools: Sequence[Any]) -> Agent[Any, Any]:
        return _agent(model, tools, instructions=f"The key is {key}.")

    scale = Scale()
    with open_sqlite() as tally:
        model = _scripted([_call("weigh", what=KEY)], f"{KEY} weighs 3 tons.")
        _run(agent(model, KEY, scale.tools), f"How heavy is {KEY}?", capabilities=_watched(tally))
        players = [_player(tally) for _ in range(3)]
    assert KEY not in players[0].tape.dumps()
    for player, key in zip(players, (KEY, OTHER_KEY), strict=False):
        _play(agent(_scripted(), key, scale.tools), player, f"How heavy is {key}?")
        assert player.finish().fidelity == "exact_redacted"
    with pytest.raises(TapeDiverged):
        _play(agent(_scripted(), KEY, scale.tools), players[2], "How heavy is nothing?")


def test_a_run_without_payloads_has_no_tape(open_sqlite: OpenTally) -> None:
    with open_sqlite() as tally:
        with tally.bind().run("weigher", retention="metadata_only") as run, run.active():
            _run(_agent(_scripted("I cannot say.")), capabilities=_watched(tally))
        with pytest.raises(NotReplayable, match="its request was not kept"):
            tally.recordings.tape(run.id)


def test_a_result_that_was_never_sent_is_the_recorded_one(open_sqlite: OpenTally) -> None:
    """A run that ends with a tool: no later request holds its result."""

    def weigh(what: str) -> str:
        """Weigh something."""
        return f"{what}: 3 tons"

    async def results(capabilities: list[Any], model: Any) -> list[Any]:
        results: list[Any] = []
        agent = _agent(model, [weigh])
        async with agent.iter("How heavy?", capabilities=capabilities) as steps:
            async for _ in steps:
                results = [
                    part.content
                    for message in steps.all_messages()
                    for part in message.parts
                    if isinstance(part, ToolReturnPart)
                ]
                if results:
                    break
        return results

    with open_sqlite() as tally:
        with pytest.raises(RuntimeError):
            _run(
                _agent(_scripted([_call("weigh", what="tea")], RuntimeError("gone")), [weigh]),
                capabilities=_watched(tally),
            )
        player = _player(tally)
    with pytest.raises(RuntimeError, match="gone"):
        asyncio.run(results([TapeCapability(player)], _scripted()))
    assert player.finish().matches
