"""The scopes that an operator may search for a text. An operator of one organization sees no other.

A search that counted beyond them would let anybody guess what others store.
"""

from __future__ import annotations

from tallystick.memory import MemoryContext
from tallystick.records import AccessKind, Actor, Scope
from tallystick.storage import Connection
from tallystick.storage.rows import scopes


class OperatorScopes:
    """The scopes in which an actor may do an operation, as one snapshot sees them."""

    def __init__(
        self, connection: Connection, context: MemoryContext, actor: Actor, operation: AccessKind
    ) -> None:
        self.whole = actor.is_operator and actor.organization is None
        """True if they are all of the tally."""
        self._connection, self._context, self._actor = connection, context, actor
        self._operation: AccessKind = operation
        self._allowed: dict[Scope, bool] = {}

    def covers(self, scope: Scope) -> bool:
        """Return True if a scope is one of them."""
        if scope not in self._allowed:
            decision = self._context.gate.decide(
                self._connection, self._actor, self._operation, scope
            )
            self._allowed[scope] = self.whole or decision.allowed
        return self._allowed[scope]

    def covers_number(self, scope_id: int) -> bool:
        """Return True if the scope with this number is one of them."""
        return self.covers(scopes.get_by_id(self._connection, scope_id).scope)

    def scopes(self) -> list[Scope]:
        """Return all of them that were written to."""
        return [scope for scope in scopes.all_scopes(self._connection) if self.covers(scope)]
