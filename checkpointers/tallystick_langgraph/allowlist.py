"""Classes that a type allows: itself, and those that its fields name, however deep."""

from __future__ import annotations

import dataclasses
import typing
from collections.abc import Iterable
from typing import Any

from pydantic import BaseModel
from typing_extensions import is_typeddict


def names_of(allow: Iterable[Any]) -> frozenset[tuple[str, ...]]:
    """Return (module, name) of every class that these types, or pairs of names, allow.

    A state schema (TypedDict, dataclass, pydantic model) allows the classes of its fields as well.
    """
    names: set[tuple[str, ...]] = set()
    visited: list[Any] = []
    for allowed in allow:
        if isinstance(allowed, tuple):
            names.add(allowed)
        else:
            _walk(allowed, names, visited)
    return frozenset(names)


def _walk(hint: Any, names: set[tuple[str, ...]], visited: list[Any]) -> None:
    # By identity: type hints need not be hashable, and equal ones may name different classes.
    if any(hint is other for other in visited):
        return
    visited.append(hint)
    for argument in typing.get_args(hint):
        _walk(argument, names, visited)
    if not isinstance(hint, type):
        return
    if hint.__module__ not in {"builtins", "typing"}:
        names.add((hint.__module__, hint.__name__))
    if is_typeddict(hint) or dataclasses.is_dataclass(hint) or issubclass(hint, BaseModel):
        for field_hint in _field_hints(hint):
            _walk(field_hint, names, visited)


def _field_hints(schema: type) -> list[Any]:
    try:
        return list(typing.get_type_hints(schema, include_extras=True).values())
    except (NameError, TypeError):
        # Names that cannot be resolved here, such as of a class inside a function: pydantic
        # resolved its own.
        fields = getattr(schema, "model_fields", {})
        return [field.annotation for field in fields.values()]
