"""mem0, LangMem, stores of LangGraph, LlamaIndex, and lines of JSON of one's own."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tallystick.errors import InvalidInput
from tallystick.kit import rows_of_store
from tallystick.kit.transcripts import request_messages
from tallystick.memory import Put
from tallystick.records import KINDS
from tallystick_imports.entries import (
    TOO_DEEP,
    Entry,
    Read,
    Unreadable,
    mapping,
    new_memory,
    number_of,
    pop_kind,
    read_each,
    speaker_of,
    tags_of,
)
from tallystick_imports.files import is_database, text_of, values_of

_LISTS = ("results", "memories", "items")
"""Names under which an export has its list."""


def read_mem0(file: Path) -> Read:
    """Read what `Memory.get_all` of mem0 returns."""
    return read_each(_values("mem0", file), _of_mem0)


def read_langmem(file: Path) -> Read:
    """Read the items of the store that LangMem writes to."""
    return read_each(_store_values(file), _of_langmem)


def read_store(file: Path) -> Read:
    """Read the items of a store of LangGraph."""
    return read_each(_store_values(file), _of_store)


def read_llama_index(file: Path) -> Read:
    """Read a SimpleChatStore, or messages as JSON lines."""
    return read_each(_chat_values(file), _of_llama_index)


def read_jsonl(file: Path) -> Read:
    """Read lines with a text and what else there is of a memory."""
    return read_each(_values("jsonl", file), _of_jsonl)


def _values(format: str, file: Path) -> Iterator[tuple[str, Any]]:
    if is_database(file):
        raise InvalidInput(f"{file} is a database; {format} is read from a JSON export.")
    yield from values_of(file, text_of(file), *_LISTS)


def _store_values(file: Path) -> Iterator[tuple[str, Any]]:
    """Yield the items of a store: those of a file of LangGraph's SqliteStore, or of JSON."""
    if not is_database(file):
        yield from values_of(file, text_of(file), *_LISTS)
        return
    for prefix, key, value in rows_of_store(file):
        place = f"{prefix} {key}"
        try:
            yield place, {"namespace": prefix.split("."), "key": key, "value": json.loads(value)}
        except ValueError:
            yield place, Unreadable(place, "is no JSON")
        except RecursionError:
            yield place, Unreadable(place, TOO_DEEP)


def _chat_values(file: Path) -> Iterator[tuple[str, Any]]:
    for place, value in _values("llama-index", file):
        store = value.get("store") if isinstance(value, dict) else None
        if not isinstance(store, dict):
            yield place, value
            continue
        for key, messages in store.items():
            for number, message in enumerate(messages if isinstance(messages, list) else ()):
                inner = f"{key} {number}"
                if isinstance(message, dict):
                    yield inner, {"key": key, "position": number, **message}
                else:
                    yield inner, Unreadable(inner, "is no message")


def _of_mem0(place: str, value: dict[str, Any]) -> Iterator[Entry]:
    owner = next(
        (str(value[name]) for name in ("user_id", "agent_id", "run_id") if value.get(name)), ""
    )
    metadata = mapping(value.get("metadata"))
    new = new_memory(
        content=value[next((n for n in ("memory", "data", "messages") if n in value), "memory")],
        kind=pop_kind(metadata, "fact"),
        tags=tags_of(metadata.pop("tags", value.get("categories"))),
        occurred_at=value.get("updated_at")
        or value.get("created_at")
        or metadata.pop("created_at", None),
        attributes=metadata,
        source=("mem0", value.get("id"), owner),
    )
    yield Entry(place, owner, new)


def _of_langmem(place: str, value: dict[str, Any]) -> Iterator[Entry]:
    namespace, key = _address(value)
    item_value = value["value"]
    content = item_value.get("content", item_value)
    schema, facts = str(item_value.get("kind", "Memory")), {}
    if isinstance(content, dict):
        # A schema of the user's own has other fields: all of them are what is remembered.
        facts = {name: each for name, each in content.items() if name != "content"}
        content = content["content"] if "content" in content else json.dumps(content)
    owner = "/".join(namespace)
    kind = _snake(schema)
    if kind not in KINDS:
        kind = "fact"
        if schema != "Memory":
            facts.setdefault("schema", schema)
    new = new_memory(
        content=content,
        kind=pop_kind(facts, kind),
        tags=tags_of(facts.pop("tags", None)),
        occurred_at=value.get("updated_at") or value.get("created_at"),
        attributes=facts,
        source=("langmem", key, owner),
    )
    yield Entry(place, owner, new)


def _of_store(place: str, value: dict[str, Any]) -> Iterator[Entry]:
    namespace, key = _address(value)
    stored = value["value"]
    if not isinstance(stored, dict):
        raise ValueError("the value of an item is an object")
    yield Entry(place, "/".join(namespace), Put(namespace, key, stored))


def _of_llama_index(place: str, value: dict[str, Any]) -> Iterator[Entry]:
    key = str(value.get("key") or value.get("session_id") or "chat")
    message = mapping(value.get("data")) or {
        name: each for name, each in value.items() if name not in ("key", "position")
    }
    for each in request_messages({"messages": [message]}):
        if not each.text.strip() or each.role not in ("user", "assistant"):
            continue
        yield Entry(
            place,
            key,
            new_memory(
                content=each.text,
                kind="turn",
                speaker=speaker_of(message.get("role", each.role)),
                conversation=key,
                position=value.get("position", number_of(place)),
                occurred_at=None,
                source=("llama-index", None, key),
            ),
        )


def _of_jsonl(place: str, value: dict[str, Any]) -> Iterator[Entry]:
    fields = dict(value)
    content = next(
        (fields.pop(name) for name in ("content", "memory", "text") if fields.get(name)), None
    )
    owner = str(next((fields.pop(n) for n in ("user", "user_id") if fields.get(n)), ""))
    turn_fields = {
        name: fields.pop(name)
        for name in ("speaker", "conversation", "position", "subject", "importance", "confidence")
        if fields.get(name) is not None
    }
    at = next((fields.pop(n) for n in ("occurred_at", "created_at") if fields.get(n)), None)
    kind = fields.pop("kind", None) or ("turn" if "conversation" in turn_fields else "note")
    if kind == "turn":
        turn_fields.setdefault("position", number_of(place))
    tags = tags_of(fields.pop("tags", None))
    source = ("jsonl", fields.pop("id", None), owner)
    extra = mapping(fields.pop("metadata", None)) | fields
    new = new_memory(
        content=content,
        kind=kind,
        tags=tags,
        occurred_at=at,
        attributes=extra,
        source=source,
        **turn_fields,
    )
    yield Entry(place, owner, new)


def _address(value: dict[str, Any]) -> tuple[tuple[str, ...], str]:
    namespace = value["namespace"]
    labels = namespace.split(".") if isinstance(namespace, str) else list(namespace)
    return tuple(str(label) for label in labels), str(value["key"])


def _snake(name: str) -> str:
    return "".join(f"_{char.lower()}" if char.isupper() else char for char in name).strip("_")
