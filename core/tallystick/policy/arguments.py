"""Arguments of tool calls: read as JSON, and tested by the conditions of rules.

Regular expressions run on the engine that pydantic brings, which takes time in proportion to the
text and has no look-around and no back-references, so that no argument can stall a check. What
cannot be tested (text that is no JSON, a value that is too long) meets the conditions of rules that
restrict, and none of rules that allow.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from typing import Annotated, Any, Final

from pydantic import BaseModel, StringConstraints, TypeAdapter
from pydantic_core import SchemaError

from tallystick.errors import InvalidInput
from tallystick.records import ArgumentCondition, Json, json_bytes

_LONGEST_TEXT = 100_000
"""Characters of a value up to which a regular expression is tried."""


class _Unreadable:
    """Arguments that are no JSON."""

    def __repr__(self) -> str:
        return "UNREADABLE"


UNREADABLE: Final = _Unreadable()
"""Stands for arguments that are no JSON, such as text that a model left unfinished."""

_MISSING: Final = object()
"""Stands for a value that is not there."""

_SEGMENT = re.compile(
    r"\.(?P<name>[^.\[\]*]+)|\[(?P<index>\d+)\]|\['(?P<quoted>[^']*)'\]|(?P<every>\[\*\]|\.\*)"
)
_Path = tuple[str | int | None, ...]
"""Names of keys, positions in lists, and None for every value."""


def json_arguments(arguments: Any) -> Any:
    """Return the arguments of a call as JSON values: a text is parsed, records and tuples become
    objects and lists. UNREADABLE where that is not possible or a key comes twice; None stays None.
    """
    if isinstance(arguments, str):
        try:
            return json.loads(arguments, object_pairs_hook=_unambiguous)
        except (ValueError, RecursionError):
            return UNREADABLE
    try:
        value = json_value(arguments)
        json_bytes(value)
    except (InvalidInput, TypeError, ValueError, RecursionError):
        return UNREADABLE
    return value


def _unambiguous(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return an object. Raises ValueError where a key comes twice: tools differ in which counts."""
    fields = dict(pairs)
    if len(fields) != len(pairs):
        raise ValueError("a key comes twice")
    return fields


def json_value(value: Any) -> Json:
    """Return a value as JSON values. Raises TypeError for one that has no such form."""
    if value is None or isinstance(value, str | bool | int | float):
        return value
    if isinstance(value, BaseModel):
        plain: Json = value.model_dump(mode="json")
        return plain
    if isinstance(value, Mapping):
        if not all(isinstance(key, str) for key in value):
            raise TypeError("a key is no text")
        return {key: json_value(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [json_value(inner) for inner in value]
    raise TypeError(f"{type(value).__name__} is no JSON")


def condition_problem(condition: ArgumentCondition) -> str | None:
    """Return the reason why a condition cannot be used, or None."""
    if _path_of(condition.path) is None:
        return (
            f"{condition.path!r} is no path. Write it like $.command, $.files[0].name, "
            "$.files[*].name or $['a.b']"
        )
    if condition.matches is not None:
        try:
            _found_in(condition.matches)
        except SchemaError as error:
            text = " ".join(str(error).split())
            return (
                f"{condition.matches!r} is no regular expression of this kind, which has no "
                f"look-around and no back-references ({text[:200]})"
            )
    return None


def meets_condition(condition: ArgumentCondition, arguments: Any, *, restricts: bool) -> bool:
    """Return True if the values at the condition's path pass its test: any of them for a rule that
    restricts, every one for a rule that allows, which a missing value never passes.

    `restricts` is the answer where that cannot be told.
    """
    path = _path_of(condition.path)
    if arguments is UNREADABLE or path is None:
        return restricts
    values = _values_at(arguments, path, restricts=restricts)
    try:
        return _holds(condition, values, restricts=restricts)
    except RecursionError:
        return restricts


def _holds(condition: ArgumentCondition, values: Iterable[Any], *, restricts: bool) -> bool:
    passes = [_passes(condition, value, restricts=restricts) for value in values]
    return any(passes) if restricts else bool(passes) and all(passes)


def _passes(condition: ArgumentCondition, value: Any, *, restricts: bool) -> bool:
    """Return True if a value passes; a list passes as a whole, or by its values."""
    if value is _MISSING:
        return False
    if condition.equals is not None and _equal(condition.equals, value):
        return True
    if any(_equal(accepted, value) for accepted in condition.one_of):
        return True
    if isinstance(value, list):
        return _holds(condition, value, restricts=restricts)
    if condition.contains is None and condition.matches is None:
        return False
    if restricts and isinstance(value, dict):
        return any(
            _is_in_text(condition, text, restricts) for text in (_text_of(value), *_texts_in(value))
        )
    return _is_in_text(condition, _text_of(value), restricts)


def _text_of(value: Json) -> str:
    return value if isinstance(value, str) else json_bytes(value).decode()


def _texts_in(value: Json) -> Iterator[str]:
    """Yield the keys and values in an object or list, each as it is, and not as escaped JSON."""
    if isinstance(value, dict):
        yield from value
    if isinstance(value, dict | list):
        for inner in value.values() if isinstance(value, dict) else value:
            yield from _texts_in(inner)
    else:
        yield _text_of(value)


def _is_in_text(condition: ArgumentCondition, text: str, restricts: bool) -> bool:
    if condition.contains is not None:
        return condition.contains in text
    if len(text) > _LONGEST_TEXT:
        return restricts
    try:
        text.encode()
    except UnicodeEncodeError:  # half a character, which the engine does not read
        return restricts
    return bool(_found_in(str(condition.matches))(text))


def _equal(accepted: Json, value: Json) -> bool:
    # Python finds True equal to 1. JSON's 1 and 1.0 are one number to most tools.
    if isinstance(accepted, bool) or isinstance(value, bool):
        return accepted is value
    if isinstance(accepted, int | float) and isinstance(value, int | float):
        return accepted == value
    return json_bytes(accepted) == json_bytes(value)


def _values_at(value: Any, path: _Path, *, restricts: bool) -> Iterator[Any]:
    """Yield the values at a path, and `_MISSING` wherever it ends before.

    For a rule that restricts, one value stands for a list of itself: tools take either.
    """
    if not path:
        yield value
        return
    segment, rest = path[0], path[1:]
    inner: Iterable[Any] = (_MISSING,)
    if segment is None:
        if isinstance(value, dict | list):
            inner = value.values() if isinstance(value, dict) else value
        elif restricts:
            inner = (value,)
    elif isinstance(segment, str):
        if isinstance(value, dict) and segment in value:
            inner = (value[segment],)
    elif isinstance(value, list) and segment < len(value):
        inner = (value[segment],)
    for each in inner:
        if each is _MISSING:
            yield each
        else:
            yield from _values_at(each, rest, restricts=restricts)


@lru_cache(maxsize=1_024)
def _path_of(text: str) -> _Path | None:
    if not text.startswith("$"):
        return None
    segments: list[str | int | None] = []
    place = 1
    while place < len(text):
        segment = _SEGMENT.match(text, place)
        if segment is None:
            return None
        name = segment["name"] if segment["name"] is not None else segment["quoted"]
        if segment["every"] is not None:
            segments.append(None)
        elif segment["index"] is not None:
            segments.append(int(segment["index"]))
        else:
            segments.append(name)
        place = segment.end()
    return tuple(segments)


@lru_cache(maxsize=1_024)
def _found_in(pattern: str) -> Any:
    return TypeAdapter(
        Annotated[str, StringConstraints(pattern=pattern)]
    ).validator.isinstance_python
