"""LangChain messages as JSON values, and back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import orjson
from langchain_core.messages import (
    AIMessage,
    BaseMessage,
    ChatMessage,
    HumanMessage,
    SystemMessage,
    ToolMessage,
    messages_from_dict,
    messages_to_dict,
)
from langchain_core.outputs import ChatGeneration, LLMResult

from tallystick.adapters import recordable_parameters, recordable_tools
from tallystick.recorder import Preserialized, TextMemo

__all__ = [
    "answer_of",
    "answer_of_message",
    "goal_of",
    "model_of",
    "request_of",
    "result_of",
    "text_of",
    "to_messages",
    "written",
]

_OWN = {"_type", "stop", "messages", "input", "tools"}
"""Invocation parameters that are the runtime's own, or recorded in their own place."""

_SAID = ("input", "question", "query", "content", "messages", "output", "answer")

_PLAIN = frozenset({AIMessage, ChatMessage, HumanMessage, SystemMessage, ToolMessage})

_ENVELOPE = ("id", "response_metadata", "usage_metadata")


def request_of(messages: Sequence[BaseMessage], parameters: Mapping[str, Any]) -> dict[str, Any]:
    """The request as the runtime holds it: final messages, tools and parameters."""
    kept = recordable_parameters(
        {name: value for name, value in parameters.items() if name not in _OWN}
    )
    return {
        "level": "runtime",
        "model": model_of(parameters),
        "messages": [written(message) for message in messages],
        # No list: they come all together from call to call, and are looked at as one.
        "tools": tuple(recordable_tools(parameters.get("tools"))),
        "stop": parameters.get("stop"),
        "parameters": kept,
    }


def completion_of(prompt: str, parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Same as `request_of`, for a model that completes text."""
    return {
        "level": "runtime",
        "model": model_of(parameters),
        "prompt": prompt,
        "stop": parameters.get("stop"),
        "parameters": recordable_parameters(parameters),
    }


def model_of(parameters: Mapping[str, Any]) -> str | None:
    """The name of the model, where its parameters say it."""
    return parameters.get("model") or parameters.get("model_name")


def written(message: BaseMessage) -> Preserialized | dict[str, Any]:
    """A message as `messages_to_dict` gives it; a plain one without pydantic, at a tenth of the
    cost.

    What was written before is held against the message as it is now, so that an edit in place is
    always seen.
    """
    if not _is_plain(message):
        return messages_to_dict([message])[0]
    fields = message.__dict__
    known = _texts.get(fields.get("content"), type(message), fields)
    if known is not None:
        return known
    try:
        body = orjson.dumps({"data": fields, "type": message.type}, option=orjson.OPT_SORT_KEYS)
    except orjson.JSONEncodeError:
        return messages_to_dict([message])[0]
    found = Preserialized(body)
    _texts.put(fields.get("content"), type(message), fields, found)
    return found


def _is_plain(message: BaseMessage) -> bool:
    return type(message) in _PLAIN and not message.__pydantic_extra__


_texts = TextMemo(16 * 1024 * 1024)


def answer_of(result: LLMResult) -> dict[str, Any]:
    """The first generation as JSON values: what the model said, and apart from it the envelope it
    came in.
    """
    generation = result.generations[0][0]
    if isinstance(generation, ChatGeneration):
        return answer_of_message(generation.message)
    return {"answer": {"text": generation.text}, "envelope": generation.generation_info or {}}


def answer_of_message(message: BaseMessage) -> dict[str, Any]:
    """Same as `answer_of`, for a message. Ids, usage and provider metadata differ from call to
    call: the envelope.
    """
    data = message.__dict__ if _is_plain(message) else messages_to_dict([message])[0]["data"]
    envelope = {name: data[name] for name in _ENVELOPE if name in data}
    return {
        "answer": {name: data[name] for name in data if name not in _ENVELOPE},
        "envelope": envelope,
    }


def result_of(output: Any) -> Any:
    """What a tool gave, with the fields of a message as they are, which spares it pydantic."""
    return output.__dict__ if isinstance(output, BaseMessage) and _is_plain(output) else output


def goal_of(inputs: Any) -> str | None:
    """What the caller of a chain or graph wants, as far as its inputs say; secrets are looked for
    in all of it.
    """
    return text_of(inputs)


def text_of(values: Any) -> str | None:
    """The text of what goes into a chain or graph, or comes out of it, or its last message."""
    if isinstance(values, str):
        return values
    if isinstance(values, BaseMessage):
        return str(values.text)
    if isinstance(values, tuple) and len(values) == 2:
        return text_of(values[1])
    if isinstance(values, list):
        return text_of(values[-1]) if values else None
    if isinstance(values, Mapping):
        named = (values[name] for name in _SAID if name in values)
        return next((said for said in map(text_of, named) if said), None)
    return None


def to_messages(request: Mapping[str, Any]) -> list[BaseMessage]:
    """The messages of a recorded request, as LangChain's own objects."""
    return messages_from_dict(list(request["messages"]))
