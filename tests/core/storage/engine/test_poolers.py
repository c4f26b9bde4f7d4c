"""Behind PgBouncer, whichever way it hands connections out, each tally reads and writes its own
schema, and no other application of the pool sees a setting of ours.
"""

from __future__ import annotations

import subprocess
import sys
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import Any, Literal

import psycopg
import pytest
from tests.servers import new_database, pgbouncer

from tallystick import Actor, Tally
from tallystick.errors import InvalidInput, StorageError
from tallystick.settings import Settings
from tallystick.tally.services import services_of
from tallystick.testing import HashEmbedder

pytestmark = [pytest.mark.postgres, pytest.mark.timeout(300)]
ADA = Actor(user="ada")
Mode = Literal["session", "transaction"]


@pytest.fixture(scope="module")
def address(postgres_url: str) -> Iterator[str]:
    """A database of its own: what is left in its pool is ours."""
    with new_database(postgres_url) as url:
        yield url


@pytest.fixture(scope="module", params=["session", "transaction"])
def pooled(address: str, request: pytest.FixtureRequest) -> Iterator[str]:
    with pgbouncer(address, request.param, size=16 if request.param == "session" else 6) as url:
        yield url


@pytest.fixture(scope="module")
def transactions(address: str) -> Iterator[str]:
    with pgbouncer(address, "transaction", size=4) as url:
        yield url


def _open(url: str, schema: str, **options: Any) -> Tally:
    settings = Settings.read(readers=2, writers=1, **options)
    return Tally.open(
        url, schema=schema, background=False, settings=settings, embedder=HashEmbedder()
    )


def _texts(tally: Tally) -> set[str]:
    return {memory.content for memory in tally.bind(ADA).memories(limit=500)}


def test_two_tallies_of_one_pool_read_and_write_their_own_schema(pooled: str, address: str) -> None:
    schemas = [f"t{uuid.uuid4().hex}" for _ in range(2)]

    def work(tally: Tally, name: str, client: int) -> list[str]:
        bound = tally.bind(ADA)
        done = []
        for number in range(8):
            text = f"{name} keeps bird {client}.{number}"
            bound.remember(text)
            done.append(text)
            assert {each.split()[0] for each in _texts(tally)} == {name}
            assert {each.content.split()[0] for each in bound.recall("bird")} == {name}
            with bound.run("walker") as run, run.step("model_call") as step:
                step.record("request", {"prompt": text})
        return done

    with ExitStack() as opened, ThreadPoolExecutor(4) as threads:
        tallies = [opened.enter_context(_open(pooled, name)) for name in schemas * 2]
        answers = [
            threads.submit(work, tally, name, client)
            for client, (tally, name) in enumerate(zip(tallies, schemas * 2, strict=True))
        ]
        written = [answer.result() for answer in answers]
        for name, tally, *mine in zip(schemas, tallies, written, written[2:], strict=False):
            assert _texts(tally) == {text for texts in mine for text in texts}, name

    with psycopg.connect(address) as connection:
        made = connection.execute(
            "SELECT DISTINCT schemaname FROM pg_tables WHERE tablename = 'memories' "
            "AND schemaname = ANY(%s) OR schemaname = 'public'",
            [schemas],
        ).fetchall()
    assert {name for (name,) in made} == set(schemas)


def test_no_setting_of_ours_reaches_another_application_of_the_pool(transactions: str) -> None:
    names = ("search_path", "lock_timeout", "synchronous_commit", "statement_timeout")
    with psycopg.connect(transactions, autocommit=True, prepare_threshold=None) as other:
        before = [other.execute(f"SHOW {name}").fetchone() for name in names]
        with _open(transactions, f"t{uuid.uuid4().hex}") as tally:
            for number in range(12):
                tally.bind(ADA).remember(f"Bird {number} nests in April.")
                assert [other.execute(f"SHOW {name}").fetchone() for name in names] == before
        assert [other.execute(f"SHOW {name}").fetchone() for name in names] == before
        assert other.execute("SELECT count(*) FROM pg_prepared_statements").fetchone() == (0,)


def test_the_doctor_says_how_the_server_is_reached(transactions: str, address: str) -> None:
    schema, root = f"t{uuid.uuid4().hex}", Actor(user="root", role="operator")
    for url, way in ((address, "without a pooler, as "), (transactions, "through a pooler, as ")):
        with _open(url, schema) as tally:
            texts = {each.check: each.text for each in tally.bind(root).operator.doctor()}
            assert way in texts["database"]
            assert "connections are in use, and idle ones are ended never" in texts["database"]
            assert "has no owner here" in texts["who acts"]


def test_the_server_prepares_statements_where_no_pooler_is(transactions: str, address: str) -> None:
    schema = f"t{uuid.uuid4().hex}"

    def prepared(url: str, **options: Any) -> int:
        with _open(url, schema, **options) as tally:
            for number in range(8):
                tally.bind(ADA).remember(f"Bird {number} nests in April.")
            # On the connection that wrote.
            return int(
                services_of(tally).store.database.write(
                    lambda tx: tx.exec_driver_sql(
                        "SELECT count(*) FROM pg_prepared_statements"
                    ).scalar_one(),
                    name="test",
                )
            )

    assert prepared(address) > 5
    assert prepared(address, prepare_threshold=0) == 0
    assert prepared(transactions) == 0
    with pytest.raises(InvalidInput, match="max_prepared_statements"):
        _open(transactions, schema, prepare_threshold=5)


def test_a_pooler_of_single_statements_is_refused_with_what_to_change(address: str) -> None:
    with (
        pgbouncer(address, "statement") as url,
        pytest.raises(StorageError, match="pool_mode = transaction"),
    ):
        _open(url, "tallystick")


def test_options_of_an_address_are_refused_by_the_pooler_in_our_words(transactions: str) -> None:
    with pytest.raises(StorageError, match="refused the connection"):
        _open(f"{transactions}?options=-c%20work_mem%3D8MB", "tallystick")


CLIENT = """
import sys
from tallystick import Actor, Tally
from tallystick.settings import Settings
from tallystick.testing import HashEmbedder

url, schema, client, count = sys.argv[1:]
settings = Settings.read(readers=2, writers=2)
tally = Tally.open(url, schema=schema, background=False, settings=settings, embedder=HashEmbedder())
bound = tally.bind(Actor(user="ada"))
for number in range(int(count)):
    text = f"{schema} keeps bird {client}.{number}"
    bound.remember(text)
    print(text, flush=True)
    seen = {memory.content.split()[0] for memory in bound.memories(limit=500)}
    seen |= {memory.content.split()[0] for memory in bound.recall("bird")}
    assert seen == {schema}, seen
    with bound.run("walker") as run, run.step("model_call") as step:
        step.record("request", {"prompt": text})
    assert bound.recordings.verify(run.id).ok
tally.close()
"""


@pytest.mark.slow
def test_four_processes_of_two_tallies_lose_nothing_and_see_nothing_foreign(
    pooled: str, address: str
) -> None:
    schemas = [f"t{uuid.uuid4().hex}" for _ in range(2)]
    clients = [
        subprocess.Popen(
            [sys.executable, "-c", CLIENT, pooled, schema, str(client), "25"],
            stdout=subprocess.PIPE,
            text=True,
        )
        for client, schema in enumerate(schemas * 2)
    ]
    said = [client.communicate(timeout=240)[0].splitlines() for client in clients]
    assert [client.returncode for client in clients] == [0] * 4
    for schema, *mine in zip(schemas, said, said[2:], strict=False):
        with _open(address, schema) as tally:
            assert _texts(tally) == {text for texts in mine for text in texts}
            assert len(_texts(tally)) == 50
