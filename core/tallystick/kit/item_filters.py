"""Filters of items, as LangGraph's stores have them: fields with values or operators."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tallystick.checkpoints import value_at
from tallystick.errors import InvalidInput

_OPERATORS = ("$eq", "$ne", "$gt", "$gte", "$lt", "$lte")
_ORDERED: tuple[Any, ...] = (str, (int, float))
"""Values of these are compared as they are, others as numbers."""


def check_filter(filter: Mapping[str, Any] | None) -> None:
    """Raise InvalidInput for what is no filter, and for an operator that there is not, at any
    depth.
    """
    if filter is None:
        return
    if not isinstance(filter, Mapping) or not all(isinstance(field, str) for field in filter):
        raise InvalidInput("`filter` takes a mapping of the names of fields.", argument="filter")
    for field, expected in filter.items():
        _check_operators(field, expected)


def _check_operators(field: str, expected: Any) -> None:
    if _has_operators(expected):
        unknown = [name for name in expected if name not in _OPERATORS]
        if unknown:
            raise InvalidInput(
                f"filter[{field!r}]: unknown operator {unknown[0]}. Use one of "
                f"{', '.join(_OPERATORS)}."
            )
    elif isinstance(expected, Mapping | list | tuple):
        for inner in expected.values() if isinstance(expected, Mapping) else expected:
            _check_operators(field, inner)


def _has_operators(value: Any) -> bool:
    return isinstance(value, Mapping) and any(
        isinstance(name, str) and name.startswith("$") for name in value
    )


def passes(value: Mapping[str, Any], filter: Mapping[str, Any] | None) -> bool:
    """Return True if each field of the filter fits the value."""
    return all(
        _fits(value_at(value, field), expected) for field, expected in (filter or {}).items()
    )


def _fits(value: Any, expected: Any) -> bool:
    """Return True if a value fits a filter: equal, field by field for a dict, or by its
    operators.
    """
    if _has_operators(expected):
        return all(_compares(value, operator, operand) for operator, operand in expected.items())
    if isinstance(expected, Mapping):
        return isinstance(value, Mapping) and all(
            _fits(value.get(name), inner) for name, inner in expected.items()
        )
    if isinstance(expected, list | tuple):
        same_length = isinstance(value, list | tuple) and len(value) == len(expected)
        return same_length and all(map(_fits, value, expected))
    return bool(value == expected)


def _compares(value: Any, operator: str, operand: Any) -> bool:
    if operator == "$eq":
        return bool(value == operand)
    if operator == "$ne":
        return bool(value != operand)
    number, limit = value, operand
    if not any(isinstance(value, kind) and isinstance(operand, kind) for kind in _ORDERED):
        try:
            number, limit = float(value), float(operand)
        except (TypeError, ValueError, OverflowError):
            return False
    return bool(
        {
            "$gt": number > limit,
            "$gte": number >= limit,
            "$lt": number < limit,
            "$lte": number <= limit,
        }[operator]
    )
