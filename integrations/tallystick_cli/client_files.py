"""Editing the configuration of other programs: one entry in or out, everything else as it is.

JSON is edited in its text, so that comments, order and layout of a file that a person keeps stay.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from tallystick.errors import SettingsError

_BLANK = re.compile(r"(?:\s+|//[^\n]*|/\*.*?\*/)*", re.DOTALL)
_STRING = re.compile(r'"(?:[^"\\]|\\.)*"')
_ATOM = re.compile(r"[-+.\w]+")
_INDENT = "  "


@dataclass
class _Node:
    """A value of a JSON text, and the place where it is."""

    start: int
    end: int = 0
    members: dict[str, tuple[int, _Node]] | None = None
    """Of an object: for each key where it begins, and its value."""
    items: list[_Node] | None = None
    """Of a list."""
    atoms: list[str] = field(default_factory=list)


def json_with(text: str, path: tuple[str, ...], value: Any) -> str:
    """Return a JSON text, which may have comments, with `value` at a path of keys. Raises
    SettingsError for a text that is no JSON object.
    """
    text = text if text.strip() else "{}\n"
    node = _object(text)
    for depth, key in enumerate(path):
        if node.members is None:
            raise SettingsError(f"{'.'.join(path[:depth])} is no object there. Edit it by hand.")
        member = node.members.get(key)
        if member is None:
            for missing in reversed(path[depth + 1 :]):
                value = {missing: value}
            return _inserted(text, node, key, value, depth)
        node = member[1]
    return text[: node.start] + _written(value, len(path)) + text[node.end :]


def json_without(text: str, path: tuple[str, ...]) -> str:
    """Return a JSON text without what is at a path of keys; the same text where nothing is."""
    node = _object(text)
    for key in path[:-1]:
        if node.members is None or key not in node.members:
            return text
        node = node.members[key][1]
    if node.members is None or path[-1] not in node.members:
        return text
    start, member = node.members[path[-1]]
    return _cut(text, node, start, member.end)


def list_with(text: str, path: tuple[str, ...], item: Any) -> str:
    """Return a JSON text with an item at the end of the list at a path, which is made if there is
    none.
    """
    node = _at(text, path)
    if node is None:
        return json_with(text, path, [item])
    if node.items is None:
        raise SettingsError(f"{'.'.join(path)} is no list there. Edit it by hand.")
    written = f"\n{_INDENT * (len(path) + 1)}" + _written(item, len(path) + 1)
    if node.items:
        end = node.items[-1].end
        return f"{text[:end]},{written}{text[end:]}"
    close = f"\n{_INDENT * len(path)}]"
    return f"{text[: node.start]}[{written}{close}{text[node.end :]}"


def list_without(text: str, path: tuple[str, ...], left: Callable[[Any], Any]) -> str:
    """Return a JSON text without parts of the items of the list at a path: `left` returns what is
    left of an item, None for nothing; without the list where it is empty then.
    """
    while True:
        node = _at(text, path)
        if node is None or node.items is None:
            return text
        for item in node.items:
            value = _plain(text[item.start : item.end])
            rest = left(value)
            if rest is not None and rest != value:
                written = _written(rest, len(path) + 1)
                text = text[: item.start] + written + text[item.end :]
                break
            if rest is None and value is not None:
                if len(node.items) == 1:
                    return json_without(text, path)
                text = _cut(text, node, item.start, item.end)
                break
        else:
            return text


def _plain(text: str) -> Any:
    """Return a value; None for one with comments, which is a person's."""
    try:
        return json.loads(text)
    except ValueError:
        return None


def toml_with(text: str, table: str, values: dict[str, Any]) -> str:
    """Return a TOML text with a table, in place of the one that had its name. Raises
    SettingsError.
    """
    lines = [f"[{table}]", *(f"{name} = {json.dumps(value)}" for name, value in values.items())]
    before = toml_without(text, table).rstrip("\n")
    return (before + "\n\n" if before else "") + "\n".join(lines) + "\n"


def toml_without(text: str, table: str) -> str:
    """Return a TOML text without a table and those below it. Raises SettingsError."""
    try:
        tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise SettingsError(f"The file is no TOML: {error}. Mend it first.") from error
    block = re.compile(rf"^\[{re.escape(table)}(?:\.[^\]\n]*)?\][^\n]*\n(?:(?!\[).*\n?)*", re.M)
    left = block.sub("", text)
    return left if left == text else left.rstrip("\n") + ("\n" if left.strip() else "")


def _inserted(text: str, node: _Node, key: str, value: Any, depth: int) -> str:
    """Insert a member at the end of an object."""
    assert node.members is not None
    indent = _INDENT * (depth + 1)
    written = f"\n{indent}{json.dumps(key)}: {_written(value, depth + 1)}"
    if node.members:
        end = max(member.end for _, member in node.members.values())
        return f"{text[:end]},{written}{text[end:]}"
    inside = text[node.start + 1 : node.end - 1].rstrip()
    return f"{text[: node.start]}{{{inside}{written}\n{_INDENT * depth}}}{text[node.end :]}"


def _cut(text: str, node: _Node, start: int, end: int) -> str:
    """Cut a member or an item, with the comma that belonged to it."""
    following = _BLANK.match(text, end)
    assert following is not None
    if text[following.end()] == ",":
        rest = re.compile(r"[ \t]*\n?[ \t]*").match(text, following.end() + 1)
        assert rest is not None
        return text[:start] + text[rest.end() :]
    before = text[:start].rstrip()
    if before.endswith(","):
        return before[:-1] + text[end:]
    return (
        before + text[end:].lstrip(" \t\n") if before.endswith(("{", "[")) else before + text[end:]
    )


def _written(value: Any, depth: int) -> str:
    return json.dumps(value, indent=2, ensure_ascii=False).replace("\n", f"\n{_INDENT * depth}")


def _at(text: str, path: tuple[str, ...]) -> _Node | None:
    node = _object(text if text.strip() else "{}")
    for key in path:
        if node.members is None or key not in node.members:
            return None
        node = node.members[key][1]
    return node


def _object(text: str) -> _Node:
    node = _value(text, 0)
    if node.members is None or _blank(text, node.end) != len(text):
        raise SettingsError("The file is no JSON object. Mend it first.")
    return node


def _blank(text: str, place: int) -> int:
    match = _BLANK.match(text, place)
    return place if match is None else match.end()


def _value(text: str, place: int) -> _Node:
    """Read the value at a place, with comments and commas at the end. Raises SettingsError."""
    place = _blank(text, place)
    node = _Node(place)
    opening = text[place : place + 1]
    if opening in ("{", "["):
        closing = "}" if opening == "{" else "]"
        members: dict[str, tuple[int, _Node]] = {}
        items: list[_Node] = []
        place = _blank(text, place + 1)
        while text[place : place + 1] != closing:
            if opening == "{":
                key = _STRING.match(text, place)
                colon = -1 if key is None else _blank(text, key.end())
                if key is None or text[colon : colon + 1] != ":":
                    raise SettingsError("The file is no JSON. Mend it first.")
                child = _value(text, colon + 1)
                members[json.loads(key.group())] = (place, child)
            else:
                child = _value(text, place)
                items.append(child)
            place = _blank(text, child.end)
            if text[place : place + 1] == ",":
                place = _blank(text, place + 1)
            elif text[place : place + 1] != closing:
                raise SettingsError("The file is no JSON. Mend it first.")
        node.end = place + 1
        node.members, node.items = (members, None) if opening == "{" else (None, items)
        return node
    match = _STRING.match(text, place) or _ATOM.match(text, place)
    if match is None:
        raise SettingsError("The file is no JSON. Mend it first.")
    node.end = match.end()
    return node
