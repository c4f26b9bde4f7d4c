"""LlamaIndex chat messages as context items, and a compiled context as chat messages again."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

from llama_index.core.base.llms import types
from llama_index.core.base.llms.types import ChatMessage, MessageRole, TextBlock

from tallystick.compiler import outline
from tallystick.records import CompiledContext, ContextItem, ItemKind, Json

__all__ = ["items_of", "render"]

_CALL: type[Any] | None = getattr(types, "ToolCallBlock", None)
"""Calls stand in blocks of their own in newer releases, and in `additional_kwargs` in all."""
_MEDIA = 1_000
"""Tokens that an image, a sound or a file counts as, at least."""
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
    """Each message as an item, by the item's id (`message-<place>`), in order."""
    found: dict[str, tuple[ContextItem, ChatMessage]] = {}
    for place, message in enumerate(messages):
        calls = _calls(message)
        result = message.additional_kwargs.get("tool_call_id")
        text = message.content or ""
        media = sum(
            not isinstance(block, TextBlock) and not _is_call(block) for block in message.blocks
        )
        more = json.dumps(calls, ensure_ascii=False) if calls else ""
        item_id = f"message-{place}"
        item = ContextItem(
            id=item_id,
            kind=_KINDS.get(message.role, "other"),
            content=text,
            token_estimate=count(f"{text}{more}") + _MEDIA * media if more or media else None,
            tool_call_ids=tuple(str(call["id"]) for call in calls if isinstance(call, dict)),
            tool_call_id=result if isinstance(result, str) else None,
            metadata={"tool_calls": calls} if calls else {},
        )
        found[item_id] = (item, message)
    return found


def _calls(message: ChatMessage) -> list[Json]:
    """The calls of a message: its tool call blocks, else what an OpenAI model left in
    `additional_kwargs`.
    """
    found: list[Json] = []
    for block in cast("list[Any]", message.blocks):
        if _is_call(block) and block.tool_call_id:
            found.append(
                {
                    "id": block.tool_call_id,
                    "name": block.tool_name,
                    "args": _args(block.tool_kwargs),
                }
            )
    if found:
        return found
    for call in message.additional_kwargs.get("tool_calls") or ():
        plain = call if isinstance(call, Mapping) else call.model_dump()
        function = plain.get("function") or {}
        if plain.get("id") and function.get("name"):
            found.append(
                {
                    "id": plain["id"],
                    "name": function["name"],
                    "args": _args(function.get("arguments")),
                }
            )
    return found


def _is_call(block: Any) -> bool:
    return _CALL is not None and isinstance(block, _CALL)


def _args(given: Any) -> Json:
    if isinstance(given, str):
        try:
            given = json.loads(given)
        except ValueError:
            given = {"input": given}
    plain: Json = json.loads(json.dumps(given or {}, default=str))
    return plain


def render(compiled: CompiledContext, originals: Mapping[str, ChatMessage]) -> list[ChatMessage]:
    """The messages that say exactly what was compiled; unchanged ones are the objects that came in.

    What was recalled and quoted is a message of the user's before the current turn, so that what
    stands before it stays as it was. Raises InvalidContext for calls and results that do not pair.
    """
    chosen = outline(compiled)
    changed = {
        decision.item_id
        for decision in compiled.decisions
        if decision.decision in ("redact", "compress")
    }
    system = [item for item in chosen.instructions if item.id in originals]
    if len(system) == len(chosen.instructions) == 1 and system[0].id not in changed:
        first = [originals[system[0].id]]
    else:
        first = [ChatMessage(chosen.system, role=MessageRole.SYSTEM)] if chosen.system else []
    context = [ChatMessage(chosen.context, role=MessageRole.USER)] if chosen.context else []
    return [
        *first,
        *(_message(item, originals, changed) for item in chosen.history),
        *context,
        *(_message(item, originals, changed) for item in chosen.turn),
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
    kept = {
        name: original.additional_kwargs[name]
        for name in ("tool_call_id",)
        if name in original.additional_kwargs
    }
    return ChatMessage(
        role=original.role, blocks=[TextBlock(text=item.content), *calls], additional_kwargs=kept
    )
