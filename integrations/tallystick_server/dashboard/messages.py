"""Messages: what a recorded request or answer says, as a person reads it."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from tallystick.kit import transcripts
from tallystick.kit.transcripts import (
    OtherPart,
    Part,
    ReasoningPart,
    TextPart,
    ToolCallPart,
    ToolResultPart,
)
from tallystick.records import EntryKind, Json

_LINE = 80
"""Characters of a value that stands on one line."""


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
    if kind == "tool_result":
        return [Message("tool", _readable(transcripts.tool_result(payload)))]
    read = transcripts.answer_messages if kind == "response" else transcripts.request_messages
    messages = [
        Message(
            message.role,
            "\n".join(filter(None, map(_text, message.parts))),
            tuple(
                (part.name, _readable(part.arguments))
                for part in message.parts
                if isinstance(part, ToolCallPart)
            ),
        )
        for message in read(payload)
    ]
    return [message for message in messages if message.text or message.calls]


def _text(part: Part) -> str:
    match part:
        case TextPart(text) | ReasoningPart(text):
            return text
        case ToolResultPart(_, value) | OtherPart(_, value):
            return _readable(value)
        case _:
            return ""


def _readable(value: Any) -> str:
    if isinstance(value, str):
        return value
    if value is None:
        return ""
    if isinstance(value, list) and value and all(_is_text(each) for each in value):
        return "\n".join(each["text"] for each in value)
    if isinstance(value, dict) and len(value) == 1:
        [(name, only)] = value.items()
        if isinstance(only, str) and "\n" in only:
            return f"{name}:\n{only}"
    return json.dumps(value, ensure_ascii=False, indent=1 if len(str(value)) > _LINE else None)


def _is_text(value: Any) -> bool:
    return isinstance(value, dict) and isinstance(value.get("text"), str)
