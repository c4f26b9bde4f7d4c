"""Content: what was said in a step, as attributes, from what the recorder kept: redacted."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from tallystick.kit.transcripts import (
    Message,
    OtherPart,
    Part,
    ReasoningPart,
    TextPart,
    ToolCallPart,
    ToolResultPart,
    answer_messages,
    request_messages,
)
from tallystick.records import Json, StepEntry
from tallystick_opentelemetry.names import GenAI, OpenInference

TextOf = Callable[[str, int], str | None]
"""Gives the text of a memory, by its id and version, as far as it may be seen."""

_ALSO = {
    GenAI.INPUT_MESSAGES: OpenInference.INPUT,
    GenAI.MEMORY_QUERY: OpenInference.INPUT,
    GenAI.MEMORY_RECORDS: OpenInference.OUTPUT,
    GenAI.OUTPUT_MESSAGES: OpenInference.OUTPUT,
    GenAI.RETRIEVAL_QUERY: OpenInference.INPUT,
    GenAI.TOOL_ARGUMENTS: OpenInference.INPUT,
    GenAI.TOOL_RESULT: OpenInference.OUTPUT,
}


def content_of(entries: Iterable[StepEntry], text_of: TextOf) -> dict[str, str]:
    """Return the content of a step as attributes: a text as it is, all else as JSON; none of what
    is not kept. `text_of` gives the text of a memory at a version.
    """
    content = {
        name: value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        for entry in entries
        if entry.payload is not None
        for name, value in _content(entry, text_of)
    }
    also = {_ALSO[name]: value for name, value in content.items() if name in _ALSO}
    return content | also


def _content(entry: StepEntry, text_of: TextOf) -> Iterator[tuple[str, Json]]:
    payload = entry.payload
    fields: Mapping[str, Any] = payload if isinstance(payload, dict) else {}
    if entry.kind == "request" and "query" in fields:
        yield GenAI.RETRIEVAL_QUERY, fields["query"]
    elif entry.kind == "request":
        messages = request_messages(payload)
        system = [part for each in messages if each.role == "system" for part in _parts(each.parts)]
        shown = [_message(each) for each in messages if each.role != "system"]
        if system:
            yield GenAI.SYSTEM_INSTRUCTIONS, system
        if shown:
            yield GenAI.INPUT_MESSAGES, shown
    elif entry.kind == "response" and "documents" not in fields:
        shown = [_message(each) for each in answer_messages(payload)]
        if shown:
            yield GenAI.OUTPUT_MESSAGES, shown
    elif entry.kind == "tool_call":
        yield GenAI.TOOL_ARGUMENTS, fields.get("arguments", payload)
    elif entry.kind == "tool_result":
        yield GenAI.TOOL_RESULT, _result(fields.get("result", payload))
    elif entry.kind == "memory_read":
        if isinstance(fields.get("query"), str):
            yield GenAI.MEMORY_QUERY, fields["query"]
        hits = fields.get("hits")
        if isinstance(hits, list):
            yield GenAI.MEMORY_RECORDS, [_record(hit, text_of) for hit in hits]


def _message(message: Message) -> Json:
    named = {} if message.name is None else {"name": message.name}
    return {"role": message.role, "parts": _parts(message.parts), **named}


def _parts(parts: Sequence[Part]) -> list[Json]:
    return [_part(part) for part in parts]


def _part(part: Part) -> Json:
    match part:
        case TextPart(text):
            return {"type": "text", "content": text}
        case ReasoningPart(text):
            return {"type": "reasoning", "content": text}
        case ToolCallPart(call_id, name, arguments):
            return {"type": "tool_call", "id": call_id, "name": name, "arguments": arguments}
        case ToolResultPart(call_id, result):
            return {"type": "tool_call_response", "id": call_id, "response": result}
        case OtherPart(kind, value):
            return {"type": kind, "value": value}


def _result(result: Json) -> Json:
    """Return what a tool gave: of a message with its result the content."""
    if isinstance(result, dict) and {"content", "tool_call_id"} <= result.keys():
        return result["content"]
    return result


def _record(hit: Any, text_of: TextOf) -> Json:
    if not isinstance(hit, dict):
        return {}
    record = {name: hit[name] for name in ("id", "score") if name in hit}
    version = hit.get("version")
    text = text_of(str(hit.get("id")), version) if isinstance(version, int) else None
    return record if text is None else {**record, "content": text}
