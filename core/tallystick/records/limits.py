"""Limits of what one call may hand over: far beyond what anybody remembers, and below what would
stall everybody else.

Whoever captures for an adapter meets them too: the agent's run goes on, and the turn that was too
large is counted and named in the health of the recorder.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from tallystick.errors import InvalidInput

__all__ = [
    "DEEPEST",
    "LARGEST_ATTRIBUTES",
    "LONGEST_CONTENT",
    "LONGEST_INTEGER",
    "LONGEST_NAME",
    "MOST_ITEMS",
    "MOST_TAGS",
    "require_item_count",
    "require_json_size",
    "require_length",
    "require_tags",
]

LONGEST_CONTENT = 10_000_000
"""Characters of the content of a memory."""
LONGEST_NAME = 1_000
"""Characters of a tag, a speaker, a subject, a category, a conversation, an idempotency key."""
MOST_TAGS = 1_000
"""Tags of one memory."""
LARGEST_ATTRIBUTES = 1_000_000
"""Characters of texts and keys, and four for each other value, in `attributes` and `metadata`."""
DEEPEST = 64
"""Lists and objects inside of one another in `attributes` and `metadata`."""
LONGEST_INTEGER = 1_000
"""Digits of an integer in a JSON value: Python refuses to read more than 4,300."""
MOST_ITEMS = 100_000
"""Items of one `remember_many`."""

_BITS = int(LONGEST_INTEGER * 3.3219)


def require_length(argument: str, text: str | None) -> None:
    """Raise InvalidInput for a text that is too long: `content`, or a name."""
    most = LONGEST_CONTENT if argument == "content" else LONGEST_NAME
    if text is None or len(text) <= most:
        return
    advice = (
        "Remember it in parts, with `remember_many`."
        if argument == "content"
        else "It names something: put a long text into `content` or `attributes`."
    )
    raise InvalidInput(
        f"`{argument}` has {len(text):,} characters, and may have {most:,}. {advice}",
        argument=argument,
    )


def require_item_count(count: int) -> None:
    """Raise InvalidInput for too many items in one call."""
    if count > MOST_ITEMS:
        raise InvalidInput(
            f"`items` has {count:,} items, and may have {MOST_ITEMS:,}. Remember them in several "
            "calls.",
            argument="items",
        )


def require_tags(tags: Iterable[str]) -> None:
    """Raise InvalidInput for too many tags, or one that is too long."""
    tags = tuple(tags)
    if len(tags) > MOST_TAGS:
        raise InvalidInput(
            f"`tags` has {len(tags):,} tags, and may have {MOST_TAGS:,}. Put what describes one "
            "memory alone into `attributes`.",
            argument="tags",
        )
    for tag in tags:
        require_length("tags", tag)


def require_json_size(argument: str, value: Mapping[str, Any] | None) -> None:
    """Raise InvalidInput for a JSON object that is too large or too deep, contains itself, or has
    an integer that nobody could read back.
    """
    size, level = 0, [value]
    for _ in range(DEEPEST + 1):
        below: list[Any] = []
        for inner in level:
            if isinstance(inner, Mapping):
                size += sum(len(key) if isinstance(key, str) else 4 for key in inner)
                below += inner.values()
            elif isinstance(inner, list | tuple):
                below += inner
            elif isinstance(inner, str):
                size += len(inner)
            else:
                size += 4
                if isinstance(inner, int) and inner.bit_length() > _BITS:
                    raise InvalidInput(
                        f"`{argument}` has an integer of more than {LONGEST_INTEGER:,} digits. "
                        "Write it as a text.",
                        argument=argument,
                    )
        # What contains itself twice would grow without an end.
        if size + len(below) > LARGEST_ATTRIBUTES:
            raise InvalidInput(
                f"`{argument}` has more than {LARGEST_ATTRIBUTES:,} characters. Put long texts "
                "into `content`, and keep large values elsewhere, with their address here.",
                argument=argument,
            )
        if not below:
            return
        level = below
    raise InvalidInput(
        f"`{argument}` has more than {DEEPEST} lists and objects inside of one another, or "
        "contains itself. Write what is deeper as a text.",
        argument=argument,
    )
