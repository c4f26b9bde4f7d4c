"""Reach: of which scopes somebody who looks for a text is told. An operator of one organization
sees no other.

A search that counted beyond that would let anybody guess what others keep.
"""

from __future__ import annotations

from tallystick.memory import MemoryContext
from tallystick.records import AccessKind, Actor, Scope
from tallystick.storage import Connection, scopes

__all__ = ["Reach"]


class Reach:
    """The scopes in which an actor may do an operation, as one snapshot sees them."""

    def __init__(
        self, connection: Connection, context: MemoryContext, actor: Actor, operation: AccessKind
    ) -> None:
        self.whole = actor.is_operator and actor.organization is None
        """Whether it is all of the tally."""
        self._connection, self._context, self._actor = connection, context, actor
        self._operation: AccessKind = operation
        self._known: dict[Scope, bool] = {}

    def covers(self, scope: Scope) -> bool:
        """Whether a scope is within reach."""
        if scope not in self._known:
            decision = self._context.gate.decide(
                self._connection, self._actor, self._operation, scope
            )
            self._known[scope] = self.whole or decision.allowed
        return self._known[scope]

    def covers_number(self, scope_id: int) -> bool:
        """Same as `covers`, for a scope by its number."""
        return self.covers(scopes.named(self._connection, scope_id).scope)

    def scopes(self) -> list[Scope]:
        """Every scope within reach that was written to."""
        return [scope for scope in scopes.all_scopes(self._connection) if self.covers(scope)]
