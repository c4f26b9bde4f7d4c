"""Items: memories with a namespace and a key for an address, as the stores of runtimes keep them.

Each put is a version with its source and its journal entry; a delete is a forget, and a put after
it a new memory. Address and memory are written in one transaction, so that one is never found
without the other.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from tallystick.access import is_expired
from tallystick.errors import InvalidInput, StateConflict
from tallystick.memory.change import (
    apply_modify,
    forget_one,
)
from tallystick.memory.context import MemoryContext
from tallystick.memory.fields import INDEX, STORE_ITEM, item_content, item_value
from tallystick.memory.memory_write import MemoryWrite, Permitted
from tallystick.memory.recall import recall
from tallystick.memory.recall_request import RecallRequest
from tallystick.memory.remember import PreparedMemory, check_new, ingest_one, prepare
from tallystick.ranking import cosines, slices_of
from tallystick.records import Actor, Memory, NewMemory, Scope, is_storable, require_json_size
from tallystick.storage import Connection, ScopeRow
from tallystick.storage.engine.writes import Writes
from tallystick.storage.index import search
from tallystick.storage.rows import items, memories, memory_versions, scopes
from tallystick.storage.rows.idempotency import IdempotentCall

_LAST = 2**63 - 1
"""The last place that a database counts to."""
_PAGE = 500
"""Most items whose values are looked at together."""


@dataclass(frozen=True)
class Put:
    """One change of a store."""

    namespace: tuple[str, ...]
    key: str
    value: dict[str, Any] | None
    """None deletes the item."""
    index: tuple[str, ...] = ("$",)
    """Paths of the fields by which it is found; none for an item that only its address finds."""
    ttl: int | None = None
    """Microseconds that it lives after it was put, or read; None lives on."""


@dataclass(frozen=True)
class Item:
    """The memory under an address."""

    namespace: tuple[str, ...]
    key: str
    memory: Memory
    ttl: int | None = None
    score: float | None = None
    """Cosine of the query and the nearest of the item's embedded texts; None without a query, and
    for an item that has no embedding.
    """

    @property
    def value(self) -> dict[str, Any]:
        """Return the value as it was put, or as it was changed since."""
        return item_value(self.memory.content)


def put_items(
    context: MemoryContext,
    actor: Actor,
    scope: Scope,
    puts: Sequence[Put],
    *,
    idempotency_key: str | None = None,
) -> None:
    """Carry out `puts` in one transaction, in order, all or none.

    Raises Denied, InvalidInput, InvalidRecord, IdempotencyMismatch, or StateConflict for an item
    that is pinned or locked.
    """
    context.gate.require(actor, "write", scope)
    for put in puts:
        if (
            not put.namespace
            or not is_storable(put.key)
            or any("\x00" in label for label in put.namespace)
        ):
            raise InvalidInput(
                "An item needs a namespace; neither its labels nor its key may hold a NUL, nor "
                "its key half a character."
            )
    new_memories = [_new(put) for put in puts]
    for new in new_memories:
        if new is not None:
            check_new(context, new)
    prepared_items = iter(
        prepare(context, actor, scope, [new for new in new_memories if new is not None])
    )
    prepared = [None if new is None else next(prepared_items) for new in new_memories]
    call = IdempotentCall(
        scope,
        "store.put",
        idempotency_key,
        [
            [put.namespace, put.key, None if new is None else new.content, put.index, put.ttl]
            for put, new in zip(puts, new_memories, strict=True)
        ],
    )

    def unit(tx: Connection) -> None:
        context.gate.confirm(tx, actor, "write", scope)
        if call.read_answer(tx) is not None:
            return
        write = MemoryWrite(tx, context, actor, context.store.clock.now(), None)
        row = scopes.ensure(tx, scope)
        for put, item in zip(puts, prepared, strict=True):
            _put(write, row, put, item)
        call.keep(tx, {}, at=write.now)

    if puts:
        with context.gate.journaling(actor):
            context.store.database.write(unit, name="store.put", writes=Writes.of(scope))


def _new(put: Put) -> NewMemory | None:
    if put.value is None:
        return None
    try:
        content = item_content(put.namespace, put.key, put.value)
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidInput(f"The value of {put.key!r} holds what JSON cannot: {error}.") from error
    # Written from one depth of calls, what is nested deeply could not be read from another.
    require_json_size("value", put.value, most=4 * len(content))
    return NewMemory(content=content, kind=STORE_ITEM, attributes={INDEX: list(put.index)})


def _put(write: MemoryWrite, scope: ScopeRow, put: Put, item: PreparedMemory | None) -> None:
    tx, now = write.tx, write.now
    row = items.find(tx, scope.id, put.namespace, put.key)
    stored = memories.get_docs(tx, [row.doc]).get(row.doc) if row is not None else None
    current = stored if stored is not None and _is_live(stored.memory, now) else None
    if item is None:
        if current is not None:
            forget_one(write, write.permit(current, "delete"), "deleted from the store")
        return
    expires = None if put.ttl is None else now + put.ttl
    if current is None:
        if stored is not None and stored.memory.state == "active" and not stored.memory.pinned:
            # Its time to live is over: the next put is another item.
            forget_one(write, write.permit_upkeep(stored), "its time to live is over")
        remembered = ingest_one(write, scope, item)
        created = memories.get(tx, remembered.id)
        assert created is not None
        doc = created.doc
        if expires is not None:
            _expire(write, created, expires)
    else:
        doc = current.doc
        new = item.new
        memory = current.memory.model_copy(
            update={"content": new.content, "attributes": new.attributes}
        )
        if memory_versions.body_of(memory) != memory_versions.body_of(current.memory):
            permitted = _permit_put(write, current)
            apply_modify(write, permitted, memory, item.vector, ["content"], "put in the store")
            current = memories.get_docs(tx, [doc])[doc]
        if expires != current.memory.expires_at:
            _expire(write, _permit_put(write, current).stored, expires)
    items.set_item(tx, scope.id, items.Row(put.namespace, put.key, doc, put.ttl))


def _permit_put(write: MemoryWrite, stored: memories.Stored) -> Permitted:
    """Return an item that a put may change: a pin keeps it from anybody's put."""
    if stored.memory.pinned:
        raise StateConflict(
            stored.memory.id,
            state="pinned",
            reason="pinned_memory",
            hint="Let a person unpin it before the store may change it.",
        )
    return write.permit(stored, "correct")


def _expire(write: MemoryWrite, stored: memories.Stored, at: int | None) -> None:
    memories.set_expiry(write.tx, stored.doc, at)
    search.touch(write.tx, [stored.doc], revision=scopes.next_revision(write.tx, stored.scope_id))


def _is_live(memory: Memory, now: int) -> bool:
    return memory.state == "active" and not is_expired(memory.expires_at, now)


def get_items(
    context: MemoryContext,
    actor: Actor,
    scope: Scope,
    addresses: Sequence[tuple[tuple[str, ...], str]],
    *,
    refresh: Sequence[bool] = (),
) -> list[Item | None]:
    """Return the item under each address, or None; those with `refresh` begin their time to live
    anew, where the actor may write.

    Raises Denied.
    """
    context.gate.require(actor, "read", scope)
    now = context.store.clock.now()
    with context.store.database.read() as connection:
        scope_ids = [row.id for row in scopes.find(connection, [scope])]
        rows = [
            items.find(connection, scope_ids[0], namespace, key)
            if scope_ids and is_storable(key)
            else None
            for namespace, key in addresses
        ]
        stored = memories.get_docs(connection, [row.doc for row in rows if row is not None])
    results: list[Item | None] = []
    for row in rows:
        memory = stored[row.doc].memory if row is not None and row.doc in stored else None
        is_live = row is not None and memory is not None and _is_live(memory, now)
        results.append(
            Item(row.namespace, row.key, memory, row.ttl) if is_live and row and memory else None
        )
    _refresh(
        context,
        actor,
        scope,
        [
            item
            for item, is_refreshed in zip(results, refresh, strict=False)
            if is_refreshed and item is not None
        ],
    )
    context.gate.log_read(actor, "get", [scope], results=sum(item is not None for item in results))
    return results


def find_items(
    context: MemoryContext,
    actor: Actor,
    scope: Scope,
    prefix: Sequence[str],
    *,
    query: str | None = None,
    keep: Callable[[dict[str, Any]], bool] | None = None,
    limit: int = 10,
    offset: int = 0,
    refresh: bool = False,
) -> list[Item]:
    """Return the items whose namespace begins with `prefix` and whose value passes `keep`, if one
    is given.

    With a `query` the best answers come first, by words and by meaning as recall ranks what an item
    says itself, then the others by meaning; without one the newest come first. Raises Denied.
    """
    context.gate.require(actor, "read", scope)
    now = context.store.clock.now()
    text = (query or "").strip()
    with context.store.database.read() as connection:
        scope_ids = [row.id for row in scopes.find(connection, [scope])]
        most = None if text else min(offset + limit, _LAST)
        rows = _living(connection, scope_ids[0], prefix, now, keep, most) if scope_ids else []
    scores: dict[int, float] = {}
    if text:
        rows, scores = _rank_rows(context, actor, scope, text, rows, offset + limit)
    rows = rows[offset : offset + limit]
    with context.store.database.read() as connection:
        stored = memories.get_docs(connection, [row.doc for row in rows])
    chosen = [
        Item(row.namespace, row.key, stored[row.doc].memory, row.ttl, scores.get(row.doc))
        for row in rows
        # One may have been erased meanwhile.
        if row.doc in stored and _is_live(stored[row.doc].memory, now)
    ]
    if refresh:
        _refresh(context, actor, scope, chosen)
    context.gate.log_read(actor, "search", [scope], results=len(chosen))
    return chosen


def _living(
    connection: Connection,
    scope_id: int,
    prefix: Sequence[str],
    now: int,
    keep: Callable[[dict[str, Any]], bool] | None,
    most: int | None,
) -> list[items.Row]:
    """Return the addresses beneath `prefix` whose items pass `keep`, the last changed first: the
    first `most`, or all. Values are read page by page, and none where nothing looks at them.
    """
    if keep is None:
        return items.living(connection, scope_id, prefix, now, limit=most)
    matching: list[items.Row] = []
    offset, page = 0, _PAGE if most is None else min(_PAGE, 2 * max(1, most))
    while most is None or len(matching) < most:
        rows = items.living(connection, scope_id, prefix, now, limit=page, offset=offset)
        stored = memories.get_docs(connection, [row.doc for row in rows])
        matching += [row for row in rows if keep(item_value(stored[row.doc].memory.content))]
        if len(rows) < page:
            break
        offset, page = offset + page, _PAGE
    return matching


def _rank_rows(
    context: MemoryContext,
    actor: Actor,
    scope: Scope,
    query: str,
    rows: Sequence[items.Row],
    most: int,
) -> tuple[list[items.Row], dict[int, float]]:
    """Return the addresses as recall orders their items, then by meaning; and the cosine of each
    that has a vector, by doc.
    """
    docs = [row.doc for row in rows]
    request = RecallRequest(
        limit=max(1, min(most, len(rows))),
        weights=context.weights.by_itself().replace(vector_only=0.0),
        docs=frozenset(docs),
    )
    hits = recall(context, actor, [scope], query, request, logged=False)
    with context.store.database.read() as connection:
        stored_hits = memories.get_many(connection, [hit.memory.id for hit in hits])
    place_of = {hit.memory.id: place for place, hit in enumerate(hits)}
    places = {stored.doc: place_of[stored.memory.id] for stored in stored_hits}
    scores = _similarities(context, scope, query, docs)
    ordered = sorted(rows, key=lambda row: scores.get(row.doc, -2.0), reverse=True)
    ordered.sort(key=lambda row: places.get(row.doc, len(places)))
    return ordered, scores


def _similarities(
    context: MemoryContext, scope: Scope, query: str, docs: Sequence[int]
) -> dict[int, float]:
    """Return the cosine of a query and the nearest vector of each of `docs` that has one."""
    vector = context.query_vector(context.for_embedder(query))
    if vector is None:
        return {}
    with context.store.database.read() as connection:
        scope_ids = [row.id for row in scopes.find(connection, [scope])]
        blobs = search.vectors_of(connection, scope_ids, context.embedder.fingerprint, docs)
    slices = {doc: slices_of(blob, vector.shape[0]) for doc, blob in blobs.items()}
    # An item without a word that the embedder knows has a vector of zeros, which is near nothing.
    return {doc: float(cosines(vector, own).max()) for doc, own in slices.items() if own.any()}


def namespaces(context: MemoryContext, actor: Actor, scope: Scope) -> list[tuple[str, ...]]:
    """Return every namespace with an item, in order. Raises Denied."""
    context.gate.require(actor, "read", scope)
    with context.store.database.read() as connection:
        scope_ids = [row.id for row in scopes.find(connection, [scope])]
        now = context.store.clock.now()
        names = items.namespaces(connection, scope_ids[0], now) if scope_ids else []
    context.gate.log_read(actor, "search", [scope], results=len(names))
    return names


def _refresh(context: MemoryContext, actor: Actor, scope: Scope, chosen: Sequence[Item]) -> None:
    """Begin the time to live of items anew, for an actor who may write: else reading them changes
    nothing.
    """
    living = [item for item in chosen if item.ttl is not None]
    if not living or context.gate.require_or_none(actor, "write", scope) is None:
        return

    def unit(tx: Connection) -> None:
        now = context.store.clock.now()
        for item in living:
            stored = memories.get(tx, item.memory.id)
            if (
                stored is not None
                and item.ttl is not None
                and _is_live(stored.memory, now)
                # What is pinned keeps the end that it has: reading an item never shortens its life.
                and not stored.memory.pinned
            ):
                memories.set_expiry(tx, stored.doc, now + item.ttl)
                search.touch(tx, [stored.doc], revision=scopes.next_revision(tx, stored.scope_id))

    writes = Writes.of(*{item.memory.scope for item in living})
    context.store.database.write_if_possible(unit, name="store.refresh", writes=writes)


def sweep_items(
    context: MemoryContext, actor: Actor, scope: Scope, *, idempotency_key: str | None = None
) -> int:
    """Forget the items whose time to live is over; return their number. No read finds them before,
    either. Raises Denied.
    """
    context.gate.require(actor, "delete", scope)
    call = IdempotentCall(scope, "store.sweep", idempotency_key, None)

    def unit(tx: Connection) -> int:
        context.gate.confirm(tx, actor, "delete", scope)
        answered = call.read_answer(tx)
        if answered is not None:
            return int(answered["forgotten"])
        write = MemoryWrite(tx, context, actor, context.store.clock.now(), None)
        scope_ids = [row.id for row in scopes.find(tx, [scope])]
        rows = (
            [row for row in items.beneath(tx, scope_ids[0], ()) if row.ttl is not None]
            if scope_ids
            else []
        )
        expired = [
            stored
            for stored in memories.get_docs(tx, [row.doc for row in rows]).values()
            if stored.memory.state == "active"
            and not stored.memory.pinned
            and not _is_live(stored.memory, write.now)
        ]
        for stored in expired:
            forget_one(write, write.permit_upkeep(stored), "its time to live is over")
        call.keep(tx, {"forgotten": len(expired)}, at=write.now)
        return len(expired)

    with context.gate.journaling(actor):
        # A copy in another scope goes with what it was copied from.
        return context.store.database.write_mostly(
            unit, name="store.sweep", writes=Writes.of(scope)
        )


@dataclass(frozen=True)
class Items:
    """The items of one scope as one actor sees them: `bound.items`."""

    context: MemoryContext
    actor: Actor
    scope: Scope
    on_put: Callable[[], None] = lambda: None
    """Called after items were put."""

    def put(self, puts: Sequence[Put], *, idempotency_key: str | None = None) -> None:
        """Put and delete in one transaction, all or none.

        Raises Denied, InvalidInput, InvalidRecord, IdempotencyMismatch, or StateConflict for an
        item that is pinned or locked.
        """
        deletions = sum(put.value is None for put in puts)
        gate = self.context.gate
        gate.admit(self.actor, "write", self.scope, count=len(puts) - deletions)
        gate.admit(self.actor, "forget", self.scope, count=deletions)
        put_items(self.context, self.actor, self.scope, puts, idempotency_key=idempotency_key)
        self.on_put()

    def get(
        self, addresses: Sequence[tuple[tuple[str, ...], str]], *, refresh: Sequence[bool] = ()
    ) -> list[Item | None]:
        """Return the item under each (namespace, key), or None. Raises Denied."""
        self.context.gate.admit(self.actor, "read", self.scope)
        return get_items(self.context, self.actor, self.scope, addresses, refresh=refresh)

    def find(self, prefix: Sequence[str] = (), **options: Any) -> list[Item]:
        """Return the items beneath a namespace; `options` are query, keep, limit, offset and
        refresh. Raises Denied.
        """
        self.context.gate.admit(self.actor, "read", self.scope)
        return find_items(self.context, self.actor, self.scope, prefix, **options)

    def namespaces(self) -> list[tuple[str, ...]]:
        """Return every namespace with an item, in order. Raises Denied."""
        self.context.gate.admit(self.actor, "read", self.scope)
        return namespaces(self.context, self.actor, self.scope)

    def sweep(self, *, idempotency_key: str | None = None) -> int:
        """Forget the items whose time to live is over; return their number. Raises Denied,
        IdempotencyMismatch.
        """
        return sweep_items(self.context, self.actor, self.scope, idempotency_key=idempotency_key)
