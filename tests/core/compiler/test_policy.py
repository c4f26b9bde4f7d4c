"""Policy in a compile: what is denied has no influence and is nowhere, what is redacted leaves a
placeholder.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from tallystick.compiler import PASSES, compile_context
from tallystick.compiler.normalize import normalize
from tallystick.compiler.policy import decide, recheck
from tallystick.compiler.state import Inclusion, State
from tallystick.errors import InvalidContext, RequestDenied
from tallystick.records import (
    CompilationRequest,
    CompileConfig,
    CompiledContext,
    ContextItem,
    Memory,
    PolicyConditions,
    PolicyEffect,
    PolicyRule,
    Scope,
    SourceRef,
    ToolSpec,
)

Compile = Callable[..., CompiledContext]


def rule(effect: PolicyEffect, tag: str = "red") -> PolicyRule:
    return PolicyRule(
        id=f"{effect}-{tag}", name="r", effect=effect, conditions=PolicyConditions(tag=(tag,))
    )


def red(name: str = "x", **fields: object) -> ContextItem:
    return ContextItem.load(
        {"id": name, "kind": "memory", "content": "the launch code", "tags": ["red"], **fields}
    )


def test_a_denied_item_is_never_counted_scored_or_shown() -> None:
    counted: list[str] = []

    class Listening:
        method, exact = "listening", True

        def count(self, text: str) -> int:
            counted.append(text)
            return len(text.split())

    denied = red(
        source_ref=SourceRef(title="launch code"),
        metadata={"text": "the launch code"},
        stable_hash="known",
    )
    compiled = compile_context(
        CompilationRequest(
            request_id="r",
            context_items=(denied,),
            policy_rules=(rule("deny"),),
            token_budget=100,
            as_of=0,
            relevance={"x": 900_000},
        ),
        counter=Listening(),
    )

    decision = compiled.decision("x")
    assert compiled.excluded_items == (ContextItem(id="x", kind="memory", content=""),)
    assert (decision.decision, decision.reason_code, decision.notes) == (
        "exclude",
        "policy_denied",
        "denied by rule deny-red",
    )
    assert (decision.score_breakdown, decision.original_tokens, decision.final_tokens) == ({}, 0, 0)
    assert counted == []
    assert "launch" not in compiled.dumps()


def test_a_denied_item_has_no_influence_on_the_others(compile_items: Compile) -> None:
    """Not as a duplicate's keeper, a rival, a replacement, a dependent or a turn that makes others
    older.
    """
    others = [
        ContextItem(id="twin", kind="memory", content="the launch code", trust_score=1),
        ContextItem(
            id="old", kind="memory", content="blue", metadata={"subject": "sky"}, trust_score=1
        ),
        ContextItem(id="replaced", kind="file", content="one two three"),
        ContextItem(id="u1", kind="user_msg", content="hello there"),
        ContextItem(id="u2", kind="user_msg", content="what now"),
    ]
    denied = [
        red("d1", trust_score=100),
        red(
            "d2",
            metadata={"subject": "sky", "supersedes": ["replaced"]},
            dependencies=["twin"],
            trust_score=100,
        ),
        red("d3", kind="assistant_msg", content="a turn"),
    ]
    without = compile_items(others)
    within = compile_items([*denied, *others], policy_rules=(rule("deny"),))

    assert within.selected_items == without.selected_items
    assert [d for d in within.decisions if d.item_id[0] != "d"] == list(without.decisions)


def test_the_digest_does_not_depend_on_denied_content(compile_items: Compile) -> None:
    """A digest over it would let anyone who holds a receipt confirm a guess."""
    first = compile_items([red(content="one")], policy_rules=(rule("deny"),))
    two = compile_items([red(content="two words")], policy_rules=(rule("deny"),))
    assert first.id == two.id


def test_redacted_content_is_replaced_and_its_provenance_reduced_to_a_place(
    compile_items: Compile,
) -> None:
    original = red(
        source_ref=SourceRef(
            source_type="file",
            uri="file:codes",
            title="launch code",
            checksum="c",
            retrieval_query="launch code?",
        ),
        metadata={"text": "the launch code", "supersedes": ["old", "the launch code"]},
    )
    old = ContextItem(id="old", kind="memory", content="an older text")
    compiled = compile_items(
        [original, old], policy_rules=(rule("redact"),), relevance={"x": 900_000}
    )

    (shown,) = compiled.selected_items
    assert shown.content == "[redacted by rule redact-red]"
    assert shown.source_ref == SourceRef(source_type="file", uri="file:codes")
    assert shown.metadata == {"supersedes": ["old"]}
    assert compiled.decision("x").score_breakdown["relevance"] == 0
    assert compiled.decision("x").decision == "redact"
    assert compiled.decision("x").reason_code == "policy_redacted"
    assert "launch" not in compiled.dumps()


def test_two_redacted_items_are_not_duplicates_of_one_another(compile_items: Compile) -> None:
    compiled = compile_items(
        [red("a", content="one"), red("b", content="two")], policy_rules=(rule("redact"),)
    )
    assert [item.id for item in compiled.selected_items] == ["a", "b"]


def test_what_waits_for_approval_is_out_and_empty(compile_items: Compile) -> None:
    compiled = compile_items([red()], policy_rules=(rule("require_approval"),))
    assert compiled.decision("x").reason_code == "policy_requires_approval"
    assert "launch" not in compiled.dumps()


def test_a_rule_that_wants_a_receipt_allows_and_is_noted(compile_items: Compile) -> None:
    compiled = compile_items([red()], policy_rules=(rule("require_receipt"),))
    assert compiled.decision("x").decision == "include"
    assert compiled.decision("x").notes == "receipt required by rule require_receipt-red"


def test_sensitivity_above_the_limit_is_denied_whatever_the_rules_say(
    compile_items: Compile,
) -> None:
    compiled = compile_items(
        [red(sensitivity="secret"), red("y", sensitivity="restricted", content="fine")],
        policy_rules=(rule("allow"),),
        compile_config=CompileConfig(max_sensitivity="restricted"),
    )
    assert compiled.decision("x").notes == "sensitivity secret is above restricted"
    assert [item.id for item in compiled.selected_items] == ["y"]


def test_even_what_is_required_is_left_out_when_denied(compile_items: Compile) -> None:
    compiled = compile_items(
        [ContextItem(id="u1", kind="user_msg", content="a question"), red("s", kind="system")],
        policy_rules=(rule("deny"),),
    )
    assert compiled.decision("s").reason_code == "policy_denied"
    assert compiled.decision("u1").reason_code == "required_latest_request"


def test_a_denied_latest_request_raises_and_no_older_one_takes_its_place(
    compile_items: Compile,
) -> None:
    older = ContextItem(id="u1", kind="user_msg", content="an older question")
    with pytest.raises(RequestDenied) as refused:
        compile_items([older, red("u2", kind="user_msg")], policy_rules=(rule("deny"),))
    assert refused.value.facts() == {"item_id": "u2", "rule_id": "deny-red"}
    with pytest.raises(RequestDenied, match="sensitivity secret is above internal"):
        compile_items(
            [red("u2", kind="user_msg", sensitivity="secret")],
            compile_config=CompileConfig(max_sensitivity="internal"),
        )
    compiled = compile_items([red("u0", kind="user_msg"), older], policy_rules=(rule("deny"),))
    assert compiled.decision("u0").reason_code == "policy_denied"


def test_a_denied_result_takes_its_call_along(compile_items: Compile) -> None:
    compiled = compile_items(
        [
            ContextItem(id="u", kind="user_msg", content="go"),
            ContextItem(id="c", kind="assistant_msg", content="", tool_call_ids=("1", "2")),
            red("r1", kind="tool_result", tool_call_id="1"),
            ContextItem(id="r2", kind="tool_result", content="fine", tool_call_id="2"),
        ],
        policy_rules=(rule("deny"),),
    )
    assert [(d.item_id, d.reason_code, d.related_id) for d in compiled.decisions] == [
        ("u", "required_latest_request", None),
        ("c", "tool_pair_excluded", "r1"),
        ("r1", "policy_denied", None),
        ("r2", "tool_pair_excluded", "r1"),
    ]


def test_a_redacted_result_keeps_its_pair_whole(compile_items: Compile) -> None:
    compiled = compile_items(
        [
            ContextItem(id="c", kind="assistant_msg", content="", tool_call_ids=("1",)),
            red("r1", kind="tool_result", tool_call_id="1"),
        ],
        policy_rules=(rule("redact"),),
    )
    assert [item.tool_call_id for item in compiled.selected_items] == [None, "1"]
    assert compiled.decision("r1").notes == "redacted by rule redact-red; required_tool_result"


def test_a_tool_is_judged_by_its_class_and_never_shown_in_part(compile_items: Compile) -> None:
    rules = (
        PolicyRule(
            id="no", name="n", effect="deny", conditions=PolicyConditions(tool_class=("network",))
        ),
        PolicyRule(
            id="part", name="p", effect="redact", conditions=PolicyConditions(tool_class=("write",))
        ),
    )
    specs = tuple(
        ToolSpec(name=name, tool_class=name) for name in ("network", "write", "read_only")
    )
    compiled = compile_items(tool_specs=specs, policy_rules=rules)
    assert [item.id for item in compiled.selected_items] == ["tool:read_only"]
    assert (
        compiled.decision("tool:write").notes
        == "redacted by rule part: a tool cannot be shown in part"
    )


def memory(**fields: object) -> Memory:
    return Memory.load(
        {
            "id": "m",
            "scope": "private:ann",
            "content": "the launch code",
            "created_at": 1,
            "updated_at": 1,
            "created_by": "ann",
            **fields,
        }
    )


def test_rules_for_memories_and_for_items_both_bind_memories(compile_items: Compile) -> None:
    for applies_to in ("memory", "context_item"):
        deny = PolicyRule.load({"id": "d", "name": "d", "effect": "deny", "applies_to": applies_to})
        assert compile_items(memory_records=(memory(),), policy_rules=(deny,)).selected_items == ()
    deny = PolicyRule(id="d", name="d", effect="deny", applies_to="memory")
    allow = PolicyRule(id="a", name="a", effect="allow", priority=1)
    assert (
        compile_items(memory_records=(memory(),), policy_rules=(deny, allow)).selected_items != ()
    )


@pytest.mark.parametrize(
    ("fields", "decision", "reason"),
    [
        ({"state": "hidden"}, "exclude", "policy_denied"),
        ({"state": "deleted"}, "exclude", "policy_denied"),
        ({"state": "redacted"}, "redact", "policy_redacted"),
        ({"state": "superseded"}, "exclude", "superseded"),
        ({"state": "duplicate"}, "exclude", "duplicate"),
        ({"valid_until": 1_000_000_000_000}, "exclude", "stale"),
        ({"valid_from": 1_000_000_000_001}, "exclude", "stale"),
        ({"expires_at": 1_000_000_000_000}, "exclude", "expired"),
        (
            {"valid_until": 1_000_000_000_001, "expires_at": 1_000_000_000_001},
            "include",
            "selected_by_score",
        ),
        ({"attributes": {"sensitivity": "secret"}, "state": "active"}, "exclude", "policy_denied"),
    ],
)
def test_the_state_of_a_memory_decides_before_anything_else(
    compile_items: Compile, fields: dict[str, object], decision: str, reason: str
) -> None:
    compiled = compile_items(
        memory_records=(memory(**fields),),
        compile_config=CompileConfig(max_sensitivity="restricted"),
    )
    assert (compiled.decision("m").decision, compiled.decision("m").reason_code) == (
        decision,
        reason,
    )
    if reason.startswith("policy"):
        assert "launch" not in compiled.dumps()


def test_a_memory_cannot_make_itself_required_by_its_tags(compile_items: Compile) -> None:
    pushy = memory(
        tags=("hard", "pinned", "blocking"), kind="constraint", scope=Scope.parse("project:apollo")
    )
    assert compile_items(memory_records=(pushy,)).decision("m").reason_code == "selected_by_score"
    pinned = memory(pinned=True)
    assert compile_items(memory_records=(pinned,)).decision("m").reason_code == "required_pinned"
    hard = memory(kind="constraint", attributes={"hard": True})
    assert compile_items(memory_records=(hard,)).decision("m").reason_code == "required_constraint"


@pytest.mark.parametrize("effect", ["deny", "redact"])
def test_the_second_look_stops_a_compile_whose_passes_let_something_through(
    effect: PolicyEffect,
) -> None:
    """No pass can do this today; the check stands for the one that will."""
    request = CompilationRequest(
        request_id="r",
        context_items=(red(),),
        policy_rules=(rule(effect),),
        token_budget=9,
        as_of=0,
    )
    state = decide(normalize(State(request=request, count=len)))
    broken = replace(
        state,
        items={"x": red()},
        excluded={},
        included={"x": Inclusion("selected_by_score", "budgeting")},
    )

    with pytest.raises(InvalidContext, match="nothing was sent") as refused:
        recheck(broken)
    assert refused.value.item_ids == ("x",)
    assert PASSES.index("policy") == PASSES.index("layout") - 1


def test_an_empty_message_is_no_request_whatever_the_rules_say(compile_items: Compile) -> None:
    public = PolicyRule(
        id="public",
        name="Public",
        effect="allow",
        priority=1,
        conditions=PolicyConditions(sensitivity=("public",)),
    )
    everything = PolicyRule(id="everything", name="Everything", effect="deny")
    compiled = compile_items(
        [
            ContextItem(id="u1", kind="user_msg", content="a question", sensitivity="public"),
            ContextItem(id="u2", kind="user_msg", content=" "),
        ],
        policy_rules=(public, everything),
    )
    assert compiled.decision("u1").reason_code == "required_latest_request"
