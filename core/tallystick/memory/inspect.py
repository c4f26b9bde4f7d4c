"""Inspect: everything that an actor may know about one memory or source, and may do with it.

A memory that is hidden, forgotten or not the actor's to read gives its metadata alone: no nested
detail contains its text.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import get_args

from tallystick.access import is_expired, readers_of, replacements, visible_docs
from tallystick.errors import NotFound
from tallystick.memory.context import MemoryContext
from tallystick.memory.contradictions import contradictions
from tallystick.memory.correct import affected_by, applies_to
from tallystick.memory.history import entries
from tallystick.memory.memory_write import is_locked, is_pinned_for
from tallystick.memory.read import preview_of
from tallystick.memory.sources import inspect_source
from tallystick.memory.supersession import freshness_of, is_current
from tallystick.records import (
    AccessKind,
    Action,
    Actor,
    CorrectionKind,
    Freshness,
    Inspection,
    ReasonCode,
    Scope,
    SourceInspection,
)
from tallystick.storage import Connection
from tallystick.storage.rows import edges, journal, memories

_MOST = 280
"""Characters of a preview."""
_AUDITS = 10
_CLOSED: dict[str, ReasonCode] = {
    "hidden": "hidden_source",
    "deleted": "source_deleted",
    "redacted": "redacted_source",
}


def inspect(context: MemoryContext, actor: Actor, memory_id: str) -> Inspection:
    """Return everything about one memory, or one source, that `actor` may know. Raises NotFound for
    hidden scopes and absent ones alike.
    """
    with context.store.database.read() as connection:
        source = _source(connection, context, actor, memory_id)
        if source is not None:
            context.gate.log_read(actor, "inspect", [source.scope], results=1)
            return source
        stored = context.visible(connection, actor, memory_id, "inspect")
        memory, now = stored.memory, context.store.clock.now()
        decision = context.gate.decide(connection, actor, "read", memory.scope)
        readable = decision.allowed and stored.doc in visible_docs(
            connection, context.gate, actor, [stored], now
        )
        events = journal.about(connection, memory_id)
        inspection = Inspection(
            id=memory.id,
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
            access_reason=_CLOSED.get(memory.state, decision.reason)
            if decision.allowed
            else decision.reason,
            decision=decision,
            readers=readers_of(connection, memory.scope),
            sources=tuple(source.source_id for source in memory.sources),
            affected=affected_by(connection, context, actor, stored),
            # Reasons may quote a text: they are given only to actors who may read there.
            history=tuple(entries(connection, context, actor, stored, events))
            if decision.allowed
            else (),
            promoted=_list_copies(connection, context, actor, stored),
            contradicted_by=contradictions(connection, context, actor, [stored], now).get(
                memory.id, ()
            )
            if readable
            else (),
            audit_ids=tuple(event.audit_id for event in reversed(events[-_AUDITS:])),
            freshness=_freshness(connection, context, actor, stored, now),
            actions=_actions(connection, context, actor, stored, now),
        )
    context.gate.log_read(actor, "inspect", [memory.scope], results=1)
    if not readable:
        return inspection
    return inspection.model_copy(
        update={
            "preview": preview_of(context, memory, most=_MOST),
            "subject": memory.subject,
            "speaker": memory.speaker,
            "tags": memory.tags,
            "attributes": context.redactor.redact_json(memory.attributes)[0],
            "conversation": memory.conversation,
        }
    )


def _source(
    connection: Connection, context: MemoryContext, actor: Actor, record_id: str
) -> SourceInspection | None:
    """Return the inspection of a source with this id, if there is one that the actor may see."""
    try:
        row = context.visible_source(connection, actor, record_id, "inspect")
    except NotFound:
        return None
    return inspect_source(connection, context, actor, row)


def _may_read(
    context: MemoryContext, connection: Connection, actor: Actor
) -> Callable[[Scope], bool]:
    """Return the decision to read, by this snapshot."""
    return lambda scope: context.gate.decide(connection, actor, "read", scope).allowed


def _list_copies(
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
        current=memory.state in ("active", "redacted")
        and freshness_of(memory, is_history=not is_current(memory, now)) == "current",
        valid_from=memory.valid_from,
        valid_until=memory.valid_until,
        known_at=memory.freshness_ts,
        expires_at=memory.expires_at,
        replaced_by=heads[stored.doc].memory.id if stored.doc in heads else None,
        origins_changed=tuple(changed),
    )


def _actions(
    connection: Connection, context: MemoryContext, actor: Actor, stored: memories.Stored, now: int
) -> tuple[Action, ...]:
    memory = stored.memory
    keeps_pinned = is_pinned_for(connection, stored, actor)

    def action(name: str, operation: AccessKind, fits: bool, *, previewed: bool) -> Action:
        decision = context.gate.decide(connection, actor, operation, memory.scope)
        if not decision.allowed:
            return Action(name=name, allowed=False, reason=decision.reason, previewed=previewed)
        if is_locked(memory, actor, now) and name not in ("promote", "share"):
            return Action(name=name, allowed=False, reason="manual_override", previewed=previewed)
        if keeps_pinned and name not in ("promote", "share"):
            return Action(name=name, allowed=False, reason="pinned_memory", previewed=previewed)
        if memory.pinned and (name == "forget" or (name == "delete" and not actor.is_operator)):
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
