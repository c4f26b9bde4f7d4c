"""PydanticAI requests and responses as JSON values, and back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import TypeAdapter
from pydantic_ai.messages import ModelMessage, ModelMessagesTypeAdapter, ModelResponse
from pydantic_ai.models import Model, ModelRequestParameters
from pydantic_ai.settings import ModelSettings

from tallystick.adapters import recordable_parameters

__all__ = ["answer_of", "from_request", "request_of"]

_parameters: TypeAdapter[ModelRequestParameters] = TypeAdapter(ModelRequestParameters)


def request_of(
    model: Model,
    messages: Sequence[ModelMessage],
    settings: ModelSettings | None,
    parameters: ModelRequestParameters,
) -> dict[str, Any]:
    """The request as the model class gets it: final messages, settings and parameters."""
    return {
        "level": "runtime",
        "model": model.model_name,
        "messages": ModelMessagesTypeAdapter.dump_python(list(messages), mode="json"),
        "settings": recordable_parameters(dict(settings or {})),
        "parameters": recordable_parameters(_parameters.dump_python(parameters, mode="json")),
    }


def answer_of(response: ModelResponse) -> dict[str, Any]:
    """A response as JSON values: what the model said, and apart from it the envelope it came in."""
    message = ModelMessagesTypeAdapter.dump_python([response], mode="json")[0]
    answer = {name: message.pop(name) for name in ("parts", "finish_reason") if name in message}
    return {"answer": answer, "envelope": message}


def from_request(
    request: Mapping[str, Any],
) -> tuple[list[ModelMessage], ModelSettings | None, ModelRequestParameters]:
    """Messages, settings and parameters of a recorded request, as PydanticAI's own objects."""
    settings: Any = dict(request["settings"]) or None
    return (
        ModelMessagesTypeAdapter.validate_python(request["messages"]),
        settings,
        _parameters.validate_python(request["parameters"]),
    )
