"""How often a write on PostgreSQL goes to the server and back, and what it leaves where the
connection is cut at any of these times.
"""

from __future__ import annotations

import threading
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial

import pytest
from sqlalchemy import select
from sqlalchemy.exc import DBAPIError
from tests.postgres_proxy import Cut, PostgresProxy

from tallystick import Actor, Tally
from tallystick.errors import IdempotencyMismatch, StorageError, TallystickError
from tallystick.storage import Connection
from tallystick.storage.engine import tables
from tallystick.storage.engine.group_commit import savepoint
from tallystick.storage.engine.prepared import Prepared
from tallystick.storage.engine.writes import Writes
from tallystick.storage.rows import journal, settings_rows
from tallystick.tally.services import services_of

pytestmark = [pytest.mark.postgres, pytest.mark.timeout(120)]
ALICE = Actor(user="alice")


@pytest.fixture
def proxy(postgres_url: str) -> Iterator[PostgresProxy]:
    proxy = PostgresProxy(postgres_url)
    yield proxy
    proxy.close()


@pytest.fixture
def tally(proxy: PostgresProxy) -> Iterator[Tally]:
    with Tally.open(proxy.url, schema=f"t{uuid.uuid4().hex}", background=False) as tally:
        yield tally


def _require_whole_chain(tally: Tally) -> None:
    with services_of(tally).store.database.read() as connection:
        assert not list(journal.verify_stream(connection, "scope:private:alice"))
        assert journal.end_of(connection, "scope:private:alice").length


def test_a_remember_goes_to_the_server_and_back_twice(tally: Tally, proxy: PostgresProxy) -> None:
    alice = tally.bind(ALICE)
    alice.remember("The heron nests in March.")
    before = proxy.rounds
    alice.remember("The owl nests in April.")
    assert proxy.rounds - before == 2
    alice.remember("The owl is back.", conversation="c", position=1)
    assert proxy.rounds - before == 4
    alice.remember("The owl is gone.", conversation="c")
    assert proxy.rounds - before == 6
    alice.remember("The kite nests in May.", idempotency_key="kite")
    assert proxy.rounds - before == 9, "its key, and then a revision"
    _require_whole_chain(tally)


def test_what_is_read_ahead_of_a_remember_is_what_it_finds(tally: Tally) -> None:
    alice = tally.bind(ALICE)
    first = alice.remember("The heron nests in March.")
    assert alice.remember("The heron nests in March.").id == first.id
    alike = alice.remember_many(["The owl nests in April.", "The owl nests in April."])
    assert [each.status for each in alike] == ["created", "duplicate"]
    for place, text in enumerate(("It is back.", "It is gone.", "It is back.")):
        turn = alice.remember(text, conversation="c")
        assert alice.get(turn.id).position == place
    assert alice.remember("It is back.", conversation="c", position=0).status == "duplicate"
    kept = alice.remember("The kite nests in May.", idempotency_key="kite")
    assert alice.remember("The kite nests in May.", idempotency_key="kite").id == kept.id
    with pytest.raises(IdempotencyMismatch):
        alice.remember("The kite nests in June.", idempotency_key="kite")
    alice.forget(first.id, reason="No more.")
    assert alice.remember("The heron nests in March.").id != first.id


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("number", [1, 2])
def test_a_remember_that_is_cut_is_there_once_or_not_at_all(
    tally: Tally, proxy: PostgresProxy, number: int, when: Cut
) -> None:
    """A commit whose answer is lost is looked for; every failure says that nothing was written; a
    connection that is gone before the unit began is replaced.
    """
    alice = tally.bind(ALICE)
    alice.remember("The heron nests in March.")
    alice.recall("heron")
    proxy.cut(number, when)
    told = ""  # of the first way: the connection is replaced
    try:
        alice.remember("The owl nests in April.")
    except StorageError as error:
        told = str(error)
    assert proxy.was_cut
    found = [hit.content for hit in alice.recall("owl nests April")].count(
        "The owl nests in April."
    )
    if number == 1:
        assert (told, found) == ("", 1)
    elif when == "before":
        assert "Nothing was written" in told
        assert found == 0
    else:
        assert (told, found) == ("", 1)
    alice.remember("The kite nests in May.")
    assert alice.recall("kite")[0].content == "The kite nests in May."
    _require_whole_chain(tally)


def test_a_call_whose_outcome_is_unknown_is_repeated_under_its_key(
    tally: Tally, proxy: PostgresProxy
) -> None:
    alice = tally.bind(ALICE)
    for number in range(1, 12):
        key, text = f"key {number}", f"The owl number {number} nests in April."
        proxy.cut(number, "after")
        try:
            first = alice.remember(text, idempotency_key=key)
        except StorageError:
            first = None
        proxy.mend()
        again = alice.remember(text, idempotency_key=key)
        assert first is None or first.id == again.id
        assert [hit.content for hit in alice.recall(text)].count(text) == 1
    _require_whole_chain(tally)


def test_a_statement_that_waited_and_failed_undoes_its_unit_alone(tally: Tally) -> None:
    """It is refused with the others of its pipeline, before the commit, whoever shares it."""
    alice = tally.bind(ALICE)
    alice.remember("The heron nests in March.")
    database = services_of(tally).store.database
    together = threading.Barrier(4)

    def write(number: int) -> str:
        def unit(tx: Connection) -> None:
            settings_rows.set_setting(tx, f"made.{number}", "1")
            if number == 2:
                settings_rows.set_setting(tx, None, "1")  # type: ignore[arg-type]

        together.wait()
        try:
            database.write(unit, name="test")
        except TallystickError as error:
            return str(error)
        return "written"

    for _ in range(5):
        with ThreadPoolExecutor(4) as threads:
            told = list(threads.map(write, range(4)))
        assert [each == "written" for each in told] == [True, True, False, True]
        with database.read() as connection:
            made = [settings_rows.get_setting(connection, f"made.{n}") for n in range(4)]
        assert made == ["1", "1", None, "1"]


def test_many_threads_share_pipelines(tally: Tally) -> None:
    alice = tally.bind(ALICE)
    texts = [f"Bird number {number} nests here." for number in range(40)]
    with ThreadPoolExecutor(8) as threads:
        made = list(threads.map(alice.remember, texts))
    assert len({each.id for each in made}) == 40
    assert sorted(each.content for each in map(alice.get, (m.id for m in made))) == sorted(texts)
    _require_whole_chain(tally)


def test_what_is_run_often_is_prepared_and_a_failure_costs_the_connection_alone(
    tally: Tally, proxy: PostgresProxy
) -> None:
    """The driver counts on statements that a failed pipeline has never prepared: wherever the
    failure comes, what is written afterwards is there.
    """
    database = services_of(tally).store.database
    insert = Prepared("INSERT INTO settings (name, value) VALUES (:name, :value)")
    wanted, seen = set[str](), set[int]()

    def add(tx: Connection, name: str) -> None:
        insert(tx, {"name": name, "value": "1"})

    def succeeds(tx: Connection, name: str) -> None:
        seen.add(tx.exec_driver_sql("SELECT pg_backend_pid()").scalar_one())
        add(tx, name)
        wanted.add(name)

    def fails(tx: Connection, name: str) -> None:
        with suppress(DBAPIError), savepoint(tx):
            insert(tx, {"name": f"{name}-refused", "value": None})
            add(tx, f"{name}-undone")
            add(tx, f"{name}-undone too")
        succeeds(tx, name)

    for before in range(10):
        for number in range(before):
            name = f"{before}-{number}"
            database.write(partial(succeeds, name=name), name="test", writes=Writes.of("x"))
        database.write(partial(fails, name=f"{before}"), name="test", writes=Writes.of("x"))
    with database.read() as connection:
        query = select(tables.settings.c.name).where(tables.settings.c.name.regexp_match("^[0-9]"))
        assert set(connection.execute(query).scalars()) == wanted
    assert len(seen) == 10
