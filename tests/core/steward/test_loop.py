"""The loop: off, observing or acting, within bounds, and stopped at once by an operator."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import delete
from tests.core.steward.jobs_of_tests import add_jobs, set_jobs

from tallystick.records import Actor, Alert, AlertLimits
from tallystick.settings import Settings
from tallystick.storage.engine import tables
from tallystick.storage.rows import journal
from tallystick.tally import Tally
from tallystick.tally.services import services_of
from tallystick.testing import StepClock
from tallystick_steward import Steward
from tallystick_steward.loop import Loop

OpenTally = Callable[..., Tally]
OWNER = Actor(user="olga", role="operator")
LEAKED: dict[str, Any] = {"state": "leased", "leased_by": "a-worker-that-is-gone", "due_at": 1}
DEAD: dict[str, Any] = {"state": "dead", "error_code": "lease_expired", "due_at": None}


def _loop(tally: Tally) -> Loop:
    services = services_of(tally)
    return Loop(services.memory, services.background, services.windows, "test")


def _events(tally: Tally) -> list[str]:
    with services_of(tally).store.database.read() as connection:
        entries = list(journal.entries(connection, "tally"))
    kinds = ("repair.", "steward.")
    return [entry.event for entry in entries if entry.event.startswith(kinds)]


def _remember(tally: Tally, count: int) -> list[str]:
    texts = [f"Fact {number} of many." for number in range(count)]
    return [each.id for each in tally.bind(OWNER).remember_many(texts)]


def test_it_is_off_unless_a_setting_says_so(open_sqlite: OpenTally) -> None:
    with open_sqlite(owner=OWNER) as tally:
        add_jobs(tally, _remember(tally, 4), OWNER, **DEAD)
        assert _loop(tally).turn() is None
        assert _events(tally) == []


def test_observing_says_what_would_be_done_once_a_day_and_does_nothing(
    open_sqlite: OpenTally,
) -> None:
    with open_sqlite(owner=OWNER, settings=Settings(autonomy="observe")) as tally:
        add_jobs(tally, _remember(tally, 4), OWNER, **DEAD)
        for _ in range(2):
            turn = _loop(tally).turn()
            assert turn is not None
            assert [each.action for each in turn.proposed] == ["requeue"]
        assert _events(tally) == ["steward.observed"]
        assert tally.bind(OWNER).jobs.list(state=["dead"]) != []


def test_executing_does_what_helps_and_is_in_the_journal(open_tally: OpenTally) -> None:
    with open_tally(owner=OWNER, settings=Settings(autonomy="execute")) as tally:
        add_jobs(tally, _remember(tally, 4), OWNER, **LEAKED)
        turn = _loop(tally).turn()
        assert turn is not None
        [done] = turn.repairs
        assert (done.action, done.changed, turn.health.score) == ("release_lease", 4, 100)
        assert _events(tally) == ["repair.begin", "repair.end"]


def test_one_job_asks_whether_its_cause_lasts_and_the_others_follow_once_it_ended_well(
    open_sqlite: OpenTally,
) -> None:
    clock, settings = StepClock(), Settings(autonomy="execute")
    with open_sqlite(owner=OWNER, settings=settings, clock=clock, embedder="static") as tally:
        jobs = add_jobs(tally, _remember(tally, 6), OWNER, **DEAD)
        asked: list[str | None] = []
        minutes: list[int] = []
        for minute in range(20):
            turn = _loop(tally).turn()
            assert turn is not None
            for repair in turn.repairs:
                asked.append(repair.target)
                minutes.append(minute)
                assert repair.facts["jobs"] == [repair.target]
            # The cause lasts: what was started fails again.
            set_jobs(tally, **DEAD)
            clock.advance(seconds=60)
        assert minutes == [0, 1, 3, 7, 12, 17]
        assert set(asked) == set(jobs)

        clock.advance(seconds=300)
        assert _loop(tally).turn() is not None
        runner = services_of(tally).background.runner
        runner.run(["embed"])
        turn = _loop(tally).turn()
        assert turn is not None
        [rest] = turn.repairs
        assert (rest.target, rest.changed) == ("embed:lease_expired", 5)
        runner.run(["embed"])
        assert {job.state for job in tally.bind(OWNER).jobs.list()} == {"empty"}


def test_nothing_is_asked_while_a_probe_is_under_way(open_sqlite: OpenTally) -> None:
    clock, settings = StepClock(), Settings(autonomy="execute")
    with open_sqlite(owner=OWNER, settings=settings, clock=clock) as tally:
        add_jobs(tally, _remember(tally, 4), OWNER, **DEAD)
        assert _loop(tally).turn() is not None
        clock.advance(seconds=1_800)
        turn = _loop(tally).turn()
        assert turn is not None
        assert turn.repairs == ()


@pytest.mark.sqlite
def test_jobs_that_failed_as_often_as_is_allowed_are_asked_of_a_person_once(
    open_sqlite: OpenTally,
) -> None:
    clock, settings = StepClock(), Settings(autonomy="execute")
    with open_sqlite(owner=OWNER, settings=settings, clock=clock) as tally:
        add_jobs(tally, _remember(tally, 1), OWNER, **DEAD)
        done, escalated = 0, []
        for _ in range(40):
            turn = _loop(tally).turn()
            assert turn is not None
            done += len(turn.repairs)
            escalated += [] if turn.escalated is None else [turn.escalated.id]
            set_jobs(tally, **DEAD)
            clock.advance(seconds=60)
        assert done == 3
        assert len(set(escalated)) == 1
        [asked] = tally.bind(OWNER).approvals.list()
        assert asked.subject == "steward.requeue"
        tally.bind(OWNER).approvals.deny(asked.id, reason="the provider was left")
        turn = _loop(tally).turn()
        assert turn is not None
        assert (turn.escalated, turn.repairs) == (None, ())


@pytest.mark.postgres
def test_on_a_server_the_operator_who_acted_last_is_asked_and_operators_are_told(
    database: str,
) -> None:
    settings = Settings(autonomy="execute", alerts=AlertLimits(deletes=5))
    with Tally.open(database, settings=settings, background=False) as tally:
        for memory_id in _remember(tally, 6):
            tally.bind(OWNER).forget(memory_id, reason="a sweep")
        tally.bind(OWNER).operator.thaw(reason="the beginning")
        turn = _loop(tally).turn()
        assert turn is not None
        assert turn.escalated is not None
        assert [each.id for each in tally.bind(OWNER).approvals.list()] == [turn.escalated.id]
        other = Actor(user="oscar", role="operator")
        told = Steward(tally.bind(other)).events(after=0, kinds=("approval.needed",))
        assert [each.facts for each in told] == [{"action": "recover_many"}]


def test_a_person_is_asked_where_the_repairs_of_an_hour_are_used_up(
    open_sqlite: OpenTally, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tallystick_steward.repairs.MOST_AN_HOUR", 1)
    with open_sqlite(owner=OWNER, settings=Settings(autonomy="execute")) as tally:
        add_jobs(tally, _remember(tally, 4), OWNER, **DEAD)
        Steward(tally.bind(OWNER)).repair("check", reason="a look")
        turn = _loop(tally).turn()
        assert turn is not None
        assert turn.repairs == ()
        assert turn.escalated is not None
        assert turn.escalated.subject == "steward.requeue"


def test_a_text_that_fails_by_itself_is_not_tried_again(open_sqlite: OpenTally) -> None:
    with open_sqlite(owner=OWNER, settings=Settings(autonomy="execute")) as tally:
        refused = {"state": "failed", "error_code": "text_refused", "due_at": None}
        add_jobs(tally, _remember(tally, 4), OWNER, **refused)
        turn = _loop(tally).turn()
        assert turn is not None
        assert turn.repairs == ()


@pytest.mark.sqlite
def test_what_is_not_allowed_unattended_is_asked_of_a_person_once(open_sqlite: OpenTally) -> None:
    settings = Settings(autonomy="execute", alerts=AlertLimits(deletes=5))
    with open_sqlite(owner=OWNER, settings=settings) as tally:
        for memory_id in _remember(tally, 6):
            tally.bind(OWNER).forget(memory_id, reason="a sweep")
        for _ in range(2):
            turn = _loop(tally).turn()
            assert turn is not None
            assert turn.escalated is not None
            assert turn.repairs == ()
        [asked] = tally.bind(OWNER).approvals.list()
        assert asked.subject == "steward.recover_many"
        assert set(asked.arguments) == {"health", "jobs", "journal", "tried"}  # type: ignore[arg-type]
        assert _events(tally) == ["steward.escalated"]
        assert len(tally.bind(OWNER).memories()) == 0


@pytest.mark.sqlite
def test_three_repairs_that_do_not_help_halt_it_until_a_person_resumes(
    open_sqlite: OpenTally, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tallystick_steward.repairs.COOLDOWN", 0)
    told: list[Alert] = []
    with open_sqlite(owner=OWNER, settings=Settings(autonomy="execute")) as tally:
        tally.on_alert(told.append)
        add_jobs(tally, _remember(tally, 4), OWNER, **LEAKED)
        for number in range(3):
            # What is released leaks again before health is looked at: nothing improves.
            services = services_of(tally)
            wake = services.background.wake
            services.background.wake = lambda: set_jobs(tally, **LEAKED)  # type: ignore[method-assign]
            turn = _loop(tally).turn()
            services.background.wake = wake  # type: ignore[method-assign]
            assert turn is not None
            assert turn.is_halted is (number == 2)
        halted = _loop(tally).turn()
        assert halted is not None
        assert (halted.is_halted, halted.repairs) == (True, ())
        steward = Steward(tally.bind(OWNER))
        assert "steward_halted" in {each.name for each in steward.health().alerts}
        assert [each.subject for each in tally.bind(OWNER).approvals.list()] == ["steward.check"]
        steward.resume_autonomy(reason="the disk was changed")
        states = [each.state for each in told if each.name == "steward_halted"]
        assert states == ["raised", "cleared"]
        resumed = _loop(tally).turn()
        assert resumed is not None
        assert [each.action for each in resumed.repairs] == ["release_lease"]


def test_freezing_autonomy_stops_it_before_its_next_action(open_sqlite: OpenTally) -> None:
    with open_sqlite(owner=OWNER, settings=Settings(autonomy="execute")) as tally:
        add_jobs(tally, _remember(tally, 4), OWNER, **DEAD)
        tally.bind(OWNER).operator.freeze(reason="a look first", what="autonomy")
        turn = _loop(tally).turn()
        assert turn is not None
        assert turn.repairs == ()
        tally.bind(OWNER).operator.thaw(reason="go on", what="autonomy")
        turn = _loop(tally).turn()
        assert turn is not None
        assert [each.action for each in turn.repairs] == ["requeue"]


def test_a_freeze_between_two_actions_stops_the_second(open_sqlite: OpenTally) -> None:
    with open_sqlite(
        owner=OWNER, settings=Settings(autonomy="execute"), embedder="static"
    ) as tally:
        add_jobs(tally, _remember(tally, 4), OWNER, **DEAD)
        services = services_of(tally)
        services.store.database.write(lambda tx: tx.execute(delete(tables.vectors)), name="test")
        operator, wake = tally.bind(OWNER).operator, services.background.wake

        def freeze() -> None:
            operator.freeze(reason="an abuse is under way", what="autonomy")

        set_jobs(tally, kind="other", **DEAD)
        services.background.wake = freeze  # type: ignore[method-assign]
        turn = _loop(tally).turn()
        services.background.wake = wake  # type: ignore[method-assign]
        assert turn is not None
        assert [each.action for each in turn.repairs] == ["requeue"]
        assert _events(tally) == ["repair.begin", "repair.end"]


def test_one_process_at_a_time_has_the_loop(tmp_path: Path) -> None:
    settings = Settings(autonomy="execute")
    with (
        Tally.open(tmp_path, settings=settings, owner=OWNER, background=False) as first,
        Tally.open(tmp_path, settings=settings, background=False) as second,
    ):
        add_jobs(first, _remember(first, 4), OWNER, **DEAD)
        services = services_of(second)
        assert _loop(first).turn() is not None
        other = Loop(services.memory, services.background, services.windows, "other")
        assert other.turn() is None


def test_the_background_runs_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tallystick_steward.loop.EVERY", 0.1)
    done = threading.Event()
    settings = Settings(autonomy="execute")
    with Tally.open(tmp_path, settings=settings, owner=OWNER) as tally:
        add_jobs(tally, _remember(tally, 4), OWNER, **DEAD)
        for _ in range(400):
            if "repair.end" in _events(tally):
                done.set()
                break
            services_of(tally).background.wake()
            time.sleep(0.05)
    assert done.is_set()
