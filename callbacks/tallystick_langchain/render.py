"""LangChain messages and tools as context items, and a compiled context as LangChain messages
again.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, SystemMessage, ToolMessage
from langchain_core.utils.function_calling import convert_to_openai_tool

from tallystick.compiler import outline
from tallystick.records import CompiledContext, ContextItem, ItemKind, Json, ToolSpec

__all__ = ["CONTEXT_ID", "Rendered", "items_of", "render", "tool_specs"]

CONTEXT_ID = "tallystick-context"
"""The id of the message that holds what was recalled and quoted. It is made for one call and in no
state.
"""
_MEDIA = 1_000
"""Tokens that an image, a sound or a file counts as, at least."""
_KINDS: dict[str, ItemKind] = {
    "system": "system",
    "human": "user_msg",
    "ai": "assistant_msg",
    "tool": "tool_result",
    "function": "tool_result",
}


@dataclass(frozen=True)
class Rendered:
    """A compiled context in LangChain's own objects."""

    system: SystemMessage | None
    messages: list[BaseMessage]
    """Without the system message."""
    tools: frozenset[str]
    """Names of the tools that may be offered."""

    @property
    def all(self) -> list[BaseMessage]:
        """The messages with the system message first."""
        return self.messages if self.system is None else [self.system, *self.messages]


def items_of(
    messages: Sequence[BaseMessage], count: Callable[[str], int]
) -> dict[str, tuple[ContextItem, BaseMessage]]:
    """Each message as an item, by the item's id, in order; a message without an id is named by its
    place.

    `count` counts the tokens of what is more than text: the arguments of calls.
    """
    found: dict[str, tuple[ContextItem, BaseMessage]] = {}
    for place, message in enumerate(messages):
        if message.id == CONTEXT_ID:
            continue
        item_id = message.id if message.id and message.id not in found else f"message-{place}"
        found[item_id] = (_item(item_id, message, count), message)
    return found


def _item(item_id: str, message: BaseMessage, count: Callable[[str], int]) -> ContextItem:
    calls: list[Json] = []
    result: str | None = None
    if isinstance(message, AIMessage):
        calls = [
            {"id": call["id"], "name": call["name"], "args": _plain(call["args"])}
            for call in message.tool_calls
        ]
    elif isinstance(message, ToolMessage):
        result = message.tool_call_id
    text, media = str(message.text), _media(message.content)
    more = json.dumps(calls, ensure_ascii=False) if calls else ""
    return ContextItem(
        id=item_id,
        kind=_KINDS.get(message.type, "other"),
        content=text,
        token_estimate=count(f"{text}{more}") + _MEDIA * media if more or media else None,
        tool_call_ids=tuple(str(call["id"]) for call in calls if isinstance(call, dict)),
        tool_call_id=result,
        metadata={"tool_calls": calls} if calls else {},
    )


def _media(content: Any) -> int:
    if isinstance(content, str):
        return 0
    said = {
        "text",
        "thinking",
        "reasoning",
        "redacted_thinking",
        "tool_use",
        "input_json_delta",
        "function_call",
    }
    return sum(isinstance(block, Mapping) and block.get("type") not in said for block in content)


def _plain(value: Any) -> Json:
    plain: Json = json.loads(json.dumps(value, default=str))
    return plain


def tool_specs(tools: Sequence[Any]) -> list[ToolSpec]:
    """Tools as the compiler sees them, of the class that a tool's metadata names as `tool_class`.

    A provider's own tool, which has no schema here, is passed over.
    """
    specs = []
    for tool in tools:
        function = convert_to_openai_tool(tool).get("function") if not _is_providers(tool) else None
        if function is not None:
            about = getattr(tool, "metadata", None) or {}
            specs.append(
                ToolSpec(
                    tool_class=about.get("tool_class"),
                    name=function["name"],
                    description=function.get("description") or "",
                    parameters=_plain(function.get("parameters") or {}),  # type: ignore[arg-type]
                )
            )
    return specs


def _is_providers(tool: Any) -> bool:
    return (
        isinstance(tool, Mapping) and "function" not in tool and not {"name", "title"} & tool.keys()
    )


def render(compiled: CompiledContext, originals: Mapping[str, BaseMessage]) -> Rendered:
    """The messages that say exactly what was compiled; unchanged ones are the objects that came in.

    Raises InvalidContext for calls and results that do not pair.
    """
    chosen = outline(compiled)
    changed = {
        decision.item_id
        for decision in compiled.decisions
        if decision.decision in ("redact", "compress")
    }
    context = [HumanMessage(chosen.context, id=CONTEXT_ID)] if chosen.context else []
    return Rendered(
        system=_system(chosen.instructions, chosen.system, originals, changed),
        messages=[
            *(_message(item, originals, changed) for item in chosen.history),
            *context,
            *(_message(item, originals, changed) for item in chosen.turn),
        ],
        tools=frozenset(item.source_ref.title or item.id for item in chosen.tools),
    )


def _system(
    items: Sequence[ContextItem], text: str, originals: Mapping[str, BaseMessage], changed: set[str]
) -> SystemMessage | None:
    if len(items) == 1 and items[0].id not in changed:
        original = originals.get(items[0].id)
        if isinstance(original, SystemMessage):
            return original
    return SystemMessage(text) if text else None


def _message(
    item: ContextItem, originals: Mapping[str, BaseMessage], changed: set[str]
) -> BaseMessage:
    original = originals.get(item.id)
    if original is not None and item.id not in changed:
        return original
    if isinstance(original, AIMessage):
        calls = [{**call, "args": {}} for call in original.tool_calls]
        return AIMessage(item.content, id=original.id, tool_calls=calls)
    if original is not None:
        return original.model_copy(update={"content": item.content})
    if item.kind == "tool_result":
        return ToolMessage(item.content, tool_call_id=item.tool_call_id or item.id, id=item.id)
    if item.kind == "assistant_msg":
        made: Any = item.metadata.get("tool_calls") or []
        return AIMessage(item.content, id=item.id, tool_calls=made)
    return HumanMessage(item.content, id=item.id)
