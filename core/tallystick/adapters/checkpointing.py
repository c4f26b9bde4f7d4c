"""Checkpoints from an event loop, and the run that a checkpoint is put in."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from tallystick.recorder import current_run
from tallystick.tally import Tally
from tallystick.tally.services import services_of

__all__ = ["current_run_id", "is_remote", "run_in_lane"]

T = TypeVar("T")


def is_remote(tally: Tally) -> bool:
    """Return True if the tally is on a server, so that reads take longest on their way there."""
    return services_of(tally).store.database.is_remote


async def run_in_lane(tally: Tally, call: Callable[[], Callable[[], T]]) -> T:
    """Run a short call in the lane that all tasks share: one worker, so that they share commits.

    `call` begins the work; what it returns waits for its end.
    """
    return await services_of(tally).checkpoints.lane.run(call)


def current_run_id(tally: Tally) -> str | None:
    """Return the id of the run whose block this code is in, if this tally records it."""
    run = current_run()
    is_own = run is not None and run.context is services_of(tally).recorder
    return run.id if run is not None and is_own else None
