"""Fields of a value by their paths: `title`, `author.name`, `parts[0].text`, `parts[*].text`, and
`$` for all of it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

__all__ = ["INDEX", "item_content", "item_value", "texts_at", "texts_of_item"]

INDEX = "store_index"
"""The attribute with the fields by which an item of a store is found: a list of paths."""
_STEP = re.compile(r"\[(\*|-?\d+)\]|([^.\[\]]+)")


def item_content(namespace: tuple[str, ...], key: str, value: Any) -> str:
    """Return an item as the text of a memory. Its address belongs to it, so that equal values are
    two items.
    """
    return json.dumps({"namespace": namespace, "key": key, "value": value}, ensure_ascii=False)


def item_value(content: str) -> dict[str, Any]:
    """Return the value in the text of an item; text that a person put in its place is
    `{"content": text}`.
    """
    try:
        item = json.loads(content)
    except ValueError:
        return {"content": content}
    value = item.get("value") if isinstance(item, dict) else None
    return value if isinstance(value, dict) else {"content": content}


def texts_of_item(content: str, paths: Any) -> list[str]:
    """Return the texts by which an item is found, in the order of the paths; none for an item that
    is not indexed.
    """
    value = item_value(content)
    indexed_paths = paths if isinstance(paths, list) else []
    return [
        text
        for path in indexed_paths
        if isinstance(path, str)
        for text in texts_at(value, path)
        if text.strip()
    ]


def texts_at(value: Any, path: str) -> Iterator[str]:
    """Yield the texts at a path, numbers and the like as text; none for a path that is absent."""
    if path in ("$", ""):
        yield from _all(value, "")
        return
    values = [value]
    for match in _STEP.finditer(path):
        position, name = match.groups()
        values = [inner for item in values for inner in _step(item, position, name)]
    for item in values:
        yield from _all(item, "")


def _step(value: Any, position: str | None, name: str | None) -> Iterator[Any]:
    if name is not None:
        if isinstance(value, dict) and name in value:
            yield value[name]
    elif position == "*":
        yield from (
            value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
        )
    elif isinstance(value, list) and -len(value) <= int(position or 0) < len(value):
        yield value[int(position or 0)]


def _all(value: Any, name: str) -> Iterator[str]:
    """Yield every text in a value, each after the name of its field."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from _all(inner, str(key))
    elif isinstance(value, list):
        for inner in value:
            yield from _all(inner, name)
    elif value is not None:
        text = value if isinstance(value, str) else json.dumps(value)
        yield f"{name}: {text}" if name else text
