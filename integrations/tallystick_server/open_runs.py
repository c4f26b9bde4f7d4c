"""Runs that callers record over HTTP: started, recorded step by step, and ended.

A run is open in the process that started it. While it is, each call that names it in the header
`Tallystick-Run` is recorded in it, as a call inside a `with bound.run(…)` block is; one that names
an open step of it in `Tallystick-Step`, as a call inside a `with run.step(…)` block.

An open run carries no authority, nor does a step: each call that records in it, or ends it, asks
the gate whether its caller may, within the bounds of the caller's token.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Annotated

from fastapi import Header, Request

from tallystick.errors import InvalidInput, RunClosed
from tallystick.recorder import Run, Step
from tallystick.tally import BoundTally

_MOST_OPEN = 1_000

RunHeader = Annotated[
    str | None,
    Header(alias="Tallystick-Run", description="A run that this caller started, to record it in."),
]
StepHeader = Annotated[
    str | None,
    Header(
        alias="Tallystick-Step",
        description="An open step of a run that this caller started, to record it in.",
    ),
]


class OpenRuns:
    """The runs that callers of one server have started and not ended. Thread-safe."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._runs: dict[str, Run] = {}

    def begin(self, start: Callable[[], Run]) -> Run:
        """Start a run and keep it, one at a time: of two with one id the second is refused. Raises
        InvalidInput where too many are open; then none was started.
        """
        with self._guard:
            if len(self._runs) >= _MOST_OPEN:
                raise InvalidInput(f"{_MOST_OPEN:,} runs are open on this server. End some first.")
            run = start()
            self._runs[run.id] = run
        return run

    def of(self, run_id: str, bound: BoundTally) -> Run:
        """Return an open run of this caller, who may record in it. Raises NotFound for one that the
        caller may not see, Denied, and RunClosed for any other that is not open here.
        """
        run = self._runs.get(run_id)
        if run is not None and run.actor.identity() == bound.actor.identity():
            return bound.recordings.require_record(run)
        bound.recordings.run(run_id)
        raise RunClosed(
            f"Run {run_id} is not open on this server for {bound.actor.user}: it has ended, or was "
            "started elsewhere or by another. Start a new one."
        )

    def step_of(self, step_id: str, bound: BoundTally) -> Step:
        """Return an open step of an open run of this caller. Raises as `of`."""
        with self._guard:
            runs = list(self._runs.values())
        for run in runs:
            step = run.open_step(step_id)
            if step is not None and run.actor.identity() == bound.actor.identity():
                bound.recordings.require_record(run)
                return step
        bound.recordings.step(step_id)
        raise RunClosed(
            f"Step {step_id} is not open on this server for {bound.actor.user}: it has ended, or "
            "was started elsewhere or by another. Open a new one."
        )

    def take(self, run_id: str, bound: BoundTally) -> Run:
        """Same as `of`; the run is no longer kept."""
        run = self.of(run_id, bound)
        with self._guard:
            self._runs.pop(run_id, None)
        return run

    def end_all(self) -> None:
        """End what is open, because the server ends."""
        with self._guard:
            runs, self._runs = list(self._runs.values()), {}
        for run in runs:
            run.end("interrupted")


def open_runs_of(request: Request) -> OpenRuns:
    """Return the open runs of the server that a request has reached."""
    open_runs: OpenRuns = request.app.state.open_runs
    return open_runs


@contextmanager
def within(
    request: Request, bound: BoundTally, run_id: str | None, step_id: str | None
) -> Iterator[None]:
    """Record the calls of a block in an open run of the caller, and in an open step of it, if they
    are named. Raises InvalidInput for a step of another run.
    """
    open_runs = open_runs_of(request)
    with ExitStack() as block:
        if run_id is not None:
            block.enter_context(open_runs.of(run_id, bound).active())
        if step_id is not None:
            step = open_runs.step_of(step_id, bound)
            if run_id not in (None, step.run.id):
                raise InvalidInput(
                    f"Step {step_id} is none of run {run_id}. Name a step of that run, or no run."
                )
            block.enter_context(step.run.active())
            block.enter_context(step.active())
        yield
