"""What the Responses API would refuse, refused before it is sent."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tallystick.errors import InvalidContext
from tallystick.kit import check_pairs

_ROLES = ("user", "assistant", "system", "developer")


def check_request(request: Mapping[str, Any]) -> None:
    """Raise InvalidContext for a body that is malformed, or whose calls and results do not pair.

    The calls of an answer that OpenAI stored (`previous_response_id`) stand before the input, so
    that results of theirs answer no call in it.
    """
    if not isinstance(request.get("model"), str):
        raise InvalidContext("The request names no model.")
    items = request.get("input")
    if isinstance(items, str) and items:
        return
    if not isinstance(items, list) or not items:
        raise InvalidContext("The request has no input.")
    calls: dict[str, str] = {}
    results: dict[str, str] = {}
    is_continued = bool(request.get("previous_response_id") or request.get("conversation"))
    for place, item in enumerate(items):
        name = f"input[{place}]"
        if not isinstance(item, Mapping):
            raise InvalidContext(f"{name} is no object.")
        kind = item.get("type", "message")
        if kind == "message":
            _check_message(name, item)
        elif kind == "function_call":
            _take(name, item, calls)
            if not isinstance(item.get("name"), str) or not isinstance(item.get("arguments"), str):
                raise InvalidContext(f"{name}: a call has a name, and its arguments as text.")
        elif kind == "function_call_output":
            _take(name, item, results)
            if item["call_id"] not in calls and not is_continued:
                raise InvalidContext(
                    f"{name}: the result answers no call {item['call_id']!r} before it.",
                    item_ids=(str(item["call_id"]),),
                )
    if is_continued:
        results = {call: place for call, place in results.items() if call in calls}
    check_pairs(calls, results)


def _take(place: str, item: Mapping[str, Any], taken: dict[str, str]) -> None:
    call_id = item.get("call_id")
    if not isinstance(call_id, str) or not call_id:
        raise InvalidContext(f"{place} has no `call_id`.")
    if call_id in taken:
        raise InvalidContext(
            f"{place} and {taken[call_id]} have one `call_id`, {call_id!r}.", item_ids=(call_id,)
        )
    taken[call_id] = place


def _check_message(place: str, item: Mapping[str, Any]) -> None:
    content = item.get("content")
    if item.get("role") not in _ROLES:
        raise InvalidContext(f"{place} is a message of no role: {', '.join(_ROLES)}.")
    if not isinstance(content, str | list) or (isinstance(content, list) and not content):
        raise InvalidContext(f"{place} is a message without content.")
