"""Memories of one call are stored together, and know of one another."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tallystick import Actor, Tally
from tallystick.errors import PositionTaken
from tallystick.records import NewMemory
from tallystick.settings import Settings
from tallystick.storage.rows.journal import verify_stream
from tallystick.tally.services import services_of

OpenTally = Callable[..., Tally]
ANNA = Actor(user="anna")


def test_a_statement_that_a_call_makes_twice_is_one_memory(open_tally: OpenTally) -> None:
    with open_tally() as tally:
        anna = tally.bind(ANNA)
        first, other, again = anna.remember_many(
            [NewMemory(content=text) for text in ("A heron.", "A stone.", "A heron.")]
        )

        assert [first.status, other.status, again.status] == ["created", "created", "duplicate"]
        assert again.id == first.id != other.id
        assert len(anna.get(first.id).sources) == 2
        assert {each.content for each in anna.memories()} == {"A heron.", "A stone."}


def test_turns_of_a_call_follow_one_another_and_a_place_has_one(open_tally: OpenTally) -> None:
    with open_tally() as tally:
        anna = tally.bind(ANNA)
        anna.remember_many(
            [
                NewMemory(content="Hello.", kind="turn", conversation="c", position=3),
                NewMemory(content="Yes.", kind="turn", conversation="c"),
                NewMemory(content="Yes.", kind="turn", conversation="c"),
                NewMemory(content="Hello.", kind="turn", conversation="c", position=3),
            ]
        )
        places = sorted((each.position, each.content) for each in anna.memories())
        with pytest.raises(PositionTaken):
            anna.remember_many(
                [
                    NewMemory(content="One.", kind="turn", conversation="d", position=0),
                    NewMemory(content="Two.", kind="turn", conversation="d", position=0),
                ]
            )

        assert places == [(3, "Hello."), (4, "Yes."), (5, "Yes.")]
        assert len(anna.memories()) == 3


def test_the_journal_of_several_calls_of_many_memories_is_one_chain(open_tally: OpenTally) -> None:
    with open_tally() as tally:
        anna = tally.bind(ANNA)
        for call in range(3):
            anna.remember_many([NewMemory(content=f"{call} {each}") for each in range(5)])
            anna.remember(f"{call} alone")
        with services_of(tally).store.database.read() as connection:
            problems = verify_stream(connection, "scope:private:anna")
        changes = [anna.history(each.id)[0].event for each in anna.memories()]

        assert not problems
        assert changes == ["ADD"] * 18


def test_an_extension_may_enqueue_a_job_between_memories_of_a_call(open_tally: OpenTally) -> None:
    """Its statement sends what waits, and the rows behind it still come in their order."""
    with open_tally(settings=Settings(graph=True)) as tally:
        anna = tally.bind(ANNA)
        kept = anna.remember_many([NewMemory(content=f"Ada met Bob at {n}.") for n in range(5)])

        assert [each.status for each in kept] == ["created"] * 5
        assert len(anna.memories()) == 5
