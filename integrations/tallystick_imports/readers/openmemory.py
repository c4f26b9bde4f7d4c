"""OpenMemory: its database, or the archive that its backup writes.

A memory that is paused, archived or deleted there is not taken.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import UUID

from tallystick.kit import rows_of_openmemory
from tallystick_imports.entries import (
    TOO_DEEP,
    Entry,
    Read,
    Unreadable,
    mapping,
    moment,
    new_memory,
    objects,
    read_each,
    tags_of,
)
from tallystick_imports.files import documents, is_database, values_of


def read_openmemory(file: Path) -> Read:
    """Read `openmemory.db`, or `memories.json` of a backup."""
    if not file.is_dir() and is_database(file):
        yield from read_each(_rows(file), _of_memory)
        return
    for _, text in documents(file, "memories.json"):
        for place, value in values_of(file, text):
            yield from read_each(_of_backup(place, value), _of_memory)


def _rows(file: Path) -> Iterator[tuple[str, Any]]:
    for row in rows_of_openmemory(file):
        place = f"{row.user} {row.id}"
        try:
            read = {name: json.loads(getattr(row, name)) for name in ("metadata", "categories")}
        except ValueError:
            yield place, Unreadable(place, "is no JSON")
        except RecursionError:
            yield place, Unreadable(place, TOO_DEEP)
        else:
            yield place, {**row._asdict(), **read}


def _of_backup(place: str, value: Any) -> Iterator[tuple[str, Any]]:
    """Yield the memories of a backup with what its other lists say of them."""
    whole = mapping(value)
    if "memories" not in whole:
        yield place, Unreadable(place, "is no backup of OpenMemory")
        return
    user = mapping(whole.get("user")).get("user_id")
    apps, categories = (
        {str(each.get("id")): each.get("name") for each in objects(whole.get(name))}
        for name in ("apps", "categories")
    )
    for number, memory in enumerate(objects(whole["memories"]), 1):
        ids = memory.get("category_ids")
        named = [categories.get(str(each)) for each in (ids if isinstance(ids, list) else ())]
        yield (
            f"memory {number}",
            {
                **memory,
                "user": user,
                "app": apps.get(str(memory.get("app_id"))),
                "categories": [each for each in named if each],
            },
        )


def _of_memory(place: str, value: dict[str, Any]) -> Iterator[Entry | Unreadable]:
    state, owner = value.get("state") or "active", str(value.get("user") or "")
    if state != "active":
        yield Unreadable(place, f"is {state} there")
        return
    new = new_memory(
        content=value["content"],
        kind="fact",
        tags=tags_of(value.get("categories")),
        occurred_at=moment(value.get("updated_at") or value.get("created_at")),
        attributes={**mapping(value.get("metadata")), "app": value.get("app") or None},
        source=("openmemory", UUID(str(value["id"])), owner),
    )
    yield Entry(place, owner, new)
