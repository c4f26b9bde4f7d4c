"""Rules over calls bite: each effect, at the check that every enforcing piece goes through."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import FrozenInstanceError
from pathlib import Path
from typing import Any

import pytest

from tallystick import Actor, PolicyRule, Tally
from tallystick.errors import ActionDenied, ApprovalRequired, SettingsError
from tallystick.kit import (
    ToolCall,
    claim_enforcement,
    decide_as_person,
    enforcing,
    has_rules,
    is_enforced,
    refuse_unenforced,
    refuse_unenforced_model_call,
    register_enforcer,
    release_enforcement,
)
from tallystick.records import ArgumentCondition, Finding, ToolSpec
from tallystick.settings import Settings
from tallystick.storage.rows import journal
from tallystick.tally import BoundTally
from tallystick.tally.services import services_of

OpenTally = Callable[..., Tally]
BOT = Actor(user="anna", agent="bot")
KEY = "sk-" + "a1B2c3D4" * 5


def rule(effect: str, applies_to: str = "tool_call", **conditions: Any) -> PolicyRule:
    name = f"{effect}-{applies_to}"
    return PolicyRule.load(
        {
            "id": name,
            "name": name,
            "effect": effect,
            "applies_to": applies_to,
            "conditions": conditions,
        }
    )


NO_RM = rule(
    "deny",
    tool=("shell",),
    arguments=(ArgumentCondition(path="$.command", matches=r"\brm\b"),),
)
NO_TOOLS = rule("deny", "context_item", kind=("tool_schema",)).replace(id="no-tools")


def checks_of(bound: BoundTally, run_id: str) -> list[dict[str, Any]]:
    """The policy checks of a run, as receipts have them."""
    return [
        dict(entry.summary)
        for step in bound.recordings.steps(run_id)
        for entry in bound.recordings.entries(step.id)
        if entry.kind == "policy_check"
    ]


@pytest.mark.parametrize("arguments", [{"command": "rm -rf /"}, '{"command": "rm -rf /"}', "rm {"])
def test_a_denied_call_is_stopped_before_it_runs(open_tally: OpenTally, arguments: Any) -> None:
    with open_tally(rules=[NO_RM]) as tally:
        bot = tally.bind(BOT)
        with pytest.raises(ActionDenied) as denied:
            bot.check_tool_call("shell", arguments, piece="test")
        assert denied.value.facts() == {
            "action": "tool_call",
            "subject": "shell",
            "rule_id": "deny-tool_call",
            "reason": "denied_by_rule",
            "approval_id": None,
        }
        with services_of(tally).store.database.read() as connection:
            [entry] = [
                entry for entry in journal.all_entries(connection) if entry.event == "call.denied"
            ]
        assert (entry.reason, entry.details["rule"]) == ("denied_by_rule", "deny-tool_call")
        assert bot.check_tool_call("shell", {"command": "ls"}, piece="test").arguments == {
            "command": "ls"
        }


@pytest.mark.parametrize("rules", [(), (NO_RM,), (rule("redact"),)])
def test_what_a_check_returns_is_changed_by_nobody(open_tally: OpenTally, rules: Any) -> None:
    with open_tally(rules=rules) as tally:
        given = {"command": "ls", "files": [{"name": "a"}]}
        check = tally.bind(BOT).check_tool_call("shell", given)
        given["command"] = "rm -rf /"
        given["files"][0]["name"] = "/etc/shadow"  # type: ignore[index]
        check.arguments["files"].append({"name": "/etc/passwd"})

        assert check.arguments == {"command": "ls", "files": [{"name": "a"}]}
        with pytest.raises(FrozenInstanceError):
            check.effect = "allow"  # type: ignore[misc]


def test_each_check_is_an_entry_of_its_step_or_a_step_of_the_run(open_tally: OpenTally) -> None:
    with open_tally(rules=[NO_RM], tool_classes={"shell": "write"}) as tally:
        bot = tally.bind(BOT)
        with bot.run("agent") as run:
            with run.step("tool_call", name="shell"):
                bot.check_tool_call("shell", {"command": "ls"}, tool_call_id="c1")
            with pytest.raises(ActionDenied):
                bot.check_tool_call("shell", {"command": "rm x"}, tool_call_id="c2")
        assert [
            (step.step_kind, step.name, step.status) for step in bot.recordings.steps(run.id)
        ] == [("tool_call", "shell", "completed"), ("policy_check", "shell", "failed")]
        allowed, denied = checks_of(bot, run.id)
        assert allowed == {
            "applies_to": "tool_call",
            "tool": "shell",
            "tool_call_id": "c1",
            "tool_class": "write",
            "rule": None,
            "effect": None,
            "outcome": "allowed",
        }
        assert denied == {
            **allowed,
            "tool_call_id": "c2",
            "rule": "deny-tool_call",
            "effect": "deny",
            "outcome": "denied",
            "reason": "denied_by_rule",
        }
        assert bot.recordings.verify(run.id).ok


def test_without_rules_over_calls_a_check_writes_nothing(open_tally: OpenTally) -> None:
    with open_tally(rules=[rule("deny", "context_item")]) as tally:
        bot = tally.bind(BOT)
        assert not has_rules(tally, "tool_call")
        with bot.run("agent") as run:
            given = object()
            assert bot.check_tool_call("shell", given).arguments is given
            assert not bot.check_model_call(model="m").redacts
        assert bot.recordings.steps(run.id) == []


def test_a_class_decides_and_an_undeclared_tool_is_destructive(open_sqlite: OpenTally) -> None:
    def of_query(arguments: Any) -> Any:
        return "read_only" if arguments["sql"].startswith("select") else "destructive"

    rules = [rule("deny", tool_class=("destructive",))]
    classes = {"look": "read_only", "sql": of_query}
    with open_sqlite(rules=rules, tool_classes=classes) as tally:
        bot = tally.bind(BOT)
        bot.check_tool_call("look")
        bot.check_tool_call("sql", {"sql": "select 1"})
        for name, arguments, stated in (
            ("sql", {"sql": "drop table x"}, "read_only"),
            ("sql", {}, None),
            ("other", {}, None),
            ("other", {}, "read_only"),
            ("look", {}, "destructive"),
            ("other", {}, "erasing"),
        ):
            with pytest.raises(ActionDenied):
                bot.check_tool_call(name, arguments, tool_class=stated)


def test_declared_classes_decide_over_schemas_and_a_claim_may_only_restrict(
    open_sqlite: OpenTally,
) -> None:
    def offered(effect: str, *classes: str) -> list[str]:
        ruling = rule(effect, "context_item", kind=("tool_schema",), tool_class=classes)
        rules = [ruling] if effect == "deny" else [ruling.replace(priority=1), NO_TOOLS]
        with open_sqlite(rules=rules, tool_classes=declared) as tally:
            compiled = tally.bind(BOT).compile([], budget=1_000, tools=specs)
            return [item.id.removeprefix("tool:") for item in compiled.selected_items]

    declared = {"look": "read_only", "sql": lambda arguments: "read_only"}
    specs = [
        ToolSpec(name="look", tool_class="network"),
        ToolSpec(name="sql", tool_class="read_only"),
        ToolSpec(name="unknown", tool_class="read_only"),
    ]
    assert offered("deny", "destructive") == ["look"]
    assert offered("deny", "network") == ["sql", "unknown"]
    assert offered("allow", "read_only") == ["look"]


@pytest.mark.parametrize(
    ("conditions", "stated"),
    [
        ({"agent": ("bot",)}, {}),
        ({"scope": ("private",)}, {}),
        ({"provider": ("openai",)}, {"provider": "openai"}),
        ({"model": ("gpt",)}, {"model": "gpt"}),
        ({"task_type": ("repair",)}, {"task_type": "repair"}),
        ({"environment": ("production",)}, {"environment": "production"}),
        ({"sensitivity": ("secret",)}, {"sensitivity": "secret"}),
    ],
)
@pytest.mark.parametrize("applies_to", ["tool_call", "model_call"])
def test_every_condition_is_seen_by_the_rules_over_calls(
    open_sqlite: OpenTally,
    applies_to: str,
    conditions: dict[str, Any],
    stated: dict[str, str],
) -> None:
    def check(bound: BoundTally, **facts: Any) -> object:
        if applies_to == "tool_call":
            return bound.check_tool_call("t", **facts)
        return bound.check_model_call(**facts)

    with open_sqlite(rules=[rule("deny", applies_to, **conditions)]) as tally:
        with pytest.raises(ActionDenied):
            check(tally.bind(BOT), **stated)
        if stated:
            with pytest.raises(ActionDenied):
                check(tally.bind(BOT))  # nobody stated it: a rule that restricts bites
            check(tally.bind(BOT), **dict.fromkeys(stated, "public"))
        else:
            check(tally.bind(Actor(user="anna"), scope="project:apollo"))


def test_the_environment_of_the_process_counts_where_a_call_states_none(
    open_sqlite: OpenTally,
) -> None:
    rules = [rule("deny", environment=("production",))]
    with open_sqlite(rules=rules, settings=Settings.read(environment="test")) as tally:
        tally.bind(BOT).check_tool_call("shell")
        with pytest.raises(ActionDenied):
            tally.bind(BOT).check_tool_call("shell", environment="production")


def test_a_rule_that_redacts_cleans_arguments_before_and_the_result_after(
    open_tally: OpenTally,
) -> None:
    with open_tally(rules=[rule("redact")]) as tally:
        bot = tally.bind(BOT)
        given = {"body": f"write to ann@example.org with {KEY}", "n": 1.5}
        check = bot.check_tool_call("mail", given)
        assert check.arguments["n"] == 1.5
        assert "ann@example.org" not in str(check.arguments)
        assert KEY not in str(check.arguments)
        as_text = bot.check_tool_call("mail", '{"body": "ann@example.org"}').arguments
        assert isinstance(as_text, str)
        assert "ann@" not in as_text
        assert "ann@" not in bot.check_tool_call("mail", "no json, ann@example.org").arguments
        for result in (
            "from ann@example.org",
            {"from": ["ann@example.org"]},
            Finding(check="from", status="ok", text="ann@example.org"),
            ValueError("ann@example.org"),
        ):
            assert "ann@" not in str(check.result(result))


def test_a_rule_that_redacts_cleans_what_a_model_reads(open_tally: OpenTally) -> None:
    with open_tally(rules=[rule("redact", "model_call", provider=("far",))]) as tally:
        bot = tally.bind(BOT)
        check = bot.check_model_call(provider="far", model="m")
        assert check.redacts
        cleaned = check.clean([{"content": f"{KEY} ann@example.org"}, {"content": KEY}])
        assert "ann@" not in str(cleaned)
        assert cleaned[0]["content"].split()[0] == cleaned[1]["content"]
        near = bot.check_model_call(provider="near", model="m")
        assert near.clean(KEY) == KEY


def test_a_checked_request_is_what_is_sent(open_tally: OpenTally) -> None:
    """Neither who gave it nor who reads it changes it afterwards."""
    with open_tally(rules=[rule("redact", "model_call", provider=("far",))]) as tally:
        bot = tally.bind(BOT)
        request: dict[str, Any] = {"model": "m", "messages": [{"content": KEY}]}
        checks = [
            bot.check_model_call(provider=name, model="m", request=request)
            for name in ("near", "far")
        ]
        request["messages"].append({"content": "obey"})
        for check, is_clean in zip(checks, (False, True), strict=True):
            check.request["messages"].clear()
            [message] = check.request["messages"]
            assert (KEY not in message["content"]) == is_clean


def test_a_rule_that_wants_a_receipt_refuses_where_nothing_records(open_tally: OpenTally) -> None:
    rules = [rule("require_receipt"), rule("require_receipt", "model_call")]
    with open_tally(rules=rules) as tally:
        bot = tally.bind(BOT)
        for check in (lambda: bot.check_tool_call("shell"), lambda: bot.check_model_call()):
            with pytest.raises(ActionDenied, match="nothing records this call") as denied:
                check()
            assert denied.value.reason == "receipt_required"
        with bot.run("agent", retention="metadata_only") as run:
            bot.check_tool_call("shell")
            bot.check_model_call()
        assert [check["outcome"] for check in checks_of(bot, run.id)] == ["allowed", "allowed"]


def test_a_model_call_waits_for_a_person_with_its_exact_request(open_tally: OpenTally) -> None:
    with open_tally(rules=[rule("require_approval", "model_call")]) as tally:
        bot, anna = tally.bind(BOT), tally.bind(Actor(user="anna"))
        request = {"messages": [{"role": "user", "content": "Hello"}]}
        with pytest.raises(ApprovalRequired) as blocked, bot.run("agent") as run:
            bot.check_model_call(model="m", request=request)
        waiting = anna.approvals.get(blocked.value.approvals[0].id)
        assert (waiting.subject, waiting.arguments, waiting.run_id) == ("m", request, run.id)
        assert (run.record.status, len(waiting.receipts)) == ("blocked", 1)
        anna.approvals.approve(waiting.id, reason="fine")
        with pytest.raises(ApprovalRequired):
            bot.check_model_call(model="m", request={"messages": []})
        assert bot.check_model_call(model="m", request=request).approval is not None


def test_a_blocked_step_keeps_action_arguments_reason_and_receipts(open_tally: OpenTally) -> None:
    with open_tally(rules=[rule("require_approval")]) as tally:
        bot = tally.bind(BOT)
        with bot.run("agent") as run:
            with run.step("other"):
                pass
            with (
                pytest.raises(ApprovalRequired) as blocked,
                run.step("tool_call", name="pay"),
            ):
                bot.check_tool_call("pay", {"amount": 3})
        [first, step] = bot.recordings.steps(run.id)
        assert step.status == "blocked"
        check, entry = bot.recordings.entries(step.id)
        approval = blocked.value.approvals[0].id
        assert (check.summary["outcome"], check.summary["approval"]) == ("blocked", approval)
        assert entry.payload == {
            "approval": approval,
            "action": "tool_call",
            "subject": "pay",
            "arguments": {"amount": 3},
            "reason": "require_approval-tool_call",
            "receipts": [bot.recordings.receipt(first.id).digest],
        }


def test_a_call_that_only_an_observer_sees_is_refused(open_tally: OpenTally) -> None:
    rules = [NO_RM, rule("redact", "model_call", provider=("far",))]
    with open_tally(rules=rules) as tally:
        bot = tally.bind(BOT)
        ruled = ToolCall("shell", {"command": "rm x"}, "call-1")
        refuse_unenforced(bot, ToolCall("shell", {"command": "ls"}, "call-0"))
        with bot.run("agent") as run, pytest.raises(ActionDenied) as refused:
            refuse_unenforced(bot, ruled)
        assert refused.value.reason == "not_enforced"
        assert checks_of(bot, run.id)[0]["reason"] == "not_enforced"

        claim_enforcement(tally, "tool_call", "call-1")
        claim_enforcement(tally, "tool_call", "call-1")
        refuse_unenforced(bot, ruled)
        release_enforcement(tally, "tool_call", "call-1")
        assert is_enforced(tally, "tool_call", "shell", "call-1")
        release_enforcement(tally, "tool_call", "call-1")
        with pytest.raises(ActionDenied):
            refuse_unenforced(bot, ruled)
        with enforcing(tally, "tool_call", "shell"):
            refuse_unenforced(bot, ruled)
            with pytest.raises(ActionDenied):
                refuse_unenforced_model_call(bot, provider="far", model="shell")
        with enforcing(tally, "model_call", "m"):
            refuse_unenforced_model_call(bot, provider="far", model="m")
            with pytest.raises(ActionDenied):
                refuse_unenforced_model_call(bot, provider="far", model="other")
        refuse_unenforced_model_call(bot, provider="near", model="m")


def test_a_call_that_one_tally_has_in_hand_goes_by_the_rules_of_another(
    open_sqlite: OpenTally, tmp_path: Path
) -> None:
    ruled = ToolCall("shell", {"command": "rm x"}, "call-1")
    with open_sqlite(rules=[NO_RM]) as tally, Tally.open(tmp_path / "other") as other:
        with enforcing(other, "tool_call", "shell"), pytest.raises(ActionDenied):
            refuse_unenforced(tally.bind(BOT), ruled)
        with enforcing(tally, "tool_call", "shell"):
            refuse_unenforced(tally.bind(BOT), ruled)


def test_an_observer_that_records_satisfies_a_rule_that_wants_a_receipt(
    open_sqlite: OpenTally,
) -> None:
    with open_sqlite(rules=[rule("require_receipt")]) as tally:
        bot = tally.bind(BOT)
        with pytest.raises(ActionDenied):
            refuse_unenforced(bot, ToolCall("shell", {}))
        with bot.run("agent"):
            refuse_unenforced(bot, ToolCall("shell", {}))


def findings(tally: Tally) -> list[tuple[str, str]]:
    operator = tally.bind(Actor(user="root", role="operator")).operator
    return [
        (found.status, found.text) for found in operator.doctor() if found.check == "policy rules"
    ]


def test_the_doctor_lists_rules_that_nothing_enforces_in_any_process(
    open_tally: OpenTally,
) -> None:
    with open_tally(rules=[NO_RM, rule("deny", "model_call")]) as tally:
        assert findings(tally) == [
            ("problem", "rule deny-model_call over model_call is enforced by nothing"),
            ("problem", "rule deny-tool_call over tool_call is enforced by nothing"),
        ]
        register_enforcer(tally, "tool_call", "middleware")
        register_enforcer(tally.bind(BOT), "tool_call", "middleware")
    with open_tally() as tally:
        assert findings(tally) == [
            ("problem", "rule deny-model_call over model_call is enforced by nothing"),
            ("ok", "rule deny-tool_call is enforced by middleware"),
        ]
        with services_of(tally).store.database.read() as connection:
            events = [entry.event for entry in journal.all_entries(connection)]
        assert events.count("policy.enforcer") == 1
        assert events.count("policy.rules") == 1


def test_what_somebody_decided_meanwhile_stays_and_the_next_check_says_it(
    open_sqlite: OpenTally,
) -> None:
    with open_sqlite(rules=[rule("require_approval")]) as tally:
        bot = tally.bind(BOT)
        with pytest.raises(ApprovalRequired) as waits:
            bot.check_tool_call("pay", {"amount": 3})
        approvals = waits.value.approvals
        tally.bind(Actor(user=BOT.acting_for or BOT.user)).approvals.deny(
            approvals[0].id, reason="too much"
        )
        decide_as_person(bot, approvals, approved=True, reason="yes")
        with pytest.raises(ActionDenied, match="too much"):
            bot.check_tool_call("pay", {"amount": 3})


def test_a_check_registers_its_piece_once_in_each_process(open_tally: OpenTally) -> None:
    with open_tally(rules=[NO_RM]) as tally:
        for _ in range(3):
            tally.bind(BOT).check_tool_call("shell", {"command": "ls"})
        assert findings(tally) == [("ok", "rule deny-tool_call is enforced by direct call")]
        with services_of(tally).store.database.read() as connection:
            events = [entry.event for entry in journal.all_entries(connection)]
        assert events.count("policy.enforcer") == 1


def test_a_tally_is_not_opened_with_a_rule_that_could_not_do_what_it_says(
    open_sqlite: OpenTally,
) -> None:
    with pytest.raises(SettingsError, match=r"conditions\.kind: a tool_call has none"):
        open_sqlite(rules=[rule("deny", kind=("memory",))])
    with pytest.raises(SettingsError, match="two rules have the id"):
        open_sqlite(rules=[NO_RM, NO_RM])
    with pytest.raises(SettingsError, match="unknown class"):
        open_sqlite(tool_classes={"shell": "wild"})
