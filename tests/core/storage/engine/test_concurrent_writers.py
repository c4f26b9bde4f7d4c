"""Two transactions on one PostgreSQL tally at once: what each must survive of the other, without a
lock that keeps them apart.
"""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import pytest
from sqlalchemy import Connection, Engine, create_engine, select, text, update

from tallystick import Actor, Scope, Tally
from tallystick.storage.engine import tables
from tallystick.storage.engine.dialects import prepare_postgres
from tallystick.storage.rows import jobs, journal, scopes

pytestmark = [pytest.mark.postgres, pytest.mark.timeout(60)]
ALICE = Actor(user="alice")
APOLLO = Scope.parse("project:apollo")
T = TypeVar("T")


@pytest.fixture
def engine(postgres_url: str) -> Iterator[Engine]:
    """Connections to a tally of the test's own, which take no turn."""
    schema = f"t{uuid.uuid4().hex}"
    Tally.open(postgres_url, schema=schema, background=False).close()
    url = postgres_url.replace("postgresql://", "postgresql+psycopg://", 1)
    limits = f"-c search_path={schema} -c lock_timeout=20s"
    engine = create_engine(url, connect_args={"options": limits})
    prepare_postgres(engine)
    yield engine
    engine.dispose()


def together(
    engine: Engine, first: Callable[[Connection], T], second: Callable[[Connection], T]
) -> tuple[T, T]:
    """Run `first`, and `second` before it is committed; commit `first` once `second` waits for it
    or is done; return both results.
    """
    pid: list[int] = []
    begun = threading.Event()

    def run_second() -> T:
        with engine.begin() as tx:
            pid.append(tx.execute(text("SELECT pg_backend_pid()")).scalar_one())
            begun.set()
            return second(tx)

    waits = text("SELECT wait_event_type = 'Lock' FROM pg_stat_activity WHERE pid = :pid")
    with ThreadPoolExecutor(1) as threads, engine.connect() as watching:
        with engine.begin() as tx:
            one = first(tx)
            other = threads.submit(run_second)
            begun.wait()
            while not other.done():
                if watching.execute(waits, {"pid": pid[0]}).scalar():
                    break
                watching.rollback()
                time.sleep(0.005)
        return one, other.result()


def test_two_processes_may_create_one_scope_at_once(engine: Engine) -> None:
    def create(tx: Connection) -> scopes.ScopeRow:
        return scopes.ensure(tx, APOLLO)

    one, other = together(engine, create, create)
    assert one == other


def test_two_processes_may_begin_one_stream_at_once(engine: Engine) -> None:
    def event(tx: Connection) -> int:
        named = journal.Event("scope:x", "memory.seen", ALICE, 1, uuid.uuid4().hex)
        return journal.append(tx, named).position

    assert together(engine, event, event) == (0, 1)
    with engine.connect() as connection:
        assert not list(journal.verify_stream(connection, "scope:x"))


def test_an_end_of_a_stream_that_was_cached_is_read_anew_as_often_as_it_moved(
    engine: Engine,
) -> None:
    def event(tx: Connection) -> int:
        named = journal.Event("scope:x", "memory.seen", ALICE, 1, uuid.uuid4().hex)
        return journal.append(tx, named).position

    with engine.begin() as tx:
        event(tx)
    for round_ in range(4):
        assert together(engine, event, event) == (1 + 2 * round_, 2 + 2 * round_)
    with engine.connect() as connection:
        assert not list(journal.verify_stream(connection, "scope:x"))


def test_a_mark_misses_nothing_of_writers_side_by_side(engine: Engine) -> None:
    """Revisions of a scope are committed in their order: who was later waits for the other."""
    with engine.begin() as tx:
        scope = scopes.ensure(tx, ALICE.private_scope)

    def change(tx: Connection) -> int:
        return scopes.next_revision(tx, scope.id)

    for _ in range(4):
        first, second = together(engine, change, change)
        with engine.connect() as connection:
            [(_, now)] = scopes.revisions(connection, [ALICE.private_scope])
        assert {first, second} == {now - 1, now}


def _enqueue(tx: Connection) -> str:
    return jobs.enqueue(
        tx,
        kind=jobs.EMBED,
        subject_id="m",
        scope_id=None,
        actor=ALICE,
        job_id=uuid.uuid4().hex,
        at=1,
    )


def test_two_processes_may_enqueue_the_same_job_at_once(engine: Engine) -> None:
    one, other = together(engine, _enqueue, _enqueue)
    assert one == other


def test_a_job_is_leased_once_by_two_workers_at_once(engine: Engine) -> None:
    def lease(tx: Connection) -> list[Any]:
        return list(jobs.lease(tx, kind=jobs.EMBED, worker="w", most=5, seconds=60))

    with engine.begin() as tx:
        _enqueue(tx)
    one, other = together(engine, lease, lease)
    assert (len(one), len(other)) == (1, 0)
    with engine.connect() as connection:
        assert connection.execute(select(tables.jobs.c.leases)).scalars().all() == [1]


def _leased(tx: Connection) -> list[jobs.LeasedJob]:
    """A job whose lease has run out."""
    _enqueue(tx)
    leased = jobs.lease(tx, kind=jobs.EMBED, worker="w", most=1, seconds=60)
    tx.execute(update(tables.jobs).values(due_at=1))
    return leased


def _state(engine: Engine) -> str:
    with engine.connect() as connection:
        return str(connection.execute(select(tables.jobs.c.state)).scalar_one())


def test_a_lease_that_ran_out_is_not_taken_back_while_its_job_is_stored(engine: Engine) -> None:
    """Nor does who looks for such leases, or renews them, wait for it."""
    with engine.begin() as tx:
        leased = _leased(tx)

    def store(tx: Connection) -> list[jobs.LeasedJob]:
        still = jobs.hold(tx, leased)
        jobs.finish(tx, still)
        return still

    def take(tx: Connection) -> tuple[list[str], int]:
        return jobs.reap(tx), len(jobs.renew(tx, leased, seconds=60))

    assert together(engine, store, take) == (leased, ([], 0))
    assert _state(engine) == "done"


def test_a_job_is_cancelled_or_stored_and_never_both(engine: Engine) -> None:
    with engine.begin() as tx:
        leased = _leased(tx)

    def store(tx: Connection) -> int:
        still = jobs.hold(tx, leased)
        jobs.finish(tx, still)
        return len(still)

    def cancel(tx: Connection) -> bool:
        return jobs.cancel(tx, leased[0].id)

    assert together(engine, store, cancel) == (1, False)
    with engine.begin() as tx:
        tx.execute(update(tables.jobs).values(state="leased", due_at=1))
    assert together(engine, cancel, store) == (True, 0)
    assert _state(engine) == "dead"


def test_a_job_that_somebody_starts_anew_holds_up_nobody_who_wants_the_same(
    engine: Engine,
) -> None:
    with engine.begin() as tx:
        leased = _leased(tx)
        jobs.end(tx, leased, "failed", code="test", text="")
    assert together(engine, _enqueue, jobs.requeue) == (leased[0].id, [])
    assert _state(engine) == "pending"
