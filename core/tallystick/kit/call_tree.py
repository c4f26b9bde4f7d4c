"""Calls of a runtime as a tree under one root: the run of the root, and the steps in it.

Runtimes tell a recorder of calls as they begin and end, on any thread. The first call without a
parent is the root: it joins or starts a run, and ends it if it started it. The model calls, tool
calls and retrievals below it become steps of that run.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from tallystick.kit.rendering import ToolCall, recordable_metadata
from tallystick.recorder import Run, Step, current_run, current_step
from tallystick.records import LONGEST_NAME, EntryKind, RunRecord, StepKind, StepStatus
from tallystick.tally import BoundTally
from tallystick.tally.observed_calls import is_open
from tallystick.tally.services import services_of
from tallystick.tokens.prices import cost_of


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


@dataclass(slots=True)
class RootRun:
    """The run of a root call."""

    run: Run
    is_own: bool
    """True if the root started the run and is to end it."""
    is_waiting: bool = False
    """True if a person is asked: then the run ends as blocked."""

    @classmethod
    def join(
        cls, bound: BoundTally, agent_name: str, *, goal: str | None, metadata: Mapping[str, Any]
    ) -> RootRun:
        """Join the run under way, or start one. Raises Denied.

        A runtime makes some names of all that a chain contains: only their beginning is kept.
        """
        agent_name = agent_name[:LONGEST_NAME]
        return cls(*bound.join_run(agent_name, goal=goal, metadata=recordable_metadata(metadata)))

    def end(self, status: StepStatus) -> None:
        """End the run without waiting for the commit, if the root started it."""
        if self.is_own:
            status = "blocked" if self.is_waiting and status == "completed" else status
            self.run.end(status, wait=False)


class AnswerFacts(NamedTuple):
    """What a runtime says about a model's answer."""

    usage: Mapping[str, int]
    model: str | None = None
    """The model that answered, which may be a snapshot of the one that was asked."""
    stop: str | None = None
    """The reason for which it ended, as the provider says."""
    provider: str | None = None


@dataclass(slots=True)
class OpenCall:
    """A call under way and its step."""

    step: Step
    is_own: bool
    """True if the call opened the step and is to end it; a joined step is ended by its first
    observer.
    """
    times: StreamTimes
    tool_call: ToolCall | None = None
    provider: str | None = None
    """The provider and the model that a model call asks."""
    model: str | None = None
    _leave: Callable[[], None] | None = None

    def enter(self) -> None:
        """Make the step current, so that whatever the call records belongs to it."""
        self._leave = self.step.enter()

    def leave(self) -> None:
        """Make the step no longer current."""
        leave, self._leave = self._leave, None
        if leave is not None:
            leave()

    def answer_summary(self, answer: AnswerFacts) -> dict[str, Any]:
        """Return the summary of a model's answer, with the times of a stream."""
        asked = self.provider, self.model
        return {**answer_summary(self.step, answer, *asked), **self.times.summary()}

    def finish(
        self,
        kind: EntryKind,
        payload: Any,
        summary: Mapping[str, Any] | None = None,
        status: StepStatus = "completed",
    ) -> None:
        """Record the outcome and end the step, without waiting for the commit."""
        self.step.record(kind, payload, summary=summary or {})
        self.end(status)

    def end(self, status: StepStatus = "completed") -> None:
        """End the step, without waiting for the commit, if the call opened it."""
        if self.is_own:
            self.step.end(status, wait=False)

    def fail(self, error: BaseException) -> None:
        """End the step as failed, if the call opened it."""
        if self.is_own:
            self.step.fail(error)


def run_under_way(bound: BoundTally) -> Run | None:
    """Return the open run of this tally that this code is in, else that of the step; None outside
    of a run.
    """
    step, run = current_step(), current_run()
    run = step.run if run is None and step is not None and step.is_open else run
    return run if run is not None and is_open(run, services_of(bound).recorder) else None


def begin_call(
    run: Run, kind: StepKind, *, name: str | None, metadata: Mapping[str, Any]
) -> OpenCall:
    """Open the step of a call, or join the one that another observer opened for it."""
    step, is_own = run.join(kind, name=name, metadata=recordable_metadata(metadata))
    return OpenCall(step, is_own, StreamTimes(step))


def answer_summary(
    step: Step, answer: AnswerFacts, provider: str | None = None, model: str | None = None
) -> dict[str, Any]:
    """Return the summary of a model's answer: its usage and what that costs, who answered, and why
    it ended. `provider` and `model` are those that were asked.
    """
    provider = provider or answer.provider
    facts: dict[str, Any] = {
        "usage": answer.usage,
        "provider": provider,
        "model": answer.model,
        "stop": answer.stop,
    }
    models = [name for name in (answer.model, model) if name]
    if provider is not None and models:
        cost = cost_of(provider, models, answer.usage, table=step.run.context.prices)
        facts["cost"] = None if cost.amount is None else cost.dump()
    return {name: fact for name, fact in facts.items() if fact}


_LOOK_BACK = 200
"""Runs of the scope, the newest, among which an earlier one of a thread is looked for."""


UNNAMED_AGENT = "agent"
"""The name of an agent that nobody named."""


def earlier_run(bound: BoundTally, thread_id: str) -> RunRecord | None:
    """Return the newest run of a thread that has a goal, for a run that goes on with it; None if
    none of the newest 200 runs of the scope does.
    """
    return next(
        (
            run
            for run in bound.recordings.runs(limit=_LOOK_BACK)
            if run.goal and str(run.metadata.get("thread_id")) == thread_id
        ),
        None,
    )
