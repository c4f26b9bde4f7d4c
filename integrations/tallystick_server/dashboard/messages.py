"""Messages: what a recorded request or answer says, for whatever runtime or provider."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from tallystick.records import EntryKind, Json

__all__ = ["Message", "messages_of"]

_ROLES: Mapping[str, str] = {
    "ai": "assistant",
    "AIMessage": "assistant",
    "developer": "system",
    "human": "user",
    "model": "assistant",
    "request": "user",
    "response": "assistant",
    "tool_return": "tool",
}
_INSTRUCTIONS = ("system", "instructions")
_DEEPEST = 6


@dataclass(frozen=True)
class Message:
    """One message, as a person reads it."""

    role: str
    text: str
    calls: tuple[tuple[str, str], ...] = ()
    """The tools that it calls, each with its arguments."""


def messages_of(kind: EntryKind, payload: Json) -> list[Message]:
    """Return the messages of an entry; none where its form is not known."""
    if kind == "error":
        text = payload.get("message") if isinstance(payload, dict) else payload
        return [Message("error", text)] if isinstance(text, str) else []
    if not isinstance(payload, dict):
        return [Message("assistant", payload)] if isinstance(payload, str) else []
    if kind == "tool_result":
        result = payload.get("result", payload.get("error"))
        text = _text(result.get("content", result) if isinstance(result, dict) else result)
        return [Message("tool", text)]
    if kind == "response":
        return [_message(payload.get("answer", payload), "assistant")]
    found = [Message("system", _text(payload[key])) for key in _INSTRUCTIONS if key in payload]
    for key in ("messages", "input", "contents", "items"):
        value = payload.get(key)
        if isinstance(value, list):
            found += [_message(each, "user") for each in value]
        elif isinstance(value, str):
            found.append(Message("user", value))
    prompt = payload.get("prompt")
    if not found and isinstance(prompt, str):
        found.append(Message("user", prompt))
    return [message for message in found if message.text or message.calls]


def _message(value: Any, role: str) -> Message:
    if not isinstance(value, dict):
        return Message(role, _text(value))
    data = value.get("data")
    body = data if isinstance(data, dict) else value
    named = value.get("role") or value.get("type") or value.get("kind") or role
    role = _ROLES.get(str(named), str(named))
    content = next(
        (body[key] for key in ("content", "parts", "text", "output") if body.get(key)), ""
    )
    return Message(role, _text(content), tuple(_calls(body)))


def _calls(body: Mapping[str, Any], depth: int = 0) -> Iterator[tuple[str, str]]:
    """Yield the tool calls of a message: in a list of their own, or among its parts."""
    for key in ("tool_calls", "content", "parts", "output"):
        values = body.get(key)
        for call in values if isinstance(values, list) and depth < _DEEPEST else ():
            if not isinstance(call, dict):
                continue
            inner = call.get("function")
            named = inner if isinstance(inner, dict) else call
            name = named.get("name") or named.get("tool_name")
            for arguments in ("args", "arguments", "input"):
                if isinstance(name, str) and arguments in named:
                    yield name, _readable(named[arguments])
                    break


def _text(value: Any, depth: int = 0) -> str:
    """Return what a content says, whose parts may be texts or records with a text."""
    if isinstance(value, str):
        return value
    if isinstance(value, list) and depth < _DEEPEST:
        return "\n".join(filter(None, (_text(part, depth + 1) for part in value)))
    if isinstance(value, dict) and depth < _DEEPEST:
        for key in ("text", "content", "thinking", "answer"):
            if key in value:
                return _text(value[key], depth + 1)
        is_call = any(key in value for key in ("args", "arguments", "tool_name", "input"))
        return "" if is_call else _readable(value)
    return "" if value is None else str(value)


def _readable(value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, dict) and len(value) == 1:
        [(name, only)] = value.items()
        if isinstance(only, str) and "\n" in only:
            return f"{name}:\n{only}"
    return json.dumps(value, ensure_ascii=False, indent=1 if len(str(value)) > 80 else None)
