"""Showing: of which memories the text is given to an actor who reads them by id or in order.

What was forgotten or hidden is shown to nobody; what was replaced only where its replacement may be
seen too. What is redacted stands there with its replacement.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from tallystick.access.gate import Gate
from tallystick.records import Actor, Memory, Scope
from tallystick.storage import Connection, edges, memories

__all__ = ["UNREADABLE", "recallable", "replacements", "shown_to"]

UNREADABLE = ("deleted", "hidden")
"""States in which no path gives the text, until the memory is back."""
_CHAIN = 32
"""How many replacements of replacements are followed."""


def shown_to(
    connection: Connection, gate: Gate, actor: Actor, found: Iterable[memories.Stored], now: int
) -> set[int]:
    """The numbers of those memories whose text this actor, who may read their scopes, may see."""
    stored = list(found)
    replaced = [one.doc for one in stored if one.memory.state == "superseded"]
    heads = (
        replacements(
            connection,
            replaced,
            lambda scope: gate.decide(connection, actor, "read", scope).allowed,
            now,
        )
        if replaced
        else {}
    )
    return {
        one.doc
        for one in stored
        if one.memory.state not in UNREADABLE
        and (one.memory.state != "superseded" or one.doc in heads)
    }


def replacements(
    connection: Connection, docs: Iterable[int], may_read: Callable[[Scope], bool], now: int
) -> dict[int, memories.Stored]:
    """For each superseded memory what holds in its place, at the end of the chain, where that may
    be seen.
    """
    heads = {doc: doc for doc in docs}
    for _ in range(_CHAIN):
        steps = edges.following(connection, "SUPERSEDES", set(heads.values()), forward=False)
        if not steps:
            break
        heads = {
            doc: steps[head].from_doc if head in steps else head for doc, head in heads.items()
        }
    found = memories.get_docs(connection, {head for doc, head in heads.items() if head != doc})
    return {
        doc: found[head]
        for doc, head in heads.items()
        if head in found
        and recallable(found[head].memory, now)
        and may_read(found[head].memory.scope)
    }


def recallable(memory: Memory, now: int) -> bool:
    """Whether recall may give it at `now` (microseconds UTC), by its state and its end."""
    return memory.state in ("active", "redacted") and (
        memory.expires_at is None or memory.expires_at > now
    )
