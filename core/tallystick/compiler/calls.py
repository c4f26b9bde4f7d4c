"""Tools and calls as a provider gets them, read back from items; calls that it would refuse are
refused here.
"""

from __future__ import annotations

import json
from typing import Any, NamedTuple

from tallystick.errors import InvalidContext
from tallystick.records import ContextItem, JsonObject


class Call(NamedTuple):
    """One call of a tool by the model."""

    id: str
    name: str
    arguments: JsonObject


def calls_of(item: ContextItem) -> list[Call]:
    """Return the calls of an assistant message, in its order, from its `metadata["tool_calls"]`:
    id, name and args of each.

    Raises InvalidContext where a call's name or arguments are not known, and for two calls with one
    id.
    """
    calls: dict[str, Call] = {}
    entries: Any = item.metadata.get("tool_calls") or []
    for call in entries:
        if (
            not isinstance(call, dict)
            or not isinstance(call.get("id"), str)
            or not isinstance(call.get("name"), str)
        ):
            raise InvalidContext(
                f"A tool call of {item.id!r} has no id or no name.", item_ids=(item.id,)
            )
        arguments = call.get("args", {})
        if not isinstance(arguments, dict):
            raise InvalidContext(
                f"The arguments of {call['name']!r} in {item.id!r} are no object.",
                item_ids=(item.id,),
            )
        calls[call["id"]] = Call(call["id"], call["name"], arguments)
    missing = [name for name in item.tool_call_ids if name not in calls]
    if missing:
        raise InvalidContext(
            f"What the calls {', '.join(missing)} of {item.id!r} were is not known. "
            'Give them as metadata={"tool_calls": [{"id", "name", "args"}]}.',
            item_ids=(item.id,),
        )
    if len(set(item.tool_call_ids)) < len(item.tool_call_ids):
        raise InvalidContext(f"Two calls of {item.id!r} have one id.", item_ids=(item.id,))
    return [calls[name] for name in item.tool_call_ids]


def tool_of(item: ContextItem) -> dict[str, Any]:
    """Name, description and parameters of a tool schema. Raises InvalidContext for what is none."""
    try:
        tool = json.loads(item.content)
        named: dict[str, Any] = {
            "name": tool["name"],
            "description": tool.get("description") or "",
            "parameters": tool.get("parameters") or {},
        }
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise InvalidContext(f"{item.id!r} is no tool schema.", item_ids=(item.id,)) from error
    return named
