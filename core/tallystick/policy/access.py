"""Who may do what where: the one place where an access decision is made.

Private scopes belong to their principal, project scopes to the members that the actor's credential names.
Team, organization, shared and public scopes stay closed until a space opens them; delegated ones need a live
delegation. Nothing here widens a scope.
"""

from __future__ import annotations

from tallystick.records import AccessDecision, Actor, Operation, ReasonCode, Scope

__all__ = ["decide", "readable_scopes"]


def decide(actor: Actor | None, operation: Operation, scope: Scope) -> AccessDecision:
    """Whether `actor` may do `operation` in `scope`, with the reason code either way."""
    if actor is None:
        return AccessDecision(
            allowed=False, reason="missing_actor", operation=operation, scope=scope, surface="unknown"
        )
    refusal = _refusal(actor, scope)
    if refusal is not None and operation == "inspect" and _inspects(actor, scope):
        return AccessDecision(
            allowed=True, reason="allowed_operator", operation=operation, scope=scope, surface=actor.surface
        )
    return AccessDecision(
        allowed=refusal is None,
        reason=refusal or ("allowed_private" if scope.kind == "private" else "allowed_project"),
        operation=operation,
        scope=scope,
        surface=actor.surface,
    )


def readable_scopes(actor: Actor, home: Scope) -> tuple[Scope, ...]:
    """The scopes that a read from `home` covers, home first: home alone, since nothing else is open to it.

    Empty when `actor` may not read `home`.
    """
    return (home,) if decide(actor, "read", home).allowed else ()


def _refusal(actor: Actor, scope: Scope) -> ReasonCode | None:
    if scope.organization != actor.organization:
        return "missing_organization" if actor.organization is None else "unverified_membership"
    if scope.kind == "private":
        return None if scope.key == actor.user else "principal_mismatch"
    if scope.kind == "project":
        return None if scope.key in actor.projects else "unverified_membership"
    if scope.kind == "delegated":
        return "delegation_required"
    return "scope_disabled"


def _inspects(actor: Actor, scope: Scope) -> bool:
    # An operator looks into what was recorded anywhere in the organization, or, without one, in the whole tally.
    return actor.is_operator and actor.organization in (None, scope.organization)
