"""Checks of rules as they are given: a rule that could never apply is refused.

A misspelt value or a condition on something that the subject does not have would never match, so
that a rule meant to deny would quietly allow.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, get_args

from tallystick.errors import InvalidScope, SettingsError, TallystickError
from tallystick.policy.arguments import condition_problem
from tallystick.policy.tool_classes import TOOL_CLASSES
from tallystick.records import ItemKind, PolicyRule, RuledSubject, Scope, ScopeKind, Sensitivity

CALLS: tuple[RuledSubject, ...] = ("tool_call", "model_call")
"""Subjects that are enforced where the agent acts, and not by a compile."""

_OF_ALL = frozenset({"agent", "task_type", "provider", "model", "sensitivity", "environment"})
_CONDITIONS: dict[RuledSubject, frozenset[str]] = {
    "context_item": _OF_ALL | {"scope", "kind", "tag", "tool_class"},
    "memory": _OF_ALL | {"scope", "kind", "tag"},
    "tool_call": _OF_ALL | {"scope", "tool", "tool_class", "arguments"},
    "model_call": _OF_ALL | {"scope"},
}
"""Conditions that can matter, by the subject of the rule."""


def check_rules(
    rules: Iterable[PolicyRule],
    *,
    error: type[TallystickError] = SettingsError,
    where: str = "rules",
) -> None:
    """Raise `error` for the first rule that could not do what it says, naming rule and field."""
    seen: set[str] = set()
    for rule in rules:
        if not isinstance(rule, PolicyRule):
            raise error(f"{where}: a {type(rule).__name__} is no PolicyRule.")
        problem = rule_problem(rule)
        if problem is None and rule.id in seen:
            raise error(f"{where}: two rules have the id {rule.id!r}. Give each rule its own id.")
        if problem is not None:
            raise error(f"{where}: rule {rule.id!r}: {problem}.")
        seen.add(rule.id)


def rule_problem(rule: PolicyRule) -> str | None:
    """Return the reason why a rule could not do what it says, or None."""
    conditions = rule.conditions
    possible = _CONDITIONS[rule.applies_to]
    for field in type(conditions).model_fields:
        values: Sequence[Any] = getattr(conditions, field)
        if values and field not in possible:
            return (
                f"conditions.{field}: a {rule.applies_to} has none, so that the rule would never "
                f"apply. It may depend on {', '.join(sorted(possible))}"
            )
        if any(isinstance(value, str) and not value.strip() for value in values):
            return f"conditions.{field}: an empty text matches nothing"
    for number, condition in enumerate(conditions.arguments):
        problem = condition_problem(condition)
        if problem is not None:
            return f"conditions.arguments.{number}: {problem}"
    kinds = ("memory",) if rule.applies_to == "memory" else get_args(ItemKind)
    unknown = _unknown("sensitivity", conditions.sensitivity, get_args(Sensitivity)) or _unknown(
        "kind", conditions.kind, kinds
    )
    if unknown is None:
        unknown = _unknown("tool_class", conditions.tool_class, TOOL_CLASSES)
    return unknown or _scope_problem(conditions.scope)


def _unknown(field: str, values: Sequence[str], allowed: Sequence[str]) -> str | None:
    for value in values:
        if value not in allowed:
            return f"conditions.{field}: unknown value {value!r}. Use one of {', '.join(allowed)}"
    return None


def _scope_problem(scopes: Sequence[str]) -> str | None:
    for text in scopes:
        if text in get_args(ScopeKind):
            continue
        try:
            Scope.parse(text)
        except InvalidScope as error:
            return f"conditions.scope: {str(error).rstrip('.')}"
    return None
