"""PydanticAI requests and responses as JSON values, and back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from pydantic import TypeAdapter
from pydantic_ai.messages import (
    ModelMessage,
    ModelMessagesTypeAdapter,
    ModelResponse,
    TextContent,
    UserContent,
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
    "prompt_text",
    "request_of",
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
