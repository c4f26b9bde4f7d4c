"""Transcripts: the messages of a recorded request or answer, in one form for every runtime and
provider.

Recorded payloads have the form that their runtime gave them. What is known of it becomes a part of
a known kind; what is not known stays as it is, as `OtherPart`, so that nothing is left out.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from itertools import groupby
from operator import attrgetter
from typing import Any, Literal, NamedTuple

from tallystick.records import Json

Role = Literal["system", "user", "assistant", "tool"]

_ROLES: Mapping[str, Role] = {
    "ai": "assistant",
    "aimessagechunk": "assistant",
    "assistant": "assistant",
    "assistant_msg": "assistant",
    "chatbot": "assistant",
    "constraint": "system",
    "developer": "system",
    "function": "tool",
    "human": "user",
    "model": "assistant",
    "policy": "system",
    "request": "user",
    "response": "assistant",
    "system": "system",
    "tool": "tool",
    "tool_result": "tool",
    "user": "user",
    "user_msg": "user",
}
_TEXT = {"text", "input_text", "output_text", "user-prompt", "system-prompt", "refusal"}
_REASONING = {"thinking", "reasoning", "redacted_thinking"}
_CALL = {"tool_call", "tool-call", "tool_use", "function_call", "function", "custom_tool_call"}
_RESULT = {"tool_result", "tool-return", "retry-prompt", "function_call_output"}
_LISTS = ("messages", "input", "contents", "items")


@dataclass(frozen=True)
class TextPart:
    """Words."""

    text: str


@dataclass(frozen=True)
class ReasoningPart:
    """What the model thought, as far as its provider shows it."""

    text: str


@dataclass(frozen=True)
class ToolCallPart:
    """A call of a tool that the model asked for."""

    id: str | None
    name: str
    arguments: Json


@dataclass(frozen=True)
class ToolResultPart:
    """The result of a tool."""

    id: str | None
    result: Json


@dataclass(frozen=True)
class OtherPart:
    """A part of another kind, as its runtime has it."""

    type: str
    value: Json


Part = TextPart | ReasoningPart | ToolCallPart | ToolResultPart | OtherPart


@dataclass(frozen=True)
class Message:
    """One message of a request or an answer."""

    role: Role
    parts: tuple[Part, ...]
    name: str | None = None
    """Who speaks, where the runtime says it."""

    @property
    def text(self) -> str:
        """The words of its text parts, a line for each."""
        return "\n".join(part.text for part in self.parts if isinstance(part, TextPart))


class _Spoken(NamedTuple):
    part: Part
    role: Role


def request_messages(payload: Json) -> list[Message]:
    """Return the messages of a recorded request in their order, instructions first; none for a
    payload that holds no messages, such as one that was not kept.
    """
    if isinstance(payload, str):
        return [Message("user", (TextPart(payload),))]
    if not isinstance(payload, dict):
        return []
    messages = [
        Message("system", parts)
        for key in ("system", "instructions")
        if (parts := tuple(_parts(payload.get(key))))
    ]
    for key in _LISTS:
        value = payload.get(key)
        for each in value if isinstance(value, list) else [] if value is None else [value]:
            messages += _messages(each, "user")
    prompt = payload.get("prompt")
    if not messages and isinstance(prompt, str):
        messages.append(Message("user", (TextPart(prompt),)))
    return messages


def tool_result(payload: Json) -> Json:
    """Return what a tool gave back, from the payload of a `tool_result`: without the message that a
    runtime puts around it, which is the runtime's own.
    """
    if not isinstance(payload, dict):
        return payload
    result = payload.get("result", payload.get("error", payload))
    return result["content"] if isinstance(result, dict) and "content" in result else result


def answer_messages(payload: Json) -> list[Message]:
    """Return the messages of a recorded answer; usually one."""
    answer = payload.get("answer", payload) if isinstance(payload, dict) else payload
    output = answer.get("output") if isinstance(answer, dict) else None
    if isinstance(output, list):
        parts = [
            part
            for item in output
            for message in _messages(item, "assistant")
            for part in message.parts
        ]
        return [Message("assistant", tuple(parts))] if parts else []
    return list(_messages(answer, "assistant"))


def _messages(value: Any, role: Role) -> Iterator[Message]:
    """Yield the message that a value is: of PydanticAI's requests one for each role."""
    if not isinstance(value, dict):
        parts = tuple(_parts(value))
        if parts:
            yield Message(role, parts)
        return
    data = value.get("data")
    body: Mapping[str, Any] = data if isinstance(data, dict) else value
    named = value.get("role") or value.get("type") or value.get("kind") or role
    own = _ROLES.get(str(named).lower(), role)
    if _kind(value) in _CALL | _RESULT | _REASONING and "role" not in value and data is None:
        # An item of its own among the messages, as OpenAI's Responses have it.
        spoken = [_Spoken(part, _owner(part, own, value)) for part in _parts(value)]
        yield from _by_role(spoken, None)
        return
    if isinstance(instructions := body.get("instructions"), str) and body.get("parts") is not None:
        yield Message("system", (TextPart(instructions),))
    if own == "tool" and "tool_call_id" in body:
        yield Message("tool", (ToolResultPart(_id(body), body.get("content")),), _name(body))
        return
    additional = body.get("additional_kwargs")
    yield from _spoken_messages(body, own, additional if isinstance(additional, dict) else {})


def _spoken_messages(
    body: Mapping[str, Any], role: Role, extra: Mapping[str, Any]
) -> Iterator[Message]:
    """Yield the messages of a body with content, and with calls beside it; `extra` is what
    LangChain keeps of a provider's form.
    """
    content = next(
        (body[key] for key in ("blocks", "parts", "content", "text") if body.get(key)), None
    )
    spoken = [
        _Spoken(part, _owner(part, role, each))
        for each in (content if isinstance(content, list) else [content])
        for part in _parts(each)
    ]
    if role == "tool" and "tool_call_id" in extra:
        text = "\n".join(part.text for part, _ in spoken if isinstance(part, TextPart))
        yield Message("tool", (ToolResultPart(_id(extra), text),), _name(body))
        return
    if not any(isinstance(part, ToolCallPart) for part, _ in spoken):
        spoken += [
            _Spoken(_call(call), "assistant")
            for holder in (body, extra)
            for call in holder.get("tool_calls") or ()
            if isinstance(call, dict)
        ]
    yield from _by_role(spoken, _name(body))


def _name(body: Mapping[str, Any]) -> str | None:
    return body["name"] if isinstance(body.get("name"), str) else None


def _owner(part: Part, role: Role, value: Any) -> Role:
    """Return whose a part is: results are the tool's, calls the assistant's, prompts of the system
    the system's, whatever message they came in.
    """
    if isinstance(part, ToolResultPart):
        return "tool"
    if isinstance(part, ToolCallPart | ReasoningPart):
        return "assistant"
    is_system = isinstance(value, dict) and _kind(value) == "system-prompt"
    return "system" if is_system else role


def _by_role(spoken: Iterable[_Spoken], name: str | None) -> Iterator[Message]:
    """Yield a message for each stretch of parts of one role."""
    for role, stretch in groupby(spoken, key=attrgetter("role")):
        yield Message(role, tuple(each.part for each in stretch), name)


def _parts(value: Any) -> Iterator[Part]:
    """Yield the parts of a content: a text, a part, or a list of both."""
    if isinstance(value, list):
        for each in value:
            yield from _parts(each)
    elif isinstance(value, str):
        if value:
            yield TextPart(value)
    elif isinstance(value, dict):
        yield from _part(value)
    elif value is not None:
        yield OtherPart(type(value).__name__, value)


def _part(value: Mapping[str, Any]) -> Iterator[Part]:
    kind = _kind(value)
    text = next(
        (value[key] for key in ("text", "content") if isinstance(value.get(key), str)), None
    )
    called, given = value.get("function_call"), value.get("function_response")
    if isinstance(called, dict):
        yield _call(called)
    elif isinstance(given, dict):
        response = given.get("response")
        if isinstance(response, dict) and set(response) == {"result"}:
            response = response["result"]
        yield ToolResultPart(_id(given), response)
    elif value.get("thought") is True and text is not None:
        yield ReasoningPart(text)
    elif kind in _CALL:
        yield _call(value)
    elif kind in _RESULT and _id(value) is not None:
        yield ToolResultPart(_id(value), value.get("content", value.get("output")))
    elif kind in _REASONING:
        summary = value.get("summary")
        words = (
            text
            or value.get("thinking")
            or "\n".join(part.text for part in _parts(summary) if isinstance(part, TextPart))
        )
        yield ReasoningPart(words) if words else OtherPart(kind, dict(value))
    elif text is not None and (kind in _TEXT or kind in _RESULT or not kind):
        if text:
            yield TextPart(text)
    elif kind in _TEXT and isinstance(value.get("content"), list):
        yield from _parts(value["content"])
    elif kind == "summary_text":
        yield TextPart(str(value.get("text", "")))
    else:
        yield OtherPart(kind or "unknown", dict(value))


def _call(value: Mapping[str, Any]) -> ToolCallPart:
    inner = value.get("function")
    named = inner if isinstance(inner, dict) else value
    arguments: Json = next(
        (
            named[key]
            for key in ("args", "arguments", "input", "tool_kwargs")
            if named.get(key) is not None
        ),
        {},
    )
    if isinstance(arguments, str):
        # What the model wrote may be no JSON: then it stays as it was written.
        with suppress(ValueError):
            arguments = json.loads(arguments)
    name = named.get("name") or named.get("tool_name") or "unknown"
    return ToolCallPart(_id(value), str(name), arguments)


def _kind(value: Mapping[str, Any]) -> str:
    kind = value.get("part_kind") or value.get("block_type") or value.get("type")
    return kind if isinstance(kind, str) else ""


def _id(value: Mapping[str, Any]) -> str | None:
    for key in ("tool_call_id", "call_id", "tool_use_id", "id"):
        if isinstance(value.get(key), str):
            return str(value[key])
    return None
