"""The queue under workers that die, stand still and come twice, under clocks that jump and
providers that fail: each job ends, with a trail, and what it makes is stored once.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import tempfile
import textwrap
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from tests.pages import every

from tallystick import Tally
from tallystick.errors import EmbeddingError, LeaseLost, TextRefused, UnusableVectors
from tallystick.jobs import Ended, JobRunner, Work
from tallystick.records import JOB_STATES, Actor, Job
from tallystick.storage import Connection
from tallystick.storage.rows import jobs, scopes, settings_rows
from tallystick.tally.services import services_of
from tallystick.testing import HashEmbedder

SECOND = 1_000_000
USERS = ("alice", "bob", "carol")
ROOT = Actor(user="root", role="operator")
FAULTS: dict[str, Exception | None] = {
    "none": None,
    "away": EmbeddingError("away"),
    "unusable": UnusableVectors(),
    "refused": TextRefused(),
    "mistake": ZeroDivisionError(),
}


class _Provider:
    """Carries out a job of the machine: it counts each in the transaction that ends it."""

    kind = "count"
    batch = 3
    lease_seconds = 60
    is_upkeep = False
    changes_memory = False
    is_autonomous = False
    fault: Exception | None = None

    def handle(self, work: Work) -> int:
        if self.fault is not None:
            raise self.fault
        work.commit(count)
        return len(work.jobs)


def count(tx: Connection, allowed: Any) -> dict[str, Ended]:
    """Store what each job makes: one more."""
    for job in allowed:
        name = f"made.{job.id}"
        made = int(settings_rows.get_setting(tx, name) or 0)
        settings_rows.set_setting(tx, name, str(made + 1))
    return {job.id: Ended() for job in allowed}


class JobMachine(RuleBasedStateMachine):
    """Three workers on one queue."""

    @initialize()
    def open(self) -> None:
        self.folder = tempfile.TemporaryDirectory()
        self.tally = Tally.open(Path(self.folder.name) / "tally", background=False)
        self.services = services_of(self.tally)
        self.provider = _Provider()
        self.runners = [self._runner() for _ in range(3)]
        self.held: list[Work] = []
        self.enqueued: set[str] = set()
        self.orders: Counter[str] = Counter()
        self.now = 1_700_000_000 * SECOND
        self.patch = pytest.MonkeyPatch()
        self.patch.setattr(jobs, "database_clock", lambda connection: self.now)

    def _runner(self) -> JobRunner:
        return JobRunner(self.services.store, self.services.gate, [self.provider])

    def _all(self) -> list[Job]:
        return every(self.tally.bind(ROOT).jobs.list, kind="count")

    @rule(user=st.sampled_from(USERS), subject=st.integers(0, 5), version=st.integers(0, 2))
    def enqueue(self, user: str, subject: int, version: int) -> None:
        store, actor = self.services.store, Actor(user=user)

        def unit(tx: Connection) -> str:
            row = scopes.ensure(tx, actor.private_scope)
            return jobs.enqueue(
                tx,
                kind="count",
                subject_id=f"{user}-{subject}",
                version=version,
                scope_id=row.id,
                actor=actor,
                job_id=store.ids.new(),
                at=self.now,
            )

        before = {job.id: job.is_over for job in self._all()}
        job_id = store.database.write(unit, name="test")
        if before.get(job_id, True):
            self.orders[job_id] += 1
        self.enqueued.add(job_id)

    @rule(fault=st.sampled_from(sorted(FAULTS)))
    def provider_changes(self, fault: str) -> None:
        self.provider.fault = FAULTS[fault]

    @rule(seconds=st.sampled_from([1, 30, 61, 400, 86_400, -30, -86_400, 30_000_000, -30_000_000]))
    def clock_moves(self, seconds: int) -> None:
        self.now += seconds * SECOND

    @rule(worker=st.integers(0, 2))
    def works(self, worker: int) -> None:
        self.runners[worker]._wake("count")
        self.runners[worker].run()

    @rule(worker=st.integers(0, 2))
    def works_after_the_leases_of_others_ran_out(self, worker: int) -> None:
        for _ in range(2):
            self.now += 400 * SECOND
            self.works(worker)

    @rule(worker=st.integers(0, 2))
    def begins_and_stands_still(self, worker: int) -> None:
        runner = self.runners[worker]
        leased = runner._lease(self.provider)
        if leased:
            self.held.append(Work(runner, self.provider, leased, lambda: False))

    @precondition(lambda self: self.held)
    @rule(data=st.data())
    def dies(self, data: st.DataObject) -> None:
        self.held.pop(data.draw(st.integers(0, len(self.held) - 1)))

    @precondition(lambda self: self.held)
    @rule(data=st.data())
    def goes_on(self, data: st.DataObject) -> None:
        work = self.held.pop(data.draw(st.integers(0, len(self.held) - 1)))
        with suppress(LeaseLost):
            work.commit(count)

    @precondition(lambda self: self.enqueued)
    @rule(data=st.data())
    def is_cancelled(self, data: st.DataObject) -> None:
        job_id = data.draw(st.sampled_from(sorted(self.enqueued)))
        self.services.store.database.write(lambda tx: jobs.cancel(tx, job_id), name="test")

    @precondition(lambda self: self.enqueued)
    @rule(data=st.data())
    def is_retried(self, data: st.DataObject) -> None:
        job_id = data.draw(st.sampled_from(sorted(self.enqueued)))
        over = next(job for job in self._all() if job.id == job_id).is_over
        requeued = self.services.store.database.write(
            lambda tx: jobs.requeue(tx, [job_id]), name="test"
        )
        if requeued and over:
            self.orders[job_id] += 1

    @invariant()
    def nothing_is_lost_or_made_twice(self) -> None:
        if not hasattr(self, "services"):
            return
        found = {job.id: job for job in self._all()}
        assert set(found) == self.enqueued
        with self.services.store.database.read() as connection:
            for job_id, job in found.items():
                made = int(settings_rows.get_setting(connection, f"made.{job_id}") or 0)
                # Once for each time that it was ordered, at most.
                assert made <= self.orders[job_id]
                assert job.state in JOB_STATES
                assert (job.due_at is None) == job.is_over
                assert job.attempts <= job.max_attempts
                if job.state == "done":
                    assert (made >= 1, job.error_code) == (True, None)
                if job.state in ("failed", "dead"):
                    assert job.error_code

    def teardown(self) -> None:
        if not hasattr(self, "services"):
            return
        try:
            self.provider.fault = None
            for _ in range(12):
                self.now += 400 * SECOND
                self.works(0)
            for job in self._all():
                assert job.is_over, job
                assert job.trail[-1].state == job.state
        finally:
            self.patch.undo()
            self.tally.close()
            self.folder.cleanup()


JobMachine.TestCase.settings = hypothesis_settings(
    hypothesis_settings(),
    max_examples=10 if hypothesis_settings().max_examples <= 100 else 400,
    stateful_step_count=30,
)
test_each_job_ends_and_nothing_is_made_twice = JobMachine.TestCase


WORKER = textwrap.dedent(
    """
    import sys, threading, time
    from tallystick import Tally
    from tallystick.testing import HashEmbedder

    class Slow(HashEmbedder):
        def embed(self, texts):
            time.sleep(0.002 * len(texts))
            return super().embed(texts)

    with Tally.open(sys.argv[1], embedder=Slow(local=False), background=False) as tally:
        workers = [tally.worker().start() for _ in range(2)]
        print("working", flush=True)
        time.sleep(600)
    """
)


@pytest.mark.slow
def test_workers_killed_at_any_moment_lose_no_job(tmp_path: Path) -> None:
    place = tmp_path / "tally"
    rounds = 1 if hypothesis_settings().max_examples <= 100 else 60
    expected = 0
    with Tally.open(place, embedder=HashEmbedder(local=False), background=False) as tally:
        mine = tally.bind()
        for number in range(rounds):
            mine.remember_many([f"note {number}.{each}" for each in range(200)])
            expected += 200
            with subprocess.Popen(
                [sys.executable, "-c", WORKER, str(place)], stdout=subprocess.PIPE, text=True
            ) as worker:
                assert worker.stdout is not None
                assert worker.stdout.readline() == "working\n"
                time.sleep(0.6 + 0.11 * (number % 13))
                worker.send_signal(signal.SIGKILL)
        database = services_of(tally).store.database
        # Their leases have run out.
        database.write(
            lambda tx: tx.exec_driver_sql("UPDATE jobs SET due_at = 1 WHERE state = 'leased'"),
            name="test",
        )
        with database.read() as connection:
            jobs.due(connection, ["embed"])
        for _ in range(3):
            tally.drain()
        counts = Counter(job.state for job in every(tally.bind(ROOT).jobs.list))
        assert counts == {"done": expected}
        with database.read() as connection:
            [vectors] = connection.exec_driver_sql("SELECT count(*) FROM vectors").one()
        assert vectors == expected


@pytest.mark.slow
def test_the_worker_of_the_command_line_ends_with_who_started_it(tmp_path: Path) -> None:
    place = tmp_path / "tally"
    Tally.open(place, background=False).close()
    parent = subprocess.Popen(
        [
            sys.executable,
            "-c",
            "import subprocess, sys, time\n"
            "command = 'from tallystick_cli.app import main; main()'\n"
            "worker = subprocess.Popen([sys.executable, '-c', command, 'worker',\n"
            "    '--tally', sys.argv[1]], stdout=subprocess.PIPE, text=True)\n"
            "worker.stdout.readline()\n"
            "print(worker.pid, flush=True)\n"
            "time.sleep(600)\n",
            str(place),
        ],
        stdout=subprocess.PIPE,
        text=True,
    )
    with parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        parent.send_signal(signal.SIGKILL)
        parent.wait()
    for _ in range(600):
        if not _is_running(pid):
            return
        time.sleep(0.05)
    pytest.fail("It outlives its parent.")


def _is_running(pid: int) -> bool:
    """Return True if the process runs; one that has ended and that nobody waits for does not."""
    try:
        return "Z" not in Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[:1]
    except OSError:
        return False
