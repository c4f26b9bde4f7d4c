"""The database: what survives the loss of power, and what a reader sees while others write."""

from __future__ import annotations

import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import psycopg
import pytest
from sqlalchemy.sql.compiler import SQLCompiler

from tallystick import Actor, Tally
from tallystick.errors import BusyTally, CorruptTally
from tallystick.settings import Settings
from tallystick.storage import Connection
from tallystick.storage.engine.writes import TALLY_LOCK
from tallystick.storage.rows import memories, scopes
from tallystick.tally.services import services_of

OpenTally = Callable[..., Tally]
ALICE = Actor(user="alice")
NORMAL, FULL = 1, 2


def _in_a_write(tally: Tally, statement: str) -> Any:
    database = services_of(tally).store.database
    return database.write(lambda tx: tx.exec_driver_sql(statement).scalar(), name="test")


@pytest.mark.parametrize(("durability", "synchronous"), [("normal", NORMAL), ("full", FULL)])
def test_sqlite_syncs_each_commit_only_where_full_durability_is_asked_for(
    open_sqlite: OpenTally, durability: str, synchronous: int
) -> None:
    """NORMAL keeps every commit over a killed process, FULL over the loss of power too."""
    with open_sqlite(settings=Settings.read(durability=durability)) as tally:
        assert _in_a_write(tally, "PRAGMA synchronous") == synchronous
        assert _in_a_write(tally, "PRAGMA journal_mode") == "wal"


@pytest.mark.sqlite
@pytest.mark.parametrize("accident", ["gone", "another"])
def test_nothing_is_acknowledged_once_the_file_is_no_longer_the_one_that_was_opened(
    open_sqlite: OpenTally, accident: str, tmp_path: Path
) -> None:
    """Else a process writes for weeks to a file that nobody finds."""
    with open_sqlite() as tally:
        bound, file = tally.bind(ALICE), Path(tally.location) / "tally.db"
        bound.remember("The heron nests in March.")
        services_of(tally).store.database.flush()
        if accident == "another":
            shutil.copyfile(file, tmp_path / "another.db")
        file.rename(tmp_path / "moved.db")
        if accident == "another":
            shutil.copyfile(tmp_path / "another.db", file)
        for _ in range(2):
            with pytest.raises(CorruptTally, match=r"tally\.db is (gone|another file)"):
                bound.remember("The heron left.")
        assert file.exists() is (accident == "another")


@pytest.mark.postgres
def test_postgres_syncs_each_commit_where_full_durability_is_asked_for(
    postgres_url: str,
) -> None:
    """Whatever the server does by itself."""
    settings = Settings.read(durability="full")
    separator = "&" if "?" in postgres_url else "?"
    with Tally.open(
        f"{postgres_url}{separator}options=-csynchronous_commit%3Doff",
        schema="durability",
        background=False,
        settings=settings,
    ) as tally:
        assert _in_a_write(tally, "SHOW synchronous_commit") == "on"


def _remembered(connection: Connection) -> int:
    [scope] = scopes.find(connection, [ALICE.private_scope])
    return len(memories.statuses(connection, [scope.id]))


def test_a_reader_sees_one_state_from_its_first_statement_to_its_last(
    open_tally: OpenTally,
) -> None:
    """Who decides over a scope and then reads it reads what was decided over."""
    with open_tally() as tally:
        alice = tally.bind(ALICE)
        alice.remember("The heron nests in March.")
        with services_of(tally).store.database.read() as connection:
            first = _remembered(connection)
            writer = threading.Thread(target=alice.remember, args=("The owl nests in April.",))
            writer.start()
            writer.join()
            second = _remembered(connection)
        with services_of(tally).store.database.read() as connection:
            third = _remembered(connection)

    assert (first, second, third) == (1, 1, 2)


@pytest.fixture
def foreign(postgres_url: str) -> Iterator[psycopg.Connection[Any]]:
    """Another client of the tests' server."""
    connection = psycopg.connect(postgres_url, autocommit=True)
    yield connection
    connection.close()


def _busy(url: str, milliseconds: int, **options: Any) -> Tally:
    settings = Settings.read(busy_timeout_ms=milliseconds, **options)
    return Tally.open(url, schema="waiting", background=False, settings=settings)


@pytest.mark.postgres
def test_what_a_server_says_beside_its_answers_is_logged_by_its_codes(
    postgres_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    with (
        _busy(postgres_url, 1_000) as tally,
        caplog.at_level("WARNING", "tallystick.storage"),
        services_of(tally).store.database.read() as connection,
    ):
        connection.exec_driver_sql("DO $$ BEGIN RAISE WARNING 'heron nests'; END $$")

    [said] = [record.getMessage() for record in caplog.records]
    assert "event='postgres.notice'" in said
    assert "state='01000' reason='WARNING'" in said
    assert "heron" not in said


DRIVER = """
import logging
from sqlalchemy import create_engine
from tallystick.storage.engine.dialects import prepare_postgres
prepare_postgres(create_engine("sqlite://"))
prepare_postgres(create_engine("sqlite://"))
logging.getLogger("psycopg").warning("error ignored terminating a heron")
log = logging.getLogger("tallystick.storage")
log.addHandler(logging.StreamHandler())
logging.getLogger("psycopg").warning("error ignored terminating a heron")
"""


def test_what_the_driver_warns_of_is_logged_and_not_printed() -> None:
    ended = subprocess.run([sys.executable, "-c", DRIVER], capture_output=True, text=True)
    assert ended.stderr.splitlines() == ["event='postgres.driver' reason='WARNING' level='warning'"]


@pytest.mark.postgres
@pytest.mark.timeout(60)
def test_what_another_client_of_postgres_locks_is_waited_for_no_longer_than_said(
    postgres_url: str, foreign: psycopg.Connection[Any]
) -> None:
    """The turn of the writers, and a table, for a write and for a read; then it goes on."""
    with _busy(postgres_url, 100) as tally:
        alice = tally.bind(ALICE)
        alice.remember("The heron nests in March.")
        foreign.execute("SET search_path TO waiting")
        foreign.execute(f"SELECT pg_advisory_lock({TALLY_LOCK})")
        with pytest.raises(BusyTally):
            alice.remember("waits for the turn")
        _busy(postgres_url, 100).close()
        assert len(alice.recall("heron")) == 1
        foreign.execute(f"SELECT pg_advisory_unlock({TALLY_LOCK})")
        with foreign.transaction():
            foreign.execute("LOCK TABLE waiting.memories IN ACCESS EXCLUSIVE MODE")
            for call in (partial(alice.recall, "heron"), partial(alice.remember, "waits")):
                with pytest.raises(BusyTally):
                    call()
        alice.remember("The owl nests in April.")
        assert alice.recall("owl")[0].content == "The owl nests in April."


@pytest.mark.postgres
def test_two_processes_make_a_tally_one_after_the_other(
    postgres_url: str, foreign: psycopg.Connection[Any]
) -> None:
    """Before there is a schema, too: both would make it, and one of them would fail."""
    settings = Settings(busy_timeout_ms=100)
    foreign.execute("SELECT pg_advisory_lock(30737, hashtext('first_turn'))")
    with pytest.raises(BusyTally):
        Tally.open(postgres_url, schema="first_turn", settings=settings, background=False)
    foreign.execute("SELECT pg_advisory_unlock(30737, hashtext('first_turn'))")
    Tally.open(postgres_url, schema="first_turn", settings=settings, background=False).close()


@pytest.mark.postgres
def test_a_server_that_ended_every_connection_is_connected_to_anew(
    postgres_url: str, foreign: psycopg.Connection[Any]
) -> None:
    """As a restart does: idle connections are replaced, so that no call fails."""
    end = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid()"
    with _busy(postgres_url, 2_000) as tally:
        alice = tally.bind(ALICE)
        alice.remember("before")
        alice.recall("before")
        for number in range(3):
            foreign.execute(f"{end} AND backend_type = 'client backend'")
            alice.remember(f"write {number}")
            foreign.execute(f"{end} AND backend_type = 'client backend'")
            assert alice.recall(f"write {number}")


@pytest.mark.timeout(25)
def test_more_readers_than_there_are_connections_are_told_in_time(open_tally: OpenTally) -> None:
    settings = Settings.read(busy_timeout_ms=100, readers=1)
    with open_tally(settings=settings) as tally, ExitStack() as open_reads:
        database = services_of(tally).store.database
        for _ in range(1 + 16):
            open_reads.enter_context(database.read())
        with pytest.raises(BusyTally, match="Every reader is in use"):
            open_reads.enter_context(database.read())
        open_reads.close()
        with database.read():
            pass


def test_a_second_tally_of_a_process_translates_no_statement_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def use(folder: str) -> None:
        with Tally.open(tmp_path / folder, background=False) as tally:
            alice = tally.bind(ALICE)
            alice.remember("Herons nest in March.")
            alice.recall("When do herons nest?")

    use("first")
    translated: list[object] = []
    note = SQLCompiler.__init__

    def init(self: SQLCompiler, dialect: Any, statement: Any, **given: Any) -> None:
        translated.append(statement)
        note(self, dialect, statement, **given)

    monkeypatch.setattr(SQLCompiler, "__init__", init)
    use("second")

    assert [str(each) for each in translated if "CREATE" not in str(each)] == []
