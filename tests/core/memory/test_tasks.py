"""Tasks have five states and an end without success."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tallystick.errors import InvalidRecord
from tallystick.records import Actor
from tallystick.tally import Tally

OpenTally = Callable[..., Tally]
ALICE = Actor(user="alice")


@pytest.mark.parametrize("kind", ["task", "milestone"])
def test_a_task_is_in_one_of_its_states(open_sqlite: OpenTally, kind: str) -> None:
    with open_sqlite() as tally:
        mine = tally.bind(ALICE)
        for status in ("todo", "doing", "blocked", "review", "done", "cancelled"):
            mine.remember(f"Mend it, {status}.", kind=kind, attributes={"status": status})
        for status in ("open", "active", "finished"):
            with pytest.raises(InvalidRecord, match="status"):
                mine.remember("x", kind=kind, attributes={"status": status})
        woken = {item.text for item in mine.wake().items if item.chosen_as == "task"}
        states = ("todo", "doing", "blocked", "review")
        assert woken == {f"Mend it, {status}." for status in states}
