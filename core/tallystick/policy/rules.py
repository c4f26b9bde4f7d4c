"""Rules: which of them decides over an item, a call or a memory, and reading them from TOML.

A rule applies if each of its conditions is met. Among those that apply the highest priority
decides, deny wins ties, and the smallest id decides the rest. A fact of a call that nobody stated
meets the conditions of rules that restrict, and none of rules that allow.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from tallystick.errors import SettingsError
from tallystick.policy.arguments import meets_condition
from tallystick.policy.rule_checks import check_rules
from tallystick.records import PolicyRule, Scope


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
