"""Undo: the inverse of a change of a memory, while nothing came after it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from tallystick.errors import StateConflict
from tallystick.memory.change import CHANGEABLE, apply_modify, forget_one, recover_memory
from tallystick.memory.context import MemoryContext
from tallystick.memory.memory_write import MemoryWrite, require_unprotected
from tallystick.records import AccessKind, Actor, JournalEntry, Memory, MemoryState, part_key
from tallystick.storage import Connection
from tallystick.storage.rows import memories, memory_versions, occurrences

Undone = Literal["recovered", "forgotten", "restored"]
_UNDONE: Mapping[str, tuple[MemoryState, Undone]] = {
    "memory.add": ("active", "forgotten"),
    "memory.forget": ("deleted", "recovered"),
    "memory.update": ("active", "restored"),
}
EVENTS = tuple(_UNDONE)
"""Events of the journal that can be undone."""


def would_undo(memory: Memory, entry: JournalEntry) -> Undone | None:
    """Return the outcome of undoing what an entry of the journal says of a memory; None where
    something came after it.
    """
    state, undone = _UNDONE[entry.event]
    is_last = entry.details.get("version") == memory.version
    return undone if is_last and memory.state == state else None


def undone_memory(
    connection: Connection, stored: memories.Stored, entry: JournalEntry
) -> Memory | None:
    """Return a memory with the text that it has once an entry is undone; None where that is
    erased.
    """
    if entry.event != "memory.update":
        return stored.memory
    before = memory_versions.earlier_body(
        connection, stored.doc, stored.memory.version, lambda body: True
    )
    if before is None:
        return None
    fields: dict[str, Any] = {name: before[name] for name in CHANGEABLE if name in before}
    return stored.memory.replace(**fields)


def may_undo(
    connection: Connection,
    context: MemoryContext,
    actor: Actor,
    stored: memories.Stored,
    entry: JournalEntry,
    now: int,
) -> bool:
    """Return False where `undo` would raise StateConflict: a pin or a lock keeps the memory, its
    text was destroyed, its recovery window has passed, or another one says the same by now.
    """
    operation: AccessKind = "correct" if entry.event == "memory.update" else "delete"
    try:
        require_unprotected(connection, stored, operation, actor=actor, now=now)
        if entry.event == "memory.forget":
            recover_memory(connection, context, stored, now)
    except StateConflict:
        return False
    again = undone_memory(connection, stored, entry)
    if entry.event != "memory.update" or again is None or again.conversation is not None:
        return again is not None
    key = part_key(stored.scope.secret, again.content.encode("utf-8", "surrogatepass"))
    same = occurrences.find_statement(connection, stored.scope_id, again.kind, key)
    return same is None or same[0] == stored.doc


def undo(
    write: MemoryWrite,
    stored: memories.Stored,
    entry: JournalEntry,
    *,
    reason: str,
    vector: bytes | None,
) -> None:
    """Undo an entry inside the open transaction, with the vector of what comes back. Raises Denied,
    StateConflict.
    """
    if entry.event == "memory.add":
        forget_one(write, write.permit(stored, "delete"), reason)
        return
    if entry.event == "memory.forget":
        again = recover_memory(write.tx, write.context, stored, write.now)
        permitted = write.permit(stored, "delete")
        write.rewrite(permitted, again, "memory.recover", reason=reason, vector=vector)
        return
    memory = undone_memory(write.tx, stored, entry)
    if memory is None:
        raise StateConflict(stored.memory.id, state="erased", reason="its text was destroyed")
    changed = [name for name in CHANGEABLE if getattr(memory, name) != getattr(stored.memory, name)]
    apply_modify(write, write.permit(stored, "correct"), memory, vector, changed, reason)
