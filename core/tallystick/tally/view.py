"""A tally as one actor sees it: who acts, in which scope, and how a call is observed."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from typing import Self

from tallystick.recorder import Recordings
from tallystick.records import Actor, Limited, Scope, StepKind
from tallystick.tally.observed import ObservedCall, observed, traced_actor
from tallystick.tally.services import Services

__all__ = ["View"]


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
        return traced_actor(self._services.recorder, self.actor)

    @property
    def _recordings(self) -> Recordings:
        return Recordings(self._services.recorder, self.actor, counter=self._services.counter)

    def _observed(self, kind: StepKind, name: str) -> AbstractContextManager[ObservedCall]:
        """Observe one call of a verb for the recorder, and journal a refusal in it."""
        services = self._services
        return observed(services.gate, services.recorder, self.actor, kind, name)

    def _admit(self, access: Limited) -> None:
        """Count an access of this actor. Raises RateLimited beyond the tally's limit."""
        self._services.gate.admit(self.actor, access, self.scope)

    def _scopes(self, scopes: Sequence[str | Scope] | None) -> list[Scope]:
        return [self.scope] if scopes is None else [self.actor.home(scope) for scope in scopes]
