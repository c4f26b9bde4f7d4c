"""Read memories by id and in order, without a query."""

from __future__ import annotations

from collections.abc import Sequence

from tallystick.access import shown_to
from tallystick.memory.room import MemoryRoom
from tallystick.memory.showing import bare
from tallystick.records import Actor, Memory, MemoryState, Scope
from tallystick.storage import memories, scopes

__all__ = ["get", "list_memories"]


def get(room: MemoryRoom, actor: Actor, memory_id: str) -> Memory:
    """One memory. Raises NotFound alike for absent, forgotten and hidden ones, and where only a part may be seen."""
    with room.store.database.read() as connection:
        stored = room.visible(connection, actor, memory_id, "read")
        if stored.doc not in shown_to(connection, room.gate, actor, [stored], room.store.clock.now()):
            raise room.absent(actor, memory_id)
    room.gate.log_read(actor, "get", [stored.memory.scope], results=1)
    return stored.memory


def list_memories(
    room: MemoryRoom, actor: Actor, scope: Scope, *, kinds: Sequence[str] = (),
    states: Sequence[MemoryState] = ("active",), conversation: str | None = None, limit: int = 50,
    before: str | None = None,
) -> list[Memory]:  # fmt: skip
    """Memories of `scope`, newest first; give the last id of a page as `before` for the next one.

    Those that were forgotten or hidden, or replaced by what the actor may not see, come without their text.
    Raises Denied, and NotFound for an unknown `before`.
    """
    room.gate.require(actor, "read", scope)
    with room.store.database.read() as connection:
        ids = [row.id for row in scopes.find(connection, [scope])]
        before_doc = None if before is None else room.visible(connection, actor, before, "read").doc
        found = memories.latest(
            connection,
            ids,
            kinds=kinds,
            states=states,
            conversation=conversation,
            limit=limit,
            before_doc=before_doc,
        )
        shown = shown_to(connection, room.gate, actor, found, room.store.clock.now())
    room.gate.log_read(actor, "list", [scope], results=len(found))
    return [stored.memory if stored.doc in shown else bare(stored.memory) for stored in found]
