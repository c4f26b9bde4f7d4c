"""PydanticAI requests and responses as JSON values, and back."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, is_dataclass, replace
from functools import partial
from operator import is_
from typing import Any, NamedTuple

from pydantic import BaseModel, TypeAdapter
from pydantic_ai.messages import (
    ModelMessage,
    ModelMessagesTypeAdapter,
    ModelRequest,
    ModelResponse,
    TextContent,
    ThinkingPart,
    UserContent,
    UserPromptPart,
)
from pydantic_ai.models import Model, ModelRequestParameters
from pydantic_ai.settings import ModelSettings

from tallystick.kit import recordable_parameters
from tallystick.kit.rendering import clean_arguments, is_json
from tallystick.records import Json

_VOLATILE = frozenset(
    {
        "timestamp",
        "run_id",
        "conversation_id",
        "usage",
        "provider_response_id",
        "provider_url",
        "provider_name",
        "provider_details",
        "model_name",
        "metadata",
        "state",
    }
)

_parameters: TypeAdapter[ModelRequestParameters] = TypeAdapter(ModelRequestParameters)


class RequestArguments(NamedTuple):
    """The arguments of `Model.request`, in its order."""

    messages: list[ModelMessage]
    settings: ModelSettings | None
    parameters: ModelRequestParameters


_ANYTHING: dict[str, Any] = {"warnings": False, "fallback": str}
"""Values that are not of their type, or no JSON: their text is recorded."""


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
        "messages": ModelMessagesTypeAdapter.dump_python(list(messages), mode="json", **_ANYTHING),
        "settings": recordable_parameters(dict(settings or {})),
        "parameters": recordable_parameters(
            _parameters.dump_python(parameters, mode="json", **_ANYTHING)
        ),
    }


def answer_of(response: ModelResponse) -> dict[str, Any]:
    """Return a response as JSON: the answer of the model, and apart from it its envelope."""
    message = ModelMessagesTypeAdapter.dump_python([response], mode="json", **_ANYTHING)[0]
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


def unanswered_prompt(messages: Sequence[ModelMessage]) -> UserPromptPart | None:
    """Return the latest prompt of a conversation that no answer follows yet: a run that goes on
    without a prompt answers it. Calls of tools are no answer.
    """
    latest: UserPromptPart | None = None
    for message in messages:
        if isinstance(message, ModelRequest):
            prompts = [part for part in message.parts if isinstance(part, UserPromptPart)]
            latest = prompts[-1] if prompts else latest
        elif not message.tool_calls:
            latest = None
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


def comparable(request: Json) -> Json:
    """Return a request without times, ids of runs, usage and provider metadata."""
    if not isinstance(request, dict):
        return request
    messages = request.get("messages")
    return {
        "messages": [_message_form(message) for message in messages]
        if isinstance(messages, list)
        else messages,
        "settings": request.get("settings"),
        "parameters": request.get("parameters"),
    }


def _message_form(message: Json) -> Json:
    if not isinstance(message, dict):
        return message
    fields = _without(message)
    parts = message.get("parts")
    if isinstance(parts, list):
        fields["parts"] = [_part_form(part) if isinstance(part, dict) else part for part in parts]
    return fields


def _part_form(part: dict[str, Json]) -> dict[str, Json]:
    fields: dict[str, Json] = {
        name: value for name, value in _without(part).items() if value is not None
    }
    content = part.get("content")
    if part.get("part_kind") == "user-prompt" and isinstance(content, list):
        fields["content"] = [
            _without(piece) if isinstance(piece, dict) else piece for piece in content
        ]
    if part.get("part_kind") == "retry-prompt" and part.get("tool_name") is None:
        # It answers no call, and its id was drawn.
        fields.pop("tool_call_id", None)
    return fields


def _without(value: dict[str, Json]) -> dict[str, Json]:
    return {name: inner for name, inner in value.items() if name not in _VOLATILE}


_NO_TEXT = frozenset(
    {
        "conversation_id",
        "finish_reason",
        "id",
        "identifier",
        "kind",
        "media_type",
        "metadata",
        "model_name",
        "outcome",
        "part_kind",
        "provider_details",
        "provider_name",
        "provider_response_id",
        "provider_url",
        "run_id",
        "signature",
        "state",
        "timestamp",
        "tool_call_id",
        "tool_kind",
        "tool_name",
        "usage",
    }
)
"""Fields of messages and their parts that name something, and that no model reads as text."""


def clean_value(value: Any, clean: Callable[[Any], Any]) -> Any:
    """Return messages, parts or content with each text cleaned, as new objects; bytes stay."""
    if isinstance(value, str | BaseModel) or (isinstance(value, Mapping) and is_json(value)):
        return clean(value)
    if isinstance(value, list | tuple):
        return [clean_value(item, clean) for item in value]
    if isinstance(value, Mapping):
        return {key: clean_value(item, clean) for key, item in value.items()}
    if not is_dataclass(value) or isinstance(value, type):
        return value
    changes: dict[str, Any] = {}
    for each in fields(value):
        if not each.init or each.name.startswith("_") or each.name in _NO_TEXT:
            continue
        before = getattr(value, each.name)
        clean_field = partial(clean_value, clean=clean)
        after = clean_arguments(before, clean_field) if each.name == "args" else clean_field(before)
        if after != before:
            changes[each.name] = after
    if changes and isinstance(value, ThinkingPart):
        # A provider refuses a signature that is not of exactly this text.
        changes["signature"] = None
    return replace(value, **changes) if changes else value
