"""DBOS carries out the jobs of a tally, by the same handlers, and stores nothing twice."""

from __future__ import annotations

import gc
import time
import uuid
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
from dbos import DBOS, DBOSConfig

from tallystick import Tally
from tallystick.errors import InvalidInput
from tallystick.records import Actor
from tallystick.tally.services import services_of
from tallystick.testing import HashEmbedder
from tallystick_dbos import DbosBridge

pytestmark = [
    pytest.mark.postgres,
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]
ROOT = Actor(user="root", role="operator")


class Remote(HashEmbedder):
    """A remote embedder that is away until it is said to be back."""

    def __init__(self) -> None:
        super().__init__(local=False)
        self.is_away = False
        self.texts = 0

    def embed(self, texts: Sequence[str]) -> Any:
        if self.is_away:
            raise ConnectionError
        self.texts += len(texts)
        return super().embed(texts)


@pytest.fixture
def launch(postgres_url: str) -> Iterator[Callable[[], None]]:
    """Starts DBOS in this process, on the tests' PostgreSQL; it ends with the test."""
    config: DBOSConfig = {
        "name": "tally",
        "system_database_url": postgres_url,
        "dbos_system_schema": f"dbos{uuid.uuid4().hex[:8]}",
        "log_level": "WARNING",
        "enable_otlp": False,
        "use_listen_notify": False,
        "notification_listener_polling_interval_sec": 0.05,
    }
    DBOS.destroy(destroy_registry=True)
    DBOS(config=config)
    yield DBOS.launch
    DBOS.destroy(destroy_registry=True)
    # It leaves connections to the collector, which would find them in another test.
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()


def states(tally: Tally) -> dict[str, int]:
    counts: dict[str, int] = {}
    for job in tally.bind(ROOT).jobs.list(limit=1_000):
        counts[job.state] = counts.get(job.state, 0) + 1
    return counts


def until(condition: Callable[[], bool]) -> None:
    for _ in range(900):
        if condition():
            return
        time.sleep(0.05)
    raise AssertionError("It did not come to that.")


@pytest.mark.slow
def test_jobs_are_carried_out_by_workflows_once_each(
    postgres_url: str, launch: Callable[[], None]
) -> None:
    remote = Remote()
    with Tally.open(
        postgres_url, schema=f"t{uuid.uuid4().hex}", embedder=remote, background=False
    ) as tally:
        for user in ("alice", "bob"):
            tally.bind(Actor(user=user)).remember_many([f"{user} {number}" for number in range(5)])
        bridge = DbosBridge(tally, concurrency=4)
        launch()
        assert bridge.dispatch(limit=4) == 4
        bridge.dispatch()
        bridge.dispatch()
        until(lambda: states(tally) == {"done": 10})
        assert (remote.texts, bridge.dispatch()) == (10, 0)


@pytest.mark.slow
def test_an_outage_is_waited_for_and_a_retry_is_a_workflow_of_its_own(
    postgres_url: str, launch: Callable[[], None]
) -> None:
    remote = Remote()
    remote.is_away = True
    with Tally.open(
        postgres_url, schema=f"t{uuid.uuid4().hex}", embedder=remote, background=False
    ) as tally:
        tally.bind(Actor(user="alice")).remember("The heron nests in March.")
        bridge = DbosBridge(tally, name="embedding", kinds=["embed"])
        launch()
        bridge.dispatch()
        until(lambda: states(tally) == {"retry_scheduled": 1})
        assert bridge.dispatch() == 0
        remote.is_away = False
        [job] = tally.bind(ROOT).jobs.list()
        tally.bind(ROOT).jobs.retry(job.id, reason="r")
        until(lambda: bool(bridge.dispatch()) or states(tally) == {"done": 1})
        until(lambda: states(tally) == {"done": 1})


def test_a_workflow_that_comes_too_late_or_twice_stores_nothing(
    postgres_url: str, launch: Callable[[], None]
) -> None:
    remote = Remote()
    with Tally.open(
        postgres_url, schema=f"t{uuid.uuid4().hex}", embedder=remote, background=False
    ) as tally:
        tally.bind(Actor(user="alice")).remember("The heron nests in March.")
        bridge = DbosBridge(tally)
        launch()
        [due] = services_of(tally).background.runner.due(["embed"], limit=9)
        tally.drain()
        handle = DBOS.start_workflow(bridge._workflow, due.id, due.kind)
        assert handle.get_result() is False
        assert (remote.texts, states(tally)) == (1, {"done": 1})


def test_what_it_cannot_carry_out_is_refused(postgres_url: str) -> None:
    with (
        Tally.open(postgres_url, schema=f"t{uuid.uuid4().hex}", background=False) as tally,
        pytest.raises(InvalidInput, match="there is embed, graph, import"),
    ):
        DbosBridge(tally, kinds=["dream"])
    with pytest.raises(InvalidInput, match=r"DbosBridge\(Tally.open\('.tally'\)\)"):
        DbosBridge(".tally")  # type: ignore[arg-type]
