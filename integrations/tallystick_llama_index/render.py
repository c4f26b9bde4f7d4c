"""LlamaIndex requests as context items, and a compiled context as a request again.

A message is an item. What a ReAct agent writes as text is read as what it is: tools that the system
text describes are schemas, and an action with its observation is a call with its result, also where
one message has several. Blocks that the compiler cannot see into pass with their message, and are
counted.
"""

from __future__ import annotations

import re
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, NamedTuple, cast

from llama_index.core.base.llms import types
from llama_index.core.base.llms.types import ChatMessage, MessageRole, TextBlock
from llama_index.core.tools import BaseTool

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
_OBSERVATION = "Observation: "
"""The beginning of a result, as ReAct agents write it."""
_STEP = re.compile(r"\n(?=(?:Thought|Observation): )")
_ACTION = re.compile(r"^Action: (?P<name>[^\n]*)\nAction Input: (?P<input>.*)", re.M | re.S)
_DESCRIBED = re.compile(
    r"> Tool Name: (?P<name>[^\n]*)\nTool Description: (?P<description>.*?)"
    r"\nTool Args: (?P<schema>\{[^\n]*\})\n",
    re.S,
)
"""A tool in the system text of a ReAct agent."""
_ADDED = ContextItem(id="tallystick-context", kind="memory", content="")
"""Stands for what memory adds."""


class Piece(NamedTuple):
    """A message, or a step of one that has several, as an item."""

    message: ChatMessage
    item: ContextItem


@dataclass(frozen=True)
class ReadRequest:
    """A request as the compiler reads it."""

    pieces: list[Piece]
    tools: list[ToolSpec]
    """The tools that are offered, and those that the system text describes."""

    @property
    def items(self) -> list[ContextItem]:
        """Return the items in their order."""
        return [piece.item for piece in self.pieces]

    @property
    def text(self) -> str:
        """Return the latest request of the user."""
        requests = (item.content for item in reversed(self.items) if item.kind == "user_msg")
        return next(requests, "")


class Rendered(NamedTuple):
    """A compiled context in LlamaIndex's own objects."""

    messages: list[ChatMessage]
    tools: frozenset[str]
    """Names of the tools that may be offered."""


def read_request(
    messages: Sequence[ChatMessage], tools: Sequence[Any] = (), count: Callable[[str], int] = len
) -> ReadRequest:
    """Return messages as pieces in their order, and tools, in any form that a model is given, as
    specifications.
    """
    specs = [tool_spec(tool, place) for place, tool in enumerate(tools)]
    pieces: list[Piece] = []
    steps = list(_steps(messages))
    calls = [_calls(message) if is_first else [] for _, message, _, is_first in steps]
    results = [_result_of(place, steps, calls) for place in range(len(steps))]
    for (item_id, message, text, is_first), own, result in zip(steps, calls, results, strict=True):
        kind = "tool_result" if result is not None else _KINDS.get(message.role, "other")
        if kind == "system":
            specs += [_described_tool(found) for found in _DESCRIBED.finditer(text)]
            text = _DESCRIBED.sub("", text)
        others = [block for block in message.blocks if not _is_readable(block)] if is_first else []
        thoughts = [thought for each in others if isinstance(thought := _thought(each), str)]
        item = message_item(
            item_id,
            kind,
            text,
            count,
            calls=own,
            result_of=result,
            thoughts="".join(thoughts),
            media=len(others) - len(thoughts),
            media_tokens=_MEDIA_TOKENS,
        )
        pieces.append(Piece(message, item))
    return ReadRequest(pieces, specs)


class _Step(NamedTuple):
    item_id: str
    message: ChatMessage
    text: str
    is_first: bool
    """True for the first step of its message, which has its blocks."""


def _steps(messages: Sequence[ChatMessage]) -> Iterator[_Step]:
    """Yield messages, and the steps of those in which a ReAct agent keeps all that it did."""
    for place, message in enumerate(messages):
        text, name = message.content or "", f"message-{place}"
        is_written = _KINDS.get(message.role) == "assistant_msg" and f"\n{_OBSERVATION}" in text
        parts = _STEP.split(text) if is_written else [text]
        for number, part in enumerate(parts):
            yield _Step(name if len(parts) == 1 else f"{name}-{number}", message, part, not number)


def _result_of(place: int, steps: Sequence[_Step], calls: list[list[ToolCall]]) -> str | None:
    """Return the id of the call that a step is the result of, or None. A call that has no id of its
    own, as that of a ReAct agent, is given one.
    """
    step = steps[place]
    result = step.message.additional_kwargs.get("tool_call_id")
    is_result = _KINDS.get(step.message.role) == "tool_result"
    before = place - 1
    if is_result and isinstance(result, str):
        while before >= 0 and _KINDS.get(steps[before].message.role) != "assistant_msg":
            before -= 1
        if before >= 0 and not any(call.tool_call_id == result for call in calls[before]):
            calls[before].append(ToolCall("", {}, result))
        return result
    if before < 0 or not step.text.startswith(_OBSERVATION):
        return None
    action = _ACTION.search(steps[before].text)
    if action is None or _KINDS.get(steps[before].message.role) != "assistant_msg":
        return None
    call_id = f"call-{steps[before].item_id}"
    calls[before].append(ToolCall(action["name"], arguments_of(action["input"]), call_id))
    return call_id


def calls_of(message: ChatMessage) -> list[ToolCall]:
    """Return the calls of a message with their arguments as they are: its tool call blocks, else
    those that its provider left in `additional_kwargs`.
    """
    blocks = [block for block in cast("list[Any]", message.blocks) if _is_call(block)]
    if blocks:
        return [ToolCall(each.tool_name, each.tool_kwargs, each.tool_call_id) for each in blocks]
    calls = []
    for call in message.additional_kwargs.get("tool_calls") or ():
        fields = call if isinstance(call, Mapping) else call.model_dump()
        function = fields.get("function") or fields
        names = (name for name in ("arguments", "input", "args") if name in function)
        if function.get("name"):
            arguments = function.get(next(names, ""), {})
            calls.append(ToolCall(function["name"], arguments, fields.get("id")))
    return calls


def _calls(message: ChatMessage) -> list[ToolCall]:
    """Return the calls of a message that say which results are theirs."""
    return [
        call._replace(arguments=arguments_of(call.arguments))
        for call in calls_of(message)
        if call.tool_call_id
    ]


def _is_call(block: Any) -> bool:
    return _CALL is not None and isinstance(block, _CALL)


def _is_readable(block: Any) -> bool:
    return isinstance(block, TextBlock) or _is_call(block)


def _thought(block: Any) -> str | None:
    """Return what the model thought, which goes back to it as it was; None for media."""
    is_thought = getattr(block, "block_type", None) == "thinking"
    return str(block.content or "") if is_thought else None


def tool_spec(tool: Any, place: int = 0) -> ToolSpec:
    """Return a tool as the compiler reads it; one whose form is not known is named by its place."""
    if isinstance(tool, BaseTool):
        description, parameters = tool.metadata.description, tool.metadata.get_parameters_dict()
        name = tool.metadata.get_name()
    else:
        fields = tool.get("function", tool) if isinstance(tool, Mapping) else {}
        name = fields.get("name") or f"tool-{place}"
        description = fields.get("description") or ("" if "name" in fields else str(tool))
        parameters = fields.get("parameters") or fields.get("input_schema") or {}
    schema: Any = json_value(parameters)
    return ToolSpec(name=name, description=description, parameters=schema)


def _described_tool(found: re.Match[str]) -> ToolSpec:
    schema: Any = json_value(arguments_of(found["schema"]))
    return ToolSpec(name=found["name"], description=found["description"], parameters=schema)


def own_messages(
    messages: Sequence[ChatMessage], own_text: Callable[[str], str]
) -> list[ChatMessage]:
    """Return messages without the frames that stand in earlier turns of the user, because what was
    recalled then may have been forgotten since; a message with nothing else in it is left out.

    `own_text` takes the frames of the tally out of a text; what it does not change stays as it is.
    The latest request may have been given a pack on purpose: it stays whole, and so do the
    instructions.
    """
    latest = next((message for message in reversed(messages) if is_request(message)), None)
    cleaned = (
        message
        if message is latest or message.role != MessageRole.USER
        else own_message(message, own_text)
        for message in messages
    )
    return [message for message in cleaned if message is not None]


def is_request(message: ChatMessage) -> bool:
    """Return True for what a user says, and no agent in the user's name."""
    is_observation = (message.content or "").startswith(_OBSERVATION)
    return message.role == MessageRole.USER and not is_observation


def own_message(message: ChatMessage, own_text: Callable[[str], str]) -> ChatMessage | None:
    """Return a message without the frames that this tally made, and None where nothing else is in
    it.
    """
    blocks = []
    for block in message.blocks:
        if not isinstance(block, TextBlock) or (own := own_text(block.text)) == block.text:
            blocks.append(block)
        elif own:
            blocks.append(block.model_copy(update={"text": own}))
    if blocks == message.blocks:
        return message if blocks or message.additional_kwargs else None
    if not blocks and not message.additional_kwargs.keys() - {"session_id"}:
        return None
    return message.model_copy(update={"blocks": blocks})


def with_memory(messages: Sequence[ChatMessage], compiled: CompiledContext) -> list[ChatMessage]:
    """Return messages with what memory adds as one message before the latest request."""
    text = memory_text(compiled)
    added = ChatMessage(text, role=MessageRole.USER) if text else None
    return before_request(messages, added, is_request)


def render(compiled: CompiledContext, request: ReadRequest) -> Rendered:
    """Return a compiled context as messages, and the tools that may be offered; unchanged messages
    are the objects that came in.

    What was recalled and quoted is a message of the user's before the current turn, so that the
    messages before it stay the same. Raises InvalidContext for calls and results that do not pair.
    """
    sections, changed = outline(compiled), changed_items(compiled)
    offered = frozenset(item.source_ref.title or item.id for item in sections.tools)
    shown = {item.id: item for item in (*sections.instructions, *sections.history, *sections.turn)}
    sizes = Counter(id(piece.message) for piece in request.pieces)
    messages = []
    pieces = _in_order(sections, request.pieces, memory_text(compiled))
    for _, group in groupby(pieces, key=lambda piece: id(piece.message)):
        parts = list(group)
        message, first = parts[0]
        items = [shown[part.item.id] for part in parts if part.item.id in shown]
        is_same = len(items) == sizes[id(message)] and not changed & {item.id for item in items}
        if is_same:
            is_whole = {each["name"] for each in _described(message)} <= offered
            messages.append(message if is_whole else _system(message, message.content, offered))
        elif first.kind == "system":
            messages.append(_system(message, items[0].content if items else "", offered))
        elif items:
            messages.append(_changed(message, items))
    return Rendered([message for message in messages if message is not None], offered)


def _in_order(sections: Outline, pieces: Sequence[Piece], added: str) -> Iterator[Piece]:
    """Yield what is sent in its order: turns as the compiler laid them out, what memory adds before
    the current one, and instructions where they stood.
    """
    places = {piece.item.id: place for place, piece in enumerate(pieces)}
    systems = deque(place for place, piece in enumerate(pieces) if piece.item.kind == "system")
    memory = [Piece(ChatMessage(added, role=MessageRole.USER), _ADDED)] if added else []
    for item in (*sections.history, *sections.turn):
        while systems and systems[0] < places[item.id]:
            yield pieces[systems.popleft()]
        if sections.turn and item is sections.turn[0]:
            yield from memory
        yield pieces[places[item.id]]
    yield from (pieces[place] for place in systems)
    if not sections.turn:
        yield from memory


def _described(message: ChatMessage) -> list[re.Match[str]]:
    """Return the tools that the text of a system message describes."""
    is_system = _KINDS.get(message.role) == "system"
    return list(_DESCRIBED.finditer(message.content or "")) if is_system else []


def _system(message: ChatMessage, text: str | None, offered: frozenset[str]) -> ChatMessage | None:
    """Return a system message with this text and those of its tools that may be offered; None for
    nothing.
    """
    text = text or ""
    found = {each["name"]: each[0] for each in _described(message)}
    kept = [name for name in found if name in offered]
    if _DESCRIBED.search(text):
        text = _DESCRIBED.sub(lambda each: each[0] if each["name"] in offered else "", text)
    else:
        text = "\n".join(filter(None, [text, *(found[name] for name in kept)]))
    # The format that a ReAct agent asks for names the tools too.
    names = re.compile(rf"(?<=\s){re.escape(', '.join(found))}(?=\))")
    text = names.sub(lambda _: ", ".join(kept), text)
    return message.model_copy(update={"blocks": [TextBlock(text=text)]}) if text else None


def _changed(message: ChatMessage, items: Sequence[ContextItem]) -> ChatMessage:
    """Return a message with the text that the compiler left of it, and its calls without their
    arguments.
    """
    calls = [
        block.model_copy(update={"tool_kwargs": {}}) for block in message.blocks if _is_call(block)
    ]
    attributes = {
        name: message.additional_kwargs[name]
        for name in ("tool_call_id",)
        if name in message.additional_kwargs
    }
    if message.additional_kwargs.get("tool_calls") and not calls:
        attributes["tool_calls"] = [
            {
                "id": call.tool_call_id,
                "type": "function",
                "function": {"name": call.name, "arguments": "{}"},
            }
            for call in _calls(message)
        ]
    text = "\n".join(item.content for item in items)
    return ChatMessage(
        role=message.role,
        blocks=[TextBlock(text=text), *calls],
        additional_kwargs=attributes,
    )
