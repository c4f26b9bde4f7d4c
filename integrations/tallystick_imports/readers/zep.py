"""Zep and Graphiti: what their clients return of a graph and its threads, written down as JSON.

Neither has a file of its own for an export. A file is one object with `edges`, `episodes`, `nodes`,
`communities` and `messages`, as far as there are such, or a list of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from tallystick_imports.entries import (
    Entry,
    Read,
    Unreadable,
    entry_of,
    mapping,
    moment,
    new_memory,
    read_each,
    speaker_of,
)
from tallystick_imports.files import documents, values_of

_OWNERS = ("user_id", "graph_id", "group_id")
_THREADS = ("thread_id", "session_id")


def read_zep(file: Path) -> Read:
    """Read what a client of Zep returned."""
    return _read("zep", file)


def read_graphiti(file: Path) -> Read:
    """Read what Graphiti returned."""
    return _read("graphiti", file)


def _read(product: str, file: Path) -> Read:
    for _, text in documents(file, "*.json", "*.jsonl"):
        yield from read_each(values_of(file, text), partial(_of_graph, product))


def _of_graph(product: str, place: str, value: dict[str, Any]) -> Iterator[Entry | Unreadable]:
    readers: Mapping[str, Callable[..., Entry | None]] = {
        "edges": _of_edge,
        "facts": _of_edge,
        "episodes": _of_episode,
        "nodes": _of_node,
        "entities": _of_node,
        "communities": _of_node,
        "messages": _of_message,
    }
    lists = {name: value[name] for name in readers if isinstance(value.get(name), list)}
    if not lists:
        # A list of one kind, as the client returned it.
        kind = _kind(value)
        if kind is None:
            yield Unreadable(place, "is no edge, episode, node or message, and holds none")
            return
        lists, value = {kind: [value]}, {}
    names = {
        str(node.get("uuid") or node.get("uuid_")): str(node.get("name") or "")
        for key in ("nodes", "entities")
        for node in value.get(key) or ()
        if isinstance(node, dict)
    }
    for name, items in lists.items():
        for number, item in enumerate(items):
            where = f"{place} {name} {number}" if value else place
            if isinstance(item, str):
                item = {"fact": item}
            if not isinstance(item, dict):
                yield Unreadable(where, "is no object")
                continue
            read = partial(readers[name], product, where, value, names, number, item)
            entry = entry_of(where, read)
            if entry is not None:
                yield entry


def _kind(value: Mapping[str, Any]) -> str | None:
    if "fact" in value:
        return "edges"
    if "content" in value:
        return "messages" if "role" in value and "source" not in value else "episodes"
    return "nodes" if "summary" in value and "name" in value else None


def _first(names: tuple[str, ...], *places: Mapping[str, Any]) -> str:
    found = (place[name] for place in places for name in names if place.get(name))
    return str(next(found, ""))


def _id(item: Mapping[str, Any]) -> Any:
    return item.get("uuid") or item.get("uuid_")


def _of_edge(
    product: str,
    place: str,
    whole: Mapping[str, Any],
    names: Mapping[str, str],
    number: int,
    item: Mapping[str, Any],
) -> Entry:
    owner = _first(_OWNERS, item, whole)
    ends = [names.get(str(item.get(f"{end}_node_uuid")), "") for end in ("source", "target")]
    new = new_memory(
        content=item["fact"],
        kind="fact",
        occurred_at=moment(item.get("valid_at") or item.get("created_at")),
        valid_from=moment(item.get("valid_at")),
        valid_until=moment(item.get("invalid_at") or item.get("expired_at")),
        subject=ends[0][:200] or None,
        entities=tuple(dict.fromkeys(end[:200] for end in ends if end.strip())),
        attributes={**mapping(item.get("attributes")), "relation": item.get("name")},
        source=(product, _id(item), owner),
    )
    return Entry(place, owner, new)


def _of_episode(
    product: str,
    place: str,
    whole: Mapping[str, Any],
    names: Mapping[str, str],
    number: int,
    item: Mapping[str, Any],
) -> Entry | None:
    if item.get("source", "message") == "message":
        return _of_message(product, place, whole, names, number, item)
    owner = _first(_OWNERS, item, whole)
    new = new_memory(
        content=item["content"],
        kind="note",
        subject=str(item.get("name") or "")[:200] or None,
        occurred_at=moment(item.get("valid_at") or item.get("created_at")),
        attributes={"source_description": item.get("source_description")},
        title=item.get("source_description"),
        source=(product, _id(item), owner),
    )
    return Entry(place, owner, new)


def _of_message(
    product: str,
    place: str,
    whole: Mapping[str, Any],
    names: Mapping[str, str],
    number: int,
    item: Mapping[str, Any],
) -> Entry | None:
    owner = _first(_OWNERS, item, whole)
    thread = _first(_THREADS, item, whole) or owner or product
    # Zep 2 says who speaks by `role_type`, and names them by `role`.
    role = next((r for r in (item.get("role_type"), item.get("role")) if isinstance(r, str)), None)
    if role in ("system", "tool", "function", "norole"):
        return None
    new = new_memory(
        content=item["content"],
        kind="turn",
        speaker=speaker_of(role) if role else None,
        conversation=thread,
        position=number,
        occurred_at=moment(item.get("valid_at") or item.get("created_at")),
        title=item.get("source_description"),
        source=(product, _id(item), owner),
    )
    return Entry(place, owner, new)


def _of_node(
    product: str,
    place: str,
    whole: Mapping[str, Any],
    names: Mapping[str, str],
    number: int,
    item: Mapping[str, Any],
) -> Entry | None:
    if not str(item.get("summary") or "").strip():
        return None  # what it is named by is in the facts about it
    owner = _first(_OWNERS, item, whole)
    name = str(item.get("name") or "")
    new = new_memory(
        content=item["summary"],
        kind="summary",
        subject=name[:200] or None,
        entities=(name[:200],) if name.strip() else (),
        occurred_at=moment(item.get("created_at")),
        attributes={**mapping(item.get("attributes")), "labels": item.get("labels") or None},
        source=(product, _id(item), owner),
    )
    return Entry(place, owner, new)
