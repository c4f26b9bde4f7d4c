"""Each piece of ADK acts as the user of the session, and is refused where another is named."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("google.adk", exc_type=ImportError)

from google.adk.agents import LlmAgent
from google.adk.events import Event
from google.adk.sessions import Session
from google.genai import types
from tests.integrations.adk.runtime import Conversation, scripted
from tests.integrations.runtimes.base import call

from tallystick import Actor, Tally
from tallystick.errors import Denied
from tallystick_adk import TallyMemoryService, TallyPlugin, TallySessionService, memory_tools

OpenTally = Callable[..., Tally]
ADA, BOB = Actor(user="ada"), Actor(user="bob")


async def say(agent: LlmAgent, *plugins: Any, **services: Any) -> None:
    chat = Conversation(agent, *plugins, user="ada", **services)
    await chat.begin()
    await chat.say("Note it.")


async def plugin(tally: Tally, **given: Any) -> None:
    await say(
        LlmAgent(name="a", model=scripted("Yes.")), TallyPlugin(tally, capture="user", **given)
    )


async def sessions(tally: Tally, **given: Any) -> None:
    agent = LlmAgent(name="a", model=scripted("Yes."))
    await say(agent, sessions=TallySessionService(tally, **given))


async def memory(tally: Tally, **given: Any) -> None:
    content = types.Content(role="user", parts=[types.Part(text="Note it.")])
    event = Event(author="user", content=content)
    session = Session(id="s", app_name="desk", user_id="ada", events=[event])
    await TallyMemoryService(tally, **given).add_session_to_memory(session)


async def tools(tally: Tally, **given: Any) -> None:
    model = scripted([call("memory_store", content="Note it.")], "Yes.")
    await say(LlmAgent(name="a", model=model, tools=[*memory_tools(tally, **given)]))


PIECES: dict[str, Callable[..., Awaitable[None]]] = {
    "TallyPlugin": plugin,
    "TallySessionService": sessions,
    "TallyMemoryService": memory,
    "memory_tools": tools,
}


async def traces(tally: Tally, actor: Actor) -> int:
    bound = tally.bind(actor)
    listed = await TallySessionService(tally).list_sessions(app_name="desk", user_id=actor.user)
    return len(bound.memories()) + len(bound.recordings.runs()) + len(listed.sessions)


@pytest.mark.parametrize("name", PIECES)
async def test_a_piece_acts_as_the_user_of_the_session(open_sqlite: OpenTally, name: str) -> None:
    with open_sqlite() as tally:
        await PIECES[name](tally)

        assert await traces(tally, ADA) > 0
        assert [await traces(tally, each) for each in (BOB, Actor(user="local"))] == [0, 0]


@pytest.mark.parametrize("name", PIECES)
async def test_a_piece_of_another_user_is_refused(open_sqlite: OpenTally, name: str) -> None:
    with open_sqlite() as tally:
        with pytest.raises((Denied, RuntimeError)) as raised:
            await PIECES[name](tally, actor=BOB)

        error = raised.value
        assert "names another actor" in str(error if isinstance(error, Denied) else error.__cause__)
        assert [await traces(tally, each) for each in (ADA, BOB)] == [0, 0]


def test_the_page_has_a_row_of_each_piece() -> None:
    page = Path(__file__).parents[3] / "docs" / "who-acts.md"
    table = page.read_text(encoding="utf-8").partition("| Google ADK |")[2].partition("\n\n")[0]

    assert table.splitlines()[2:] == [f"| `{name}` | the user | refused |" for name in PIECES]
