"""Showing: of which memories the text is given to an actor who reads them by id or in order, and how a text begins.

What was forgotten or hidden is shown to nobody; what was replaced only where its replacement may be seen too. What is
redacted stands there with its replacement.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from sqlalchemy import Connection

from tallystick.memory.room import MemoryRoom
from tallystick.memory.standing import replacements
from tallystick.records import Actor, Memory
from tallystick.storage import memories

__all__ = ["UNREADABLE", "beginning", "bare", "shown_to"]

UNREADABLE = ("deleted", "hidden")
"""States in which no path gives the text, until the memory is back."""
_WORDS: dict[str, Any] = {"content": "", "subject": None, "who": None, "category": None, "attributes": {}, "tags": (),
          "conversation": None}  # fmt: skip


def shown_to(connection: Connection, room: MemoryRoom, actor: Actor, found: Iterable[memories.Stored]) -> set[int]:
    """The numbers of those memories whose text this actor, who may read their scopes, may see."""
    stored = list(found)
    replaced = [one.doc for one in stored if one.memory.state == "superseded"]
    heads = {}
    if replaced:
        now = room.store.clock.now()
        heads = replacements(
            connection, replaced, lambda scope: room.gate.decide(connection, actor, "read", scope).allowed, now
        )
    return {
        one.doc for one in stored
        if one.memory.state not in UNREADABLE and (one.memory.state != "superseded" or one.doc in heads)
    }  # fmt: skip


def bare(memory: Memory) -> Memory:
    """A memory without anything that somebody wrote."""
    return memory.model_copy(update=_WORDS)


def beginning(room: MemoryRoom, memory: Memory, *, most: int) -> str:
    """How a memory's text begins, secrets replaced."""
    text, _ = room.redactor.redact_text(memory.content)
    return text if len(text) <= most else text[: most - 1] + "…"
