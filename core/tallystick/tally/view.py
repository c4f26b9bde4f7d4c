"""A tally as one actor sees it: who acts, in which scope, and how the recorder observes a call.

A verb that is called inside an open step, or inside a recorded run, leaves an entry there, and the
journal of what it changes names that step as `correlation_id`. Outside of a run it records nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Self

from tallystick.access import full_id, widens
from tallystick.memory import WorkingMemory
from tallystick.recorder import (
    RecorderContext,
    Recordings,
    Run,
    Step,
    active_run,
    active_step,
)
from tallystick.records import (
    Actor,
    EntryKind,
    Limited,
    Occasion,
    Scope,
    StepKind,
    checked_arguments,
    microseconds,
)
from tallystick.storage.short_ids import IdKind
from tallystick.tally.services import Services


@checked_arguments
@dataclass(frozen=True)
class View:
    """An actor working in one scope of a tally. Thread-safe."""

    _services: Services = field(repr=False)
    actor: Actor
    scope: Scope

    def on(self, surface: str) -> Self:
        """Return the same view for calls that come through `surface`, such as `langgraph`."""
        return replace(self, actor=self.actor.on(surface))

    def traced(self, *, request_id: str | None = None, session_id: str | None = None) -> Self:
        """Return the same view for calls of a request or session; the history names both."""
        return replace(self, actor=self.actor.traced(request_id=request_id, session_id=session_id))

    def diary(self, project: str) -> Self:
        """Return the view of the diary of this actor's agent in `project`.

        Nobody else reads it. Its calls are refused without an agent.
        """
        actor = self.actor
        scope = Scope.diary(actor.user, actor.agent or "", project, actor.organization)
        return replace(self, scope=scope)

    @property
    def _traced_actor(self) -> Actor:
        """The actor as the history names it, with the recorded run under way and its thread."""
        return _actor_in_history(self._services.recorder, self.actor)

    @property
    def _recordings(self) -> Recordings:
        return Recordings(self._services.recorder, self.actor, counter=self._services.counter)

    def _observed(self, kind: StepKind, name: str) -> AbstractContextManager[ObservedCall]:
        """Observe one call of a verb for the recorder, and journal a refusal in it."""
        return _observe(self, kind, name)

    def _working_of_run(self, scopes: Sequence[Scope]) -> WorkingMemory | None:
        """Return the working memory of the open run, where it is in one of `scopes` and the run has
        no other readers.
        """
        services, step, run = self._services, active_step.get(), active_run.get()
        if step is not None and step.is_open:
            run = step.run
        if run is None or not _is_open(run, services.recorder) or self.scope not in scopes:
            return None
        if self.scope != run.scope:
            with services.store.database.read() as connection:
                if widens(connection, services.gate, self.actor, self.scope, run.scope):
                    return None
        return WorkingMemory(services.memory, self.actor, self.scope, run.id)

    def _wake_worker(self) -> None:
        """Wake the background after a write: `Background.wake`, without its detour at every one."""
        for event in self._services.background.wakes:
            if not event.is_set():
                event.set()

    def _full_id(self, kinds: tuple[IdKind, ...], text: str) -> str:
        """Return the id that `text` is a part of, among what this actor may see."""
        return full_id(self._services.store, self._services.gate, self.actor, kinds, text)

    def _moment(self, moment: Occasion | None, name: str, *, ahead: bool = False) -> int | None:
        """Return a moment in microseconds; with `ahead` a timedelta counts from now.

        Raises InvalidInput that names the argument.
        """
        now = self._services.store.clock.now() if ahead and moment is not None else None
        return microseconds(moment, self._services.zone, name=name, now=now)

    def _ago(self, moment: Occasion | None, name: str) -> int | None:
        """Same as `_moment`, where a timedelta counts back from now."""
        now = None if moment is None else self._services.store.clock.now()
        return microseconds(moment, self._services.zone, name=name, now=now, back=True)

    def _admit(self, access: Limited, *, count: int = 1) -> None:
        """Count accesses of this actor. Raises RateLimited beyond the tally's limit."""
        self._services.gate.admit(self.actor, access, self.scope, count=count)

    def _scopes(self, scopes: Sequence[str | Scope] | None) -> list[Scope]:
        return [self.scope] if scopes is None else [self.actor.home(scope) for scope in scopes]


class ObservedCall:
    """One verb under way, with the step that records it, if there is one."""

    __slots__ = ("_view", "step")

    def __init__(self, view: View, step: Step | None) -> None:
        self._view, self.step = view, step

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
        origins = [scope for scope in dict.fromkeys((self._view.scope, *scopes)) if scope != into]
        if origins:
            services, actor = self._view._services, self._view.actor
            with services.store.database.read() as connection:
                if any(
                    widens(connection, services.gate, actor, origin, into) for origin in origins
                ):
                    payload = None
        self.step.record(kind, payload, summary=summary)


@contextmanager
def _observe(view: View, kind: StepKind, name: str) -> Iterator[ObservedCall]:
    """Observe one call of a verb.

    Its step is the open one, else one of its own in the open run, else none. A refusal inside is
    journaled before it is raised; an error fails a step of its own.
    """
    recorder = view._services.recorder
    with view._services.gate.journaling(view.actor):
        step, run = active_step.get(), active_run.get()
        if step is not None and step.is_open and step.run.context is recorder:
            yield ObservedCall(view, step)
        elif run is None or not _is_open(run, recorder):
            yield ObservedCall(view, None)
        else:
            own_step = run.step(kind, name=name)
            try:
                yield ObservedCall(view, own_step)
            except BaseException as error:
                own_step.fail(error)
                raise
            own_step.end(wait=False)


def _actor_in_history(recorder: RecorderContext, actor: Actor) -> Actor:
    """Return the actor as the history names it.

    Where the actor names no request and no session, they are the recorded run under way and its
    thread.
    """
    step, run = active_step.get(), active_run.get()
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
