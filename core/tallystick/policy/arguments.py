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
from copy import copy
from dataclasses import fields, is_dataclass
from enum import Enum
from functools import lru_cache
from typing import Annotated, Any, Final

from pydantic import BaseModel, RootModel, SecretStr, StringConstraints, TypeAdapter
from pydantic_core import SchemaError, to_jsonable_python

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
    if isinstance(arguments, Mapping) and not all(isinstance(name, str) for name in arguments):
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
    """Return a value as JSON values: records and dataclasses by the names of their fields, other
    types of pydantic as it writes them. Raises TypeError or ValueError for one without such a form.
    """
    if isinstance(value, Enum):
        return json_value(value.value)
    if value is None or isinstance(value, str | bool | int | float):
        return value
    if isinstance(value, RootModel):
        return json_value(value.root)
    if isinstance(value, BaseModel) or (is_dataclass(value) and not isinstance(value, type)):
        return {name: json_value(inner) for name, inner in _fields_of(value).items()}
    if isinstance(value, Mapping):
        plain = {_key_of(key): json_value(inner) for key, inner in value.items()}
        if len(plain) != len(value):
            raise ValueError("a key comes twice")
        return plain
    if isinstance(value, list | tuple):
        return [json_value(inner) for inner in value]
    if isinstance(value, set | frozenset):
        return sorted(map(json_value, value), key=json_bytes)
    if isinstance(value, SecretStr):
        return value.get_secret_value()
    written = to_jsonable_python(value)
    if not isinstance(written, str | bool | int | float):
        raise TypeError(f"{type(value).__name__} is no JSON")
    return written


def _key_of(key: Any) -> str:
    name = json_value(key)
    if isinstance(name, bool) or not isinstance(name, str | int):
        raise TypeError("a key is no text")
    return str(name)


def _fields_of(value: Any) -> dict[str, Any]:
    if isinstance(value, BaseModel):
        return dict(value)
    return {each.name: getattr(value, each.name) for each in fields(value)}


def replace_texts(value: Any, cleaned: Json) -> Any:
    """Return a value in its own types, with the texts of its cleaned JSON form.

    Nothing is validated anew, which could make other values of it. Raises TypeError where a type
    that is no text, such as a path, would have to hold another one.
    """
    if value is None or type(value) in (str, bool, int, float):
        return cleaned
    if json_value(value) == cleaned:
        return value
    if isinstance(value, RootModel):
        return value.model_copy(update={"root": replace_texts(value.root, cleaned)})
    if isinstance(cleaned, dict) and isinstance(value, BaseModel):
        return value.model_copy(update=_replace_fields(_fields_of(value), cleaned))
    if isinstance(cleaned, dict) and is_dataclass(value):
        clone = copy(value)
        for name, inner in _replace_fields(_fields_of(value), cleaned).items():
            object.__setattr__(clone, name, inner)
        return clone
    if isinstance(cleaned, dict) and isinstance(value, Mapping):
        return _replace_fields(value, cleaned)
    if isinstance(cleaned, list) and type(value) in (list, tuple):
        return type(value)(map(replace_texts, value, cleaned))
    raise TypeError(f"a {type(value).__name__} holds no other text")


def _replace_fields(values: Mapping[Any, Any], cleaned: Mapping[str, Json]) -> dict[Any, Any]:
    """Return fields with cleaned values, in the same order; a key is cleaned too."""
    if len(values) != len(cleaned):
        raise TypeError("two keys cannot be told apart once they are cleaned")
    return {
        key if _key_of(key) == name else name: replace_texts(inner, text)
        for (key, inner), (name, text) in zip(values.items(), cleaned.items(), strict=True)
    }


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


def meets_condition(
    condition: ArgumentCondition, arguments: Any, *, restricts: bool, is_written: bool = False
) -> bool:
    """Return True if the values at the condition's path pass its test: any of them for a rule that
    restricts, every one for a rule that allows, which a missing value never passes.

    `restricts` is the answer where that cannot be told. With `is_written` these are the arguments
    as a model wrote them: what the tool makes of a missing value, or of one of another type than
    the condition names, cannot be told.
    """
    path = _path_of(condition.path)
    if arguments is UNREADABLE or path is None:
        return restricts
    try:
        values = list(_values_at(arguments, path, restricts=restricts))
        if is_written and any(_is_converted(condition, value) for value in values):
            return restricts
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


def _is_converted(condition: ArgumentCondition, value: Any) -> bool:
    """Return True if a tool may make another value of this one, which the condition is about."""
    if isinstance(value, list):
        return any(_is_converted(condition, inner) for inner in value)
    named = condition.one_of if condition.equals is None else (condition.equals,)
    return value is _MISSING or (bool(named) and _type_of(value) not in map(_type_of, named))


def _type_of(value: Any) -> type:
    return float if type(value) is int else type(value)


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
