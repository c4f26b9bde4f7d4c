"""The recall without a query: the newest memories that pass filters, in every view of it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest

from tallystick import Actor, BoundTally, Tally
from tallystick.errors import Denied, InvalidInput
from tallystick.memory.recalled import Recalled
from tallystick.records import SourceRef
from tallystick.testing import StepClock

OpenTally = Callable[..., Tally]
ANNA = Actor(user="anna", projects={"apollo"})
DAY = 24 * 3600 * 1_000_000
NOW = 1_700_000_000_000_000


@pytest.fixture
def tally(open_tally: OpenTally) -> Iterator[Tally]:
    with open_tally(clock=StepClock(NOW)) as opened:
        yield opened


@pytest.fixture
def anna(tally: Tally) -> BoundTally:
    bound = tally.bind(ANNA)
    bound.remember("The first heron came.", tags=["bird"], occurred_at=NOW - 9 * DAY)
    bound.remember("A stone lies there.", tags=["stone"], source=SourceRef(uri="file://stones"))
    bound.remember("The second heron came.", tags=["bird", "late"], kind="fact")
    bound.remember("The third heron came.", tags=["bird"], source=SourceRef(uri="file://birds"))
    return bound


def _texts(recalled: Recalled) -> list[str]:
    return [hit.content for hit in recalled]


BIRDS = ["The third heron came.", "The second heron came.", "The first heron came."]


def test_filters_without_a_query_give_the_newest_that_pass_them(anna: BoundTally) -> None:
    assert _texts(anna.recall("", tags=["bird"])) == BIRDS
    assert _texts(anna.recall(" \n", tags=["bird"], limit=2)) == BIRDS[:2]
    assert _texts(anna.recall("", tags=["bird", "late"])) == BIRDS[1:2]
    assert _texts(anna.recall("", source="file://birds")) == BIRDS[:1]
    assert _texts(anna.recall("", until=NOW - 8 * DAY)) == BIRDS[2:]
    assert _texts(anna.recall("", since=timedelta(days=3), tags=["bird"])) == BIRDS[:2]
    assert _texts(anna.recall("", kinds=["fact"])) == BIRDS[1:2]
    assert _texts(anna.recall("", tags=["nothing"])) == []


def test_a_list_has_the_same_filters_and_its_cursor(anna: BoundTally) -> None:
    first = anna.memories(tags=["bird"], limit=2)
    anna.remember("A fourth heron came.", tags=["bird"])
    rest = anna.memories(tags=["bird"], limit=2, before=first[-1].id)

    assert [memory.content for memory in [*first, *rest]] == BIRDS
    assert [memory.content for memory in anna.memories(source="file://stones")] == [
        "A stone lies there."
    ]
    assert [memory.content for memory in anna.memories(until=NOW - 8 * DAY)] == BIRDS[2:]


def test_neither_query_nor_filters_give_nothing(anna: BoundTally) -> None:
    assert _texts(anna.recall("")) == []
    assert _texts(anna.recall("", limit=3)) == []


def test_what_was_not_asked_is_answered_by_nothing(anna: BoundTally) -> None:
    listed = anna.recall("", tags=["bird"])
    withheld = anna.recall("", tags=["bird"], only_confident=True)

    assert {hit.score for hit in listed} == {0.0}
    assert {hit.why for hit in listed} == {"it passes the filters, and nothing was asked"}
    assert (listed.path, listed.confident) == ("none", False)
    assert (list(withheld), withheld.withheld) == ([], 3)
    assert _texts(anna.recall("", tags=["bird"], min_score=0.1)) == []
    with pytest.raises(InvalidInput):
        anna.recall("", tags=["bird"], limit=0)


def test_what_is_hidden_expired_or_of_others_is_not_listed(tally: Tally, anna: BoundTally) -> None:
    gone = anna.remember("A forgotten heron.", tags=["bird"], source=SourceRef(uri="file://gone"))
    anna.remember("A heron for a while.", tags=["bird"], expires_at=NOW + 1)
    anna.forget(gone.id, reason="r")
    ben = tally.bind(Actor(user="ben"))
    ben.remember("Ben's heron.", tags=["bird"])

    assert _texts(anna.recall("", tags=["bird"])) == BIRDS
    assert _texts(ben.recall("", tags=["bird"])) == ["Ben's heron."]
    # Nobody learns by a filter what a forgotten memory says, or where it came from.
    assert anna.memories(states=("deleted",), source="file://gone") == []
    assert anna.memories(states=("deleted",), tags=["bird"]) == []
    assert len(anna.memories(states=("deleted",), since=NOW)) == 1
    with pytest.raises(Denied):
        ben.recall("", tags=["bird"], scopes=["private:anna"])


def test_several_scopes_are_one_list(tally: Tally, anna: BoundTally) -> None:
    tally.bind(ANNA, scope="project:apollo").remember("The fourth heron came.", tags=["bird"])

    found = anna.recall("", tags=["bird"], scopes=["private:anna", "project:apollo"])

    assert _texts(found) == ["The fourth heron came.", *BIRDS]
    assert str(found[0].visible_to) == "project:apollo"


def test_a_day_is_asked_for_without_a_query_too(anna: BoundTally) -> None:
    old = anna.remember("The heron lives in Bern.", tags=["home"], valid_from=NOW - 9 * DAY)
    new = anna.remember("The heron lives in Basel.", tags=["home"], valid_from=NOW)
    preview = anna.corrections.make(old.id, "supersede", by=new.id, reason="moved")
    anna.corrections.make(
        old.id,
        "supersede",
        by=new.id,
        reason="moved",
        mode="apply",
        confirm_token=preview.confirm_token,
    )
    [now] = anna.recall("", tags=["home"])
    [then] = anna.recall("", tags=["home"], as_of=NOW - 5 * DAY)

    assert (now.memory.id, now.history) == (new.id, False)
    assert (then.memory.id, then.history, then.replaced_by) == (old.id, True, new.id)


def test_a_recorded_recall_names_what_was_listed(anna: BoundTally) -> None:
    with anna.run("watcher") as run:
        found = anna.recall("", tags=["bird"])
    [step] = anna.recordings.steps(run.id)

    for hit in found:
        assert [use.step.id for use in anna.recordings.uses(hit.memory.id)] == [step.id]


def test_it_is_the_same_awaited(anna: BoundTally) -> None:
    listed = asyncio.run(anna.aio.recall("", tags=["bird"]))

    assert _texts(listed) == BIRDS


def test_a_moment_or_none_lists_what_a_query_finds(anna: BoundTally) -> None:
    redacted, *_, repeated = anna.memories(tags=["bird"])
    corrections: list[tuple[str, dict[str, Any]]] = [
        ("mark_duplicate", {"memory_id": repeated.id, "by": redacted.id}),
        ("redact", {"memory_id": redacted.id, "field": "content", "replacement": "A heron came."}),
    ]
    for correction, more in corrections:
        wanted: dict[str, Any] = {"correction": correction, "reason": "tidy", **more}
        token = anna.corrections.make(**wanted).confirm_token
        anna.corrections.make(**wanted, mode="apply", confirm_token=token)

    standing = ["A heron came.", "The second heron came."]
    for moment in (None, NOW + DAY):
        assert _texts(anna.recall("", tags=["bird"], as_of=moment)) == standing
        found = anna.recall("heron came", tags=["bird"], as_of=moment)
        assert sorted(_texts(found)) == standing
