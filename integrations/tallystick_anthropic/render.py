"""A compiled context as the body of `messages.create`: system, tools, messages, and its cache
breakpoints.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal

from tallystick.compiler import outline
from tallystick.compiler.calls import calls_of, tool_of
from tallystick.errors import InvalidInput
from tallystick.kit import images_of, native_part, with_builtin_tools
from tallystick.records import CompiledContext, ContextItem

_OWN = ("messages", "system", "stream")
"""Fields that the context decides."""
_MARKABLE = ("text", "image", "tool_use", "tool_result", "document")

_EARLIER = "(The conversation began earlier.)"
"""The first message if the window begins with an answer: the first must be the user's."""

Block = dict[str, Any]
Native = Callable[[ContextItem], Any]


def render_messages(
    compiled: CompiledContext,
    *,
    max_tokens: int,
    model: str | None = None,
    breakpoints: bool = True,
    ttl: Literal["5m", "1h"] | None = None,
    thinking: bool | Mapping[str, Any] = False,
    tools: Sequence[Mapping[str, Any]] = (),
    **parameters: Any,
) -> dict[str, Any]:
    """Return the body of a Messages request for a compiled context, and nothing else.

    Messages of one role in a row are one message; the results of calls come first in the message
    after the calls; `tools` of Anthropic's own stand behind the compiled ones. Up to four
    breakpoints are marked: the end of the instructions (which covers the tools before them), of the
    history window, of the latest request, and of everything. `ttl` is their lifetime; `parameters`
    go in as they are. `thinking` lets the model think, as much as it wants or as the mapping says;
    an answer that the compiler left alone goes back with its thoughts and their signatures.
    Raises InvalidContext for calls that do not pair or whose arguments are not known, and
    InvalidInput.
    """
    if own := [field for field in _OWN if field in parameters]:
        raise InvalidInput(
            f"{', '.join(own)} comes from the compiled context. Compile what you want to send.",
            argument=own[0],
        )
    sections = outline(compiled)
    name = model or compiled.model
    if name is None:
        raise InvalidInput("Name the `model`; the compile was for none.", argument="model")
    native = native_part(compiled, "anthropic")
    blocks = list(_blocks(sections.history, native))
    ends = [len(blocks)]
    if sections.context:
        blocks.append(("user", _text(sections.context)))
    for item in sections.turn:
        blocks += _blocks([item], native)
        if item.kind == "user_msg":
            ends.append(len(blocks))
    ends.append(len(blocks))
    if not blocks:
        raise InvalidInput("There is nothing to ask: no message was compiled.")
    body: dict[str, Any] = {"model": name, "max_tokens": max_tokens, **parameters}
    if thinking:
        body["thinking"] = {"type": "adaptive"} if thinking is True else dict(thinking)
    own_tools = [_tool(item) for item in sections.tools]
    if own_tools or tools:
        body["tools"] = with_builtin_tools(own_tools, tools)
    if sections.system:
        body["system"] = [_text(sections.system)]
    if breakpoints:
        first = body["system"][-1:] if sections.system else body.get("tools", [])[-1:]
        marks = (_markable(blocks[:end]) for end in dict.fromkeys(ends) if end)
        blocks_to_mark = [*first, *(block for block in marks if block is not None)]
        for block in blocks_to_mark[:4]:
            block["cache_control"] = (
                {"type": "ephemeral"} if ttl is None else {"type": "ephemeral", "ttl": ttl}
            )
    body["messages"] = _messages(blocks)
    return body


def _markable(blocks: Sequence[tuple[str, Block]]) -> Block | None:
    """Return the last block that may have a breakpoint: thoughts may not."""
    return next((block for _, block in reversed(blocks) if block["type"] in _MARKABLE), None)


def _blocks(items: Iterable[ContextItem], native: Native) -> Iterator[tuple[str, Block]]:
    for item in items:
        if part := native(item):
            yield from (("assistant", dict(block)) for block in part["content"])
            continue
        if item.tool_call_id is not None:
            result: Block = {
                "type": "tool_result",
                "tool_use_id": item.tool_call_id,
                "content": item.content,
            }
            if item.metadata.get("is_error") is True:
                result["is_error"] = True
            yield "user", result
            continue
        role = "assistant" if item.kind == "assistant_msg" else "user"
        if role == "user":
            yield from ((role, _image(image)) for image in images_of(item))
        if item.content.strip():
            yield role, _text(item.content)
        for call in calls_of(item):
            yield (
                role,
                {"type": "tool_use", "id": call.id, "name": call.name, "input": call.arguments},
            )


def _messages(blocks: Iterable[tuple[str, Block]]) -> list[dict[str, Any]]:
    messages: list[dict[str, Any]] = []
    for role, block in blocks:
        if not messages and role == "assistant":
            messages.append({"role": "user", "content": [_text(_EARLIER)]})
        if messages and messages[-1]["role"] == role:
            messages[-1]["content"].append(block)
        else:
            messages.append({"role": role, "content": [block]})
    return messages


def _tool(item: ContextItem) -> Block:
    tool = tool_of(item)
    schema = tool["parameters"] or {"type": "object", "properties": {}}
    return {"name": tool["name"], "description": tool["description"], "input_schema": schema}


def _image(image: Mapping[str, str]) -> Block:
    if "url" in image:
        return {"type": "image", "source": {"type": "url", "url": image["url"]}}
    return {"type": "image", "source": {"type": "base64", **image}}


def _text(text: str) -> Block:
    return {"type": "text", "text": text}
