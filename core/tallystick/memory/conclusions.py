"""Conclusions: what was concluded or copied from memories follows them.

A conclusion of which every origin has left recall leaves it too, in the same transaction, and is
back with the first of them. One that a person accepted, edited or pinned stays, and says that what
it rests on is gone.
"""

from __future__ import annotations

from typing import Any, Final

from tallystick.memory.context import MemoryContext, Write, is_made_by_extension
from tallystick.records import Actor, JournalEntry, Memory
from tallystick.storage import Connection
from tallystick.storage.rows import (
    edges,
    journal,
    memories,
    memory_versions,
    occurrences,
    proposals,
)

ORIGIN_GONE: Final = "origin_gone"
"""The correction under which a conclusion is while all that it rests on is gone, and its reason."""
_BACK = "what it was concluded from is back"
_WITHDRAWN = "the shared memory was withdrawn"
_HOLDING = ("active", "duplicate")
"""States of an origin in which it bears out what was concluded from it."""


def conclusions_of(connection: Connection, stored: memories.Stored) -> list[memories.Stored]:
    """Return the memories that were concluded from one, oldest first; copies that were promoted
    from it say by themselves what they say, and are none.
    """
    docs = [
        edge.from_doc
        for edge in edges.of(connection, stored.doc)
        if edge.kind == "DERIVED_FROM" and edge.to_doc == stored.doc
    ]
    found = memories.get_docs(connection, docs)
    return [
        found[doc]
        for doc in docs
        if doc in found
        and not is_made_by_extension(found[doc].memory)
        and not _is_promoted(connection, stored, found[doc])
    ]


def readable_conclusions(
    connection: Connection, context: MemoryContext, actor: Actor, stored: memories.Stored
) -> tuple[str, ...]:
    """Return the ids of the memories concluded from one that an actor may read."""
    return tuple(
        each.memory.id
        for each in conclusions_of(connection, stored)
        if context.gate.decide(connection, actor, "read", each.memory.scope).allowed
    )


def follow_origins(write: Write, origin: memories.Stored, after: Memory) -> None:
    """Bring along what was concluded from a memory that was just rewritten as `after`."""
    is_gone = after.state not in _HOLDING
    if is_gone == (origin.memory.state not in _HOLDING):
        return
    for conclusion in conclusions_of(write.tx, origin):
        memory = conclusion.memory
        if is_gone and memory.state in memories.FINDABLE and memory.corrected != ORIGIN_GONE:
            if not any(_origins_hold(write.tx, conclusion)):
                withdraw_conclusion(write, conclusion, origin)
        elif not is_gone and memory.corrected == ORIGIN_GONE and memory.state != "deleted":
            before = memory_versions.earlier_body(
                write.tx,
                conclusion.doc,
                memory.version,
                lambda body: body.get("corrected") != ORIGIN_GONE,
            )
            if before is not None and not _is_said_anew(write.tx, conclusion):
                update = {"state": before["state"], "corrected": before.get("corrected")}
                _move(write, conclusion, origin, update, _BACK)


def withdraw_conclusion(write: Write, conclusion: memories.Stored, origin: memories.Stored) -> None:
    """Take a conclusion out of recall, all of whose origins are gone; a person's stays there."""
    update: dict[str, Any] = {"corrected": ORIGIN_GONE}
    update |= {} if is_a_persons(write.tx, conclusion) else {"state": "hidden"}
    _move(write, conclusion, origin, update, ORIGIN_GONE)


def unfounded(connection: Connection) -> list[memories.Stored]:
    """Return the conclusions that recall shows though nothing bears them out any more."""
    docs = edges.without_end(connection, "DERIVED_FROM", memories.FINDABLE, _HOLDING)
    return [
        stored
        for stored in memories.get_docs(connection, docs).values()
        if not is_made_by_extension(stored.memory)
        and (hold := _origins_hold(connection, stored))
        and not any(hold)
        and (stored.memory.corrected is None or not is_a_persons(connection, stored))
    ]


def _move(
    write: Write,
    conclusion: memories.Stored,
    origin: memories.Stored,
    update: dict[str, Any],
    reason: str,
) -> None:
    before, after = conclusion.memory, conclusion.memory.model_copy(update=update)
    write.rewrite(
        write.permit_follower(conclusion, "DERIVED_FROM", origin),
        after,
        "memory.correct",
        reason=reason,
        details={
            "correction": ORIGIN_GONE if after.corrected == ORIGIN_GONE else "restore",
            "follows": origin.memory.id,
            "before": before.state,
            "after": after.state,
        },
    )


def settle_by_origins(connection: Connection, current: memories.Stored, after: Memory) -> Memory:
    """Return a memory that comes back, under `origin_gone` just if all that it was concluded from
    is gone by now.
    """
    hold = _origins_hold(connection, current)
    if after.corrected == ORIGIN_GONE and any(hold):
        return after.model_copy(update={"state": "active", "corrected": None})
    if after.corrected is None and after.state == "active" and hold and not any(hold):
        return after.model_copy(update={"corrected": ORIGIN_GONE})
    return after


def _origins_hold(connection: Connection, conclusion: memories.Stored) -> list[bool]:
    """Return for each memory that this was concluded from whether it still says so."""
    docs = [
        edge.to_doc
        for edge in edges.of(connection, conclusion.doc)
        if edge.kind == "DERIVED_FROM" and edge.from_doc == conclusion.doc
    ]
    found = memories.get_docs(connection, docs)
    return [
        each.memory.state in _HOLDING
        for each in found.values()
        if not _is_promoted(connection, each, conclusion)
    ]


def withdraw_copies(write: Write, origin: memories.Stored, sharing: edges.Sharing) -> None:
    """Forget the shared copies of a memory that is withdrawn, and end their links."""
    for edge_id, doc in sharing.copies:
        copied = memories.get_docs(write.tx, [doc])[doc]
        if copied.memory.state == "deleted":
            continue
        forgotten = copied.memory.model_copy(update={"state": "deleted", "corrected": "delete"})
        permitted = write.permit_follower(copied, "SHARES", origin)
        write.rewrite(permitted, forgotten, "memory.forget", reason=_WITHDRAWN)
        edges.close(write.tx, [edge_id], at=write.now)


def is_a_persons(connection: Connection, conclusion: memories.Stored) -> bool:
    """Return True if a person accepted, edited or pinned a conclusion."""
    memory = conclusion.memory
    if memory.pinned or memory.locked_until is not None:
        return True
    if proposals.has_made(connection, conclusion.scope_id, memory.id):
        return True
    return any(
        entry.event in ("memory.update", "memory.correct")
        and "follows" not in entry.details
        and entry.actor.get("agent") is None
        for entry in _entries(connection, memory)
    )


def _is_promoted(connection: Connection, origin: memories.Stored, copied: memories.Stored) -> bool:
    if copied.scope_id == origin.scope_id:
        return False
    entries = _entries(connection, copied.memory)
    return bool(entries) and entries[0].details.get("by") == "promote"


def _entries(connection: Connection, memory: Memory) -> list[JournalEntry]:
    return journal.about(connection, memory.id, stream=f"scope:{memory.scope}")


def _is_said_anew(connection: Connection, conclusion: memories.Stored) -> bool:
    """Return True if another memory says the same by now."""
    memory = conclusion.memory
    if memory.state in memories.FINDABLE or memory.conversation is not None:
        return False
    key = conclusion.content_key
    return occurrences.find_statement(connection, conclusion.scope_id, memory.kind, key) is not None
