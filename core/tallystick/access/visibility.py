"""Visibility: which memories an actor is shown, by their state, their end and what replaces them.

A forgotten or hidden memory is shown to nobody; a superseded one only where its replacement may be
seen too. A redacted one is shown with its replacement text.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from tallystick.access.gate import Gate
from tallystick.records import Actor, Memory, Scope
from tallystick.storage import Connection
from tallystick.storage.rows import edges, memories

UNREADABLE = ("deleted", "hidden")
"""States in which no path gives the text, until the memory is back."""


def visible_docs(
    connection: Connection, gate: Gate, actor: Actor, stored: Iterable[memories.Stored], now: int
) -> set[int]:
    """Return the numbers of those memories whose text this actor, who may read their scopes, may
    see.
    """
    entries = list(stored)
    superseded = [entry.doc for entry in entries if entry.memory.state == "superseded"]
    heads = (
        replacements(
            connection,
            superseded,
            lambda scope: gate.decide(connection, actor, "read", scope).allowed,
            now,
        )
        if superseded
        else {}
    )
    return {
        entry.doc
        for entry in entries
        if entry.memory.state not in UNREADABLE
        and (entry.memory.state != "superseded" or entry.doc in heads)
    }


def replacements(
    connection: Connection, docs: Iterable[int], may_read: Callable[[Scope], bool], now: int
) -> dict[int, memories.Stored]:
    """Return for each superseded memory the one that holds in its place, at the end of the chain;
    those of which the replacement may not be seen are left out.
    """
    ends = edges.follow_to_end(connection, "SUPERSEDES", docs, forward=False)
    stored = memories.get_docs(connection, set(ends.values()))
    return {
        doc: stored[end]
        for doc, end in ends.items()
        if end in stored
        and is_recallable(stored[end].memory, now)
        and may_read(stored[end].memory.scope)
    }


def is_expired(expires_at: int | None, now: int) -> bool:
    """Return True if a memory with this end (microseconds UTC, None for no end) has passed it at
    `now`.
    """
    return expires_at is not None and expires_at <= now


def is_recallable(memory: Memory, now: int) -> bool:
    """Return True if recall may give a memory at `now` (microseconds UTC), by its state and its
    end.
    """
    return memory.state in ("active", "redacted") and not is_expired(memory.expires_at, now)
