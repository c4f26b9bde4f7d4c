"""Binder: the actor of a call of a runtime, and the view of the tally that acts as this actor."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, NamedTuple, TypeAlias, TypeVar

from tallystick.recorder import active_run
from tallystick.records import Actor, Scope
from tallystick.tally import BoundTally, Tally
from tallystick.tally.services import services_of

__all__ = ["ActorSource", "Binder"]

C = TypeVar("C")
"""The context that a runtime gives with a call."""

ActorSource: TypeAlias = Actor | Callable[[C], Actor | None]
"""The Actor of every call, or a function from the runtime's context of a call to its Actor."""


class _LastView(NamedTuple):
    """The view of the last call: most calls are those of one conversation."""

    actor: Actor | None
    session: str | None
    view: BoundTally


class Binder(Generic[C]):
    """Binds each call to its actor: one Actor, the Actor in the runtime's context, or the owner."""

    def __init__(
        self,
        tally: Tally | BoundTally,
        *,
        surface: str,
        actor: ActorSource[C] | None = None,
        scope: str | Scope | None = None,
        session: Callable[[C], str | None] = lambda context: None,
    ) -> None:
        """`session` reads the runtime's own session, thread or conversation from a context."""
        self._session = session
        self._tally = tally.tally if isinstance(tally, BoundTally) else tally
        self._default = tally.actor if isinstance(tally, BoundTally) else None
        self._scope = (
            scope if scope is not None or not isinstance(tally, BoundTally) else tally.scope
        )
        self._actor = actor
        self._surface = surface
        self._last: _LastView | None = None

    @property
    def tally(self) -> Tally:
        """The tally behind the adapter."""
        return self._tally

    def bound(self, context: C | None = None) -> BoundTally:
        """Return the view for one call. Calls without a context act as the bound actor.

        Raises Denied.
        """
        actor = self._actor
        if actor is not None and not isinstance(actor, Actor):
            actor = actor(context) if context is not None else None
        session = None if context is None else self._session(context)
        last = self._last
        if last is None or last.actor is not actor or last.session != session:
            view = self._tally.bind(actor or self._default, self._scope, session_id=session)
            last = self._last = _LastView(actor, session, view.on(self._surface))
        return last.view

    def current_run_id(self) -> str | None:
        """Return the id of the run whose block this code is in, if this tally records it."""
        run = active_run.get()
        if run is None or run.context is not services_of(self._tally).recorder:
            return None
        return run.id
