"""Remember: source, memory, version, journal, words and vector in one commit.

Every occurrence keeps its source. A loose statement that an active memory of the scope makes
already is folded into it; a turn is identified by its place in its conversation, so that two times
"yes" are two turns.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from tallystick.errors import Denied, InvalidInput, PositionTaken
from tallystick.memory.context import MemoryContext, searchable
from tallystick.memory.memory_write import MemoryWrite
from tallystick.records import (
    Actor,
    Json,
    Memory,
    NewMemory,
    ReasonCode,
    Remembered,
    Scope,
    SourceHash,
    SourceRef,
    SourceType,
    is_storable,
    part_key,
    validate_attributes,
)
from tallystick.records.framing import without_recalls
from tallystick.storage import Connection, ScopeRow, edges, idempotency, memories, parts, scopes
from tallystick.storage.idempotency import IdempotentCall

__all__ = ["Prepared", "check_new", "ingest_one", "prepare", "remember"]

_OPERATION = "remember"


@dataclass(frozen=True)
class Prepared:
    """One item with everything that must be made before the transaction."""

    new: NewMemory
    reference: SourceRef
    vector: bytes | None
    warnings: tuple[str, ...]


def remember(
    context: MemoryContext,
    actor: Actor,
    scope: Scope,
    items: Sequence[NewMemory],
    *,
    correlation_id: str | None = None,
    idempotency_key: str | None = None,
) -> list[Remembered]:
    """Remember `items` in one transaction, all or none; what became of each, in order.

    `idempotency_key` is that of all of them together, beside those that they bear.

    Raises Denied, InvalidRecord, InvalidInput, PositionTaken or IdempotencyMismatch; then nothing
    was stored.
    """
    context.gate.foresee(actor, "write", scope)
    for item in items:
        check_new(item)
    if not items:
        return []
    own = [_own(item) for item in items]
    prepared = prepare(context, actor, [item for item in own if item is not None])
    stored: list[Remembered] = []
    if prepared:
        asked = None if idempotency_key is None else [_said(item) for item in items]
        once = IdempotentCall(scope, "remember_many", idempotency_key, asked)
        with context.gate.journaling(actor):
            stored = context.store.database.write(
                lambda tx: _ingest(tx, context, actor, scope, prepared, correlation_id, once),
                name="ingest",
            )
    results = iter(stored)
    return [
        Remembered(memory_id="", status="skipped", source_id="", warnings=(_RECALLED,))
        if item is None
        else _noted(next(results), said=given.content, kept=item.content)
        for given, item in zip(items, own, strict=True)
    ]


_RECALLED = "text that was recalled from here was left out"


def _own(item: NewMemory) -> NewMemory | None:
    """The item without what was recalled from a tally; None when nothing of its own is left.

    What we put before a model comes back in prompts and tool results. Remembered again, memory
    would feed on itself.
    """
    text = without_recalls(item.content)
    if text == item.content:
        return item
    return item.model_copy(update={"content": text}) if text.strip() else None


def _noted(result: Remembered, *, said: str, kept: str) -> Remembered:
    return (
        result
        if said == kept
        else result.model_copy(update={"warnings": (*result.warnings, _RECALLED)})
    )


def check_new(item: NewMemory) -> None:
    if not item.content.strip():
        raise InvalidInput("There is nothing to remember: `content` is empty.")
    validate_attributes(item.kind, item.attributes)
    if item.position is not None and item.conversation is None:
        raise InvalidInput("`position` is a place in a conversation: name the `conversation` too.")
    if (
        item.valid_from is not None
        and item.valid_until is not None
        and item.valid_from >= item.valid_until
    ):
        raise InvalidInput("`valid_from` must come before `valid_until`.")
    for name in ("speaker", "subject", "category", "conversation", "idempotency_key"):
        value = getattr(item, name)
        if value is not None and not is_storable(value):
            raise InvalidInput(
                f"`{name}` holds a NUL or half a character; only `content` may hold any text."
            )


def prepare(context: MemoryContext, actor: Actor, items: Sequence[NewMemory]) -> list[Prepared]:
    vectors, warnings = context.vectors_for(
        [searchable(item.content, item.attributes) for item in items]
    )
    return [
        Prepared(item, _reference(item, actor), vector, warnings)
        for item, vector in zip(items, vectors, strict=True)
    ]


def _reference(item: NewMemory, actor: Actor) -> SourceRef:
    if item.source is not None:
        return item.source
    return _speaking("user" if actor.agent is None else "app_state", item.speaker)


@lru_cache(maxsize=256)
def _speaking(source_type: SourceType, author: str | None) -> SourceRef:
    return SourceRef(source_type=source_type, author=author)


def _ingest(
    tx: Connection,
    context: MemoryContext,
    actor: Actor,
    scope: Scope,
    prepared: Sequence[Prepared],
    correlation_id: str | None,
    once: IdempotentCall,
) -> list[Remembered]:
    context.gate.confirm(tx, actor, "write", scope)
    answered = once.answered(tx)
    if answered is not None:
        return [Remembered.load(one) for one in answered["remembered"]]
    revisions: dict[int, int] = {}
    if any(item.new.idempotency_key is not None for item in prepared):
        row = scopes.ensure(tx, scope)
    else:
        row, revision = scopes.changing(tx, scope)
        revisions = {row.id: revision}
    writing = MemoryWrite(tx, context, actor, context.store.clock.now(), correlation_id, revisions)
    done = [ingest_one(writing, row, item) for item in prepared]
    if once.key is not None:
        once.keep(tx, {"remembered": [one.dump() for one in done]}, at=writing.now)
    return done


def _said(new: NewMemory) -> Json:
    """What a call asks for, without the run and step that it is made in: a second try is made in
    another one.
    """
    return {
        name: value
        for name, value in new.dump().items()
        if name not in ("source_run_id", "source_step_ids")
    }


def ingest_one(writing: MemoryWrite, scope: ScopeRow, item: Prepared) -> Remembered:
    tx, new, now = writing.tx, item.new, writing.now
    request = ""
    if new.idempotency_key is not None:
        request = part_key(scope.secret, json.dumps(_said(new), sort_keys=True).encode())
        before = idempotency.first_answer(tx, scope.id, _OPERATION, new.idempotency_key, request)
        if before is not None:
            return Remembered.load(before)

    content_key = parts.put(tx, scope, new.content.encode("utf-8", "surrogatepass"), at=now)
    source_id = writing.add_source(scope, item.reference, content_key, occurred_at=new.occurred_at)
    known = _known(tx, scope, new, content_key)
    if known is not None:
        doc, memory_id, version = known
        memories.link_source(tx, doc, source_id)
        writing.write_down(
            scope.scope, "memory.seen", memory_id, {"version": version, "source": source_id}
        )
        answer = Remembered(
            memory_id=memory_id,
            status="duplicate",
            source_id=source_id,
            version=version,
            warnings=item.warnings,
        )
    else:
        answer = _add_memory(writing, scope, item, source_id, content_key)
    if new.idempotency_key is not None:
        idempotency.keep_answer(
            tx, scope.id, _OPERATION, new.idempotency_key, request, answer.dumps(), at=now
        )
    return answer


def _known(
    tx: Connection, scope: ScopeRow, new: NewMemory, content_key: str
) -> tuple[int, str, int] | None:
    """(doc, id, version) of the memory that this one is a second occurrence of, or None."""
    if new.conversation is None:
        return memories.find_statement(tx, scope.id, new.kind, content_key)
    if new.position is None:
        return None
    turn = memories.find_turn(tx, scope.id, new.conversation, new.position)
    if turn is None:
        return None
    if turn.content_key != content_key:
        raise PositionTaken(new.conversation, new.position, turn.id)
    return turn.doc, turn.id, turn.version


def _add_memory(
    writing: MemoryWrite, scope: ScopeRow, item: Prepared, source_id: str, content_key: str
) -> Remembered:
    tx, context, now, new = writing.tx, writing.context, writing.now, item.new
    position = new.position
    if new.conversation is not None and position is None:
        position = memories.next_position(tx, scope.id, new.conversation)
    memory = Memory(
        id=context.store.ids.new(),
        scope=scope.scope,
        kind=new.kind,
        subject=new.subject,
        content=new.content,
        who=new.speaker,
        category=new.category,
        sources=(SourceHash(source_id=source_id, content_hash=content_key),),
        source_run_id=new.source_run_id,
        source_step_ids=new.source_step_ids,
        confidence=new.confidence,
        importance=new.importance,
        pinned=new.pinned,
        valid_from=new.valid_from,
        valid_until=new.valid_until,
        freshness_ts=new.occurred_at if new.occurred_at is not None else now,
        expires_at=new.expires_at,
        tags=new.tags,
        attributes=new.attributes,
        embedding_model=context.embedder.fingerprint if item.vector is not None else None,
        conversation=new.conversation,
        position=position,
        occurred_at=new.occurred_at,
        created_at=now,
        updated_at=now,
        created_by=writing.actor.user,
    )
    origins = [_origin(writing, memory_id) for memory_id in dict.fromkeys(new.derived_from)]
    doc, committed = memories.insert_memory(tx, memory, scope=scope, content_key=content_key)
    memories.link_source(tx, doc, source_id, ordinal=0)
    for origin in origins:
        edges.add(
            tx,
            edge_id=context.store.ids.new(),
            kind="DERIVED_FROM",
            scope_id=scope.id,
            from_doc=doc,
            to_doc=origin.doc,
            at=now,
        )
    details: dict[str, Any] = {
        "version": 1,
        "kind": memory.kind,
        "commitment": committed,
        "source": source_id,
    }
    if origins:
        details["derived_from"] = [origin.memory.id for origin in origins]
    writing.write_down(scope.scope, "memory.add", memory.id, details)
    job_id = writing.show(memory, doc=doc, scope_id=scope.id, vector=item.vector)
    return Remembered(
        memory_id=memory.id,
        status="created",
        source_id=source_id,
        job_id=job_id,
        warnings=item.warnings,
    )


def _origin(writing: MemoryWrite, memory_id: str) -> memories.Stored:
    """A memory to conclude from: one that the actor may read and reflect on, and that has its
    text.
    """
    context, actor = writing.context, writing.actor
    origin = context.visible(writing.tx, actor, memory_id, "read")
    decision = context.gate.confirmed(writing.tx, actor, "reflect", origin.memory.scope)
    reason = _UNFIT.get(origin.memory.state)
    if reason is not None:
        raise Denied(decision.model_copy(update={"allowed": False, "reason": reason}))
    return origin


_UNFIT: Mapping[str, ReasonCode] = {
    "hidden": "hidden_source",
    "redacted": "redacted_source",
    "deleted": "source_deleted",
}
"""States of a memory from which nothing may be concluded, with the reason."""
