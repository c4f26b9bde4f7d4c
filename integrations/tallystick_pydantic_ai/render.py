"""PydanticAI requests as context items, and a compiled context as a request again.

A request of PydanticAI has several parts, and so has a response: each part of a request is an item
of its own, a response is one item, because its calls belong together. Parts that the compiler
cannot see into pass in their place, and are counted.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from pydantic_ai.messages import (
    CachePoint,
    FilePart,
    InstructionPart,
    ModelMessage,
    ModelRequest,
    ModelResponse,
    RetryFeedbackPart,
    RetryPromptPart,
    SpeechPart,
    SystemPromptPart,
    TextContent,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.models import ModelRequestParameters
from pydantic_ai.tools import ToolDefinition

from tallystick.compiler import outline
from tallystick.kit import ToolCall, changed_items, json_value, memory_text, message_item
from tallystick.kit.laying_out import Count, Piece, ReadRequest, laid_out
from tallystick.kit.rendering import json_text
from tallystick.records import CompiledContext, ContextItem, ToolSpec


class _Entry(NamedTuple):
    """A part of a request and the request that it came in, or a response."""

    origin: ModelMessage | None
    part: Any


def read_request(
    messages: Sequence[ModelMessage],
    parameters: ModelRequestParameters | None = None,
    count: Count = len,
    *,
    prompt: UserPromptPart | None = None,
) -> ReadRequest:
    """Return a request as pieces in their order. `prompt` is the request that the run answers: it
    stays, whatever else came in the name of the user since.
    """
    parameters = parameters or ModelRequestParameters()
    return ReadRequest(
        [
            ContextItem(id=f"instructions-{place}", kind="system", content=part.content)
            for place, part in enumerate(_instructions(messages, parameters))
        ],
        _with_pinned(list(_pieces(messages, count)), prompt),
        tool_specs(parameters),
        [json_text(tool) for tool in parameters.output_tools],
    )


def _with_pinned(pieces: list[Piece], prompt: UserPromptPart | None) -> list[Piece]:
    """Return pieces of which the prompt of the run stays, where it is not the latest of a user."""
    places = [at for at, each in enumerate(pieces) if each.item and each.item.kind == "user_msg"]
    for at in places[:-1]:
        piece = pieces[at]
        if piece.raw[0].part is prompt and piece.item is not None:
            item = piece.item.model_copy(update={"tags": frozenset(("pinned",))})
            return [*pieces[:at], piece._replace(item=item), *pieces[at + 1 :]]
    return pieces


def _pieces(messages: Sequence[ModelMessage], count: Count) -> Iterator[Piece]:
    answer: str | None = None
    for place, message in enumerate(messages):
        if isinstance(message, ModelResponse):
            answer = f"message-{place}"
            yield Piece((_Entry(message, message),), _response(answer, message, count))
            continue
        for at, part in enumerate(message.parts):
            item = _item(f"message-{place}-{at}", part, count)
            is_feedback = isinstance(part, RetryFeedbackPart | RetryPromptPart)
            after = answer if item is None and is_feedback else None
            yield Piece((_Entry(message, part),), item, "" if item else _text_of(part), after)


def _instructions(
    messages: Sequence[ModelMessage], parameters: ModelRequestParameters
) -> list[InstructionPart]:
    if parameters.instruction_parts is not None:
        return list(parameters.instruction_parts)
    requests = (each for each in reversed(messages) if isinstance(each, ModelRequest))
    texts = [text for each in requests if (text := each.instructions)][:1]
    return [InstructionPart(content=text) for text in texts]


def _response(item_id: str, message: ModelResponse, count: Count) -> ContextItem:
    calls = [
        ToolCall(part.tool_name, part.args_as_dict(), part.tool_call_id)
        for part in message.parts
        if isinstance(part, ToolCallPart)
    ]
    others = [part for part in message.parts if not isinstance(part, TextPart | ToolCallPart)]
    return message_item(
        item_id,
        "assistant_msg",
        "".join(part.content for part in message.parts if isinstance(part, TextPart)),
        count,
        calls=calls,
        thoughts="".join(map(_text_of, others)),
        media=sum(isinstance(part, FilePart | SpeechPart) for part in others),
    )


def _item(item_id: str, part: Any, count: Count) -> ContextItem | None:
    """Return a part of a request as an item; None for one of another kind."""
    if isinstance(part, SystemPromptPart):
        return ContextItem(id=item_id, kind="system", content=part.content)
    if isinstance(part, ToolReturnPart):
        return message_item(
            item_id,
            "tool_result",
            part.model_response_str(),
            count,
            result_of=part.tool_call_id,
            media=len(getattr(part, "files", ())),
        )
    if isinstance(part, RetryPromptPart) and part.tool_name is not None:
        text = part.model_response()
        return message_item(item_id, "tool_result", text, count, result_of=part.tool_call_id)
    if not isinstance(part, UserPromptPart):
        return None
    pieces = [part.content] if isinstance(part.content, str) else list(part.content)
    texts = [
        piece if isinstance(piece, str) else getattr(piece, "content", None) for piece in pieces
    ]
    prompt = "\n".join(text for text in texts if isinstance(text, str))
    media = sum(
        not isinstance(text, str) and not isinstance(piece, CachePoint)
        for text, piece in zip(texts, pieces, strict=True)
    )
    return message_item(item_id, "user_msg", prompt, count, media=media)


def _text_of(part: Any) -> str:
    """Return the text of a part that is not looked into."""
    if isinstance(part, FilePart | SpeechPart):
        return ""
    content = getattr(part, "content", None)
    return content if isinstance(content, str) else json_text(part)


def tool_specs(parameters: ModelRequestParameters) -> list[ToolSpec]:
    """Return the offered tools as the compiler reads them, of the class that a tool's metadata
    names as `tool_class`. What a model has to search for first is not offered yet.
    """
    return [
        ToolSpec(
            name=tool.name,
            description=tool.description or "",
            parameters=json_value(tool.parameters_json_schema),  # type: ignore[arg-type]
            tool_class=(tool.metadata or {}).get("tool_class"),
        )
        for tool in parameters.function_tools
        if _is_offered(tool, parameters)
    ]


def _is_offered(tool: ToolDefinition, parameters: ModelRequestParameters) -> bool:
    return not tool.defer_loading or tool.name in parameters.revealed_tool_names


class Rendered(NamedTuple):
    """A compiled context in PydanticAI's own objects."""

    messages: list[ModelMessage]
    parameters: ModelRequestParameters


class Added(NamedTuple):
    """What memory adds to a request, as parts; None for nothing."""

    profile: SystemPromptPart | None = None
    """What stays for the session: a text of the system in front, because a run keeps instructions
    in its history.
    """
    context: UserPromptPart | None = None
    """What was recalled and quoted: a part before the current turn."""


NOTHING = Added()
"""Nothing is added."""


def added_parts(compiled: CompiledContext, earlier: Added, *, whole: bool) -> Added:
    """Return what memory adds to a request; while it says the same, it is the part of the request
    before. Unless the request is `whole` the profile is in the context.
    """
    sections = outline(compiled)
    text = sections.context if whole else memory_text(compiled)
    profile, context = earlier
    if profile is None or profile.content != sections.remembered or not whole:
        has_profile = whole and bool(sections.remembered)
        profile = SystemPromptPart(sections.remembered) if has_profile else None
    said = [] if context is None else [getattr(each, "content", None) for each in context.content]
    if said != [text]:
        quoted = TextContent(text, metadata={"tallystick": compiled.id})
        context = UserPromptPart([quoted]) if text else None
    return Added(profile, context)


def render(
    compiled: CompiledContext,
    read: ReadRequest,
    messages: Sequence[ModelMessage],
    parameters: ModelRequestParameters,
    added: Added = NOTHING,
) -> Rendered:
    """Return a compiled context as a request, with `added` as what memory adds; unchanged messages
    are the objects that came in. Raises InvalidContext for calls and results that do not pair.
    """
    sections, changed = outline(compiled), changed_items(compiled)
    shown = {item.id: item for item in sections.instructions}
    given = _instructions(messages, parameters)
    instructions = [
        part if item_id not in changed else replace(part, content=shown[item_id].content)
        for place, part in enumerate(given)
        if (item_id := f"instructions-{place}") in shown
    ]
    offered = {item.source_ref.title for item in sections.tools}
    tools = [
        tool
        for tool in parameters.function_tools
        if tool.name in offered or not _is_offered(tool, parameters)
    ]
    if len(tools) < len(parameters.function_tools):
        parameters = replace(parameters, function_tools=tools)
    entries = laid_out(
        sections,
        read.pieces,
        added=[_Entry(None, added.context)] if added.context is not None else [],
        send=lambda item, piece: [_entry(item, piece.raw[0], changed)],
    )
    sent = list(_messages(list(entries), added.context))
    if instructions != given:
        parameters = replace(parameters, instruction_parts=instructions)
        # A request repeats the instructions that it was sent with.
        sent = [
            replace(each, instructions=None) if isinstance(each, ModelRequest) else each
            for each in sent
        ]
    if added.profile is not None:
        sent.insert(0, ModelRequest(parts=[added.profile]))
    return Rendered(sent, parameters)


def _entry(item: ContextItem, entry: _Entry, changed: set[str]) -> _Entry:
    message, part = entry
    if item.id not in changed:
        return entry
    if isinstance(message, ModelResponse):
        calls = [
            ToolCallPart(each.tool_name, {}, each.tool_call_id)
            for each in message.parts
            if isinstance(each, ToolCallPart)
        ]
        return _Entry(message, replace(message, parts=[TextPart(item.content), *calls]))
    if isinstance(part, RetryPromptPart) and part.tool_name is not None:
        # Its own text says more than its content.
        return _Entry(message, ToolReturnPart(part.tool_name, item.content, part.tool_call_id))
    return _Entry(message, replace(part, content=item.content))


def _messages(entries: Sequence[_Entry], added: Any) -> Iterator[ModelMessage]:
    """Yield the messages of entries: parts in a row of one request are one request, and what memory
    adds stands in that of the part behind it.
    """
    origin: ModelRequest | None = None
    parts: list[Any] = []

    def request() -> Iterator[ModelMessage]:
        if not parts:
            return
        is_same = origin is not None and list(map(id, parts)) == list(map(id, origin.parts))
        if origin is not None:
            yield origin if is_same else replace(origin, parts=list(parts))
        else:
            yield ModelRequest(parts=list(parts))

    for place, entry in enumerate(entries):
        if added is not None and entry.part is added:
            behind = entries[place + 1].origin if place + 1 < len(entries) else None
            entry = _Entry(behind if isinstance(behind, ModelRequest) else None, added)
        if isinstance(entry.part, ModelResponse):
            yield from request()
            parts = []
            yield entry.part
            continue
        if parts and entry.origin is not origin:
            yield from request()
            parts = []
        origin = entry.origin if isinstance(entry.origin, ModelRequest) else None
        parts.append(entry.part)
    yield from request()
