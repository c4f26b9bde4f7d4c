"""What is chosen: copies, needs, contradictions, scores and the budget."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tallystick.compiler import prefix_reuse
from tallystick.compiler.dependencies import items_on_cycles
from tallystick.compiler.scoring import half_life_decay
from tallystick.errors import BudgetInfeasible, InvalidContext, SettingsError
from tallystick.records import (
    CompilationRequest,
    CompileConfig,
    CompiledContext,
    ContextItem,
    Memory,
    Scope,
    ScoreWeights,
    TargetProfile,
    ToolSpec,
)

Compile = Callable[..., CompiledContext]
NOW = 1_000_000_000_000
DAY = 24 * 3600 * 1_000_000


def item(
    name: str, content: str | None = None, kind: str = "memory", **fields: object
) -> ContextItem:
    return ContextItem.load(
        {"id": name, "kind": kind, "content": name if content is None else content, **fields}
    )


def reason(compiled: CompiledContext, name: str) -> tuple[str, str | None]:
    decision = compiled.decision(name)
    return decision.reason_code, decision.related_id


def chosen(compiled: CompiledContext) -> list[str]:
    return [item.id for item in compiled.selected_items]


# Candidates


def test_two_candidates_with_one_id_are_refused(compile_items: Compile) -> None:
    memory = Memory(
        id="a",
        scope=Scope.parse("private:ann"),
        content="x",
        created_at=1,
        updated_at=1,
        created_by="ann",
    )
    with pytest.raises(InvalidContext) as refused:
        compile_items([item("a"), item("b")], memory_records=(memory,))
    assert refused.value.item_ids == ("a",)


def test_empty_and_expired_items_are_out(compile_items: Compile) -> None:
    compiled = compile_items(
        [
            item("blank", " \n"),
            item("image", "", token_estimate=50),
            item("old", freshness_ts=NOW - 2_000_000, ttl_seconds=2),
            item("fresh", freshness_ts=NOW - 1_999_999, ttl_seconds=2),
            item("undated", ttl_seconds=5),
            item("never", ttl_seconds=0),
        ]
    )
    assert chosen(compiled) == ["fresh", "image", "undated"]
    assert reason(compiled, "blank") == ("empty", None)
    assert reason(compiled, "old") == reason(compiled, "never") == ("expired", None)


def test_the_larger_of_count_and_given_estimate_is_taken(compile_items: Compile) -> None:
    compiled = compile_items(
        [item("less", "one two three", token_estimate=1), item("more", "one", token_estimate=9)]
    )
    assert {d.item_id: d.final_tokens for d in compiled.decisions} == {"less": 3, "more": 9}


# Copies


def test_of_copies_the_most_trusted_stays_and_the_others_point_to_it(
    compile_items: Compile,
) -> None:
    compiled = compile_items(
        [
            item("a", "same", trust_score=10),
            item("b", "same", trust_score=90),
            item("c", "same", kind="file"),
        ]
    )
    assert chosen(compiled) == ["b", "c"]
    assert reason(compiled, "a") == ("duplicate", "b")


def test_a_required_copy_stays_even_when_another_is_more_trusted(compile_items: Compile) -> None:
    compiled = compile_items(
        [item("a", "same", tags=["pinned"], trust_score=1), item("b", "same", trust_score=99)]
    )
    assert reason(compiled, "b") == ("duplicate", "a")
    assert reason(compiled, "a") == ("required_pinned", None)


def test_turns_are_never_copies_of_one_another(compile_items: Compile) -> None:
    compiled = compile_items([item("a", "yes", kind="user_msg"), item("b", "yes", kind="user_msg")])
    assert chosen(compiled) == ["a", "b"]


def test_a_stale_digest_given_with_an_item_does_not_make_it_a_copy(compile_items: Compile) -> None:
    compiled = compile_items([item("a", "one", stable_hash="h"), item("b", "two", stable_hash="h")])
    assert chosen(compiled) == ["a", "b"]


def test_the_kept_copy_has_the_best_relevance_of_all(compile_items: Compile) -> None:
    compiled = compile_items(
        [item("a", "same", trust_score=99), item("b", "same")], relevance={"a": 1_000, "b": 500_000}
    )
    assert compiled.decision("a").score_breakdown["relevance"] == 200_000


# Needs


def test_a_chosen_item_brings_what_it_needs(compile_items: Compile) -> None:
    """`needed` alone would be the last to be chosen."""
    items = [
        item("top", "word " * 10, dependencies=["needed"]),
        item("needed", "x " * 10, trust_score=0),
    ]
    items += [item(f"other{n}", f"{n} " * 10) for n in range(5)]
    compiled = compile_items(items, token_budget=30, relevance={"top": 1_000_000})
    assert reason(compiled, "top") == ("selected_by_score", None)
    assert reason(compiled, "needed") == ("dependency_of_included", "top")


def test_what_misses_something_it_needs_is_out_and_so_is_what_needs_it(
    compile_items: Compile,
) -> None:
    compiled = compile_items([item("a", dependencies=["b"]), item("b", dependencies=["nowhere"])])
    assert reason(compiled, "b") == ("dependency_missing", "nowhere")
    assert reason(compiled, "a") == ("dependency_excluded", "b")


def test_a_need_for_a_copy_is_met_by_the_one_that_was_kept(compile_items: Compile) -> None:
    compiled = compile_items(
        [
            item("a", dependencies=["copy"]),
            item("copy", "same", trust_score=1),
            item("kept", "same"),
        ]
    )
    assert chosen(compiled) == ["a", "kept"]


def test_what_required_items_need_is_required(compile_items: Compile) -> None:
    items = [
        item("top", kind="system", dependencies=["a"]),
        item("a", dependencies=["b"]),
        item("b", trust_score=0),
    ]
    compiled = compile_items([*items, item("other", trust_score=100)], token_budget=3)
    assert chosen(compiled) == ["top", "a", "b"]
    assert reason(compiled, "b") == ("dependency_of_included", "a")


def test_a_required_item_stays_without_what_it_needs_and_says_so(compile_items: Compile) -> None:
    compiled = compile_items(
        [
            item("s", kind="system", dependencies=["nowhere", "gone"]),
            item("gone", "x", ttl_seconds=0),
        ]
    )
    assert chosen(compiled) == ["s"]
    assert compiled.decision("s").notes == "misses nowhere; misses gone"


def test_what_does_not_fit_with_its_needs_is_out_although_it_would_fit_alone(
    compile_items: Compile,
) -> None:
    compiled = compile_items(
        [item("a", dependencies=["huge"]), item("huge", "word " * 20)],
        token_budget=10,
        compile_config=CompileConfig(compression=False),
    )
    assert reason(compiled, "huge") == ("over_budget", None)
    assert reason(compiled, "a") == ("dependency_excluded", "huge")


def test_items_that_depend_on_one_another_in_a_circle_are_refused_by_name(
    compile_items: Compile,
) -> None:
    items = [
        item("a", dependencies=["b"]),
        item("b", dependencies=["c"]),
        item("c", dependencies=["a"]),
    ]
    with pytest.raises(InvalidContext) as refused:
        compile_items(
            [*items, item("d", dependencies=["a"]), item("e"), item("f", dependencies=["e"])]
        )
    assert refused.value.item_ids == ("a", "b", "c")
    with pytest.raises(InvalidContext):
        compile_items([item("a", dependencies=["a"])])


def test_a_result_may_name_its_call_as_a_need(compile_items: Compile) -> None:
    compiled = compile_items(
        [
            item("c", "", kind="assistant_msg", tool_call_ids=["1"], dependencies=["r"]),
            item("r", kind="tool_result", tool_call_id="1", dependencies=["c"]),
        ]
    )
    assert chosen(compiled) == ["c", "r"]


@given(st.dictionaries(st.sampled_from("abcdef"), st.lists(st.sampled_from("abcdef"), max_size=3)))
def test_a_cycle_is_found_exactly_when_there_is_one(edges: dict[str, list[str]]) -> None:
    def reaches_itself(start: str) -> bool:
        seen: set[str] = set()
        ahead = [start]
        while ahead:
            for other in edges.get(ahead.pop(), []):
                if other == start:
                    return True
                if other not in seen:
                    seen.add(other)
                    ahead.append(other)
        return False

    on_cycles = {name for name in edges if reaches_itself(name)}
    cyclic = set(items_on_cycles(edges))
    assert on_cycles <= cyclic
    assert bool(cyclic) == bool(on_cycles)


# Contradictions


def test_of_two_that_say_different_things_about_one_subject_the_fresher_stays(
    compile_items: Compile,
) -> None:
    compiled = compile_items(
        [
            item("old", "lives in Rome", metadata={"subject": "home"}, freshness_ts=1),
            item("new", "lives in Oslo", metadata={"subject": "home"}, freshness_ts=2),
            item("else", "a file", kind="file", metadata={"subject": "home"}, freshness_ts=0),
        ]
    )
    assert chosen(compiled) == ["new", "else"]
    assert reason(compiled, "old") == ("conflict_loser", "new")


def test_fresh_hearsay_does_not_displace_what_is_well_known(compile_items: Compile) -> None:
    compiled = compile_items(
        [
            item(
                "known",
                "lives in Rome",
                metadata={"subject": "home"},
                freshness_ts=1,
                trust_score=90,
            ),
            item(
                "rumour",
                "lives in Oslo",
                metadata={"subject": "home"},
                freshness_ts=2,
                trust_score=20,
            ),
        ]
    )
    assert reason(compiled, "rumour") == ("conflict_loser", "known")


def test_memories_of_different_kinds_do_not_contradict_one_another(compile_items: Compile) -> None:
    def memory(name: str, kind: str) -> Memory:
        return Memory(
            id=name,
            kind=kind,
            subject="Ann",
            content=name,
            scope=Scope.parse("private:ann"),
            created_at=1,
            updated_at=1,
            created_by="ann",
        )

    records = (memory("a", "fact"), memory("b", "preference"), memory("c", "fact"))
    assert chosen(compile_items(memory_records=records)) == ["a", "b"]


def rival(name: str, trust: int, at: int, **fields: Any) -> Memory:
    return Memory(
        id=name,
        content=f"{name} says so",
        scope=Scope.parse("private:ann"),
        confidence=trust,
        freshness_ts=at,
        created_at=1,
        updated_at=1,
        created_by="ann",
        **fields,
    )


def test_of_two_memories_that_the_tally_knows_to_contradict_the_better_stays(
    compile_items: Compile,
) -> None:
    records = (rival("known", 90, 1), rival("new", 50, 3), rival("old", 50, 2), rival("x", 50, 1))
    pairs = (("known", "new"), ("new", "old"), ("absent", "x"), ("old", "x"))
    compiled = compile_items(memory_records=records, contradictions=pairs)
    assert chosen(compiled) == ["known", "old"]
    assert reason(compiled, "new") == ("conflict_loser", "known"), "trust goes before freshness"
    assert reason(compiled, "x") == ("conflict_loser", "old"), "what lost puts nothing out itself"


def test_memories_that_are_required_stay_both_and_the_contradiction_is_noted(
    compile_items: Compile,
) -> None:
    records = (rival("new", 50, 2, pinned=True), rival("old", 50, 1, pinned=True))
    compiled = compile_items(memory_records=records, contradictions=(("new", "old"),))
    assert chosen(compiled) == ["new", "old"]
    assert compiled.decision("old").notes == "contradicts new"


def test_what_the_tally_knows_stands_for_the_subjects_of_memories(compile_items: Compile) -> None:
    records = (rival("new", 50, 2, subject="home"), rival("old", 50, 1, subject="home"))
    assert chosen(compile_items(memory_records=records)) == ["new"]
    assert chosen(compile_items(memory_records=records, contradictions=())) == ["new", "old"]


def test_the_digest_of_a_request_without_contradictions_is_what_it_was() -> None:
    request = CompilationRequest(request_id="r", token_budget=100, as_of=1)
    assert "contradictions" not in request.dump()
    known = request.replace(contradictions=(("a", "b"),))
    assert CompilationRequest.load(known.dump()) == known


def test_an_item_replaces_those_it_names_and_their_copies(compile_items: Compile) -> None:
    compiled = compile_items(
        [
            item("new", metadata={"supersedes": ["copy", "unknown"]}),
            item("kept", "same", trust_score=90),
            item("copy", "same"),
            item("dependent", dependencies=["kept"]),
        ]
    )
    assert chosen(compiled) == ["new"]
    assert reason(compiled, "kept") == ("superseded", "new")
    assert reason(compiled, "dependent") == ("dependency_excluded", "kept")


def test_what_was_replaced_does_not_come_true_again_when_its_replacement_expires(
    compile_items: Compile,
) -> None:
    compiled = compile_items(
        [item("new", metadata={"supersedes": ["old"]}, ttl_seconds=0), item("old")]
    )
    assert chosen(compiled) == []


def test_required_items_never_lose_and_the_contradiction_is_noted(compile_items: Compile) -> None:
    compiled = compile_items(
        [
            item(
                "hard",
                "no red",
                kind="constraint",
                tags=["hard"],
                metadata={"subject": "colour"},
                trust_score=1,
            ),
            item(
                "soft",
                "red",
                kind="constraint",
                metadata={"subject": "colour", "supersedes": ["hard"]},
            ),
        ]
    )
    assert reason(compiled, "hard") == ("required_constraint", None)
    assert reason(compiled, "soft") == ("conflict_loser", "hard")
    assert compiled.decision("hard").notes == "soft says it replaces this"


def test_items_that_replace_one_another_in_a_circle_are_refused(compile_items: Compile) -> None:
    with pytest.raises(InvalidContext) as refused:
        compile_items(
            [item("a", metadata={"supersedes": ["b"]}), item("b", metadata={"supersedes": ["a"]})]
        )
    assert refused.value.item_ids == ("a", "b")


# Scores


def test_the_score_is_the_sum_of_its_terms(compile_items: Compile) -> None:
    compiled = compile_items(
        [
            item(
                "a",
                sensitivity="restricted",
                trust_score=80,
                importance_score=40,
                tags=["pinned"],
                freshness_ts=NOW - 7 * DAY,
                ttl_seconds=28 * 24 * 3600,
            ),
            item("b", dependencies=["a"]),
        ],
        relevance={"a": 500_000},
    )
    assert compiled.decision("a").score_breakdown == {
        "relevance": 200_000,
        "freshness": 75_000,
        "trust": 120_000,
        "importance": 60_000,
        "dependency": 12_500,
        "pin": 300_000,
        "staleness": -50_000,
        "risk": -50_000,
        "total": 667_500,
    }


def test_weights_decide_what_is_chosen(compile_items: Compile) -> None:
    items = [item("trusted", trust_score=100), item("important", importance_score=100)]
    for winner, weights in (
        ("trusted", ScoreWeights(trust=900)),
        ("important", ScoreWeights(importance=900)),
    ):
        compiled = compile_items(
            items, token_budget=1, compile_config=CompileConfig(weights=weights)
        )
        assert chosen(compiled) == [winner]


@given(st.integers(0, 10**15), st.integers(1, 10**12))
def test_freshness_halves_with_each_half_life_and_never_grows_with_age(
    age: int, half_life: int
) -> None:
    assert half_life_decay(age + 1, half_life) <= half_life_decay(age, half_life)
    assert (
        abs(2 * half_life_decay(age + half_life, half_life) - half_life_decay(age, half_life)) <= 2
    )


# The budget


def test_required_items_that_do_not_fit_are_listed_with_their_tokens(
    compile_items: Compile,
) -> None:
    with pytest.raises(BudgetInfeasible) as refused:
        compile_items(
            [
                item("s", "one two three", kind="system"),
                item("u", "four five", kind="user_msg"),
                item("m"),
            ],
            tool_specs=(ToolSpec(name="t"),),
            token_budget=30,
            response_reserve=10,
            target=TargetProfile(per_item=2, per_tool=8, per_request=3),
        )
    assert refused.value.budget == 17
    assert refused.value.required == {"s": 5, "tool:t": 9, "u": 4}


def test_required_items_that_fit_exactly_are_enough(compile_items: Compile) -> None:
    compiled = compile_items(
        [
            item("s", "one two three", kind="system"),
            item("u", "four five", kind="user_msg"),
            item("m"),
        ],
        token_budget=25,
        response_reserve=10,
        target=TargetProfile(per_item=3, per_request=4),
    )
    assert chosen(compiled) == ["s", "u"]
    assert compiled.token_allocation["free"] == 0
    assert reason(compiled, "m") == ("over_budget", None)


def test_a_relevant_item_goes_before_many_small_ones(compile_items: Compile) -> None:
    items = [item("answer", "word " * 60)] + [item(f"small{n}", f"{n} x") for n in range(40)]
    compiled = compile_items(items, token_budget=90, relevance={"answer": 1_000_000})
    assert "answer" in chosen(compiled)
    assert compiled.token_allocation["used"] == 90


def test_a_long_conversation_leaves_room_for_what_was_found(compile_items: Compile) -> None:
    talk = [item(f"t{n:03}", "word " * 10, kind="user_msg") for n in range(100)]
    hits = [item(f"m{n}", f"{n} " * 10) for n in range(100)]
    compiled = compile_items([*talk, *hits], token_budget=500)
    allocation = compiled.token_allocation
    assert 500 * 65 // 100 // 5 <= allocation["working_memory"] <= 500 * 65 // 100
    assert allocation["retrieval"] >= 500 * 35 // 100 - 10
    assert allocation["free"] == 0


def test_a_conversation_without_relevance_is_its_newest_turns_without_gaps(
    compile_items: Compile,
) -> None:
    talk = [item(f"t{n:02}", "word " * (n % 5 + 1), kind="user_msg") for n in range(40)]
    compiled = compile_items(talk, token_budget=60)
    names = sorted(chosen(compiled))
    assert names == [f"t{n:02}" for n in range(40 - len(names), 40)]
    assert reason(compiled, "t00") == ("compacted", compiled.sections[1].item_ids[0])


def test_a_relevant_old_turn_is_quoted_after_the_newest_ones(compile_items: Compile) -> None:
    talk = [item(f"t{n:02}", f"turn {n} " * 5, kind="user_msg") for n in range(40)]
    compiled = compile_items(talk, token_budget=100, relevance={"t03": 1_000_000})
    sections = {section.name: section.item_ids for section in compiled.sections}
    assert (
        sections["history"]
        == tuple(f"t{n:02}" for n in range(39 - len(sections["history"]), 39))
        != ()
    )
    assert sections["task_context"][0] == "t03"
    assert sections["volatile_suffix"] == ("t39",)
    assert compiled.token_allocation["free"] == 0


def test_the_old_turn_that_answers_best_is_not_left_out_for_its_length(
    compile_items: Compile,
) -> None:
    talk = [item(f"t{n:02}", f"turn {n} " * 5, kind="user_msg") for n in range(80)]
    talk[3] = item("t03", "The kiln reaches cone ten at noon. " * 60, kind="user_msg")
    relevance = {f"t{n:02}": 700_000 for n in range(5, 70)} | {"t03": 1_000_000}
    compiled = compile_items(talk, token_budget=400, relevance=relevance)
    assert compiled.decision("t03").decision == "compress"


def test_decisions_and_open_questions_outlast_a_compaction(compile_items: Compile) -> None:
    talk = [item(f"t{n:02}", f"turn {n} " * 5, kind="user_msg") for n in range(40)]
    talk[2] = item("t02", "We ship on Friday. " * 3, kind="assistant_msg", tags=["decision"])
    talk[5] = item("t05", "Who signs it off? " * 3, kind="user_msg", tags=["open_question"])
    relevance = {f"t{n}": 900_000 for n in range(10, 30)}
    compiled = compile_items(talk, token_budget=100, relevance=relevance)
    assert {"t02", "t05"} <= set(chosen(compiled))


def test_turns_and_memories_compete_for_what_the_window_leaves(compile_items: Compile) -> None:
    talk = [item(f"t{n:02}", f"turn {n} " * 5, kind="user_msg") for n in range(40)]
    hits = [item(f"m{n}", f"fact {n} " * 5) for n in range(10)]
    compiled = compile_items(
        [*talk, *hits], token_budget=100, relevance={"t03": 900_000, "m7": 1_000_000, "m2": 5}
    )
    assert {"t03", "m7"} <= set(chosen(compiled))


def test_a_ceiling_holds_a_class_back(compile_items: Compile) -> None:
    items = [item(f"m{n}", f"{n} " * 10) for n in range(10)] + [
        item("sum", "x " * 10, kind="summary")
    ]
    config = CompileConfig(class_ceilings={"retrieval": 30}, compression=False)
    compiled = compile_items(items, token_budget=100, compile_config=config)
    assert compiled.token_allocation["retrieval"] == 30
    assert compiled.token_allocation["summaries"] == 10
    assert reason(compiled, "m9") == ("class_budget", None)


def test_a_ceiling_on_an_unknown_class_is_refused(compile_items: Compile) -> None:
    with pytest.raises(SettingsError, match="memories"):
        compile_items(compile_config=CompileConfig(class_ceilings={"memories": 10}))


def test_ties_are_settled_by_id(compile_items: Compile) -> None:
    items = [item(name, f"word {n}") for n, name in enumerate("dbca")]
    assert chosen(compile_items(items, token_budget=4)) == ["a", "b"]


def test_nothing_at_all_compiles_to_nothing(compile_items: Compile) -> None:
    compiled = compile_items(target=TargetProfile())
    assert compiled.selected_items == ()
    assert compiled.token_allocation["used"] == 3


def test_long_turns_of_a_long_conversation_are_shortened_alike_from_step_to_step(
    compile_items: Compile,
) -> None:
    page = "It depends on the glaze. " * 200
    talk = [
        item(
            f"t{n:02}",
            f"Question {n} about kilns?" if n % 2 == 0 else f"Answer {n}. {page}",
            kind="user_msg" if n % 2 == 0 else "assistant_msg",
        )
        for n in range(41)
    ]

    before = compile_items(talk[:39], token_budget=4_000, relevance={"t02": 1_000_000})
    after = compile_items(talk, token_budget=4_000, relevance={"t04": 1_000_000})

    history = {section.name: section.item_ids for section in after.sections}["history"]
    answers = [name for name in history if int(name[1:]) % 2]
    assert len(answers) >= 8
    for name in answers:
        decision = after.decision(name)
        assert (decision.decision, decision.reason_code) == ("compress", "compressed_extractive")
        assert decision.original_tokens > 1_000
        assert decision.final_tokens <= 128
    assert after.token_allocation["used"] <= 4_000
    reuse = prefix_reuse(before, after)
    assert reuse.reused >= reuse.zone * 0.9


def test_the_window_begins_after_a_unit_that_is_larger_than_all_of_it(
    compile_items: Compile,
) -> None:
    talk = [item(f"t{n}", f"turn {n} " * 5, kind="user_msg") for n in range(9)]
    talk[4] = item("t4", "word " * 500, kind="user_msg", metadata={"images": [{"url": "x"}]})

    compiled = compile_items(talk, token_budget=100)

    sections = {section.name: section.item_ids for section in compiled.sections}
    assert sections["history"] == ("t5", "t6", "t7")
    assert "t4" not in chosen(compiled)


@pytest.mark.parametrize(
    "protected",
    [
        {"tags": ["decision"]},
        {"tags": ["evidence"]},
        {"tags": ["pinned"]},
        {"metadata": {"images": [{"url": "https://example.org/a.png"}]}},
        {"token_estimate": 2_000},
    ],
)
def test_a_turn_that_is_more_than_its_text_is_never_cut(
    compile_items: Compile, protected: dict[str, Any]
) -> None:
    page = "It depends on the glaze. " * 100
    talk = [item(f"t{n:02}", f"Answer {n}. {page}", kind="assistant_msg") for n in range(20)]
    talk[17] = item("t17", page, kind="assistant_msg", **protected)
    talk.append(item("now", "And the kiln?", kind="user_msg"))

    compiled = compile_items(talk, token_budget=4_000, relevance={"t17": 1_000_000})

    assert compiled.decision("t16").decision != "include"
    assert compiled.decision("t17").decision in ("include", "exclude")


def test_the_newest_answer_is_whole_where_it_takes_little_of_the_budget(
    compile_items: Compile,
) -> None:
    page = "It depends on the glaze. " * 60
    talk = [item(f"t{n:02}", f"Answer {n}. {page}", kind="assistant_msg") for n in range(20)]
    talk.append(item("now", "And shorter, please?", kind="user_msg"))

    compiled = compile_items(talk, token_budget=4_000)

    assert compiled.decision("t19").decision == "include"
    assert compiled.decision("t16").decision == "compress"
