"""Items: memories that are addressed by a namespace and a key, as the stores of runtimes keep them.

Each put is a version with its source and its journal entry; a delete is a forget, and a put after
it a new memory. Address and memory are written in one transaction, so that what is found is what
stands.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from tallystick.errors import InvalidInput, StateConflict
from tallystick.memory.change import apply_modify, forget_one, require_unlocked
from tallystick.memory.context import MemoryContext
from tallystick.memory.fields import INDEX, item_content, item_value
from tallystick.memory.memory_write import MemoryWrite
from tallystick.memory.recall import Wanted, recall
from tallystick.memory.remember import Prepared, check_new, ingest_one, prepare
from tallystick.records import Actor, Memory, NewMemory, Scope, is_storable
from tallystick.storage import Connection, ScopeRow, items, memories, scopes, search
from tallystick.storage.idempotency import IdempotentCall

__all__ = [
    "Item",
    "Items",
    "Put",
    "find_items",
    "get_items",
    "namespaces",
    "put_items",
    "sweep_items",
]

KIND = "store_item"


@dataclass(frozen=True)
class Put:
    """One change of a store."""

    namespace: tuple[str, ...]
    key: str
    value: dict[str, Any] | None
    """None deletes."""
    index: tuple[str, ...] = ("$",)
    """Paths of the fields by which it is found; none for an item that only its address finds."""
    ttl: int | None = None
    """Microseconds that it lives after it was put, or read; None lives on."""


@dataclass(frozen=True)
class Item:
    """What stands under an address."""

    namespace: tuple[str, ...]
    key: str
    memory: Memory
    ttl: int | None = None
    score: float | None = None
    """Relative to the best; None where nothing was asked, or nothing of it answers."""

    @property
    def value(self) -> dict[str, Any]:
        """The value as it was put, or as it was changed since."""
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
                "An item needs a namespace; neither its labels nor its key may hold a NUL or "
                "half a character."
            )
    made = [_new(put) for put in puts]
    for new in made:
        if new is not None:
            check_new(new)
    ready = iter(prepare(context, actor, [new for new in made if new is not None]))
    prepared = [None if new is None else next(ready) for new in made]
    once = IdempotentCall(
        scope,
        "store.put",
        idempotency_key,
        [
            [put.namespace, put.key, None if new is None else new.content, put.index, put.ttl]
            for put, new in zip(puts, made, strict=True)
        ],
    )

    def unit(tx: Connection) -> None:
        context.gate.confirm(tx, actor, "write", scope)
        if once.answered(tx) is not None:
            return
        writing = MemoryWrite(tx, context, actor, context.store.clock.now(), None)
        row = scopes.ensure(tx, scope)
        for put, item in zip(puts, prepared, strict=True):
            _put(writing, row, put, item)
        once.keep(tx, {}, at=writing.now)

    if puts:
        with context.gate.journaling(actor):
            context.store.database.write(unit, name="store.put")


def _new(put: Put) -> NewMemory | None:
    if put.value is None:
        return None
    try:
        content = item_content(put.namespace, put.key, put.value)
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidInput(f"The value of {put.key!r} holds what JSON cannot: {error}.") from error
    return NewMemory(content=content, kind=KIND, attributes={INDEX: list(put.index)})


def _put(writing: MemoryWrite, scope: ScopeRow, put: Put, item: Prepared | None) -> None:
    tx, now = writing.tx, writing.now
    row = items.find(tx, scope.id, put.namespace, put.key)
    standing = memories.get_docs(tx, [row.doc]).get(row.doc) if row is not None else None
    current = standing if standing is not None and _stands(standing.memory, now) else None
    if item is None:
        if current is not None:
            _free(writing, current.memory)
            forget_one(writing, current, "deleted from the store")
        return
    expires = None if put.ttl is None else now + put.ttl
    if current is None:
        if standing is not None and standing.memory.state == "active":
            # It ran out: what comes now is another item.
            forget_one(writing, standing, "its time to live is over")
        remembered = ingest_one(writing, scope, item)
        made = memories.get(tx, remembered.memory_id)
        assert made is not None
        doc = made.doc
        if expires is not None:
            _expire(writing, made, expires)
    else:
        doc = current.doc
        new = item.new
        memory = current.memory.model_copy(
            update={"content": new.content, "attributes": new.attributes}
        )
        if memories.body_of(memory) != memories.body_of(current.memory):
            _free(writing, current.memory)
            apply_modify(
                writing, current, memory, scope, item.vector, ["content"], "put in the store"
            )
            current = memories.get_docs(tx, [doc])[doc]
        if expires != current.memory.expires_at:
            _expire(writing, current, expires)
    items.set_item(tx, scope.id, items.Row(put.namespace, put.key, doc, put.ttl))


def _free(writing: MemoryWrite, memory: Memory) -> None:
    if memory.pinned:
        raise StateConflict(
            memory.id,
            state="pinned",
            reason="pinned_memory",
            hint="Unpin it before the store may change it.",
        )
    require_unlocked(memory, writing.actor, writing.now)


def _expire(writing: MemoryWrite, stored: memories.Stored, at: int | None) -> None:
    memories.set_expiry(writing.tx, stored.doc, at)
    search.touch(
        writing.tx, [stored.doc], revision=scopes.next_revision(writing.tx, stored.scope_id)
    )


def _stands(memory: Memory, now: int) -> bool:
    return memory.state == "active" and (memory.expires_at is None or memory.expires_at > now)


def get_items(
    context: MemoryContext,
    actor: Actor,
    scope: Scope,
    addresses: Sequence[tuple[tuple[str, ...], str]],
    *,
    refresh: Sequence[bool] = (),
) -> list[Item | None]:
    """What stands under each address, None where nothing does; those with `refresh` live their time
    anew.

    Raises Denied.
    """
    context.gate.require(actor, "read", scope)
    now = context.store.clock.now()
    with context.store.database.read() as connection:
        found = [row.id for row in scopes.find(connection, [scope])]
        rows = [
            items.find(connection, found[0], namespace, key) if found and is_storable(key) else None
            for namespace, key in addresses
        ]
        stored = memories.get_docs(connection, [row.doc for row in rows if row is not None])
    given: list[Item | None] = []
    for row in rows:
        memory = stored[row.doc].memory if row is not None and row.doc in stored else None
        shown = row is not None and memory is not None and _stands(memory, now)
        given.append(
            Item(row.namespace, row.key, memory, row.ttl) if shown and row and memory else None
        )
    _refresh(
        context,
        [item for item, wanted in zip(given, refresh, strict=False) if wanted and item is not None],
    )
    context.gate.log_read(actor, "get", [scope], results=sum(item is not None for item in given))
    return given


def find_items(
    context: MemoryContext,
    actor: Actor,
    scope: Scope,
    prefix: Sequence[str],
    *,
    query: str | None = None,
    keep: Callable[[dict[str, Any]], bool] = lambda value: True,
    limit: int = 10,
    offset: int = 0,
    refresh: bool = False,
) -> list[Item]:
    """The items whose namespace begins with `prefix` and whose value passes `keep`.

    With a `query` the best answers come first, by the scores of recall for what an item says
    itself, then the others; without one the newest come first. Raises Denied.
    """
    context.gate.require(actor, "read", scope)
    now = context.store.clock.now()
    with context.store.database.read() as connection:
        found = [row.id for row in scopes.find(connection, [scope])]
        rows = items.beneath(connection, found[0], prefix) if found else []
        stored = memories.get_docs(connection, [row.doc for row in rows])
    standing = [
        Item(row.namespace, row.key, stored[row.doc].memory, row.ttl)
        for row in rows
        if row.doc in stored
        and _stands(stored[row.doc].memory, now)
        and keep(item_value(stored[row.doc].memory.content))
    ]
    standing.sort(key=lambda item: (-item.memory.updated_at, item.namespace, item.key))
    if query and query.strip():
        docs = {one.memory.id: doc for doc, one in stored.items()}
        standing = _ranked(context, actor, scope, query, standing, docs, offset + limit)
    chosen = standing[offset : offset + limit]
    if refresh:
        _refresh(context, chosen)
    context.gate.log_read(actor, "search", [scope], results=len(chosen))
    return chosen


def _ranked(
    context: MemoryContext,
    actor: Actor,
    scope: Scope,
    query: str,
    standing: Sequence[Item],
    docs: dict[str, int],
    most: int,
) -> list[Item]:
    wanted = Wanted(
        limit=max(1, most),
        weights=context.weights.by_itself().replace(vector_only=0.0),
        docs=frozenset(docs[item.memory.id] for item in standing),
    )
    hits = recall(context, actor, [scope], query, wanted, logged=False)
    scores = {hit.memory.id: hit.score for hit in hits}
    by_id = {item.memory.id: item for item in standing}
    best = [
        Item(item.namespace, item.key, item.memory, item.ttl, scores[hit.memory.id])
        for hit in hits
        if (item := by_id.get(hit.memory.id)) is not None
    ]
    return [*best, *(item for item in standing if item.memory.id not in scores)]


def namespaces(context: MemoryContext, actor: Actor, scope: Scope) -> list[tuple[str, ...]]:
    """Every namespace that holds an item, in order. Raises Denied."""
    return sorted({item.namespace for item in find_items(context, actor, scope, (), limit=2**31)})


def _refresh(context: MemoryContext, found: Sequence[Item]) -> None:
    """Let items live their time anew."""
    living = [item for item in found if item.ttl is not None]
    if not living:
        return

    def unit(tx: Connection) -> None:
        now = context.store.clock.now()
        for item in living:
            stored = memories.get(tx, item.memory.id)
            if stored is not None and item.ttl is not None and _stands(stored.memory, now):
                memories.set_expiry(tx, stored.doc, now + item.ttl)
                search.touch(tx, [stored.doc], revision=scopes.next_revision(tx, stored.scope_id))

    context.store.database.write(unit, name="store.refresh")


def sweep_items(
    context: MemoryContext, actor: Actor, scope: Scope, *, idempotency_key: str | None = None
) -> int:
    """Forget the items whose time to live is over; how many. They are found by nobody before,
    either. Raises Denied.
    """
    context.gate.require(actor, "delete", scope)
    once = IdempotentCall(scope, "store.sweep", idempotency_key, None)

    def unit(tx: Connection) -> int:
        context.gate.confirm(tx, actor, "delete", scope)
        answered = once.answered(tx)
        if answered is not None:
            return int(answered["forgotten"])
        writing = MemoryWrite(tx, context, actor, context.store.clock.now(), None)
        found = [row.id for row in scopes.find(tx, [scope])]
        rows = (
            [row for row in items.beneath(tx, found[0], ()) if row.ttl is not None] if found else []
        )
        over = [
            stored
            for stored in memories.get_docs(tx, [row.doc for row in rows]).values()
            if stored.memory.state == "active" and not _stands(stored.memory, writing.now)
        ]
        for stored in over:
            forget_one(writing, stored, "its time to live is over")
        once.keep(tx, {"forgotten": len(over)}, at=writing.now)
        return len(over)

    with context.gate.journaling(actor):
        return context.store.database.write(unit, name="store.sweep")


@dataclass(frozen=True)
class Items:
    """The items of one scope as one actor sees them: what `bound.items` gives."""

    context: MemoryContext
    actor: Actor
    scope: Scope
    written: Callable[[], None] = lambda: None
    """Told after something was put."""

    def put(self, puts: Sequence[Put], *, idempotency_key: str | None = None) -> None:
        """Put and delete in one transaction, all or none.

        Raises Denied, InvalidInput, InvalidRecord, IdempotencyMismatch, or StateConflict for an
        item that is pinned or locked.
        """
        put_items(self.context, self.actor, self.scope, puts, idempotency_key=idempotency_key)
        self.written()

    def get(
        self, addresses: Sequence[tuple[tuple[str, ...], str]], *, refresh: Sequence[bool] = ()
    ) -> list[Item | None]:
        """What stands under each (namespace, key). Raises Denied."""
        self.context.gate.admit(self.actor, "read", self.scope)
        return get_items(self.context, self.actor, self.scope, addresses, refresh=refresh)

    def find(self, prefix: Sequence[str] = (), **wanted: Any) -> list[Item]:
        """The items beneath a namespace; `wanted` are query, keep, limit, offset and refresh.
        Raises Denied.
        """
        self.context.gate.admit(self.actor, "read", self.scope)
        return find_items(self.context, self.actor, self.scope, prefix, **wanted)

    def namespaces(self) -> list[tuple[str, ...]]:
        """Every namespace that holds an item, in order. Raises Denied."""
        self.context.gate.admit(self.actor, "read", self.scope)
        return namespaces(self.context, self.actor, self.scope)

    def sweep(self, *, idempotency_key: str | None = None) -> int:
        """Forget the items whose time to live is over; how many. Raises Denied,
        IdempotencyMismatch.
        """
        return sweep_items(self.context, self.actor, self.scope, idempotency_key=idempotency_key)
