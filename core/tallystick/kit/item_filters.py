"""Filters of items, as LangGraph's stores have them: fields with values or operators."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tallystick.checkpoints import value_at
from tallystick.errors import InvalidInput

_OPERATORS = ("$eq", "$ne", "$gt", "$gte", "$lt", "$lte")


def check_filter(filter: Mapping[str, Any] | None) -> None:
    """Raise InvalidInput for an operator that there is not."""
    for field, value in (filter or {}).items():
        unknown = (
            [name for name in value if name.startswith("$") and name not in _OPERATORS]
            if _has_operators(value)
            else []
        )
        if unknown:
            raise InvalidInput(
                f"filter[{field!r}]: unknown operator {unknown[0]}. Use one of "
                f"{', '.join(_OPERATORS)}."
            )


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
    if isinstance(value, str) and isinstance(operand, str):
        number: Any = value
        limit: Any = operand
    else:
        try:
            number, limit = float(value), float(operand)
        except (TypeError, ValueError):
            return False
    return bool(
        {
            "$gt": number > limit,
            "$gte": number >= limit,
            "$lt": number < limit,
            "$lte": number <= limit,
        }[operator]
    )
