"""Memories of other products: read from their own exports, and written to files that they read.

A reader yields one entry for each memory, with the line or place that it came from, and the reason
for each that it cannot read. Nothing is guessed: an export of several owners is imported for the
owners that somebody names.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, Literal

from tallystick.errors import InvalidInput, InvalidRecord, TallystickError
from tallystick.kit import rows_of_store
from tallystick.kit.sessions import note
from tallystick.kit.transcripts import request_messages
from tallystick.memory import Put
from tallystick.records import Memory, NewMemory, SourceRef
from tallystick.records._base import Json, Record
from tallystick.tally import BoundTally

ForeignFormat = Literal["mem0", "langmem", "langgraph-store", "llama-index", "jsonl"]
_PAGE = 200
"""Memories of one transaction: an import that is cut off goes on after those that are stored."""
_MOST_SKIPPED = 100
"""Reasons that an answer lists; more are counted."""
_DEEPEST = 100
"""Levels of objects and lists within each other that a memory of another product may have."""
_TOO_DEEP = f"is nested deeper than {_DEEPEST} levels"
_ROLES = {"human": "user", "ai": "assistant"}


class SkippedMemory(Record):
    """A memory that could not be read, and why."""

    place: str
    """Line of the file, or address in it."""
    reason: str


class Imported(Record):
    """The result of an import, or what it would be."""

    format: ForeignFormat
    mode: Literal["preview", "apply"]
    read: int
    """Memories in the file, of the chosen owners, that can be imported."""
    owners: dict[str, int] = {}
    """Number of memories by who they belong to in the file."""
    kinds: dict[str, int] = {}
    created: int = 0
    present: int = 0
    """Those that were there already, as after an import that was cut off."""
    found: int = 0
    """Those that were read back afterwards."""
    skipped: tuple[SkippedMemory, ...] = ()
    skipped_count: int = 0


@dataclass(frozen=True)
class _Entry:
    place: str
    owner: str
    value: NewMemory | Put


@dataclass(frozen=True)
class _Unreadable:
    place: str
    reason: str


def import_memories(
    bound: BoundTally,
    format: ForeignFormat,
    file: Path,
    *,
    only: Iterable[str] = (),
    mode: Literal["preview", "apply"] = "preview",
    progress: Callable[[int], None] | None = None,
) -> Imported:
    """Import the memories of another product into the bound scope, or say what that would do.

    `only` names the owners to take: users of mem0, namespaces of a store, keys of a chat store; it
    is needed where the file has several, and `*` takes all. Doing it again adds nothing twice.
    Raises InvalidInput for a file of another form and for owners that are not named; Denied.
    """
    names = list(only)
    entries, skipped = _read(format, file)
    owners = Counter(entry.owner for entry in entries)
    unknown = [owner for owner in names if owner != "*" and owner not in owners]
    if unknown:
        raise InvalidInput(
            f"{file} has nothing of {', '.join(map(repr, unknown))}; it is of {_names(owners)}.",
            argument="only",
        )
    if len(owners) > 1 and not names and mode == "apply":
        raise InvalidInput(
            f"{file} is of {len(owners)} owners: {_names(owners)}. Name those whose memories "
            "belong into this scope, or * for all: one user's memories are not another's.",
            argument="only",
        )
    chosen = [entry for entry in entries if not names or "*" in names or entry.owner in names]
    created = present = verified = 0
    if mode == "apply":
        created, present, verified = _store(bound, chosen, skipped, progress)
        numbers = {"created": created, "present": present, "skipped": len(skipped)}
        note(bound, "memory.imported", {"format": format, **numbers})
    kinds = Counter(
        "store item" if isinstance(entry.value, Put) else entry.value.kind for entry in chosen
    )
    return Imported(
        format=format,
        mode=mode,
        read=len(chosen),
        owners=dict(sorted(owners.items())),
        kinds=dict(sorted(kinds.items())),
        created=created,
        present=present,
        found=verified,
        skipped=tuple(
            SkippedMemory(place=each.place, reason=each.reason) for each in skipped[:_MOST_SKIPPED]
        ),
        skipped_count=len(skipped),
    )


def export_lines(memories: Iterable[Memory], format: ForeignFormat, *, owner: str) -> Iterator[str]:
    """Yield memories as lines of JSON in the form in which `import_memories` reads them, and the
    other product what it takes: for mem0 the arguments of `add` without inference, for stores of
    LangGraph the arguments of `put`, for LlamaIndex messages.
    """
    for memory in memories:
        at = memory.occurred_at or memory.created_at
        facts: dict[str, Json] = {"kind": memory.kind, "tallystick_id": memory.id}
        if memory.tags:
            facts["tags"] = list(memory.tags)
        line: dict[str, Json]
        if format == "mem0":
            facts["created_at"] = memory.created_time.isoformat()
            line = {"messages": memory.content, "user_id": owner, "metadata": facts, "infer": False}
        elif format == "langgraph-store":
            value: Json = {"content": memory.content, **facts}
            line = {"namespace": ["memories", owner], "key": memory.id, "value": value}
        elif format == "langmem":
            item_value: Json = {"kind": "Memory", "content": {"content": memory.content, **facts}}
            line = {"namespace": ["memories", owner], "key": memory.id, "value": item_value}
        elif format == "llama-index":
            role = memory.speaker if memory.speaker in ("user", "assistant") else "user"
            block: Json = {"block_type": "text", "text": memory.content}
            line = {"key": memory.conversation or owner, "role": role, "blocks": [block]}
        else:
            line = {"content": memory.content, "user": owner, "occurred_at": at, **facts}
            if memory.conversation is not None:
                line |= {"conversation": memory.conversation, "speaker": memory.speaker}
        yield json.dumps(line, ensure_ascii=False)


def _store(
    bound: BoundTally,
    chosen: list[_Entry],
    skipped: list[_Unreadable],
    progress: Callable[[int], None] | None,
) -> tuple[int, int, int]:
    created = present = verified = 0
    remaining = iter(chosen)
    while page := list(islice(remaining, _PAGE)):
        new = [each.value for each in page if isinstance(each.value, NewMemory)]
        puts = [each.value for each in page if isinstance(each.value, Put)]
        if new:
            try:
                results = bound.remember_many(new)
            except InvalidInput:
                # One of them is refused: each by itself, so that the others are kept.
                results = [
                    result
                    for each in page
                    if (result := _store_one(bound, each, skipped)) is not None
                ]
            created += sum(result.status == "created" for result in results)
            present += sum(result.status != "created" for result in results)
            verified += sum(bound.get(result.id).id == result.id for result in results if result.id)
        if puts:
            addresses = [(put.namespace, put.key) for put in puts]
            before = bound.items.get(addresses)
            try:
                bound.items.put(puts)
            except (InvalidInput, InvalidRecord):
                for each in page:
                    _put_one(bound, each, skipped)
            after = bound.items.get(addresses)
            stored = [old for old, new in zip(before, after, strict=True) if new is not None]
            created += stored.count(None)
            present += len(stored) - stored.count(None)
            verified += len(stored)
        if progress is not None:
            progress(len(page))
    return created, present, verified


def _store_one(bound: BoundTally, entry: _Entry, skipped: list[_Unreadable]) -> Any:
    assert isinstance(entry.value, NewMemory)
    try:
        return bound.remember_many([entry.value])[0]
    except InvalidInput as error:
        skipped.append(_Unreadable(entry.place, str(error)))
        return None


def _put_one(bound: BoundTally, entry: _Entry, skipped: list[_Unreadable]) -> None:
    assert isinstance(entry.value, Put)
    try:
        bound.items.put([entry.value])
    except (InvalidInput, InvalidRecord) as error:
        skipped.append(_Unreadable(entry.place, str(error)))


def _names(owners: Mapping[str, int]) -> str:
    named = ", ".join(f"{owner} ({count})" for owner, count in sorted(owners.items())[:8])
    return named + (f" and {len(owners) - 8} others" if len(owners) > 8 else "")


# Reading


def _read(format: ForeignFormat, file: Path) -> tuple[list[_Entry], list[_Unreadable]]:
    entries: list[_Entry] = []
    unreadable: list[_Unreadable] = []
    for place, value in _values(format, file):
        if isinstance(value, _Unreadable):
            unreadable.append(value)
            continue
        if _is_too_deep(value):
            unreadable.append(_Unreadable(place, _TOO_DEEP))
            continue
        try:
            for entry in _READERS[format](place, value):
                entries.append(entry)
        except (KeyError, TypeError, ValueError, AttributeError, TallystickError) as error:
            unreadable.append(_Unreadable(place, _reason(error)))
    if not entries and not unreadable:
        raise InvalidInput(f"{file} holds no memories that can be read as {format}.")
    return entries, unreadable


def _is_too_deep(value: Any) -> bool:
    level = [value]
    for _ in range(_DEEPEST + 1):
        level = [
            inner
            for each in level
            if isinstance(each, dict | list)
            for inner in (each.values() if isinstance(each, dict) else each)
        ]
        if not level:
            return False
    return True


def _reason(error: Exception) -> str:
    if isinstance(error, KeyError):
        return f"has no field {error}"
    if isinstance(error, InvalidRecord | InvalidInput):
        return str(error)
    return f"is of another form ({error})"


def _values(format: ForeignFormat, file: Path) -> Iterator[tuple[str, Any]]:
    """Yield the values of a file with their places: rows of a database, lines, or the members of
    one JSON value.
    """
    if file.exists() and not file.is_file():
        raise InvalidInput(f"{file} is no file: a pipe or a device may have no end. Copy it first.")
    try:
        with file.open("rb") as opened:
            is_database = opened.read(16).startswith(b"SQLite format 3")
        if is_database:
            yield from _rows(format, file)
            return
        text = file.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidInput(f"{file} cannot be read: {error}.") from error
    try:
        whole = json.loads(text)
    except (ValueError, RecursionError):
        yield from _lines(text)
        return
    if isinstance(whole, dict) and format == "llama-index" and isinstance(whole.get("store"), dict):
        for key, messages in whole["store"].items():
            for number, message in enumerate(messages if isinstance(messages, list) else ()):
                place = f"{key} {number}"
                if isinstance(message, dict):
                    yield place, {"key": key, "position": number, **message}
                else:
                    yield place, _Unreadable(place, "is no message")
        return
    if isinstance(whole, dict):
        listed = next(
            (whole[name] for name in ("results", "memories", "items") if name in whole), None
        )
        whole = [whole] if listed is None else listed
    if not isinstance(whole, list):
        raise InvalidInput(f"{file} holds no list of memories.")
    yield from ((f"entry {number}", value) for number, value in enumerate(whole, 1))


def _lines(text: str) -> Iterator[tuple[str, Any]]:
    # Not `splitlines`: it also cuts at separators that JSON leaves as they are within a text.
    for number, line in enumerate(text.split("\n"), 1):
        if not line.strip():
            continue
        try:
            yield f"line {number}", json.loads(line)
        except ValueError:
            yield f"line {number}", _Unreadable(f"line {number}", "is no JSON")
        except RecursionError:
            yield f"line {number}", _Unreadable(f"line {number}", _TOO_DEEP)


def _rows(format: ForeignFormat, file: Path) -> Iterator[tuple[str, Any]]:
    """Yield the rows of the database of LangGraph's SqliteStore."""
    if format not in ("langgraph-store", "langmem"):
        raise InvalidInput(f"{file} is a database; {format} is read from a JSON export.")
    for prefix, key, value in rows_of_store(file):
        row: dict[str, Any] = {"namespace": prefix.split("."), "key": key}
        try:
            row["value"] = json.loads(value)
        except ValueError:
            yield f"{prefix} {key}", _Unreadable(f"{prefix} {key}", "is no JSON")
            continue
        except RecursionError:
            yield f"{prefix} {key}", _Unreadable(f"{prefix} {key}", _TOO_DEEP)
            continue
        yield f"{prefix} {key}", row


def _of_mem0(place: str, value: dict[str, Any]) -> Iterator[_Entry]:
    owner = next(
        (str(value[name]) for name in ("user_id", "agent_id", "run_id") if value.get(name)), ""
    )
    metadata = _mapping(value.get("metadata"))
    new = _new(
        content=value[next((n for n in ("memory", "data", "messages") if n in value), "memory")],
        kind=metadata.pop("kind", "fact"),
        tags=_tags(metadata.pop("tags", value.get("categories"))),
        occurred_at=value.get("updated_at")
        or value.get("created_at")
        or metadata.pop("created_at", None),
        attributes=metadata,
        source=("mem0", value.get("id"), owner),
    )
    yield _Entry(place, owner, new)


def _of_langmem(place: str, value: dict[str, Any]) -> Iterator[_Entry]:
    namespace, key = _address(value)
    item_value = value["value"]
    content = item_value.get("content", item_value)
    kind, facts = str(item_value.get("kind", "Memory")), {}
    if isinstance(content, dict):
        # A schema of the user's own has other fields: all of them are what is remembered.
        facts = {name: each for name, each in content.items() if name != "content"}
        content = content["content"] if "content" in content else json.dumps(content)
    owner = "/".join(namespace)
    own_kind = facts.pop("kind", None)
    new = _new(
        content=content,
        kind=own_kind or ("fact" if kind == "Memory" else _snake(kind)),
        tags=_tags(facts.pop("tags", None)),
        occurred_at=value.get("updated_at") or value.get("created_at"),
        attributes=facts,
        source=("langmem", key, owner),
    )
    yield _Entry(place, owner, new)


def _of_store(place: str, value: dict[str, Any]) -> Iterator[_Entry]:
    namespace, key = _address(value)
    stored = value["value"]
    if not isinstance(stored, dict):
        raise ValueError("the value of an item is an object")
    yield _Entry(place, "/".join(namespace), Put(namespace, key, stored))


def _of_llama_index(place: str, value: dict[str, Any]) -> Iterator[_Entry]:
    key = str(value.get("key") or value.get("session_id") or "chat")
    message = _mapping(value.get("data")) or {
        name: each for name, each in value.items() if name not in ("key", "position")
    }
    for each in request_messages({"messages": [message]}):
        if not each.text.strip() or each.role not in ("user", "assistant"):
            continue
        role = str(message.get("role", each.role))
        yield _Entry(
            place,
            key,
            _new(
                content=each.text,
                kind="turn",
                speaker=_ROLES.get(role, role),
                conversation=key,
                position=value.get("position", _number(place)),
                occurred_at=None,
                source=("llama-index", None, key),
            ),
        )


def _of_jsonl(place: str, value: dict[str, Any]) -> Iterator[_Entry]:
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
        turn_fields.setdefault("position", _number(place))
    tags = _tags(fields.pop("tags", None))
    source = ("jsonl", fields.pop("id", None), owner)
    extra = _mapping(fields.pop("metadata", None)) | fields
    new = _new(
        content=content,
        kind=kind,
        tags=tags,
        occurred_at=at,
        attributes=extra,
        source=source,
        **turn_fields,
    )
    yield _Entry(place, owner, new)


_READERS: Mapping[ForeignFormat, Callable[[str, dict[str, Any]], Iterator[_Entry]]] = {
    "mem0": _of_mem0,
    "langmem": _of_langmem,
    "langgraph-store": _of_store,
    "llama-index": _of_llama_index,
    "jsonl": _of_jsonl,
}


def _new(
    *,
    content: Any,
    source: tuple[str, Any, str],
    occurred_at: Any,
    tags: tuple[str, ...] = (),
    attributes: Mapping[str, Any] = {},
    **fields: Any,
) -> NewMemory:
    if not isinstance(content, str) or not content.strip():
        raise ValueError("there is no text")
    product, record_id, owner = source
    address = ":".join(str(part) for part in (product, owner, record_id) if part)
    return NewMemory(
        content=content,
        occurred_at=occurred_at,
        tags=tags,
        attributes={name: value for name, value in attributes.items() if value is not None},
        source=SourceRef(source_type="memory", uri=address[:1_000]),
        **fields,
    )


def _address(value: dict[str, Any]) -> tuple[tuple[str, ...], str]:
    namespace = value["namespace"]
    labels = namespace.split(".") if isinstance(namespace, str) else list(namespace)
    return tuple(str(label) for label in labels), str(value["key"])


def _mapping(value: Any) -> dict[str, Any]:
    return dict(value) if isinstance(value, dict) else {}


def _tags(value: Any) -> tuple[str, ...]:
    return tuple(str(each) for each in value) if isinstance(value, list | tuple) else ()


def _snake(name: str) -> str:
    return "".join(f"_{char.lower()}" if char.isupper() else char for char in name).strip("_")


def _number(place: str) -> int:
    return int(place.rpartition(" ")[2])
