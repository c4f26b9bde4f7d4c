"""PydanticAI messages as context items, and a compiled context as model messages again.

A request of PydanticAI holds several parts and a response several more: each part of a request is
an item of its own, a response is one, because its calls belong together.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from pydantic_ai.messages import (
    ModelMessage,
    ModelRequest,
    ModelResponse,
    RetryPromptPart,
    SystemPromptPart,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.tools import ToolDefinition

from tallystick.compiler import Outline, outline
from tallystick.records import CompiledContext, ContextItem, Json, ToolSpec

__all__ = ["Source", "items_of", "render", "tool_specs"]

_MEDIA = 1_000
"""Tokens that an image, a sound or a file counts as, at least."""

Source = tuple[ModelMessage, int | None]
"""Where an item came from: the message, and of a request the place of its part."""


def items_of(
    messages: Sequence[ModelMessage], count: Callable[[str], int]
) -> dict[str, tuple[ContextItem, Source]]:
    """Each response and each part of a request as an item, by its id, in order."""
    found: dict[str, tuple[ContextItem, Source]] = {}
    for place, message in enumerate(messages):
        if isinstance(message, ModelResponse):
            found[f"message-{place}"] = (
                _response(f"message-{place}", message, count),
                (message, None),
            )
            continue
        for at, part in enumerate(message.parts):
            item_id = f"message-{place}-{at}"
            found[item_id] = (_part(item_id, part, count), (message, at))
    return found


def _response(item_id: str, message: ModelResponse, count: Callable[[str], int]) -> ContextItem:
    calls: list[Json] = [
        {"id": part.tool_call_id, "name": part.tool_name, "args": _args(part)}
        for part in message.parts
        if isinstance(part, ToolCallPart)
    ]
    text = "".join(part.content for part in message.parts if isinstance(part, TextPart))
    more = json.dumps(calls, ensure_ascii=False) if calls else ""
    return ContextItem(
        id=item_id,
        kind="assistant_msg",
        content=text,
        token_estimate=count(f"{text}{more}") if more else None,
        tool_call_ids=tuple(
            part.tool_call_id for part in message.parts if isinstance(part, ToolCallPart)
        ),
        metadata={"tool_calls": calls} if calls else {},
    )


def _args(part: ToolCallPart) -> Json:
    args: Json = json.loads(json.dumps(part.args_as_dict(), default=str))
    return args


def _part(item_id: str, part: Any, count: Callable[[str], int]) -> ContextItem:
    if isinstance(part, SystemPromptPart):
        return ContextItem(id=item_id, kind="system", content=part.content)
    if isinstance(part, ToolReturnPart):
        return ContextItem(
            id=item_id,
            kind="tool_result",
            content=part.model_response_str(),
            tool_call_id=part.tool_call_id,
        )
    if isinstance(part, RetryPromptPart) and part.tool_name is not None:
        return ContextItem(
            id=item_id,
            kind="tool_result",
            content=part.model_response(),
            tool_call_id=part.tool_call_id,
        )
    if isinstance(part, RetryPromptPart):
        return ContextItem(id=item_id, kind="user_msg", content=part.model_response())
    if isinstance(part, UserPromptPart):
        pieces = [part.content] if isinstance(part.content, str) else list(part.content)
        texts = [
            piece if isinstance(piece, str) else getattr(piece, "content", None) for piece in pieces
        ]
        said = "\n".join(text for text in texts if isinstance(text, str))
        media = sum(not isinstance(text, str) for text in texts)
        estimate = count(said) + _MEDIA * media if media else None
        return ContextItem(id=item_id, kind="user_msg", content=said, token_estimate=estimate)
    content = getattr(part, "content", "")
    return ContextItem(
        id=item_id, kind="system", content=content if isinstance(content, str) else str(content)
    )


def tool_specs(tools: Sequence[ToolDefinition]) -> list[ToolSpec]:
    """Tools as the compiler sees them, of the class that a tool's metadata names as
    `tool_class`.
    """
    return [
        ToolSpec(
            name=tool.name,
            description=tool.description or "",
            parameters=json.loads(json.dumps(tool.parameters_json_schema)),
            tool_class=(tool.metadata or {}).get("tool_class"),
        )
        for tool in tools
    ]


def render(compiled: CompiledContext, sources: Mapping[str, Source]) -> list[ModelMessage]:
    """The messages that say exactly what was compiled; unchanged parts are the objects that came
    in.

    What was recalled and quoted is a user's part before the current turn. Raises InvalidContext for
    calls and results that do not pair.
    """
    chosen = outline(compiled)
    changed = {
        decision.item_id
        for decision in compiled.decisions
        if decision.decision in ("redact", "compress")
    }
    messages: list[ModelMessage] = []
    for item, part, origin in _parts(chosen, sources, changed):
        if isinstance(part, ModelResponse):
            messages.append(part)
        elif (
            messages
            and isinstance(messages[-1], ModelRequest)
            and (item is None or _goes_on(messages[-1], origin))
        ):
            messages[-1] = replace(messages[-1], parts=[*messages[-1].parts, part])
        elif origin is not None:
            messages.append(replace(origin, parts=[part]))
        else:
            messages.append(ModelRequest(parts=[part]))
    return messages


def _goes_on(before: ModelRequest, origin: ModelRequest | None) -> bool:
    """Whether a part belongs to the request before it: requests in a row are one for the model."""
    return origin is None or before.instructions in (None, origin.instructions)


def _parts(
    chosen: Outline, sources: Mapping[str, Source], changed: set[str]
) -> Iterator[tuple[ContextItem | None, Any, ModelRequest | None]]:
    known = [item for item in chosen.instructions if item.id in sources and item.id not in changed]
    if known and len(known) == len(chosen.instructions):
        for item in known:
            message, at = sources[item.id]
            assert isinstance(message, ModelRequest)
            assert at is not None
            yield item, message.parts[at], message
    elif chosen.system:
        yield None, SystemPromptPart(chosen.system), None
    for item in chosen.history:
        yield _spelled(item, sources, changed)
    if chosen.context:
        yield None, UserPromptPart(chosen.context), None
    for item in chosen.turn:
        yield _spelled(item, sources, changed)


def _spelled(
    item: ContextItem, sources: Mapping[str, Source], changed: set[str]
) -> tuple[ContextItem | None, Any, ModelRequest | None]:
    message, at = sources.get(item.id, (None, None))
    if isinstance(message, ModelResponse):
        if item.id not in changed:
            return item, message, None
        calls = [
            ToolCallPart(part.tool_name, {}, part.tool_call_id)
            for part in message.parts
            if isinstance(part, ToolCallPart)
        ]
        return item, replace(message, parts=[TextPart(item.content), *calls]), None
    if isinstance(message, ModelRequest) and at is not None:
        part: Any = message.parts[at]
        return (
            item,
            part if item.id not in changed else replace(part, content=item.content),
            message,
        )
    if item.kind == "assistant_msg":
        return item, ModelResponse(parts=[TextPart(item.content)]), None
    if item.tool_call_id is not None:
        return item, ToolReturnPart("tool", item.content, item.tool_call_id), None
    return item, UserPromptPart(item.content), None
