"""Restore: corrections that lie on one another are taken back one by one, and nothing else with
them.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from tallystick.errors import InvalidInput, InvalidRecord, NotFound, StateConflict
from tallystick.records import Actor
from tallystick.storage.rows import journal
from tallystick.tally import BoundTally, Tally
from tallystick.tally.services import services_of
from tallystick.testing import StepClock

OpenTally = Callable[..., Tally]
ALICE = Actor(user="alice", projects={"apollo"})
DAY = 24 * 3600 * 1_000_000


def corrected(bound: BoundTally, memory_id: str, correction: Any, **options: Any) -> Any:
    preview = bound.corrections.make(memory_id, correction, reason="because", **options)
    token = preview.confirm_token
    return bound.corrections.make(
        memory_id, correction, reason="because", mode="apply", confirm_token=token, **options
    )


def texts(bound: BoundTally, query: str, **options: Any) -> list[str]:
    return [hit.content for hit in bound.recall(query, **options)]


def test_what_was_changed_under_a_correction_stays_when_that_is_taken_back(
    open_tally: OpenTally,
) -> None:
    with open_tally() as tally:
        mine = tally.bind(ALICE)
        home = mine.remember("We live in Berlin.", subject="Ada", attributes={"a": 1, "b": "2"}).id
        corrected(mine, home, "redact", field="subject")
        corrected(mine, home, "redact", field="attributes.b")
        mine.modify(home, content="We live in Hamburg.", attributes={"c": 3}, reason="moved")
        corrected(mine, home, "restore")
        memory = mine.get(home)
        assert (memory.content, memory.subject, memory.redacted) == (
            "We live in Hamburg.",
            "Ada",
            (),
        )
        assert memory.attributes == {"a": 1, "b": "2", "c": 3}
        assert mine.remember("We live in Hamburg.").status == "duplicate"

        corrected(mine, home, "mark_sensitive")
        mine.modify(home, attributes={"a": 4}, reason="weighed")
        corrected(mine, home, "restore")
        assert mine.get(home).attributes == {"a": 4, "b": "2", "c": 3}


def test_corrections_that_lie_on_one_another_are_taken_back_one_by_one(
    open_tally: OpenTally,
) -> None:
    with open_tally() as tally:
        mine = tally.bind(ALICE)
        note = mine.remember("The heron nests in March.", subject="heron").id
        corrected(mine, note, "mark_sensitive")
        corrected(mine, note, "mark_stale")
        mine.forget(note, reason="a slip")
        mine.recover(note, reason="it was one")
        corrected(mine, note, "hide")

        seen = []
        for _ in range(3):
            corrected(mine, note, "restore")
            memory = mine.get(note)
            seen.append((memory.corrected, memory.valid_until is None, bool(memory.attributes)))
        assert seen == [
            ("mark_stale", False, True),
            ("mark_sensitive", True, True),
            (None, True, False),
        ]
        with pytest.raises(StateConflict, match="no correction"):
            corrected(mine, note, "restore")


def test_a_hidden_memory_stays_hidden_when_its_text_is_redacted(open_tally: OpenTally) -> None:
    with open_tally() as tally:
        mine = tally.bind(ALICE)
        note = mine.remember("The heron nests in March.", subject="heron").id
        corrected(mine, note, "hide")
        assert corrected(mine, note, "redact").recall == "unchanged"
        assert (mine.inspect(note).state, texts(mine, "heron")) == ("hidden", [])
        corrected(mine, note, "restore")
        assert texts(mine, "heron") == []
        corrected(mine, note, "restore")
        assert texts(mine, "heron") == ["The heron nests in March."]


@pytest.mark.parametrize(
    ("field", "replacement", "error"),
    [
        ("subject", "a\0b", InvalidInput),
        ("subject", "x" * 1_001, InvalidInput),
        ("content", "x" * 2_000_000, InvalidInput),
        ("attributes.status", "[redacted]", InvalidRecord),
        ("attributes.steps.²", "[redacted]", InvalidInput),
        ("attributes.steps.00", "[redacted]", InvalidInput),
    ],
)
def test_a_redaction_leaves_what_a_change_may_leave(
    open_tally: OpenTally, field: str, replacement: str, error: type[Exception]
) -> None:
    with open_tally() as tally:
        mine = tally.bind(ALICE)
        task = mine.remember(
            "Mend it.", kind="task", attributes={"status": "todo", "steps": ["a", "b", "c"]}
        ).id
        with pytest.raises(error):
            mine.corrections.make(task, "redact", field=field, replacement=replacement, reason="r")
        assert mine.modify(task, tags=["soon"], reason="planned").status == "changed"


def test_what_is_replaced_holds_until_its_replacement_does(open_tally: OpenTally) -> None:
    with open_tally() as tally:
        mine = tally.bind(ALICE)
        later = services_of(tally).store.clock.now() + 300 * DAY
        old = mine.remember("The office is in Rome.").id
        new = mine.remember("The office is in Oslo.").id
        corrected(mine, old, "supersede", by=new, valid_from=later)
        assert texts(mine, "office") == ["The office is in Rome."]
        assert texts(mine, "office", as_of=later + DAY) == ["The office is in Oslo."]
        corrected(mine, old, "restore")
        assert mine.get(old).valid_until is None


def test_a_memory_that_never_held_is_changed_as_any_other(open_tally: OpenTally) -> None:
    with open_tally() as tally:
        mine = tally.bind(ALICE)
        later = services_of(tally).store.clock.now() + 300 * DAY
        plan = mine.remember("We move in summer.", valid_from=later).id
        corrected(mine, plan, "mark_stale")
        assert mine.modify(plan, tags=["off"], reason="called off").status == "changed"


def test_a_number_that_json_does_not_know_is_no_attribute(open_tally: OpenTally) -> None:
    with open_tally() as tally:
        mine = tally.bind(ALICE)
        kept = mine.remember("The heron weighs.").id
        for number in (float("inf"), float("nan")):
            for call in (
                lambda: mine.remember("x", attributes={"a": [{"b": number}]}),  # noqa: B023
                lambda: mine.modify(kept, attributes={"a": number}, reason="r"),  # noqa: B023
            ):
                with pytest.raises(InvalidInput, match="JSON does not know"):
                    call()


def test_a_forget_under_anothers_key_names_no_conclusion_of_his(open_tally: OpenTally) -> None:
    with open_tally() as tally:
        apollo = tally.bind(ALICE, scope="project:apollo")
        fact = apollo.remember("The deploy is on Friday.")
        own = tally.bind(ALICE).remember("So I am free on Monday.", derived_from=[fact.id])
        bob = tally.bind(Actor(user="bob", projects={"apollo"}), scope="project:apollo")
        arguments: dict[str, Any] = {"reason": "moved", "idempotency_key": "k"}
        assert apollo.forget(fact.id, **arguments).derived == (own.id,)
        assert apollo.forget(fact.id, **arguments).derived == (own.id,)
        assert bob.forget(fact.id, **arguments).derived == ()
        with pytest.raises(InvalidInput, match="1,000"):
            bob.forget(fact.id, reason="moved", idempotency_key="k" * 1_001)


def test_the_chain_keeps_no_key_of_an_attribute_that_was_redacted(open_tally: OpenTally) -> None:
    with open_tally() as tally:
        mine = tally.bind(ALICE)
        note = mine.remember("She called.", attributes={"number of Ada Lovelace": "42"}).id
        corrected(mine, note, "redact", field="attributes.number of Ada Lovelace")
        with services_of(tally).store.database.read() as connection:
            [entry] = [each for each in journal.about(connection, note) if "field" in each.details]
        assert entry.details["field"] == "attributes"


def test_what_has_ended_is_read_by_no_path_before_it_is_forgotten_too(
    open_tally: OpenTally,
) -> None:
    clock = StepClock()
    with open_tally(clock=clock, background=False) as tally:
        mine = tally.bind(ALICE)
        code = mine.remember("The code of today is 42.", expires_at=timedelta(days=1)).id
        clock.advance(days=2)
        with pytest.raises(NotFound):
            mine.get(code)
        [listed] = mine.memories()
        assert (listed.id, listed.content) == (code, "")
        assert not mine.inspect(code).shown
