"""A compiled context as the body of `responses.create`: instructions, input, tools, and its cache
breakpoints.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from tallystick.compiler import outline
from tallystick.compiler.calls import calls_of, tool_of
from tallystick.errors import InvalidInput
from tallystick.kit import images_of, native_part, with_builtin_tools
from tallystick.records import CompiledContext, ContextItem

_BREAK = {"mode": "explicit"}
_OWN = ("input", "instructions", "stream", "previous_response_id")
"""Fields that the context decides."""

Native = Callable[[ContextItem], Any]


def render_responses(
    compiled: CompiledContext,
    *,
    model: str | None = None,
    breakpoints: bool = True,
    cache_key: str | None = None,
    continue_stored: bool = False,
    tools: Sequence[Mapping[str, Any]] = (),
    **parameters: Any,
) -> dict[str, Any]:
    """Return the body of a Responses request for a compiled context, and nothing else.

    The order of tools and the bytes of everything are those of the compile; `tools` of OpenAI's own
    (`{"type": "web_search"}`) stand behind the compiled ones. Two breakpoints are marked, for
    models that know them: the last text of the user in the history window, which stays from turn to
    turn, and the latest request, which stays while its tools work. `cache_key` becomes
    `prompt_cache_key`; `parameters` go in as they are.

    An answer of OpenAI's that the compiler left alone goes back with its reasoning, as it came. The
    state of a conversation is the tally's, so `store` is False; with `continue_stored` it is
    OpenAI's: only what follows the last stored answer is sent, after its `previous_response_id`.
    Raises InvalidContext for calls that do not pair or whose arguments are not known, and
    InvalidInput.
    """
    _refuse_own(parameters)
    sections = outline(compiled)
    name = model or compiled.model
    if name is None:
        raise InvalidInput("Name the `model`; the compile was for none.", argument="model")
    native = native_part(compiled, "openai")
    history: Sequence[ContextItem] = sections.history
    turn: Sequence[ContextItem] = sections.turn
    context = sections.context
    previous = None
    if continue_stored:
        history, turn, previous, is_same_turn = _after_stored(history, turn, native)
        context = "" if is_same_turn else context
    earlier = list(_input(history, native))
    block = [_message("user", context)] if context else []
    now = list(_input(turn, native))
    if breakpoints:
        _mark(earlier[::-1])
        _mark(now)
    body: dict[str, Any] = {
        "model": name,
        "input": [*earlier, *block, *now],
        "store": continue_stored,
        **parameters,
    }
    if previous is not None:
        body["previous_response_id"] = previous
    if sections.system:
        body["instructions"] = sections.system
    own_tools = [{"type": "function", **tool_of(item), "strict": False} for item in sections.tools]
    if own_tools or tools:
        body["tools"] = with_builtin_tools(own_tools, tools)
    if cache_key is not None:
        body["prompt_cache_key"] = cache_key
    if not body["input"]:
        raise InvalidInput("There is nothing to ask: no message was compiled.")
    return body


def _refuse_own(parameters: Mapping[str, Any]) -> None:
    if own := [name for name in _OWN if name in parameters]:
        raise InvalidInput(
            f"{', '.join(own)} comes from the compiled context. Compile what you want to send.",
            argument=own[0],
        )


def _after_stored(
    history: Sequence[ContextItem], turn: Sequence[ContextItem], native: Native
) -> tuple[Sequence[ContextItem], Sequence[ContextItem], str | None, bool]:
    """Return what follows the last answer that OpenAI stored, its id, and whether that answer is
    one of the current turn, whose context was sent before.
    """
    for place in range(len(turn) - 1, -1, -1):
        if (name := _stored_id(native(turn[place]))) is not None:
            return (), turn[place + 1 :], name, True
    for place in range(len(history) - 1, -1, -1):
        if (name := _stored_id(native(history[place]))) is not None:
            return history[place + 1 :], turn, name, False
    return history, turn, None, False


def _stored_id(part: Any) -> str | None:
    return part.get("response_id") if part and part.get("stored") else None


def _input(items: Iterable[ContextItem], native: Native) -> Iterator[dict[str, Any]]:
    for item in items:
        part = native(item)
        if part:
            yield from (dict(each) for each in part["output"] if _may_return(each))
            continue
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
        if item.content or images_of(item) or not item.tool_call_ids:
            yield _message(role, item.content, images_of(item) if role == "user" else ())
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


def _may_return(output: Mapping[str, Any]) -> bool:
    """Return False for reasoning that nobody stored and whose text did not come along."""
    return output.get("type") != "reasoning" or bool(output.get("encrypted_content"))


def _message(role: str, text: str, images: Iterable[Mapping[str, str]] = ()) -> dict[str, Any]:
    # An answer of the model is plain text here: an output message proper would need the id that it
    # came with.
    if role == "assistant":
        return {"type": "message", "role": role, "content": text}
    content: list[dict[str, Any]] = [{"type": "input_text", "text": text}] if text else []
    for image in images:
        url = image.get("url") or f"data:{image['media_type']};base64,{image['data']}"
        content.append({"type": "input_image", "image_url": url, "detail": "auto"})
    return {"type": "message", "role": role, "content": content}


def _mark(items: list[dict[str, Any]]) -> None:
    for item in items:
        if item.get("role") == "user" and isinstance(item["content"], list):
            item["content"][-1]["prompt_cache_breakpoint"] = dict(_BREAK)
            return
