"""Make a memory findable or unfindable, inside the transaction that changes it."""

from __future__ import annotations

from sqlalchemy import Connection

from tallystick.memory.room import index_words
from tallystick.records import Memory
from tallystick.storage import outbox, search

__all__ = ["hide", "show"]


def show(
    tx: Connection, memory: Memory, *, doc: int, scope_id: int, vector: bytes | None, fingerprint: str
) -> None:  # fmt: skip
    """Index the words and, when there is one, the vector of a memory."""
    search.add_text(tx, doc, scope_id, index_words(memory))
    if vector is not None:
        search.add_vectors(tx, [(doc, scope_id, memory.version, vector)], fingerprint)
        outbox.append(tx, [doc])


def hide(tx: Connection, doc: int) -> None:
    """Take a memory out of every index."""
    search.drop(tx, doc)
    outbox.append(tx, [doc])
