"""Rules: which of them decides over an item, a call or a memory, and reading them from TOML.

A rule applies if each of its conditions is met. Among those that apply the highest priority
decides, deny wins ties, and the smallest id decides the rest. A fact of a call that nobody stated
meets the conditions of rules that restrict, and none of rules that allow.
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, cast, get_args

from pydantic import ValidationError

from tallystick.errors import InvalidScope, SettingsError, TallystickError
from tallystick.policy.arguments import condition_problem, meets_condition
from tallystick.records import (
    ItemKind,
    PolicyRule,
    RuledSubject,
    Scope,
    ScopeKind,
    Sensitivity,
    ToolClass,
)

ToolClassSource = ToolClass | Callable[[Any], ToolClass]
"""A class, or a function from the arguments of a call to its class."""

TOOL_CLASSES: tuple[ToolClass, ...] = get_args(ToolClass)

_UNKNOWN: ToolClass = "destructive"


class ToolClasses:
    """The declared classes of tools, by name."""

    def __init__(self, declared: Mapping[str, ToolClassSource] = MappingProxyType({})) -> None:
        """Raises SettingsError for a class that does not exist."""
        for name, source in declared.items():
            if not callable(source) and source not in TOOL_CLASSES:
                raise SettingsError(
                    f"tool_classes: {name!r} has the unknown class {source!r}. Use one of "
                    f"{', '.join(TOOL_CLASSES)}, or a function of the arguments."
                )
        self._declared = dict(declared)

    def class_of(self, name: str, arguments: Any) -> ToolClass:
        """Return the class of a call.

        A function that fails or answers with something else counts as destructive. It gets the
        arguments as JSON values.
        """
        source: Any = self._declared.get(name)
        if callable(source):
            try:
                source = source(arguments)
            except Exception:  # noqa: BLE001 - a class that cannot be told is the worst one
                return _UNKNOWN
        return cast(ToolClass, source) if source in TOOL_CLASSES else _UNKNOWN

    def class_of_schema(self, name: str) -> ToolClass:
        """Return the class of a tool that is only offered: where it depends on the arguments,
        the worst one.
        """
        source: Any = self._declared.get(name)
        return _UNKNOWN if source is None or callable(source) else source


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


@dataclass(frozen=True, slots=True)
class RuleSubject:
    """The item, call or memory that rules decide over. A field that is None or empty meets no
    condition on it.
    """

    applies_to: str = "context_item"
    """`context_item`, `tool_call`, `memory` or `model_call`; only rules for it apply."""
    agent: str | None = None
    task_type: str | None = None
    provider: str | None = None
    sensitivity: str | None = None
    tool_class: str | None = None
    claimed_class: str | None = None
    """The class that came with a call or schema: only rules that restrict go by it."""
    environment: str | None = None
    scope: Scope | None = None
    kind: str | None = None
    tags: frozenset[str] = frozenset()
    tool: str | None = None
    model: str | None = None
    arguments: Any = None
    """Of a tool call: JSON values, or `arguments.UNREADABLE`."""
    is_written: bool = False
    """True for arguments as a model wrote them, before the tool makes of them what it gets."""
    unstated: frozenset[str] = frozenset()
    """Fields above whose value nobody stated: a rule that restricts counts its condition as met,
    because the call could be what it is about.
    """


def applicable_rule(rules: Iterable[PolicyRule], subject: RuleSubject) -> PolicyRule | None:
    """Return the rule that decides over `subject`, or None if none applies. Pure; the order of
    `rules` does not matter.
    """
    return strongest_rule(rule for rule in rules if _applies(rule, subject))


def strongest_rule(rules: Iterable[PolicyRule]) -> PolicyRule | None:
    """Return the rule that wins among `rules`: highest priority, deny before others, then the
    smallest id.
    """
    return min(
        rules, key=lambda rule: (-rule.priority, rule.effect != "deny", rule.id), default=None
    )


def load_rules(path: str | Path) -> tuple[PolicyRule, ...]:
    """Return the rules of a TOML file, each a `[[rules]]` table with the fields of PolicyRule, in
    file order.

    Raises SettingsError naming the file, the rule and the field.
    """
    file = Path(path)
    tables = _tables(file)
    rules = tuple(_rule(file, number, table) for number, table in enumerate(tables, start=1))
    check_rules(rules, where=str(file))
    return rules


def _applies(rule: PolicyRule, subject: RuleSubject) -> bool:
    conditions = rule.conditions
    restricts = rule.effect != "allow"

    def meets(field: str, accepted: Sequence[str], value: str | None) -> bool:
        if not accepted:
            return True
        return restricts if field in subject.unstated else value in accepted

    return (
        rule.applies_to == subject.applies_to
        and meets("agent", conditions.agent, subject.agent)
        and meets("task_type", conditions.task_type, subject.task_type)
        and meets("provider", conditions.provider, subject.provider)
        and meets("sensitivity", conditions.sensitivity, subject.sensitivity)
        and (
            meets("tool_class", conditions.tool_class, subject.tool_class)
            or (restricts and subject.claimed_class in conditions.tool_class)
        )
        and meets("environment", conditions.environment, subject.environment)
        and meets("kind", conditions.kind, subject.kind)
        and meets("tool", conditions.tool, subject.tool)
        and meets("model", conditions.model, subject.model)
        and (not conditions.tag or not subject.tags.isdisjoint(conditions.tag))
        and (not conditions.scope or _in_scope(conditions.scope, subject.scope))
        and all(
            meets_condition(
                condition,
                subject.arguments,
                restricts=restricts,
                is_written=subject.is_written,
            )
            for condition in conditions.arguments
        )
    )


def _in_scope(accepted: Sequence[str], scope: Scope | None) -> bool:
    return scope is not None and (str(scope) in accepted or scope.kind in accepted)


def _tables(file: Path) -> list[Any]:
    try:
        data = tomllib.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise SettingsError(
            f"{file}: the rules cannot be read ({error.strerror or error})."
        ) from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise SettingsError(f"{file}: this is not valid TOML: {error}.") from error
    unknown = sorted(set(data) - {"rules"})
    if unknown:
        raise SettingsError(
            f"{file}: unknown table {unknown[0]!r}. Write each rule as a [[rules]] table."
        )
    tables = data.get("rules", [])
    if not isinstance(tables, list):
        raise SettingsError(
            f"{file}: `rules` must be a list. Write each rule as a [[rules]] table."
        )
    return tables


def _rule(file: Path, number: int, table: Any) -> PolicyRule:
    name = table.get("id") if isinstance(table, dict) else None
    where = f"{file}: rule {name!r}" if isinstance(name, str) else f"{file}: rule {number}"
    try:
        return PolicyRule.model_validate(table)
    except ValidationError as error:
        problem = error.errors(include_input=False, include_url=False, include_context=False)[0]
        field = ".".join(str(part) for part in problem["loc"]) or "rule"
        raise SettingsError(f"{where}: {field}: {problem['msg']}.") from error
