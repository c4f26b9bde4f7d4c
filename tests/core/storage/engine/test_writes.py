"""What a unit declares that it writes: others wait for it where they must, and nowhere else."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from types import SimpleNamespace
from typing import Any, cast

import pytest
from sqlalchemy import func, select
from tests.core.storage.engine.writers import SECONDS, held

from tallystick import Actor, Tally
from tallystick.errors import BusyTally, InvalidInput, StorageError
from tallystick.jobs import JobRunner
from tallystick.records import Scope
from tallystick.settings import Settings
from tallystick.storage.engine import tables
from tallystick.storage.engine.database import Database
from tallystick.storage.engine.writes import EVERYTHING, RUNS, Writes
from tallystick.storage.rows import jobs, journal, scopes
from tallystick.storage.rows.idempotency import IdempotentCall
from tallystick.tally.services import services_of

OpenTally = Callable[..., Tally]
ANNA, BEN = Actor(user="anna"), Actor(user="ben")
OF_ANNA, OF_BEN = Scope.parse("private:anna"), Scope.parse("private:ben")


@pytest.fixture
def two_processes(postgres_url: str) -> Iterator[tuple[Tally, Tally]]:
    """Two tallies on one database, as two processes have them."""
    schema = f"t{uuid.uuid4().hex}"
    settings = Settings.read(busy_timeout_ms=300)
    with ExitStack() as stack:
        first, second = (
            stack.enter_context(
                Tally.open(postgres_url, schema=schema, background=False, settings=settings)
            )
            for _ in range(2)
        )
        yield first, second


def _database(tally: Tally) -> Database:
    return services_of(tally).store.database


@pytest.mark.postgres
def test_who_writes_another_scope_does_not_wait(two_processes: tuple[Tally, Tally]) -> None:
    first, second = two_processes
    with held(first, Writes.of(OF_ANNA)):
        kept = second.bind(BEN).remember("Herons nest in March.")
        assert second.bind(BEN).get(kept.id).content == "Herons nest in March."
        with pytest.raises(BusyTally):
            second.bind(ANNA).remember("waits for the scope")
    second.bind(ANNA).remember("and goes on")


@pytest.mark.postgres
def test_one_process_writes_several_scopes_at_once(two_processes: tuple[Tally, Tally]) -> None:
    database = _database(two_processes[0])
    names = [f"private:user{number}" for number in range(40)]
    other = next(
        name
        for name in names
        if database._line_of(Writes.of(name)) is not database._line_of(Writes.of(OF_ANNA))
    )
    with held(two_processes[0], Writes.of(OF_ANNA)):
        assert database.write(lambda _: True, name="beside", writes=Writes.of(other))


@pytest.mark.postgres
@pytest.mark.parametrize("writes", [Writes.of(OF_ANNA), RUNS, EVERYTHING])
def test_what_writes_everything_waits_for_all_and_all_for_it(
    two_processes: tuple[Tally, Tally], writes: Writes
) -> None:
    first, second = two_processes
    with held(first, writes):
        with pytest.raises(BusyTally):
            _database(second).write(lambda _: None, name="all", writes=EVERYTHING)
        if writes is EVERYTHING:
            for other in (Writes.of(OF_BEN), RUNS):
                with pytest.raises(BusyTally):
                    _database(second).write(lambda _: None, name="one", writes=other)


def test_a_write_that_was_not_declared_is_refused_and_undone(open_tally: OpenTally) -> None:
    with open_tally() as tally:
        database = _database(tally)
        tally.bind(BEN).remember("Herons nest in March.")

        def unit(tx: Any) -> None:
            scopes.ensure(tx, OF_ANNA)
            scopes.changing(tx, OF_BEN)

        with pytest.raises(StorageError, match=r"declared private:anna writes to private:ben"):
            database.write(unit, name="wrong", writes=Writes.of(OF_ANNA))
        with database.read() as connection:
            assert scopes.find(connection, [OF_ANNA]) == []

        event = journal.Event(stream="tally", event="test", actor=ANNA, at=0, audit_id="0")
        with pytest.raises(StorageError, match="writes to tally"):
            database.write(
                lambda tx: journal.append(tx, event), name="wrong", writes=Writes.of(OF_ANNA)
            )
        database.write(lambda tx: journal.append(tx, event), name="right")


@pytest.mark.postgres
def test_who_changes_one_memory_waits_for_writers_of_its_scope_alone(
    two_processes: tuple[Tally, Tally],
) -> None:
    first, second = two_processes
    ben = second.bind(BEN)
    kept = ben.remember("Herons nest in March.")

    def change_all() -> None:
        ben.modify(kept.id, content="Herons nest in April.", reason="seen", idempotency_key="1")
        ben.modify(kept.id, importance=70, reason="seen")
        ben.forget(kept.id, reason="a slip")
        ben.recover(kept.id, reason="it was none")
        hidden = ben.corrections.make(kept.id, "hide", reason="a slip")
        ben.corrections.make(
            kept.id, "hide", reason="a slip", mode="apply", confirm_token=hidden.confirm_token
        )
        services_of(second).background.runner.run(["embed"])

    with held(first, Writes.of(OF_ANNA)):
        change_all()
    assert ben.memories() == []
    again = ben.remember("Storks nest in May.")
    with held(first, Writes.of(OF_BEN)):
        with pytest.raises(BusyTally):
            ben.modify(again.id, importance=70, reason="seen")
        with pytest.raises(BusyTally):
            ben.forget(again.id, reason="a slip")


@pytest.mark.postgres
def test_a_job_is_leased_while_a_scope_is_written(two_processes: tuple[Tally, Tally]) -> None:
    first, second = two_processes
    services = services_of(second)
    store = services.store

    def enqueue(tx: Any) -> None:
        jobs.enqueue(
            tx,
            kind="note",
            subject_id="m",
            scope_id=scopes.ensure(tx, OF_BEN).id,
            actor=BEN,
            job_id=store.ids.new(),
            at=store.clock.now(),
        )

    store.database.write(enqueue, name="test", writes=Writes.of(OF_BEN))
    handler = SimpleNamespace(
        kind="note",
        batch=1,
        lease_seconds=60,
        is_upkeep=False,
        changes_memory=False,
        is_autonomous=False,
    )
    runner = JobRunner(store, services.gate, [cast(Any, handler)])
    with held(first, Writes.of(OF_BEN)):
        [leased] = runner._lease(runner.handlers["note"])
    assert leased.subject_id == "m"


def test_a_change_that_reaches_copies_in_other_scopes_is_carried_out_alone(
    open_tally: OpenTally,
) -> None:
    """Its unit declares its own scope, is undone where it meets the copy, and is run again."""
    anna = Actor(user="anna", projects=frozenset({"apollo"}))
    apollo = Scope.parse("project:apollo")
    with open_tally() as tally:
        mine, ours = tally.bind(anna), tally.bind(anna, apollo)
        kept = mine.remember("Herons nest in March.")
        shown = mine.corrections.share(kept.id, into=apollo, reason="all should know")
        mine.corrections.share(
            kept.id,
            into=apollo,
            reason="all should know",
            mode="apply",
            confirm_token=shown.confirm_token,
        )
        [copy] = ours.memories()
        mine.modify(kept.id, content="Herons nest in April.", reason="seen")
        assert ours.get(copy.id).content == "Herons nest in April."
        assert [entry.version for entry in (mine.get(kept.id), ours.get(copy.id))] == [2, 2]
        mine.forget(kept.id, reason="a slip")
        assert ours.memories() == []
        with _database(tally).read() as connection:
            for scope in (OF_ANNA, apollo):
                assert journal.verify_stream(connection, f"scope:{scope}") == []


def test_an_answer_is_kept_only_in_a_scope_that_was_declared(open_tally: OpenTally) -> None:
    with open_tally() as tally:
        call = IdempotentCall(OF_ANNA, "test", "key", {})
        with pytest.raises(StorageError, match=r"declared private:ben writes to private:anna"):
            _database(tally).write(
                lambda tx: call.keep(tx, {}, at=0), name="wrong", writes=Writes.of(OF_BEN)
            )


def test_sqlite_refuses_several_writers(open_sqlite: OpenTally) -> None:
    with pytest.raises(InvalidInput, match="SQLite has one writer"):
        open_sqlite(settings=Settings.read(writers=2))
    with open_sqlite(settings=Settings.read(writers=1)) as tally:
        assert tally.bind(ANNA).remember("Herons nest in March.").status == "created"


@pytest.mark.postgres
def test_two_processes_that_create_one_scope_at_once_have_one(
    two_processes: tuple[Tally, Tally],
) -> None:
    """Both look before either commits: without locks, as units of runs do."""
    met = threading.Barrier(2)

    def create(tally: Tally) -> bytes:
        def unit(tx: Any) -> bytes:
            assert scopes.find(tx, [OF_ANNA]) == []
            met.wait(SECONDS)
            return scopes.ensure(tx, OF_ANNA).secret

        return _database(tally).write(unit, name="scope", writes=RUNS)

    with ThreadPoolExecutor(2) as threads:
        first, second = threads.map(create, two_processes)
    assert first == second


@pytest.mark.postgres
@pytest.mark.timeout(120)
def test_streams_stay_whole_under_many_writers(two_processes: tuple[Tally, Tally]) -> None:
    actors = [Actor(user=f"user{number}") for number in range(4)]

    def write(place: int) -> None:
        bound = two_processes[place % 2].bind(actors[place % 4])
        for number in range(10):
            kept = bound.remember(f"{place} saw heron {number} at the mill.")
            if number % 5 == 0:
                bound.forget(kept.id, reason="seen twice")
        with bound.run("counter", goal="count"):
            bound.recall("heron")

    with ThreadPoolExecutor(8) as threads:
        list(threads.map(write, range(8)))
    with _database(two_processes[0]).read() as connection:
        streams = list(connection.execute(select(tables.streams.c.name)).scalars())
        for stream in streams:
            assert journal.verify_stream(connection, stream) == []
        kept = connection.execute(select(func.count()).select_from(tables.memories)).scalar_one()
    assert kept == 80
    assert sum(stream.startswith("run:") for stream in streams) == 8
