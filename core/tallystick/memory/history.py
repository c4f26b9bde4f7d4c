"""History: everything that happened to a memory, from ADD to RECOVER, with old and new values while they exist."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, cast

from tallystick.memory.room import MemoryRoom
from tallystick.records import Actor, HistoryEntry, JournalEntry
from tallystick.storage import journal, memories

__all__ = ["history"]

_Event = Literal["ADD", "SEEN", "UPDATE", "FORGET", "RECOVER"]
_EVENTS: dict[str, _Event] = {
    "memory.add": "ADD",
    "memory.seen": "SEEN",
    "memory.update": "UPDATE",
    "memory.forget": "FORGET",
    "memory.recover": "RECOVER",
}


def history(room: MemoryRoom, actor: Actor, memory_id: str) -> list[HistoryEntry]:
    """Every event of one memory, oldest first. Raises NotFound for hidden and absent ones alike."""
    with room.store.database.read() as connection:
        stored = room.visible(connection, actor, memory_id, "read")
        events = journal.about(connection, memory_id)
        versions = {version.version: version for version in memories.versions(connection, stored.doc)}
    room.gate.log_read(actor, "history", [stored.memory.scope], results=len(events))
    return [_entry(event, versions) for event in events if event.event in _EVENTS]


def _entry(event: JournalEntry, versions: Mapping[int, memories.VersionBody]) -> HistoryEntry:
    number = int(cast(int, event.details["version"]))
    kind = _EVENTS[event.event]
    old, new = ({}, {}) if kind == "SEEN" else _difference(versions.get(number - 1), versions.get(number))
    return HistoryEntry(
        sequence=event.sequence,
        event=kind,
        at=event.at,
        actor=event.actor,
        surface=event.surface,
        reason=event.reason,
        version=number,
        old=old,
        new=new,
        correlation_id=event.correlation_id,
        audit_id=event.audit_id,
    )


def _difference(
    before: memories.VersionBody | None, after: memories.VersionBody | None
) -> tuple[dict[str, Any], dict[str, Any]]:
    new = dict(after.body) if after is not None and after.body is not None else {}
    if before is None:
        return {}, {name: value for name, value in new.items() if value not in (None, [], {})}
    old = dict(before.body) if before.body is not None else {}
    changed = [name for name in memories.BODY_FIELDS if old.get(name) != new.get(name)]
    return {name: old.get(name) for name in changed}, {name: new.get(name) for name in changed}
