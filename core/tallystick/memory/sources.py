"""Sources: the raw material behind memories, with everything that was drawn from it.

A source is immutable. What may be seen of it follows the memories drawn from it: the source of a
memory that is hidden is hidden too, and of a redacted one only the replacement may be read.
"""

from __future__ import annotations

from collections.abc import Sequence

from tallystick.access import readers_of, visible_docs
from tallystick.memory.context import MemoryContext
from tallystick.memory.correct import affected_by
from tallystick.records import (
    Actor,
    Affected,
    DerivedMemory,
    Freshness,
    ReasonCode,
    SourceInspection,
    SourceState,
)
from tallystick.storage import Connection
from tallystick.storage.rows import memories, parts, sources

_MOST = 280
"""Characters of a preview."""
_WHY: dict[SourceState, ReasonCode] = {
    "hidden": "hidden_source",
    "redacted": "redacted_source",
    "deleted": "source_deleted",
    "erased": "source_deleted",
}


def source(context: MemoryContext, actor: Actor, source_id: str) -> SourceInspection:
    """Return a source with its text, where a memory drawn from it is shown to `actor`. Raises
    NotFound for hidden and absent ones alike.
    """
    with context.store.database.read() as connection:
        row = context.visible_source(connection, actor, source_id, "read")
        inspection = inspect_source(connection, context, actor, row)
        body = parts.get(connection, row.scope_id, row.content_key)
    context.gate.log_read(actor, "source", [row.scope], results=1)
    if not inspection.shown or body is None:
        return inspection
    return inspection.model_copy(update={"text": body.decode("utf-8", "surrogatepass")})


def inspect_source(
    connection: Connection, context: MemoryContext, actor: Actor, row: sources.StoredSource
) -> SourceInspection:
    """Return everything about a source that `actor`, who may inspect its scope, may know, without
    its whole text.
    """
    record, now = row.record, context.store.clock.now()
    drawn = sources.memories_of(connection, record.id)
    decision = context.gate.decide(connection, actor, "read", row.scope)
    lifecycle = _lifecycle(record.lifecycle_state, drawn)
    unredacted = [stored for stored in drawn if stored.memory.state != "redacted"]
    shown = decision.allowed and bool(
        visible_docs(connection, context.gate, actor, unredacted, now)
    )
    inspectable = [
        stored
        for stored in drawn
        if context.gate.decide(connection, actor, "inspect", stored.memory.scope).allowed
    ]
    elsewhere = len(drawn) - len(inspectable)
    inspection = SourceInspection(
        id=record.id,
        scope=row.scope,
        kind="source",
        state=lifecycle,
        created_at=record.created_at,
        created_by=record.created_by,
        updated_at=max([record.created_at, *(stored.memory.updated_at for stored in drawn)]),
        shown=shown,
        access_reason=_WHY.get(lifecycle, decision.reason) if decision.allowed else decision.reason,
        decision=decision,
        readers=readers_of(connection, row.scope),
        affected=_collect_affected(connection, context, actor, inspectable, elsewhere=elsewhere),
        freshness=Freshness(current=lifecycle == "active", known_at=record.occurred_at),
        source_type=record.source_type,
        occurred_at=record.occurred_at,
        derived=tuple(
            DerivedMemory(
                id=stored.memory.id,
                scope=stored.memory.scope,
                kind=stored.memory.kind,
                state=stored.memory.state,
                version=stored.memory.version,
                updated_at=stored.memory.updated_at,
            )
            for stored in inspectable
        ),
    )
    if not shown:
        return inspection
    body = parts.get(connection, row.scope_id, row.content_key)
    text, _ = context.redactor.redact_text((body or b"").decode("utf-8", "replace"))
    return inspection.model_copy(
        update={
            "preview": text if len(text) <= _MOST else text[: _MOST - 1] + "…",
            "speaker": row.reference.author,
            "uri": record.uri,
            "title": record.title,
            "source_version": record.source_version,
            "content_hash": record.content_hash,
        }
    )


def _lifecycle(stored: SourceState, drawn: Sequence[memories.Stored]) -> SourceState:
    """Return the state of a source: erased once its bytes are, else that of the memory drawn from
    it that is most open.
    """
    states = {stored.memory.state for stored in drawn}
    if stored == "erased" or not states:
        return stored
    if states & {"active", "superseded", "duplicate"}:
        return "active"
    if "redacted" in states:
        return "redacted"
    return "hidden" if "hidden" in states else "deleted"


def _collect_affected(
    connection: Connection,
    context: MemoryContext,
    actor: Actor,
    drawn: Sequence[memories.Stored],
    *,
    elsewhere: int,
) -> Affected:
    """Return what stands on the memories drawn from a source: conclusions, copies and links."""
    around = [affected_by(connection, context, actor, stored) for stored in drawn]
    return Affected(
        derived=tuple(dict.fromkeys(name for affected in around for name in affected.derived)),
        shared=tuple(dict.fromkeys(name for affected in around for name in affected.shared)),
        links=tuple(dict.fromkeys(link for affected in around for link in affected.links)),
        elsewhere=elsewhere + sum(affected.elsewhere for affected in around),
    )
