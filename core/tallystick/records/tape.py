"""A tape: the model and tool calls of a recorded run, to play an agent again without a network."""

from __future__ import annotations

from typing import Literal

from tallystick.records._base import Json, Persisted, Record
from tallystick.records.recording import Fidelity, Retention

__all__ = ["Divergence", "Tape", "TapeCall", "TapeReport"]


class TapeCall(Record):
    """One recorded call: what was asked, and what came back."""

    step_id: str
    kind: Literal["model_call", "tool_call"]
    name: str | None = None
    request: Json
    response: Json = None
    error: dict[str, str] | None = None
    """`type` and `message` of what went wrong, where the call failed."""
    redacted: bool = False
    """Whether secrets were taken out of the request before it was kept."""
    blocked: bool = False
    """Whether the call was not made, because it waits for a person."""
    chunks: int | None = None
    """How many chunks the answer came in, where it was recorded as a stream."""
    inside: str | None = None
    """The step of the tool call that made this one, such as an agent that is a tool: played with
    it.
    """


class Tape(Persisted):
    """The calls of a run in the order in which they began. A file of JSON that a test can keep."""

    run_id: str
    agent_name: str
    retention: Retention
    calls: tuple[TapeCall, ...]

    @property
    def fidelity(self) -> Fidelity:
        """`exact` when nothing was redacted in what is compared, else `exact_redacted`."""
        return "exact_redacted" if any(call.redacted for call in self.calls) else "exact"


class Divergence(Record):
    """The first place where an agent left its tape."""

    step_id: str | None
    """The recorded step; None where the agent asked more than was recorded."""
    what: str
    """One sentence: which call, and what of its request differs."""
    diff: tuple[str, ...] = ()
    """Lines of a unified diff from the recorded request to the one that was made."""


class TapeReport(Record):
    """How far an agent followed its tape."""

    fidelity: Fidelity
    calls: int
    played: int
    divergence: Divergence | None = None

    @property
    def matches(self) -> bool:
        """Whether every request was the recorded one, and all of them were made."""
        return self.divergence is None and self.played == self.calls
