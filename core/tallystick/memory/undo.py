"""Undo: the inverse of a change of a memory, while nothing came after it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from tallystick.errors import StateConflict
from tallystick.memory.change import CHANGEABLE, apply_modify, forget_one, recover_memory
from tallystick.memory.memory_write import MemoryWrite
from tallystick.records import JournalEntry, Memory, MemoryState
from tallystick.storage import Connection
from tallystick.storage.rows import memories, memory_versions

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


def may_undo(connection: Connection, stored: memories.Stored, entry: JournalEntry) -> bool:
    """Return False where an entry cannot be undone: what was added is pinned by now, or the text
    that would come back was destroyed.
    """
    if entry.event == "memory.add":
        return not stored.memory.pinned
    return undone_memory(connection, stored, entry) is not None


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
