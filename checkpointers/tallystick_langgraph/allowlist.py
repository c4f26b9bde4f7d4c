"""Which classes a type stands for: itself, and those that its fields name, however deep."""

from __future__ import annotations

import dataclasses
import typing
from collections.abc import Iterable
from typing import Any

from pydantic import BaseModel
from typing_extensions import is_typeddict

__all__ = ["names_of"]


def names_of(allow: Iterable[Any]) -> frozenset[tuple[str, ...]]:
    """(module, name) of every class that these types, or pairs of names, stand for.

    A state schema (TypedDict, dataclass, pydantic model) stands for the classes of its fields as
    well.
    """
    found: set[tuple[str, ...]] = set()
    seen: list[Any] = []
    for one in allow:
        if isinstance(one, tuple):
            found.add(one)
        else:
            _walk(one, found, seen)
    return frozenset(found)


def _walk(one: Any, found: set[tuple[str, ...]], seen: list[Any]) -> None:
    if any(one is other for other in seen):
        return
    seen.append(one)
    for argument in typing.get_args(one):
        _walk(argument, found, seen)
    if not isinstance(one, type):
        return
    if one.__module__ not in {"builtins", "typing"}:
        found.add((one.__module__, one.__name__))
    if is_typeddict(one) or dataclasses.is_dataclass(one) or issubclass(one, BaseModel):
        for hint in _hints(one):
            _walk(hint, found, seen)


def _hints(one: type) -> list[Any]:
    try:
        return list(typing.get_type_hints(one, include_extras=True).values())
    except (NameError, TypeError):
        # Names that cannot be resolved here, such as of a class inside a function: pydantic
        # resolved its own.
        fields = getattr(one, "model_fields", {})
        return [field.annotation for field in fields.values()]
