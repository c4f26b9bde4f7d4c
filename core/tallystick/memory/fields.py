"""Fields of a value by their paths: `title`, `author.name`, `parts[0].text`, `parts[*].text`, and
`$` for all of it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

from tallystick.errors import InvalidInput

STORE_ITEM = "store_item"
"""The kind of the memories that are items of a store."""
INDEX = "store_index"
"""The attribute with the fields by which an item of a store is found: a list of paths."""
_ALL = ("$", "")
"""Paths of a value as a whole."""
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


def labels_of(namespace: Sequence[str]) -> tuple[str, ...]:
    """Return the labels of a namespace. Raises InvalidInput for text, which is a label and no
    list.
    """
    if isinstance(namespace, str) or not all(isinstance(label, str) for label in namespace):
        raise InvalidInput(f"A namespace is a sequence of labels, such as ({namespace!r},).")
    return tuple(namespace)


def text_for_model(kind: str, content: str) -> str:
    """Return the text of a memory as a model is given it: of an item its value, without the
    address, and of a file its text.
    """
    if kind != STORE_ITEM:
        return content
    value = item_value(content)
    text = _text_of_file(value)
    return json.dumps(value, ensure_ascii=False) if text is None else text


def _text_of_file(value: Mapping[str, Any]) -> str | None:
    """Return the text of a value that is a file; None for every other value, and for bytes.

    A file has a content, in a named encoding or as lines, and beside it nothing but times.
    """
    about = {name: each for name, each in value.items() if name != "content"}
    content, encoding = value.get("content"), about.pop("encoding", None)
    if not all(map(_is_time, about.values())):
        return None
    if isinstance(content, list) and about and all(isinstance(line, str) for line in content):
        return "\n".join(content)
    return content if isinstance(content, str) and _is_text_encoding(encoding) else None


def _is_time(value: Any) -> bool:
    try:
        return isinstance(value, str) and bool(datetime.fromisoformat(value))
    except ValueError:
        return False


def _is_text_encoding(name: Any) -> bool:
    try:
        return isinstance(name, str) and "".encode(name) is not None
    except (LookupError, ValueError):
        return False


def texts_of_item(content: str, paths: Any) -> list[str]:
    """Return the texts by which an item is found, in the order of the paths; none for an item that
    is not indexed. All of a file is its text.
    """
    value = item_value(content)
    file_text = _text_of_file(value)
    whole = value if file_text is None else {"content": file_text}
    indexed_paths = paths if isinstance(paths, list) else []
    return [
        text
        for path in indexed_paths
        if isinstance(path, str)
        for text in texts_at(whole if path in _ALL else value, path)
        if text.strip()
    ]


def texts_at(value: Any, path: str) -> Iterator[str]:
    """Yield the texts at a path, numbers and the like as text; none for a path that is absent."""
    if path in _ALL:
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
