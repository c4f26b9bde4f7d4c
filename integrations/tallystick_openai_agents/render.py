"""Requests of the SDK as context items, and a compiled context as a request again.

What a model answered at once (its reasoning, its words, its calls) is one item, because the parts
belong together; every result and every message of somebody else is one of its own. Items that the
compiler cannot see into pass in their place, and are counted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from agents import FunctionTool
from pydantic_core import to_json

from tallystick.compiler import outline
from tallystick.kit import (
    ToolCall,
    arguments_of,
    changed_items,
    json_value,
    memory_text,
    message_item,
)
from tallystick.kit.laying_out import Piece, laid_out
from tallystick.records import CompiledContext, ContextItem, ToolSpec
from tallystick_openai_agents.messages import (
    ModelRequest,
    as_json,
    schema_of,
    text_in,
    tool_facts,
)

Count = Callable[[str], int]
_INSTRUCTIONS = "instructions-0"


@dataclass(frozen=True)
class ReadRequest:
    """A request as the compiler reads it."""

    request: ModelRequest
    pieces: list[Piece]
    untouched: int = 0
    """Tokens of the parts that pass untouched."""

    @property
    def items(self) -> list[ContextItem]:
        """Return the items, instructions first."""
        text = self.request.instructions
        first = [ContextItem(id=_INSTRUCTIONS, kind="system", content=text)] if text else []
        return [*first, *(each.item for each in self.pieces if each.item is not None)]

    @property
    def tools(self) -> list[ToolSpec]:
        """Return the tools that are offered, with the handoffs, which are tools to a model."""
        functions = [tool for tool in self.request.tools if isinstance(tool, FunctionTool)]
        facts = [*map(tool_facts, functions), *map(tool_facts, self.request.handoffs)]
        specs = {
            each["name"]: ToolSpec(
                name=each["name"],
                description=each["description"] or "",
                parameters=json_value(each["parameters"]),  # type: ignore[arg-type]
            )
            for each in facts
        }
        return [*specs.values()]

    def for_rules(self, own_text: Callable[[str], str]) -> dict[str, Any]:
        """Return items and tools as rules over items see them: whatever passes untouched counts as
        a text of the system. `own_text` takes the frames of the tally out of a text.
        """
        passing = [
            ContextItem(id=f"untouched-{place}", kind="system", content=_json(piece.raw))
            for place, piece in enumerate(self.pieces)
            if piece.item is None
        ]
        said = [each for each in self.items if not each.content or own_text(each.content).strip()]
        return {"items": [*said, *passing], "tools": self.tools}


def read_request(request: ModelRequest, count: Count = len) -> ReadRequest:
    """Return a request as pieces in their order."""
    pieces = list(_pieces([as_json(item) for item in request.input], request.input, count))
    texts = [_json(piece.raw) for piece in pieces if piece.item is None]
    schema = schema_of(request.output_schema)
    texts += [] if schema is None else [_json(schema)]
    return ReadRequest(request, pieces, sum(map(count, texts)))


def _pieces(items: list[Any], raw: list[Any], count: Count) -> Iterator[Piece]:
    asked = {item.get("call_id"): place for place, item in enumerate(items) if _is_call(item)}
    answered = {
        item["call_id"]
        for place, item in enumerate(items)
        if _is_result(item) and item.get("call_id") and asked.get(item["call_id"], place) < place
    }
    group: list[int] = []

    def answer() -> Iterator[Piece]:
        if group:
            parts = [items[place] for place in group]
            yield Piece(
                tuple(raw[place] for place in group),
                _answer(f"item-{group[0]}", parts, answered, count),
            )
            group.clear()

    for place, item in enumerate(items):
        if _is_of_model(item):
            group.append(place)
            continue
        yield from answer()
        yield Piece((raw[place],), _item(f"item-{place}", item, answered, count))
    yield from answer()


def _is_result(item: Any) -> bool:
    return isinstance(item, dict) and str(item.get("type")).endswith("_output")


def _is_call(item: Any) -> bool:
    return isinstance(item, dict) and str(item.get("type")).endswith("_call")


def _is_of_model(item: Any) -> bool:
    return isinstance(item, dict) and (
        item.get("role") == "assistant" or item.get("type") == "reasoning" or _is_call(item)
    )


def _answer(item_id: str, parts: list[Any], answered: set[Any], count: Count) -> ContextItem:
    # A call that nothing answers yet, or that the provider ran itself, has no result to go with.
    calls = [part for part in parts if _is_call(part) and part.get("call_id") in answered]
    spoken = [part for part in parts if part.get("role") == "assistant"]
    others = [part for part in parts if part not in calls and part not in spoken]
    said = [text_in(part.get("content")) for part in spoken]
    return message_item(
        item_id,
        "assistant_msg",
        "\n".join(text for text, _ in said if text),
        count,
        calls=[
            ToolCall(
                part.get("name") or part["type"],
                arguments_of(part.get("arguments") or part.get("input") or part.get("action")),
                part["call_id"],
            )
            for part in calls
        ],
        thoughts="".join(map(_json, others)),
        media=sum(media for _, media in said),
    )


def _item(item_id: str, item: Any, answered: set[Any], count: Count) -> ContextItem | None:
    """Return an item of somebody other than the model; None for one of an unknown kind."""
    if not isinstance(item, dict):
        return None
    role = item.get("role")
    if _is_result(item) and item.get("call_id") in answered:
        text, media = text_in(item.get("output"))
        result_of = item["call_id"]
        return message_item(item_id, "tool_result", text, count, result_of=result_of, media=media)
    text, media = text_in(item.get("content")) if role else ("", 0)
    if role in ("system", "developer"):
        return ContextItem(id=item_id, kind="system", content=text)
    return message_item(item_id, "user_msg", text, count, media=media) if role == "user" else None


def _json(value: Any) -> str:
    return to_json(value, fallback=str, bytes_mode="base64").decode()


class Added(NamedTuple):
    """What memory adds to a request, as texts; empty for nothing."""

    profile: str = ""
    """What stays for the session: behind the instructions, which nothing keeps."""
    context: str = ""
    """What was recalled: a message before the current turn."""


def added_texts(compiled: CompiledContext, *, whole: bool) -> Added:
    """Return what memory adds to a request. Unless that is `whole` the profile is in the
    context.
    """
    if not whole:
        return Added(context=memory_text(compiled))
    sections = outline(compiled)
    return Added(sections.remembered, sections.context)


def with_memory(request: ModelRequest, added: Added) -> ModelRequest:
    """Return a request with what memory adds, and nothing else changed."""
    if not added.context:
        return request
    users = [
        place for place, item in enumerate(request.input) if as_json(item).get("role") == "user"
    ]
    at = users[-1] if users else len(request.input)
    return replace(request, input=[*request.input[:at], _said(added), *request.input[at:]])


def render(compiled: CompiledContext, read: ReadRequest, added: Added) -> ModelRequest:
    """Return a compiled context as a request, with `added` as what memory adds; unchanged items
    are the objects that came in. Raises InvalidContext for calls and results that do not pair.
    """
    sections, changed = outline(compiled), changed_items(compiled)
    texts = [each.content for each in sections.instructions if each.id == _INSTRUCTIONS]
    texts += [added.profile] if added.profile else []
    request, offered = read.request, {item.source_ref.title for item in sections.tools}
    return replace(
        request,
        instructions="\n\n".join(texts) or None,
        input=list(
            laid_out(
                sections,
                read.pieces,
                added=[_said(added)] if added.context else [],
                send=lambda item, piece: _sent(item, piece, changed),
            )
        ),
        tools=[
            tool
            for tool in request.tools
            if not isinstance(tool, FunctionTool) or tool.name in offered
        ],
        handoffs=[each for each in request.handoffs if each.tool_name in offered],
    )


def _said(added: Added) -> dict[str, Any]:
    return {"role": "user", "content": added.context}


def _sent(item: ContextItem, piece: Piece, changed: set[str]) -> Iterator[Any]:
    if item.id not in changed:
        yield from piece.raw
        return
    parts = [as_json(part) for part in piece.raw]
    if item.kind == "tool_result":
        yield {**parts[0], "output": item.content}
    elif item.kind != "assistant_msg":
        yield {**parts[0], "content": item.content}
    else:
        if item.content:
            yield {"role": "assistant", "content": item.content}
        calls = [part for part in parts if part.get("call_id") in item.tool_call_ids]
        # What was left out of an answer may stand in the arguments of its calls too.
        yield from ({**call, "arguments": "{}"} if "arguments" in call else call for call in calls)
