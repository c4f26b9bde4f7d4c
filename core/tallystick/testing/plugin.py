"""A plugin for pytest: play a tape to an agent and fail with a diff if it makes another request.

    def test_the_agent_still_asks_the_same(tape):
        player = tape("tapes/refund.json")
        agent = create_agent(TapeChatModel(player), tape_tools(player, tools))
        agent.invoke({"messages": [("user", "Refund order 7.")]})

pytest finds it by itself where tallystick is installed, else with `-p tallystick.testing.plugin`.
The tape is written by `tally tape RUN --out tests/tapes/refund.json`. `tape` takes the options of
`Player` too: `ignore` for parts that may differ, such as dates, `redactor` for rules that are not
the default, `errors` for the classes as which failures are raised.

The fixture checks at the end of the test that every recorded request was made, even if the agent
itself took the error for a failed tool. A test that left its tape shows the diff, not the way
through the runtime; `--full-trace` does. Loading the plugin imports nothing but pytest: the rest
comes with the first tape.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from tallystick.errors import TapeDiverged
    from tallystick.recorder import Player

_DIVERGENCE_SHOWN = pytest.StashKey[bool]()
"""True if the report of a test shows already where it left its tape."""
_CAUSES = 32
"""The number of errors that are searched for the cause of one."""


@pytest.fixture
def tape(request: pytest.FixtureRequest) -> Iterator[Callable[..., Player]]:
    """Load a tape, named from the folder of the test or the working folder, and play it; see
    `Player` for options.
    """
    from tallystick.errors import InvalidInput
    from tallystick.recorder import Player, read_tape

    players: list[Player] = []

    def load(path: str | Path, **options: Any) -> Player:
        beside = request.path.parent / path
        try:
            recorded = read_tape(beside if beside.exists() else path)
        except InvalidInput as error:
            pytest.fail(str(error), pytrace=False)
        player = Player(recorded, **options)
        players.append(player)
        return player

    yield load
    if request.node.stash.get(_DIVERGENCE_SHOWN, False):
        return
    for player in players:
        divergence = _finish_player(player)
        if divergence is not None:
            pytest.fail(divergence, pytrace=False)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Show where a test left its tape, in place of a traceback through the runtime."""
    report = yield
    diverged = None if call.excinfo is None else _divergence_of(call.excinfo.value)
    if diverged is not None and report.failed and not item.config.getoption("fulltrace"):
        item.stash[_DIVERGENCE_SHOWN] = True
        report.longrepr = str(diverged)
    return report


def _finish_player(player: Player) -> str | None:
    from tallystick.errors import TapeDiverged

    try:
        player.finish()
    except TapeDiverged as error:
        return str(error)
    return None


def _divergence_of(error: BaseException) -> TapeDiverged | None:
    """Return the divergence from a tape that caused an error, or None."""
    from tallystick.errors import TapeDiverged

    errors: list[BaseException] = [error]
    for raised in errors:
        if isinstance(raised, TapeDiverged):
            return raised
        # Tasks that ran side by side fail together.
        causes = [
            raised.__cause__,
            *(raised.exceptions if isinstance(raised, BaseExceptionGroup) else ()),
        ]
        errors += [cause for cause in causes if cause is not None][: _CAUSES - len(errors)]
    return None
