"""LlamaIndex requests and responses as JSON values, and back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from llama_index.core.base.llms.types import ChatMessage, ChatResponse, CompletionResponse
from llama_index.core.schema import NodeWithScore
from pydantic import BaseModel

from tallystick.recorder import recordable, recordable_tools
from tallystick.tokens import usage_of

__all__ = ["answer_of", "found_of", "model_of", "request_of", "to_messages", "usage"]

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
"""What is kept of a model's own description: early releases put its credentials there too."""
_ENVELOPE = ("id", "model", "created")


def request_of(
    said: str | Sequence[ChatMessage], given: Mapping[str, Any], model: Mapping[str, Any]
) -> dict[str, Any]:
    """The request as the runtime holds it: final messages or prompt, tools, parameters, and the
    model's settings.
    """
    parameters = {name: value for name, value in recordable(given).items() if name != "tools"}
    spoken: dict[str, Any] = (
        {"prompt": said}
        if isinstance(said, str)
        else {"messages": [message.model_dump(mode="json") for message in said]}
    )
    return {
        "level": "runtime",
        "model": model_of(model),
        **spoken,
        "tools": recordable_tools(given.get("tools")),
        "parameters": parameters,
        "settings": {name: model[name] for name in _SETTINGS if model.get(name) is not None},
    }


def model_of(model: Mapping[str, Any]) -> str | None:
    """The name of the model, where its description says it."""
    name = model.get("model") or model.get("model_name")
    return name if isinstance(name, str) else None


def answer_of(response: ChatResponse | CompletionResponse | None) -> dict[str, Any]:
    """A response as JSON values: what the model said, and apart from it the envelope it came in.

    None, where a stream gave nothing, is an answer without words.
    """
    if response is None:
        return {"answer": None, "envelope": {}}
    raw = response.raw.model_dump() if isinstance(response.raw, BaseModel) else response.raw
    envelope = (
        {name: raw[name] for name in _ENVELOPE if name in raw} if isinstance(raw, Mapping) else {}
    )
    envelope |= {"usage": usage(response), "additional_kwargs": response.additional_kwargs}
    if isinstance(response, CompletionResponse):
        return {"answer": {"text": response.text}, "envelope": envelope}
    return {"answer": response.message.model_dump(mode="json"), "envelope": envelope}


def usage(response: ChatResponse | CompletionResponse | None) -> dict[str, int]:
    """The tokens that a response reports: in its raw form, or in what its integration took from
    there.
    """
    if response is None:
        return {}
    raw: Any = response.raw
    places = [
        raw.get(name) if isinstance(raw, Mapping) else getattr(raw, name, None) for name in _USAGE
    ]
    for reported in (*places, response.additional_kwargs, getattr(response, "message", None)):
        found = usage_of(
            reported.additional_kwargs if isinstance(reported, ChatMessage) else reported
        )
        if found:
            return found
    return {}


_USAGE = ("usage", "usage_metadata")


def found_of(nodes: Sequence[NodeWithScore]) -> list[dict[str, Any]]:
    """Retrieved nodes with their scores, without vectors."""
    return [
        {
            "score": one.score,
            "id": one.node.node_id,
            "node": one.node.model_dump(mode="json", exclude={"embedding"}),
        }
        for one in nodes
    ]


def to_messages(request: Mapping[str, Any]) -> list[ChatMessage]:
    """The messages of a recorded request, as LlamaIndex's own objects."""
    return [ChatMessage.model_validate(message) for message in request["messages"]]
