"""Calls and results: what providers accept goes in together, what they refuse stays out."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tallystick.records import CompiledContext, ContextItem

Compile = Callable[..., CompiledContext]


def user(name: str, content: str = "hello", **fields: object) -> ContextItem:
    return ContextItem.load({"id": name, "kind": "user_msg", "content": content, **fields})


def call(name: str, *calls: str, **fields: object) -> ContextItem:
    return ContextItem.load(
        {"id": name, "kind": "assistant_msg", "content": "", "tool_call_ids": calls, **fields}
    )


def result(name: str, answers: str | None, content: str = "done", **fields: object) -> ContextItem:
    return ContextItem.load(
        {"id": name, "kind": "tool_result", "content": content, "tool_call_id": answers, **fields}
    )


def said(name: str, content: str = "so it is") -> ContextItem:
    return ContextItem(id=name, kind="assistant_msg", content=content)


def order(compiled: CompiledContext) -> list[str]:
    return [item.id for item in compiled.selected_items]


def reasons(compiled: CompiledContext) -> dict[str, tuple[str, str | None]]:
    return {d.item_id: (d.reason_code, d.related_id) for d in compiled.decisions}


def test_parallel_calls_and_their_results_stand_together_in_order(compile_items: Compile) -> None:
    talk = [user("u"), call("c", "1", "2"), result("r2", "2"), result("r1", "1"), said("a")]
    assert order(compile_items(talk)) == ["u", "c", "r2", "r1", "a"]


def test_a_result_that_came_late_moves_up_to_its_call(compile_items: Compile) -> None:
    talk = [call("c", "1"), user("u"), result("r", "1")]
    assert order(compile_items(talk)) == ["c", "r", "u"]


def test_a_result_whose_call_is_not_there_is_out(compile_items: Compile) -> None:
    compiled = compile_items([user("u"), result("r", "1", tags=["blocking"]), said("a")])
    assert reasons(compiled)["r"] == ("unpaired_tool_result", None)
    assert compiled.decision("r").notes == "call 1 is not there"


def test_a_result_before_its_call_is_out_and_so_is_the_call(compile_items: Compile) -> None:
    compiled = compile_items([result("r", "1"), call("c", "1"), user("u")])
    assert reasons(compiled) == {
        "r": ("unpaired_tool_result", None),
        "c": ("tool_pair_excluded", None),
        "u": ("required_latest_request", None),
    }


def test_a_second_answer_to_one_call_is_out_and_points_to_the_first(compile_items: Compile) -> None:
    compiled = compile_items([user("u"), call("c", "1"), result("r", "1"), result("again", "1")])
    assert order(compiled) == ["u", "c", "r"]
    assert reasons(compiled)["again"] == ("unpaired_tool_result", "r")


def test_call_ids_that_are_counted_anew_in_each_turn_pair_with_the_nearest_call(
    compile_items: Compile,
) -> None:
    talk = [
        user("u1"),
        call("c1", "call_0"),
        result("r1", "call_0"),
        user("u2"),
        call("c2", "call_0"),
        result("r2", "call_0"),
    ]
    assert order(compile_items(talk)) == ["u1", "c1", "r1", "u2", "c2", "r2"]


def test_an_unanswered_call_is_fine_at_the_end_and_out_anywhere_else(
    compile_items: Compile,
) -> None:
    pending = compile_items([user("u"), call("c", "1", "2"), result("r", "1")])
    assert order(pending) == ["u", "c", "r"]
    assert pending.decision("c").notes == "waiting for 2"

    abandoned = compile_items([user("u1"), call("c", "1", "2"), result("r", "1"), user("u2")])
    assert order(abandoned) == ["u1", "u2"]
    assert abandoned.decision("c").notes == "no result for 2"
    assert reasons(abandoned)["r"] == ("tool_pair_excluded", "c")


def test_a_late_result_does_not_make_an_unanswered_call_the_last_thing(
    compile_items: Compile,
) -> None:
    """It would move up to its call, and the request would stand behind a call without a result."""
    assert order(compile_items([call("c", "1", "2"), user("u"), result("r", "2")])) == ["u"]


def test_changed_artifacts_do_not_stand_behind_a_waiting_call(compile_items: Compile) -> None:
    diff = ContextItem(id="d", kind="code_diff", content="+ one")
    assert order(compile_items([diff, said("a"), call("c", "1")])) == ["a", "d", "c"]


def test_an_empty_result_is_an_answer(compile_items: Compile) -> None:
    assert order(compile_items([user("u"), call("c", "1"), result("r", "1", content="")])) == [
        "u",
        "c",
        "r",
    ]


def test_a_group_that_does_not_fit_is_out_as_a_whole(compile_items: Compile) -> None:
    talk = [
        user("u1"),
        call("c", "1"),
        result("r", "1", content="word " * 50),
        said("a"),
        user("u2"),
    ]
    compiled = compile_items(talk, token_budget=40)
    # The window has no gap: what was said before the group is quoted.
    assert order(compiled) == ["a", "u1", "u2"]
    assert reasons(compiled)["c"] == ("compacted", "a")
    assert reasons(compiled)["r"] == ("tool_pair_excluded", "c")


def test_an_expired_result_takes_its_call_along(compile_items: Compile) -> None:
    talk = [
        user("u1"),
        call("c", "1"),
        result("r", "1", created_at=1, ttl_seconds=1),
        said("a"),
        user("u2"),
    ]
    assert reasons(compile_items(talk))["c"] == ("tool_pair_excluded", "r")


@pytest.mark.parametrize("tags", [(), ("blocking",)])
def test_results_nobody_took_up_and_blocking_ones_are_required(
    compile_items: Compile, tags: tuple[str, ...]
) -> None:
    talk = [call("c", "1"), result("r", "1", tags=tags)]
    # A blocking result stays required when others follow; a plain one only while it is of the
    # current turn.
    talk = [*talk, said("a"), user("u")] if tags else [user("u"), *talk]
    compiled = compile_items(talk)
    assert reasons(compiled)["r"] == ("required_tool_result", None)
    assert reasons(compiled)["c"] == ("tool_pair_of_included", "r")
    assert compiled.decision("r").final_tokens > 0


def test_a_long_turn_gives_up_results_that_were_taken_up_before_it_fails(
    compile_items: Compile,
) -> None:
    """An agent that calls a hundred tools for one request must not run into its own history."""
    talk = [user("u")]
    for number in range(100):
        talk += [
            call(f"c{number:02}", f"{number}"),
            result(f"r{number:02}", f"{number}", content="word " * 10),
        ]
    compiled = compile_items(talk, token_budget=200)

    chosen = order(compiled)
    assert chosen[0] == "u"
    assert chosen[-2:] == ["c99", "r99"]
    assert reasons(compiled)["r99"] == ("required_tool_result", None)
    assert reasons(compiled)["c98"] == ("selected_by_score", None)
    assert chosen[1:] == [
        name for number in range(81, 100) for name in (f"c{number}", f"r{number}")
    ]


def test_without_any_request_only_what_nobody_took_up_is_required(compile_items: Compile) -> None:
    talk = [call("c1", "1"), result("r1", "1"), call("c2", "2"), result("r2", "2")]
    reason_codes = reasons(compile_items(talk))
    assert reason_codes["r1"] == ("tool_pair_of_included", "c1")
    assert reason_codes["r2"] == ("required_tool_result", None)
