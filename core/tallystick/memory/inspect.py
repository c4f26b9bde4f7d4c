"""Inspect: everything that an actor may know about one memory, and may do with it.

A memory that is hidden, forgotten or not the actor's to read gives its metadata alone: no nested
detail contains its text.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import get_args

from tallystick.access import is_expired, replacements, visible_docs
from tallystick.memory.change import is_locked
from tallystick.memory.context import MemoryContext
from tallystick.memory.correct import affected_by, applies_to
from tallystick.memory.history import entries
from tallystick.memory.read import preview_of
from tallystick.memory.supersession import is_current
from tallystick.policy import ROLES
from tallystick.records import (
    AccessKind,
    Action,
    Actor,
    CorrectionKind,
    Freshness,
    Inspection,
    Memory,
    ReasonCode,
    Scope,
)
from tallystick.storage import Connection, edges, journal, memories, spaces

__all__ = ["inspect"]

_MOST = 280
"""Characters of a preview."""
_AUDITS = 10
_CLOSED: dict[str, ReasonCode] = {
    "hidden": "hidden_source",
    "deleted": "source_deleted",
    "redacted": "redacted_source",
}


def inspect(context: MemoryContext, actor: Actor, memory_id: str) -> Inspection:
    """Return everything about one memory that `actor` may know. Raises NotFound for hidden scopes
    and absent ones alike.
    """
    with context.store.database.read() as connection:
        stored = context.visible(connection, actor, memory_id, "inspect")
        memory, now = stored.memory, context.store.clock.now()
        decision = context.gate.decide(connection, actor, "read", memory.scope)
        readable = decision.allowed and stored.doc in visible_docs(
            connection, context.gate, actor, [stored], now
        )
        events = journal.about(connection, memory_id)
        inspection = Inspection(
            memory_id=memory.id,
            scope=memory.scope,
            kind=memory.kind,
            state=memory.state,
            version=memory.version,
            created_at=memory.created_at,
            created_by=memory.created_by,
            updated_at=memory.updated_at,
            updated_by=memory.updated_by,
            pinned=memory.pinned,
            importance=memory.importance,
            confidence=memory.confidence,
            locked_until=memory.locked_until,
            position=memory.position,
            shown=readable
            and memory.state != "duplicate"
            and not is_expired(memory.expires_at, now),
            why=_CLOSED.get(memory.state, decision.reason) if decision.allowed else decision.reason,
            decision=decision,
            readers=_readers(connection, memory.scope),
            sources=tuple(source.source_id for source in memory.sources),
            affected=affected_by(connection, context, actor, stored),
            # Reasons may quote a text: they are given only to actors who may read there.
            history=tuple(entries(connection, context, actor, stored, events))
            if decision.allowed
            else (),
            promoted=_promoted(connection, context, actor, stored),
            audit_ids=tuple(event.audit_id for event in reversed(events[-_AUDITS:])),
            freshness=_freshness(connection, context, actor, stored, now),
            actions=_actions(connection, context, actor, memory, now),
        )
    context.gate.log_read(actor, "inspect", [memory.scope], results=1)
    if not readable:
        return inspection
    return inspection.model_copy(
        update={
            "preview": preview_of(context, memory, most=_MOST),
            "subject": memory.subject,
            "speaker": memory.who,
            "tags": memory.tags,
            "attributes": context.redactor.redact_json(memory.attributes)[0],
            "conversation": memory.conversation,
        }
    )


def _may_read(
    context: MemoryContext, connection: Connection, actor: Actor
) -> Callable[[Scope], bool]:
    """Return the decision to read, by this snapshot."""
    return lambda scope: context.gate.decide(connection, actor, "read", scope).allowed


def _readers(connection: Connection, scope: Scope) -> tuple[str, ...]:
    """Return the principals that may read in a scope."""
    readers: list[str] = []
    if scope.kind == "private":
        readers.append(f"user:{scope.key}")
    elif scope.diary_of is not None:
        diary = scope.diary_of
        readers.append(f"agent:{diary.agent} of {diary.user} in {diary.project}")
    elif scope.kind == "project":
        readers.append(f"project:{scope.key}")
    space = spaces.of_scopes(connection, [scope]).get(scope)
    if space is not None and space.state == "open":
        readers += [
            f"{member.principal_type}:{member.principal_id}"
            for member in space.members
            if "read" in ROLES[member.role] or "read" in member.permissions
        ]
    return tuple(readers)


def _promoted(
    connection: Connection, context: MemoryContext, actor: Actor, stored: memories.Stored
) -> tuple[str, ...]:
    copies = [
        edge.from_doc
        for edge in edges.of(connection, stored.doc)
        if edge.to_doc == stored.doc and edge.kind in ("SHARES", "DERIVED_FROM")
    ]
    return tuple(
        other.memory.id
        for other in memories.get_docs(connection, copies).values()
        if other.memory.scope != stored.memory.scope
        and context.gate.decide(connection, actor, "read", other.memory.scope).allowed
    )


def _freshness(
    connection: Connection, context: MemoryContext, actor: Actor, stored: memories.Stored, now: int
) -> Freshness:
    memory, may_read = stored.memory, _may_read(context, connection, actor)
    heads = (
        replacements(connection, [stored.doc], may_read, now)
        if memory.state == "superseded"
        else {}
    )
    origins = [
        edge.to_doc
        for edge in edges.of(connection, stored.doc)
        if edge.from_doc == stored.doc and edge.kind == "DERIVED_FROM"
    ]
    changed = [
        origin.memory.id
        for origin in memories.get_docs(connection, origins).values()
        if may_read(origin.memory.scope)
        and (origin.memory.state != "active" or origin.memory.corrected is not None)
    ]
    return Freshness(
        current=memory.state == "active" and is_current(memory, now) and not changed,
        valid_from=memory.valid_from,
        valid_until=memory.valid_until,
        known_at=memory.freshness_ts,
        expires_at=memory.expires_at,
        replaced_by=heads[stored.doc].memory.id if stored.doc in heads else None,
        origins_changed=tuple(changed),
    )


def _actions(
    connection: Connection, context: MemoryContext, actor: Actor, memory: Memory, now: int
) -> tuple[Action, ...]:
    def action(name: str, operation: AccessKind, fits: bool, *, previewed: bool) -> Action:
        decision = context.gate.decide(connection, actor, operation, memory.scope)
        if not decision.allowed:
            return Action(name=name, allowed=False, reason=decision.reason, previewed=previewed)
        if is_locked(memory, actor, now) and name not in ("promote", "share"):
            return Action(name=name, allowed=False, reason="manual_override", previewed=previewed)
        if name in ("forget", "delete") and memory.pinned and not actor.is_operator:
            return Action(name=name, allowed=False, reason="pinned_memory", previewed=previewed)
        return Action(
            name=name,
            allowed=fits,
            reason=decision.reason if fits else memory.state,
            previewed=previewed,
        )

    active = memory.state == "active"
    actions = [
        action("modify", "correct", active, previewed=False),
        action("forget", "delete", memory.state != "deleted", previewed=False),
        action("recover", "delete", memory.state == "deleted", previewed=False),
    ]
    for correction in get_args(CorrectionKind):
        deletes = correction == "delete" or (correction == "restore" and memory.state == "deleted")
        actions.append(
            action(
                correction,
                "delete" if deletes else "correct",
                applies_to(correction, memory),
                previewed=True,
            )
        )
    actions += [action(name, name, active, previewed=True) for name in ("promote", "share")]
    manages = (
        actor.is_operator and context.gate.decide(connection, actor, "manage", memory.scope).allowed
    )
    actions.append(
        Action(
            name="erase",
            allowed=manages,
            reason="allowed_operator" if manages else "missing_permission",
            previewed=True,
        )
    )
    return tuple(actions)
