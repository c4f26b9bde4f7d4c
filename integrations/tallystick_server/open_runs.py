"""Runs that callers record over HTTP: started, recorded step by step, and ended.

A run is open in the process that started it. While it is, each call that names it in the header
`Tallystick-Run` is recorded in it, as a call inside a `with bound.run(…)` block is.

An open run carries no authority: each call that records in it, or ends it, asks the gate whether
its caller may, within the bounds of the caller's token.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Annotated

from fastapi import Header, Request

from tallystick.errors import InvalidInput, RunClosed
from tallystick.recorder import Run
from tallystick.tally import BoundTally

_MOST_OPEN = 1_000

RunHeader = Annotated[
    str | None,
    Header(alias="Tallystick-Run", description="A run that this caller started, to record it in."),
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


@contextmanager
def within(request: Request, bound: BoundTally, run_id: str | None) -> Iterator[None]:
    """Record the calls of a block in an open run of the caller, if one is named."""
    if run_id is None:
        yield
        return
    run: Run = request.app.state.open_runs.of(run_id, bound)
    with run.active():
        yield
