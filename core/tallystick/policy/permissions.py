"""Access decisions: the one place where they are made, and the table of roles that they read.

A private scope belongs to its principal, a diary to one agent of one principal in one project, a
project scope to the members that the actor's credential names. All else is open only through a
space, to its members. Nothing here widens a scope.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Literal, NamedTuple, get_args

from tallystick.records import (
    AccessDecision,
    AccessKind,
    Actor,
    JsonObject,
    MemorySpace,
    ReasonCode,
    Scope,
    SpaceMember,
)

AccessRole = Literal[
    "principal",
    "diarist",
    "project_member",
    "reader",
    "writer",
    "maintainer",
    "steward",
    "operator",
]

OPERATIONS: tuple[AccessKind, ...] = get_args(AccessKind)

_READER = frozenset[AccessKind]({"read", "inspect"})
_WRITER = _READER | frozenset[AccessKind]({"write", "record", "reflect", "correct"})
_MAINTAINER = _WRITER | frozenset[AccessKind]({"delete", "export"})
_ALL_OF_MEMORY = _MAINTAINER | frozenset[AccessKind]({"share", "promote"})

ROLES: Mapping[AccessRole, frozenset[AccessKind]] = MappingProxyType(
    {
        "principal": _ALL_OF_MEMORY,
        "diarist": _MAINTAINER,
        "project_member": _MAINTAINER,
        "reader": _READER,
        "writer": _WRITER,
        "maintainer": _MAINTAINER,
        "steward": _ALL_OF_MEMORY | frozenset[AccessKind]({"manage"}),
        "operator": frozenset[AccessKind]({"inspect", "manage"}),
    }
)
"""The one table of role by operation; docs/reference/policy.md repeats it, as a test says."""

MUTATIONS = frozenset[AccessKind]({"write", "reflect", "share", "promote", "correct", "delete"})
"""Operations that change memory: an operator may suspend them. Runs and checkpoints are recorded
all the same.
"""

_CROSSING = frozenset[AccessKind]({"share", "promote"})
_WHILE_CLOSED = frozenset[AccessKind]({"inspect", "manage"})


@dataclass(frozen=True)
class PolicyState:
    """The stored facts that a decision depends on. Without them, every scope that needs a space is
    closed.
    """

    spaces: Mapping[Scope, MemorySpace] = field(default_factory=lambda: MappingProxyType({}))
    now: int = 0
    """Microseconds UTC, for memberships that end."""
    frozen: bool = False
    """True if an operator has suspended every change of memory."""
    users_named: bool = False
    """True once a runtime has named a user other than the owner: nobody acts as the owner by
    accident then.
    """


_NOTHING_STORED = PolicyState()


@dataclass(frozen=True)
class _Standing:
    """The roles of an actor in a scope, or the reason why it has none."""

    reason: ReasonCode
    roles: frozenset[AccessRole] = frozenset()
    permissions: frozenset[AccessKind] = frozenset()

    def allows(self, operation: AccessKind) -> bool:
        if operation in self.permissions:
            return True
        # Written out: this runs in every read and write.
        for role in self.roles:  # noqa: SIM110
            if operation in ROLES[role]:
                return True
        return False


_PRINCIPAL = _Standing("allowed_private", frozenset({"principal"}))
_SOMEBODY_ELSE = _Standing("principal_mismatch")


def decide(
    actor: Actor | None, operation: AccessKind, scope: Scope, state: PolicyState = _NOTHING_STORED
) -> AccessDecision:
    """Decide if `actor` may do `operation` in `scope`, with the reason code either way. Pure."""
    if actor is None:
        return AccessDecision(
            allowed=False,
            reason="missing_actor",
            operation=operation,
            scope=scope,
            surface="unknown",
        )
    ruling = rule_on(actor, operation, scope, state)
    return AccessDecision(
        allowed=ruling.allowed,
        reason=ruling.reason,
        operation=operation,
        scope=scope,
        surface=actor.surface,
    )


class Ruling(NamedTuple):
    """The answer of policy, without the record of the decision."""

    allowed: bool
    reason: ReasonCode


def rule_on(actor: Actor, operation: AccessKind, scope: Scope, state: PolicyState) -> Ruling:
    """Return the ruling of `decide` without its record: for checks that run in every write."""
    if actor.assumed and state.users_named:
        return Ruling(False, "missing_actor")
    if actor.credential is not None and not actor.credential.covers(operation, scope):
        return Ruling(False, "outside_credential")
    allowed, reason = _rule_on(actor, operation, scope, state)
    if allowed and state.frozen and operation in MUTATIONS:
        return Ruling(False, "mutations_frozen")
    return Ruling(allowed, reason)


def _rule_on(
    actor: Actor, operation: AccessKind, scope: Scope, state: PolicyState
) -> tuple[bool, ReasonCode]:
    # A lookup hashes the scope, which costs more than the rest where there are no spaces.
    space = state.spaces.get(scope) if state.spaces else None
    standing = _standing(actor, scope, space, state.now)
    allowed = standing.allows(operation)
    if operation == "manage" and actor.agent is not None:
        allowed = False
    if space is not None and space.state == "closed" and operation not in _WHILE_CLOSED:
        # Whoever does not belong here does not learn that it was closed.
        return False, "scope_disabled" if standing.roles or _is_closed_by_default(
            scope
        ) else standing.reason
    if allowed:
        return True, standing.reason
    if operation in ROLES["operator"] and _oversees(actor, scope):
        return True, "allowed_operator"
    if not standing.roles:
        return False, standing.reason
    if operation in _CROSSING:
        return False, "scope_crossing_requires_promotion"
    return False, "missing_permission"


def _standing(actor: Actor, scope: Scope, space: MemorySpace | None, now: int) -> _Standing:
    if scope.organization != actor.organization:
        return _Standing(
            "missing_organization" if actor.organization is None else "unverified_membership"
        )
    match scope.kind:
        case "private":
            return _PRINCIPAL if scope.key == actor.user else _SOMEBODY_ELSE
        case "diary":
            return _in_diary(actor, scope)
        case "project":
            return _in_project(actor, scope, space, now)
        case "delegated":
            return _in_delegated(actor, scope, space, now)
        case _:
            if space is None:
                return _Standing("scope_disabled")
            return _as_member(
                actor, space, now, absent="unverified_membership", ended="unverified_membership"
            )


def _in_diary(actor: Actor, scope: Scope) -> _Standing:
    if actor.agent is None:
        return _Standing("agent_identity_required")
    diary = scope.diary_of
    if diary is None:
        return _Standing("missing_scope_key")
    if (diary.user, diary.agent) != (actor.user, actor.agent):
        return _Standing("principal_mismatch")
    if not diary.project:
        return _Standing("missing_project_id")
    if diary.project not in actor.projects:
        return _Standing("unverified_membership")
    return _Standing("allowed_diary", frozenset({"diarist"}))


def _in_project(actor: Actor, scope: Scope, space: MemorySpace | None, now: int) -> _Standing:
    stored = (
        None
        if space is None
        else _as_member(
            actor, space, now, absent="unverified_membership", ended="unverified_membership"
        )
    )
    if scope.key not in actor.projects:
        return stored or _Standing("unverified_membership")
    more = stored if stored is not None and stored.roles else _Standing("allowed_project")
    return _Standing(
        "allowed_project", frozenset[AccessRole]({*more.roles, "project_member"}), more.permissions
    )


def _in_delegated(actor: Actor, scope: Scope, space: MemorySpace | None, now: int) -> _Standing:
    if space is None:
        return _Standing("delegation_required")
    if actor.agent is None and any(
        member.role == "steward" and _names(member, actor) and _lives(member, now)
        for member in space.members
    ):
        return _as_member(
            actor, space, now, absent="delegation_required", ended="delegation_expired"
        )
    if scope.key not in actor.delegations:
        return _Standing("delegation_required")
    if actor.agent is None:
        return _Standing("agent_identity_required")
    # The delegator's own membership does not open the scope to each of his agents: an agent is
    # named itself.
    agents = [member for member in space.members if member.principal_type == "agent"]
    agents_only = space.model_copy(update={"members": tuple(agents)})
    return _as_member(
        actor, agents_only, now, absent="delegation_required", ended="delegation_expired"
    )


def _as_member(
    actor: Actor, space: MemorySpace, now: int, *, absent: ReasonCode, ended: ReasonCode
) -> _Standing:
    named = [member for member in space.members if _names(member, actor)]
    living = [member for member in named if _lives(member, now)]
    if not living:
        return _Standing(ended if named else absent)
    permissions: frozenset[AccessKind] = frozenset(
        operation for member in living for operation in member.permissions
    )
    roles: set[AccessRole] = {member.role for member in living}
    return _Standing("allowed_member", frozenset(roles), permissions)


def _names(member: SpaceMember, actor: Actor) -> bool:
    match member.principal_type:
        case "user":
            return member.principal_id == actor.user
        case "agent":
            return member.principal_id == actor.agent
        case "project":
            return member.principal_id in actor.projects
        case "organization":
            return member.principal_id == actor.organization
        case "everyone":
            return True


def _lives(member: SpaceMember, now: int) -> bool:
    return member.ends_at is None or now < member.ends_at


def _is_closed_by_default(scope: Scope) -> bool:
    return scope.kind in ("team", "organization", "shared", "public")


def _oversees(actor: Actor, scope: Scope) -> bool:
    # An operator looks into what was recorded anywhere in the organization, or, without one, in the
    # whole tally.
    return actor.is_operator and actor.organization in (None, scope.organization)


def is_local_only(attributes: JsonObject) -> bool:
    """Return True if a text stays here: no remote embedder, reranker or learner is
    given it.
    """
    return attributes.get("local_only") is True or attributes.get("sensitivity") in (
        "restricted",
        "secret",
    )
