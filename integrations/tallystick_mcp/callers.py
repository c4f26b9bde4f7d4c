"""Callers: who calls a tool, and the scopes that this server leads to for them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from mcp.server.mcpserver import Context

from tallystick.adapters import Boundary
from tallystick.tally import BoundTally

__all__ = ["Caller", "Callers"]


@dataclass(frozen=True)
class Caller:
    """Who calls, and where they may reach."""

    bound: BoundTally
    """The view in the scope where this caller writes."""
    boundary: Boundary
    operations: frozenset[str] | None = None
    """The operations that the caller's credential is good for; None is all."""

    @property
    def name(self) -> str:
        """The actor, as every answer names them."""
        actor = self.bound.actor
        return actor.user if actor.agent is None else f"{actor.agent} for {actor.user}"

    def within(self, project: str | None) -> BoundTally:
        """Return the view in a project of the boundary; None is the view where the caller writes.
        Raises InvalidScope.
        """
        if project is None:
            return self.bound
        scope = project if ":" in project else f"project:{project}"
        return self.boundary.within(self.bound, scope)


Callers = Callable[[Context[Any, Any]], Caller]
"""Finds out who makes a call: the actor of the server, or that of the credential of the request."""
