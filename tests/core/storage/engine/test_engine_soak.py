"""Many processes write to one PostgreSQL while clients and the server are killed: chains verify, no
memory waits for Chroma, no job is run twice, nothing that was acknowledged is lost, and
nothing is there twice.
"""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Literal

import pytest
from hypothesis import settings as profile
from sqlalchemy import select
from tests.core.storage.engine import soaking_client
from tests.servers import chroma_server, own_postgres, restart_postgres

from tallystick import Actor, Tally
from tallystick.errors import StorageError, TallystickError
from tallystick.jobs import JobRunner
from tallystick.settings import Settings
from tallystick.storage.engine import tables
from tallystick.storage.engine.writes import Writes
from tallystick.storage.rows import job_list, journal
from tallystick.tally.services import services_of
from tallystick.testing import HashEmbedder

pytestmark = [pytest.mark.postgres, pytest.mark.slow, pytest.mark.timeout(3_000)]
ROOT = Actor(user="root", role="operator")
THREADS = 3
WHATS = {"alone0", "alone1", "alone2", "shared", "changed", "gone", "job", "step", "state"}


@pytest.fixture(scope="module")
def server() -> Iterator[Any]:
    """A PostgreSQL that no other test uses: it is killed."""
    with own_postgres() as server:
        yield server


class Soak:
    """The processes of one soak, and what they were told."""

    def __init__(self, url: str, schema: str, chroma: str, rounds: int) -> None:
        self._arguments = (url, schema, chroma)
        self._rounds = rounds
        self.told: dict[tuple[str, int, int, str], set[str]] = {}
        """The ids that were told for what was acknowledged; one, however often it was repeated."""
        self.kills = 0
        self.problems: list[str] = []
        self._guard = threading.Lock()

    @property
    def acknowledged(self) -> int:
        with self._guard:
            return len(self.told)

    def keep_up(self, process: str, kill_after: Callable[[], int | None]) -> None:
        """Run a process anew until it has written all; SIGKILL after so many lines, if any."""
        while (begun := self._begun(process)) != [self._rounds] * THREADS:
            given = [f"{first}:{self._rounds}" for first in begun]
            client = subprocess.Popen(
                [sys.executable, soaking_client.__file__, *self._arguments, process, *given],
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
            assert client.stdout is not None
            limit = kill_after()
            for lines, line in enumerate(client.stdout, 1):
                self._note(process, line)
                if lines == limit:
                    client.send_signal(signal.SIGKILL)
                    self.kills += 1
            _, errors = client.communicate()
            if client.returncode not in (0, -signal.SIGKILL):
                self.problems.append(errors)
                return

    def _note(self, process: str, line: str) -> None:
        if line.endswith("\n"):
            thread, number, what, told = line.split()
            with self._guard:
                self.told.setdefault((process, int(thread), int(number), what), set()).add(told)

    def _begun(self, process: str) -> list[int]:
        """Return for each thread the first round of which not all is acknowledged."""
        with self._guard:
            known = Counter(
                (thread, number) for name, thread, number, _ in self.told if name == process
            )
        return [
            next(n for n in range(self._rounds + 1) if known[thread, n] < len(WHATS))
            for thread in range(THREADS)
        ]

    def ids(self, *whats: str) -> set[str]:
        return {one for key, ids in self.told.items() if key[3] in whats for one in ids}


def test_nothing_is_lost_and_nothing_doubled_while_clients_and_the_server_are_killed(
    server: Any, tmp_path: Path
) -> None:
    """Some hundred writes by two processes; more than 10,000 by four under `make soak`."""
    soaks = profile().max_examples > 100
    processes, rounds = (4, 95) if soaks else (2, 5)
    every = 600 if soaks else 60
    chance = random.Random(21)
    schema = f"t{uuid.uuid4().hex}"
    url = server.get_uri()
    with chroma_server(tmp_path / "chroma") as chroma:
        chosen = Settings.read(chroma=chroma, vector_search="chroma")
        Tally.open(url, schema=schema, embedder=HashEmbedder(), background=False).close()
        soak = Soak(url, schema, chroma, rounds)

        def kill_after() -> int | None:
            # So often that work goes on between two kills.
            return (
                chance.randint(10, every) if soak.kills < processes * (4 if soaks else 1) else None
            )

        keepers = [
            threading.Thread(target=soak.keep_up, args=(f"p{number}", kill_after))
            for number in range(processes)
        ]
        for keeper in keepers:
            keeper.start()
        restarts, next_at = 0, every // 2
        modes: tuple[Literal["immediate", "fast"], ...] = ("immediate", "fast")
        while any(keeper.is_alive() for keeper in keepers):
            if soak.acknowledged >= next_at:
                restart_postgres(server, modes[restarts % 2])
                restarts, next_at = restarts + 1, next_at + every
            time.sleep(0.05)
        assert not soak.problems, "\n".join(soak.problems)
        assert restarts >= 2
        assert soak.kills >= processes
        assert len(soak.told) == processes * THREADS * rounds * len(WHATS)

        with Tally.open(
            url, schema=schema, embedder=HashEmbedder(), background=False, settings=chosen
        ) as tally:
            services = services_of(tally)
            runner = JobRunner(services.store, services.gate, [soaking_client.Noting(tally)])
            while _open_jobs(tally):  # what a killed process has leased is due when its lease ends
                runner.run(drain=True)
                time.sleep(0.1)
            assert tally.drain().left == 0
            _require_whole(tally, soak)
            _require_once(tally, soak, processes * THREADS * rounds)
            assert tally.reconcile_index(repair=False).whole


def _open_jobs(tally: Tally) -> int:
    with services_of(tally).store.database.read() as connection:
        return job_list.open_count(connection, [soaking_client.KIND])


def _require_whole(tally: Tally, soak: Soak) -> None:
    """Every chain verifies, and nothing waits that nobody would read."""
    with services_of(tally).store.database.read() as connection:
        for stream in connection.execute(select(tables.streams.c.name)).scalars().all():
            assert journal.verify_stream(connection, stream) == [], stream
    operator = tally.bind(ROOT).operator
    # The last request of a client that was killed may reach Chroma after what replaced it. The
    # doctor sees that, and mends it from the database.
    problems = [one.check for one in operator.doctor() if one.status == "problem"]
    assert problems in ([], ["index"])
    operator.doctor(repair=True, reason="r")
    assert [one for one in operator.doctor() if one.status == "problem"] == []


def _require_once(tally: Tally, soak: Soak, rounds: int) -> None:
    """Everything that was acknowledged is there, once, whatever was repeated."""
    m, j = tables.memories.c, tables.journal.c
    keyed = ("alone0", "alone1", "alone2", "shared", "changed", "gone", "state")
    for key, ids in soak.told.items():
        assert len(ids) == 1 or key[3] not in keyed, (key, ids)
    with services_of(tally).store.database.read() as connection:
        stored = set(connection.execute(select(m.id)).scalars())
        assert stored == soak.ids("alone0", "alone1", "alone2", "shared")
        assert len(stored) == 4 * rounds
        forgotten = set(connection.execute(select(m.id).where(m.state == "deleted")).scalars())
        assert forgotten == soak.ids("gone")
        versions = {row.id: row.version for row in connection.execute(select(m.id, m.version))}
        for told in soak.ids("changed"):
            memory_id, version = told.split(":")
            assert versions[memory_id] == int(version)
        assert max(versions.values()) == 2
        subjects = connection.execute(select(j.subject_id).where(j.event == "soak.job")).scalars()
        run = Counter(subjects)
        states = select(tables.jobs.c.state).where(tables.jobs.c.kind == "soak")
        ended = Counter(connection.execute(states).scalars())
    assert set(run.values()) == {1}, run.most_common(3)
    assert ended == {"done": rounds}
    assert len(run) == rounds
    for process in {key[0] for key in soak.told}:
        for thread in range(THREADS):
            actor = Actor(user=f"{process}-{thread}", role="operator")
            _require_kept(tally.bind(actor), soak, process, thread)


def _require_kept(bound: Any, soak: Soak, process: str, thread: int) -> None:
    for key, ids in soak.told.items():
        if key[:2] != (process, thread):
            continue
        for told in ids:
            if key[3] == "step":
                run_id, _, digest = told.partition(":")
                assert digest in {each.digest for each in bound.recordings.receipts(run_id)}
            elif key[3] == "state":
                name = f"{process}-{thread}"
                assert bound.threads.get(name, namespace="", checkpoint_id=told) is not None


def test_what_was_acknowledged_before_a_restart_is_there_and_what_was_not_raises(
    server: Any,
) -> None:
    """A tally that stays open: its connections are those of a server that is gone."""
    ada = Actor(user="ada")
    for mode in ("immediate", "fast"):
        with Tally.open(server.get_uri(), schema=f"t{uuid.uuid4().hex}", background=False) as tally:
            mine = tally.bind(ada)
            kept = mine.remember("The heron nests in March.")
            restart_postgres(server, mode)
            assert mine.get(kept.id).content == "The heron nests in March."
            restart_postgres(server, mode)
            assert mine.remember("The owl nests in April.").status == "created"

            database = services_of(tally).store.database

            def unit(tx: Any, mode: Any = mode) -> None:
                journal.append(tx, journal.Event("scope:x", "memory.seen", ada, 1, "a"))
                journal.end_of(tx, "scope:y")  # the first is sent
                restart_postgres(server, mode)

            with pytest.raises(StorageError, match=r"Nothing was written|may or may not"):
                database.write(unit, name="cut")
            with database.read() as connection:
                assert journal.end_of(connection, "scope:x").length == 0
            assert mine.remember("The owl nests in April.").status != "created"


def test_a_server_that_is_away_is_told_and_waited_for(server: Any) -> None:
    with Tally.open(server.get_uri(), schema=f"t{uuid.uuid4().hex}", background=False) as tally:
        mine = tally.bind(Actor(user="ada"))
        kept = mine.remember("The heron nests in March.")
        restart_postgres(server, "immediate", start=False)
        try:
            for call in (lambda: mine.remember("The owl."), lambda: mine.get(kept.id)):
                with pytest.raises(TallystickError, match="could not be reached"):
                    call()
        finally:
            restart_postgres(server, "immediate", stop=False)
        assert mine.remember("The owl nests in April.").status == "created"
        assert len(mine.memories()) == 2


def test_the_number_of_a_lost_transaction_that_another_got_after_a_crash_is_no_proof(
    server: Any,
) -> None:
    """A crash loses what the log did not have yet, and its numbers are given once more."""
    ada, schema = Actor(user="ada"), f"t{uuid.uuid4().hex}"
    with (
        Tally.open(server.get_uri(), schema=schema, background=False) as tally,
        Tally.open(server.get_uri(), schema=schema, background=False) as other,
    ):
        one, two = (services_of(each).store.database for each in (tally, other))
        other.bind(ada).remember("The heron nests in March.")

        def number_of(tx: Any) -> int:
            journal.append(tx, journal.Event("scope:y", "memory.seen", ada, 1, uuid.uuid4().hex))
            return int(tx.exec_driver_sql("SELECT txid_current()").scalar_one())

        def unit(tx: Any) -> None:
            journal.append(tx, journal.Event("scope:x", "memory.seen", ada, 1, "a"))
            number = int(tx.exec_driver_sql("SELECT txid_current()").scalar_one())
            restart_postgres(server, "immediate")
            while two.write(number_of, name="beside", writes=Writes.of("y")) < number:
                pass

        with pytest.raises(StorageError, match=r"Nothing was written|may or may not"):
            one.write(unit, name="cut", writes=Writes.of("x"))
        with one.read() as connection:
            assert journal.end_of(connection, "scope:x").length == 0
