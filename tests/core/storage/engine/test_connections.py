"""Connections to PostgreSQL: as many as the settings say, and where the server has none left calls
wait, and nothing recorded is lost.
"""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from typing import Any

import psycopg
import pytest
from tests.servers import own_postgres

from tallystick import Actor, Tally
from tallystick.errors import BusyTally
from tallystick.settings import Settings
from tallystick.storage.engine import database_errors
from tallystick.testing import HashEmbedder

pytestmark = [pytest.mark.postgres, pytest.mark.timeout(180)]
ADA = Actor(user="ada")


@pytest.fixture(scope="module")
def small() -> Iterator[str]:
    """A server with ten connections, three of them for superusers; its address as another role."""
    with own_postgres(connections=10) as server:
        url = server.get_uri()
        with psycopg.connect(url, autocommit=True) as administrator:
            administrator.execute("CREATE ROLE small LOGIN")
            administrator.execute("GRANT CREATE ON DATABASE postgres TO small")
        yield url.replace("postgres:@", "small:@")


def _open(url: str, schema: str, **options: Any) -> Tally:
    settings = Settings.read(**{"readers": 1, "writers": 1, **options})
    return Tally.open(
        url, schema=schema, background=False, settings=settings, embedder=HashEmbedder()
    )


def test_a_process_has_no_more_connections_than_its_settings_say(postgres_url: str) -> None:
    name = f"t{uuid.uuid4().hex}"
    url = f"{postgres_url}&application_name={name}"
    with (
        _open(url, name, readers=3, writers=2) as tally,
        psycopg.connect(postgres_url, autocommit=True) as administrator,
    ):
        bound = tally.bind(ADA)
        bound.remember("The heron nests in March.")
        peak, ended = 0, threading.Event()

        def work(number: int) -> None:
            other = tally.bind(Actor(user=f"user{number}"))
            for each in range(4):
                other.remember(f"Bird {each} nests in April.")
                other.recall("bird")
                bound.recall("heron")
                with other.run("walker") as run, run.step("model_call"):
                    pass

        def watch() -> None:
            nonlocal peak
            query = "SELECT count(*) FROM pg_stat_activity WHERE application_name = %s"
            while not ended.is_set():
                peak = max(peak, administrator.execute(query, [name]).fetchone()[0])  # type: ignore[index]
                time.sleep(0.002)

        watching = threading.Thread(target=watch)
        watching.start()
        with ThreadPoolExecutor(40) as threads:
            list(threads.map(work, range(40)))
        ended.set()
        watching.join()
    assert 3 <= peak <= 3 + 2 + 1


def test_a_full_server_is_waited_for(small: str, monkeypatch: pytest.MonkeyPatch) -> None:
    # By its code, and not by words.
    monkeypatch.setattr(database_errors, "_NO_CONNECTION", ())
    schema = f"t{uuid.uuid4().hex}"
    with _open(small, schema) as tally:
        tally.bind(ADA).remember("The heron nests in March.")
    with ExitStack() as held:
        with suppress(psycopg.OperationalError):
            for _ in range(10):
                held.enter_context(psycopg.connect(small, autocommit=True))
        begun = time.monotonic()
        with pytest.raises(BusyTally, match="no free connection"):
            _open(small, schema, busy_timeout_ms=1_000)
        assert 1.0 <= time.monotonic() - begun < 6.0

        freeing = threading.Timer(0.7, held.close)
        freeing.start()
        with _open(small, schema) as tally:
            assert len(tally.bind(ADA).recall("heron")) == 1
        freeing.join()


def test_many_processes_on_a_small_server_lose_nothing_at_close(small: str) -> None:
    """Eight clients that want three connections each, of seven."""
    schema = f"t{uuid.uuid4().hex}"
    _open(small, schema).close()
    runs: list[str] = []

    def work(number: int) -> None:
        tally = _open(small, schema, busy_timeout_ms=2_000)
        bound = tally.bind(Actor(user=f"user{number}", role="operator"))
        for _ in range(3):
            run = bound.run("walker")
            run.step("model_call").end(wait=False)
            run.end(wait=False)
            runs.append(run.id)
        time.sleep(0.5)
        tally.close()

    with ThreadPoolExecutor(8) as threads:
        list(threads.map(work, range(8)))
    with _open(small, schema) as tally:
        recordings = tally.bind(Actor(user="user0", role="operator")).recordings
        assert len(runs) == 24
        for run_id in runs:
            assert recordings.verify(run_id).ok
            assert recordings.run(run_id).gaps == 0
