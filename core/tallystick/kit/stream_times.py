"""Times of the chunks of a streamed answer."""

from __future__ import annotations

from typing import Any

from tallystick.recorder import Step


class StreamTimes:
    """Counts the chunks of a stream, and times its first and its last from the start of the step.

    Times are microseconds of the tally's clock. Not thread-safe: chunks of one stream follow one
    another.
    """

    __slots__ = ("_step", "chunks", "first_us", "last_us")

    def __init__(self, step: Step) -> None:
        self._step = step
        self.chunks = 0
        self.first_us = 0
        self.last_us = 0

    def add_chunk(self) -> None:
        """Count a chunk that has just come."""
        self.last_us = self._step.elapsed_us()
        if not self.chunks:
            self.first_us = self.last_us
        self.chunks += 1

    def summary(self) -> dict[str, Any]:
        """Return the part of a receipt's summary about the stream; empty if no chunk came."""
        if not self.chunks:
            return {}
        times = {"chunks": self.chunks, "first_us": self.first_us, "last_us": self.last_us}
        return {"stream": times}
