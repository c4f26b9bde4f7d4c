"""Audience: who may read a scope, and whether text that moves from one scope into another would
reach more readers than before.
"""

from __future__ import annotations

from collections.abc import Iterable

from tallystick.access.gate import Gate
from tallystick.errors import Denied
from tallystick.policy import ROLES
from tallystick.records import AccessDecision, AccessKind, Actor, MemorySpace, Scope, SpaceMember
from tallystick.storage import Connection
from tallystick.storage.rows import spaces

_EVERYBODY = "everyone:"


def readers_of(connection: Connection, scope: Scope) -> tuple[str, ...]:
    """Return the principals that may read in a scope, as `type:id`."""
    space = spaces.of_scopes(connection, [scope]).get(scope)
    members = _readers(space) if space is not None and space.state == "open" else ()
    return (*_natural_readers(scope), *(_name(member) for member in members))


def widens(connection: Connection, gate: Gate, actor: Actor, origin: Scope, into: Scope) -> bool:
    """Return True if somebody may read `into` who may not read `origin`, as far as is known.

    `actor` reads `origin` and writes `into`. Its own private scope belongs to the person that it
    acts for, so that text enters it only where that person may read it without the agent; its diary
    has no other reader. Of any other scope each principal that may read there, or will when a
    closed space is opened again, must be one of those that may read `origin`.
    """
    if origin == into:
        return False
    if into.kind == "private" and into.key == actor.user:
        person = actor.model_copy(update={"agent": None})
        return not gate.decide(connection, person, "read", origin).allowed
    if into.kind == "diary":
        return not gate.decide(connection, actor, "read", origin).allowed
    stored = spaces.of_scopes(connection, [origin, into])
    within = {*_natural_readers(origin)}
    if origin in stored and stored[origin].state == "open":
        now = gate.state(connection, ()).now
        within |= {
            _name(member)
            for member in _readers(stored[origin])
            if member.ends_at is None or now < member.ends_at
        }
    if _EVERYBODY in within or f"organization:{into.organization}" in within:
        return False
    readers = {*_natural_readers(into)}
    if into in stored:
        readers |= {_name(member) for member in _readers(stored[into])}
    return not readers <= within


def require_no_widening(
    connection: Connection,
    gate: Gate,
    actor: Actor,
    origins: Iterable[Scope],
    into: Scope,
    *,
    operation: AccessKind,
    remedy: str,
) -> None:
    """Raise Denied (`scope_crossing_requires_promotion`) where text of one of `origins` would get
    more readers in `into`; `remedy` tells what to do instead. Use within `gate.journaling`.
    """
    for origin in dict.fromkeys(origins):
        if widens(connection, gate, actor, origin, into):
            decision = AccessDecision(
                allowed=False,
                reason="scope_crossing_requires_promotion",
                operation=operation,
                scope=into,
                surface=actor.surface,
            )
            raise Denied(decision, f"{into} has readers that {origin} has not. {remedy}")


def _natural_readers(scope: Scope) -> tuple[str, ...]:
    """Return the readers that a scope has without a space."""
    if scope.kind == "private":
        return (f"user:{scope.key}",)
    if scope.kind == "project":
        return (f"project:{scope.key}",)
    if scope.diary_of is not None:
        diary = scope.diary_of
        return (f"agent:{diary.agent} of {diary.user} in {diary.project}",)
    return ()


def _readers(space: MemorySpace) -> list[SpaceMember]:
    return [
        member
        for member in space.members
        if "read" in ROLES[member.role] or "read" in member.permissions
    ]


def _name(member: SpaceMember) -> str:
    return f"{member.principal_type}:{member.principal_id}"
