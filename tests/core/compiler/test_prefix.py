"""What a cache can reuse of a prompt, and why it is not more; a run reports it."""

from __future__ import annotations

from collections.abc import Callable

from tallystick import Actor, Tally
from tallystick.compiler import prefix_reuse
from tallystick.records import CompileConfig, CompiledContext, ContextItem, TargetProfile

Compile = Callable[..., CompiledContext]
OpenTally = Callable[..., Tally]


def item(name: str, content: str, kind: str = "user_msg", **fields: object) -> ContextItem:
    return ContextItem.load({"id": name, "kind": kind, "content": content, **fields})


def talk(turns: int) -> list[ContextItem]:
    kinds = ("user_msg", "assistant_msg")
    return [
        item(f"t{n:02}", f"turn {n} of ten words and some more of them", kinds[n % 2])
        for n in range(turns)
    ]


SYSTEM = item("s", "be kind to everyone", "system")


def test_a_prompt_that_grows_reuses_all_of_the_one_before(compile_items: Compile) -> None:
    before, after = compile_items([SYSTEM, *talk(3)]), compile_items([SYSTEM, *talk(5)])
    reuse = prefix_reuse(before, after)
    assert (reuse.cause, reuse.reused, reuse.before) == (
        "appended",
        reuse.before,
        before.token_allocation["used"],
    )
    assert prefix_reuse(None, before).cause == "first"


def test_what_changed_is_named(compile_items: Compile) -> None:
    base = [SYSTEM, item("m", "a fact", "memory"), *talk(3)]
    before = compile_items(base)
    reuse = prefix_reuse(before, compile_items([item("s", "be brief", "system"), *base[1:]]))
    assert (reuse.cause, reuse.item_id, reuse.reused, reuse.zone_reused) == (
        "prefix_changed",
        "s",
        0,
        0,
    )
    reuse = prefix_reuse(
        before, compile_items([SYSTEM, item("m", "another fact", "memory"), *talk(3)])
    )
    assert (reuse.cause, reuse.item_id, reuse.zone_reused) == ("context_changed", "m", reuse.zone)


def test_a_compaction_is_told_with_what_left(compile_items: Compile) -> None:
    seen = []
    before = None
    for turns in range(1, 40, 2):
        after = compile_items(
            [SYSTEM, *talk(turns)], token_budget=200, compile_config=CompileConfig(history_share=50)
        )
        seen.append(prefix_reuse(before, after))
        before = after
    compactions = [reuse for reuse in seen if reuse.cause == "compacted"]
    assert 1 <= len(compactions) <= len(seen) // 3
    assert all(reuse.left for reuse in compactions)
    zones = [(reuse.zone_reused, reuse.zone) for reuse in seen]
    assert sum(reused for reused, _ in zones) >= 0.7 * sum(zone for _, zone in zones)


def test_a_long_request_that_has_room_leaves_the_window_where_it_was(
    compile_items: Compile,
) -> None:
    earlier, note = talk(20), item("m", "a fact", "memory")
    short, long = (
        compile_items(
            [SYSTEM, note, *earlier, item("t20", " ".join(["word"] * words))], token_budget=200
        )
        for words in (10, 80)
    )
    windows = [
        next(section.item_ids for section in compiled.sections if section.name == "history")
        for compiled in (short, long)
    ]
    assert windows == [tuple(turn.id for turn in earlier[12:])] * 2
    assert prefix_reuse(short, long).zone_reused == 8 * 10 + 4


def test_a_run_reports_how_stable_its_prefix_was(open_tally: OpenTally) -> None:
    with open_tally() as tally:
        anna = tally.bind(Actor(user="anna"))
        target = TargetProfile(per_item=0, per_tool=0, per_request=0)
        with anna.run("chat") as run:
            for turns in range(1, 40, 2):
                with run.step("model_call"):
                    anna.compile([SYSTEM, *talk(turns)], budget=300, target=target)
        reuses = anna.recordings.prefix_reuse(run.id)
        assert len(reuses) == 20
        assert reuses[0][1].cause == "first"
        compacted = [step for step, reuse in reuses if reuse.cause == "compacted"]
        assert compacted
        kinds = [entry.kind for entry in anna.recordings.entries(compacted[0])]
        assert kinds == ["compile_request", "compiled", "compaction"]
        assert anna.recordings.verify(run.id).ok
