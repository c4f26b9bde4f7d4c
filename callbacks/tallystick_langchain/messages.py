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
    convert_to_messages,
    messages_from_dict,
    messages_to_dict,
)
from langchain_core.outputs import ChatGeneration, LLMResult

from tallystick.kit import AnswerFacts, recordable_parameters, recordable_tools
from tallystick.recorder import Preserialized, TextMemo
from tallystick.tokens import usage_of

_OWN_PARAMETERS = {"_type", "stop", "messages", "input", "tools"}
"""Invocation parameters that are the runtime's own, or recorded in their own place."""

_TEXT_KEYS = ("input", "question", "query", "content", "messages", "output", "answer")

_PLAIN_TYPES = frozenset({AIMessage, ChatMessage, HumanMessage, SystemMessage, ToolMessage})

ENVELOPE = ("id", "response_metadata", "usage_metadata")
"""Fields of a message that differ from call to call: they are recorded apart from the answer."""


def request_of(messages: Sequence[BaseMessage], parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Return the request of the runtime: its final messages, tools and parameters."""
    own_parameters = recordable_parameters(
        {name: value for name, value in parameters.items() if name not in _OWN_PARAMETERS}
    )
    return {
        "level": "runtime",
        "model": model_of(parameters),
        "messages": [message_json(message) for message in messages],
        # No list: they come all together from call to call, and are looked at as one.
        "tools": tuple(recordable_tools(parameters.get("tools"))),
        "stop": parameters.get("stop"),
        "parameters": own_parameters,
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
    """Return the name of the model, if its parameters contain it."""
    return parameters.get("model") or parameters.get("model_name")


def message_json(message: BaseMessage) -> Preserialized | dict[str, Any]:
    """Return a message as `messages_to_dict` does; a plain one without pydantic, at a tenth of the
    cost.

    An earlier result is used only if the fields of the message are equal to those it was made of,
    so that an edit in place is never missed.
    """
    if not _is_plain(message):
        return messages_to_dict([message])[0]
    fields = message.__dict__
    cached = _texts.get(fields.get("content"), type(message), fields)
    if cached is not None:
        return cached
    try:
        body = orjson.dumps({"data": fields, "type": message.type}, option=orjson.OPT_SORT_KEYS)
    except orjson.JSONEncodeError:
        return messages_to_dict([message])[0]
    serialized = Preserialized(body)
    _texts.put(fields.get("content"), type(message), fields, serialized)
    return serialized


def _is_plain(message: BaseMessage) -> bool:
    return type(message) in _PLAIN_TYPES and not message.__pydantic_extra__


_texts = TextMemo(16 * 1024 * 1024)


def answer_of(result: LLMResult) -> dict[str, Any]:
    """Return the first generation as JSON: the answer of the model, and apart from it its envelope:
    ids, usage and provider metadata, which differ from call to call.
    """
    generation = result.generations[0][0]
    if isinstance(generation, ChatGeneration):
        return answer_of_message(generation.message)
    return {"answer": {"text": generation.text}, "envelope": generation.generation_info or {}}


def answer_of_message(message: BaseMessage) -> dict[str, Any]:
    """Same as `answer_of`, for a message."""
    data = message.__dict__ if _is_plain(message) else messages_to_dict([message])[0]["data"]
    envelope = {name: data[name] for name in ENVELOPE if name in data}
    return {
        "answer": {name: data[name] for name in data if name not in ENVELOPE},
        "envelope": envelope,
    }


def result_of(output: Any) -> Any:
    """Return the result of a tool; of a plain message its fields, which spares it pydantic."""
    return output.__dict__ if isinstance(output, BaseMessage) and _is_plain(output) else output


def goal_of(inputs: Any) -> str | None:
    """Return the goal of a run: the text of the inputs of its chain or graph, or None."""
    return request_text(inputs) or text_of(inputs)


def request_text(values: Any) -> str | None:
    """Return the words of the user in the inputs or the state of a chain or graph: of messages,
    those of the latest of the user; None if no message is.
    """
    messages = values.get("messages") if isinstance(values, Mapping) else values
    if not isinstance(messages, list) or not messages:
        return text_of(values)
    try:
        said = convert_to_messages(messages)
    except (ValueError, TypeError, NotImplementedError):
        # A list of something else.
        return text_of(values)
    users = (message for message in reversed(said) if isinstance(message, HumanMessage))
    return next((str(message.text) for message in users), None)


def answer_text(values: Any) -> str | None:
    """Return the words of the agent in the outputs of a chain or graph; None where the user has
    said the last of its messages.
    """
    messages = values.get("messages") if isinstance(values, Mapping) else values
    if not isinstance(messages, list) or not messages or isinstance(messages[-1], str):
        return text_of(values)
    try:
        [last] = convert_to_messages(messages[-1:])
    except (ValueError, TypeError, NotImplementedError):
        return text_of(values)
    return None if isinstance(last, HumanMessage) else text_of(values)


def text_of(values: Any) -> str | None:
    """Return the text of the inputs or outputs of a chain or graph, or of their last message."""
    if isinstance(values, str):
        return values
    if isinstance(values, BaseMessage):
        return str(values.text)
    if isinstance(values, tuple) and len(values) == 2:
        return text_of(values[1])
    if isinstance(values, list):
        return text_of(values[-1]) if values else None
    if isinstance(values, Mapping):
        candidates = (values[name] for name in _TEXT_KEYS if name in values)
        return next((text for text in map(text_of, candidates) if text), None)
    return None


def to_messages(request: Mapping[str, Any]) -> list[BaseMessage]:
    """Return the messages of a recorded request, as LangChain's own objects."""
    return messages_from_dict(list(request["messages"]))


def facts_of_answer(response: LLMResult) -> AnswerFacts:
    """Return what a result says of its answer: usage, model, and the reason for which it ended."""
    generation, output = first_generation(response), response.llm_output or {}
    said = {**output, **(getattr(generation, "generation_info", None) or {})}
    return facts_of_message(getattr(generation, "message", None), said)


def facts_of_message(
    message: BaseMessage | None, said: Mapping[str, Any] | None = None
) -> AnswerFacts:
    """Same as `facts_of_answer`, for a message, and what else is said of it."""
    said = {**(said or {}), **(getattr(message, "response_metadata", None) or {})}
    return AnswerFacts(
        usage_of(getattr(message, "usage_metadata", None) or said.get("token_usage") or {}),
        model=_text_of(said, "model_name", "model"),
        stop=_text_of(said, "finish_reason", "stop_reason", "stopReason", "done_reason"),
        provider=_text_of(said, "model_provider"),
    )


def _text_of(said: Mapping[str, Any], *names: str) -> str | None:
    return next((said[name] for name in names if isinstance(said.get(name), str)), None)


def first_generation(response: LLMResult) -> Any:
    """Return the first answer of a result, or None."""
    return response.generations[0][0] if any(response.generations) else None
