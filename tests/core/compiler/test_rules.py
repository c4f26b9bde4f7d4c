"""Which rule decides, and what a file of rules may say."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tallystick.errors import SettingsError
from tallystick.policy.rules import RuleSubject, applicable_rule, load_rules
from tallystick.records import PolicyConditions, PolicyEffect, PolicyRule, Scope


def rule(
    name: str,
    effect: PolicyEffect = "deny",
    priority: int = 0,
    conditions: PolicyConditions | None = None,
) -> PolicyRule:
    return PolicyRule(
        id=name,
        name=name,
        effect=effect,
        priority=priority,
        conditions=conditions or PolicyConditions(),
    )


def on(**conditions: tuple[str, ...]) -> PolicyRule:
    return rule("a", conditions=PolicyConditions.model_validate(conditions))


def test_the_highest_priority_wins_deny_wins_ties_and_the_id_settles_the_rest() -> None:
    low, allow, deny = rule("a"), rule("b", "allow", 5), rule("d", "deny", 5)
    twin = rule("c", "deny", 5)

    assert applicable_rule([low, allow], RuleSubject()) == allow
    assert applicable_rule([low, allow, deny], RuleSubject()) == deny
    assert applicable_rule([deny, twin, allow], RuleSubject()) == twin
    assert applicable_rule([], RuleSubject()) is None


@given(st.permutations([rule("a", "allow", 1), rule("b", "deny", 1), rule("c", "redact", 1)]))
def test_the_order_of_rules_is_nothing(rules: list[PolicyRule]) -> None:
    winner = applicable_rule(rules, RuleSubject())
    assert winner is not None
    assert winner.id == "b"


@pytest.mark.parametrize(
    ("condition", "meets", "misses"),
    [
        ({"agent": ("bot",)}, RuleSubject(agent="bot"), RuleSubject(agent="other")),
        ({"task_type": ("review",)}, RuleSubject(task_type="review"), RuleSubject()),
        ({"provider": ("one", "two")}, RuleSubject(provider="two"), RuleSubject(provider="three")),
        (
            {"sensitivity": ("secret",)},
            RuleSubject(sensitivity="secret"),
            RuleSubject(sensitivity="public"),
        ),
        (
            {"tool_class": ("network",)},
            RuleSubject(tool_class="network"),
            RuleSubject(tool_class="read"),
        ),
        (
            {"environment": ("prod",)},
            RuleSubject(environment="prod"),
            RuleSubject(environment="test"),
        ),
        ({"kind": ("file",)}, RuleSubject(kind="file"), RuleSubject(kind="memory")),
        (
            {"tag": ("red", "blue")},
            RuleSubject(tags=frozenset({"blue", "x"})),
            RuleSubject(tags=frozenset({"x"})),
        ),
    ],
)
def test_a_rule_applies_when_the_field_it_names_has_one_of_its_values(
    condition: dict[str, tuple[str, ...]], meets: RuleSubject, misses: RuleSubject
) -> None:
    only = on(**condition)
    assert applicable_rule([only], meets) == only
    assert applicable_rule([only], misses) is None


def test_every_condition_must_be_met() -> None:
    both = on(agent=("bot",), kind=("file",))
    assert applicable_rule([both], RuleSubject(agent="bot")) is None
    assert applicable_rule([both], RuleSubject(agent="bot", kind="file")) == both


def test_a_scope_matches_as_a_whole_or_by_its_bare_kind() -> None:
    apollo = RuleSubject(scope=Scope.parse("acme/project:apollo"))

    assert applicable_rule([on(scope=("acme/project:apollo",))], apollo)
    assert applicable_rule([on(scope=("project",))], apollo)
    assert applicable_rule([on(scope=("project:apollo",))], apollo) is None
    assert applicable_rule([on(scope=("project:*",))], apollo) is None
    assert applicable_rule([on(scope=("project",))], RuleSubject()) is None


def test_a_rule_for_something_else_is_not_asked() -> None:
    calls = PolicyRule(id="a", name="a", effect="deny", applies_to="tool_call")
    assert applicable_rule([calls], RuleSubject()) is None
    assert applicable_rule([calls], RuleSubject(applies_to="tool_call")) == calls


def test_rules_are_read_from_toml(tmp_path: Path) -> None:
    file = tmp_path / "rules.toml"
    file.write_text(
        """
        [[rules]]
        id = "no-secrets"
        name = "Secrets stay here"
        effect = "deny"
        priority = 10
        conditions = { sensitivity = ["secret"], scope = ["project", "private:ann"] }

        [[rules]]
        id = "receipts"
        name = "Writing leaves a receipt"
        effect = "require_receipt"
        applies_to = "tool_call"
        """
    )
    assert load_rules(file) == (
        PolicyRule(
            id="no-secrets",
            name="Secrets stay here",
            effect="deny",
            priority=10,
            conditions=PolicyConditions(sensitivity=("secret",), scope=("project", "private:ann")),
        ),
        PolicyRule(
            id="receipts",
            name="Writing leaves a receipt",
            effect="require_receipt",
            applies_to="tool_call",
        ),
    )


def test_an_empty_file_holds_no_rules(tmp_path: Path) -> None:
    file = tmp_path / "rules.toml"
    file.write_text("")
    assert load_rules(file) == ()


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("[[rules]\n", ["not valid TOML", "line 1"]),
        ("[[rule]]\nid = 'a'\n", ["unknown table 'rule'", "[[rules]]"]),
        ("rules = 3\n", ["must be a list"]),
        ("rules = [3]\n", ["rule 1"]),
        ("[[rules]]\nname = 'a'\neffect = 'deny'\n", ["rule 1", "id"]),
        ("[[rules]]\nid = 'a'\nname = 'a'\neffect = 'forbid'\n", ["rule 'a'", "effect"]),
        (
            "[[rules]]\nid = 'a'\nname = 'a'\neffect = 'deny'\ncolour = 'red'\n",
            ["rule 'a'", "colour"],
        ),
        (
            "[[rules]]\nid = 'a'\nname = 'a'\neffect = 'deny'\nconditions = { agent = 'bot' }\n",
            ["rule 'a'", "conditions.agent"],
        ),
        (
            "[[rules]]\nid = 'a'\nname = 'a'\neffect = 'deny'\nconditions = { sensitivity = "
            "['secrets'] }\n",
            ["rule 'a'", "conditions.sensitivity", "'secrets'"],
        ),
        (
            "[[rules]]\nid = 'a'\nname = 'a'\neffect = 'deny'\nconditions = { kind = ['fact'] }\n",
            ["rule 'a'", "conditions.kind", "'fact'"],
        ),
        (
            "[[rules]]\nid = 'a'\nname = 'a'\neffect = 'deny'\nconditions = { scope = "
            "['projects'] }\n",
            ["rule 'a'", "conditions.scope", "'projects'"],
        ),
        (
            "[[rules]]\nid = 'a'\nname = 'a'\neffect = 'deny'\n[[rules]]\nid = 'a'\nname = "
            "'b'\neffect = 'allow'\n",
            ["two rules", "'a'"],
        ),
    ],
)
def test_a_file_that_cannot_be_used_is_refused_by_file_rule_and_field(
    tmp_path: Path, text: str, named: list[str]
) -> None:
    file = tmp_path / "rules.toml"
    file.write_text(text)
    with pytest.raises(SettingsError) as refused:
        load_rules(file)
    assert [part for part in ["rules.toml", *named] if part not in str(refused.value)] == []


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"nowhere\.toml"):
        load_rules(tmp_path / "nowhere.toml")
