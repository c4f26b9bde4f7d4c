"""Read memories by id and in order, without a query."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from tallystick.access import is_expired, visible_docs
from tallystick.memory.context import MemoryContext
from tallystick.memory.fields import STORE_ITEM
from tallystick.memory.passages import memory_for_model
from tallystick.memory.recall_request import RecallRequest
from tallystick.records import Actor, Memory, MemoryState, Scope
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
    if request.labels:
        filters.append(search.find_labelled(connection, scope_ids, request.labels))
    if request.source is not None:
        filters.append(search.from_source(connection, scope_ids, request.source))
    return set.intersection(*filters) if filters else None


def still_stand(context: MemoryContext, actor: Actor, recalled: Iterable[Memory]) -> bool:
    """Return True if memories that were recalled are unchanged, and may be read still. Nothing is
    logged.
    """
    with context.store.database.read() as connection:
        return all(
            _standing(connection, context, actor, memory.id, memory.version) is not None
            for memory in recalled
        )


def text_for_model(
    context: MemoryContext, actor: Actor, memory_id: str, version: int
) -> str | None:
    """Return the text of a memory without secrets, while it is at this version and may be read;
    nothing is logged.
    """
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
