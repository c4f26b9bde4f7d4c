"""LlamaIndex requests and responses as JSON values, and back."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from inspect import BoundArguments
from typing import Any

from llama_index.core.base.llms.types import (
    ChatMessage,
    ChatResponse,
    CompletionResponse,
    LLMMetadata,
)
from llama_index.core.llms.llm import LLM
from llama_index.core.schema import NodeWithScore, QueryBundle
from llama_index.core.tools import BaseTool
from llama_index.core.workflow import StopEvent
from pydantic import BaseModel

from tallystick.kit import AnswerFacts, dump_model, recordable_parameters, recordable_tools
from tallystick.kit.rendering import is_json
from tallystick.tokens import usage_of

_SETTINGS = (
    "class_name",
    "model",
    "model_name",
    "temperature",
    "max_tokens",
    "max_output_tokens",
    "top_p",
    "top_k",
    "seed",
    "stop",
    "num_output",
    "context_window",
    "reasoning_effort",
    "thinking_dict",
    "is_function_calling_model",
)
"""The fields of a model's description that are recorded: early releases put credentials there."""
_UNNAMED = LLMMetadata.model_fields["model_name"].default
"""The name of a model whose integration gives it none."""
_ENVELOPE = ("id", "model", "created")


def request_of(
    prompt: str | Sequence[ChatMessage], options: Mapping[str, Any], model: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the request of the runtime: its final messages or prompt, tools, parameters, and the
    model's settings.
    """
    parameters = {
        name: value for name, value in recordable_parameters(options).items() if name != "tools"
    }
    content: dict[str, Any] = (
        {"prompt": prompt}
        if isinstance(prompt, str)
        else {"messages": [dump_model(message) for message in prompt]}
    )
    return {
        "level": "runtime",
        "model": model_of(model),
        **content,
        "tools": recordable_tools(options.get("tools")),
        "parameters": parameters,
        "settings": {name: model[name] for name in _SETTINGS if model.get(name) is not None},
    }


def model_of(model: Mapping[str, Any]) -> str | None:
    """Return the name of the model, if its description contains it."""
    name = model.get("model") or model.get("model_name")
    return name if isinstance(name, str) and name != _UNNAMED else None


def provider_of(model: Mapping[str, Any]) -> str | None:
    """Return the provider of a model, by the name of its integration: `openai_llm` is openai."""
    name = model.get("class_name")
    return name.lower().removesuffix("_llm") if isinstance(name, str) else None


def description_of(model: LLM) -> dict[str, Any]:
    """Return a model's own description, as in the events of LlamaIndex; early releases put its
    fields there.
    """
    description: dict[str, Any] = (
        model.to_payload() if hasattr(LLM, "to_payload") else model.to_dict()
    )
    return description


def answer_of(response: ChatResponse | CompletionResponse | None) -> dict[str, Any]:
    """Return a response as JSON: the answer of the model, and apart from it its envelope.

    None, of a stream without chunks, is an answer without words.
    """
    if response is None:
        return {"answer": None, "envelope": {}}
    raw = response.raw.model_dump() if isinstance(response.raw, BaseModel) else response.raw
    envelope = (
        {name: raw[name] for name in _ENVELOPE if name in raw} if isinstance(raw, Mapping) else {}
    )
    envelope |= {
        "usage": usage_of_response(response),
        "additional_kwargs": response.additional_kwargs,
    }
    if isinstance(response, CompletionResponse):
        return {"answer": {"text": response.text}, "envelope": envelope}
    return {"answer": dump_model(response.message), "envelope": envelope}


def facts_of_response(response: ChatResponse | CompletionResponse | None) -> AnswerFacts:
    """Return what a response says of itself: usage, model, and the reason for which it ended."""
    raw: Any = None if response is None else response.raw
    body = raw.model_dump() if isinstance(raw, BaseModel) else raw
    body = body if isinstance(body, Mapping) else {}
    choices = body.get("choices")
    choice = choices[0] if isinstance(choices, list) and choices else {}
    said = {**body, **(choice if isinstance(choice, Mapping) else {})}
    return AnswerFacts(
        usage_of_response(response),
        model=_text_of(said, "model", "model_version"),
        stop=_text_of(said, "finish_reason", "stop_reason", "done_reason"),
    )


def _text_of(said: Mapping[str, Any], *names: str) -> str | None:
    return next((said[name] for name in names if isinstance(said.get(name), str)), None)


def usage_of_response(response: ChatResponse | CompletionResponse | None) -> dict[str, int]:
    """Return the tokens that a response reports: in its raw form, or in the fields that its
    integration copied from there.
    """
    if response is None:
        return {}
    raw: Any = response.raw
    places = [
        raw.get(name) if isinstance(raw, Mapping) else getattr(raw, name, None) for name in _USAGE
    ]
    for reported in (*places, response.additional_kwargs, getattr(response, "message", None)):
        tokens = usage_of(
            reported.additional_kwargs if isinstance(reported, ChatMessage) else reported
        )
        if tokens:
            return tokens
    return {}


_USAGE = ("usage", "usage_metadata")


def documents_of(nodes: Sequence[NodeWithScore]) -> list[dict[str, Any]]:
    """Return retrieved nodes with their scores, without vectors."""
    return [
        {
            "score": node.score,
            "id": node.node.node_id,
            "node": dump_model(node.node, exclude={"embedding"}),
        }
        for node in nodes
    ]


def to_messages(request: Mapping[str, Any]) -> list[ChatMessage]:
    """Return the messages of a recorded request, as LlamaIndex's own objects."""
    return [ChatMessage.model_validate(message) for message in request["messages"]]


def clean_messages(
    messages: Sequence[ChatMessage], clean: Callable[[Any], Any]
) -> list[ChatMessage]:
    """Return messages with each text and each argument of a call cleaned, as new objects; pictures
    and sound stay as they are.
    """
    return [
        message.model_copy(
            update={
                "blocks": [_cleaned_block(block, clean) for block in message.blocks],
                "additional_kwargs": _cleaned_values(message.additional_kwargs, clean),
            }
        )
        for message in messages
    ]


_TEXTS = (
    "text",
    "content",
    "tool_kwargs",
    "title",
    "cited_content",
    "source",
    "additional_information",
)
"""Fields of blocks that a model reads as text or as the arguments of a call."""


def _cleaned_block(block: Any, clean: Callable[[Any], Any]) -> Any:
    changes: dict[str, Any] = {}
    for name in _TEXTS:
        value = getattr(block, name, None)
        if isinstance(value, BaseModel):
            after: Any = _cleaned_block(value, clean)
        elif isinstance(value, list):
            after = [
                _cleaned_block(item, clean) if isinstance(item, BaseModel) else clean(item)
                for item in value
            ]
        else:
            after = _cleaned_values(value, clean)
        if after != value:
            changes[name] = after
    return block.model_copy(update=changes) if changes else block


def _cleaned_values(value: Any, clean: Callable[[Any], Any]) -> Any:
    """Return values with their texts cleaned. What is JSON is cleaned as a whole, because the name
    of a field may say that it is a secret; an object of a provider becomes JSON if it must.
    """
    if isinstance(value, BaseModel):
        before = dump_model(value)
        after = clean(before)
        return value if after == before else after
    if is_json(value):
        return clean(value)
    if isinstance(value, Mapping):
        return {key: _cleaned_values(item, clean) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_cleaned_values(item, clean) for item in value]
    return value


def arguments_of_tool(tool: BaseTool, arguments: BoundArguments) -> dict[str, Any]:
    """Return the arguments of a tool call, without the context that LlamaIndex passes."""
    keywords = dict(arguments.arguments.get("kwargs") or {})
    keywords.pop(getattr(tool, "ctx_param_name", None) or "", None)
    positional = list(arguments.arguments.get("args") or ())
    rest = {
        name: value for name, value in arguments.arguments.items() if name not in ("args", "kwargs")
    }
    return {**({"args": positional} if positional else {}), **rest, **keywords}


def text_of_user(arguments: BoundArguments) -> str | None:
    """Return the text of the user in the arguments of the root span, or None."""
    values = arguments.arguments
    event = values.get("start_event")
    names = ("user_msg", "str_or_query_bundle", "message", "query", "input")
    candidates = [values.get(name) for name in names]
    for value in (*candidates, getattr(event, "user_msg", None), getattr(event, "input", None)):
        text = value
        if isinstance(value, QueryBundle):
            text = value.query_str
        elif isinstance(value, ChatMessage):
            text = value.content
        if isinstance(text, str) and text:
            return text
    return None


def text_of_result(result: Any) -> str | None:
    """Return the text of an agent's, an engine's or a model's answer."""
    if isinstance(result, StopEvent):
        # A workflow hands out the event that ended it.
        result = result.result
    response = getattr(result, "response", result)
    text = getattr(getattr(response, "message", response), "content", response)
    return text if isinstance(text, str) else None
