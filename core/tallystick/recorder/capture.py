"""Capture: failures of an adapter's hooks are counted and logged, and reach the user's run only if
asked.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal

from tallystick.recorder.context import RecorderContext
from tallystick.recorder.run import Run

__all__ = ["Capture", "Speakers"]

Speakers = Literal["off", "user", "both"]
"""Speakers whose words become memories: nobody, the user, or the agent too."""


class Capture:
    """The guard around an adapter's hooks: `with capture(run): …`. Thread-safe."""

    def __init__(self, context: RecorderContext, surface: str, *, strict: bool) -> None:
        self._context = context
        self._surface = surface
        self._guard = threading.Lock()
        self.strict = strict
        """True if a failure is raised into the runtime."""
        self.failures = 0
        """Number of events that could not be recorded."""
        self.error: Exception | None = None
        """The first failure."""

    @contextmanager
    def __call__(self, run: Run | None = None) -> Iterator[None]:
        """Count an exception of the code inside; raise it only if strict. The chain of `run` names
        it.
        """
        try:
            yield
        except Exception as error:
            self.count_gap(error, run)
            if self.strict:
                raise

    def count_gap(self, error: Exception, run: Run | None = None) -> None:
        """Count an event that could not be recorded."""
        with self._guard:
            self.failures += 1
            self.error = self.error or error
        if run is None:
            self._context.health.count_gap(self._surface, error)
        else:
            run.count_gap(self._surface, error)
