"""PydanticAI requests and responses as JSON values, and back."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from operator import is_
from typing import Any, NamedTuple

from pydantic import TypeAdapter
from pydantic_ai.messages import (
    ModelMessage,
    ModelMessagesTypeAdapter,
    ModelRequest,
    ModelResponse,
    TextContent,
    UserContent,
    UserPromptPart,
)
from pydantic_ai.models import Model, ModelRequestParameters
from pydantic_ai.settings import ModelSettings
from pydantic_core import to_json

from tallystick.adapters import recordable_parameters

__all__ = [
    "RequestArguments",
    "answer_of",
    "arguments_of",
    "output_text",
    "own_messages",
    "prompt_part",
    "prompt_text",
    "request_of",
    "with_part_behind",
]

_parameters: TypeAdapter[ModelRequestParameters] = TypeAdapter(ModelRequestParameters)


class RequestArguments(NamedTuple):
    """The arguments of `Model.request`, in its order."""

    messages: list[ModelMessage]
    settings: ModelSettings | None
    parameters: ModelRequestParameters


def request_of(
    model: Model,
    messages: Sequence[ModelMessage],
    settings: ModelSettings | None,
    parameters: ModelRequestParameters,
) -> dict[str, Any]:
    """Return the request that the model class gets: final messages, settings and parameters."""
    return {
        "level": "runtime",
        "model": model.model_name,
        "messages": ModelMessagesTypeAdapter.dump_python(list(messages), mode="json"),
        "settings": recordable_parameters(dict(settings or {})),
        "parameters": recordable_parameters(_parameters.dump_python(parameters, mode="json")),
    }


def answer_of(response: ModelResponse) -> dict[str, Any]:
    """Return a response as JSON: the answer of the model, and apart from it its envelope."""
    message = ModelMessagesTypeAdapter.dump_python([response], mode="json")[0]
    answer = {name: message.pop(name) for name in ("parts", "finish_reason") if name in message}
    return {"answer": answer, "envelope": message}


def prompt_text(prompt: str | Sequence[UserContent] | None) -> str | None:
    """Return the text of a prompt: of one with pictures and the like the parts that are text."""
    if prompt is None or isinstance(prompt, str):
        return prompt
    texts = [
        part if isinstance(part, str) else part.content
        for part in prompt
        if isinstance(part, str | TextContent)
    ]
    return "\n".join(texts) or None


def output_text(output: Any) -> str | None:
    """Return the text of an agent's output: of a typed one its JSON."""
    if output is None or isinstance(output, str):
        return output
    return to_json(output, fallback=str).decode()


def arguments_of(
    request: Mapping[str, Any],
) -> RequestArguments:
    """Return the arguments of `Model.request` for a recorded request, as PydanticAI's objects."""
    settings: Any = dict(request["settings"]) or None
    return RequestArguments(
        ModelMessagesTypeAdapter.validate_python(request["messages"]),
        settings,
        _parameters.validate_python(request["parameters"]),
    )


def prompt_part(
    messages: Sequence[ModelMessage], run_id: str | None, own_text: Callable[[str], str]
) -> UserPromptPart | None:
    """Return the prompt of a run: its first one, or for a run that goes on without one the latest
    of the conversation; None where there is none.

    `own_text` takes the frames of the tally out of a text: what has nothing else is no prompt.
    """
    latest: UserPromptPart | None = None
    for message in messages:
        if not isinstance(message, ModelRequest):
            continue
        for part in message.parts:
            if (
                isinstance(part, UserPromptPart)
                and own_text(prompt_text(part.content) or "").strip()
            ):
                if _is_of(message, run_id):
                    return part
                latest = part
    return latest


def own_messages(
    messages: Sequence[ModelMessage],
    *,
    own_text: Callable[[str], str],
    run_id: str | None,
    prompt: UserPromptPart | None,
) -> list[ModelMessage]:
    """Return messages without the frames that stand in the prompts of earlier runs, because what
    was recalled then may have been forgotten since; a request with nothing else is left out.

    `own_text` takes the frames of the tally out of a text. `prompt` and the messages of the run
    stay whole: an application may give them a pack on purpose. What is not changed is the object
    that came in.
    """
    own: list[ModelMessage] = []
    for message in messages:
        if not isinstance(message, ModelRequest) or _is_of(message, run_id):
            own.append(message)
            continue
        parts = [
            _own_part(part, own_text)
            if isinstance(part, UserPromptPart) and part is not prompt
            else part
            for part in message.parts
        ]
        if all(part is before for part, before in zip(parts, message.parts, strict=True)):
            own.append(message)
        elif remaining := [part for part in parts if part is not None]:
            own.append(replace(message, parts=remaining))
    return own


def _own_part(part: UserPromptPart, own_text: Callable[[str], str]) -> UserPromptPart | None:
    if isinstance(part.content, str):
        text = own_text(part.content)
        if text == part.content:
            return part
        return replace(part, content=text) if text else None
    pieces: list[Any] = []
    for piece in part.content:
        text_before = piece.content if isinstance(piece, TextContent) else piece
        if not isinstance(text_before, str) or (text := own_text(text_before)) == text_before:
            pieces.append(piece)
        elif text:
            pieces.append(replace(piece, content=text) if isinstance(piece, TextContent) else text)
    if len(pieces) == len(part.content) and all(map(is_, pieces, part.content)):
        return part
    return replace(part, content=pieces) if pieces else None


def _is_of(message: ModelRequest, run_id: str | None) -> bool:
    return run_id is not None and message.run_id == run_id


def with_part_behind(
    messages: Sequence[ModelMessage], anchor: UserPromptPart | None, part: UserPromptPart
) -> list[ModelMessage]:
    """Return messages with a part behind the anchor; where that was taken out, as it is by
    compaction, at the end of the last request.
    """
    changed = list(messages)
    last = None
    for place, message in enumerate(messages):
        if not isinstance(message, ModelRequest):
            continue
        last = place
        for at, other in enumerate(message.parts):
            if other is anchor:
                parts = [*message.parts[: at + 1], part, *message.parts[at + 1 :]]
                changed[place] = replace(message, parts=parts)
                return changed
    if last is not None:
        message = messages[last]
        assert isinstance(message, ModelRequest)
        changed[last] = replace(message, parts=[*message.parts, part])
    return changed
