"""Remember: source, memory, version, journal, words and vector in one commit.

Every occurrence has its source. A statement outside of a conversation that an active memory of the
scope makes already is folded into it; a turn is identified by its place in its conversation, so
that "yes" said twice is two turns.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

from tallystick.access import require_no_widening
from tallystick.errors import Denied, InvalidInput, PositionTaken
from tallystick.memory.context import FollowUp, MemoryContext
from tallystick.memory.links import LINKS, link_new
from tallystick.memory.memory_write import MemoryWrite
from tallystick.memory.secrets import admit_memory
from tallystick.records import (
    Actor,
    Json,
    Memory,
    NewMemory,
    Occasion,
    Proposal,
    ReasonCode,
    Remembered,
    Scope,
    SourceHash,
    SourceRef,
    SourceType,
    is_storable,
    part_key,
    require_item_count,
    require_json_size,
    require_length,
    require_tags,
    validate_attributes,
)
from tallystick.records.framing import NOTICE, OPEN, without_recalls
from tallystick.records.kinds import KINDS
from tallystick.storage import Connection, ScopeRow
from tallystick.storage.engine.batches import Read
from tallystick.storage.engine.prepared import gathered
from tallystick.storage.engine.writes import Writes
from tallystick.storage.rows import edges, journal, memories, occurrences, parts, scopes
from tallystick.storage.rows.idempotency import IdempotentCall
from tallystick.storage.rows.occurrences import Occurrences

_OPERATION = "remember"
MOST_ENTITIES = 40
_LONGEST_ENTITY = 200
"""Names that a memory is remembered with at most, and characters of one."""


@dataclass(frozen=True)
class PreparedMemory:
    """One item with everything that must be made before the transaction.

    An embedder may be slow, and the transaction holds the one writer. A new text is embedded and
    stored as it is here, so that nothing has to be checked again inside.
    """

    new: NewMemory
    reference: SourceRef
    vector: bytes | None
    warnings: tuple[str, ...]
    jobs: tuple[FollowUp, ...] = ()
    """The jobs that are left to read it."""
    changes: tuple[Callable[[MemoryWrite, memories.Stored], Proposal | None], ...] = ()
    """What stores the changes that it makes to others, beside it."""
    extraction_model: str | None = None
    """The provider and model that concluded it, where one did."""
    prompt_version: str | None = None


def remember(
    context: MemoryContext,
    actor: Actor,
    scope: Scope,
    items: Sequence[NewMemory],
    *,
    correlation_id: str | None = None,
    idempotency_key: str | None = None,
    learn: bool = True,
) -> list[Remembered]:
    """Remember `items` in one transaction, all or none; return the result of each, in order.

    With `learn` each leaves the jobs by which extensions read it, such as that of learning.

    `idempotency_key` is that of all of them together, beside their own ones.

    Raises Denied, InvalidRecord, InvalidInput, PositionTaken or IdempotencyMismatch; then nothing
    was stored.
    """
    context.gate.require_early(actor, "write", scope)
    require_item_count(len(items))
    for item in items:
        check_new(context, item)
    if not items:
        return []
    own_items = [own_words(context, actor, scope, item) for item in items]
    prepared = prepare_new(
        context, actor, scope, [item for item in own_items if item is not None], learn=learn
    )
    stored: list[Remembered] = []
    if prepared:
        call = None
        if idempotency_key is not None:
            arguments = [_request_of(item) for item in items]
            call = IdempotentCall(scope, "remember_many", idempotency_key, arguments)
        with context.gate.journaling(actor):
            stored = context.store.database.write(
                lambda tx: _ingest(tx, context, actor, scope, prepared, correlation_id, call),
                name="ingest",
                writes=Writes.of(scope),
                reads=_reads_of(context, scope, prepared, call),
            )
    results = iter(stored)
    return [
        Remembered(id="", status="skipped", source_id="", decision="NONE", warnings=(_RECALLED,))
        if own is None
        else _with_warning(next(results), is_cut=own.content != item.content)
        for item, own in zip(items, own_items, strict=True)
    ]


def prepare_new(
    context: MemoryContext, actor: Actor, scope: Scope, items: Sequence[NewMemory], *, learn: bool
) -> list[PreparedMemory]:
    """Return checked items as they may be stored, with everything that follows them. Raises
    InvalidInput and InvalidRecord.
    """
    admitted = [admit_memory(context, scope, item) for item in items]
    for item, warnings in admitted:
        if warnings:
            check_new(context, item)
    return [
        replace(
            item,
            jobs=jobs_for(context, actor, item.new) if learn else (),
            changes=_changes(context, actor, scope, item.new),
            warnings=(*item.warnings, *warnings),
        )
        for item, (_, warnings) in zip(
            prepare(context, actor, scope, [item for item, _ in admitted]), admitted, strict=True
        )
    ]


def jobs_for(context: MemoryContext, actor: Actor, item: NewMemory) -> tuple[FollowUp, ...]:
    """Return the jobs that extensions leave for what is remembered."""
    left = [extension.job_for(context, actor, item) for extension in context.extensions]
    return tuple(each for each in left if each is not None)


def _changes(
    context: MemoryContext, actor: Actor, scope: Scope, item: NewMemory
) -> tuple[Callable[[MemoryWrite, memories.Stored], Proposal | None], ...]:
    if item.replaces is None:
        return ()
    plans = [each.plan_change(context, actor, scope, item) for each in context.extensions]
    return tuple(plan for plan in plans if plan is not None)


_RECALLED = "text that was recalled from here was left out"


def own_words(
    context: MemoryContext, actor: Actor, scope: Scope, item: NewMemory
) -> NewMemory | None:
    """Return the item without text that was recalled from the tally; None when nothing else is
    left.

    A text that we put before a model comes back in prompts and tool results. Remembered again,
    memory would feed on itself. Only its code says that it is ours: a mark alone is anybody's.
    """
    if OPEN not in item.content and NOTICE not in item.content:
        return item
    text = without_recalls(item.content, context.frame_keys.checking(actor, scope))
    if text == item.content:
        return item
    return item.model_copy(update={"content": text}) if text.strip() else None


def _with_warning(result: Remembered, *, is_cut: bool) -> Remembered:
    if not is_cut:
        return result
    return result.model_copy(update={"warnings": (*result.warnings, _RECALLED)})


def check_new(context: MemoryContext, item: NewMemory) -> None:
    """Raise InvalidInput or InvalidRecord for a memory that cannot be stored as it is."""
    if not item.content.strip():
        raise InvalidInput("There is nothing to remember: `content` is empty.", argument="content")
    context.require_content(item.content)
    require_tags(item.tags)
    require_json_size("attributes", item.attributes, finite=True)
    _check_entities(item)
    if item.kind not in KINDS or KINDS[item.kind] is not None:  # most kinds take any attributes
        validate_attributes(item.kind, item.attributes)
    if item.span is not None and item.replaces is None:
        raise InvalidInput(
            "`span` says where the user said that this `replaces` another memory: name that one.",
            argument="span",
        )
    if item.position is not None and item.conversation is None:
        raise InvalidInput("`position` is a place in a conversation: name the `conversation` too.")
    start, end = _utc(item.valid_from), _utc(item.valid_until)
    if start is not None and end is not None and start >= end:
        raise InvalidInput("`valid_from` must come before `valid_until`.")
    for name in ("speaker", "subject", "category", "conversation", "idempotency_key"):
        value = getattr(item, name)
        require_length(name, value)
        if value is not None and not is_storable(value):
            raise InvalidInput(
                f"`{name}` holds a NUL or half a character; only `content` may hold any text."
            )


def _check_entities(item: NewMemory) -> None:
    if item.entities and "entities" in item.attributes:
        raise InvalidInput(
            "Give `entities` as an argument or as an attribute, not as both.", argument="entities"
        )
    if len(item.entities) > MOST_ENTITIES or any(
        not name.strip() or len(name) > _LONGEST_ENTITY or not is_storable(name)
        for name in item.entities
    ):
        raise InvalidInput(
            f"`entities` are at most {MOST_ENTITIES} names of 1 to {_LONGEST_ENTITY} characters.",
            argument="entities",
        )


def _utc(moment: Occasion | None) -> int | None:
    """Return a moment of a memory to be, which `NewMemory.at` has brought to microseconds."""
    assert moment is None or isinstance(moment, int)
    return moment


def prepare(
    context: MemoryContext, actor: Actor, scope: Scope, items: Sequence[NewMemory]
) -> list[PreparedMemory]:
    vectors, warnings = context.vectors_for(
        [context.searchable(scope, item.content, item.attributes) for item in items]
    )
    return [
        PreparedMemory(item, _reference(item, actor), vector, warnings)
        for item, vector in zip(items, vectors, strict=True)
    ]


def _reference(item: NewMemory, actor: Actor) -> SourceRef:
    if item.source is not None:
        return item.source
    return _spoken_source("user" if actor.agent is None else "app_state", item.speaker)


@lru_cache(maxsize=256)
def _spoken_source(source_type: SourceType, author: str | None) -> SourceRef:
    return SourceRef(source_type=source_type, author=author)


def _reads_of(
    context: MemoryContext,
    scope: Scope,
    prepared: Sequence[PreparedMemory],
    call: IdempotentCall | None,
) -> list[Read]:
    """Return what `_ingest` reads first, to be sent along with its lock. Of several items nothing
    that one of them changes for the next.
    """
    reads = [scopes.frozen_ahead(), journal.end_ahead(f"scope:{scope}"), memories.NEXT_DOC]
    if call is not None:
        return reads
    if all(item.new.idempotency_key is None for item in prepared):
        reads.append(scopes.changing_ahead(scope))
    else:
        reads.append(scopes.ensure_ahead(scope))
    row = context.known_scopes.get(scope)
    if row is not None and len(prepared) == 1:
        reads += _reads_of_one(row, prepared[0].new)
    return reads


def _reads_of_one(scope: ScopeRow, new: NewMemory) -> Iterator[Read]:
    """Yield what `ingest_one` reads first of a scope that is known."""
    if new.idempotency_key is not None:
        yield from _call_of(scope, new).answered_ahead()
    if new.conversation is None:
        key = part_key(scope.secret, _body_of(new))
        yield occurrences.statement_ahead(scope.id, new.kind, key)
    else:
        yield occurrences.next_position_ahead(scope.id, new.conversation)


def _call_of(scope: ScopeRow, new: NewMemory) -> IdempotentCall:
    return IdempotentCall(scope, _OPERATION, new.idempotency_key, _request_of(new))


def _body_of(new: NewMemory) -> bytes:
    """Return the bytes of a text, which may hold half a character."""
    return new.content.encode("utf-8", "surrogatepass")


def _ingest(
    tx: Connection,
    context: MemoryContext,
    actor: Actor,
    scope: Scope,
    prepared: Sequence[PreparedMemory],
    correlation_id: str | None,
    call: IdempotentCall | None,
) -> list[Remembered]:
    context.gate.confirm(tx, actor, "write", scope)
    answered = None if call is None else call.read_answer(tx)
    if answered is not None:
        return [Remembered.load(result) for result in answered["remembered"]]
    revisions: dict[int, int] = {}
    if any(item.new.idempotency_key is not None for item in prepared):
        row = scopes.ensure(tx, scope)
    else:
        row, revision = scopes.changing(tx, scope)
        revisions = {row.id: revision}
    context.known_scopes.keep(row)
    write = MemoryWrite(tx, context, actor, context.store.clock.now(), correlation_id, revisions)
    results = ingest_all(write, row, prepared)
    if call is not None:
        call.keep(tx, {"remembered": [result.dump() for result in results]}, at=write.now)
    return results


def _request_of(new: NewMemory) -> Json:
    """Return the arguments of a call as JSON, without the run and step that it is made in, and for
    what was said in a run without the time: a second try is made in another one.
    """
    if new.source is not None and new.source.uri == f"run:{new.source_run_id}":
        source = new.source.model_copy(update={"uri": None})
        new = new.model_copy(update={"source": source, "occurred_at": None})
    return {
        name: value
        for name, value in new.dump().items()
        # These came later: without them a call is the one that it was before.
        if name not in ("source_run_id", "source_step_ids") and (value or name not in _LATER)
    }


_LATER = ("related_to", "depends_on", "contradicts", "entities", "replaces", "span")
"""Arguments without which a call is the one that it was before they came."""


def ingest_all(
    write: MemoryWrite, scope: ScopeRow, items: Sequence[PreparedMemory]
) -> list[Remembered]:
    """Store memories in their order; the rows of those that ask for nothing of one another are
    stored together.
    """
    is_plain = len(items) > 1 and not any(map(_reads_others, items))
    there = Occurrences(write.tx, scope.id)
    if is_plain:
        named = (each.new.conversation for each in items)
        there.read_ends({each for each in named if each is not None})
    with gathered(write.tx) if is_plain else nullcontext():
        return [_ingest_one(write, scope, item, there) for item in items]


def _reads_others(item: PreparedMemory) -> bool:
    """Return True for a memory that may read the rows of those that are stored with it."""
    new = item.new
    is_linked = new.derived_from or any(getattr(new, name) for name in LINKS)
    return bool(item.changes or item.jobs or is_linked or new.idempotency_key is not None)


def ingest_one(write: MemoryWrite, scope: ScopeRow, item: PreparedMemory) -> Remembered:
    """Store a memory, or the second occurrence of one."""
    return _ingest_one(write, scope, item, Occurrences(write.tx, scope.id))


def _ingest_one(
    write: MemoryWrite, scope: ScopeRow, item: PreparedMemory, there: Occurrences
) -> Remembered:
    tx, new, now = write.tx, item.new, write.now
    call = None
    if new.idempotency_key is not None:
        call = _call_of(scope, new)
        answered = call.read_answer(tx)
        if answered is not None:
            return Remembered.load(answered)

    content_key = parts.put(tx, scope, _body_of(new), at=now)
    source_id = write.add_source(
        scope, item.reference, content_key, occurred_at=_utc(new.occurred_at)
    )
    existing = _existing(there, new, content_key)
    if existing is not None:
        memories.link_source(tx, existing.doc, source_id)
        write.docs[existing.id] = existing.doc
        details = {"version": existing.version, "source": source_id}
        details |= link_new(write, scope, existing.doc, new, is_known=True)
        write.journal_event(scope.scope, "memory.seen", existing.id, details)
        answer = Remembered(
            id=existing.id,
            status="duplicate",
            source_id=source_id,
            version=existing.version,
            decision="NONE",
            warnings=item.warnings,
        )
    else:
        answer = _add_memory(write, scope, item, there, source_id, content_key)
    for store in item.changes:
        answer = _with_change(answer, store(write, _stored(tx, answer.id)))
    if call is not None:
        call.keep(tx, answer, at=now)
    return answer


def _stored(tx: Connection, memory_id: str) -> memories.Stored:
    stored = memories.get(tx, memory_id)
    assert stored is not None
    return stored


def _with_change(answer: Remembered, proposal: Proposal | None) -> Remembered:
    """Return an answer with what became of the change that the memory makes."""
    if proposal is None:
        return answer
    change = proposal.state if proposal.state in ("applied", "shadow") else "held"
    warnings = answer.warnings
    if change == "held":
        warnings = (*warnings, f"the change waits for a person ({proposal.reason})")
    update = {"change": change, "proposal_id": proposal.id, "warnings": warnings}
    update["decision"] = proposal.action
    return answer.model_copy(update=update)


def _existing(
    there: Occurrences, new: NewMemory, content_key: str
) -> occurrences.Statement | occurrences.Turn | None:
    """Return the memory that this one is a second occurrence of, or None."""
    if new.conversation is None:
        return there.find_statement(new.kind, content_key)
    if new.position is None:
        return None
    turn = there.find_turn(new.conversation, new.position)
    if turn is None:
        return None
    if turn.content_key != content_key:
        raise PositionTaken(new.conversation, new.position, turn.id)
    return turn


def _add_memory(
    write: MemoryWrite,
    scope: ScopeRow,
    item: PreparedMemory,
    there: Occurrences,
    source_id: str,
    content_key: str,
) -> Remembered:
    tx, context, now, new = write.tx, write.context, write.now, item.new
    position, occurred_at = new.position, _utc(new.occurred_at)
    if new.conversation is not None and position is None:
        position = there.next_position(new.conversation)
    memory = Memory(
        id=context.store.ids.new(),
        scope=scope.scope,
        kind=new.kind,
        subject=new.subject,
        content=new.content,
        speaker=new.speaker,
        category=new.category,
        sources=(SourceHash(source_id=source_id, content_hash=content_key),),
        source_run_id=new.source_run_id,
        source_step_ids=tuple(new.source_step_ids),
        confidence=new.confidence,
        importance=new.importance,
        pinned=new.pinned,
        valid_from=_utc(new.valid_from),
        valid_until=_utc(new.valid_until),
        freshness_ts=now if occurred_at is None else occurred_at,
        expires_at=_utc(new.expires_at),
        tags=tuple(new.tags),
        attributes={**new.attributes, "entities": list(new.entities)}
        if new.entities
        else new.attributes,
        embedding_model=context.embedder.fingerprint if item.vector is not None else None,
        conversation=new.conversation,
        position=position,
        occurred_at=occurred_at,
        created_at=now,
        updated_at=now,
        created_by=write.actor.user,
        extraction_status="pending" if item.jobs else "none",
        extraction_model=item.extraction_model,
        prompt_version=item.prompt_version,
    )
    origins = [_origin(write, memory_id) for memory_id in dict.fromkeys(new.derived_from)]
    if origins:
        require_no_widening(
            tx,
            context.gate,
            write.actor,
            [origin.memory.scope for origin in origins],
            scope.scope,
            operation="promote",
            remedy="Conclude it in the narrower scope, and promote or share it from there with a "
            "preview.",
        )
    doc, committed = memories.insert_memory(tx, memory, scope=scope, content_key=content_key)
    there.note(memory, content_key)
    write.docs[memory.id] = doc
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
    details |= link_new(write, scope, doc, new, is_known=False)
    write.journal_event(scope.scope, "memory.add", memory.id, details)
    job_id = write.show(memory, doc=doc, scope_id=scope.id, vector=item.vector)
    for each in item.jobs:
        job_id = write.follow_up(each, memory, scope)
    return Remembered(
        id=memory.id,
        status="created",
        source_id=source_id,
        processing="raw_saved" if job_id is None else "queued",
        job_id=job_id,
        decision="CONTRADICTS" if new.contradicts else "ADD",
        warnings=item.warnings,
    )


def _origin(write: MemoryWrite, memory_id: str) -> memories.Stored:
    """Return a memory to conclude from: one that the actor may read and reflect on, and that has
    its text.
    """
    context, actor = write.context, write.actor
    origin = context.visible(write.tx, actor, memory_id, "read")
    decision = context.gate.confirm_and_decide(write.tx, actor, "reflect", origin.memory.scope)
    reason = _UNFIT.get(origin.memory.state)
    if reason is not None:
        raise Denied(decision.model_copy(update={"allowed": False, "reason": reason}))
    return origin


_UNFIT: Mapping[str, ReasonCode] = {
    "hidden": "hidden_source",
    "redacted": "redacted_source",
    "deleted": "source_deleted",
}
"""States of a memory from which no conclusion may be drawn, with the reason."""
