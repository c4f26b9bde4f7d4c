"""Access preview: the memories that an actor could recall from some scopes, and why not the rest.
Changes nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import get_args

from tallystick.access import is_expired, replacements
from tallystick.errors import NotFound
from tallystick.memory.context import MemoryContext
from tallystick.policy import PolicyState, decide
from tallystick.records import (
    AccessKind,
    AccessPreview,
    Actor,
    MemberPreview,
    MemorySpace,
    Scope,
    ScopePreview,
    SpaceMember,
)
from tallystick.storage import Connection
from tallystick.storage.rows import memories, scopes

_RECALLABLE = "active"
_RECALLED = ("active", "redacted", "superseded")
_EXPIRED = "expired"
_ANYBODY = "anybody"
"""Who stands for whoever is of a project, of an organization, or served by an agent."""


def preview_access(
    context: MemoryContext, asker: Actor, subject: Actor, scope_list: Sequence[Scope]
) -> AccessPreview:
    """Return what `subject` could recall from the scopes `scope_list`, as far as `asker` may know.

    Of itself an actor learns what it may recall; of another, and of what is hidden or denied, only
    where it may inspect. Nothing is journaled or logged, no access is counted.
    """
    with context.store.database.read() as connection:
        state = context.gate.state(connection, scope_list)
        return AccessPreview(
            user=subject.user,
            agent=subject.agent,
            scopes=tuple(
                _scope(connection, context, state, asker, subject, scope)
                for scope in dict.fromkeys(scope_list)
            ),
        )


def preview_member(
    context: MemoryContext, asker: Actor, scope: Scope, member: SpaceMember
) -> MemberPreview:
    """Return what `member` could do and recall in `scope` as a member of its space, and what it can
    recall there now.

    A principal that is a member already is looked at in its new role; a scope without a space as if
    it was opened with this member. A closed space stays closed. Raises NotFound alike where there
    is no such scope and where `asker` may not inspect it, and InvalidRecord for a scope that takes
    no members. Nothing is journaled or logged.
    """
    subject = _subject(member, scope)
    with context.store.database.read() as connection:
        now = context.gate.state(connection, [scope])
        if not decide(asker, "inspect", scope, now).allowed:
            raise NotFound(f"There is no space {scope} that {asker.user} may see.")
        space = _with_member(now.spaces.get(scope), scope, member)
        then = replace(now, spaces={**now.spaces, scope: space})
        return MemberPreview(
            member=member,
            operations=tuple(
                operation
                for operation in get_args(AccessKind)
                if decide(subject, operation, scope, then).allowed
            ),
            before=_scope(connection, context, now, asker, subject, scope),
            after=_scope(connection, context, then, asker, subject, scope),
        )


def _with_member(space: MemorySpace | None, scope: Scope, member: SpaceMember) -> MemorySpace:
    if space is None:
        space = MemorySpace.load(
            {
                "id": "preview",
                "scope": scope,
                "name": str(scope),
                "created_at": 0,
                "created_by": "preview",
                "updated_at": 0,
                "updated_by": "preview",
            }
        )
    named = (member.principal_type, member.principal_id)
    others = [each for each in space.members if (each.principal_type, each.principal_id) != named]
    return space.replace(members=(*others, member))


def _subject(member: SpaceMember, scope: Scope) -> Actor:
    """Return an actor who has of `member` what makes it a member, and nothing else."""
    named: dict[str, object] = {"user": _ANYBODY, "organization": scope.organization}
    match member.principal_type:
        case "user":
            named["user"] = member.principal_id
        case "agent":
            named["agent"] = member.principal_id
        case "project":
            named["projects"] = {member.principal_id}
        case "organization":
            named["organization"] = member.principal_id
        case "everyone":
            pass
    return Actor.load(named)


def _scope(
    connection: Connection,
    context: MemoryContext,
    state: PolicyState,
    asker: Actor,
    subject: Actor,
    scope: Scope,
) -> ScopePreview:
    decision = decide(subject, "read", scope, state)
    inspects = decide(asker, "inspect", scope, state).allowed
    if not inspects and not (asker.same_as(subject) and decision.allowed):
        return ScopePreview(scope=scope, decision=decision)
    groups: dict[str, list[str]] = {}

    def may_read(other: Scope) -> bool:
        if other == scope:
            return decision.allowed
        return context.gate.decide(connection, subject, "read", other).allowed

    for memory_id, label in _labels(connection, scope, state.now, may_read):
        groups.setdefault(label, []).append(memory_id)
    ids = tuple(groups.pop(_RECALLABLE, ()))
    return ScopePreview(
        scope=scope,
        decision=decision,
        visible=ids if decision.allowed else (),
        denied=() if decision.allowed else ids,
        hidden=dict(sorted(Counter({name: len(group) for name, group in groups.items()}).items()))
        if inspects
        else {},
    )


def _labels(
    connection: Connection, scope: Scope, now: int, may_read: Callable[[Scope], bool]
) -> list[tuple[str, str]]:
    rows = memories.statuses(connection, [row.id for row in scopes.find(connection, [scope])])
    # A superseded memory is recalled only where its replacement is.
    heads = replacements(
        connection, [row.doc for row in rows if row.state == "superseded"], may_read, now
    )
    labels = []
    for row in rows:
        label = row.state
        if row.state in _RECALLED and is_expired(row.expires_at, now):
            label = _EXPIRED
        elif row.state in _RECALLED and (row.state != "superseded" or row.doc in heads):
            label = _RECALLABLE
        labels.append((row.id, label))
    return labels
