"""Follow-up work is neither lost nor done twice, and each job says what came of it and why."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from sqlalchemy import text as sql
from tests.pages import every

from tallystick.errors import (
    EmbeddingError,
    InvalidInput,
    LeaseLost,
    NotFound,
    StateConflict,
    TextRefused,
    UnusableVectors,
)
from tallystick.jobs import Ended, JobRunner, Work, runner
from tallystick.records import Actor, Job, SpaceMember
from tallystick.storage import Connection
from tallystick.storage.rows import jobs, journal, scopes
from tallystick.tally import Tally
from tallystick.tally.services import services_of
from tallystick.testing import HashEmbedder

OpenTally = Callable[..., Tally]
SECRET = "ghp_" + "a1B2" * 9
ALICE, BOB, ROOT = Actor(user="alice"), Actor(user="bob"), Actor(user="root", role="operator")
SECOND = 1_000_000


class Remote(HashEmbedder):
    """An embedder that fails as it is told, far away unless it says otherwise."""

    def __init__(self, *, local: bool = False) -> None:
        super().__init__(local=local)
        self.fault: Exception | None = None
        self.seen: list[str] = []

    def embed(self, texts: Sequence[str]) -> Any:
        self.seen += texts
        if self.fault is not None:
            raise self.fault
        for text in texts:
            if "poison" in text:
                raise TextRefused
            if "riddle" in text:
                raise UnusableVectors
        return super().embed(texts)


class Clock:
    """The clock of the database, under the hand of a test."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 1_700_000_000 * SECOND
        monkeypatch.setattr(jobs, "database_clock", lambda connection: self.now)

    def pass_(self, seconds: float) -> None:
        self.now += int(seconds * SECOND)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


def listed(tally: Tally, **options: Any) -> list[Job]:
    return tally.bind(ROOT).jobs.list(**options)


def only(tally: Tally) -> Job:
    [job] = listed(tally)
    return job


def round_of(tally: Tally) -> None:
    """One round of the background, as its thread does it."""
    services_of(tally).background.turn(lambda: False)


def enqueue(
    tally: Tally, subject: str, *, scope: str = "private:alice", actor: Actor = ALICE, **more: Any
) -> str:
    store = services_of(tally).store

    def unit(tx: Connection) -> str:
        row = scopes.ensure(tx, actor.home(scope))
        return jobs.enqueue(
            tx,
            kind="note",
            subject_id=subject,
            scope_id=row.id,
            actor=actor,
            job_id=store.ids.new(),
            at=store.clock.now(),
            **more,
        )

    return store.database.write(unit, name="test")


class Notes:
    """A handler that notes what it was given."""

    kind = "note"
    batch = 1
    lease_seconds = 60
    is_upkeep = False
    changes_memory = False
    is_autonomous = False

    def __init__(self, body: Callable[[Work], None] = lambda work: None, *, batch: int = 1) -> None:
        self.batch = batch
        self.given: list[str] = []
        self._body = body

    def handle(self, work: Work) -> int:
        self.given += [job.subject_id for job in work.jobs]
        self._body(work)
        work.commit(lambda tx, allowed: {job.id: Ended() for job in allowed})
        return len(work.jobs)


def runner_of(tally: Tally, handler: Notes) -> JobRunner:
    services = services_of(tally)
    return JobRunner(services.store, services.gate, [handler])


# An outage is waited for, however long


def test_an_outage_of_days_buries_no_job(open_tally: OpenTally, clock: Clock) -> None:
    remote = Remote()
    remote.fault = ConnectionError("no route to host: The heron nests in March.")
    with open_tally(embedder=remote) as tally:
        tally.bind(ALICE).remember("The heron nests in March.")
        for _ in range(15):
            with pytest.raises(EmbeddingError):
                tally.drain()
            clock.pass_(3_600)
        job = only(tally)
        assert (job.state, job.attempts, job.waits) == ("retry_scheduled", 0, 15)
        assert (job.error_code, "heron" in (job.error_text or "")) == ("embedding_error", False)
        assert len(job.trail) < 60

        remote.fault = None
        clock.pass_(600)
        services_of(tally).background.runner._wake("embed")
        round_of(tally)
        assert only(tally).state == "done"
        assert tally.bind(ALICE).recall("heron")[0].signals["vector"] > 0


def test_the_pause_between_attempts_grows_to_a_ceiling_and_no_further(
    open_sqlite: OpenTally, clock: Clock
) -> None:
    remote = Remote()
    remote.fault = ConnectionError()
    with open_sqlite(embedder=remote) as tally:
        tally.bind(ALICE).remember("The heron nests in March.")
        pauses = []
        for _ in range(14):
            with pytest.raises(EmbeddingError):
                tally.drain()
            pauses.append(((only(tally).due_at or 0) - clock.now) / SECOND)

    assert pauses[0] <= 2
    assert all(1 <= pause <= 300 for pause in pauses)
    assert all(pause >= 150 for pause in pauses[10:])
    assert len(set(pauses[10:])) > 1


def test_what_waited_is_done_at_once_when_the_first_attempt_succeeds(
    open_sqlite: OpenTally, clock: Clock
) -> None:
    remote = Remote()
    remote.fault = ConnectionError()
    with open_sqlite(embedder=remote) as tally:
        tally.bind(ALICE).remember_many([f"note {number}" for number in range(220)])
        for _ in range(3):
            with pytest.raises(EmbeddingError):
                tally.drain()
        early = min(job.due_at or 0 for job in listed(tally, limit=500) if job.waits)
        remote.fault = None
        clock.now = early
        services_of(tally).background.runner._wake("embed")
        round_of(tally)

        assert {job.state for job in listed(tally, limit=500)} == {"done"}


def test_the_background_asks_a_provider_that_is_away_less_and_less(
    open_sqlite: OpenTally, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    minutes = iter(range(1_000))
    monkeypatch.setattr(runner, "time", SimpleNamespace(monotonic=lambda: next(minutes) / 10))
    remote = Remote()
    remote.fault = ConnectionError()
    with open_sqlite(embedder=remote) as tally:
        tally.bind(ALICE).remember_many([f"note {number}" for number in range(1_000)])
        asked = []
        for _ in range(40):
            round_of(tally)
            asked.append(len(remote.seen))
        # A batch and both of its halves; afterwards two different texts, together and each alone.
        assert asked[:10] == [400] * 10
        assert asked[-1] <= 416
        assert sum(job.waits > 0 for job in every(tally.bind(ROOT).jobs.list)) <= 216


# What ends a job


def test_one_poisoned_text_does_not_spoil_the_others(open_tally: OpenTally, clock: Clock) -> None:
    with open_tally(embedder=Remote()) as tally:
        mine = tally.bind(ALICE)
        for text in ("The heron nests.", "This is poison.", "The tide turns.", "A riddle."):
            mine.remember(text)
        for _ in range(10):
            round_of(tally)
            clock.pass_(600)
        by_state: dict[str, int] = {}
        for job in listed(tally):
            by_state[job.state] = by_state.get(job.state, 0) + 1
        assert by_state == {"done": 2, "dead": 1, "failed": 1}
        codes = {job.error_code: job.attempts for job in listed(tally, state=["failed", "dead"])}
        assert codes == {"text_refused": 0, "unusable_vectors": 5}
        trails = [[event.state for event in job.trail] for job in listed(tally, state=["failed"])]
        assert trails == [["leased", *["retry_scheduled", "leased"] * 4, "failed"]]


def test_a_memory_that_is_gone_or_said_anew_leaves_an_empty_job(open_tally: OpenTally) -> None:
    with open_tally(embedder=Remote()) as tally:
        mine = tally.bind(ALICE)
        first = mine.remember("The heron nests in March.")
        second = mine.remember("The tide turns at noon.")
        mine.modify(first.id, content="The heron nests in April.", reason="r")
        mine.forget(second.id, reason="r")
        tally.drain()
        states = {(job.subject_id, job.version): job.state for job in listed(tally)}
        assert states == {(first.id, 1): "empty", (first.id, 2): "done", (second.id, 1): "empty"}


def test_dead_and_failed_jobs_are_done_anew_by_command_and_by_the_doctor(
    open_tally: OpenTally, clock: Clock
) -> None:
    remote = Remote()
    with open_tally(embedder=remote) as tally:
        mine, root = tally.bind(ALICE), tally.bind(ROOT)
        poison = mine.remember("This is poison.").job_id or ""
        cancelled = mine.remember("The heron nests.").job_id
        assert cancelled is not None
        assert root.jobs.cancel(cancelled, reason="not needed").state == "dead"
        [failed] = tally.drain().failed
        assert (failed.id, failed.state, failed.code) == (
            poison,
            "retry_scheduled",
            "text_refused",
        )
        [finding] = [each for each in root.operator.doctor() if each.check == "jobs"]
        assert (finding.status, poison in finding.text) == ("notice", True)

        # Another text shows that the embedder is there, so that this one is to blame.
        mine.remember("The tide turns.")
        services_of(tally).background.runner.run(["embed"])
        [failed] = tally.drain().failed
        assert (failed.id, failed.state) == (poison, "dead")
        [finding] = [each for each in root.operator.doctor() if each.check == "jobs"]
        assert (finding.status, "tally jobs retry" in finding.text) == ("problem", True)
        assert poison in finding.text

        remote.embed = HashEmbedder(local=False).embed  # type: ignore[method-assign]
        [mended] = [
            each for each in root.operator.doctor(repair=True, reason="r") if each.check == "jobs"
        ]
        assert (mended.status, mended.text) == ("repaired", "1 jobs will be done anew")
        tally.drain()
        assert root.jobs.get(cancelled).state == "dead"
        assert root.jobs.retry(cancelled, reason="r") == [cancelled]
        tally.drain()
        assert {job.state for job in listed(tally)} == {"done"}
        assert [event.code for event in root.jobs.get(cancelled).trail if event.code] == [
            "cancelled",
            "requeued",
        ]
        with pytest.raises(StateConflict):
            root.jobs.retry(cancelled, reason="r")
        with pytest.raises(StateConflict):
            root.jobs.cancel(cancelled, reason="too late")


def test_a_mistake_in_a_handler_ends_in_a_dead_job_that_names_it(
    open_sqlite: OpenTally, clock: Clock
) -> None:
    def broken(work: Work) -> None:
        raise ZeroDivisionError("The heron nests in March.")

    with open_sqlite() as tally:
        enqueue(tally, "a")
        runner = runner_of(tally, Notes(broken))
        for _ in range(6):
            runner.run()
            clock.pass_(600)
        job = only(tally)
        assert (job.state, job.error_code, job.attempts) == ("dead", "ZeroDivisionError", 5)
        assert "heron" not in job.dumps()


# Leases


def test_a_job_of_a_worker_that_died_comes_back_and_kills_five_at_most(
    open_tally: OpenTally, clock: Clock
) -> None:
    with open_tally() as tally:
        enqueue(tally, "a")
        runner = runner_of(tally, Notes())
        for _ in range(5):
            [leased] = runner._lease(runner.handlers["note"])  # and the worker dies
            assert leased.actor == ALICE
            assert runner._lease(runner.handlers["note"]) == []
            clock.pass_(61)
            assert runner._lease(runner.handlers["note"]) == []  # it waits for its pause
            clock.pass_(300)
        job = only(tally)
        assert (job.state, job.error_code) == ("dead", "lease_expired")


def test_a_worker_that_stood_still_stores_nothing_once_another_has_its_job(
    open_tally: OpenTally, clock: Clock
) -> None:
    with open_tally() as tally:
        enqueue(tally, "a")
        handler = Notes()
        runner = runner_of(tally, handler)
        slow = Work(runner, handler, runner._lease(handler), lambda: False)
        clock.pass_(61)
        runner._lease(handler)
        clock.pass_(600)
        other = Work(runner, handler, runner._lease(handler), lambda: False)
        with pytest.raises(LeaseLost):
            slow.commit(lambda tx, allowed: {job.id: Ended("empty") for job in allowed})
        other.commit(lambda tx, allowed: {job.id: Ended() for job in allowed})
        with pytest.raises(LeaseLost):
            slow.commit(lambda tx, allowed: {job.id: Ended("empty") for job in allowed})
        assert only(tally).state == "done"


def test_a_lease_is_renewed_while_its_handler_works(open_tally: OpenTally) -> None:
    with open_tally() as tally:
        enqueue(tally, "a")
        others: list[int] = []
        waiting = threading.Event()

        def slow(work: Work) -> None:
            # Three times as long as the lease, by the clock of the database.
            for _ in range(12):
                waiting.wait(0.25)
                others.append(runner_of(tally, Notes()).run().leased)

        handler = Notes(slow)
        handler.lease_seconds = 1
        assert runner_of(tally, handler).run().made == 1
        assert (sum(others), handler.given, only(tally).state) == (0, ["a"], "done")


@pytest.mark.parametrize("years", [-30, 30])
def test_a_clock_that_jumps_neither_buries_a_job_nor_holds_it_up(
    open_sqlite: OpenTally, clock: Clock, years: int
) -> None:
    remote = Remote()
    remote.fault = ConnectionError()
    with open_sqlite(embedder=remote) as tally:
        tally.bind(ALICE).remember("The heron nests in March.")
        enqueue(tally, "a")
        runner_of(tally, Notes())._lease(Notes())
        round_of(tally)
        clock.pass_(years * 365 * 86_400)
        remote.fault = None
        services_of(tally).background.runner._wake("embed")
        round_of(tally)
        runner = runner_of(tally, Notes())
        runner.run()
        clock.pass_(600)
        runner.run()
        assert {job.state for job in listed(tally)} == {"done"}


def test_a_cancelled_job_under_way_stores_nothing(open_tally: OpenTally) -> None:
    with open_tally() as tally:
        job_id = enqueue(tally, "a")

        def cancelled(work: Work) -> None:
            tally.bind(ROOT).jobs.cancel(job_id, reason="enough")

        result = runner_of(tally, Notes(cancelled)).run()
        assert (result.leased, result.made) == (1, 0)
        assert (only(tally).state, only(tally).error_code) == ("dead", "cancelled")


# Fairness


def test_a_scope_waits_for_at_most_one_job_of_each_other_scope(
    open_tally: OpenTally, clock: Clock
) -> None:
    with open_tally() as tally:
        for number in range(30):
            enqueue(tally, f"import {number}")
        handler = Notes()
        runner = runner_of(tally, handler)
        runner.run_one(listed(tally)[-1].id, "note")
        enqueue(tally, "bob 1", scope="private:bob", actor=BOB)
        enqueue(tally, "carol 1", scope="private:carol", actor=Actor(user="carol"))
        enqueue(tally, "bob 2", scope="private:bob", actor=BOB)
        runner.run()
        order = [name.split()[0] for name in handler.given[1:7]]

    assert sorted(order[:3]) == ["bob", "carol", "import"]
    assert sorted(order[3:5]) == ["bob", "import"]


def test_a_batch_takes_from_each_scope_in_turn(open_tally: OpenTally) -> None:
    with open_tally() as tally:
        for number in range(30):
            enqueue(tally, f"import {number}")
        enqueue(tally, "bob 1", scope="private:bob", actor=BOB)
        leased = runner_of(tally, Notes(batch=4))._lease(Notes(batch=4))

    assert [job.subject_id for job in leased][:2] in (
        ["import 0", "bob 1"],
        ["bob 1", "import 0"],
    )


def test_within_a_scope_priority_comes_before_age(open_tally: OpenTally) -> None:
    with open_tally() as tally:
        enqueue(tally, "old")
        enqueue(tally, "urgent", priority=1)
        handler = Notes()
        runner_of(tally, handler).run()

    assert handler.given == ["urgent", "old"]


def test_the_same_work_is_enqueued_once(open_tally: OpenTally) -> None:
    with open_tally() as tally:
        first = enqueue(tally, "a", version=1)
        assert enqueue(tally, "a", version=1) == first
        assert enqueue(tally, "a", version=2) != first
        runner_of(tally, Notes()).run()
        assert enqueue(tally, "a", version=1) == first
        assert {job.version: job.state for job in listed(tally)} == {1: "pending", 2: "done"}


# Authority


def test_authority_is_looked_at_again_before_each_write(open_tally: OpenTally) -> None:
    with open_tally() as tally:
        spaces = tally.bind(ROOT).spaces
        members = [SpaceMember(principal_id="alice", role="writer")]
        spaces.create("team:red", name="Red", members=members, reason="r")
        enqueue(tally, "a", scope="team:red")

        def loses_it(work: Work) -> None:
            spaces.update("team:red", members=[], reason="left")

        runner_of(tally, Notes(loses_it)).run()
        job = only(tally)
        assert (job.state, job.error_code) == ("dead", "job_policy_context_stale")


def test_jobs_that_may_not_run_hold_up_no_other(open_tally: OpenTally) -> None:
    with open_tally() as tally:
        spaces = tally.bind(ROOT).spaces
        members = [SpaceMember(principal_id="alice", role="writer")]
        spaces.create("team:red", name="Red", members=members, reason="r")
        enqueue(tally, "a", scope="team:red")
        spaces.update("team:red", members=[], reason="left")
        enqueue(tally, "b")
        handler = Notes()
        runner_of(tally, handler).run()
        assert handler.given == ["b"]
        assert {job.subject_id: job.state for job in listed(tally)} == {"a": "dead", "b": "done"}


def test_work_that_changes_memory_waits_while_changes_are_suspended(
    open_sqlite: OpenTally, clock: Clock
) -> None:
    with open_sqlite() as tally:
        enqueue(tally, "a")
        tally.bind(ROOT).operator.freeze(reason="audit")
        handler = Notes()
        handler.changes_memory = True
        runner = runner_of(tally, handler)
        for _ in range(10):
            runner.run()
            clock.pass_(600)
        assert (only(tally).state, only(tally).error_code) == (
            "retry_scheduled",
            "mutations_frozen",
        )
        tally.bind(ROOT).operator.thaw(reason="done")
        runner.run()
        assert only(tally).state == "done"


def test_jobs_of_others_are_neither_seen_nor_steered(open_tally: OpenTally) -> None:
    with open_tally() as tally:
        job_id = enqueue(tally, "a")
        alice, bob = tally.bind(ALICE).jobs, tally.bind(BOB).jobs
        assert [job.id for job in alice.list()] == [job_id] == [alice.get(job_id[-8:]).id]
        assert (bob.list(), bob.retry(reason="r")) == ([], [])
        for refused in (
            lambda: bob.get(job_id),
            lambda: bob.retry(job_id, reason="r"),
            lambda: bob.cancel(job_id, reason="r"),
        ):
            with pytest.raises(NotFound):
                refused()
        assert alice.cancel(job_id, reason="mine").error_code == "cancelled"


# Workers


def test_several_workers_share_the_work_and_none_does_it_twice(open_tally: OpenTally) -> None:
    remote = Remote()
    with open_tally(embedder=remote) as tally:
        tally.bind(ALICE).remember_many([f"note {number}" for number in range(120)])
        workers = [tally.worker().start() for _ in range(4)]
        _until(lambda: not listed(tally, state=["pending", "leased"], limit=1))
        for worker in workers:
            worker.stop()
        assert not any(worker.is_alive for worker in workers)
        assert {job.state for job in listed(tally, limit=500)} == {"done"}
        assert all(job.cost == {"texts": 1} for job in listed(tally, limit=500))
        assert len(remote.seen) == 120


def test_a_worker_pauses_and_gives_back_what_it_had_not_begun(open_sqlite: OpenTally) -> None:
    started, go_on = threading.Event(), threading.Event()

    class Slow(Remote):
        def embed(self, texts: Sequence[str]) -> Any:
            started.set()
            go_on.wait(30)
            return super().embed(texts)

    with open_sqlite(embedder=Slow()) as tally:
        tally.bind(ALICE).remember_many([f"note {number}" for number in range(250)])
        with tally.worker(["embed"]) as worker:
            started.wait(30)
            worker.pause()
            go_on.set()
            _until(lambda: not listed(tally, state=["leased"], limit=1))
            assert len(listed(tally, state=["done"], limit=500)) == 200
            worker.resume()
            _until(lambda: len(listed(tally, state=["done"], limit=500)) == 250)
        with pytest.raises(InvalidInput, match="stopped"):
            worker.start()


def test_a_worker_ends_with_its_tally(open_sqlite: OpenTally) -> None:
    tally = open_sqlite()
    worker = tally.worker().start()
    tally.close()
    assert not worker.is_alive


def test_a_worker_of_a_kind_that_nothing_handles_is_refused(open_sqlite: OpenTally) -> None:
    with (
        open_sqlite() as tally,
        pytest.raises(InvalidInput, match="there is embed, graph, import, reembed"),
    ):
        tally.worker(["dream"])


def test_an_erasure_waits_for_work_under_way_and_nothing_begins_meanwhile(
    open_sqlite: OpenTally,
) -> None:
    with open_sqlite(embedder=Remote()) as tally:
        background = services_of(tally).background
        tally.bind(ALICE).remember("The heron nests in March.")
        with background.pause():
            assert background.turn(lambda: False).leased == 0
        assert background.turn(lambda: False).leased == 1


# A changed embedder


def test_a_changed_embedder_leaves_a_job_for_each_scope_with_progress(
    open_tally: OpenTally,
) -> None:
    with open_tally(embedder=HashEmbedder()) as tally:
        for actor in (ALICE, BOB):
            tally.bind(actor).remember_many([f"note {number}" for number in range(210)])
    with open_tally(embedder=HashEmbedder(32, name="other")) as tally:
        assert tally.drain().embedded == 420
        jobs_of = {str(job.scope): job for job in listed(tally, kind="reembed")}
        assert set(jobs_of) == {"private:alice", "private:bob"}
        for job in jobs_of.values():
            assert (job.state, job.progress, job.total) == ("done", 210, 210)
            assert (job.cost, job.result) == ({"texts": 210}, {"vectors": 210})
        assert tally.drain() == tally.drain()


def test_a_text_that_the_new_embedder_refuses_is_passed_over_and_named(
    open_tally: OpenTally,
) -> None:
    with open_tally(embedder=HashEmbedder(32)) as tally:
        tally.bind(ALICE).remember_many(["The heron nests.", "This is poison.", "The tide turns."])
    with open_tally(embedder=Remote(local=True)) as tally:
        assert tally.drain().embedded == 2
        [job] = listed(tally, kind="reembed")
        assert (job.state, job.error_code) == ("failed", "text_refused")
        assert "poison" not in job.dumps()
        tally.drain()
        assert len(listed(tally, kind="reembed")) == 1


def test_a_changed_remote_embedder_gets_every_text_but_those_that_stay_here(
    open_tally: OpenTally,
) -> None:
    texts = [
        "The heron nests.",
        "Does the tide turn at ten?",
        "Always answer in French.",
        "I prefer short answers.",
    ]
    with open_tally(embedder=HashEmbedder(32)) as tally:
        tally.bind(ALICE).remember_many(texts)
        tally.bind(ALICE).remember("Mine alone.", attributes={"local_only": True})
    remote = Remote()
    with open_tally(embedder=remote) as tally:
        done = tally.bind(Actor(user="root", role="operator")).operator.reembed(mode="apply")
        assert done.embedded == len(texts)
        assert sorted(remote.seen) == sorted(texts)


def _until(condition: Callable[[], bool]) -> None:
    for _ in range(600):
        if condition():
            return
        time.sleep(0.05)
    raise AssertionError("It did not come to that.")


# Replays


def test_a_replay_waits_in_the_queue_and_is_made_as_whoever_asked(open_tally: OpenTally) -> None:
    with open_tally() as tally:
        alice = tally.bind(ALICE)
        alice.remember("The heron nests in March.")
        with alice.run("coder") as run, run.step("model_call") as step:
            alice.compile([*alice.recall("heron")], budget=500)
        steps = [each for each in alice.recordings.steps(run.id) if each.step_kind == "model_call"]
        job = alice.recordings.replay_later(steps[0].id, token_budget=200)
        assert alice.recordings.replay_later(steps[0].id, token_budget=200).id == job.id
        with pytest.raises(NotFound):
            tally.bind(BOB).recordings.replay_later(steps[0].id)
        with pytest.raises(InvalidInput, match="at once"):
            alice.recordings.replay_later(step.id, context_mutations={"a": "The heron sleeps."})
        noted = alice.recordings.replay_later(steps[0].id, notes=f"with {SECRET}?")
        with services_of(tally).store.database.read() as connection:
            assert SECRET not in str(connection.execute(sql("SELECT payload FROM jobs")).all())
        alice.jobs.cancel(noted.id, reason="r")

        tally.drain()
        done = alice.jobs.get(job.id)
        assert (done.state, done.user) == ("done", "alice")
        assert done.result is not None
        replayed = alice.recordings.step(str(done.result["step_id"]))
        assert steps[0].id in str(replayed.metadata["replay_of"])
        assert alice.jobs.get(job.id).result == done.result


KILLED_BEFORE_THE_END = """
import os, signal, sys
from tallystick import Tally
from tallystick.jobs.runner import Work

Work.commit = lambda *arguments: os.kill(os.getpid(), signal.SIGKILL)
Tally.open(sys.argv[1], background=False).drain()
"""


def test_a_replay_whose_worker_died_before_the_job_ended_is_recorded_once(tmp_path: Path) -> None:
    with Tally.open(tmp_path, background=False) as tally:
        owner = tally.bind()
        with owner.run("coder") as run, run.step("model_call"):
            owner.compile([], budget=500)
        steps = [each for each in owner.recordings.steps(run.id) if each.step_kind == "model_call"]
        job_id = owner.recordings.replay_later(steps[0].id, token_budget=200).id

    killed = subprocess.run([sys.executable, "-c", KILLED_BEFORE_THE_END, str(tmp_path)])
    assert killed.returncode == -signal.SIGKILL

    with Tally.open(tmp_path, background=False) as tally:
        owner = tally.bind()
        for _ in range(3):
            services_of(tally).store.database.write(
                lambda tx: tx.exec_driver_sql("UPDATE jobs SET due_at = 1 WHERE state != 'done'"),
                name="test.expire",
            )
            tally.drain()
        job = owner.jobs.get(job_id)
        assert job.state == "done", job
        assert job.result is not None
        replays = [run for run in owner.recordings.runs() if "replay_of" in run.metadata]
        assert [run.id for run in replays] == [job.result["run_id"]]
        assert set(job.result) == {"run_id", "step_id", "fidelity", "request_matches"}
        assert owner.recordings.verify(replays[0].id).ok


def test_what_is_repaired_is_in_the_journal_with_its_reason(open_sqlite: OpenTally) -> None:
    with open_sqlite() as tally:
        root = tally.bind(Actor(user="root", role="operator"))
        for call in (root.operator.rebuild_index, root.jobs.retry):
            with pytest.raises(InvalidInput, match="Say why"):
                call(reason=" ")
        root.operator.rebuild_index(reason="recall was slow")
        with services_of(tally).store.database.read() as connection:
            *_, last = journal.entries(connection, "tally")
        assert (last.event, last.reason, last.actor["user"], last.details) == (
            "index.rebuild",
            "recall was slow",
            "root",
            {"chroma": 0},
        )
