"""A tape: the model and tool calls of a recorded run, to play an agent again without a network."""

from __future__ import annotations

from typing import Literal

from tallystick.records._base import Json, Persisted, Record
from tallystick.records.recording import Fidelity, Retention


class TapeCall(Record):
    """One recorded call: its request and its answer."""

    step_id: str
    kind: Literal["model_call", "tool_call"]
    name: str | None = None
    request: Json
    response: Json = None
    error: dict[str, str] | None = None
    """`type` and `message` of the error, if the call failed."""
    redacted: bool = False
    """True if secrets were redacted from the request before it was stored."""
    blocked: bool = False
    """True if the call was not made, because it waits for a person."""
    chunks: int | None = None
    """Number of chunks of the answer, if it was recorded as a stream."""
    inside: str | None = None
    """The step of the tool call that made this call, such as of an agent that is a tool; both are
    played together.
    """


class Tape(Persisted):
    """The calls of a run in the order in which they began. A file of JSON that a test can keep."""

    run_id: str
    agent_name: str
    retention: Retention
    calls: tuple[TapeCall, ...]

    @property
    def fidelity(self) -> Fidelity:
        """`exact` if no request was redacted, else `exact_redacted`."""
        return "exact_redacted" if any(call.redacted for call in self.calls) else "exact"


class Divergence(Record):
    """The first place where an agent left its tape."""

    step_id: str | None
    """The recorded step; None if the agent made more calls than were recorded."""
    what: str
    """One sentence that names the call, and the part of its request that differs."""
    diff: tuple[str, ...] = ()
    """Lines of a unified diff from the recorded request to the one that was made."""


class TapeReport(Record):
    """The progress of an agent along its tape."""

    fidelity: Fidelity
    calls: int
    played: int
    divergence: Divergence | None = None

    @property
    def matches(self) -> bool:
        """True if every request was the recorded one, and all of them were made."""
        return self.divergence is None and self.played == self.calls
