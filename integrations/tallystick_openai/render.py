"""A compiled context as the body of `responses.create`: instructions, input, tools, and its cache
breakpoints.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any

from tallystick.compiler import outline
from tallystick.compiler.calls import calls_of, tool_of
from tallystick.errors import InvalidInput
from tallystick.records import CompiledContext, ContextItem

__all__ = ["render_responses"]

_BREAK = {"mode": "explicit"}


def render_responses(
    compiled: CompiledContext,
    *,
    model: str | None = None,
    breakpoints: bool = True,
    cache_key: str | None = None,
    **parameters: Any,
) -> dict[str, Any]:
    """Return the body of a Responses request for a compiled context, and nothing else.

    The order of tools and the bytes of everything are those of the compile. Two breakpoints are
    marked, for models that know them: the last text of the user in the history window, which stays
    from turn to turn, and the latest request, which stays while its tools work. `cache_key` becomes
    `prompt_cache_key`; `parameters` go in as they are. The state of a conversation is the tally's,
    so `store` is False. Raises InvalidContext for calls that do not pair or whose arguments are not
    known, and InvalidInput.
    """
    sections = outline(compiled)
    name = model or compiled.model
    if name is None:
        raise InvalidInput("Name the `model`; the compile was for none.")
    history = list(_input(sections.history))
    context = [_message("user", sections.context)] if sections.context else []
    turn = list(_input(sections.turn))
    if breakpoints:
        _mark(history[::-1])
        _mark(turn)
    body: dict[str, Any] = {
        "model": name,
        "input": [*history, *context, *turn],
        "store": False,
        **parameters,
    }
    if sections.system:
        body["instructions"] = sections.system
    if sections.tools:
        body["tools"] = [
            {"type": "function", **tool_of(item), "strict": False} for item in sections.tools
        ]
    if cache_key is not None:
        body["prompt_cache_key"] = cache_key
    if not body["input"]:
        raise InvalidInput("There is nothing to ask: no message was compiled.")
    return body


def _input(items: Iterable[ContextItem]) -> Iterator[dict[str, Any]]:
    for item in items:
        if item.tool_call_id is not None:
            yield {
                "type": "function_call_output",
                "call_id": item.tool_call_id,
                "output": item.content,
            }
            continue
        if item.kind == "tool_result":
            yield _message("user", item.content)
            continue
        role = "assistant" if item.kind == "assistant_msg" else "user"
        if item.content or not item.tool_call_ids:
            yield _message(role, item.content)
        for call in calls_of(item):
            # Sorted keys: the same call is the same bytes in every request.
            arguments = json.dumps(
                call.arguments, ensure_ascii=False, sort_keys=True, separators=(",", ":")
            )
            yield {
                "type": "function_call",
                "call_id": call.id,
                "name": call.name,
                "arguments": arguments,
            }


def _message(role: str, text: str) -> dict[str, Any]:
    # An answer of the model is plain text here: an output message proper would need the id that it
    # came with.
    content = text if role == "assistant" else [{"type": "input_text", "text": text}]
    return {"type": "message", "role": role, "content": content}


def _mark(items: list[dict[str, Any]]) -> None:
    for item in items:
        if item.get("role") == "user":
            item["content"][-1]["prompt_cache_breakpoint"] = dict(_BREAK)
            return
