"""A plugin for pytest: play a tape to an agent and fail with a diff where it asks for something else.

    def test_the_agent_still_asks_the_same(tape):
        player = tape("tapes/refund.json")
        agent = create_agent(TapeChatModel(player), tape_tools(player, tools))
        agent.invoke({"messages": [("user", "Refund order 7.")]})

The fixture says at the end of the test whether every recorded request was made, also where the agent itself took the
error for a failed tool.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tallystick.recorder import Player

__all__ = ["tape"]


@pytest.fixture
def tape(request: pytest.FixtureRequest) -> Iterator[Callable[[str | Path], Player]]:
    """Loads a tape, named from the folder of the test or the working folder, and plays it."""
    from tallystick.recorder import Player, read_tape

    players: list[Player] = []

    def load(path: str | Path) -> Player:
        beside = request.path.parent / path
        player = Player(read_tape(beside if beside.exists() else path))
        players.append(player)
        return player

    yield load
    from tallystick.errors import TapeDiverged

    for player in players:
        try:
            player.finish()
        except TapeDiverged as error:
            pytest.fail(str(error), pytrace=False)
