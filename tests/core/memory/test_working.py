"""Working memory: what a run keeps in mind reaches its contexts, packs and wakes, and no others."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from tallystick.errors import InvalidInput
from tallystick.records import Actor, ContextItem
from tallystick.tally import Tally
from tallystick.testing import StepClock

OpenTally = Callable[..., Tally]
ALICE = Actor(user="alice", projects={"apollo"})
REQUEST = ContextItem(id="ask", kind="user_msg", content="What is next?")
SLOTS: dict[str, Any] = {
    "task": "Mend the parser.",
    "plan": ["read the test", "mend it"],
    "questions": ["Which encoding?"],
    "facts": ["The file is UTF-16."],
    "outputs": {"patch": "3 lines"},
    "artifacts": {"report": "file:report.md"},
}


def test_what_a_run_keeps_in_mind_is_a_candidate_of_its_compiles(open_tally: OpenTally) -> None:
    with open_tally() as tally:
        apollo = tally.bind(ALICE, scope="project:apollo")
        with apollo.run("coder"):
            for name, value in SLOTS.items():
                apollo.working.set(name, value)
            apollo.working.set("mood", 3)
            compiled = apollo.compile([REQUEST], budget=600)
            without = apollo.compile([REQUEST], budget=600, working=False)
            of_run = apollo.working
        with apollo.run("coder"):
            other = apollo.compile([REQUEST], budget=600)
        by_hand = apollo.compile([REQUEST, of_run], budget=600)
        by_name = apollo.compile([REQUEST], budget=600, working=of_run)

    chosen = {item.id: item for item in compiled.selected_items if item.kind == "working"}
    assert set(chosen) == {*(f"working:{name}" for name in SLOTS), "working:mood"}
    assert chosen["working:plan"].content == "plan:\n- read the test\n- mend it"
    assert chosen["working:artifacts"].content == "artifacts:\n- report: file:report.md"
    assert chosen["working:task"].content == "task: Mend the parser."
    assert compiled.token_allocation["working_memory"] > 0
    assert compiled.decision("working:plan").reason_code == "selected_by_score"
    assert {item.id for item in without.selected_items} == {"ask"}
    assert {item.id for item in other.selected_items} == {"ask"}
    for again in (by_hand, by_name):
        assert {item.id for item in again.selected_items} == {"ask", *chosen}


def test_working_memory_has_its_share_of_a_tight_budget(open_sqlite: OpenTally) -> None:
    with open_sqlite() as tally:
        mine = tally.bind(ALICE)
        found = [
            ContextItem(id=f"doc {n}", kind="retrieval_doc", content=f"Heron {n}. " * 12)
            for n in range(40)
        ]
        with mine.run("coder"):
            mine.working.set("plan", ["read the test", "mend it"])
            compiled = mine.compile([REQUEST, *found], budget=220)
    assert compiled.decision("working:plan").decision == "include"


def test_working_memory_changes_nothing_where_there_is_none(open_sqlite: OpenTally) -> None:
    with open_sqlite() as tally:
        mine = tally.bind(ALICE)
        outside = mine.compile([REQUEST], budget=600, as_of=10**15)
        with mine.run("coder"):
            inside = mine.compile([REQUEST], budget=600, as_of=10**15)
    assert inside.id == outside.id


def test_packs_and_wakes_of_a_run_begin_with_its_working_memory(open_tally: OpenTally) -> None:
    with open_tally() as tally:
        apollo = tally.bind(ALICE, scope="project:apollo")
        kept = apollo.remember("The parser reads UTF-16.", kind="decision")
        with apollo.run("coder"):
            apollo.working.set("task", "Mend the parser.")
            apollo.working.set("facts", ["x" * 5_000])
            pack = apollo.pack("which encoding does the parser read?")
            wake = apollo.wake()
            elsewhere = apollo.wake(scopes=["private:alice"])
        after = apollo.wake()

        for made in (pack, wake):
            assert [(item.id, item.chosen_as) for item in made.items][:1] == [
                ("working:task", "working")
            ]
            assert kept.id in [item.id for item in made.items]
            assert "task: Mend the parser." in made.text
            assert made.tokens <= made.budget_tokens
        assert elsewhere.items == ()
        assert [item.id for item in after.items] == [kept.id]


def test_values_that_have_expired_or_were_dropped_leave_the_context(open_tally: OpenTally) -> None:
    clock = StepClock()
    with open_tally(clock=clock) as tally:
        mine = tally.bind(ALICE)
        with mine.run("coder"):
            mine.working.set("facts", ["Short-lived."], expires_in=timedelta(minutes=1))
            mine.working.set("plan", ["Dropped."])
            mine.working.drop("plan")
            clock.advance(seconds=61)
            compiled = mine.compile([REQUEST], budget=600)
    assert [item.id for item in compiled.selected_items] == ["ask"]


def test_a_thread_keeps_its_plan_from_turn_to_turn(open_tally: OpenTally) -> None:
    clock = StepClock()
    turn: dict[str, Any] = {"thread_id": "chat-7"}
    with open_tally(clock=clock) as tally:
        apollo = tally.bind(ALICE, scope="project:apollo")
        with apollo.run("coder", metadata=turn):
            kept = apollo.working.set("plan", ["read", "mend"], lifetime="thread")
            apollo.working.set("task", "Read first.")
        with apollo.run("coder", metadata=turn):
            compiled = apollo.compile([REQUEST], budget=600)
            told = apollo.pack("what is next?").text
            apollo.working.set("plan", ["mend alone"])
            hidden = apollo.working.all()
        with apollo.run("coder", metadata={"thread_id": "chat-8"}):
            elsewhere = apollo.compile([REQUEST], budget=600)
        outside = apollo.compile([REQUEST], budget=600, working=apollo.working.of(thread="chat-7"))
        listed = apollo.working.list(thread="chat-7")
        clock.advance(seconds=24 * 3600)
        later = apollo.working.list(thread="chat-7")

    assert {item.id for item in compiled.selected_items} == {"ask", "working:plan"}
    assert "- mend" in told
    assert hidden == {"plan": ["mend alone"]}, "the run's own value counts"
    assert [item.id for item in elsewhere.selected_items] == ["ask"]
    assert {item.id for item in outside.selected_items} == {"ask", "working:plan"}
    assert listed == [kept]
    assert (kept.lifetime, kept.expires_at - kept.updated_at) == ("thread", 86_400_000_000)
    assert later == []


def test_a_value_belongs_to_a_run_or_a_thread_that_is_named(open_sqlite: OpenTally) -> None:
    with open_sqlite() as tally:
        mine = tally.bind(ALICE)
        with pytest.raises(InvalidInput, match="run_id or a thread"):
            mine.working.set("plan", "x")
        with mine.run("coder"), pytest.raises(InvalidInput, match="thread_id"):
            mine.working.set("plan", "x", lifetime="thread")
        mine.working.set("plan", "of the run", run_id="r")
        mine.working.set("plan", "of the thread", thread="t")
        both = mine.working.of("r", thread="t")
        assert [each.value for each in both.list()] == ["of the run"]
        assert both.get("plan", lifetime="thread") == mine.working.list(thread="t")[0]
        assert (both.drop("plan"), both.list(), both.drop("plan")) == (True, [], False)


def test_a_thread_has_room_for_so_many_values_of_such_a_size(open_sqlite: OpenTally) -> None:
    with open_sqlite() as tally:
        thread = tally.bind(ALICE).working.of(thread="chat-7")
        with pytest.raises(InvalidInput, match="16,384"):
            thread.set("facts", "x" * 16_384, lifetime="thread")
        for number in range(16):
            thread.set(f"n{number}", "x" * 16_000, lifetime="thread")
        with pytest.raises(InvalidInput, match="262,144"):
            thread.set("one more", "x" * 16_000, lifetime="thread")
        thread.set("n0", "y" * 16_000, lifetime="thread")
        for number in range(16, 64):
            thread.set(f"n{number}", "x", lifetime="thread")
        with pytest.raises(InvalidInput, match="64 values"):
            thread.set("n64", "x", lifetime="thread")
        assert len(thread.list()) == 64
        tally.bind(ALICE).working.set("n64", "x", thread="chat-8")


@pytest.mark.parametrize(
    ("name", "value"), [("artifacts", ["report"]), ("plan", 3), ("task", None), ("facts", True)]
)
def test_a_slot_takes_only_what_it_is_for(open_sqlite: OpenTally, name: str, value: Any) -> None:
    with open_sqlite() as tally:
        working = tally.bind(ALICE).working.of("run")
        with pytest.raises(InvalidInput, match=name):
            working.set(name, value)
        assert working.all() == {}


def test_the_view_of_a_thread_keeps_values_of_the_thread(open_sqlite: OpenTally) -> None:
    with open_sqlite() as tally:
        plan = tally.bind(Actor(user="anna")).working.of(thread="chat-7")
        assert plan.set("plan", ["Ask Bob."]).lifetime == "thread"
        value = plan.get("plan")
        assert value is not None
        assert value.value == ["Ask Bob."]
