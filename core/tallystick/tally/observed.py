"""Observed calls: what joins a verb with the recorder, once for all verbs.

A verb that is called inside an open step, or inside a recorded run, leaves an entry there, and the
journal of what it changes names that step as `correlation_id`. Outside of a run it records nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from tallystick.access import Gate
from tallystick.recorder import RecorderContext, Run, Step, current_run, current_step
from tallystick.records import Actor, EntryKind, StepKind

__all__ = ["ObservedCall", "observed", "traced_actor"]


class ObservedCall:
    """One verb under way, with the step that records it, if there is one."""

    __slots__ = ("step",)

    def __init__(self, step: Step | None) -> None:
        self.step = step

    @property
    def correlation_id(self) -> str | None:
        """The id of the step, by which the journal and the recording find one another."""
        return None if self.step is None else self.step.id

    def record(self, kind: EntryKind, payload: Any, *, summary: Mapping[str, Any]) -> None:
        """Record an entry in the step; nothing where no run observes the call."""
        if self.step is not None:
            self.step.record(kind, payload, summary=summary)


_UNRECORDED = ObservedCall(None)


@contextmanager
def observed(
    gate: Gate, recorder: RecorderContext, actor: Actor, kind: StepKind, name: str
) -> Iterator[ObservedCall]:
    """Observe one call of a verb.

    Its step is the open one, else one of its own in the open run, else none. A refusal inside is
    journaled before it is raised; an error fails a step of its own.
    """
    with gate.journaling(actor):
        step, run = current_step(), current_run()
        if step is not None and step.is_open and step.run.context is recorder:
            yield ObservedCall(step)
        elif run is None or not _is_open(run, recorder):
            yield _UNRECORDED
        else:
            own_step = run.step(kind, name=name)
            try:
                yield ObservedCall(own_step)
            except BaseException as error:
                own_step.fail(error)
                raise
            own_step.end(wait=False)


def traced_actor(recorder: RecorderContext, actor: Actor) -> Actor:
    """Return the actor as the history names it.

    Where the actor names no request and no session, they are the recorded run under way and its
    thread.
    """
    step, run = current_step(), current_run()
    run = run if run is not None or step is None or not step.is_open else step.run
    if run is None or not _is_open(run, recorder):
        return actor
    thread = run.record.metadata.get("thread_id")
    return actor.traced(
        request_id=actor.request_id or run.id,
        session_id=actor.session_id or (thread if isinstance(thread, str) else None),
    )


def _is_open(run: Run, recorder: RecorderContext) -> bool:
    return run.context is recorder and run.record.ended_at is None
