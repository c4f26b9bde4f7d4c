"""Read memories by id, in order, or the newest that pass filters, without a query."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

from tallystick.access import is_expired, replacements, visible_docs
from tallystick.memory.context import MemoryContext
from tallystick.memory.fields import STORE_ITEM
from tallystick.memory.recall_request import RecallRequest, require_answerable
from tallystick.memory.recalled import Recalled
from tallystick.memory.supersession import freshness_of, is_current
from tallystick.records import AccessDecision, Actor, HeldChange, Hit, Memory, MemoryState, Scope
from tallystick.storage import Connection
from tallystick.storage.index import search
from tallystick.storage.rows import items, memories, scopes

_WORDS: dict[str, Any] = {
    "content": "",
    "subject": None,
    "speaker": None,
    "category": None,
    "attributes": {},
    "tags": (),
    "conversation": None,
}
"""The fields that somebody wrote, empty."""


def get(context: MemoryContext, actor: Actor, memory_id: str) -> Memory:
    """Return one memory. Raises NotFound alike for absent, forgotten and hidden ones, and where
    only a part may be seen.
    """
    with context.store.database.read() as connection:
        stored = context.visible(connection, actor, memory_id, "read")
        if stored.doc not in visible_docs(
            connection, context.gate, actor, [stored], context.store.clock.now()
        ):
            raise context.absent(actor, memory_id)
    context.gate.log_read(actor, "get", [stored.memory.scope], results=1)
    return stored.memory


def list_memories(
    context: MemoryContext,
    actor: Actor,
    scope: Scope,
    request: RecallRequest,
    *,
    before: str | None = None,
) -> list[Memory]:
    """Return memories of `scope` in the states of a request that pass its filters, newest first;
    give the last id of a page as `before` for the next one.

    Of the items of stores those beneath its namespace are listed; none for None. Those that were
    forgotten or hidden, or replaced by one that the actor may not see, come without their text.
    With labels, tags or a source only findable memories are listed, so that nobody learns by them
    what a hidden one says. Raises Denied, and NotFound for an unknown `before`.
    """
    context.gate.require(actor, "read", scope)
    with context.store.database.read() as connection:
        ids = [row.id for row in scopes.find(connection, [scope])]
        before_doc = (
            None if before is None else context.visible(connection, actor, before, "read").doc
        )
        states: Sequence[MemoryState] = request.states
        if request.tags or request.labels or request.source is not None:
            states = [state for state in states if state in memories.FINDABLE]
        page = page_of(connection, ids, request, states, limit=request.limit, before_doc=before_doc)
        visible = visible_docs(connection, context.gate, actor, page, context.store.clock.now())
    context.gate.log_read(actor, "list", [scope], results=len(page))
    return [
        stored.memory if stored.doc in visible else without_words(stored.memory) for stored in page
    ]


def page_of(
    connection: Connection,
    scope_ids: Sequence[int],
    request: RecallRequest,
    states: Sequence[MemoryState],
    *,
    limit: int,
    before_doc: int | None,
) -> list[memories.Stored]:
    """Return the next memories that pass the filters of a request, newest first."""
    namespace = request.namespace
    return memories.latest(
        connection,
        scope_ids,
        kinds=request.kinds,
        states=states,
        conversation=request.conversation,
        limit=limit,
        before_doc=before_doc,
        without_kind=None if namespace == () else STORE_ITEM,
        but_docs=[row.doc for id in scope_ids for row in items.beneath(connection, id, namespace)]
        if namespace
        else [],
        only_docs=_filter_docs(connection, scope_ids, request),
        since=request.since,
        until=request.until,
    )


def _filter_docs(
    connection: Connection, scope_ids: Sequence[int], request: RecallRequest
) -> set[int] | None:
    """Return the memories with all of the tags, labels and the source; None where none is asked
    for.
    """
    filters: list[set[int]] = []
    if request.tags:
        filters.append(search.find_tagged(connection, scope_ids, request.tags))
    if request.docs is not None:
        filters.append(set(request.docs))
    if request.labels:
        filters.append(search.find_labelled(connection, scope_ids, request.labels))
    if request.source is not None:
        filters.append(search.from_source(connection, scope_ids, request.source))
    return set.intersection(*filters) if filters else None


def text_for_model(
    context: MemoryContext, actor: Actor, memory_id: str, version: int
) -> str | None:
    """Return the text of a memory without secrets, while it is at this version and may be read;
    nothing is logged.
    """
    from tallystick.memory.passages import memory_for_model

    with context.store.database.read() as connection:
        memory = _standing(connection, context, actor, memory_id, version)
    return None if memory is None else memory_for_model(context.redactor, memory).content


def _standing(
    connection: Connection, context: MemoryContext, actor: Actor, memory_id: str, version: int
) -> Memory | None:
    """Return a memory that is at a version still, and may be read; else None."""
    now = context.store.clock.now()
    stored = memories.get(connection, memory_id, sources=False)
    if (
        stored is None
        or stored.memory.version != version
        or is_expired(stored.memory.expires_at, now)
        or not context.gate.decide(connection, actor, "read", stored.memory.scope).allowed
        or not visible_docs(connection, context.gate, actor, [stored], now)
    ):
        return None
    return stored.memory


def without_words(memory: Memory) -> Memory:
    """Return a memory without anything that somebody wrote."""
    return memory.model_copy(update=_WORDS)


def preview_of(context: MemoryContext, memory: Memory, *, most: int) -> str:
    """Return the beginning of a memory's text, at most `most` characters, secrets replaced.

    Only for an actor who may see the text; `access` decides that.
    """
    text, _ = context.redactor.redact_text(memory.content)
    return text if len(text) <= most else text[: most - 1] + "…"


_HOLDING: Sequence[MemoryState] = ("active", "redacted")
_VALID_THEN: Sequence[MemoryState] = (*_HOLDING, "superseded")
"""What holds now, and what may have held at a moment. For a duplicate that which it repeats stands.
"""
_PAGE = 100
"""Memories that are read at once, at least: some of them may be left out."""


def newest(
    context: MemoryContext,
    actor: Actor,
    scope_list: Sequence[Scope],
    request: RecallRequest,
    *,
    logged: bool = True,
) -> Recalled:
    """Return the newest memories of these scopes that pass the filters of `request`: the recall
    without a query.

    By default those that hold, with `as_of` those that were valid then; what holds no longer is
    marked as history. Nothing answers a question that was not asked: scores are 0, so that
    `min_score` and `only_confident` leave nothing. Raises Denied and InvalidInput, as `recall`.
    """
    from tallystick.memory.contradictions import contradictions
    from tallystick.memory.held_changes import held_changes

    require_answerable(request)
    for scope in dict.fromkeys(scope_list):
        context.gate.require(actor, "read", scope)
    now = context.store.clock.now()
    with context.store.database.read() as connection:
        decisions = {
            scope: context.gate.decide(connection, actor, "read", scope)
            for scope in dict.fromkeys(scope_list)
        }
        readable = [scope for scope, decision in decisions.items() if decision.allowed]
        ids = [row.id for row in scopes.find(connection, readable)]
        passing = _passing(connection, context, actor, ids, request, now)
        found = list(islice(passing, request.limit))
        heads = replacements(
            connection,
            [stored.doc for stored in found if stored.memory.state == "superseded"],
            lambda scope: context.gate.decide(connection, actor, "read", scope).allowed,
            now,
        )
        docs = [stored.doc for stored in found]
        refs = memories.source_refs(connection, docs) if request.sources else {}
        rivals = contradictions(connection, context, actor, found, now)
        held = held_changes(connection, context, actor, found)
    hits = []
    for stored in found if request.min_score == 0 else ():
        head = heads.get(stored.doc)
        contradicted_by = rivals.get(stored.memory.id, ())
        sources = refs.get(stored.doc, [])
        held_here = held.get(stored.memory.id, ())
        hits.append(_hit(stored, head, sources, decisions, contradicted_by, held_here, now))
    withheld = len(hits) if request.only_confident else 0
    given = [] if withheld else hits
    if request.budget is not None:
        given = request.budget(given)
    if logged:
        accessed = {stored.memory.id: stored.doc for stored in found}
        context.gate.log_read(
            actor,
            "recall",
            scope_list,
            results=len(given),
            accessed=[accessed[hit.memory.id] for hit in given],
        )
    return Recalled(tuple(given), "none", len(found), withheld=withheld)


def _passing(
    connection: Connection,
    context: MemoryContext,
    actor: Actor,
    scope_ids: Sequence[int],
    request: RecallRequest,
    now: int,
) -> Iterator[memories.Stored]:
    """Yield the memories of these scopes that the actor may see and that pass the filters, newest
    first, read page by page.
    """
    states = request.states or (_HOLDING if request.as_of is None else _VALID_THEN)
    before_doc, size = None, max(request.limit, _PAGE)
    while True:
        page = page_of(connection, scope_ids, request, states, limit=size, before_doc=before_doc)
        visible = visible_docs(connection, context.gate, actor, page, now)
        for stored in page:
            if (
                stored.doc in visible
                and not is_expired(stored.memory.expires_at, now)
                and _is_asked_for(stored.memory, request, now)
            ):
                yield stored
        if len(page) < size:
            return
        before_doc = page[-1].doc


def _hit(
    stored: memories.Stored,
    head: memories.Stored | None,
    refs: Sequence[memories.SourceLink],
    decisions: Mapping[Scope, AccessDecision],
    contradicted_by: tuple[str, ...],
    held: tuple[HeldChange, ...],
    now: int,
) -> Hit:
    memory = stored.memory
    holds = head is None and is_current(memory, now)
    return Hit.model_construct(
        memory=memory,
        score=0.0,
        signals={"filters": 1.0},
        sources=tuple(reference for _, reference in refs),
        source_ids=tuple(source_id for source_id, _ in refs),
        visible_to=memory.scope,
        access_reason=decisions[memory.scope].reason,
        path="none",
        fresh=freshness_of(memory, is_history=not holds) == "current",
        history=not holds,
        replaced_by=None if head is None else head.memory.id,
        duplicates=(),
        contradicted_by=contradicted_by,
        held=held,
        passage=None,
    )


def _is_asked_for(memory: Memory, request: RecallRequest, now: int) -> bool:
    """Return True if a memory holds as it was asked: at a moment, in some states, or now."""
    if request.as_of is not None:
        return _was_valid(memory, request.as_of)
    return bool(request.states) or is_current(memory, now)


def _was_valid(memory: Memory, at: int) -> bool:
    """Return True if a memory was valid at `at`; without a word on it, it holds since it was
    said.
    """
    since = memory.occurred_at if memory.valid_from is None else memory.valid_from
    return (since is None or since <= at) and is_current(memory, at)
