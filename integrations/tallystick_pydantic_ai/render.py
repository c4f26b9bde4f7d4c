"""PydanticAI messages as context items, and a compiled context as model messages again.

A request of PydanticAI has several parts, and so has a response: each part of a request is an item
of its own, a response is one item, because its calls belong together.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

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
from pydantic_ai.models import ModelRequestParameters
from pydantic_ai.tools import ToolDefinition

from tallystick.compiler import Outline, outline
from tallystick.kit import ToolCall, changed_items, json_value, message_item
from tallystick.records import CompiledContext, ContextItem, ToolSpec


class Source(NamedTuple):
    """The origin of an item: its message, and of a request the place of its part."""

    message: ModelMessage
    place: int | None


class _RenderedPart(NamedTuple):
    """A part of a request, or a whole response, in its place among the messages."""

    part: Any
    """A part of a request, or a ModelResponse."""
    origin: ModelRequest | None = None
    """The request that the part came in."""


def items_of(
    messages: Sequence[ModelMessage], count: Callable[[str], int]
) -> dict[str, tuple[ContextItem, Source]]:
    """Return each response and each part of a request as an item, by its id, in order."""
    items: dict[str, tuple[ContextItem, Source]] = {}
    for place, message in enumerate(messages):
        if isinstance(message, ModelResponse):
            items[f"message-{place}"] = (
                _response(f"message-{place}", message, count),
                Source(message, None),
            )
            continue
        for at, part in enumerate(message.parts):
            item_id = f"message-{place}-{at}"
            items[item_id] = (_part(item_id, part, count), Source(message, at))
    return items


class RequestParts(NamedTuple):
    """A request that nothing has compiled, as rules over items see it."""

    items: list[ContextItem]
    tools: list[ToolSpec]


def parts_of(messages: Sequence[ModelMessage], parameters: ModelRequestParameters) -> RequestParts:
    """Return the messages, the instructions and the tools of a request."""
    parts = parameters.instruction_parts
    if parts is None:
        requests = (each for each in reversed(messages) if isinstance(each, ModelRequest))
        texts = [text for each in requests if (text := each.instructions)][:1]
    else:
        texts = [part.content for part in parts]
    instructions = [
        ContextItem(id=f"instructions-{place}", kind="system", content=text)
        for place, text in enumerate(texts)
    ]
    items = [item for item, _ in items_of(messages, len).values()]
    return RequestParts([*instructions, *items], tool_specs(parameters.function_tools))


def _response(item_id: str, message: ModelResponse, count: Callable[[str], int]) -> ContextItem:
    text = "".join(part.content for part in message.parts if isinstance(part, TextPart))
    calls = [
        ToolCall(part.tool_name, part.args_as_dict(), part.tool_call_id)
        for part in message.parts
        if isinstance(part, ToolCallPart)
    ]
    return message_item(item_id, "assistant_msg", text, count, calls=calls)


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
        prompt = "\n".join(text for text in texts if isinstance(text, str))
        media = sum(not isinstance(text, str) for text in texts)
        return message_item(item_id, "user_msg", prompt, count, media=media)
    content = getattr(part, "content", "")
    return ContextItem(
        id=item_id, kind="system", content=content if isinstance(content, str) else str(content)
    )


def tool_specs(tools: Sequence[ToolDefinition]) -> list[ToolSpec]:
    """Return tools as the compiler reads them, of the class that a tool's metadata names as
    `tool_class`.
    """
    return [
        ToolSpec(
            name=tool.name,
            description=tool.description or "",
            parameters=json_value(tool.parameters_json_schema),  # type: ignore[arg-type]
            tool_class=(tool.metadata or {}).get("tool_class"),
        )
        for tool in tools
    ]


def render(compiled: CompiledContext, sources: Mapping[str, Source]) -> list[ModelMessage]:
    """Return a compiled context as messages; unchanged parts are the objects that came in.

    What was recalled and quoted is a user's part before the current turn. Raises InvalidContext for
    calls and results that do not pair.
    """
    sections = outline(compiled)
    messages: list[ModelMessage] = []
    for part, origin in _parts(sections, sources, changed_items(compiled)):
        if isinstance(part, ModelResponse):
            messages.append(part)
        elif (
            messages and isinstance(messages[-1], ModelRequest) and _continues(messages[-1], origin)
        ):
            messages[-1] = replace(messages[-1], parts=[*messages[-1].parts, part])
        elif origin is not None:
            messages.append(replace(origin, parts=[part]))
        else:
            messages.append(ModelRequest(parts=[part]))
    return messages


def _continues(before: ModelRequest, origin: ModelRequest | None) -> bool:
    """Return True if a part belongs to the request before it: the model sees requests in a row as
    one.
    """
    return origin is None or before.instructions in (None, origin.instructions)


def _parts(
    sections: Outline, sources: Mapping[str, Source], changed: set[str]
) -> Iterator[_RenderedPart]:
    originals = [
        item for item in sections.instructions if item.id in sources and item.id not in changed
    ]
    if originals and len(originals) == len(sections.instructions):
        for item in originals:
            message, place = sources[item.id]
            assert isinstance(message, ModelRequest)
            assert place is not None
            yield _RenderedPart(message.parts[place], message)
    elif sections.system:
        yield _RenderedPart(SystemPromptPart(sections.system))
    for item in sections.history:
        yield _render_item(item, sources.get(item.id), item.id in changed)
    if sections.context:
        yield _RenderedPart(UserPromptPart(sections.context))
    for item in sections.turn:
        yield _render_item(item, sources.get(item.id), item.id in changed)


def _render_item(item: ContextItem, source: Source | None, is_changed: bool) -> _RenderedPart:
    message, place = source or (None, None)
    if isinstance(message, ModelResponse):
        if not is_changed:
            return _RenderedPart(message)
        calls = [
            ToolCallPart(part.tool_name, {}, part.tool_call_id)
            for part in message.parts
            if isinstance(part, ToolCallPart)
        ]
        return _RenderedPart(replace(message, parts=[TextPart(item.content), *calls]))
    if isinstance(message, ModelRequest) and place is not None:
        part: Any = message.parts[place]
        return _RenderedPart(replace(part, content=item.content) if is_changed else part, message)
    if item.kind == "assistant_msg":
        return _RenderedPart(ModelResponse(parts=[TextPart(item.content)]))
    if item.tool_call_id is not None:
        return _RenderedPart(ToolReturnPart("tool", item.content, item.tool_call_id))
    return _RenderedPart(UserPromptPart(item.content))
