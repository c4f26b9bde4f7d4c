"""The outbound log as somebody may read it: an operator all of it, others that of their scope."""

from __future__ import annotations

from tallystick.errors import NotFound
from tallystick.memory import MemoryContext
from tallystick.records import Actor, OutboundCall, Scope
from tallystick.storage.rows import outbound_calls
from tallystick.upkeep.operator_scopes import OperatorScopes


def list_outbound_calls(
    context: MemoryContext,
    actor: Actor,
    scope: Scope,
    *,
    purpose: str | None,
    limit: int,
    before: str | None,
) -> list[OutboundCall]:
    """Return calls of models that the tally itself made, newest first: for an operator of every
    scope, else of `scope`. Raises Denied, and NotFound for an unknown `before`.
    """
    with context.store.database.read() as connection:
        everywhere = OperatorScopes(connection, context, actor, "read").whole
    if not everywhere:
        context.gate.require(actor, "read", scope)
    with context.store.database.read() as connection:
        last = None if before is None else outbound_calls.find(connection, before)
        if before is not None and (last is None or not (everywhere or last.scope == scope)):
            raise NotFound(f"There is no outbound call {before!a} that {actor.user} may see.")
        return outbound_calls.list_calls(
            connection,
            scope=None if everywhere else scope,
            purpose=purpose,
            before=last,
            limit=limit,
        )
