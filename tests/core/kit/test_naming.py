"""A run without a name has that of the script, and one that goes on the goal of its thread."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import ModuleType

import pytest

from tallystick import Tally
from tallystick.kit import default_agent_name, goal_of_thread

OpenTally = Callable[..., Tally]


@pytest.mark.parametrize(
    ("file", "launched", "name"),
    [
        ("/shop/support_bot.py", False, "support_bot"),
        ("/shop/.venv/bin/uvicorn", False, "agent"),
        ("/site-packages/ipykernel_launcher.py", True, "agent"),
        (None, False, "agent"),
    ],
)
def test_an_agent_without_a_name_has_that_of_the_script(
    file: str | None, launched: bool, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    main = ModuleType("__main__")
    main.__spec__ = sys.__spec__ if launched else None
    if file is not None:
        main.__file__ = file
    monkeypatch.setitem(sys.modules, "__main__", main)

    assert default_agent_name() == name


def test_the_goal_of_a_thread_is_that_of_its_newest_run_that_has_one(
    open_sqlite: OpenTally,
) -> None:
    with open_sqlite() as tally:
        bound = tally.bind()
        for goal, thread in (("first", "t"), ("second", "t"), (None, "t"), ("other", "u")):
            bound.run("agent", goal=goal, metadata={"thread_id": thread}).end()

        assert goal_of_thread(bound, "t") == "second"
        assert goal_of_thread(bound, "v") is None
