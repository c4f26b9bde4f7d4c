"""Protection: what keeps a memory from being changed although the actor has the right to.

A pin keeps it from being forgotten by anybody and from any change by an agent; a lock keeps a
person's edit from agents until it has ended.
"""

from __future__ import annotations

from tallystick.errors import StateConflict
from tallystick.records import AccessKind, Actor, Memory
from tallystick.storage import Connection
from tallystick.storage.rows import edges, memories


def require_unprotected(
    connection: Connection,
    stored: memories.Stored,
    operation: AccessKind,
    *,
    actor: Actor,
    now: int,
    force: bool = False,
) -> None:
    """Raise StateConflict where a pin or a lock keeps this actor from `operation`; `force` lets an
    operator delete what is pinned.
    """
    memory = stored.memory
    deletes = operation == "delete" and memory.state != "deleted"
    if deletes and memory.pinned and not (force and actor.is_operator):
        raise StateConflict(
            memory.id,
            state="pinned",
            reason="pinned_memory",
            hint="Let a person unpin it first, or an operator delete it: preview "
            'corrections.make(…, "delete", force=True) and apply it with its token.',
        )
    if is_pinned_for(connection, stored, actor):
        raise StateConflict(
            memory.id,
            state="pinned",
            reason="pinned_memory",
            hint="An agent changes nothing that is pinned, here or as a shared copy: ask a person.",
        )
    if is_locked(memory, actor, now):
        raise StateConflict(
            memory.id,
            state="locked",
            reason="manual_override",
            hint="A person locked this edit; ask one, or wait until the lock has ended.",
        )


def is_locked(memory: Memory, actor: Actor, now: int) -> bool:
    """Return True if a person's edit is locked against this actor, an agent."""
    return actor.agent is not None and memory.locked_until is not None and now < memory.locked_until


def is_pinned_for(connection: Connection, stored: memories.Stored, actor: Actor) -> bool:
    """Return True if a pin keeps this actor, an agent, from changing a memory.

    The pin is its own or that of a shared copy: a copy follows its origin, so that whoever changes
    or withdraws the origin would change or withdraw what is pinned.
    """
    if actor.agent is None:
        return False
    docs = [copy.doc for copy in edges.sharing(connection, stored.doc).copies]
    copies = memories.get_docs(connection, docs).values() if docs else ()
    return stored.memory.pinned or any(
        copy.memory.pinned and copy.memory.state != "deleted" for copy in copies
    )
