"""The guard around an adapter's hooks, and who of several observers records a call.

A failure of a hook is counted, logged and recorded as a gap of the run; it reaches the user's run
only if the adapter is strict.
"""

from __future__ import annotations

import threading
import traceback
from collections.abc import Hashable, Iterator
from contextlib import contextmanager
from typing import Literal, NamedTuple, get_args

from tallystick.errors import InvalidInput
from tallystick.recorder import Run, current_step
from tallystick.tally import Tally
from tallystick.tally.services import services_of

Speakers = Literal["off", "user", "both"]
"""Speakers whose words become memories: nobody, the user, or the agent too."""


def checked_speakers(speakers: object) -> Speakers:
    """Return the speakers to capture. Raises InvalidInput for any other word."""
    for known_word in get_args(Speakers):
        if speakers == known_word and isinstance(speakers, str):
            word: Speakers = known_word
            return word
    raise InvalidInput(
        f"capture={speakers!r} is not known. Use 'off', 'user' (what the user says) or 'both' (the "
        f"agent's answers too)."
    )


def is_nested() -> bool:
    """Return True inside of a tool call: of an agent that is a tool of another, whose "user" is
    that agent.
    """
    step = current_step()
    return step is not None and step.is_open and step.kind == "tool_call"


class CaptureFailure(NamedTuple):
    """A failure to record as text. The exception itself would keep the frames of the user's call
    alive, and with them its inputs.
    """

    type: str
    message: str
    text: str
    """The exception with its traceback, as Python prints it."""


class Capture:
    """The guard around an adapter's hooks: `with capture(run): …`. Thread-safe."""

    def __init__(self, tally: Tally, surface: str, *, strict: bool) -> None:
        self._recorder = services_of(tally).recorder
        self._surface = surface
        self._guard = threading.Lock()
        self.strict = strict
        """True if a failure is raised into the runtime."""
        self.failures = 0
        """Number of events that could not be recorded."""
        self.error: CaptureFailure | None = None
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
            if self.error is None:
                text = "".join(traceback.format_exception(error))
                self.error = CaptureFailure(type(error).__name__, str(error), text)
        if run is None:
            self._recorder.count_gap(self._surface, error)
        else:
            run.count_gap(self._surface, error)

    def claim(self, call_id: Hashable, observer: object) -> bool:
        """Claim a call by the runtime's own identity of it.

        Of several observers on one tally the first records the call: True for it, and again each
        time that it asks.
        """
        return self._recorder.claims.take((self._surface, call_id), observer)

    def release(self, call_id: Hashable, observer: object) -> None:
        """Release a call that has ended; nothing happens unless `observer` claimed it."""
        self._recorder.claims.release((self._surface, call_id), observer)
