"""ObservedCall: how the recorder observes a call of a verb.

A verb that is called inside an open step, or inside a recorded run, leaves an entry there, and the
journal of what it changes names that step as `correlation_id`. Outside of a run it records nothing.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

from tallystick.costs import Piece, measured
from tallystick.errors import RunClosed, TallystickError
from tallystick.logs import log_operation
from tallystick.recorder import active_run, active_step
from tallystick.records import (
    Actor,
    EntryKind,
    Scope,
    StepKind,
)

if TYPE_CHECKING:
    from tallystick.recorder import RecorderContext, Run, Step
    from tallystick.tally.services import Services

_PIECES: Mapping[StepKind, Piece] = {
    "memory_read": "recall",
    "memory_write": "remember",
    "compile": "compile",
    "policy_check": "policy",
}


class ObservedCall:
    """One verb under way, with the step that records it, if there is one."""

    __slots__ = ("_actor", "_scope", "_services", "facts", "mode", "outcome", "step")

    def __init__(self, services: Services, actor: Actor, scope: Scope, step: Step | None) -> None:
        self._services, self._actor, self._scope, self.step = services, actor, scope, step
        self.mode, self.outcome = "", "done"
        """The mode of the call and how it ended, in the measures."""
        self.facts: Mapping[str, str | None] = {}
        """Ids for the log: of the memory, the job and what the call did."""

    @property
    def correlation_id(self) -> str | None:
        """The id of the step, by which the journal and the recording find one another."""
        return None if self.step is None else self.step.id

    def record(
        self,
        kind: EntryKind,
        payload: Any,
        *,
        summary: Mapping[str, Any],
        scopes: Iterable[Scope] = (),
    ) -> None:
        """Record an entry in the step; nothing where no run observes the call.

        The payload is text of the bound scope and of `scopes`. Where the run has readers that one
        of these has not, the entry has its summary alone: ids and counts.
        """
        if self.step is None:
            return
        into = self.step.run.scope
        origins = [scope for scope in dict.fromkeys((self._scope, *scopes)) if scope != into]
        if origins:
            from tallystick.access import widens

            gate = self._services.gate
            with self._services.store.database.read() as connection:
                if any(widens(connection, gate, self._actor, origin, into) for origin in origins):
                    payload = None
        try:
            self.step.record(kind, payload, summary=summary)
        except RunClosed as error:
            # Another thread ended it while the verb was under way, which is done all the same.
            self.step.run.count_gap(self._actor.surface, error)


@contextmanager
def observe(
    services: Services, actor: Actor, scope: Scope, kind: StepKind, name: str
) -> Iterator[ObservedCall]:
    """Observe one call of a verb.

    Its step is the open one, else one of its own in the open run, else none. A refusal inside is
    journaled before it is raised; an error fails a step of its own.
    """
    call: ObservedCall | None = None
    started, failure = time.perf_counter_ns(), None
    try:
        with (
            measured(_PIECES.get(kind, "record")) as meter,
            _observed(services, actor, scope, kind, name) as call,
        ):
            yield call
    except BaseException as error:
        failure = error.code if isinstance(error, TallystickError) else "error"
        raise
    finally:
        # The name of a checked call is that of somebody's tool or model.
        operation = kind if kind == "policy_check" else name
        micros = (time.perf_counter_ns() - started) // 1_000
        mode, outcome = ("", "done") if call is None else (call.mode, call.outcome)
        outcome = failure or outcome
        services.meter.note(f"{operation}.{mode}.{outcome}", micros)
        facts = {} if call is None else call.facts
        log_operation(
            operation,
            outcome=outcome,
            duration_ms=micros / 1_000,
            stage=mode or None,
            surface=actor.surface,
            scope_kind=scope.kind,
            request_id=actor.request_id,
            reason=failure,
            **facts,
        )
    if call is not None and call.step is not None and services.settings.record_costs:
        call.step.note_cost(meter.piece, meter.cost)


@contextmanager
def _observed(
    services: Services, actor: Actor, scope: Scope, kind: StepKind, name: str
) -> Iterator[ObservedCall]:
    recorder, call = services.recorder, partial(ObservedCall, services, actor, scope)
    with services.gate.journaling(actor):
        step, run = active_step.get(), active_run.get()
        if step is not None and step.is_open and step.run.context is recorder:
            yield call(step)
        elif run is None or not is_open(run, recorder):
            yield call(None)
        else:
            try:
                own_step = run.step(kind, name=name)
            except RunClosed as error:
                run.count_gap(actor.surface, error)
                yield call(None)
                return
            try:
                yield call(own_step)
            except BaseException as error:
                own_step.fail(error)
                raise
            own_step.end(wait=False)


def actor_in_history(recorder: RecorderContext, actor: Actor) -> Actor:
    """Return the actor as the history names it.

    Where the actor names no request and no session, they are the recorded run under way and its
    thread.
    """
    run = run_under_way(recorder)
    if run is None:
        return actor
    return actor.traced(
        request_id=actor.request_id or run.id,
        session_id=actor.session_id or thread_of(run),
    )


def run_under_way(recorder: RecorderContext) -> Run | None:
    """Return the open run of this recorder that code is in: that of the open step, else of the
    block.
    """
    step, run = active_step.get(), active_run.get()
    if step is not None and step.is_open:
        run = step.run
    return run if run is not None and is_open(run, recorder) else None


def thread_of(run: Run) -> str | None:
    """Return the thread of a runtime that a run belongs to, or None."""
    thread = run.record.metadata.get("thread_id")
    return thread if isinstance(thread, str) else None


def is_open(run: Run, recorder: RecorderContext) -> bool:
    """Return True if a run of this recorder is under way."""
    return run.context is recorder and run.record.ended_at is None
