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
"""The attribute that says by which fields an item of a store is found: a list of paths."""
_STEP = re.compile(r"\[(\*|-?\d+)\]|([^.\[\]]+)")


def item_content(namespace: tuple[str, ...], key: str, value: Any) -> str:
    """An item as the text of a memory: its address belongs to it, so that equal values are two
    items.
    """
    return json.dumps({"namespace": namespace, "key": key, "value": value}, ensure_ascii=False)


def item_value(content: str) -> dict[str, Any]:
    """The value in the text of an item; text that a person put in its place is `{"content":
    text}`.
    """
    try:
        found = json.loads(content)
    except ValueError:
        return {"content": content}
    value = found.get("value") if isinstance(found, dict) else None
    return value if isinstance(value, dict) else {"content": content}


def texts_of_item(content: str, paths: Any) -> list[str]:
    """What of an item is to be found, in the order of the paths; none for an item that is not
    indexed.
    """
    value = item_value(content)
    wanted = paths if isinstance(paths, list) else []
    return [
        text
        for path in wanted
        if isinstance(path, str)
        for text in texts_at(value, path)
        if text.strip()
    ]


def texts_at(value: Any, path: str) -> Iterator[str]:
    """The texts at a path; numbers and the like as text, what is not there not at all."""
    if path in ("$", ""):
        yield from _all(value, "")
        return
    found = [value]
    for match in _STEP.finditer(path):
        position, name = match.groups()
        found = [inner for one in found for inner in _step(one, position, name)]
    for one in found:
        yield from _all(one, "")


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
    """Every text in a value, with the name of its field before it."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from _all(inner, str(key))
    elif isinstance(value, list):
        for inner in value:
            yield from _all(inner, name)
    elif value is not None:
        text = value if isinstance(value, str) else json.dumps(value)
        yield f"{name}: {text}" if name else text
