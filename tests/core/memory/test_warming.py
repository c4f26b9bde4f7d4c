"""Warming: what the first questions of a person need is read before, and nobody is said to read."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tallystick import Actor, Tally
from tallystick.kit.background import warm
from tallystick.storage.rows import scopes
from tallystick.tally.services import services_of
from tallystick.testing import HashEmbedder

OpenTally = Callable[..., Tally]
ANNA, BEN = Actor(user="anna"), Actor(user="ben")


class _Elsewhere(HashEmbedder):
    """An embedder of another machine, which notes what it was sent."""

    def __init__(self) -> None:
        super().__init__(local=False)
        self.sent: list[str] = []

    def embed(self, texts: Sequence[str]) -> Any:
        self.sent += texts
        return super().embed(texts)


def _size(tally: Tally, user: Actor) -> int | None:
    context = services_of(tally).memory
    scope = tally.bind(user).scope
    with context.store.database.read() as connection:
        [row] = scopes.find(connection, [scope])
    return context.corpora.size(row.id)


def test_the_scopes_of_a_person_are_in_memory_before_they_ask_and_no_others(
    open_tally: OpenTally,
) -> None:
    with open_tally(owner=ANNA, embedder=HashEmbedder()) as tally:
        tally.bind(ANNA).remember("The heron nests in March.")
        tally.bind(BEN).remember("The ferry leaves at noon.")
    with open_tally(owner=ANNA, embedder=HashEmbedder()) as tally:
        before = _size(tally, ANNA)
        warm(tally.bind(ANNA))
        corpora = services_of(tally).memory.corpora
        loads = corpora.loads
        hits = tally.bind(ANNA).recall("When does the heron nest?")

        assert before is None
        assert (_size(tally, ANNA), _size(tally, BEN)) == (1, None)
        assert corpora.loads == loads
        assert [hit.memory.content for hit in hits] == ["The heron nests in March."]


def test_nobody_is_said_to_have_read_and_nothing_changes(open_tally: OpenTally) -> None:
    with open_tally(owner=ANNA, embedder=HashEmbedder()) as tally:
        anna = tally.bind(ANNA)
        told = anna.remember("The heron nests in March.")
        happened = anna.recordings.activity()
        reads = anna.recordings.reads()
        warm(anna)
        warm(tally.bind(BEN))

        assert anna.recordings.reads() == reads
        assert anna.recordings.activity() == happened
        assert anna.get(told.id).access_count == 0


def test_nothing_is_sent_to_an_embedder_elsewhere(open_sqlite: OpenTally) -> None:
    elsewhere = _Elsewhere()
    with open_sqlite(owner=ANNA, embedder=elsewhere) as tally:
        tally.bind(ANNA).remember("The heron nests in March.")
        tally.drain()
        elsewhere.sent.clear()
        warm(tally.bind(ANNA))

        assert elsewhere.sent == []
        assert _size(tally, ANNA) == 1
