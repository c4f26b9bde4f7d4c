"""Tapes of what only PydanticAI has: typed results and outputs, and runs that are left;
test_runtime_tapes.py holds the facts of every runtime.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import pytest
from pydantic import BaseModel
from pydantic_ai import Agent
from pydantic_ai.messages import ToolReturnPart
from pydantic_ai.models.test import TestModel
from tests.integrations.runtimes.base import Script, call, player_of
from tests.integrations.runtimes.pydantic_ai import PydanticAI, scripted

from tallystick import Tally
from tallystick.errors import TapeDiverged
from tallystick_pydantic_ai import Tallystick, TapeCapability

OpenTally = Callable[..., Tally]


def weigh(what: str) -> str:
    """Weigh something."""
    return f"{what}: 3 tons"


WEIGH = [call("weigh", what="tea")]


def ask(agent: Agent[Any, Any], *capabilities: Any) -> Any:
    return asyncio.run(agent.run("How heavy?", capabilities=capabilities)).output


def quiet(tally: Tally) -> Any:
    """Return the capability that records, and nothing else."""
    return Tallystick(tally, tools=False, context=False)


class Weight(BaseModel):
    """An answer."""

    tons: int


@dataclass
class Parcel:
    """The result of a tool."""

    tons: int
    seen: datetime


def test_results_that_are_objects_reach_the_model_as_they_did(open_sqlite: OpenTally) -> None:
    def measure(what: str) -> Weight:
        """Weigh something."""
        return Weight(tons=3)

    def look(since: datetime) -> Parcel:
        """Look at something."""
        return Parcel(4, since)

    calls = [call("measure", what="tea"), call("look", since="2026-11-20T10:00:00Z")]
    with open_sqlite() as tally:
        PydanticAI().run(Script(calls, "Heavy."), [measure, look], recorded=tally)
        player = player_of(tally)
    assert PydanticAI().run(None, [measure, look], player=player).text == "Heavy."
    assert player.finish().matches


def test_structured_output_is_played(open_sqlite: OpenTally) -> None:
    def agent(model: Any, output: Any) -> Agent[Any, Any]:
        return Agent(model, tools=[weigh], output_type=output)

    with open_sqlite() as tally:
        model = scripted(WEIGH, "no tool", [call("final_result", tons=3)])
        assert ask(agent(model, Weight), quiet(tally)) == Weight(tons=3)
        player, other = player_of(tally), player_of(tally)
    # The model was asked again, since it gave no answer of that type.
    assert len(player.tape.calls) == 4
    assert ask(agent(scripted(), Weight), TapeCapability(player)) == Weight(tons=3)
    assert player.finish().matches
    with pytest.raises(TapeDiverged, match="call 1 is not the recorded one"):
        ask(agent(scripted(), bool), TapeCapability(other))


def test_the_test_model_may_stand_for_the_one_that_was_recorded(open_sqlite: OpenTally) -> None:
    agent = Agent(TestModel(), tools=[weigh])
    with open_sqlite() as tally:
        answer = ask(agent, quiet(tally))
        player = player_of(tally)
    assert ask(agent, TapeCapability(player)) == answer
    assert player.finish().matches


def test_a_replay_is_recorded_whichever_capability_comes_first(open_sqlite: OpenTally) -> None:
    agent = Agent(scripted(WEIGH, "Heavy."), tools=[weigh])
    with open_sqlite() as tally:
        ask(agent, quiet(tally))
        for order in (1, -1):
            player = player_of(tally)
            assert ask(agent, *[quiet(tally), TapeCapability(player)][::order]) == "Heavy."
            assert player.finish().matches
        tapes = [tally.recordings.tape(run.id) for run in tally.bind().recordings.runs()]
        kinds = ["model_call", "tool_call", "model_call"]
        assert [[each.kind for each in tape.calls] for tape in tapes] == [kinds] * 3


def test_a_result_that_was_never_sent_is_the_recorded_one(open_sqlite: OpenTally) -> None:
    """A run that ends with a tool: no later request holds its result."""

    async def leave(agent: Agent[Any, Any], capability: Any) -> list[Any]:
        results: list[Any] = []
        async with agent.iter("How heavy?", capabilities=[capability]) as steps:
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
            PydanticAI().run(Script(WEIGH, RuntimeError("gone")), [weigh], recorded=tally)
        player = player_of(tally)
    with pytest.raises(RuntimeError, match="gone"):
        PydanticAI().run(None, [weigh], player=player)
    assert player.finish().matches
