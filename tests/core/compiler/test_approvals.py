"""A rule may want an approval before something is sent: the compile says what and why, and blocks
its step.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tallystick import Actor, Tally
from tallystick.errors import ApprovalRequired
from tallystick.records import (
    ApprovalRequest,
    ContextItem,
    PolicyConditions,
    PolicyRule,
    TargetProfile,
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
WANTED = (
    ApprovalRequest(rule_id="ask-first", reason="Pay is shown on approval", item_ids=("pay",)),
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
        assert caught.value.requests == WANTED
        assert "pay (rule ask-first: Pay is shown on approval)" in str(caught.value)
        assert "90 thousand" not in str(caught.value)

        (stored_step,) = anna.recordings.steps(run.id)
        assert (stored_step.step_id, stored_step.status, anna.runs()[0].status) == (
            step.id,
            "blocked",
            "blocked",
        )
        entries = anna.recordings.receipt(step.id).entries
        assert [entry.kind for entry in entries] == ["compile_request", "compiled", "approval"]
        approval = {"action": "send_to_model", "rule": "ask-first", "items": ["pay"]}
        assert entries[-1].summary == {"state": "asked", "requests": [approval]}
        assert anna.recordings.verify(run.id).ok


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
