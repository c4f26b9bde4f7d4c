"""Read memories by id and in order, without a query."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import get_args

from tallystick.access import shown_to
from tallystick.errors import InvalidInput
from tallystick.memory.context import MemoryContext
from tallystick.memory.previews import bare
from tallystick.records import Actor, Memory, MemoryState, Scope
from tallystick.storage import memories, scopes

__all__ = ["get", "is_over", "list_memories", "require_states", "still_stand"]

_MOST = 2**53


def get(context: MemoryContext, actor: Actor, memory_id: str) -> Memory:
    """One memory. Raises NotFound alike for absent, forgotten and hidden ones, and where only a
    part may be seen.
    """
    with context.store.database.read() as connection:
        stored = context.visible(connection, actor, memory_id, "read")
        if stored.doc not in shown_to(
            connection, context.gate, actor, [stored], context.store.clock.now()
        ):
            raise context.absent(actor, memory_id)
    context.gate.log_read(actor, "get", [stored.memory.scope], results=1)
    return stored.memory


def list_memories(
    context: MemoryContext,
    actor: Actor,
    scope: Scope,
    *,
    kinds: Sequence[str] = (),
    states: Sequence[MemoryState] = ("active",),
    conversation: str | None = None,
    limit: int = 50,
    before: str | None = None,
) -> list[Memory]:
    """Memories of `scope`, newest first; give the last id of a page as `before` for the next one.

    Those that were forgotten or hidden, or replaced by what the actor may not see, come without
    their text. Raises Denied, InvalidInput, and NotFound for an unknown `before`.
    """
    require_states(states)
    if limit < 1:
        raise InvalidInput("`limit` must be at least 1.")
    context.gate.require(actor, "read", scope)
    with context.store.database.read() as connection:
        ids = [row.id for row in scopes.find(connection, [scope])]
        before_doc = (
            None if before is None else context.visible(connection, actor, before, "read").doc
        )
        found = memories.latest(
            connection,
            ids,
            kinds=kinds,
            states=states,
            conversation=conversation,
            limit=min(limit, _MOST),
            before_doc=before_doc,
        )
        shown = shown_to(connection, context.gate, actor, found, context.store.clock.now())
    context.gate.log_read(actor, "list", [scope], results=len(found))
    return [stored.memory if stored.doc in shown else bare(stored.memory) for stored in found]


def still_stand(context: MemoryContext, actor: Actor, found: Iterable[Memory]) -> bool:
    """Whether memories that were recalled stand as they stood then, and may be read still. Nothing
    is logged.
    """
    now = context.store.clock.now()
    with context.store.database.read() as connection:
        for memory in found:
            stored = memories.get(connection, memory.id, sources=False)
            if (
                stored is None
                or stored.memory.version != memory.version
                or is_over(stored.memory, now)
            ):
                return False
            if not context.gate.decide(connection, actor, "read", stored.memory.scope).allowed:
                return False
            if not shown_to(connection, context.gate, actor, [stored], now):
                return False
    return True


def is_over(memory: Memory, now: int) -> bool:
    """Whether a memory has passed its end."""
    return memory.expires_at is not None and memory.expires_at <= now


def require_states(states: Sequence[str]) -> None:
    """Raise InvalidInput for what is no state of a memory."""
    unknown = sorted(set(states) - set(get_args(MemoryState)))
    if unknown:
        raise InvalidInput(
            f"There is no state {unknown[0]!r}. Use {', '.join(get_args(MemoryState))}."
        )
