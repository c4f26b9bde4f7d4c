"""Rules over tool calls see the arguments as JSON, whatever form they came in, and fail closed."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import datetime
from enum import Enum
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from pydantic import BaseModel, Field, RootModel, SecretStr

from tallystick.errors import InvalidRecord, SettingsError
from tallystick.policy.arguments import (
    UNREADABLE,
    condition_problem,
    json_arguments,
    json_value,
    meets_condition,
    replace_texts,
)
from tallystick.policy.rules import RuleSubject, ToolClasses, applicable_rule, check_rules
from tallystick.records import ArgumentCondition, PolicyConditions, PolicyRule

KEY = "sk-" + "a1B2c3D4" * 5
ARGUMENTS = {
    "command": "rm -rf /",
    "files": [{"name": "a.txt", "mode": "r"}, {"name": "b.env"}],
    "words": ["\nrm", "x"],
    "nothing": [],
    "nested": {"shell": [["rm"], "ls"]},
    "a.b": {"n": 3},
    "flag": True,
    "none": None,
}


@pytest.mark.parametrize(
    ("condition", "restricts", "allows"),
    [
        ({"path": "$.command", "equals": "rm -rf /"}, True, True),
        ({"path": "$.command", "equals": "rm"}, False, False),
        ({"path": "$.command", "matches": r"\brm\b"}, True, True),
        ({"path": "$.command", "matches": r"^ls"}, False, False),
        ({"path": "$.command", "contains": "-rf"}, True, True),
        ({"path": "$.command[*]", "contains": "-rf"}, True, False),
        ({"path": "$.files[0].name", "one_of": ["a.txt"]}, True, True),
        ({"path": "$.files[1].name", "one_of": ["a.txt"]}, False, False),
        ({"path": "$.files[7].name", "equals": "a.txt"}, False, False),
        ({"path": "$.files[*].name", "matches": r"\.env$"}, True, False),
        ({"path": "$.files[*].name", "matches": r"\.(env|txt)$"}, True, True),
        ({"path": "$.files[*].mode", "equals": "r"}, True, False),
        ({"path": "$.files[*].size", "equals": 1}, False, False),
        ({"path": "$.files", "contains": "b.env"}, True, False),
        ({"path": "$.files", "matches": r"^\.?[ab]\."}, True, False),
        ({"path": "$.words", "matches": r"\brm\b"}, True, False),
        ({"path": "$.words", "matches": r"^\s?[a-z]+$"}, True, True),
        ({"path": "$.words", "contains": "rm"}, True, False),
        ({"path": "$.words", "equals": "x"}, True, False),
        ({"path": "$.words", "equals": ["\nrm", "x"]}, True, True),
        ({"path": "$.words", "one_of": ["x", "\nrm"]}, True, True),
        ({"path": "$.nothing", "matches": ""}, False, False),
        ({"path": "$.nothing[*]", "matches": ""}, False, False),
        ({"path": "$.nested", "matches": r"^rm$"}, True, False),
        ({"path": "$['a.b'].n", "equals": 3}, True, True),
        ({"path": "$['a.b'].n", "equals": 3.0}, True, True),
        ({"path": "$.flag", "equals": 1}, False, False),
        ({"path": "$.flag", "equals": True}, True, True),
        ({"path": "$.none", "one_of": [None]}, True, True),
        ({"path": "$.*", "equals": True}, True, False),
        ({"path": "$", "contains": "b.env"}, True, True),
        ({"path": "$", "matches": r"\brm$"}, True, False),
        ({"path": "$", "matches": r"^command$"}, True, False),
        ({"path": "$.absent", "contains": "x"}, False, False),
    ],
)
def test_a_condition_is_met_by_any_value_to_restrict_and_by_every_value_to_allow(
    condition: dict[str, Any], restricts: bool, allows: bool
) -> None:
    for arguments in (ARGUMENTS, json_arguments(ARGUMENTS)):
        loaded = ArgumentCondition.load(condition)
        assert condition_problem(loaded) is None
        assert meets_condition(loaded, arguments, restricts=True) is restricts
        assert meets_condition(loaded, arguments, restricts=False) is allows


@pytest.mark.parametrize(
    ("written", "restricts"),
    [
        ({"n": 13}, True),
        ({"n": 5}, False),
        ({"n": 5.0}, False),
        ({"n": "13"}, True),
        ({"n": True}, True),
        ({"n": [5, "13"]}, True),
        ({"n": [5]}, False),
        ({}, True),
    ],
)
def test_what_a_tool_makes_of_a_written_value_cannot_be_told(written: Any, restricts: bool) -> None:
    condition = ArgumentCondition(path="$.n", one_of=(13, 666))
    assert meets_condition(condition, written, restricts=True, is_written=True) is restricts
    allows = meets_condition(condition, written, restricts=False, is_written=True)
    assert allows is (written == {"n": 13})


def test_arguments_are_read_from_text_records_and_tuples() -> None:
    class Call(BaseModel):
        command: str

    for given in ('{"command": "ls"}', {"command": "ls"}, Call(command="ls")):
        assert json_arguments(given) == {"command": "ls"}
    assert json_arguments({"names": ("a", "b")}) == {"names": ["a", "b"]}
    unreadable: list[Any] = [
        "rm -rf /",
        '{"command": "rm',
        '{"command": "ls", "command": "rm"}',
        {"x": object()},
        {1: "x"},
        {"x": {1: "x", "1": "y"}},
        {"x": {(1,): "x"}},
    ]
    for arguments in unreadable:
        assert json_arguments(arguments) is UNREADABLE


@pytest.mark.parametrize("arguments", [UNREADABLE, {"c": "x" * 100_001}, {"c": "\ud800"}])
def test_what_cannot_be_tested_meets_rules_that_restrict_and_none_that_allow(
    arguments: Any,
) -> None:
    condition = ArgumentCondition(path="$.c", matches="^rm$")
    assert meets_condition(condition, arguments, restricts=True)
    assert not meets_condition(condition, arguments, restricts=False)

    rules = {
        effect: PolicyRule.load(
            {
                "id": effect,
                "name": effect,
                "effect": effect,
                "applies_to": "tool_call",
                "conditions": {"arguments": [condition]},
            }
        )
        for effect in ("allow", "deny", "redact", "require_approval", "require_receipt")
    }
    subject = RuleSubject(applies_to="tool_call", tool="shell", arguments=arguments)
    met = {effect for effect, rule in rules.items() if applicable_rule([rule], subject)}
    assert met == set(rules) - {"allow"}


def test_a_fact_that_nobody_stated_meets_rules_that_restrict_and_none_that_allow() -> None:
    conditions = PolicyConditions(environment=("production",))
    deny = PolicyRule(
        id="d", name="d", effect="deny", applies_to="tool_call", conditions=conditions
    )
    allow = deny.replace(id="a", effect="allow")
    silent = RuleSubject(applies_to="tool_call", unstated=frozenset({"environment"}))
    assert applicable_rule([deny], silent) == deny
    assert applicable_rule([allow], silent) is None
    assert applicable_rule([deny], RuleSubject(applies_to="tool_call", environment="test")) is None


def test_a_regular_expression_takes_time_in_proportion_to_the_text() -> None:
    """Where a backtracking engine would need longer than the universe."""
    condition = ArgumentCondition(path="$.c", matches="^(a+)+$")
    assert not meets_condition(condition, {"c": "a" * 50_000 + "!"}, restricts=False)


@pytest.mark.parametrize(
    ("condition", "problem"),
    [
        ({"path": "command", "equals": 1}, "is no path"),
        ({"path": "$command", "equals": 1}, "is no path"),
        ({"path": "$.files[x]", "equals": 1}, "is no path"),
        ({"path": "$.a..b", "equals": 1}, "is no path"),
        ({"path": "$.a", "matches": "("}, "is no regular expression"),
        ({"path": "$.a", "matches": "(?=a)"}, "no look-around"),
    ],
)
def test_a_condition_that_cannot_be_used_is_refused_with_its_rule(
    condition: dict[str, Any], problem: str
) -> None:
    rule = {
        "id": "r",
        "name": "r",
        "effect": "deny",
        "applies_to": "tool_call",
        "conditions": {"arguments": [condition]},
    }
    with pytest.raises(SettingsError, match=problem) as refused:
        check_rules([PolicyRule.load(rule)])
    assert "rule 'r': conditions.arguments.0" in str(refused.value)


@pytest.mark.parametrize(
    "condition",
    [
        {"path": "$.a"},
        {"path": "$.a", "equals": 1, "contains": "x"},
        {"path": "$.a", "contains": ""},
        {"path": "$.a", "like": "x"},
    ],
)
def test_a_condition_has_exactly_one_test(condition: dict[str, Any]) -> None:
    with pytest.raises(InvalidRecord):
        ArgumentCondition.load(condition)


@pytest.mark.parametrize(
    ("applies_to", "conditions", "problem"),
    [
        ("context_item", {"tool": ["shell"]}, "conditions.tool: a context_item has none"),
        ("context_item", {"arguments": [{"path": "$", "equals": 1}]}, "conditions.arguments"),
        ("memory", {"tool_class": ["write"]}, "conditions.tool_class: a memory has none"),
        ("memory", {"kind": ["file"]}, "unknown value 'file'. Use one of memory"),
        ("tool_call", {"kind": ["memory"]}, "conditions.kind: a tool_call has none"),
        ("tool_call", {"tag": ["red"]}, "conditions.tag: a tool_call has none"),
        ("tool_call", {"tool_class": ["erasing"]}, "unknown value 'erasing'"),
        ("context_item", {"tool_class": ["read"]}, "unknown value 'read'"),
        ("tool_call", {"tool": [""]}, "an empty text matches nothing"),
        ("model_call", {"tool": ["shell"]}, "conditions.tool: a model_call has none"),
        ("model_call", {"sensitivity": ["secrets"]}, "unknown value 'secrets'"),
        ("model_call", {"scope": ["projects"]}, "conditions.scope"),
    ],
)
def test_a_rule_that_could_never_apply_is_refused(
    applies_to: Any, conditions: dict[str, Any], problem: str
) -> None:
    rule = {"id": "r", "name": "r", "effect": "deny", "applies_to": applies_to}
    with pytest.raises(SettingsError) as refused:
        check_rules([PolicyRule.load({**rule, "conditions": conditions})])
    assert problem in str(refused.value)


def test_a_rule_without_the_new_conditions_has_the_json_that_digests_were_taken_of() -> None:
    rule = PolicyRule(id="r", name="r", effect="deny")
    conditions = rule.dump()["conditions"]
    assert isinstance(conditions, dict)
    assert sorted(conditions) == [
        "agent",
        "environment",
        "kind",
        "provider",
        "scope",
        "sensitivity",
        "tag",
        "task_type",
        "tool_class",
    ]
    ruled = rule.replace(
        applies_to="tool_call",
        conditions=PolicyConditions(
            tool=("shell",), arguments=(ArgumentCondition(path="$.c", matches="rm"),)
        ),
    )
    assert PolicyRule.loads(ruled.dumps()) == ruled
    assert PolicyRule.load(ruled.dump(defaults=False)) == ruled


def test_a_class_is_declared_or_computed_and_unknown_ones_are_destructive() -> None:
    def of_query(arguments: Any) -> Any:
        return "read_only" if arguments["sql"].startswith("select") else "write"

    def of_odd(_: Any) -> Any:
        return "harmless"

    classes = ToolClasses({"look": "read_only", "sql": of_query, "odd": of_odd})
    assert classes.class_of("look", None) == "read_only"
    assert classes.class_of("sql", {"sql": "select 1"}) == "read_only"
    assert classes.class_of("sql", {"sql": "drop"}) == "write"
    assert classes.class_of("sql", None) == "destructive"
    assert classes.class_of("odd", None) == "destructive"
    assert classes.class_of("other", None) == "destructive"
    schemas = {name: classes.class_of_schema(name) for name in ("look", "sql", "other")}
    assert schemas == {"look": "read_only", "sql": "destructive", "other": "destructive"}
    with pytest.raises(SettingsError, match="unknown class 'harmless'"):
        ToolClasses({"odd": "harmless"})  # type: ignore[dict-item]


class Mode(Enum):
    READ = "r"


class Target(BaseModel):
    place: str = Field(alias="path")
    mode: Mode = Mode.READ
    inner: RootModel[list[str]] = RootModel[list[str]]([KEY])


@dataclass(frozen=True)
class Note:
    text: str
    at: datetime = datetime(2026, 1, 1)


def test_typed_arguments_are_read_by_the_names_of_their_fields() -> None:
    typed = {
        "target": Target(path="/a"),
        "notes": (Note("x"),),
        "by": {1: UUID(int=1)},
        "tags": {"b", "a"},
        "key": SecretStr(KEY),
        "place": Path("a/b"),
    }
    assert json_arguments(typed) == {
        "target": {"place": "/a", "mode": "r", "inner": [KEY]},
        "notes": [{"text": "x", "at": "2026-01-01T00:00:00"}],
        "by": {"1": "00000000-0000-0000-0000-000000000001"},
        "tags": ["a", "b"],
        "key": KEY,
        "place": "a/b",
    }


def test_cleaned_texts_go_into_the_types_that_the_arguments_have() -> None:
    typed = {"target": Target(path=KEY), "notes": (Note(KEY), 1), "by": {1: KEY}, KEY: Mode.READ}
    assert replace_texts(typed, _cleaned(json_arguments(typed))) == {
        "target": Target(path="…", inner=RootModel[list[str]](["…"])),
        "notes": (Note("…"), 1),
        "by": {1: "…"},
        "…": Mode.READ,
    }
    for stubborn in (Path(KEY), {KEY}, SecretStr(KEY)):
        with pytest.raises(TypeError):
            replace_texts(stubborn, _cleaned(json_value(stubborn)))


def _cleaned(value: Any) -> Any:
    return json.loads(json.dumps(value).replace(KEY, "…"))
