"""A rule may want an approval before something is sent: the compile says what and why, and blocks
its step.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime

import pytest

from tallystick import Actor, Tally
from tallystick.errors import (
    ActionDenied,
    ApprovalRequired,
    BudgetInfeasible,
    InvalidInput,
    RequestDenied,
)
from tallystick.records import (
    ContextItem,
    PolicyConditions,
    PolicyRule,
    TargetProfile,
    microseconds,
)

OpenTally = Callable[..., Tally]
ASK = ContextItem(id="ask", kind="user_msg", content="What does Ann earn?")
PAY = ContextItem(
    id="pay", kind="retrieval_doc", content="Ann earns 90 thousand.", sensitivity="restricted"
)
RULE = PolicyRule(
    id="ask-first",
    name="Pay is shown on approval",
    effect="require_approval",
    conditions=PolicyConditions(sensitivity=("restricted",)),
)
GRANT = RULE.replace(id="granted", name="Granted", effect="allow", priority=1)


def test_a_compile_that_needs_an_approval_blocks_its_step_and_says_what_it_waits_for(
    open_tally: OpenTally,
) -> None:
    with open_tally() as tally:
        anna = tally.bind(Actor(user="anna"))
        with (
            pytest.raises(ApprovalRequired) as caught,
            anna.run("agent") as run,
            run.step("model_call") as step,
        ):
            anna.compile([PAY, ASK], budget=500, rules=[RULE])
        [wanted] = caught.value.approvals
        assert anna.approvals.get(wanted.id) == wanted
        assert (wanted.action, wanted.rule_id, wanted.reason, wanted.step_id) == (
            "send_to_model",
            "ask-first",
            "Pay is shown on approval",
            step.id,
        )
        assert "pay (rule ask-first: Pay is shown on approval)" in str(caught.value)
        assert "90 thousand" not in str(caught.value)

        (stored_step,) = anna.recordings.steps(run.id)
        assert (stored_step.id, stored_step.status, anna.recordings.runs()[0].status) == (
            step.id,
            "blocked",
            "blocked",
        )
        entries = anna.recordings.receipt(step.id).entries
        assert [entry.kind for entry in entries] == [
            "compile_request",
            "compiled",
            "policy_check",
            "approval",
        ]
        assert entries[-1].summary == {
            "state": "asked",
            "approval": wanted.id,
            "action": "send_to_model",
            "subject": "pay",
            "rule": "ask-first",
        }
        recorded = anna.recordings.entries(step.id)[-1].payload
        assert isinstance(recorded, dict)
        assert recorded["arguments"] == {
            "provider": None,
            "model": None,
            "rule": "ask-first",
            "items": ["pay"],
        }
        assert anna.recordings.verify(run.id).ok


def test_once_a_person_granted_it_the_same_items_are_sent_once(open_tally: OpenTally) -> None:
    with open_tally() as tally:
        anna = tally.bind(Actor(user="anna"))
        bot = tally.bind(Actor(user="anna", agent="bot"))
        with pytest.raises(ApprovalRequired) as caught:
            bot.compile([PAY, ASK], budget=500, rules=[RULE])
        anna.approvals.approve(caught.value.approvals[0].id, reason="Ann agreed")

        dearer = PAY.model_copy(update={"content": "Ann earns 91 thousand."})
        with pytest.raises(ApprovalRequired):
            bot.compile([dearer, ASK], budget=500, rules=[RULE])
        with bot.run("agent") as run:
            compiled = bot.compile([PAY, ASK], budget=500, rules=[RULE])
        assert compiled.decision("pay").decision == "include"
        [step] = bot.recordings.steps(run.id)
        assert (step.status, bot.recordings.compiled(step.id)[1].id) == (
            "completed",
            compiled.id,
        )
        with pytest.raises(ApprovalRequired):
            bot.compile([PAY, ASK], budget=500, rules=[RULE])


def test_what_a_person_denied_is_denied_with_the_reason(open_tally: OpenTally) -> None:
    with open_tally() as tally:
        anna = tally.bind(Actor(user="anna"))
        with pytest.raises(ApprovalRequired) as caught:
            anna.compile([PAY, ASK], budget=500, rules=[RULE])
        anna.approvals.deny(caught.value.approvals[0].id, reason="nobody's business")
        with pytest.raises(ActionDenied, match="nobody's business") as denied:
            anna.compile([PAY, ASK], budget=500, rules=[RULE])
        assert denied.value.reason == "denied_by_person"


def test_a_grant_is_not_used_up_by_a_compile_that_cannot_succeed(open_tally: OpenTally) -> None:
    with open_tally() as tally:
        anna = tally.bind(Actor(user="anna"))
        with pytest.raises(ApprovalRequired) as caught:
            anna.compile([PAY, ASK], budget=500, rules=[RULE])
        anna.approvals.approve(caught.value.approvals[0].id, reason="fine")
        with pytest.raises(BudgetInfeasible):
            anna.compile([PAY, ASK], budget=1, rules=[RULE])
        assert anna.approvals.get(caught.value.approvals[0].id).state == "granted"


def test_an_item_that_needs_a_receipt_does_not_leave_where_nothing_records(
    open_tally: OpenTally,
) -> None:
    rule = RULE.replace(id="receipt", effect="require_receipt")
    with open_tally() as tally:
        anna = tally.bind(Actor(user="anna"))
        with pytest.raises(ActionDenied, match="nothing records") as denied:
            anna.compile([PAY, ASK], budget=500, rules=[rule])
        assert denied.value.facts() == {
            "action": "send_to_model",
            "subject": "pay",
            "rule_id": "receipt",
            "reason": "receipt_required",
            "approval_id": None,
        }
        with anna.run("agent"):
            compiled = anna.compile([PAY, ASK], budget=500, rules=[rule])
        assert compiled.decision("pay").decision == "include"


def test_a_denied_latest_request_raises_and_leaves_a_policy_check(open_tally: OpenTally) -> None:
    deny = RULE.replace(id="no", effect="deny", conditions=PolicyConditions(kind=("user_msg",)))
    with open_tally() as tally:
        anna = tally.bind(Actor(user="anna"))
        with (
            pytest.raises(RequestDenied, match="denied by rule no") as refused,
            anna.run("agent") as run,
        ):
            anna.compile([ASK], budget=500, rules=[deny])
        assert refused.value.facts() == {"item_id": "ask", "rule_id": "no"}
        [step] = anna.recordings.steps(run.id)
        [check, error] = anna.recordings.entries(step.id)
        assert (check.kind, check.summary["outcome"], error.kind, step.status) == (
            "policy_check",
            "denied",
            "error",
            "failed",
        )


def test_a_compile_takes_no_rules_that_it_cannot_enforce(open_sqlite: OpenTally) -> None:
    with open_sqlite() as tally:
        anna = tally.bind(Actor(user="anna"))
        call = PolicyRule(id="c", name="c", effect="deny", applies_to="tool_call")
        with pytest.raises(InvalidInput, match="not over calls"):
            anna.compile([ASK], budget=500, rules=[call])
        never = RULE.replace(conditions=PolicyConditions(tool=("shell",)))
        with pytest.raises(InvalidInput, match=r"conditions\.tool: a context_item has none"):
            anna.compile([ASK], budget=500, rules=[never])


def test_a_rule_of_higher_priority_grants_it(open_tally: OpenTally) -> None:
    with open_tally() as tally:
        compiled = tally.bind(Actor(user="anna")).compile(
            [PAY, ASK], budget=500, rules=[RULE, GRANT]
        )
        assert compiled.decision("pay").decision == "include"


def test_outside_of_a_step_it_is_refused_all_the_same_and_a_compile_of_its_own_is_blocked(
    open_tally: OpenTally,
) -> None:
    with open_tally() as tally:
        anna = tally.bind(Actor(user="anna"))
        with pytest.raises(ApprovalRequired):
            anna.compile([PAY, ASK], budget=500, rules=[RULE])
        with anna.run("agent") as run:
            with pytest.raises(ApprovalRequired):
                anna.compile([PAY, ASK], budget=500, rules=[RULE])
            anna.compile([ASK], budget=500, rules=[RULE])
        assert [step.status for step in anna.recordings.steps(run.id)] == ["blocked", "completed"]


def test_what_was_not_sent_is_not_what_the_next_prompt_follows(open_tally: OpenTally) -> None:
    with open_tally() as tally:
        anna = tally.bind(Actor(user="anna"))
        target = TargetProfile(per_item=0, per_tool=0, per_request=0)
        with anna.run("agent") as run:
            with pytest.raises(ApprovalRequired):
                anna.compile([PAY, ASK], budget=500, rules=[RULE], target=target)
            anna.compile([ASK], budget=500, target=target)
            anna.compile([ASK], budget=500, target=target)
        assert [reuse.cause for _, reuse in anna.recordings.prefix_reuse(run.id)] == [
            "first",
            "appended",
        ]


def test_a_compile_at_a_given_moment_is_made_again_with_the_same_id(
    open_tally: OpenTally,
) -> None:
    with open_tally() as tally:
        mine = tally.bind(Actor(user="ada"))
        mine.remember("The heron nests in March.")
        hits = mine.recall("when does the heron nest?")
        at = datetime(2026, 5, 4, tzinfo=UTC)

        first = mine.compile(hits, budget=500, query="heron", as_of=at)
        with mine.run("coder") as run, run.step("model_call"):
            again = mine.compile(hits, budget=500, query="heron", as_of=microseconds(at))

        assert again.id == first.id
        assert mine.compile(hits, budget=500, query="heron").id != first.id
        for wrong in (True, "in May", 10**30, 1_777_852_800, 1.5):
            with pytest.raises(InvalidInput):
                mine.compile(hits, budget=500, as_of=wrong)  # type: ignore[arg-type]
