"""A run that goes on with a thread takes up the newest run of it."""

from __future__ import annotations

from collections.abc import Callable

from tallystick import Tally
from tallystick.kit import earlier_run

OpenTally = Callable[..., Tally]


def test_the_earlier_run_of_a_thread_is_its_newest_that_has_a_goal(open_sqlite: OpenTally) -> None:
    with open_sqlite() as tally:
        bound = tally.bind()
        for goal, thread in (("first", "t"), ("second", "t"), (None, "t"), ("other", "u")):
            bound.run("agent", goal=goal, metadata={"thread_id": thread}).end()

        earlier = earlier_run(bound, "t")
        assert earlier is not None
        assert earlier.goal == "second"
        assert earlier_run(bound, "v") is None
