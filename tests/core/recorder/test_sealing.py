"""Kept placeholders: a person reads what they stand for, an agent does not, and they go with the
memory, its user and the recording.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tallystick import Actor, Tally
from tallystick.errors import MissingExtra, NotFound, SettingsError
from tallystick.records import (
    ExtractedFact,
    Extraction,
    Json,
    StepEntry,
)
from tallystick.settings import Settings
from tallystick.storage.text import byte_search
from tallystick.tally import BoundTally
from tallystick.tally.services import services_of
from tallystick.testing import ScriptedLearner, StepClock

OpenTally = Callable[..., Tally]
ADA = Actor(user="ada")
ROOT = Actor(user="root", role="operator")
ADDRESS = "ada@example.org"
KEPT: Json = {"[redacted:email:1]": ADDRESS}


def repeat(text: str) -> Extraction:
    return Extraction(facts=(ExtractedFact(content=text, kind="fact"),))


def options(**settings: Any) -> dict[str, Any]:
    return {
        "settings": Settings(learning="review", keep_placeholders=True, **settings),
        "learning_model": ScriptedLearner(repeat, local=False),
        "clock": StepClock(),
    }


def entries_of(bound: BoundTally) -> list[StepEntry]:
    """Return what was recorded of placeholders, newest run first."""
    recordings = bound.recordings
    return [
        entry
        for run in recordings.runs_of([ADA.private_scope])
        for step in recordings.steps(run.id)
        for entry in recordings.entries(step.id)
        if entry.kind == "placeholders"
    ]


def rows_with(tally: Tally, text: str) -> dict[str, int]:
    with services_of(tally).store.database.read() as connection:
        return byte_search.rows_with(connection, [text.encode()])


def test_a_person_reads_what_placeholders_stand_for_and_an_agent_does_not(
    open_tally: OpenTally,
) -> None:
    with open_tally(**options()) as tally:
        ada = tally.bind(ADA)
        ada.remember(f"Write to {ADDRESS}.")
        tally.drain()

        [entry] = entries_of(ada)
        assert (entry.payload, entry.summary) == (KEPT, {"count": 1})
        [sealed] = entries_of(tally.bind(Actor(user="ada", agent="coder")))
        assert isinstance(sealed.payload, dict)
        assert list(sealed.payload) == ["sealed"]
        assert ADDRESS not in str(sealed)
        with pytest.raises(NotFound):
            tally.bind(Actor(user="bob")).recordings.entries(entry.step_id)
        run = ada.recordings.step(entry.step_id).run_id
        assert ADDRESS.encode() not in ada.recordings.export_receipt(run)
        assert ada.recordings.verify(run).ok


def test_nothing_is_kept_unless_it_was_asked_for_or_where_nothing_was_replaced(
    open_sqlite: OpenTally,
) -> None:
    for kept, text in ((True, "I live in Berlin."), (False, ADDRESS)):
        settings = Settings(learning="review", keep_placeholders=kept)
        opening = options() | {"settings": settings}
        with open_sqlite(**opening) as tally:
            tally.bind(ADA).remember(text)
            tally.drain()
            assert entries_of(tally.bind(ADA)) == []


def test_the_placeholders_of_a_call_go_with_each_memory_that_was_in_it(
    open_tally: OpenTally,
) -> None:
    with open_tally(**options()) as tally:
        ada, root = tally.bind(ADA), tally.bind(ROOT)
        first = ada.remember(f"Write to {ADDRESS} about the boat.").id
        tally.drain()
        ada.remember("Who writes about the boat, and to whom?")
        tally.drain()
        decided, extracted = entries_of(ada)
        assert (decided.payload, extracted.payload) == (KEPT, KEPT)

        token = root.operator.erase(first, reason="r").confirm_token
        done = root.operator.erase(first, reason="r", mode="apply", confirm_token=token)

        assert {decided.step_id, extracted.step_id} <= set(done.payloads)
        assert [each.payload_state for each in entries_of(ada)] == ["erased", "erased"]
        assert rows_with(tally, ADDRESS) == {}


@pytest.mark.parametrize("way", ["user", "purge", "retention"])
def test_placeholders_go_with_their_user_and_by_retention(open_tally: OpenTally, way: str) -> None:
    opening = options()
    with open_tally(**opening) as tally:
        ada, root = tally.bind(ADA), tally.bind(ROOT)
        memory = ada.remember(f"Write to {ADDRESS}.").id
        tally.drain()
        assert [each.payload for each in entries_of(ada)] == [KEPT]
        if way == "user":
            token = root.operator.erase_user("ada", shared="destroy", reason="r").confirm_token
            root.operator.erase_user(
                "ada", shared="destroy", reason="r", mode="apply", confirm_token=token
            )
        elif way == "purge":
            root.operator.choose_windows(tombstones_days=30)
            ada.forget(memory, reason="r")
            opening["clock"].advance(days=31)
            root.operator.purge(mode="apply", reason="r")
        else:
            root.operator.choose_windows(journal_days=90)
            opening["clock"].advance(days=91)
            root.operator.purge(mode="apply", reason="r")

        assert [each.payload for each in entries_of(ada) if each.payload is not None] == []


def test_placeholders_that_could_not_be_kept_are_refused(
    open_sqlite: OpenTally, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(SettingsError, match="`retention` keeps none"):
        open_sqlite(**options(retention="metadata_only"))
    monkeypatch.setattr("tallystick.errors.base.find_spec", lambda name: None)
    with pytest.raises(MissingExtra, match=r"cryptography.*\[signing\]"):
        open_sqlite(**options())
