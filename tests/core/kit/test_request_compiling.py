"""Each adapter compiles its requests in one way, with the same arguments."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tallystick.errors import ActionDenied, InvalidInput, InvalidRecord
from tallystick.kit import RequestCompiler, RequestParts, memory_text
from tallystick.records import (
    Actor,
    CompilationRequest,
    CompileConfig,
    CompiledContext,
    ContextItem,
    PolicyRule,
    ToolSpec,
)
from tallystick.tally import Tally

OpenTally = Callable[..., Tally]
ANNA = Actor(user="anna")
ITEMS = (
    ContextItem(id="system", kind="system", content="You are brief."),
    ContextItem(id="ask", kind="user_msg", content="Where is the key of the boat?"),
)


def parts(**fields: Any) -> RequestParts:
    return RequestParts(**{"items": ITEMS, "text": ITEMS[-1].content, **fields})


def test_a_whole_request_and_what_memory_adds_say_what_they_are(open_sqlite: OpenTally) -> None:
    with open_sqlite() as tally:
        anna = tally.bind(ANNA)
        key = anna.remember("The key of the boat is on the hook.").id

        whole = RequestCompiler().compile(anna, parts())
        added = RequestCompiler(context="memory").compile(anna, parts())
        plain = anna.compile(ITEMS, budget=1_000)

        assert [item.id for item in whole.selected_items] == ["system", key, "ask"]
        assert [item.id for item in added.selected_items] == [key]
        assert "on the hook" in memory_text(added)
        assert [each.coverage for each in (whole, added, plain)] == ["whole", "recalled", "whole"]
        # What a receipt says it covers is part of its digest.
        at: dict[str, Any] = {"budget": 1_000, "as_of": 1}
        recalled = anna.compile(ITEMS, coverage="recalled", **at)
        assert recalled.id != anna.compile(ITEMS, **at).id


def test_the_turns_of_a_conversation_that_is_in_the_request_are_not_recalled(
    open_sqlite: OpenTally,
) -> None:
    with open_sqlite() as tally:
        anna = tally.bind(ANNA)
        said = "The key of the boat is on the hook."
        anna.remember(said, kind="turn", conversation="one")

        def kinds(conversation: str) -> set[str]:
            compiled = RequestCompiler().compile(anna, parts(conversation=conversation))
            return {item.kind for item in compiled.selected_items}

        assert "memory" in kinds("two")
        assert "memory" not in kinds("one")


def test_what_memory_adds_is_no_part_of_the_prompts_of_a_run(open_sqlite: OpenTally) -> None:
    with open_sqlite() as tally:
        anna = tally.bind(ANNA)
        anna.remember("The key of the boat is on the hook.")
        with anna.run("pilot") as run:
            for context in ("request", "memory", "request", "memory"):
                mode: Any = context
                RequestCompiler(context=mode).compile(anna, parts())
        causes = [reuse.cause for _, reuse in anna.recordings.prefix_reuse(run.id)]
        assert causes == ["first", "first", "appended", "appended"]


def test_a_record_of_an_earlier_release_claims_no_coverage() -> None:
    request = CompilationRequest(request_id="r", token_budget=100, as_of=1)
    old = {**request.dump(), "schema_version": 1, "tool_specs": [{"name": "t", "tool_class": "x"}]}
    del old["coverage"]
    loaded = CompilationRequest.load(old)
    assert (loaded.coverage, loaded.tool_specs, loaded.schema_version) == (
        None,
        (ToolSpec(name="t"),),
        2,
    )
    assert CompiledContext.model_fields["coverage"].default is None
    with pytest.raises(InvalidRecord, match="read_only"):
        ToolSpec.load({"name": "t", "tool_class": "read"})


def test_the_budget_is_that_of_the_model_and_leaves_room_for_its_answer(
    open_sqlite: OpenTally,
) -> None:
    with open_sqlite() as tally:
        anna = tally.bind(ANNA)

        def room(compiler: RequestCompiler, **fields: Any) -> tuple[int, int]:
            allocation = compiler.compile(anna, parts(**fields)).token_allocation
            return allocation["budget"], allocation["response_reserve"]

        assert room(RequestCompiler()) == (32_000, 0)
        assert room(RequestCompiler(), window=8_000, reserve=1_000) == (8_000, 1_000)
        assert room(RequestCompiler(), window=8_000, reserve=9_000) == (8_000, 4_000)
        assert room(RequestCompiler(budget=900, reserve=100), window=8_000) == (900, 100)


def test_what_cannot_be_seen_into_is_counted(open_sqlite: OpenTally) -> None:
    with open_sqlite() as tally:
        anna = tally.bind(ANNA)
        used = [
            RequestCompiler().compile(anna, parts(untouched=untouched)).token_allocation["used"]
            for untouched in (0, 700)
        ]
        assert used[1] - used[0] == 700


def test_recalled_memories_stay_in_their_own_budget(open_sqlite: OpenTally) -> None:
    with open_sqlite() as tally:
        anna = tally.bind(ANNA)
        spare = "The spare one is in the drawer of the kitchen, behind the spoons. " * 25
        for name in ("ash", "elm", "oak", "fir"):
            anna.remember(f"The key of the boat of {name} is on the hook. {spare}")

        def tokens(**options: Any) -> int:
            compiler = RequestCompiler(budget=8_000, memories=0, **options)
            compiled = compiler.compile(anna, parts(items=[*ITEMS, *anna.memories()]))
            kinds = {item.id: item.kind for item in compiled.selected_items}
            return sum(
                decision.final_tokens
                for decision in compiled.decisions
                if kinds.get(decision.item_id) == "memory"
            )

        assert 0 < tokens(memory_budget=600) <= 600
        assert 600 < tokens() <= 2_000
        own = CompileConfig(memory_budget=300)
        assert 0 < tokens(compile_config=own) <= 300


def test_the_best_memory_that_is_cut_stays_in_the_budget_of_memories_too(
    open_sqlite: OpenTally,
) -> None:
    with open_sqlite() as tally:
        anna = tally.bind(ANNA)
        anna.remember("The key of the red boat is on the hook of the red boat. " * 60)
        for name in ("ash", "elm", "oak", "fir"):
            anna.remember(f"The key of the boat of {name} lies in the house. " * 6)
        compiler = RequestCompiler(budget=8_000, memories=0, memory_budget=260)
        asked = ContextItem(id="u", kind="user_msg", content="Where is the key of the red boat?")
        compiled = compiler.compile(anna, parts(items=[asked, *anna.memories()]))
        used = [
            decision.final_tokens
            for decision in compiled.decisions
            if decision.decision in ("include", "compress") and decision.item_id != "u"
        ]
        assert 0 < sum(used) <= 260


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"context": "everything"}, "`context` has to be 'request' or 'memory'"),
        ({"context": "memory", "budget": 100}, "`budget` does nothing with context='memory'"),
        ({"context": "memory", "reserve": 100}, "`reserve` does nothing"),
        ({"context": "memory", "history_share": 10}, "`history_share` does nothing"),
        ({"context": "memory", "turn_share": 10}, "`turn_share` does nothing"),
        ({"history_share": 101}, "`history_share` has to be at most 100"),
        ({"turn_share": 91}, "`turn_share` has to be at most 90"),
        ({"memory_budget": 0}, "`memory_budget` has to be an integer of at least 1"),
        ({"budget": 10, "reserve": 10}, "`budget` must be more than `reserve`"),
    ],
)
def test_what_cannot_be_honoured_is_refused(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        RequestCompiler(**arguments)


@pytest.mark.parametrize("option", ["budget", "memory_budget", "memories", "turn_share"])
def test_where_nothing_is_compiled_no_option_is_taken(option: str) -> None:
    assert RequestCompiler.of(False, memories=3) is None

    with pytest.raises(InvalidInput, match=f"`{option}` does nothing with context=False"):
        RequestCompiler.of(False, **{option: 50})


def test_a_rule_that_nothing_enforces_refuses_a_request_of_which_memory_is_compiled(
    open_sqlite: OpenTally,
) -> None:
    rule = PolicyRule.load(
        {
            "id": "no",
            "name": "no",
            "effect": "deny",
            "applies_to": "context_item",
            "conditions": {"kind": ["system"]},
        }
    )
    with open_sqlite(rules=[rule]) as tally:
        anna = tally.bind(ANNA)
        with pytest.raises(ActionDenied) as refused:
            RequestCompiler(context="memory").compile(anna, parts())
        assert refused.value.reason == "not_enforced"
        whole = RequestCompiler().compile(anna, parts())
        assert [item.id for item in whole.selected_items] == ["ask"]
