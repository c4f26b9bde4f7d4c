"""Requests of the SDK as context items, and a compiled context as a request again.

What a model answered at once (its reasoning, its words, its calls) is one item, because the parts
belong together; every result and every message of somebody else is one of its own. Items that the
compiler cannot see into pass in their place, and are counted.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from agents import FunctionTool

from tallystick.kit import ToolCall, arguments_of, json_value, message_item
from tallystick.kit.laying_out import (
    INSTRUCTIONS,
    Count,
    Piece,
    ReadRequest,
    before_request,
    lay_out,
)
from tallystick.kit.rendering import json_text
from tallystick.records import CompiledContext, ContextItem, ToolSpec
from tallystick_openai_agents.messages import (
    ModelRequest,
    as_json,
    schema_of,
    text_in,
    tool_facts,
)


def read_request(request: ModelRequest, count: Count) -> ReadRequest:
    """Return a request as pieces in their order, with the tools that are offered: handoffs are
    tools to a model too.
    """
    text, schema = request.system_instructions, schema_of(request.output_schema)
    functions = [tool for tool in request.tools if isinstance(tool, FunctionTool)]
    facts = [*map(tool_facts, functions), *map(tool_facts, request.handoffs)]
    specs = {
        each["name"]: ToolSpec(
            name=each["name"],
            description=each["description"] or "",
            parameters=json_value(each["parameters"]),  # type: ignore[arg-type]
        )
        for each in facts
    }
    return ReadRequest(
        [ContextItem(id=INSTRUCTIONS, kind="system", content=text)] if text else [],
        list(_pieces([as_json(item) for item in request.input], request.input, count)),
        [*specs.values()],
        [] if schema is None else [json_text(schema)],
    )


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
        made = _item(f"item-{place}", item, answered, count)
        yield Piece((raw[place],), made, "" if made else json_text((raw[place],)))
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
        thoughts="".join(map(json_text, others)),
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


def with_memory(request: ModelRequest, text: str) -> ModelRequest:
    """Return a request with what memory adds as a message before that of the user."""
    added = _said(text) if text else None
    items = before_request(request.input, added, lambda item: as_json(item).get("role") == "user")
    return replace(request, input=items)


def render(compiled: CompiledContext, read: ReadRequest, request: ModelRequest) -> ModelRequest:
    """Return a compiled context as a request. Raises InvalidContext for calls and results that do
    not pair.
    """
    layout = lay_out(compiled, read, message=_said, change=_changed)
    tools, handoffs = request.tools, request.handoffs
    return replace(
        request,
        system_instructions=layout.instructions,
        input=layout.parts,
        tools=[
            each
            for each in tools
            if not isinstance(each, FunctionTool) or each.name in layout.tools
        ],
        handoffs=[each for each in handoffs if each.tool_name in layout.tools],
    )


def _said(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def _changed(item: ContextItem, piece: Piece) -> Iterator[Any]:
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
