"""Content: what was said in a step, as attributes, from what the recorder kept: redacted."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from tallystick.adapters.transcripts import (
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

_ALSO = {
    GenAI.INPUT_MESSAGES: OpenInference.INPUT,
    GenAI.MEMORY_QUERY: OpenInference.INPUT,
    GenAI.MEMORY_RECORDS: OpenInference.OUTPUT,
    GenAI.OUTPUT_MESSAGES: OpenInference.OUTPUT,
    GenAI.RETRIEVAL_QUERY: OpenInference.INPUT,
    GenAI.TOOL_ARGUMENTS: OpenInference.INPUT,
    GenAI.TOOL_RESULT: OpenInference.OUTPUT,
}


def content_of(entries: Iterable[StepEntry]) -> dict[str, str]:
    """Return the content of a step as attributes, each a JSON text; none of what is not kept."""
    said = {
        name: json.dumps(value, ensure_ascii=False)
        for entry in entries
        if entry.payload is not None
        for name, value in _content(entry)
    }
    also = {_ALSO[name]: value for name, value in said.items() if name in _ALSO}
    return said | also


def _content(entry: StepEntry) -> Iterator[tuple[str, Json]]:
    payload = entry.payload
    fields: Mapping[str, Any] = payload if isinstance(payload, dict) else {}
    if entry.kind == "request" and "query" in fields:
        yield GenAI.RETRIEVAL_QUERY, fields["query"]
    elif entry.kind == "request":
        messages = request_messages(payload)
        system = [part for each in messages if each.role == "system" for part in _parts(each.parts)]
        said = [_message(each) for each in messages if each.role != "system"]
        if system:
            yield GenAI.SYSTEM_INSTRUCTIONS, system
        if said:
            yield GenAI.INPUT_MESSAGES, said
    elif entry.kind == "response" and "documents" not in fields:
        said = [_message(each) for each in answer_messages(payload)]
        if said:
            yield GenAI.OUTPUT_MESSAGES, said
    elif entry.kind == "tool_call":
        yield GenAI.TOOL_ARGUMENTS, fields.get("arguments", payload)
    elif entry.kind == "tool_result":
        yield GenAI.TOOL_RESULT, fields.get("result", payload)
    elif entry.kind == "memory_read":
        if isinstance(fields.get("query"), str):
            yield GenAI.MEMORY_QUERY, fields["query"]
        hits = fields.get("hits")
        if isinstance(hits, list):
            yield GenAI.MEMORY_RECORDS, [_record(hit) for hit in hits]


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


def _record(hit: Any) -> Json:
    memory = hit.get("memory", hit) if isinstance(hit, dict) else {}
    record: dict[str, Json] = {"content": memory.get("content")}
    if isinstance(memory.get("id"), str):
        record["id"] = memory["id"]
    if isinstance(hit, dict) and isinstance(hit.get("score"), int | float):
        record["score"] = hit["score"]
    return record
