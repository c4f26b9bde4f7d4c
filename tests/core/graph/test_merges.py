"""Names are one entity's by evidence: 300 labelled pairs in eight languages, and what a person may
do about a merge.
"""

from __future__ import annotations

import hashlib
import json
import unicodedata
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.core.graph.naming import namer

from tallystick.errors import Denied, InvalidInput, NotFound
from tallystick.records import Actor, ExtractedEntity, Extraction
from tallystick.settings import Settings
from tallystick.tally import BoundTally, Tally
from tallystick.testing import ScriptedLearner
from tallystick_graph import Graph
from tallystick_graph.evidence import reason_for, stated_aliases
from tallystick_graph.names import Name

OpenTally = Callable[..., Tally]
ALICE = Actor(user="alice")
LEARNING = Settings(graph=True, learning="review")
FIXTURES = Path(__file__).parents[2] / "fixtures" / "work"


def test_labelled_pairs_are_merged_by_evidence_with_hardly_a_mistake() -> None:
    body = (FIXTURES / "alias_pairs.json").read_bytes()
    sums = (FIXTURES / "SHA256SUMS").read_text(encoding="utf-8")
    assert f"{hashlib.sha256(body).hexdigest()}  alias_pairs.json" in sums, "labelled before"
    pairs = json.loads(body)["pairs"]
    assert len(pairs) == 300
    assert len({pair["language"] for pair in pairs}) == 8

    merged = [pair for pair in pairs if _is_merged(pair)]

    right = sum(pair["same"] for pair in merged)
    assert right / len(merged) >= 0.97
    assert right / sum(pair["same"] for pair in pairs) >= 0.6
    assert not any("Zürich" in pair["names"] or "Zurich" in pair["names"] for pair in merged)


def _is_merged(pair: dict[str, list[str]]) -> bool:
    first, second = (Name(*each) for each in zip(pair["names"], pair["types"], strict=True))
    texts = [" ".join(unicodedata.normalize("NFKC", text).split()) for text in pair["texts"]]
    return any(
        reason_for(text, *names) is not None
        for text in texts
        for names in ((first, second), (second, first))
    )


def test_a_name_that_could_be_two_in_one_text_is_neither() -> None:
    names = [Name(each, "person") for each in ("Anna Schmidt", "Anna Berg", "Anna")]
    assert stated_aliases("Anna Schmidt came. Anna Berg left. Then Anna sang.", names) == []


def _statuses(bound: BoundTally) -> dict[str, str]:
    listed = bound.memories(kinds=["entity"], states=["active", "duplicate"])
    return {memory.content: memory.state for memory in listed}


def test_a_merge_is_looked_at_undone_and_forbidden(open_tally: OpenTally) -> None:
    with open_tally(settings=LEARNING, learning_model=namer()) as tally:
        alice, graph = tally.bind(ALICE), Graph(tally.bind(ALICE))
        text = alice.remember("Anna Schmidt is in Berlin. We asked Anna about it.").id
        tally.drain()

        [alias] = graph.aliases()
        assert (alias.alias, alias.entity) == ("Anna", "Anna Schmidt")
        assert (alias.reason, alias.evidence) == ("given_name_of_person", (text,))

        graph.keep_apart("Anna", "Anna Schmidt", reason="she is another one")
        assert graph.aliases() == []
        alice.remember("Anna Schmidt is in Oslo. We asked Anna again.")
        tally.drain()
        assert _statuses(alice)["Anna"] == "active"
        # Forbidden before any text tells it.
        alice.remember("Otto Lang sang in Rome.")
        alice.remember("Anna Becker sang in Rome.")
        tally.drain()
        graph.keep_apart("Otto Lang", "Anna Becker", reason="two people")
        with pytest.raises(NotFound):
            graph.keep_apart("Anna", "Nobody", reason="r")
        with pytest.raises(InvalidInput):
            graph.keep_apart("Anna", "anna", reason="r")
        with pytest.raises(Denied):
            Graph(tally.bind(ALICE, "project:x")).keep_apart("Anna", "Otto Lang", reason="r")


def test_a_town_is_not_its_university_and_an_acronym_is_what_a_text_states(
    open_sqlite: OpenTally,
) -> None:
    kinds = {
        "University of Zurich": "organization",
        "Zurich": "place",
        "European Space Agency": "organization",
        "ESA": "organization",
    }

    def read(text: str) -> Extraction:
        named = [ExtractedEntity(name=name, kind=kind) for name, kind in kinds.items()]
        return Extraction(entities=tuple(each for each in named if each.name in text))

    with open_sqlite(settings=LEARNING, learning_model=ScriptedLearner(read)) as tally:
        alice = tally.bind(ALICE)
        alice.remember("She studies at the University of Zurich. Zurich is expensive.")
        alice.remember("The European Space Agency (ESA) hires.")
        tally.drain()
        assert _statuses(alice) == {
            "University of Zurich": "active",
            "Zurich": "active",
            "European Space Agency": "active",
            "ESA": "duplicate",
        }


def test_two_forms_of_a_third_name_are_kept_apart_too(open_tally: OpenTally) -> None:
    with open_tally(settings=Settings(graph=True)) as tally:
        alice, graph = tally.bind(ALICE), Graph(tally.bind(ALICE))
        for name in ("Zoe Lang", "Zoë Lang", "Zoé Lang"):
            alice.remember(f"We met {name} in Rome.", entities=[name])
            tally.drain()
        [(first, one), (other, same)] = [(each.alias, each.entity) for each in graph.aliases()]
        assert one == same

        graph.keep_apart(first, other, reason="two people")
        named = [{each.preview for each in graph.about(name).memories} for name in (first, other)]
        assert f"We met {other} in Rome." not in named[0]
        assert f"We met {first} in Rome." not in named[1]
