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
                apollo.working().set(name, value)
            apollo.working().set("mood", 3)
            compiled = apollo.compile([REQUEST], budget=600)
            without = apollo.compile([REQUEST], budget=600, working=False)
            of_run = apollo.working()
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
            mine.working().set("plan", ["read the test", "mend it"])
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
            apollo.working().set("task", "Mend the parser.")
            apollo.working().set("facts", ["x" * 5_000])
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
            mine.working().set("facts", ["Short-lived."], expires_in=timedelta(minutes=1))
            mine.working().set("plan", ["Dropped."])
            mine.working().drop("plan")
            clock.advance(seconds=61)
            compiled = mine.compile([REQUEST], budget=600)
    assert [item.id for item in compiled.selected_items] == ["ask"]


@pytest.mark.parametrize(
    ("name", "value"), [("artifacts", ["report"]), ("plan", 3), ("task", None), ("facts", True)]
)
def test_a_slot_takes_only_what_it_is_for(open_sqlite: OpenTally, name: str, value: Any) -> None:
    with open_sqlite() as tally:
        working = tally.bind(ALICE).working("run")
        with pytest.raises(InvalidInput, match=name):
            working.set(name, value)
        assert working.all() == {}
