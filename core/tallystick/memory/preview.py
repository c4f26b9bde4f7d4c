"""Access preview: what an actor could recall from some scopes, and why not the rest. Changes nothing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from sqlalchemy import Connection

from tallystick.memory.room import MemoryRoom
from tallystick.policy import PolicyState, decide
from tallystick.records import AccessPreview, Actor, Scope, ScopePreview
from tallystick.storage import memories, scopes

__all__ = ["preview_access"]

_RECALLABLE = "active"
_EXPIRED = "expired"


def preview_access(room: MemoryRoom, asker: Actor, subject: Actor, wanted: Sequence[Scope]) -> AccessPreview:
    """What `subject` could recall from the scopes `wanted`, as far as `asker` may know.

    Of itself an actor learns what it may recall; of another, and of what is hidden or denied, only where it may
    inspect. Nothing is journaled or logged, no access is counted.
    """
    with room.store.database.read() as connection:
        state = room.gate.state(connection, wanted)
        return AccessPreview(
            user=subject.user,
            agent=subject.agent,
            scopes=tuple(_scope(connection, state, asker, subject, scope) for scope in dict.fromkeys(wanted)),
        )


def _scope(connection: Connection, state: PolicyState, asker: Actor, subject: Actor, scope: Scope) -> ScopePreview:
    decision = decide(subject, "read", scope, state)
    inspects = decide(asker, "inspect", scope, state).allowed
    if not inspects and not (asker == subject and decision.allowed):
        return ScopePreview(scope=scope, decision=decision)
    groups: dict[str, list[str]] = {}
    for memory_id, standing in _standings(connection, scope, state.now):
        groups.setdefault(standing, []).append(memory_id)
    ids = tuple(groups.pop(_RECALLABLE, ()))
    return ScopePreview(
        scope=scope,
        decision=decision,
        visible=ids if decision.allowed else (),
        denied=() if decision.allowed else ids,
        hidden=dict(sorted(Counter({name: len(found) for name, found in groups.items()}).items())) if inspects else {},
    )


def _standings(connection: Connection, scope: Scope, now: int) -> list[tuple[str, str]]:
    ids = [row.id for row in scopes.find(connection, [scope])]
    return [
        (row.id, _EXPIRED if row.state == _RECALLABLE and row.expires_at is not None and row.expires_at <= now
         else row.state)
        for row in memories.standings(connection, ids)
    ]  # fmt: skip
