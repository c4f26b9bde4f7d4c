"""One writer at a time: on the caller's thread when nobody else writes, together when many do,
whole either way.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from sqlalchemy import create_engine

from tallystick import Actor, Tally
from tallystick.errors import ClosedTally, InsideTransaction, StorageError
from tallystick.storage.rows import journal, parts, scopes
from tallystick.tally.services import services_of

OpenTally = Callable[..., Tally]
ALICE = Actor(user="alice")


def test_who_writes_alone_writes_on_its_own_thread(open_tally: OpenTally) -> None:
    with open_tally() as tally:
        writes = services_of(tally).store.database.write(
            lambda _: threading.current_thread(), name="test"
        )
        assert writes is threading.current_thread()


@pytest.mark.parametrize("count", [*range(1, 12), 63, 300])
def test_rows_that_are_written_together_are_the_rows_that_were_given(
    count: int, open_tally: OpenTally
) -> None:
    rows: list[dict[str, Any]] = [
        {"key": f"key {number % 250}", "body": b"%d" % number, "created_at": number}
        for number in range(count)
    ]
    with open_tally() as tally:
        database = services_of(tally).store.database

        def unit(tx: Any) -> Any:
            rows[:] = [{**row, "scope_id": scopes.ensure(tx, ALICE.home()).id} for row in rows]
            parts.put_keyed(tx, rows)
            return {row["key"]: parts.get(tx, row["scope_id"], row["key"]) for row in rows}

        first = {row["key"]: row["body"] for row in reversed(rows)}
        assert database.write(unit, name="test") == first


def test_what_comes_while_another_writes_waits_its_turn_and_is_answered_in_order(
    open_tally: OpenTally,
) -> None:
    with open_tally() as tally:
        database = services_of(tally).store.database
        begun, may_end = threading.Event(), threading.Event()
        done: list[str] = []

        def first(_: Any) -> None:
            begun.set()
            may_end.wait()
            done.append("first")

        with ThreadPoolExecutor(1) as pool:
            slow = pool.submit(database.write, first, name="first")
            begun.wait()
            others = [
                database.submit(lambda _, name=name: done.append(name), name=name)  # type: ignore[misc]
                for name in ("second", "third")
            ]
            assert done == []
            may_end.set()
            for one in (slow, *others):
                one.result()
        assert done == ["first", "second", "third"]


def test_a_write_inside_a_write_is_refused_and_undoes_it(open_tally: OpenTally) -> None:
    with open_tally() as tally:
        alice = tally.bind(ALICE)

        def nested(tx: Any) -> None:
            tx.exec_driver_sql("INSERT INTO settings (name, value) VALUES ('half', 'done')")
            alice.remember("Written inside.")

        with pytest.raises(InsideTransaction):
            services_of(tally).store.database.write(nested, name="outer")
        with services_of(tally).store.database.read() as connection:
            assert (
                connection.exec_driver_sql(
                    "SELECT count(*) FROM settings WHERE name = 'half'"
                ).scalar()
                == 0
            )
        alice.remember("Written after.")
        assert [memory.content for memory in alice.memories()] == ["Written after."]


@pytest.mark.parametrize("interrupt", [KeyboardInterrupt, SystemExit])
def test_a_writer_that_is_interrupted_leaves_nothing_and_the_next_one_writes(
    open_tally: OpenTally, interrupt: type[BaseException]
) -> None:
    with open_tally() as tally:
        alice = tally.bind(ALICE)

        def interrupted(tx: Any) -> None:
            tx.exec_driver_sql("INSERT INTO settings (name, value) VALUES ('half', 'done')")
            raise interrupt

        with pytest.raises(interrupt):
            services_of(tally).store.database.write(interrupted, name="interrupted")
        alice.remember("Written after.")
        with services_of(tally).store.database.read() as connection:
            assert (
                connection.exec_driver_sql(
                    "SELECT count(*) FROM settings WHERE name = 'half'"
                ).scalar()
                == 0
            )


def test_many_threads_write_and_nothing_is_lost_or_mixed(open_tally: OpenTally) -> None:
    with open_tally() as tally:
        alice = tally.bind(ALICE)

        def write(number: int) -> str:
            if number % 10 == 9:
                # What one unit was refused takes nothing from those that share its commit.
                with pytest.raises(StorageError):
                    services_of(tally).store.database.write(
                        lambda tx: tx.exec_driver_sql("INSERT INTO no_such_table VALUES (1)"),
                        name="refused",
                    )
            return alice.remember(f"The heron number {number} nests.").id

        with ThreadPoolExecutor(8) as pool:
            written = list(pool.map(write, range(80)))
        assert {memory.id for memory in alice.memories(limit=200)} == set(written)
        with services_of(tally).store.database.read() as connection:
            assert journal.verify_stream(connection, "scope:private:alice") == []
            assert journal.end_of(connection, "scope:private:alice").length == 80


def test_two_tallies_of_one_database_write_one_chain_in_turns(open_tally: OpenTally) -> None:
    with open_tally() as first, open_tally() as second:
        for number in range(6):
            (first, second)[number % 2].bind(ALICE).remember(f"The heron number {number} nests.")
        with services_of(first).store.database.read() as connection:
            assert journal.verify_stream(connection, "scope:private:alice") == []
            assert journal.end_of(connection, "scope:private:alice").length == 6


def test_an_entry_that_was_undone_is_not_taken_for_the_end_of_its_chain(
    open_tally: OpenTally,
) -> None:
    with open_tally() as tally:
        alice = tally.bind(ALICE)
        alice.remember("The heron nests.")

        def undone(tx: Any) -> None:
            event = journal.Event(
                stream="scope:private:alice", event="test", actor=ALICE, at=1, audit_id="undone"
            )
            journal.append(tx, event)
            raise LookupError

        with pytest.raises(LookupError):
            services_of(tally).store.database.write(undone, name="undone")
        alice.remember("The heron flew.")
        with services_of(tally).store.database.read() as connection:
            assert journal.verify_stream(connection, "scope:private:alice") == []
            assert journal.end_of(connection, "scope:private:alice").length == 2


def test_a_reader_that_failed_leaves_the_next_one_a_fresh_view(open_tally: OpenTally) -> None:
    with open_tally() as tally:
        alice = tally.bind(ALICE)
        with pytest.raises(StorageError), services_of(tally).store.database.read() as connection:
            connection.exec_driver_sql("SELECT * FROM no_such_table")
        with pytest.raises(LookupError), services_of(tally).store.database.read() as connection:
            raise LookupError
        alice.remember("The heron nests.")
        assert [hit.memory.content for hit in alice.recall("heron")] == ["The heron nests."]


def test_a_server_that_went_away_costs_one_read_and_one_write(open_tally: OpenTally) -> None:
    with open_tally() as tally:
        database, alice = services_of(tally).store.database, tally.bind(ALICE)
        alice.remember("The heron nests.")
        if not database.is_remote:
            return
        barrier = threading.Barrier(3)

        def backend(connection: Any) -> int:
            return int(connection.exec_driver_sql("SELECT pg_backend_pid()").scalar())

        def read(_: int) -> int:
            with database.read() as connection:
                barrier.wait()
                return backend(connection)

        with ThreadPoolExecutor(3) as pool:
            backends = [database.write(backend, name="test"), *pool.map(read, range(3))]
        other = create_engine(database.url)
        with other.connect() as connection:
            for one in backends:
                connection.exec_driver_sql(f"SELECT pg_terminate_backend({one})")
        other.dispose()

        failed = 0
        for number in range(6):
            try:
                alice.remember(f"The heron number {number} nests.")
                alice.memories()
            except StorageError:
                failed += 1
        assert failed <= 2
        assert len(alice.memories()) >= 5


def test_a_write_to_a_closed_tally_is_refused(open_tally: OpenTally) -> None:
    tally = open_tally()
    alice = tally.bind(ALICE)
    tally.close()
    with pytest.raises(ClosedTally):
        alice.remember("Too late.")
