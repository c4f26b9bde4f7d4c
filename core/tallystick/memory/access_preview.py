"""Access preview: the memories that an actor could recall from some scopes, and why not the rest.
Changes nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

from tallystick.access import is_expired, replacements
from tallystick.memory.context import MemoryContext
from tallystick.policy import PolicyState, decide
from tallystick.records import AccessPreview, Actor, Scope, ScopePreview
from tallystick.storage import Connection, memories, scopes

__all__ = ["preview_access"]

_RECALLABLE = "active"
_RECALLED = ("active", "redacted", "superseded")
_EXPIRED = "expired"


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
