"""Whenever PostgreSQL ends a connection, reads and writes raise one of two errors: it could not be
reached, or a commit may or may not be there. The next call has a connection again.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from typing import Any

import psycopg
import pytest
import sqlalchemy.exc
from tests.postgres_proxy import Cut, PostgresProxy

from tallystick import Actor, Tally
from tallystick.checkpoints import Leaf, NewCheckpoint
from tallystick.errors import StorageError
from tallystick.storage import Connection
from tallystick.storage.engine import group_commit
from tallystick.storage.engine.database_errors import translate, was_lost
from tallystick.storage.engine.group_commit import savepoint
from tallystick.storage.engine.outcomes import is_committed, transaction_of
from tallystick.storage.rows import settings_rows
from tallystick.tally.services import services_of

pytestmark = [pytest.mark.postgres, pytest.mark.timeout(300)]
ADA = Actor(user="ada")
AWAY, OPEN = "could not be reached, or it ended", "may or may not be there"


@pytest.fixture
def proxy(postgres_url: str) -> Iterator[PostgresProxy]:
    proxy = PostgresProxy(postgres_url)
    yield proxy
    proxy.close()


@pytest.fixture
def tally(proxy: PostgresProxy) -> Iterator[Tally]:
    tally = Tally.open(proxy.url, schema=f"t{uuid.uuid4().hex}", background=False)
    tally.bind(ADA).remember("The heron nests in March.")
    yield tally
    tally.close()


def _remembered(tally: Tally, number: int) -> None:
    tally.bind(ADA).remember(f"Bird {number} nests in April.")


def _recalled(tally: Tally, number: int) -> None:
    assert tally.bind(ADA).recall("heron")[0].content == "The heron nests in March."


def _played(tally: Tally, number: int) -> None:
    with tally.bind(ADA).run("walker") as run:
        step = run.step("model_call", name=f"{number}")
        step.record("request", {"prompt": f"number {number}"})
        step.end()


def _put(tally: Tally, number: int) -> None:
    body = Leaf("json", b"{}")
    state = NewCheckpoint("", f"{number:08}", None, {"source": "loop"}, body, {"messages": body})
    tally.bind(ADA).threads.put("walk", state)


def _worked(tally: Tally, number: int) -> None:
    tally.drain()


def _changed(tally: Tally, number: int) -> None:
    bound = tally.bind(ADA)
    memory = bound.memories()[0]
    bound.modify(memory.id, content=f"Bird {number} was changed.", reason="a slip")


def _partly(tally: Tally, number: int) -> None:
    """A part that is undone, and one that is not."""

    def unit(tx: Connection) -> None:
        settings_rows.set_setting(tx, "one", f"{number}")
        with suppress(KeyError), savepoint(tx):
            settings_rows.set_setting(tx, "two", f"{number}")
            raise KeyError
        with savepoint(tx):
            settings_rows.set_setting(tx, "three", f"{number}")

    services_of(tally).store.database.write(unit, name="test")


def _together(tally: Tally, number: int) -> None:
    """Units that share a commit; one has an error of its own."""
    database = services_of(tally).store.database

    def unit(each: int, tx: Connection) -> None:
        settings_rows.set_setting(tx, f"made.{each}", f"{number}")
        settings_rows.get_setting(tx, f"made.{each}")
        if each == 1:
            raise KeyError

    answers: list[Future[None]] = [
        database.submit(partial(unit, each), name="test", deferred=True) for each in range(3)
    ]
    database.commit_now()
    errors = [answer.exception() for answer in answers]
    for error in errors:
        if error is not None and not isinstance(error, KeyError):
            raise error


CALLS: list[Callable[[Tally, int], None]] = [
    _remembered,
    _recalled,
    _changed,
    _played,
    _put,
    _worked,
    _partly,
    _together,
]


@pytest.mark.slow
@pytest.mark.parametrize("when", ["before", "after", "told"])
@pytest.mark.parametrize("call", CALLS)
def test_a_call_that_is_cut_anywhere_raises_one_of_two_errors(
    tally: Tally, proxy: PostgresProxy, call: Callable[[Tally, int], None], when: Cut
) -> None:
    for number in range(1, 120):
        proxy.cut(number, when)
        told = ""
        try:
            call(tally, number)
        except StorageError as error:
            told = str(error)
        # Whoever can still be asked says what became of a commit.
        assert told == "" or AWAY in told, (number, told)
        was_cut = proxy.was_cut
        proxy.mend()
        call(tally, 100 + number)
        if not was_cut:
            break
    else:
        pytest.fail("It went to the server more than 119 times.")
    assert number > 1


@pytest.mark.slow
@pytest.mark.parametrize("when", ["before", "after", "told"])
def test_a_run_that_is_cut_anywhere_is_whole_in_the_end(
    tally: Tally, proxy: PostgresProxy, when: Cut
) -> None:
    """What was cut off before its commit is written again, and what was committed is not."""
    bound = tally.bind(ADA)
    for number in range(1, 40):
        with bound.run("walker") as run:
            proxy.cut(number, when)
            for name in range(3):
                step = run.step("model_call", name=f"{name}")
                step.record("request", {"prompt": f"number {number}"})
                with suppress(StorageError):
                    step.end()
            was_cut = proxy.was_cut
            proxy.mend()
        run.end()

        steps = bound.recordings.steps(run.id)
        assert [step.status for step in steps] == ["completed"] * 3
        assert [len(bound.recordings.entries(step.id)) for step in steps] == [1] * 3
        assert bound.recordings.verify(run.id).ok
        assert bound.recordings.run(run.id).gaps == 0
        if not was_cut:
            break
    else:
        pytest.fail("It went to the server more than 39 times.")
    assert number > 3


def test_a_process_is_still_alive_after_the_server_ended_its_connections(
    tally: Tally, proxy: PostgresProxy, postgres_url: str
) -> None:
    """As when the server starts anew: else whoever opens the tally would end its runs."""
    bound = tally.bind(ADA)
    run = bound.run("walker")
    run.step("model_call", name="0").end()
    _end_sessions(postgres_url)
    run.step("model_call", name="1").end()

    schema = services_of(tally).store.database.schema
    with Tally.open(proxy.url, schema=schema, background=False) as another:
        assert another.bind(ADA).recordings.run(run.id).status == "running"
    run.step("model_call", name="2").end()
    run.end()
    assert bound.recordings.run(run.id).status == "completed"
    assert bound.recordings.verify(run.id).ok

    left = bound.run("walker")
    left.step("model_call", name="0").end()
    _end_sessions(postgres_url)
    services_of(tally).store.liveness.close()
    with Tally.open(proxy.url, schema=schema, background=False) as another:
        assert another.bind(ADA).recordings.run(left.id).status == "interrupted"


def _end_sessions(url: str) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
            "WHERE pid <> pg_backend_pid() AND backend_type = 'client backend'"
        )


@pytest.mark.slow
def test_a_commit_is_open_where_no_server_tells_of_it(
    tally: Tally, proxy: PostgresProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As after a failover: the other server may have given the number to somebody else."""
    database = services_of(tally).store.database
    told: list[bool | None] = []

    def unit(tx: Connection) -> None:
        settings_rows.set_setting(tx, "one", "1")
        transaction = transaction_of(tx)
        assert transaction is not None
        of_another = transaction._replace(timeline="00000042")
        told.append(is_committed(tx.engine, of_another))
        told.append(is_committed(tx.engine, None))

    database.write(unit, name="test")
    assert told == [None, None]

    monkeypatch.setattr(group_commit, "is_committed", lambda engine, transaction: None)
    is_open = set()
    for number in range(1, 40):
        proxy.cut(number, "after")
        try:
            _remembered(tally, number)
        except StorageError as error:
            is_open.add(OPEN in str(error))
        was_cut = proxy.was_cut
        proxy.mend()
        if not was_cut:
            break
    assert is_open == {False, True}


@pytest.mark.slow
@pytest.mark.parametrize("when", ["before", "after", "told"])
def test_an_opening_that_is_cut_anywhere_raises_one_of_two_errors(
    proxy: PostgresProxy, when: Cut
) -> None:
    schema = f"t{uuid.uuid4().hex}"
    for number in [*range(1, 25), 40, 60]:
        proxy.cut(number, when)
        try:
            Tally.open(proxy.url, schema=schema, background=False).close()
        except StorageError as error:
            assert AWAY in str(error) or OPEN in str(error), (number, error)  # noqa: PT017
        proxy.mend()
    with Tally.open(proxy.url, schema=schema, background=False) as tally:
        _remembered(tally, 1)


def _of_sqlalchemy(original: Any) -> BaseException:
    raised: BaseException = sqlalchemy.exc.DBAPIError.instance(
        "SELECT 1", None, original, psycopg.Error
    )
    return raised


LOST: list[BaseException] = [
    psycopg.OperationalError("the connection is lost"),
    psycopg.OperationalError("consuming input failed: SSL SYSCALL error: EOF detected"),
    psycopg.OperationalError("sending query failed: another reason"),
    psycopg.errors.AdminShutdown("terminating connection due to administrator command"),
    psycopg.errors.CrashShutdown("another server process crashed"),
    psycopg.errors.CannotConnectNow("the database system is not ready"),
    psycopg.errors.IdleInTransactionSessionTimeout("too long"),
    psycopg.OperationalError(
        'connection failed: connection to server on socket "/x" failed: No such file or directory'
    ),
    psycopg.OperationalError("connection is bad: Connection reset by peer"),
    psycopg.OperationalError("connection failed: FATAL:  the database system is shutting down"),
]


@pytest.mark.parametrize("error", LOST, ids=lambda error: str(error)[:40])
def test_what_the_driver_says_of_a_lost_connection_is_one_sentence(error: BaseException) -> None:
    for each in (error, _of_sqlalchemy(error)):
        assert was_lost(each)
        assert AWAY in str(translate(each))
        assert OPEN in str(translate(each, committing=True))


def test_what_a_given_up_connection_raises_later_is_the_same_sentence() -> None:
    for error in (
        sqlalchemy.exc.PendingRollbackError(
            "Can't reconnect until invalid transaction is rolled back."
        ),
        sqlalchemy.exc.ResourceClosedError("This Connection is closed"),
    ):
        assert AWAY in str(translate(error))


def test_a_refusal_is_no_lost_connection() -> None:
    of_password = "connection failed: FATAL:  password authentication failed"
    refusals: dict[Exception, str] = {
        psycopg.errors.UniqueViolation("duplicate key"): "refused a statement",
        psycopg.OperationalError(of_password): "refused the connection",
        psycopg.errors.QueryCanceled("canceling statement"): "refused a statement",
    }
    for error, says in refusals.items():
        for each in (error, _of_sqlalchemy(error)):
            assert not was_lost(each)
            assert says in str(translate(each))
