"""What the Messages API would refuse, refused before it is sent."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from tallystick.errors import InvalidContext

_MOST_BREAKPOINTS = 4


def check_request(request: Mapping[str, Any]) -> None:
    """Raise InvalidContext for a body that is malformed, or where a result does not stand in the
    message after its call, before any text.
    """
    if not isinstance(request.get("model"), str):
        raise InvalidContext("The request names no model.")
    limit = request.get("max_tokens")
    if type(limit) is not int or limit < 1:
        raise InvalidContext("The request needs `max_tokens`, 1 or more.")
    messages = request.get("messages")
    if not isinstance(messages, list) or not messages:
        raise InvalidContext("The request has no messages.")
    open_calls: dict[str, str] = {}
    for place, message in enumerate(messages):
        name = f"messages[{place}]"
        if not isinstance(message, Mapping) or message.get("role") not in ("user", "assistant"):
            raise InvalidContext(f"{name} is a message of no role: user, assistant.")
        if place == 0 and message["role"] != "user":
            raise InvalidContext(f"{name}: the first message is the user's.")
        blocks = _blocks(name, message)
        _check_results(name, blocks, open_calls)
        open_calls = {
            str(block.get("id")): f"{name}.content[{index}]"
            for index, block in enumerate(blocks)
            if block.get("type") == "tool_use"
        }
        _check_calls(name, message["role"], blocks, open_calls)
    for call_id, where in open_calls.items():
        raise InvalidContext(f"{where}: the call {call_id!r} has no result.", item_ids=(call_id,))
    marked = sum(1 for _ in _breakpoints(request))
    if marked > _MOST_BREAKPOINTS:
        raise InvalidContext(
            f"{marked} blocks have a `cache_control`, and {_MOST_BREAKPOINTS} may have one."
        )


def _blocks(place: str, message: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    content: Any = message.get("content")
    if isinstance(content, str):
        content = [{"type": "text", "text": content}]
    if not isinstance(content, list) or not content:
        raise InvalidContext(f"{place} has no content.")
    for index, block in enumerate(content):
        if not isinstance(block, Mapping) or not isinstance(block.get("type"), str):
            raise InvalidContext(f"{place}.content[{index}] is a block of no type.")
        if block["type"] == "text" and not str(block.get("text") or "").strip():
            raise InvalidContext(f"{place}.content[{index}] is an empty text.")
    return content


def _check_results(
    place: str, blocks: list[Mapping[str, Any]], open_calls: Mapping[str, str]
) -> None:
    """Raise unless the results of a message are those of the calls before it, and come first."""
    answered: set[str] = set()
    is_past_results = False
    for index, block in enumerate(blocks):
        if block["type"] != "tool_result":
            is_past_results = True
            continue
        call_id, where = str(block.get("tool_use_id")), f"{place}.content[{index}]"
        if call_id not in open_calls or call_id in answered:
            raise InvalidContext(
                f"{where}: the result answers no call {call_id!r} of the message before it.",
                item_ids=(call_id,),
            )
        if is_past_results:
            raise InvalidContext(
                f"{where}: the result of {call_id!r} comes after other content.",
                item_ids=(call_id,),
            )
        answered.add(call_id)
    for call_id, where in open_calls.items():
        if call_id not in answered:
            raise InvalidContext(
                f"{where}: the call {call_id!r} has no result in the next message.",
                item_ids=(call_id,),
            )


def _check_calls(
    place: str, role: str, blocks: list[Mapping[str, Any]], calls: Mapping[str, str]
) -> None:
    asked = [block for block in blocks if block["type"] == "tool_use"]
    if asked and role != "assistant":
        raise InvalidContext(f"{place}: a call stands in a message of the user.")
    if len(asked) != len(calls):
        raise InvalidContext(f"{place}: two calls have one id.", item_ids=tuple(calls))
    for block in asked:
        if not isinstance(block.get("name"), str) or not isinstance(block.get("input"), Mapping):
            raise InvalidContext(f"{place}: a call has a name, and an object as `input`.")


def _breakpoints(request: Mapping[str, Any]) -> Iterator[Any]:
    system, tools = request.get("system"), request.get("tools") or ()
    parts = [*(system if isinstance(system, list) else ()), *tools]
    for message in request["messages"]:
        parts += message["content"] if isinstance(message["content"], list) else ()
    yield from (part for part in parts if isinstance(part, Mapping) and part.get("cache_control"))
    if request.get("cache_control"):
        yield request
