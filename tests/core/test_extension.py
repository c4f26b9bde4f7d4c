"""Extensions: they are used explicitly, offered like the rest, and erased with it, on or off."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields

import pytest
from tests.core.made_up_extension import KEPT, KIND, Loud

import tallystick_comparing
import tallystick_graph
import tallystick_ingest
import tallystick_learning
import tallystick_steward
import tallystick_synthesis
import tallystick_work
from tallystick import Actor, Tally, extension
from tallystick.extension import load_extensions
from tallystick.loading import Late
from tallystick.operations import OPERATIONS
from tallystick.operations.table import OperationTable
from tallystick.records import ExtractedEntity, ExtractedFact, ExtractedRelation, Extraction
from tallystick.settings import Settings
from tallystick.storage.engine import containment
from tallystick.storage.engine.writes import TALLY, Writes
from tallystick.storage.rows import settings_rows
from tallystick.storage.text import byte_search
from tallystick.tally.services import services_of
from tallystick.testing import ScriptedLearner
from tallystick_graph import Graph
from tallystick_learning import Learning

OpenTally = Callable[..., Tally]
ROOT = Actor(user="root", role="operator")
ADA = Actor(user="ada")
WORD = "pelicanwood"


@pytest.fixture
def made_up(monkeypatch: pytest.MonkeyPatch) -> None:
    names = (*extension.EXTENSIONS, "tests.core.made_up_extension")
    monkeypatch.setattr(extension, "EXTENSIONS", names)


def test_a_tally_has_the_extensions_of_the_constant(open_sqlite: OpenTally) -> None:
    with open_sqlite() as tally:
        extensions = services_of(tally).extensions
    assert extensions == (
        tallystick_learning.EXTENSION,
        tallystick_graph.EXTENSION,
        tallystick_ingest.EXTENSION,
        tallystick_work.EXTENSION,
        tallystick_steward.EXTENSION,
        tallystick_comparing.EXTENSION,
        tallystick_synthesis.EXTENSION,
    )
    offered = {operation.name for each in load_extensions() for operation in each.operations}
    assert offered > {"reflect", "end_session", "start_import", "add_document"}
    of_work = {operation.name for operation in tallystick_work.EXTENSION.operations}
    assert offered > {"aliases", "keep_apart", *of_work}
    assert offered > {each.name for each in tallystick_synthesis.EXTENSION.operations}
    assert offered < OPERATIONS.keys()


def test_what_an_extension_adds_is_loaded_when_it_is_called() -> None:
    waiting = [
        value
        for each in load_extensions()
        for name in (field.name for field in fields(each))
        for value in (getattr(each, name), *(operation.face for operation in each.operations))
        if isinstance(value, Late)
    ]
    assert len(waiting) > len(load_extensions())
    assert all(callable(each._loaded) for each in waiting)


@pytest.mark.usefixtures("made_up")
def test_a_made_up_extension_does_all_that_it_lists(open_tally: OpenTally) -> None:
    with open_tally(owner=ROOT) as tally:
        ada = tally.bind(ADA)
        quiet = ada.remember("The heron stands in the reeds by the mill.")
        loud = ada.remember("THE HERON STANDS IN THE REEDS BY THE WEIR.")
        assert Loud(ada).count_loud() == 0
        tally.drain()
        assert Loud(ada).count_loud() == 1
        assert OperationTable(())[KIND].call(ada, {}) == 1

        hits = {hit.memory.id: hit for hit in ada.recall("Where does the heron stand?")}
        assert hits[loud.id].signals["loud"] == 1
        assert "loud" not in hits[quiet.id].signals

        root, database = tally.bind(ROOT), services_of(tally).store.database
        assert {each.check: each.status for each in root.operator.doctor()}["loud notes"] == "ok"
        database.write(
            lambda tx: settings_rows.set_setting(tx, KEPT, "7"),
            name="tests.loud",
            writes=Writes.of(TALLY),
        )
        assert Loud(ada).count_loud() == 7
        checks = {each.check: each.status for each in root.operator.doctor()}
        assert checks["loud notes"] == "problem"
        root.operator.doctor(repair=True, reason="counted wrong")
        assert Loud(ada).count_loud() == 1


def test_what_an_extension_made_is_erased_while_it_is_off(open_tally: OpenTally) -> None:
    text = f"Anna of {WORD} leads the yard of Otto {WORD}."
    anna, otto = ExtractedEntity(name=f"Anna of {WORD}"), ExtractedEntity(name=f"Otto {WORD}")
    leads = ExtractedRelation(source=anna.name, relation="leads", target=otto.name)
    drawn = Extraction(
        facts=(ExtractedFact(content=f"Anna leads {WORD}."),),
        entities=(anna, otto),
        relations=(leads,),
    )
    on = Settings(learning="review", reflection="review", graph=True)
    with open_tally(
        owner=ROOT, settings=on, learning_model=ScriptedLearner({text: drawn})
    ) as tally:
        ada = tally.bind(ADA)
        ada.remember(text, conversation=WORD)
        tally.drain()
        Learning(ada).reflect(conversation=WORD)
        [proposal, *_] = ada.reviews.list()
        ada.reviews.decide(proposal.id, "accept", reason=WORD)
        tally.drain()
        assert len(Graph(ada).about(anna.name, depth=2).memories) > 2
        tables = {place.partition(".")[0] for place in rows_with_the_word(tally)}
        assert {"proposals", "entity_names", "memory_versions", "parts"} <= tables

    with open_tally(owner=ROOT) as tally:
        operator = tally.bind(ROOT).operator
        token = operator.erase_user("ada", reason="she left").confirm_token
        done = operator.erase_user(
            "ada", reason="she left", mode="apply", confirm_token=token, idempotency_key="ada"
        )
        assert done.proof is not None
        assert done.proof.holds
        assert rows_with_the_word(tally) == {}
        folder = services_of(tally).store.location.folder
        if folder is not None:
            assert byte_search.files_with(folder, containment.fragment_forms(WORD)) == []


def rows_with_the_word(tally: Tally) -> dict[str, int]:
    services_of(tally).store.database.flush()
    with services_of(tally).store.database.read() as connection:
        return byte_search.rows_with(connection, containment.fragment_forms(WORD))
