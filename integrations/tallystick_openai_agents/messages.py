"""Requests and responses of the OpenAI Agents SDK as JSON values, and back."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, partial
from typing import Any

from agents import (
    Agent,
    AgentOutputSchemaBase,
    FunctionTool,
    Handoff,
    Model,
    ModelResponse,
    ModelSettings,
    ModelTracing,
    Tool,
    Usage,
)
from openai.types.responses import ResponseOutputItem
from pydantic import BaseModel, TypeAdapter
from pydantic_core import to_jsonable_python

from tallystick.kit import dump_model, json_value, recordable_parameters, recordable_tools
from tallystick.kit.rendering import clean_arguments
from tallystick.records import Json
from tallystick.tokens import usage_of

_VOLATILE = frozenset({"id", "status", "provider_data"})
_TOLD_APART = ("level", "model", "instructions", "messages")
_ARGUMENTS = (
    *("system_instructions", "input", "model_settings", "tools", "output_schema", "handoffs"),
    "tracing",
)
_REFERENCES = ("previous_response_id", "conversation_id", "prompt")
_NO_TEXT = frozenset(
    {
        *("id", "type", "role", "status", "name", "namespace", "call_id", "encrypted_content"),
        *("image_url", "file_id", "file_data", "file_url", "data", "detail", "phase"),
    }
)
"""Fields of items that name something, and that no model reads as text."""

_FALLBACK: dict[str, Any] = {"fallback": str, "bytes_mode": "base64"}


@dataclass(frozen=True)
class ModelRequest:
    """The arguments of `Model.get_response`."""

    system_instructions: str | None
    input: list[Any]
    model_settings: ModelSettings
    tools: list[Tool]
    output_schema: AgentOutputSchemaBase | None
    handoffs: list[Handoff[Any, Any]]
    tracing: ModelTracing = ModelTracing.DISABLED
    rest: Mapping[str, Any] = field(default_factory=dict)
    """`previous_response_id`, `conversation_id` and `prompt`."""

    @classmethod
    def of(cls, *arguments: Any, **named: Any) -> ModelRequest:
        """Return the request of these arguments; a text is a message of the user."""
        given: dict[str, Any] = {**dict(zip(_ARGUMENTS, arguments, strict=False)), **named}
        input = given["input"]
        given["input"] = (
            [{"role": "user", "content": input}] if isinstance(input, str) else list(input)
        )
        own = {name: given.pop(name) for name in _ARGUMENTS}
        return cls(**own, rest=given)

    def send(self, call: Callable[..., Any]) -> Any:
        """Call a method of a model with these arguments."""
        own = {name: getattr(self, name) for name in _ARGUMENTS}
        return call(**own, **{**dict.fromkeys(_REFERENCES), **self.rest})

    def cleaned(self, clean: Callable[[Any], Any]) -> ModelRequest:
        """Return the request with each text cleaned; the items that came in stay as they are."""
        items = [_clean(as_json(item), clean) for item in self.input]
        return replace(self, system_instructions=clean(self.system_instructions), input=items)


def as_json(value: Any) -> Any:
    """Return an item or a part of one as JSON; an object that JSON does not know is its text."""
    if isinstance(value, BaseModel):
        return dump_model(value, exclude_unset=True)
    return to_jsonable_python(value, **_FALLBACK)


def tool_facts(tool: FunctionTool | Handoff[Any, Any]) -> dict[str, Any]:
    """Return a tool or a handoff as a model is told of it: name, description and parameters."""
    if isinstance(tool, Handoff):
        return {
            "name": tool.tool_name,
            "description": tool.tool_description,
            "parameters": tool.input_json_schema,
        }
    return {
        "name": tool.name,
        "description": tool.description,
        "parameters": tool.params_json_schema,
    }


def schema_of(output: AgentOutputSchemaBase | None) -> Json:
    """Return the schema that an answer has to fit; None for text."""
    return None if output is None or output.is_plain_text() else json_value(output.json_schema())


def request_of(model: str | None, request: ModelRequest) -> dict[str, Any]:
    """Return the request as it goes to the model, without headers and keys."""
    settings = {
        name: value
        for name, value in request.model_settings.to_json_dict().items()
        if value is not None and name != "retry"
    }
    hosted = [as_json(vars(tool)) for tool in request.tools if not isinstance(tool, FunctionTool)]
    rest = {name: as_json(value) for name, value in request.rest.items() if value}
    return {
        "level": "runtime",
        "model": model,
        "instructions": request.system_instructions,
        "messages": [as_json(item) for item in request.input],
        "settings": recordable_parameters(settings),
        "tools": [tool_facts(tool) for tool in request.tools if isinstance(tool, FunctionTool)],
        "hosted_tools": recordable_tools(hosted),
        "handoffs": [tool_facts(handoff) for handoff in request.handoffs],
        "output_schema": schema_of(request.output_schema),
        **rest,
    }


def answer_of(response: Any) -> dict[str, Any]:
    """Return a response as JSON: the answer of the model, and apart from it its envelope. It is a
    ModelResponse, or the Response at the end of a stream.
    """
    envelope = {
        "response_id": getattr(response, "response_id", None) or getattr(response, "id", None),
        "usage": as_json(response.usage),
    }
    return {"answer": {"output": [as_json(item) for item in response.output]}, "envelope": envelope}


@cache
def _outputs() -> TypeAdapter[list[ResponseOutputItem]]:
    return TypeAdapter(list[ResponseOutputItem])


def response_of(recorded: Any) -> ModelResponse:
    """Return a recorded answer as the SDK's object."""
    envelope = recorded.get("envelope") or {}
    counts = usage_of(envelope.get("usage"))
    asked, answered = counts.get("input_tokens", 0), counts.get("output_tokens", 0)
    return ModelResponse(
        output=_outputs().validate_python((recorded.get("answer") or {}).get("output") or []),
        usage=Usage(
            requests=1,
            input_tokens=asked,
            output_tokens=answered,
            total_tokens=asked + answered,
        ),
        response_id=envelope.get("response_id"),
    )


def partial_response(text: str) -> ModelResponse:
    """Return an answer that broke off."""
    part = {"type": "output_text", "text": text, "annotations": []}
    message = {"id": "partial", "type": "message", "role": "assistant", "status": "incomplete"}
    return response_of({"answer": {"output": [{**message, "content": [part]}]}})


def arguments_of(request: Mapping[str, Any]) -> ModelRequest:
    """Return the arguments of `Model.get_response` for a recorded request. Handoffs are tools to a
    model, and tools of a provider are not offered again.
    """
    offered = [*request["tools"], *request["handoffs"]]
    schema = request.get("output_schema")
    return ModelRequest(
        request["instructions"],
        list(request["messages"]),
        ModelSettings(**request["settings"]),
        [
            FunctionTool(
                each["name"],
                each["description"],
                each["parameters"],
                _not_called,
                strict_json_schema=False,
            )
            for each in offered
        ],
        None if schema is None else _RecordedSchema(schema),
        [],
        rest={name: request[name] for name in _REFERENCES if name in request},
    )


async def _not_called(context: Any, arguments: str) -> str:
    raise NotImplementedError("A replay asks the model, and calls no tool.")


class _RecordedSchema(AgentOutputSchemaBase):
    """The schema of a recorded request."""

    def __init__(self, schema: Any) -> None:
        self._schema = schema

    def is_plain_text(self) -> bool:
        return False

    def name(self) -> str:
        return "recorded"

    def json_schema(self) -> dict[str, Any]:
        return dict(self._schema)

    def is_strict_json_schema(self) -> bool:
        return False

    def validate_json(self, json_str: str) -> Any:
        return json.loads(json_str)


def comparable(request: Json) -> Json:
    """Return a request without the ids and the states of its items, and without its model."""
    if not isinstance(request, dict):
        return request
    rest = {name: each for name, each in request.items() if name not in _TOLD_APART}
    items = request.get("messages")
    system: Json = {"role": "system", "content": request.get("instructions")}
    return {
        **rest,
        "messages": [
            {name: each for name, each in item.items() if name not in _VOLATILE}
            if isinstance(item, dict)
            else item
            for item in (system, *(items if isinstance(items, list) else ()))
        ],
    }


def text_in(content: Any) -> tuple[str, int]:
    """Return the text of an item's content, and the number of its images, sounds and files."""
    if content is None or isinstance(content, str):
        return content or "", 0
    texts: list[str] = []
    media = 0
    for part in content if isinstance(content, list) else [content]:
        fields = as_json(part)
        text = fields.get("text") or fields.get("refusal") if isinstance(fields, dict) else fields
        if isinstance(text, str):
            texts.append(text)
        else:
            media += 1
    return "\n".join(texts), media


def user_text(input: str | Sequence[Any] | None) -> str | None:
    """Return the words of the user in the input of a run: the last of them in a list."""
    if input is None or isinstance(input, str):
        return input
    for item in reversed(input):
        fields = as_json(item)
        if isinstance(fields, dict) and fields.get("role") == "user":
            return text_in(fields.get("content"))[0] or None
    return None


def model_facts(agent: Agent[Any] | None, model: Model) -> tuple[str | None, str]:
    """Return the provider and the name of a model: the name that it has, else that by which the
    agent asks for it.
    """
    name = getattr(model, "model", None)
    if not isinstance(name, str):
        asked = None if agent is None else agent.model
        name = asked if isinstance(asked, str) else type(model).__name__
    is_openai = type(model).__module__.startswith("agents.models.openai_")
    provider, _, rest = name.partition("/")
    if is_openai or not rest:
        return ("openai" if is_openai else None), name
    return provider, rest


def _clean(value: Any, clean: Callable[[Any], Any]) -> Any:
    if isinstance(value, str):
        return clean(value)
    if isinstance(value, list):
        return [_clean(item, clean) for item in value]
    if not isinstance(value, dict):
        return value
    clean_field = partial(_clean, clean=clean)
    return {
        name: each
        if name in _NO_TEXT
        else (clean_arguments(each, clean_field) if name == "arguments" else clean_field(each))
        for name, each in value.items()
    }
