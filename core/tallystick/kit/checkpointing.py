"""Checkpoints from an event loop: where a read takes long, and the lane that tasks share."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from tallystick.tally import Tally
from tallystick.tally.services import services_of

T = TypeVar("T")


def is_remote(tally: Tally) -> bool:
    """Return True if the tally is on a server, so that reads take longest on their way there."""
    return services_of(tally).store.database.is_remote


async def run_in_lane(tally: Tally, call: Callable[[], Callable[[], T]]) -> T:
    """Run a short call in the lane that all tasks share: one worker, so that they share commits.

    `call` begins the work; what it returns waits for its end.
    """
    return await services_of(tally).checkpoints.lane.run(call)
