"""Showing: a memory without its words, and how its text begins. Whose text is given at all is
decided in `access`.
"""

from __future__ import annotations

from typing import Any

from tallystick.memory.context import MemoryContext
from tallystick.records import Memory

__all__ = ["bare", "beginning"]

_WORDS: dict[str, Any] = {
    "content": "",
    "subject": None,
    "who": None,
    "category": None,
    "attributes": {},
    "tags": (),
    "conversation": None,
}


def bare(memory: Memory) -> Memory:
    """A memory without anything that somebody wrote."""
    return memory.model_copy(update=_WORDS)


def beginning(context: MemoryContext, memory: Memory, *, most: int) -> str:
    """How a memory's text begins, secrets replaced."""
    text, _ = context.redactor.redact_text(memory.content)
    return text if len(text) <= most else text[: most - 1] + "…"
