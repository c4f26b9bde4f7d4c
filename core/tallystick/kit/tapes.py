"""Tapes of recorded runs, as every runtime's tape model and tape tools read them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from typing import Any

from tallystick.errors import InvalidInput
from tallystick.recorder import Player, tool_form
from tallystick.records import Json, TapeCall


def comparable_request(request: Json, message_form: Callable[[Json], Json], *fields: str) -> Json:
    """Return the parts of a request that two calls are compared by: its messages, each in its
    `message_form`, or its prompt; its tools; and the named fields.
    """
    if not isinstance(request, dict):
        return request
    messages, tools = request.get("messages"), request.get("tools")
    inputs: list[Json] = (
        [message_form(message) for message in messages]
        if isinstance(messages, list)
        else [request.get("prompt")]
    )
    offers: list[Json] = [tool_form(tool) for tool in tools] if isinstance(tools, list) else []
    return {
        "messages": inputs,
        "tools": offers,
        **{field: request.get(field) for field in fields},
    }


def recorded_requests(player: Player) -> list[dict[str, Json]]:
    """Return the requests of the model calls on a tape, in order."""
    requests = (call.request for call in player.tape.calls if call.kind == "model_call")
    return [request for request in requests if isinstance(request, dict)]


def recorded_model(player: Player) -> str | None:
    """Return the name of the model that a tape was recorded with, if a request names it."""
    names = (request.get("model") for request in recorded_requests(player))
    return next((name for name in names if isinstance(name, str)), None)


def check_safe(safe: object) -> None:
    """Raise InvalidInput unless `safe` is a collection of names; one text is none."""
    if isinstance(safe, str) or not isinstance(safe, Collection):
        raise InvalidInput(f"`safe` is {safe!r} where names of tools are meant: safe=[…].")


def check_safe_tools(safe: Collection[str], names: Iterable[str | None]) -> None:
    """Raise InvalidInput if a tool that is to run for real is not among the agent's tools."""
    check_safe(safe)
    unknown = sorted(set(safe) - set(names))
    if unknown:
        raise InvalidInput(f"{', '.join(unknown)} is not among the tools.")


def tool_call_id_of(recorded: TapeCall) -> Json:
    """Return the runtime's id of a recorded tool call, or None."""
    request = recorded.request
    return request.get("tool_call_id") if isinstance(request, dict) else None


def messages_after(player: Player, recorded: TapeCall) -> Iterator[list[Any]]:
    """Yield the messages of each model request on the tape after a recorded call, in order.

    The result of a tool is in the next of them, in the form in which the model got it.
    """
    calls = player.tape.calls
    for call in calls[calls.index(recorded) :]:
        request: Any = call.request
        if call.kind == "model_call":
            yield list(request.get("messages") or ())
