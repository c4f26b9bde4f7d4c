"""An agent of ADK runs again on its tape, and a request of it is replayed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

pytest.importorskip("google.adk", exc_type=ImportError)

from google.adk.agents import LlmAgent
from google.adk.plugins.base_plugin import BasePlugin
from google.adk.tools.tool_context import ToolContext
from google.genai import types
from tests.integrations.adk.runtime import ADK, Conversation, Failed, scripted, words_of
from tests.integrations.runtimes.base import Script, call, player_of

from tallystick import Tally
from tallystick.errors import InvalidInput, TapeDiverged
from tallystick.recorder import Player
from tallystick_adk import TallyPlugin, TapePlugin

OpenTally = Callable[..., Tally]


class Scale:
    """Tools that count how often they really ran."""

    def __init__(self) -> None:
        self.ran: list[str] = []

        def weigh(what: str) -> str:
            """Weigh something."""
            self.ran.append(f"weigh {what}")
            return f"{what}: 3 tons"

        def lift(what: str) -> str:
            """Lift something."""
            self.ran.append(f"lift {what}")
            raise Failed(f"{what} is too heavy")

        self.tools: list[Any] = [weigh, lift]


@pytest.mark.parametrize("way", ADK.ways)
def test_an_agent_runs_again_on_its_tape_and_no_tool_is_run(
    open_sqlite: OpenTally, way: str
) -> None:
    scale = Scale()
    script = Script(
        [call("weigh", what="tea"), call("lift", what="ship")], "Three tons, and too heavy."
    )
    with open_sqlite() as tally:
        recorded = ADK(way).run(script, scale.tools, recorded=tally)
        player = player_of(tally)
    assert len(scale.ran) == 2
    again = ADK(way).run(None, scale.tools, player=player)
    assert again.text == recorded.text == "Three tons, and too heavy."
    assert sorted(again.tools) == sorted(recorded.tools)
    report = player.finish()
    assert (report.fidelity, report.calls, report.matches) == ("exact", 4, True)
    assert len(scale.ran) == 2


def test_what_changed_is_a_divergence_and_a_safe_tool_runs(open_sqlite: OpenTally) -> None:
    scale = Scale()
    with open_sqlite() as tally:
        ADK().run(Script([call("weigh", what="tea")], "Heavy."), scale.tools, recorded=tally)
        tape = player_of(tally).tape
    with pytest.raises(TapeDiverged, match="call 1 is not the recorded one"):
        ADK().run(None, scale.tools, player=Player(tape), system="You guess weights.")

    def weigh(what: str, exactly: bool = False) -> str:
        """Weigh something."""
        return what

    with pytest.raises(TapeDiverged, match="call 1 is not the recorded one"):
        ADK().run(None, [weigh, scale.tools[1]], player=Player(tape))
    player = Player(tape)
    assert ADK().run(None, scale.tools, player=player, safe=["weigh"]).text == "Heavy."
    assert player.finish().matches
    assert scale.ran == ["weigh tea"] * 2
    with pytest.raises(InvalidInput, match="safe"):
        TapePlugin(player, safe="weigh")
    with pytest.raises(InvalidInput, match="TapePlugin"):
        TapePlugin(tape)  # type: ignore[arg-type]


async def hand_over(plugin: BasePlugin, *more: BasePlugin, model: Any) -> list[str]:
    """Talk to a desk whose tool notes a fact in the state, and that hands over to a clerk."""

    def note(fact: str, tool_context: ToolContext) -> str:
        """Note a fact."""
        tool_context.state["fact"] = fact
        return "noted"

    clerk = LlmAgent(name="clerk", model=model, instruction="The fact: {fact?}.")
    desk = LlmAgent(
        name="desk", model=model, instruction="You receive.", tools=[note], sub_agents=[clerk]
    )
    chat = Conversation(desk, plugin, *more)
    await chat.begin()
    events = await chat.say("My locker is number 5.")
    return [events[-1].author, words_of(events)]


def test_changes_of_state_and_transfers_are_made_again(open_sqlite: OpenTally) -> None:
    turns: list[Any] = [
        [call("note", fact="number 5")],
        [call("transfer_to_agent", agent_name="clerk")],
        "Number 5 it is.",
    ]
    with open_sqlite() as tally:
        plugin = TallyPlugin(tally, context=False, strict=True)
        model = scripted(*turns)
        said = asyncio.run(hand_over(plugin, model=model))
        assert said == ["clerk", "Number 5 it is."]
        assert "The fact: number 5." in model.script.sent[-1]
        player = player_of(tally)
        # Recorded again, with the answers of the tape.
        again = asyncio.run(hand_over(plugin, TapePlugin(player), model=scripted()))
        assert again == said
        assert player.finish().matches
        first, second = [
            [
                (step.step_kind, step.name, step.status)
                for step in tally.bind().recordings.steps(run.id)
            ]
            for run in tally.bind().recordings.runs()
        ]
        assert first == second
        assert player_of(tally).tape.calls[-1].response is not None


def test_an_answer_of_another_plugin_is_recorded(open_sqlite: OpenTally) -> None:
    class Cache(BasePlugin):
        async def before_model_callback(self, **_: Any) -> Any:
            from google.adk.models import LlmResponse

            said = types.Content(role="model", parts=[types.Part(text="As before.")])
            return LlmResponse(content=said)

    async def talk(tally: Tally) -> str:
        agent = LlmAgent(name="agent", model=scripted())
        chat = Conversation(agent, TallyPlugin(tally, strict=True), Cache("cache"))
        await chat.begin()
        return words_of(await chat.say("And now?"))

    with open_sqlite() as tally:
        assert asyncio.run(talk(tally)) == "As before."
        [made] = player_of(tally).tape.calls
        assert isinstance(made.response, dict)
        assert ADK().text_in(made.response["answer"]) == "As before."


def test_a_recorded_request_is_replayed_with_a_model(open_sqlite: OpenTally) -> None:
    scale = Scale()
    with open_sqlite() as tally:
        script = Script([call("weigh", what="tea")], "Heavy.")
        ADK().run(script, scale.tools, recorded=tally, temperature=0.5)
        recordings = tally.bind().recordings
        last = recordings.steps(recordings.runs()[0].id)[-1]
        asked = Script("Light.")
        replay = recordings.preview_replay(last.id, call=ADK().model_call(asked))
        assert replay.request_matches
        assert not replay.response_matches
        assert "tea: 3 tons" in asked.sent[0]
        assert asked.offered == {"weigh", "lift"}
