"""What holds for every compile, over random candidates, budgets and rules."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from itertools import pairwise
from typing import get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tallystick.compiler import compile_context, diff_compiled
from tallystick.errors import BudgetInfeasible, RequestDenied
from tallystick.ports import TokenCounter
from tallystick.records import (
    CompilationRequest,
    CompileConfig,
    CompiledContext,
    ContextItem,
    ItemKind,
    Memory,
    PolicyConditions,
    PolicyEffect,
    PolicyRule,
    Scope,
    Sensitivity,
    TargetProfile,
    ToolSpec,
)

NOW = 2_000_000_000_000
TALK = {"user_msg", "assistant_msg", "tool_result"}
LOOSE = tuple(kind for kind in get_args(ItemKind) if kind not in {*TALK, "tool_schema"})
WORDS = ("alpha", "beta", "gamma", "delta.", "epsilon", "zeta.", "eta", "theta")

many = settings(max_examples=max(100, settings().max_examples))


def text(chance: random.Random) -> str:
    return " ".join(chance.choices(WORDS, k=chance.choice((0, 1, 3, 8, 20, 40))))


def moment(chance: random.Random) -> int | None:
    return chance.choice((None, 0, chance.randint(0, NOW), NOW))


def loose_item(chance: random.Random, number: int) -> ContextItem:
    name = f"item{number:02}"
    # Only towards smaller numbers, so that there is no cycle; sometimes to nothing at all.
    needed = [
        f"item{chance.randint(-1, number - 1):02}" for _ in range(chance.choice((0, 0, 0, 1, 2)))
    ]
    return ContextItem(
        id=name,
        kind=chance.choice(LOOSE),
        content=f"{text(chance)} secret-of-{name}." if chance.random() < 0.6 else text(chance),
        created_at=moment(chance),
        freshness_ts=moment(chance),
        ttl_seconds=chance.choice((None, None, None, 0, chance.randint(0, 3_000_000))),
        trust_score=chance.randint(0, 100),
        importance_score=chance.randint(0, 100),
        sensitivity=chance.choice(get_args(Sensitivity)),
        scope=chance.choice((None, Scope.parse("private:ann"), Scope.parse("project:apollo"))),
        dependencies=tuple(needed),
        token_estimate=chance.choice((None, None, 0, 12)),
        tags=frozenset(chance.sample(("hard", "pinned", "profile", "changed", "red", ""), 1)),
        metadata={"subject": chance.choice(("house", "car"))} if chance.random() < 0.2 else {},
    )


def conversation(chance: random.Random, length: int) -> list[ContextItem]:
    items: list[ContextItem] = []
    calls: list[str] = []
    for number in range(length):
        kind: ItemKind = chance.choice(("user_msg", "assistant_msg", "tool_result"))
        call_ids: tuple[str, ...] = ()
        if kind == "assistant_msg" and chance.random() < 0.7:
            call_ids = tuple(f"call{number}{letter}" for letter in "ab"[: chance.randint(1, 2)])
            calls.extend(call_ids)
        elif kind == "user_msg" and calls and chance.random() < 0.7:
            kind = "tool_result"
        items.append(
            ContextItem(
                id=f"turn{number:02}",
                kind=kind,
                content=text(chance) + f" secret-of-turn{number:02}." * chance.randint(0, 1),
                sensitivity=chance.choice(("internal", "internal", "restricted")),
                tags=frozenset(chance.sample(("blocking", "pinned", "red", "", "", ""), 1)),
                tool_call_ids=call_ids,
                tool_call_id=chance.choice((*calls[-3:], "nobody"))
                if kind == "tool_result"
                else None,
            )
        )
    return items


def some_rules(chance: random.Random) -> tuple[PolicyRule, ...]:
    return tuple(
        PolicyRule(
            id=f"rule{number}",
            name="a rule",
            effect=chance.choice(get_args(PolicyEffect)),
            applies_to=chance.choice(("context_item", "context_item", "memory", "tool_call")),
            conditions=PolicyConditions(
                sensitivity=chance.choice(((), ("restricted",), ("secret", "public"))),
                tag=chance.choice(((), ("red",))),
                scope=chance.choice(((), ("project",), ("private:ann",))),
            ),
            priority=chance.randint(0, 2),
        )
        for number in range(chance.choice((0, 0, 1, 3)))
    )


def some_memory(chance: random.Random, number: int) -> Memory:
    return Memory(
        id=f"memory{number}",
        scope=Scope.parse("private:ann"),
        content=text(chance),
        created_at=5,
        updated_at=5,
        created_by="ann",
        pinned=chance.random() < 0.2,
        state=chance.choice(("active", "active", "redacted", "hidden", "superseded")),
        expires_at=chance.choice((None, NOW, NOW + 1)),
    )


def request_from(seed: int, count: int, length: int) -> CompilationRequest:
    """A request drawn with the seed. The counts stand apart so that a failing example can
    shrink.
    """
    chance = random.Random(seed)
    items = [loose_item(chance, number) for number in range(count)] + conversation(chance, length)
    return CompilationRequest(
        request_id="r",
        context_items=tuple(items),
        memory_records=tuple(some_memory(chance, number) for number in range(chance.randint(0, 2))),
        tool_specs=(ToolSpec(name="search", description="finds things"),) * chance.randint(0, 1),
        policy_rules=some_rules(chance),
        token_budget=chance.choice((5, 40, 150, 300, 600)),
        response_reserve=chance.choice((0, 7)),
        as_of=NOW,
        compile_config=CompileConfig(
            class_ceilings=chance.choice(({}, {}, {"retrieval": 20}, {"working_memory": 0})),
            max_sensitivity=chance.choice(("secret", "restricted")),
            min_compressed_tokens=chance.choice((1, 6, 24)),
            compression=chance.random() < 0.8,
        ),
        target=TargetProfile(per_item=chance.choice((0, 4))),
        relevance={
            item.id: chance.randint(0, 1_000_000) for item in items if chance.random() < 0.6
        },
        contradictions=chance.choice((None, tuple(pairs_of(chance, items)))),
    )


_TALK = ("user_msg", "assistant_msg", "tool_result")


def pairs_of(chance: random.Random, items: list[ContextItem]) -> list[tuple[str, str]]:
    names = sorted({*(item.id for item in items), "memory0", "nobody"})
    return [(one, other) for one, other in pairwise(names) if chance.random() < 0.2]


requests = st.builds(request_from, st.integers(0, 2**32), st.integers(0, 14), st.integers(0, 12))


def compiled_or_none(request: CompilationRequest, counter: TokenCounter) -> CompiledContext | None:
    try:
        return compile_context(request, counter=counter)
    except BudgetInfeasible as error:
        # Only a refusal with a reason counts as one.
        return (
            None
            if sum(error.required.values()) > error.budget
            else pytest.fail(f"needless refusal: {error}")
        )
    except RequestDenied as error:
        asked = [
            item.id
            for item in request.context_items
            if item.kind == "user_msg" and item.content.strip()
        ]
        if error.item_id != asked[-1]:
            pytest.fail(f"not the latest request: {error}")
        return None


def shuffled(request: CompilationRequest, seed: int) -> CompilationRequest:
    """The same request with everything but messages in another order, and messages anywhere among
    the rest.
    """
    chance = random.Random(seed)
    talk = [item for item in request.context_items if item.kind in TALK]
    loose = [item for item in request.context_items if item.kind not in TALK]
    chance.shuffle(loose)
    places = sorted(chance.sample(range(len(request.context_items)), len(talk)))
    mixed = [
        talk.pop(0) if place in places else loose.pop()
        for place in range(len(request.context_items))
    ]
    return request.model_copy(
        update={
            "context_items": tuple(mixed),
            "memory_records": tuple(
                chance.sample(request.memory_records, len(request.memory_records))
            ),
            "policy_rules": tuple(chance.sample(request.policy_rules, len(request.policy_rules))),
            "relevance": dict(
                chance.sample(sorted(request.relevance.items()), len(request.relevance))
            ),
        }
    )


@many
@given(request=requests)
def test_every_candidate_has_exactly_one_decision_and_one_place(
    request: CompilationRequest, words: TokenCounter
) -> None:
    compiled = compiled_or_none(request, words)
    if compiled is None:
        return
    candidates = [item.id for item in request.context_items] + [
        memory.id for memory in request.memory_records
    ]
    candidates += [f"tool:{spec.name}" for spec in request.tool_specs]
    decided = [decision.item_id for decision in compiled.decisions]
    chosen = [item.id for item in compiled.selected_items]
    left = [item.id for item in compiled.excluded_items]

    assert sorted(decided) == sorted(candidates)
    assert sorted(chosen + left) == sorted(candidates)
    assert left == sorted(left)
    assert [name for section in compiled.sections for name in section.item_ids] == chosen
    assert {d.item_id for d in compiled.decisions if d.decision == "exclude"} == set(left)


@many
@given(request=requests)
def test_the_budget_is_never_exceeded_and_every_token_is_accounted_for(
    request: CompilationRequest, words: TokenCounter
) -> None:
    compiled = compiled_or_none(request, words)
    if compiled is None:
        return
    allocation = dict(compiled.token_allocation)
    spent = {decision.item_id: decision.final_tokens for decision in compiled.decisions}
    totals = [allocation.pop(name) for name in ("budget", "response_reserve", "used", "free")]

    assert totals[2] <= totals[0] - totals[1]
    assert totals[3] == totals[0] - totals[1] - totals[2]
    assert sum(spent.values()) + request.target.per_request == totals[2]
    assert sum(allocation.values()) == sum(spent.values())
    for section in compiled.sections:
        assert section.tokens == sum(spent[name] for name in section.item_ids)
    for item in compiled.selected_items:
        overhead = (
            request.target.per_tool if item.kind == "tool_schema" else request.target.per_item
        )
        assert spent[item.id] >= words.count(item.content) + overhead


@many
@given(request=requests)
def test_what_is_required_is_in_whole_or_the_compile_refuses(
    request: CompilationRequest, words: TokenCounter
) -> None:
    compiled = compiled_or_none(request, words)
    if compiled is None:
        return
    gone = {"policy_denied", "policy_requires_approval", "expired", "empty", "duplicate"}
    for item in request.context_items:
        decision = compiled.decision(item.id)
        if item.kind in {"system", "policy"} or (item.kind == "constraint" and "hard" in item.tags):
            assert decision.decision in {"include", "redact"} or decision.reason_code in gone
            if decision.decision == "include":
                assert words.count(item.content) <= decision.final_tokens
    user_messages = [
        item for item in request.context_items if item.kind == "user_msg" and item.content
    ]
    if user_messages:
        decision = compiled.decision(user_messages[-1].id)
        assert (
            decision.decision in {"include", "redact"}
            or decision.reason_code == "policy_requires_approval"
        )


@many
@given(request=requests)
def test_a_call_and_its_results_are_never_separated(
    request: CompilationRequest, words: TokenCounter
) -> None:
    compiled = compiled_or_none(request, words)
    if compiled is None:
        return
    talk = [item for item in compiled.selected_items if item.kind in TALK]
    for place, item in enumerate(talk):
        if item.tool_call_ids:
            answers = []
            for later in talk[place + 1 :]:
                if later.tool_call_id is None:
                    break
                answers.append(later.tool_call_id)
            is_last = place + len(answers) + 1 == len(talk)
            assert len(set(answers)) == len(answers)
            assert set(answers) <= set(item.tool_call_ids)
            assert set(answers) == set(item.tool_call_ids) or is_last
        elif item.tool_call_id is not None:
            assert talk[place - 1].tool_call_ids or talk[place - 1].tool_call_id is not None
    # A result that came late moves up to its call, and older turns are quoted after the window;
    # else the order stays.
    alone = {item.id for item in talk if item.tool_call_id is None}
    for section in compiled.sections:
        names = [name for name in section.item_ids if name in alone]
        assert names == sorted(names)


@many
@given(request=requests)
def test_denied_and_redacted_content_is_nowhere_in_the_result(
    request: CompilationRequest, words: TokenCounter
) -> None:
    compiled = compiled_or_none(request, words)
    if compiled is None:
        return
    whole = compiled.dumps()
    for item in request.context_items:
        reason = compiled.decision(item.id).reason_code
        if reason in {"policy_denied", "policy_requires_approval", "policy_redacted"}:
            assert f"secret-of-{item.id}" not in whole
        if reason in {"policy_denied", "policy_requires_approval"}:
            decision = compiled.decision(item.id)
            assert (decision.score_breakdown, decision.original_tokens, decision.final_tokens) == (
                {},
                0,
                0,
            )


@many
@given(request=requests, seed=st.integers(0, 1_000))
def test_the_order_of_candidates_changes_nothing_but_the_conversation(
    request: CompilationRequest, seed: int, words: TokenCounter
) -> None:
    once = compiled_or_none(request, words)
    again = compiled_or_none(shuffled(request, seed), words)
    assert (once and once.dumps()) == (again and again.dumps())


@many
@given(request=requests)
def test_a_stored_request_compiles_to_the_same_bytes(
    request: CompilationRequest, words: TokenCounter
) -> None:
    once = compiled_or_none(request, words)
    again = compiled_or_none(CompilationRequest.loads(request.dumps()), words)
    assert (once and once.dumps()) == (again and again.dumps())


@many
@given(
    sizes=st.lists(st.integers(1, 30), min_size=2, max_size=60),
    budget=st.integers(20, 300),
    share=st.integers(0, 100),
    system=st.integers(0, 10),
)
def test_the_prompt_begins_as_the_one_before_until_it_is_compacted(
    sizes: list[int], budget: int, share: int, system: int, words: TokenCounter
) -> None:
    """A turn more leaves the prefix and the window as they were, or cuts a piece off the window's
    beginning and passes over what is larger than the whole window.
    """
    talk = [
        ContextItem(
            id=f"t{place:02}",
            kind=("user_msg", "assistant_msg")[place % 2],
            content=f"w{place} " * size,
        )
        for place, size in enumerate(sizes)
    ]
    rule = ContextItem(id="s", kind="system", content="s " * system) if system else None
    config = CompileConfig(history_share=share)
    before: tuple[str, ...] = ()
    for end in range(1, len(talk) + 1, 2):
        request = CompilationRequest(
            request_id="r",
            context_items=(*((rule,) if rule else ()), *talk[:end]),
            token_budget=budget,
            as_of=1,
            target=TargetProfile(per_item=0, per_tool=0, per_request=0),
            compile_config=config,
            relevance={"t00": 1_000_000},
        )
        compiled = compiled_or_none(request, words)
        if compiled is None:
            return
        prefix, window, *_ = compiled.sections
        assert prefix.item_ids == (("s",) if system else ())
        assert list(window.item_ids) == sorted(window.item_ids)
        if window.item_ids[: len(before)] != before:
            retained = [name for name in before if name in window.item_ids]
            fitting = [name for name in before if sizes[int(name[1:])] <= budget * share // 100]
            assert not retained or retained == fitting[len(fitting) - len(retained) :]
            for name in before:
                if name in retained:
                    continue
                decision = compiled.decision(name)
                assert decision.decision == "include" or decision.reason_code in {
                    "compacted",
                    "over_budget",
                }
        before = window.item_ids


@many
@given(request=requests)
def test_two_equal_compiles_do_not_differ(request: CompilationRequest, words: TokenCounter) -> None:
    compiled = compiled_or_none(request, words)
    if compiled is None:
        return
    diff = diff_compiled(compiled, compiled)
    assert diff.is_empty
    assert not diff.stable_prefix_changed
    assert diff.unchanged == len(compiled.decisions)


@many
@given(request=requests)
def test_of_two_that_contradict_one_another_both_stay_only_where_both_are_required(
    request: CompilationRequest, words: TokenCounter
) -> None:
    compiled = compiled_or_none(request, words)
    shown = {} if compiled is None else {item.id: item for item in compiled.selected_items}
    for pair in request.contradictions or ():
        both = [shown[name] for name in pair if name in shown]
        if len(both) == 2 and all(item.kind not in _TALK for item in both):
            assert compiled is not None
            notes = [compiled.decision(item.id).notes for item in both]
            reasons = [compiled.decision(item.id).reason_code for item in both]
            assert any("contradicts" in note for note in notes), (pair, reasons)


@given(request=requests)
def test_what_is_shown_never_misses_what_it_depends_on(
    request: CompilationRequest, words: TokenCounter
) -> None:
    compiled = compiled_or_none(request, words)
    if compiled is None:
        return
    chosen = {item.id for item in compiled.selected_items}
    for decision in compiled.decisions:
        if decision.reason_code != "selected_by_score" and decision.pass_name != "compression":
            continue
        item = next(item for item in compiled.selected_items if item.id == decision.item_id)
        for other in item.dependencies:
            needed = compiled.decision(other)
            assert (needed.related_id if needed.reason_code == "duplicate" else other) in chosen


@settings(max_examples=settings().max_examples // 2)
@given(seed=st.integers(0, 2**32), budget=st.integers(800, 4_000), relevant=st.booleans())
def test_the_budget_is_filled_when_there_is_enough_to_fill_it(
    seed: int, budget: int, relevant: bool, words: TokenCounter
) -> None:
    chance = random.Random(seed)
    item_kinds: tuple[ItemKind, ...] = ("memory", "retrieval_doc", "user_msg", "summary", "task")
    kinds = chance.sample(item_kinds, chance.randint(1, 5))
    items = tuple(
        ContextItem(
            id=f"i{n:03}",
            kind=chance.choice(kinds),
            content=" ".join([f"w{n}"] * chance.randint(1, 60)),
        )
        for n in range(400)
    )
    request = CompilationRequest(
        request_id="r",
        context_items=items,
        token_budget=budget,
        as_of=NOW,
        target=TargetProfile(per_item=0),
        relevance={item.id: chance.randint(0, 1_000_000) for item in items} if relevant else {},
    )
    compiled = compile_context(request, counter=words)
    assert compiled.token_allocation["used"] >= budget * 0.97


@pytest.mark.parametrize("seed", ["0", "4242"])
def test_the_result_is_the_same_in_another_process_with_another_hash_seed(
    seed: str, words: TokenCounter
) -> None:
    """Sets iterate in an order that depends on the seed; nothing of that may show."""
    program = """
import sys
from tallystick.compiler import compile_context
from tallystick.records import CompilationRequest
class Words:
    method, exact = "words", True
    def count(self, text): return len(text.split())
for line in sys.stdin:
    try:
        print(compile_context(CompilationRequest.loads(line), counter=Words()).dumps())
    except Exception as error:
        print(error)
"""
    requests = [request_from(number, 14, 12) for number in range(20)]
    requests += [request.replace(token_budget=5_000) for request in requests]
    result = subprocess.run(
        [sys.executable, "-c", program],
        input="\n".join(request.dumps() for request in requests),
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONHASHSEED": seed},
        check=True,
    )

    expected = []
    for request in requests:
        try:
            expected.append(compile_context(request, counter=words).dumps())
        except BudgetInfeasible as error:
            expected.append(str(error))
    assert result.stdout.splitlines() == expected
