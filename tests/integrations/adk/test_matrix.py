"""What the page of the runtimes says of ADK holds; its row is made of what is played."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from typing import ClassVar

import pytest

pytest.importorskip("google.adk", exc_type=ImportError)

from google.adk.agents import LlmAgent
from tests.integrations.adk.runtime import ADK, Conversation, Scripted
from tests.integrations.runtimes.base import Runtime, Script
from tests.integrations.runtimes.matrix import COLUMNS, HarnessRow, compare

from tallystick import Tally
from tallystick.tally import BoundTally
from tallystick_adk import TallySessionService

OpenTally = Callable[..., Tally]


class Row(HarnessRow):
    title, page = "Google ADK", "adk.md"
    packages = ("tallystick_adk",)
    runtime: ClassVar[type[Runtime]] = ADK
    streamed, awaited = "run_async streamed", "run_async"
    pieces: ClassVar[dict[str, str]] = {
        "session": "TallySessionService",
        **dict.fromkeys(COLUMNS[1:], "TallyPlugin"),
        "memory": "TallyPlugin, TallyMemoryService",
    }

    def converse(self, tally: Tally | BoundTally, *turns: tuple[str, str]) -> list[str]:
        """Each turn is in a runner of its own: nothing but the tally goes on."""
        script = Script(*("So." for _ in turns))
        user = tally.actor.user if isinstance(tally, BoundTally) else None

        async def talk() -> None:
            for place, (session, text) in enumerate(turns):
                agent = LlmAgent(name="agent", model=Scripted(script=script))
                chat = Conversation(agent, sessions=TallySessionService(tally))
                chat.named["user_id"] = user or chat.named["user_id"]
                chat.named["session_id"] = session
                if session not in [each for each, _ in turns[:place]]:
                    await chat.begin()
                await chat.say(text)

        asyncio.run(talk())
        return script.sent


@pytest.mark.parametrize("column", COLUMNS)
def test_a_cell_of_adk_is_played(open_sqlite: OpenTally, column: str) -> None:
    Row().shows(column, open_sqlite)


def test_a_user_who_is_erased_leaves_no_word_in_a_tally_of_adk(open_sqlite: OpenTally) -> None:
    Row().erases_a_user(open_sqlite)


def test_the_page_has_a_row_of_adk() -> None:
    compare([Row()], write="WRITE_MATRIX" in os.environ)
