"""Several processes share one PostgreSQL and one Chroma server: they drain one at a time, and none
takes another's work for damage.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import pytest
from tests.servers import chroma_server

from tallystick import Actor, Tally
from tallystick.errors import BusyTally
from tallystick.settings import Settings
from tallystick.storage.index.chroma import IndexState, state_of
from tallystick.tally.services import services_of
from tallystick.testing import HashEmbedder

pytestmark = [pytest.mark.postgres, pytest.mark.timeout(180)]
ADA = Actor(user="ada")


@pytest.fixture
def pair(postgres_url: str, tmp_path: Path) -> Iterator[tuple[Tally, Tally]]:
    """Two openings of one tally, as of two processes."""
    schema = f"t{uuid.uuid4().hex}"
    with ExitStack() as stack:
        address = stack.enter_context(chroma_server(tmp_path / "chroma"))
        chosen = Settings.read(chroma=address, vector_search="chroma", busy_timeout_ms=3_000)
        first, second = (
            stack.enter_context(
                Tally.open(
                    postgres_url,
                    schema=schema,
                    embedder=HashEmbedder(),
                    background=False,
                    settings=chosen,
                )
            )
            for _ in range(2)
        )
        yield first, second


def _state(tally: Tally) -> IndexState:
    services = services_of(tally)
    with services.store.database.read() as connection:
        return state_of(connection, services.embedder.fingerprint)


def _path(tally: Tally) -> tuple[str, tuple[str, ...]]:
    found = tally.bind(ADA).recall("the heron nests in March")
    return found.path, tuple(found.warnings)


def test_points_that_a_drain_under_way_deleted_are_not_missing(pair: tuple[Tally, Tally]) -> None:
    ours, theirs = pair
    ours.bind(ADA).remember("The heron nests in March.")
    ours.bind(ADA).remember("The owl nests in April.")
    ours.drain()
    assert _path(ours) == ("chroma", ())
    index = services_of(theirs).index
    assert index is not None
    index.arrange(services_of(ours).index.layout)  # type: ignore[union-attr]
    index.announce(_state(theirs))
    index.delete([2])
    assert _path(ours) == ("chroma", ())
    assert ours.drain().left == 0


def test_points_that_no_drain_deleted_are_missing(pair: tuple[Tally, Tally]) -> None:
    ours, _ = pair
    ours.bind(ADA).remember("The heron nests in March.")
    ours.bind(ADA).remember("The owl nests in April.")
    ours.drain()
    index = services_of(ours).index
    assert index is not None
    index.delete([2])
    path, warnings = _path(ours)
    assert path == "exact"
    assert "vectors were scanned exactly" in warnings[0]
    ours.drain()
    assert _path(ours) == ("chroma", ())


@pytest.mark.slow
def test_a_process_waits_for_the_drain_of_another(pair: tuple[Tally, Tally]) -> None:
    ours, theirs = pair
    ours.bind(ADA).remember("The heron nests in March.")
    with services_of(theirs).store.database.turn_of("chroma", wait=True) as mine:
        assert mine
        with services_of(ours).store.database.turn_of("chroma", wait=False) as free:
            assert not free
        with pytest.raises(BusyTally):
            ours.drain()
    assert ours.drain().left == 0


@pytest.mark.slow
def test_two_processes_drain_while_others_write_and_forget(pair: tuple[Tally, Tally]) -> None:
    def write(number: int) -> None:
        bound = pair[number % 2].bind(ADA)
        for each in range(12):
            made = bound.remember(f"bird {number} sings its song {each}")
            if each % 2:
                bound.forget(made.id, reason="told twice")

    with ThreadPoolExecutor(4) as threads:
        writing = [threads.submit(write, number) for number in range(2)]
        while not all(each.done() for each in writing):
            for drained in [threads.submit(tally.drain) for tally in pair]:
                drained.result()
        for each in writing:
            each.result()
    assert pair[0].drain().left == 0
    assert pair[1].reconcile_index(repair=False).whole
    assert _path(pair[0]) == _path(pair[1]) == ("chroma", ())
