"""Messages as context items and back: the parts that every runtime's renderer has in common."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

from pydantic import BaseModel
from pydantic_core import PydanticSerializationError, to_jsonable_python

from tallystick.kit.tool_calls import ToolCall
from tallystick.records import CompiledContext, ContextItem, ItemKind, Json

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
    thoughts: str = "",
    media: int = 0,
    media_tokens: int = _MEDIA_TOKENS,
) -> ContextItem:
    """Return a message as an item: its text, its tool calls, or the call that it is the result of.

    `count` counts the tokens of what is more than text: the arguments of calls, and the `thoughts`
    of a model, which are sent as they are. `media` is the number of images, sounds and files, of
    which each counts as `media_tokens`.
    """
    tool_calls: list[Json] = [
        {"id": call.tool_call_id, "name": call.name, "args": json_value(call.arguments)}
        for call in calls
    ]
    more = (json.dumps(tool_calls, ensure_ascii=False) if tool_calls else "") + thoughts
    return ContextItem(
        id=item_id,
        kind=kind,
        content=text,
        token_estimate=count(f"{text}{more}") + media_tokens * media if more or media else None,
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


def arguments_of(arguments: Any) -> Any:
    """Return the arguments of a call as an object: a model may give them as the text of one, and
    text that is none, of an invalid call, is its field `input`.
    """
    if isinstance(arguments, str):
        try:
            parsed = json.loads(arguments)
        except ValueError:
            parsed = None
        arguments = parsed if isinstance(parsed, dict) else {"input": arguments}
    return arguments or {}


def dump_model(model: BaseModel, **options: Any) -> dict[str, Any]:
    """Return a runtime's model as JSON; an object in it that JSON does not know becomes text, so
    that nobody's metadata costs the recording.
    """
    try:
        return model.model_dump(mode="json", warnings=False, **options)
    except PydanticSerializationError:
        fields: dict[str, Any] = to_jsonable_python(
            model.model_dump(warnings=False, **options), fallback=str, bytes_mode="base64"
        )
        return fields


def json_value(value: Any) -> Json:
    """Return a value of a runtime as JSON; what JSON does not know becomes text."""
    if value is None or isinstance(value, str | bool | int):
        return value
    try:
        converted: Json = json.loads(json.dumps(value, default=str, allow_nan=False))
    except (TypeError, ValueError, RecursionError):
        # A key that is no text, a number that is none, a value that contains itself.
        return str(value)
    return converted
