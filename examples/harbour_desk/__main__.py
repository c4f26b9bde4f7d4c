"""A harbour's desk of Google's Agent Development Kit: two agents, two users, a session that lasts.

A receiver hands over to a clerk, who books a berth once the user has confirmed it; the rule is the
tally's, the question ADK's own confirmation of tools. Another session remembers what was said in
the first, for its user alone. Then the first conversation is played again from its tape.

    python -m examples.harbour_desk
    python -m examples.harbour_desk --model gemini-3-pro
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from examples.harbour_desk.scripted import Scripted, call
from examples.running import OPERATOR, check_receipts, example_options
from google.adk.agents import LlmAgent
from google.adk.apps import App
from google.adk.events import Event
from google.adk.plugins.base_plugin import BasePlugin
from google.adk.runners import Runner
from google.genai import types

from tallystick import PolicyRule, Tally
from tallystick_adk import TallyPlugin, TallySessionService, TapePlugin

RULE = PolicyRule.load(
    {
        "id": "bookings",
        "name": "The user confirms each booking",
        "effect": "require_approval",
        "applies_to": "tool_call",
        "conditions": {"tool": ["book_berth"]},
    }
)
CONFIRM = "adk_request_confirmation"
ASKED, WANTED = "My boat is the Heron, 9 metres long.", "A berth for tonight, please."


def book_berth(boat: str, metres: int) -> str:
    """Book a berth for the night."""
    return f"berth 14 for the {boat}, {metres} metres"


class Desk:
    """The agents, with the pieces of one tally around them."""

    def __init__(self, tally: Tally, model: Any, plugin: BasePlugin) -> None:
        clerk = LlmAgent(
            name="clerk", model=model, instruction="You book berths.", tools=[book_berth]
        )
        receiver = LlmAgent(
            name="receiver",
            model=model,
            instruction="You receive users. Berths are the clerk's.",
            sub_agents=[clerk],
        )
        self.runner = Runner(
            app=App(name="harbour", root_agent=receiver, plugins=[plugin]),
            session_service=TallySessionService(tally),
            auto_create_session=True,
        )

    def say(self, user: str, session: str, *parts: str | types.Part) -> list[Event]:
        """Send a message in a session of a user; return the events that come."""
        made = [each if isinstance(each, types.Part) else types.Part(text=each) for each in parts]
        message = types.Content(role="user", parts=made)

        async def events() -> list[Event]:
            named: dict[str, Any] = {"user_id": user, "session_id": session}
            return [each async for each in self.runner.run_async(new_message=message, **named)]

        return asyncio.run(events())


def words_of(events: list[Event]) -> str:
    """Return what was said last."""
    texts = [part.text or "" for part in (events[-1].content or types.Content()).parts or []]
    return "".join(texts)


def confirmed(events: list[Event]) -> list[types.Part]:
    """Confirm what events ask for; return the answers."""
    asked = [each for event in events for each in event.get_function_calls()]
    answers = []
    for question in asked:
        if question.name == CONFIRM:
            original = (question.args or {})["originalFunctionCall"]
            print(f"The user confirms: {original['name']} {original['args']}")
            answer = types.FunctionResponse(
                id=question.id, name=CONFIRM, response={"confirmed": True}
            )
            answers.append(types.Part(function_response=answer))
    return answers


def main(arguments: Sequence[str] | None = None) -> None:
    """Have conversations of two users, and play one again."""
    parser = example_options(__doc__)
    parser.add_argument("--model", help="a real model, such as gemini-3-pro")
    options = parser.parse_args(arguments)
    booking = call("book_berth", boat="Heron", metres=9)
    turns = ["Welcome.", call("transfer_to_agent", agent_name="clerk"), booking, "Berth 14."]
    with Tally.open(options.tally, owner=OPERATOR, rules=[RULE]) as tally:
        plugin = TallyPlugin(tally, capture="user")
        desk = Desk(tally, options.model or Scripted(turns=turns), plugin)
        print(words_of(desk.say("ada", "morning", ASKED)))
        events = desk.say("ada", "morning", WANTED)
        print(words_of(desk.say("ada", "morning", *confirmed(events))))

        # Another session, in a runner of its own, as after a restart.
        scripted = Scripted(turns=["The Heron.", "I do not know."])
        later = Desk(tally, options.model or scripted, plugin)
        for user in ("ada", "bob"):
            print(f"{user}: {words_of(later.say(user, 'evening', 'Which boat is mine?'))}")
            print(f"  remembered: {[each.content for each in tally.user(user).memories()]}")

        recordings = tally.user("ada").recordings
        first = recordings.runs()[-1]
        player = recordings.player(first.id)
        again = Desk(tally, Scripted(turns=[]), TapePlugin(player))
        played = again.say("ada", "again", ASKED)
        print(f"played again: {words_of(played)} {player.finish().fidelity}")
        for run in reversed(recordings.runs()):
            names = [step.name for step in recordings.steps(run.id) if step.name]
            print(f"{run.agent_name}: {run.status} ({', '.join(names)})")
        print(f"\n{check_receipts(tally)}")


if __name__ == "__main__":
    main()
