"""Messages as context items and back: the parts that every runtime's renderer has in common."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

from tallystick.adapters.tool_calls import ToolCall
from tallystick.records import CompiledContext, ContextItem, ItemKind, Json

__all__ = ["changed_items", "json_value", "message_item"]

_MEDIA_TOKENS = 1_000
"""Tokens that an image, a sound or a file counts as, at least."""


def message_item(
    item_id: str,
    kind: ItemKind,
    text: str,
    count: Callable[[str], int],
    *,
    calls: Sequence[ToolCall] = (),
    result_of: str | None = None,
    media: int = 0,
) -> ContextItem:
    """Return a message as an item: its text, its tool calls, or the call that it is the result of.

    `count` counts the tokens of what is more than text: the arguments of calls. `media` is the
    number of images, sounds and files.
    """
    tool_calls: list[Json] = [
        {"id": call.tool_call_id, "name": call.name, "args": json_value(call.arguments)}
        for call in calls
    ]
    more = json.dumps(tool_calls, ensure_ascii=False) if tool_calls else ""
    return ContextItem(
        id=item_id,
        kind=kind,
        content=text,
        token_estimate=count(f"{text}{more}") + _MEDIA_TOKENS * media if more or media else None,
        tool_call_ids=tuple(str(call.tool_call_id) for call in calls),
        tool_call_id=result_of,
        metadata={"tool_calls": tool_calls} if tool_calls else {},
    )


def changed_items(compiled: CompiledContext) -> set[str]:
    """Return the ids of the items whose text the compiler changed: the rest are as they came in."""
    return {
        decision.item_id
        for decision in compiled.decisions
        if decision.decision in ("redact", "compress")
    }


def json_value(value: Any) -> Json:
    """Return a value of a runtime as JSON; what JSON does not know becomes text."""
    converted: Json = json.loads(json.dumps(value, default=str))
    return converted
