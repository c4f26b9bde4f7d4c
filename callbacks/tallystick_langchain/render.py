"""LangChain messages and tools as context items, and a compiled context as LangChain messages
again.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, SystemMessage, ToolMessage
from langchain_core.utils.function_calling import convert_to_openai_tool

from tallystick.compiler import Outline, outline
from tallystick.kit import (
    ToolCall,
    arguments_of,
    changed_items,
    json_value,
    memory_text,
    message_item,
)
from tallystick.kit.laying_out import before_request
from tallystick.records import CompiledContext, ContextItem, ItemKind, ToolSpec

CONTEXT_ID = "tallystick-context"
"""Id of the message with what was recalled and quoted, which is made for one call. It only names
it: what is ours in a message, the code of the frame says.
"""
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
        """Return the messages with the system message first."""
        return self.messages if self.system is None else [self.system, *self.messages]


def own_messages(
    messages: Sequence[BaseMessage], own_text: Callable[[str], str]
) -> list[BaseMessage]:
    """Return messages without the frames that stand in earlier turns of the user, because what was
    recalled then may have been forgotten since; a message with nothing else in it is left out.

    `own_text` takes the frames of the tally out of a text; what it does not change stays as it is.
    The latest request may have been given a pack on purpose: it stays whole, and so do the
    instructions.
    """
    latest = next((message for message in reversed(messages) if message.type == "human"), None)
    cleaned = (
        message if message is latest or message.type != "human" else _own_message(message, own_text)
        for message in messages
    )
    return [message for message in cleaned if message is not None]


def _own_message(message: BaseMessage, own_text: Callable[[str], str]) -> BaseMessage | None:
    if isinstance(message.content, str):
        content: Any = own_text(message.content)
    else:
        content = [_own_block(block, own_text) for block in message.content]
        content = [block for block in content if block is not None]
    if content == message.content:
        return message
    return message.model_copy(update={"content": content}) if content else None


def _own_block(block: Any, own_text: Callable[[str], str]) -> Any:
    """Return a block of a message without frames; None where nothing else is in it."""
    text = block.get("text") if isinstance(block, Mapping) else block
    if not isinstance(text, str) or (own := own_text(text)) == text:
        return block
    if not own:
        return None
    return {**block, "text": own} if isinstance(block, Mapping) else own


def items_of(
    messages: Sequence[BaseMessage], count: Callable[[str], int]
) -> dict[str, tuple[ContextItem, BaseMessage]]:
    """Return each message as an item, by the item's id, in order; a message without an id is named
    by its place.

    An invalid call that a message answers is a call like any other; the one and the other stay
    together. `count` counts the tokens of what is more than text: the arguments of calls.
    """
    answered = _answered_calls(messages)
    items: dict[str, tuple[ContextItem, BaseMessage]] = {}
    for place, message in enumerate(messages):
        item_id = message.id if message.id and message.id not in items else f"message-{place}"
        items[item_id] = (_item(item_id, message, count, answered[place]), message)
    return items


def _answered_calls(messages: Sequence[BaseMessage]) -> list[set[str]]:
    """Return for each message the ids of its calls that a later message answers: a result is that
    of the nearest call before it.
    """
    answered: list[set[str]] = [set() for _ in messages]
    results: set[str] = set()
    for place in reversed(range(len(messages))):
        message = messages[place]
        if isinstance(message, ToolMessage):
            results.add(message.tool_call_id)
        elif isinstance(message, AIMessage):
            calls = (*message.tool_calls, *message.invalid_tool_calls)
            answered[place] = results & {str(call["id"]) for call in calls}
            results -= answered[place]
    return answered


def _item(
    item_id: str, message: BaseMessage, count: Callable[[str], int], answered: Collection[str]
) -> ContextItem:
    return message_item(
        item_id,
        _KINDS.get(message.type, "other"),
        str(message.text),
        count,
        calls=_calls(message, answered) if isinstance(message, AIMessage) else (),
        result_of=message.tool_call_id if isinstance(message, ToolMessage) else None,
        thoughts=_thoughts(message.content),
        media=_count_media(message.content),
    )


def _calls(message: AIMessage, answered: Collection[str]) -> list[ToolCall]:
    """Return the calls of a message: the valid ones, and of the invalid ones those that are
    answered. The rest are no calls to a provider either, who would wait for their results.
    """
    calls = [ToolCall(call["name"], call["args"], call["id"]) for call in message.tool_calls]
    valid = {call.tool_call_id for call in calls}
    return calls + [
        ToolCall(call["name"] or "unknown", arguments_of(call["args"]), call["id"])
        for call in message.invalid_tool_calls
        if call["id"] in answered and call["id"] not in valid
    ]


def _thoughts(content: Any) -> str:
    """Return what the model thought, which goes back to it as it was."""
    blocks = content if isinstance(content, list) else []
    fields = [each for each in blocks if isinstance(each, Mapping)]
    return "".join(
        str(block.get(block["type"]) or "")
        for block in fields
        if block.get("type") in ("thinking", "reasoning")
    )


def _count_media(content: Any) -> int:
    if isinstance(content, str):
        return 0
    text_types = {
        "text",
        "thinking",
        "reasoning",
        "redacted_thinking",
        "tool_use",
        "input_json_delta",
        "function_call",
    }
    return sum(
        isinstance(block, Mapping) and block.get("type") not in text_types for block in content
    )


def tool_specs(tools: Sequence[Any]) -> list[ToolSpec]:
    """Return tools as the compiler reads them, of the class that a tool's metadata names as
    `tool_class`.

    A provider's own tool, which has no schema here, is passed over.
    """
    specs = []
    for tool in tools:
        function = (
            convert_to_openai_tool(tool).get("function") if not _is_provider_tool(tool) else None
        )
        if function is not None:
            metadata = getattr(tool, "metadata", None) or {}
            specs.append(
                ToolSpec(
                    tool_class=metadata.get("tool_class"),
                    name=function["name"],
                    description=function.get("description") or "",
                    parameters=json_value(function.get("parameters") or {}),  # type: ignore[arg-type]
                )
            )
    return specs


def tool_name(tool: Any) -> str | None:
    """Return the name of a tool in any form that a model may be given, or None."""
    if isinstance(tool, Mapping):
        function = tool.get("function", tool)
        return function.get("name") if isinstance(function, Mapping) else None
    return getattr(tool, "name", None) or getattr(tool, "__name__", None)


def _is_provider_tool(tool: Any) -> bool:
    return (
        isinstance(tool, Mapping) and "function" not in tool and not {"name", "title"} & tool.keys()
    )


def render(compiled: CompiledContext, originals: Mapping[str, BaseMessage]) -> Rendered:
    """Return a compiled context as messages; unchanged ones are the objects that came in.

    Raises InvalidContext for calls and results that do not pair.
    """
    sections = outline(compiled)
    changed = changed_items(compiled)
    context = [HumanMessage(sections.context, id=CONTEXT_ID)] if sections.context else []
    return Rendered(
        system=_system(sections, originals, changed),
        messages=[
            *(_message(item, originals, changed) for item in sections.history),
            *context,
            *(_message(item, originals, changed) for item in sections.turn),
        ],
        tools=frozenset(item.source_ref.title or item.id for item in sections.tools),
    )


def with_memory(messages: Sequence[BaseMessage], compiled: CompiledContext) -> list[BaseMessage]:
    """Return messages with what memory adds as one message before the latest request."""
    text = memory_text(compiled)
    added = HumanMessage(text, id=CONTEXT_ID) if text else None
    return before_request(messages, added, lambda message: message.type == "human")


def _system(
    sections: Outline, originals: Mapping[str, BaseMessage], changed: set[str]
) -> SystemMessage | None:
    """Return the instructions as one message. One that came in alone stays the object that it is,
    or keeps its blocks, behind which stands what is remembered.
    """
    own = [item for item in sections.instructions if item.kind != "memory"]
    original = originals.get(own[0].id) if len(own) == 1 and own[0].id not in changed else None
    if isinstance(original, SystemMessage) and not sections.remembered:
        return original
    if isinstance(original, SystemMessage) and not isinstance(original.content, str):
        blocks = [*original.content, {"type": "text", "text": sections.remembered}]
        return original.model_copy(update={"content": blocks})
    if not any(item.content for item in own) and sections.remembered:
        return SystemMessage(sections.remembered, id=CONTEXT_ID)
    return SystemMessage(sections.system) if sections.system else None


def _message(
    item: ContextItem, originals: Mapping[str, BaseMessage], changed: set[str]
) -> BaseMessage:
    original = originals.get(item.id)
    if original is not None and item.id not in changed:
        return original
    if isinstance(original, AIMessage):
        calls = [{**call, "args": {}} for call in original.tool_calls]
        invalid = [{**call, "args": "{}"} for call in original.invalid_tool_calls]
        return AIMessage(item.content, id=original.id, tool_calls=calls, invalid_tool_calls=invalid)
    if original is not None:
        return original.model_copy(update={"content": item.content})
    if item.kind == "tool_result":
        return ToolMessage(item.content, tool_call_id=item.tool_call_id or item.id, id=item.id)
    if item.kind == "assistant_msg":
        tool_calls: Any = item.metadata.get("tool_calls") or []
        return AIMessage(item.content, id=item.id, tool_calls=tool_calls)
    return HumanMessage(item.content, id=item.id)
