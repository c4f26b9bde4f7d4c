"""Tapes of recorded runs, as every runtime's tape model and tape tools read them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Coroutine, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from types import ModuleType
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


def errors_of(*modules: ModuleType) -> tuple[type[Exception], ...]:
    """Return the exceptions of these modules of a runtime, which a tape may raise again."""
    return tuple(
        kind
        for module in modules
        for kind in list(vars(module).values())
        if isinstance(kind, type) and issubclass(kind, Exception)
    )


def sent_result(
    player: Player,
    recorded: TapeCall,
    result_in: Callable[[Any, Json], Any],
    *,
    parts: str | None = None,
) -> Any:
    """Return the result of a recorded tool call in the form in which the next request to a model
    has it; None where no request does. `result_in` reads it off a message, or off one of its
    `parts`, for the runtime's own id of the call.
    """
    request_of_call: Any = recorded.request
    call_id = request_of_call.get("tool_call_id") if isinstance(request_of_call, dict) else None
    calls = player.tape.calls
    for call in calls[calls.index(recorded) :]:
        request: Any = call.request
        messages: list[Any] = (
            list(request.get("messages") or ()) if call.kind == "model_call" else []
        )
        if parts is not None:
            messages = [part for message in messages for part in message.get(parts) or ()]
        # Some models use an id again: the last one is that of the latest call.
        for message in reversed(messages):
            result = result_in(message, call_id)
            if result is not None:
                return result
    return None


def replay_call(
    ask: Callable[[Mapping[str, Any]], Coroutine[Any, Any, dict[str, Any]]],
) -> Callable[[Mapping[str, Any]], dict[str, Any]]:
    """Return a `call` for `recordings.preview_replay` that awaits `ask`."""

    def call(request: Mapping[str, Any]) -> dict[str, Any]:
        # On a loop of its own thread, so that it works whether or not the caller runs one.
        with ThreadPoolExecutor(max_workers=1) as thread:
            return thread.submit(lambda: asyncio.run(ask(request))).result()

    return call
