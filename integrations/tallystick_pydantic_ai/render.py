"""PydanticAI requests as context items, and a compiled context as a request again.

A request of PydanticAI has several parts, and so has a response: each part of a request is an item
of its own, a response is one item, because its calls belong together. Parts that the compiler
cannot see into pass in their place, and are counted.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
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
from pydantic_core import to_json

from tallystick.compiler import Outline, outline
from tallystick.kit import ToolCall, changed_items, json_value, memory_text, message_item
from tallystick.records import CompiledContext, ContextItem, ToolSpec

Count = Callable[[str], int]


class Piece(NamedTuple):
    """A response, or a part of a request, in its place among the messages."""

    message: ModelMessage
    part: Any
    """The part; of a response the response itself."""
    item: ContextItem | None
    """None for what passes untouched."""
    after: str | None = None
    """Id of the item without which this one says nothing."""


@dataclass(frozen=True)
class ReadRequest:
    """A request as the compiler reads it."""

    pieces: list[Piece]
    instructions: list[InstructionPart]
    parameters: ModelRequestParameters = field(default_factory=ModelRequestParameters)
    untouched: int = 0
    """Tokens of the parts that pass untouched."""

    @property
    def items(self) -> list[ContextItem]:
        """Return the items, instructions first."""
        instructions = [
            ContextItem(id=f"instructions-{place}", kind="system", content=part.content)
            for place, part in enumerate(self.instructions)
        ]
        return [*instructions, *(each.item for each in self.pieces if each.item is not None)]

    @property
    def tools(self) -> list[ToolSpec]:
        """Return the tools that are offered."""
        return tool_specs(self.parameters)

    def for_rules(self, own_text: Callable[[str], str]) -> dict[str, Any]:
        """Return items and tools as rules over items see them: whatever passes untouched counts as
        a text of the system. What memory added went through its compile: `own_text`, which takes
        the frames of the tally out of a text, leaves nothing of it.
        """
        passing = [
            ContextItem(id=f"untouched-{place}", kind="system", content=_text_of(piece.part))
            for place, piece in enumerate(self.pieces)
            if piece.item is None
        ]
        said = [each for each in self.items if not each.content or own_text(each.content).strip()]
        return {"items": [*said, *passing], "tools": self.tools}


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
    pieces = _with_pinned(list(_pieces(messages, count)), prompt)
    texts = [_text_of(piece.part) for piece in pieces if piece.item is None]
    texts += [_json(tool) for tool in parameters.output_tools]
    return ReadRequest(
        pieces, _instructions(messages, parameters), parameters, sum(map(count, texts))
    )


def _with_pinned(pieces: list[Piece], prompt: UserPromptPart | None) -> list[Piece]:
    """Return pieces of which the prompt of the run stays, where it is not the latest of a user."""
    places = [at for at, each in enumerate(pieces) if each.item and each.item.kind == "user_msg"]
    for at in places[:-1]:
        piece = pieces[at]
        if piece.part is prompt and piece.item is not None:
            item = piece.item.model_copy(update={"tags": frozenset(("pinned",))})
            return [*pieces[:at], piece._replace(item=item), *pieces[at + 1 :]]
    return pieces


def _pieces(messages: Sequence[ModelMessage], count: Count) -> Iterator[Piece]:
    answer: str | None = None
    for place, message in enumerate(messages):
        if isinstance(message, ModelResponse):
            answer = f"message-{place}"
            yield Piece(message, message, _response(answer, message, count))
            continue
        for at, part in enumerate(message.parts):
            item = _item(f"message-{place}-{at}", part, count)
            is_feedback = isinstance(part, RetryFeedbackPart | RetryPromptPart)
            yield Piece(message, part, item, answer if item is None and is_feedback else None)


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
    return content if isinstance(content, str) else _json(part)


def _json(value: Any) -> str:
    return to_json(value, fallback=str, bytes_mode="base64").decode()


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


class _Entry(NamedTuple):
    """A part of a request and the request that it came in, or a response."""

    origin: ModelMessage | None
    part: Any


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


def render(compiled: CompiledContext, request: ReadRequest, added: Added = NOTHING) -> Rendered:
    """Return a compiled context as a request, with `added` as what memory adds; unchanged messages
    are the objects that came in.

    Raises InvalidContext for
    calls and results that do not pair.
    """
    sections, changed = outline(compiled), changed_items(compiled)
    shown = {item.id: item for item in (*sections.instructions, *sections.history, *sections.turn)}
    instructions = [
        part if item_id not in changed else replace(part, content=shown[item_id].content)
        for place, part in enumerate(request.instructions)
        if (item_id := f"instructions-{place}") in shown
    ]
    parameters, offered = request.parameters, {item.source_ref.title for item in sections.tools}
    tools = [
        tool
        for tool in parameters.function_tools
        if tool.name in offered or not _is_offered(tool, parameters)
    ]
    if len(tools) < len(parameters.function_tools):
        parameters = replace(parameters, function_tools=tools)
    messages = list(_messages(_entries(sections, request, shown, changed, added.context)))
    if instructions != request.instructions:
        parameters = replace(parameters, instruction_parts=instructions)
        # A request repeats the instructions that it was sent with.
        messages = [
            replace(each, instructions=None) if isinstance(each, ModelRequest) else each
            for each in messages
        ]
    if added.profile is not None:
        messages.insert(0, ModelRequest(parts=[added.profile]))
    return Rendered(messages, parameters)


def _entries(
    sections: Outline,
    request: ReadRequest,
    shown: Mapping[str, ContextItem],
    changed: set[str],
    added: UserPromptPart | None,
) -> Iterator[_Entry]:
    """Yield what is sent in its order: turns as the compiler laid them out, and the rest, which
    stays in any case, where it stood among them.
    """
    pieces = request.pieces
    places = {each.item.id: place for place, each in enumerate(pieces) if each.item is not None}
    standing = deque(
        place
        for place, each in enumerate(pieces)
        if each.item is None or each.item.kind == "system"
    )

    def before(end: int) -> Iterator[_Entry]:
        while standing and standing[0] < end:
            piece = pieces[standing.popleft()]
            if piece.item is not None and piece.item.id in shown:
                yield _entry(shown[piece.item.id], piece, changed)
            elif piece.item is None and (piece.after is None or piece.after in shown):
                yield _Entry(piece.message, piece.part)

    for item in sections.history:
        yield from before(places[item.id])
        yield _entry(item, pieces[places[item.id]], changed)
    for item in sections.turn:
        yield from before(places[item.id])
        entry = _entry(item, pieces[places[item.id]], changed)
        if added is not None:
            yield _Entry(entry.origin if isinstance(entry.origin, ModelRequest) else None, added)
            added = None
        yield entry
    yield from before(len(pieces))
    if added is not None:
        yield _Entry(None, added)


def _entry(item: ContextItem, piece: Piece, changed: set[str]) -> _Entry:
    message, part = piece.message, piece.part
    if item.id not in changed:
        return _Entry(message, part)
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


def _messages(entries: Iterator[_Entry]) -> Iterator[ModelMessage]:
    """Yield the messages of entries: parts in a row of one request are one request."""
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

    for entry in entries:
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
