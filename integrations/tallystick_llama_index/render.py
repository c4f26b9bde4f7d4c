"""LlamaIndex chat messages as context items, and a compiled context as chat messages again."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, cast

from llama_index.core.base.llms import types
from llama_index.core.base.llms.types import ChatMessage, MessageRole, TextBlock

from tallystick.compiler import outline
from tallystick.kit import ToolCall, arguments_of, changed_items, message_item
from tallystick.records import CompiledContext, ContextItem, ItemKind, ToolSpec

_CALL: type[Any] | None = getattr(types, "ToolCallBlock", None)
"""The block of a tool call, in newer releases; in all, calls are in `additional_kwargs`."""
_MEDIA_TOKENS = 256
"""Tokens that an image or a sound counts as, as in LlamaIndex's own Memory."""
_KINDS: dict[MessageRole, ItemKind] = {
    MessageRole.SYSTEM: "system",
    MessageRole.DEVELOPER: "system",
    MessageRole.USER: "user_msg",
    MessageRole.ASSISTANT: "assistant_msg",
    MessageRole.CHATBOT: "assistant_msg",
    MessageRole.MODEL: "assistant_msg",
    MessageRole.TOOL: "tool_result",
    MessageRole.FUNCTION: "tool_result",
}


def items_of(
    messages: Sequence[ChatMessage], count: Callable[[str], int]
) -> dict[str, tuple[ContextItem, ChatMessage]]:
    """Return each message as an item, by the item's id (`message-<place>`), in order."""
    items: dict[str, tuple[ContextItem, ChatMessage]] = {}
    for place, message in enumerate(messages):
        result = message.additional_kwargs.get("tool_call_id")
        media = sum(
            not isinstance(block, TextBlock) and not _is_call(block) for block in message.blocks
        )
        item_id = f"message-{place}"
        item = message_item(
            item_id,
            _KINDS.get(message.role, "other"),
            message.content or "",
            count,
            calls=_calls(message),
            result_of=result if isinstance(result, str) else None,
            media=media,
            media_tokens=_MEDIA_TOKENS,
        )
        items[item_id] = (item, message)
    return items


class RequestParts(NamedTuple):
    """A request that nothing has compiled, as rules over items see it."""

    items: list[ContextItem]
    tools: list[ToolSpec]


def parts_of(prompt: Any, options: Mapping[str, Any]) -> RequestParts:
    """Return the messages of a chat, or the text of a completion, and the tools that are offered in
    the options of the call.
    """
    if isinstance(prompt, str):
        items = [ContextItem(id="prompt", kind="user_msg", content=prompt)]
    else:
        items = [item for item, _ in items_of(prompt, len).values()]
    tools = []
    for tool in options.get("tools") or ():
        fields = tool.get("function", tool) if isinstance(tool, Mapping) else {}
        if isinstance(fields.get("name"), str):
            tools.append(ToolSpec(name=fields["name"]))
    return RequestParts(items, tools)


def _calls(message: ChatMessage) -> list[ToolCall]:
    """Return the calls of a message: its tool call blocks, else those of an OpenAI model in
    `additional_kwargs`.
    """
    calls: list[ToolCall] = []
    for block in cast("list[Any]", message.blocks):
        if _is_call(block) and block.tool_call_id:
            calls.append(
                ToolCall(block.tool_name, arguments_of(block.tool_kwargs), block.tool_call_id)
            )
    if calls:
        return calls
    for call in message.additional_kwargs.get("tool_calls") or ():
        fields = call if isinstance(call, Mapping) else call.model_dump()
        function = fields.get("function") or {}
        if fields.get("id") and function.get("name"):
            arguments = arguments_of(function.get("arguments"))
            calls.append(ToolCall(function["name"], arguments, fields["id"]))
    return calls


def _is_call(block: Any) -> bool:
    return _CALL is not None and isinstance(block, _CALL)


def render(compiled: CompiledContext, originals: Mapping[str, ChatMessage]) -> list[ChatMessage]:
    """Return a compiled context as messages; unchanged ones are the objects that came in.

    What was recalled and quoted is a message of the user's before the current turn, so that the
    messages before it stay the same. Raises InvalidContext for calls and results that do not pair.
    """
    sections = outline(compiled)
    changed = changed_items(compiled)
    system = [item for item in sections.instructions if item.id in originals]
    if len(system) == len(sections.instructions) == 1 and system[0].id not in changed:
        first = [originals[system[0].id]]
    else:
        first = [ChatMessage(sections.system, role=MessageRole.SYSTEM)] if sections.system else []
    context = [ChatMessage(sections.context, role=MessageRole.USER)] if sections.context else []
    return [
        *first,
        *(_message(item, originals, changed) for item in sections.history),
        *context,
        *(_message(item, originals, changed) for item in sections.turn),
    ]


def _message(
    item: ContextItem, originals: Mapping[str, ChatMessage], changed: set[str]
) -> ChatMessage:
    original = originals.get(item.id)
    if original is None:
        role = {"assistant_msg": MessageRole.ASSISTANT, "tool_result": MessageRole.TOOL}
        return ChatMessage(item.content, role=role.get(item.kind, MessageRole.USER))
    if item.id not in changed:
        return original
    calls = [
        block.model_copy(update={"tool_kwargs": {}}) for block in original.blocks if _is_call(block)
    ]
    attributes = {
        name: original.additional_kwargs[name]
        for name in ("tool_call_id",)
        if name in original.additional_kwargs
    }
    return ChatMessage(
        role=original.role,
        blocks=[TextBlock(text=item.content), *calls],
        additional_kwargs=attributes,
    )
