"""Crossing: promote and share, the two ways out of a scope, each previewed and then applied with
the preview's token.

Both copy: no memory is in two scopes. A promoted copy lives on by itself; a shared one follows its
origin, and is forgotten with it.
"""

from __future__ import annotations

import json
from collections import Counter
from typing import Literal, NamedTuple

from tallystick.access import UNREADABLE, Confirmation, readers_of
from tallystick.errors import Denied, InvalidInput, StateConflict, VersionConflict
from tallystick.memory.change import SHARED, require_reason
from tallystick.memory.context import MemoryContext
from tallystick.memory.memory_write import MemoryWrite
from tallystick.memory.secrets import admit_fields
from tallystick.records import (
    AccessDecision,
    Actor,
    Crossing,
    CrossingReach,
    Json,
    Memory,
    ReasonCode,
    Scope,
    SourceHash,
    SourceRef,
    canonical_json,
)
from tallystick.storage import Connection
from tallystick.storage.engine.writes import Writes
from tallystick.storage.rows import edges, memories, occurrences, parts, scopes, spaces
from tallystick.storage.rows.idempotency import IdempotentCall

_NEEDS_SPACE = ("team", "organization", "shared", "public")


def cross(
    context: MemoryContext,
    actor: Actor,
    memory_id: str,
    into: Scope,
    operation: Literal["promote", "share"],
    *,
    reason: str,
    mode: Literal["preview", "apply"],
    confirm_token: str | None = None,
    if_version: int | None = None,
    idempotency_key: str | None = None,
    correlation_id: str | None = None,
) -> Crossing:
    """Preview the copy of a memory into another scope, or make it.

    The actor needs leave to cross out of its scope and to write in the other one. Raises
    InvalidInput, NotFound, Denied, VersionConflict, StateConflict or IdempotencyMismatch; then
    nothing changed.
    """
    require_reason(reason)
    request: Json = [operation, memory_id, str(into), reason]
    with context.store.database.read() as connection:
        scope = context.visible(connection, actor, memory_id, "read").scope
        call = IdempotentCall(
            scope,
            operation,
            idempotency_key if mode == "apply" else None,
            canonical_json([request, if_version, confirm_token]),
        )
        answered = call.read_answer(connection)
        if answered is not None:
            return Crossing.load(answered)
    now = context.store.clock.now()
    confirmation = Confirmation(context.gate, scope.secret, operation, actor)
    with context.gate.journaling(actor):
        with context.store.database.read() as connection:
            plan = _plan(connection, context, actor, memory_id, into, operation, if_version)
        plan = _admit_copy(context, plan)
        if mode == "preview":
            token, expires_at = confirmation.token(_preview(request, plan.crossing), now=now)
            return plan.crossing.model_copy(
                update={"confirm_token": token, "expires_at": expires_at}
            )
        if confirm_token is None:
            raise confirmation.refusal(plan.crossing.decisions[0])
        # Embedded before the transaction, which holds the one writer. The token binds the version
        # that was previewed, so that the text cannot be another one inside.
        vector = context.vector_for(plan.memory)

        def unit(tx: Connection) -> Crossing:
            context.visible(tx, actor, memory_id, "read")
            answered = call.read_answer(tx)
            if answered is not None:
                return Crossing.load(answered)
            # The version is that of the preview, so that what was replaced in it is still that.
            current = _plan(tx, context, actor, memory_id, into, operation, if_version)
            crossing = current.crossing.model_copy(update={"warnings": plan.crossing.warnings})
            current = _Plan(current.origin, crossing, plan.memory)
            write = MemoryWrite(tx, context, actor, context.store.clock.now(), correlation_id)
            confirmation.require(
                confirm_token,
                _preview(request, current.crossing),
                now=write.now,
                subject=memory_id,
            )
            result = _copy(write, current, reason, vector)
            call.keep(tx, result, at=write.now)
            return result

        return context.store.database.write_mostly(
            unit, name=f"apply.{operation}", writes=Writes.of(plan.origin.memory.scope, into)
        )


class _Plan(NamedTuple):
    """A crossing as it would be done now."""

    origin: memories.Stored
    crossing: Crossing
    memory: Memory
    """The origin as it may be stored in the other scope."""


def _preview(request: Json, plan: Crossing) -> Json:
    return [request, json.dumps(plan.dump(), sort_keys=True)]


def _plan(
    connection: Connection,
    context: MemoryContext,
    actor: Actor,
    memory_id: str,
    into: Scope,
    operation: Literal["promote", "share"],
    if_version: int | None,
) -> _Plan:
    origin = context.visible(connection, actor, memory_id, "read")
    memory = origin.memory
    leaving = context.gate.confirm_and_decide(connection, actor, operation, memory.scope)
    if into == memory.scope:
        raise InvalidInput(f"The memory stands in {into} already. Name another scope.")
    if into.kind in ("private", "diary"):
        raise _refusal(leaving, into, "unsupported_scope")
    space = spaces.of_scopes(connection, [into]).get(into)
    if space is None and into.kind in _NEEDS_SPACE:
        raise _refusal(leaving, into, "missing_memory_space")
    entering = context.gate.confirm_and_decide(connection, actor, "write", into)
    if if_version is not None and memory.version != if_version:
        raise VersionConflict(memory_id, expected=if_version, actual=memory.version)
    if memory.state != "active":
        raise StateConflict(
            memory_id, state=memory.state, reason="only an active memory can leave its scope"
        )
    crossing = Crossing(
        mode="preview",
        operation=operation,
        id=memory_id,
        version=memory.version,
        into=into,
        decisions=(leaving, entering),
        readers=tuple(sorted(readers_of(connection, into))),
        reach=_reach(connection, context, actor, origin, into),
    )
    return _Plan(origin, crossing, memory)


def _admit_copy(context: MemoryContext, plan: _Plan) -> _Plan:
    """Return a crossing whose copy has no secrets, as `secrets_in_memory` says: a copy is a new way
    into memory, whatever the setting was when the origin came. Raises InvalidInput.
    """
    shared = {name: getattr(plan.memory, name) for name in SHARED}
    admitted = admit_fields(context, plan.crossing.into, shared)
    return plan._replace(
        memory=plan.memory.model_copy(update=dict(admitted.fields)),
        crossing=plan.crossing.model_copy(update={"warnings": admitted.warnings}),
    )


def _reach(
    connection: Connection,
    context: MemoryContext,
    actor: Actor,
    origin: memories.Stored,
    into: Scope,
) -> CrossingReach:
    """Count the memory, its sources and the memories that it is linked to, by what the readers of
    `into` will see of them.
    """
    memory = origin.memory
    linked = {
        edge.from_doc if edge.to_doc == origin.doc else edge.to_doc
        for edge in edges.of(connection, origin.doc)
    }
    counts = Counter({"redacted" if memory.redacted else "visible": 1})
    counts["denied"] += len(memory.sources)
    for other in memories.get_docs(connection, linked).values():
        readable = context.gate.decide(connection, actor, "read", other.memory.scope).allowed
        if readable and other.memory.state in UNREADABLE:
            counts["hidden"] += 1
        elif readable and (other.memory.state == "redacted" or other.memory.redacted):
            counts["redacted"] += 1
        else:
            counts["visible" if other.memory.scope == into else "denied"] += 1
    return CrossingReach.load(dict(counts))


def _refusal(decision: AccessDecision, into: Scope, reason: ReasonCode) -> Denied:
    return Denied(decision.model_copy(update={"allowed": False, "reason": reason, "scope": into}))


def _copy(write: MemoryWrite, plan: _Plan, reason: str, vector: bytes | None) -> Crossing:
    """Copy the memory into the other scope, inside the open transaction."""
    origin, crossing, memory = plan
    tx, context = write.tx, write.context
    target = scopes.ensure(tx, crossing.into)
    key = parts.put(tx, target, memory.content.encode("utf-8", "surrogatepass"), at=write.now)
    same = occurrences.find_statement(tx, target.id, memory.kind, key)
    if same is not None:
        raise StateConflict(
            memory.id,
            state=memory.state,
            reason=f"memory {same[1]} says the same in {crossing.into} already",
        )
    source_id = write.add_source(
        target,
        SourceRef(source_type="memory", author=write.actor.user),
        key,
        occurred_at=memory.occurred_at,
    )
    copied = Memory(
        id=context.store.ids.new(),
        scope=crossing.into,
        sources=(SourceHash(source_id=source_id, content_hash=key),),
        occurred_at=memory.occurred_at,
        created_at=write.now,
        updated_at=write.now,
        created_by=write.actor.user,
        embedding_model=context.embedder.fingerprint if vector is not None else None,
        **{name: getattr(memory, name) for name in SHARED},
    )
    doc, committed = memories.insert_memory(tx, copied, scope=target, content_key=key)
    memories.link_source(tx, doc, source_id, ordinal=0)
    edges.add(
        tx,
        edge_id=context.store.ids.new(),
        kind="SHARES" if crossing.operation == "share" else "DERIVED_FROM",
        scope_id=origin.scope_id,
        from_doc=doc,
        to_doc=origin.doc,
        at=write.now,
        reason=reason,
    )
    details = {
        "version": 1,
        "kind": copied.kind,
        "commitment": committed,
        "source": source_id,
        "by": crossing.operation,
    }
    write.journal_event(crossing.into, "memory.add", copied.id, details, reason=reason)
    write.show(copied, doc=doc, scope_id=target.id, vector=vector)
    departure = {"version": memory.version, "into": str(crossing.into), "copy": copied.id}
    audit_id = write.journal_event(
        memory.scope, f"memory.{crossing.operation}", memory.id, departure, reason=reason
    )
    return crossing.model_copy(update={"mode": "apply", "copy_id": copied.id, "audit_id": audit_id})
