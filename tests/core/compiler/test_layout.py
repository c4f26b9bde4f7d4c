"""Layout, digests and the comparison of two compiles."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import tallystick.compiler
from tallystick.compiler import diff_compiled
from tallystick.records import (
    CompileConfig,
    CompiledContext,
    ContextItem,
    ScoreWeights,
    ToolSpec,
)

Compile = Callable[..., CompiledContext]


def item(name: str, kind: str, content: str | None = None, **fields: object) -> ContextItem:
    return ContextItem.load(
        {"id": name, "kind": kind, "content": content or f"the {name}", **fields}
    )


def some_of_everything() -> list[ContextItem]:
    return [
        item("z-sum", "summary"),
        item("a-diff", "code_diff"),
        item("file", "file"),
        item("new-file", "file", tags=["changed"]),
        item("mem", "memory"),
        item("me", "memory", tags=["profile"]),
        item("never", "constraint", tags=["hard"]),
        item("rather", "constraint"),
        item("todo", "task"),
        item("steps", "plan"),
        item("rule", "policy"),
        item("sys", "system"),
        item("doc", "retrieval_doc"),
        item("u1", "user_msg"),
        item("a1", "assistant_msg"),
        item("u2", "user_msg"),
        item("c", "assistant_msg", tool_call_ids=["1"]),
        item("r", "tool_result", tool_call_id="1"),
    ]


TOOLS = (ToolSpec(name="write"), ToolSpec(name="read", description="reads", parameters={"ü": 0.5}))


def test_sections_hold_what_changes_at_their_speed(compile_items: Compile) -> None:
    compiled = compile_items(some_of_everything(), tool_specs=TOOLS)
    assert [(section.name, section.item_ids) for section in compiled.sections] == [
        ("stable_prefix", ("sys", "tool:read", "tool:write", "rule", "never", "me")),
        ("history", ("u1", "a1")),
        ("task_context", ("todo", "steps", "rather", "mem", "doc", "file", "z-sum")),
        ("volatile_suffix", ("a-diff", "new-file", "u2", "c", "r")),
    ]
    assert compiled.stable_prefix_hash == compiled.sections[0].digest
    assert compiled.volatile_suffix_hash == compiled.sections[3].digest


def test_a_tool_is_shown_as_one_line_of_json_with_sorted_keys(compile_items: Compile) -> None:
    compiled = compile_items(tool_specs=TOOLS)
    assert (
        compiled.selected_items[0].content
        == '{"description":"reads","name":"read","parameters":{"ü":0.5}}'
    )


def test_the_prefix_stays_the_same_from_step_to_step(compile_items: Compile) -> None:
    first = compile_items(some_of_everything(), tool_specs=TOOLS)
    later = [
        item("a2", "assistant_msg", "done"),
        item("u3", "user_msg", "next"),
        item("more", "memory"),
    ]
    second = compile_items(
        [*some_of_everything(), *later], tool_specs=TOOLS[::-1], step_id="2", as_of=5
    )
    assert second.sections[0] == first.sections[0]
    assert second.volatile_suffix_hash != first.volatile_suffix_hash


def test_a_section_digest_is_of_what_is_said_and_not_of_ids(compile_items: Compile) -> None:
    first = compile_items([item("a", "system", "Be kind."), item("b", "system", "Be brief.")])
    same = compile_items([item("x", "system", "Be kind."), item("y", "system", "Be brief.")])
    swapped = compile_items([item("y", "system", "Be kind."), item("x", "system", "Be brief.")])
    assert first.stable_prefix_hash == same.stable_prefix_hash != swapped.stable_prefix_hash


def test_the_id_depends_on_what_is_asked_and_not_on_who_asks_when_in_a_run(
    compile_items: Compile,
) -> None:
    base = compile_items(some_of_everything())
    assert (
        compile_items(some_of_everything(), request_id="s", run_id="t", step_id="u").id == base.id
    )


@pytest.mark.parametrize(
    "change",
    [
        {"token_budget": 999},
        {"response_reserve": 1},
        {"as_of": 7},
        {"provider": "p"},
        {"model": "m"},
        {"environment": "e"},
        {"agent": "a"},
        {"task_type": "t"},
        {"query": "q"},
        {"relevance": {"mem": 3}},
        {"compile_config": CompileConfig(weights=ScoreWeights(trust=151))},
        {"tool_specs": TOOLS},
    ],
)
def test_the_id_changes_with_every_input_that_means_something(
    compile_items: Compile, change: dict[str, Any]
) -> None:
    assert (
        compile_items(some_of_everything(), **change).id != compile_items(some_of_everything()).id
    )


def test_text_that_is_not_ascii_or_even_valid_has_a_digest(compile_items: Compile) -> None:
    odd = item("ö", "memory", "lone \ud800 surrogate", metadata={"schlüssel": [1.5, None]})
    assert compile_items([odd]).id == compile_items([odd]).id
    assert chosen(compile_items([odd])) == ["ö"]


def chosen(compiled: CompiledContext) -> list[str]:
    return [item.id for item in compiled.selected_items]


def test_a_diff_names_what_went_in_fell_out_and_changed(compile_items: Compile) -> None:
    before = compile_items(
        [
            item("u", "user_msg"),
            item("stays", "memory"),
            item("gone", "memory"),
            item("edited", "memory", "was so"),
        ]
    )
    after = compile_items(
        [
            item("u", "user_msg"),
            item("stays", "memory"),
            item("come", "memory"),
            item("edited", "memory", "is so"),
        ]
    )
    diff = diff_compiled(before, after)

    assert [change.item_id for change in diff.added] == ["come"]
    assert [change.item_id for change in diff.removed] == ["gone"]
    assert [change.item_id for change in diff.changed] == ["edited"]
    assert (diff.unchanged, diff.tokens_before, diff.tokens_after) == (2, 8, 8)
    assert diff.changed[0].before == before.decision("edited")
    assert not diff.is_empty


def test_a_diff_tells_why_an_item_left(compile_items: Compile) -> None:
    items = [item("u", "user_msg"), item("m", "memory"), item("s", "system")]
    diff = diff_compiled(compile_items(items), compile_items(items, token_budget=4))
    (change,) = diff.removed
    assert change.after is not None
    assert change.after.reason_code == "over_budget"
    assert not diff.stable_prefix_changed
    assert diff_compiled(compile_items(items), compile_items(items[:2])).stable_prefix_changed


def test_the_room_shows_few_names() -> None:
    assert tallystick.compiler.__all__ == [
        "FRAMED",
        "Outline",
        "PASSES",
        "all_candidates",
        "approvals",
        "compile_context",
        "diff_compiled",
        "latest_request",
        "outline",
        "prepare",
        "prefix_reuse",
        "prompt_text",
        "receipts_wanted",
        "searchable_texts",
        "visible_items",
        "withholding_rules",
    ]
    assert tallystick.compiler.PASSES == (
        "normalize",
        "validate",
        "dedupe",
        "dependencies",
        "conflicts",
        "scoring",
        "budgeting",
        "compression",
        "policy",
        "layout",
    )
