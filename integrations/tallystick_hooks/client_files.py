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

    begin: int
    """Where its key begins, or the value itself in a list."""
    start: int
    end: int = 0
    opening: str = ""
    """Of an object or a list: its bracket."""
    children: dict[Any, _Node] = field(default_factory=dict)
    """By key, or by number in a list."""


def json_with(text: str, path: tuple[str, ...], value: Any) -> str:
    """Return a JSON text with `value` at a path of keys. Raises SettingsError."""
    text = text if text.strip() else "{}\n"
    node = _object(text)
    for depth, key in enumerate(path):
        if node.opening != "{":
            raise SettingsError(f"{'.'.join(path[:depth])} is no object there. Edit it by hand.")
        if key not in node.children:
            for missing in reversed(path[depth + 1 :]):
                value = {missing: value}
            return _insert(text, node, f"{json.dumps(key)}: {_write(value, depth + 1)}", depth)
        node = node.children[key]
    return text[: node.start] + _write(value, len(path)) + text[node.end :]


def json_without(text: str, path: tuple[str, ...]) -> str:
    """Return a JSON text without what is at a path of keys; the same text where nothing is."""
    node = _at(text, path)
    return text if node is None else _cut(text, node)


def list_with(text: str, path: tuple[str, ...], item: Any) -> str:
    """Return a JSON text with an item at the end of the list at a path, or of a new one."""
    node = _at(text, path)
    if node is None:
        return json_with(text, path, [item])
    if node.opening != "[":
        raise SettingsError(f"{'.'.join(path)} is no list there. Edit it by hand.")
    return _insert(text, node, _write(item, len(path) + 1), len(path))


def list_without(text: str, path: tuple[str, ...], left: Callable[[Any], Any]) -> str:
    """Return a JSON text without parts of the items of the list at a path: `left` returns what is
    left of an item, None for nothing; without the list where it is empty then.
    """
    node = _at(text, path)
    for item in () if node is None or node.opening != "[" else node.children.values():
        try:
            value = json.loads(text[item.start : item.end])
        except ValueError:
            continue  # One with comments is a person's.
        rest = left(value)
        if rest is None and value is not None:
            is_last = node is not None and len(node.children) == 1
            text = json_without(text, path) if is_last else _cut(text, item)
        elif rest is not None and rest != value:
            text = text[: item.start] + _write(rest, len(path) + 1) + text[item.end :]
        else:
            continue
        return list_without(text, path, left)
    return text


def toml_with(text: str, table: str, values: dict[str, Any]) -> str:
    """Return a TOML text with a table, in place of one of its name. Raises SettingsError."""
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


def _insert(text: str, node: _Node, written: str, depth: int) -> str:
    """Insert a member or an item at the end of an object or a list."""
    line = f"\n{_INDENT * (depth + 1)}{written}"
    if node.children:
        end = max(child.end for child in node.children.values())
        return f"{text[:end]},{line}{text[end:]}"
    inside = text[: node.end - 1].rstrip()
    return f"{inside}{line}\n{_INDENT * depth}{text[node.end - 1 :]}"


def _cut(text: str, node: _Node) -> str:
    """Cut a member or an item, with the comma that belonged to it."""
    following = _blank(text, node.end)
    if text[following] == ",":
        rest = re.compile(r"[ \t]*\n?[ \t]*").match(text, following + 1)
        return text[: node.begin] + text[following + 1 if rest is None else rest.end() :]
    before, after = text[: node.begin].rstrip(), text[node.end :]
    if before.endswith(","):
        return before[:-1] + after
    return before + (after.lstrip(" \t\n") if before.endswith(("{", "[")) else after)


def _write(value: Any, depth: int) -> str:
    return json.dumps(value, indent=2, ensure_ascii=False).replace("\n", f"\n{_INDENT * depth}")


def _at(text: str, path: tuple[str, ...]) -> _Node | None:
    node: _Node | None = _object(text if text.strip() else "{}")
    for key in path:
        node = None if node is None or node.opening != "{" else node.children.get(key)
    return node


def _object(text: str) -> _Node:
    node = _read(text, 0)
    if node.opening != "{" or _blank(text, node.end) != len(text):
        raise SettingsError("The file is no JSON object. Mend it first.")
    return node


def _blank(text: str, place: int) -> int:
    match = _BLANK.match(text, place)
    return place if match is None else match.end()


def _read(text: str, place: int) -> _Node:
    """Read the value at a place, with comments and commas at the end. Raises SettingsError."""
    place = _blank(text, place)
    node = _Node(place, place, opening=text[place : place + 1])
    if node.opening not in ("{", "["):
        match = _STRING.match(text, place) or _ATOM.match(text, place)
        if match is None:
            raise SettingsError("The file is no JSON. Mend it first.")
        return _Node(place, place, match.end())
    closing = "}" if node.opening == "{" else "]"
    place = _blank(text, place + 1)
    while text[place : place + 1] != closing:
        begin, key = place, _STRING.match(text, place) if node.opening == "{" else None
        if node.opening == "{":
            place = -1 if key is None else _blank(text, key.end())
            if text[place : place + 1] != ":":
                raise SettingsError("The file is no JSON. Mend it first.")
            place += 1
        child = _read(text, place)
        child.begin = begin
        node.children[len(node.children) if key is None else json.loads(key.group())] = child
        place = _blank(text, child.end)
        if text[place : place + 1] == ",":
            place = _blank(text, place + 1)
        elif text[place : place + 1] != closing:
            raise SettingsError("The file is no JSON. Mend it first.")
    node.end = place + 1
    return node
