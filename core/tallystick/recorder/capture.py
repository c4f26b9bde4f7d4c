"""Capture: what an adapter could not record is counted, logged and shown, and breaks the user's run
only if asked.
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
"""Whose words of a conversation become memories: nobody's, the user's, or those of the agent too.
"""


class Capture:
    """The guard around an adapter's hooks: `with capture(run): …`. Thread-safe."""

    def __init__(self, context: RecorderContext, surface: str, *, strict: bool) -> None:
        self._context = context
        self._surface = surface
        self._guard = threading.Lock()
        self.strict = strict
        """Whether a failure is raised into the runtime."""
        self.failures = 0
        """Events that could not be recorded."""
        self.error: Exception | None = None
        """The first failure."""

    @contextmanager
    def __call__(self, run: Run | None = None) -> Iterator[None]:
        """Count an exception of the code inside; raise it only if strict. The chain of `run` tells
        of it.
        """
        try:
            yield
        except Exception as error:
            self.miss(error, run)
            if self.strict:
                raise

    def miss(self, error: Exception, run: Run | None = None) -> None:
        """Count an event that could not be recorded."""
        with self._guard:
            self.failures += 1
            self.error = self.error or error
        if run is None:
            self._context.health.miss(self._surface, error)
        else:
            run.miss(self._surface, error)
