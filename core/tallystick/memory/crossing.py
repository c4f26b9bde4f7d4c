"""Crossing: promote and share, the two ways out of a scope, each previewed and then done with the
preview's token.

Both copy: bodies never stand in two scopes at once. A promoted copy goes on by itself; a shared one
follows its origin, and goes when that goes.
"""

from __future__ import annotations

import json
from typing import Literal

from tallystick.access import fits, mint
from tallystick.errors import Denied, InvalidInput, StateConflict, VersionConflict
from tallystick.memory.change import SHARED, require_mode, require_reason
from tallystick.memory.context import MemoryContext, searchable
from tallystick.memory.correct import TOKEN_LIFE_US
from tallystick.memory.memory_write import MemoryWrite
from tallystick.records import (
    AccessDecision,
    Actor,
    Crossing,
    Json,
    Memory,
    ReasonCode,
    Scope,
    SourceHash,
    SourceRef,
    canonical_json,
    part_key,
)
from tallystick.storage import Connection, edges, idempotency, memories, parts, scopes, spaces

__all__ = ["cross"]

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
    """Preview the way of a memory into another scope, or take it.

    It needs leave to cross out of its scope and to write in the other one. Raises InvalidInput,
    NotFound, Denied, VersionConflict, StateConflict or IdempotencyMismatch; then nothing changed.
    """
    require_reason(reason)
    require_mode(mode)
    asked: Json = [operation, memory_id, str(into), reason]
    with context.store.database.read() as connection:
        origin = context.visible(connection, actor, memory_id, "read")
        row = origin.scope
        request = part_key(row.secret, canonical_json([asked, if_version, confirm_token]))
        if mode == "apply" and idempotency_key is not None:
            answered = idempotency.first_answer(
                connection, row.id, operation, idempotency_key, request
            )
            if answered is not None:
                return Crossing.load(answered)
    now = context.store.clock.now()
    with context.gate.journaling(actor):
        with context.store.database.read() as connection:
            origin, plan = _plan(connection, context, actor, memory_id, into, operation, if_version)
        if mode == "preview":
            until = now + TOKEN_LIFE_US
            token = mint(row.secret, operation, actor, _bound(asked, plan), expires_at=until)
            return plan.model_copy(update={"confirm_token": token, "expires_at": until})
        if confirm_token is None:
            raise Denied(
                plan.decisions[0].model_copy(
                    update={"allowed": False, "reason": "confirm_token_required"}
                )
            )
        text = searchable(origin.memory.content, origin.memory.attributes)
        vector = context.vectors_for([text])[0][0]

        def unit(tx: Connection) -> Crossing:
            current, again = _plan(tx, context, actor, memory_id, into, operation, if_version)
            writing = MemoryWrite(tx, context, actor, context.store.clock.now(), correlation_id)
            if not fits(
                confirm_token, row.secret, operation, actor, _bound(asked, again), now=writing.now
            ):
                raise StateConflict(
                    memory_id,
                    state="not as previewed",
                    reason="the token has run out, is not for this, or who would "
                    "read it changed since",
                    hint="Preview again and confirm what it shows.",
                )
            done = _copied(writing, current, again, reason, vector)
            if idempotency_key is not None:
                idempotency.keep_answer(
                    tx, row.id, operation, idempotency_key, request, done.dumps(), at=writing.now
                )
            return done

        return context.store.database.write(unit, name=f"apply.{operation}")


def _bound(asked: Json, plan: Crossing) -> Json:
    return [asked, json.dumps(plan.dump(), sort_keys=True)]


def _plan(
    connection: Connection,
    context: MemoryContext,
    actor: Actor,
    memory_id: str,
    into: Scope,
    operation: Literal["promote", "share"],
    if_version: int | None,
) -> tuple[memories.Stored, Crossing]:
    origin = context.visible(connection, actor, memory_id, "read")
    memory = origin.memory
    leaving = context.gate.confirmed(connection, actor, operation, memory.scope)
    if into == memory.scope:
        raise InvalidInput(f"The memory stands in {into} already. Name another scope.")
    if into.kind in ("private", "diary"):
        raise _refusal(leaving, into, "unsupported_scope")
    space = spaces.of_scopes(connection, [into]).get(into)
    if space is None and into.kind in _NEEDS_SPACE:
        raise _refusal(leaving, into, "missing_memory_space")
    entering = context.gate.confirmed(connection, actor, "write", into)
    if if_version is not None and memory.version != if_version:
        raise VersionConflict(memory_id, expected=if_version, actual=memory.version)
    if memory.state != "active":
        raise StateConflict(
            memory_id, state=memory.state, reason="only an active memory can leave its scope"
        )
    readers = [f"project:{into.key}"] if into.kind == "project" else []
    if space is not None:
        readers += [f"{member.principal_type}:{member.principal_id}" for member in space.members]
    return origin, Crossing(
        mode="preview",
        operation=operation,
        memory_id=memory_id,
        version=memory.version,
        into=into,
        decisions=(leaving, entering),
        readers=tuple(sorted(readers)),
    )


def _refusal(decision: AccessDecision, into: Scope, reason: ReasonCode) -> Denied:
    return Denied(decision.model_copy(update={"allowed": False, "reason": reason, "scope": into}))


def _copied(
    writing: MemoryWrite, origin: memories.Stored, plan: Crossing, reason: str, vector: bytes | None
) -> Crossing:
    tx, context, memory = writing.tx, writing.context, origin.memory
    target = scopes.ensure(tx, plan.into)
    key = parts.put(tx, target, memory.content.encode("utf-8", "surrogatepass"), at=writing.now)
    same = memories.find_statement(tx, target.id, memory.kind, key)
    if same is not None:
        raise StateConflict(
            memory.id,
            state=memory.state,
            reason=f"memory {same[1]} says the same in {plan.into} already",
        )
    source_id = writing.add_source(
        target,
        SourceRef(source_type="memory", author=writing.actor.user),
        key,
        occurred_at=memory.occurred_at,
    )
    copied = Memory(
        id=context.store.ids.new(),
        scope=plan.into,
        sources=(SourceHash(source_id=source_id, content_hash=key),),
        occurred_at=memory.occurred_at,
        created_at=writing.now,
        updated_at=writing.now,
        created_by=writing.actor.user,
        embedding_model=context.embedder.fingerprint if vector is not None else None,
        **{name: getattr(memory, name) for name in SHARED},
    )
    doc, committed = memories.insert_memory(tx, copied, scope=target, content_key=key)
    memories.link_source(tx, doc, source_id, ordinal=0)
    edges.add(
        tx,
        edge_id=context.store.ids.new(),
        kind="SHARES" if plan.operation == "share" else "DERIVED_FROM",
        scope_id=origin.scope_id,
        from_doc=doc,
        to_doc=origin.doc,
        at=writing.now,
        reason=reason,
    )
    details = {
        "version": 1,
        "kind": copied.kind,
        "commitment": committed,
        "source": source_id,
        "by": plan.operation,
    }
    writing.write_down(plan.into, "memory.add", copied.id, details, reason=reason)
    writing.show(copied, doc=doc, scope_id=target.id, vector=vector)
    left = {"version": memory.version, "into": str(plan.into), "copy": copied.id}
    audit_id = writing.write_down(
        memory.scope, f"memory.{plan.operation}", memory.id, left, reason=reason
    )
    return plan.model_copy(update={"mode": "apply", "copy_id": copied.id, "audit_id": audit_id})
