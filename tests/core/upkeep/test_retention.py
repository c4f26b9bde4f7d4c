"""Retention by itself: what a person chose goes, once a day, and nothing else."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tallystick.errors import Denied, InvalidInput, NotFound
from tallystick.records import Actor
from tallystick.settings import Settings
from tallystick.storage.rows import settings_rows
from tallystick.storage.text import erasing
from tallystick.tally import Tally
from tallystick.tally import services as tally_services
from tallystick.tally.services import services_of
from tallystick.testing import HashEmbedder
from tallystick.upkeep import retention
from tallystick.upkeep.retention import enqueue_retention

OpenTally = Callable[..., Tally]
ALICE, ROOT = Actor(user="alice"), Actor(user="root", role="operator")
DAY = 24 * 3600 * 1_000_000


class Calendar:
    """A clock that stands still until it is told."""

    def __init__(self) -> None:
        self.day = 20_000.0

    def now(self) -> int:
        return int(self.day * DAY)


def a_day_passes(tally: Tally, calendar: Calendar, days: float = 1) -> None:
    calendar.day += days
    enqueue_retention(services_of(tally).memory)
    tally.drain()


def texts_of(tally: Tally, memory_id: str) -> list[str | None]:
    """The stored texts of the versions of a memory."""
    from tallystick.storage.rows import memories

    with services_of(tally).store.database.read() as connection:
        stored = memories.get(connection, memory_id)
        return [] if stored is None else [v.body for v in erasing.texts_of(connection, stored.doc)]


def last_job(tally: Tally) -> Any:
    return tally.bind(ROOT).jobs.list(kind="retention")[0]


def test_retention_reaches_a_tally_of_processes_that_end_at_once(open_tally: OpenTally) -> None:
    """A worker looks at it half a minute after the opening."""
    calendar = Calendar()
    with open_tally(clock=calendar, background=False) as tally:
        tally.bind(ALICE).remember("The heron nests in March.", expires_at=calendar.now() + DAY)
    for days, count in ((0.2, 1), (0.2, 1), (2, 2)):
        calendar.day += days
        open_tally(clock=calendar, background=True).close()
        with open_tally(clock=calendar) as tally:
            assert len(tally.bind(ROOT).jobs.list(kind="retention")) == count
            assert last_job(tally).state in ("done", "empty")
    with open_tally(clock=calendar) as tally:
        [left] = tally.bind(ALICE).memories(states=["deleted"])
        assert left.state == "deleted"


def test_retention_at_the_end_of_a_process_is_bounded_in_time(
    open_tally: OpenTally, monkeypatch: pytest.MonkeyPatch
) -> None:
    calendar = Calendar()
    monkeypatch.setattr(tally_services, "_RETENTION_AT_CLOSE", -1.0)
    with open_tally(clock=calendar) as tally:
        tally.bind(ALICE).remember("The heron nests in March.", expires_at=calendar.now() + 1)
    calendar.day += 1
    with open_tally(clock=calendar) as tally:
        tally.keep_retention()
        assert last_job(tally).state == "leased"


def test_a_tally_of_a_library_call_destroys_no_text(open_tally: OpenTally) -> None:
    calendar = Calendar()
    with open_tally(clock=calendar, embedder=HashEmbedder(local=False)) as tally:
        mine = tally.bind(ALICE)
        forgotten = mine.remember("The heron nests in March.").id
        mine.forget(forgotten, reason="r")
        expired = mine.remember("The tide turns at noon.", expires_at=calendar.now() + DAY).id
        mine.working.of("run").set("plan", "Mend the boat.", expires_in=60)
        mine.remember("The reed bends.", idempotency_key="once")
        tally.drain()
        a_day_passes(tally, calendar, 400)

        assert None not in texts_of(tally, forgotten)
        assert mine.history(expired)[-1].event == "FORGET"
        assert None not in texts_of(tally, expired)
        assert last_job(tally).result["answers"] == 0
        with services_of(tally).store.database.read() as connection:
            left = connection.exec_driver_sql("SELECT count(*) FROM working").scalar_one()
        assert left == 0, "expired working memory is gone within a day"
        mine.recover(expired, reason="still needed")


def test_jobs_that_are_over_leave_after_their_days(open_tally: OpenTally, monkeypatch: Any) -> None:
    from tallystick.storage.rows import jobs

    calendar = Calendar()
    monkeypatch.setattr(jobs, "database_clock", lambda connection: calendar.now())
    with open_tally(clock=calendar, embedder=HashEmbedder(local=False)) as tally:
        tally.bind(ALICE).remember("The heron nests in March.")
        dead = tally.bind(ALICE).remember("The tide turns at noon.").job_id
        assert dead is not None
        tally.bind(ROOT).jobs.cancel(dead, reason="r")
        tally.drain()
        counts = []
        for _ in range(3):
            a_day_passes(tally, calendar, 13)
            counts.append(len(tally.bind(ROOT).jobs.list(kind="embed")))
    assert counts == [2, 1, 0]


def test_the_text_of_what_was_forgotten_goes_where_a_person_chose_it(
    open_tally: OpenTally,
) -> None:
    calendar = Calendar()
    with open_tally(clock=calendar) as tally:
        mine, root = tally.bind(ALICE), tally.bind(ROOT)
        root.operator.choose_windows(tombstones_days=60)
        forgotten = mine.remember("The heron nests in March.").id
        mine.forget(forgotten, reason="r")
        a_day_passes(tally, calendar, 59)
        assert None not in texts_of(tally, forgotten)
        a_day_passes(tally, calendar, 2)
        assert texts_of(tally, forgotten) == []
        with pytest.raises(NotFound):
            mine.recover(forgotten, reason="r")
        assert last_job(tally).result["tombstones"] == 1


def test_a_setting_says_it_for_a_library_call(open_tally: OpenTally) -> None:
    calendar = Calendar()
    settings = Settings.read(tombstones_days=1, forget_window_days=10)
    with open_tally(clock=calendar, settings=settings) as tally:
        mine = tally.bind(ALICE)
        forgotten = mine.remember("The heron nests in March.").id
        mine.forget(forgotten, reason="r")
        # It can be recovered for ten days, whatever the other window says.
        a_day_passes(tally, calendar, 9)
        assert None not in texts_of(tally, forgotten)
        a_day_passes(tally, calendar, 2)
        assert texts_of(tally, forgotten) == []


def test_the_journal_is_cut_by_the_window_that_was_chosen_and_still_verifies(
    open_tally: OpenTally,
) -> None:
    calendar = Calendar()
    with open_tally(clock=calendar) as tally:
        mine, root = tally.bind(ALICE), tally.bind(ROOT)
        root.operator.choose_windows(journal_days=90)
        memory = mine.remember("The heron nests in March.")
        mine.modify(memory.id, tags=["bird"], reason="r")
        a_day_passes(tally, calendar, 100)
        assert last_job(tally).result["journal"] > 0
        assert mine.get(memory.id).tags == ("bird",)
        assert all(each.status in ("ok", "notice") for each in root.operator.doctor())


def test_it_is_done_once_a_day_whoever_asks(open_tally: OpenTally) -> None:
    calendar = Calendar()
    with open_tally(clock=calendar) as tally:
        for _ in range(5):
            a_day_passes(tally, calendar, 0.01)
        assert len(tally.bind(ROOT).jobs.list(kind="retention")) == 1
        a_day_passes(tally, calendar)
        assert len(tally.bind(ROOT).jobs.list(kind="retention")) == 2


def test_cut_off_anywhere_it_is_done_again_whole(open_tally: OpenTally, monkeypatch: Any) -> None:
    calendar = Calendar()
    with open_tally(clock=calendar) as tally:
        mine, root = tally.bind(ALICE), tally.bind(ROOT)
        root.operator.choose_windows(tombstones_days=30, journal_days=90)
        forgotten = mine.remember("The heron nests in March.").id
        mine.forget(forgotten, reason="r")
        whole = retention._cut

        def dies(*arguments: Any, **options: Any) -> None:
            raise RuntimeError("killed")

        monkeypatch.setattr(retention, "_cut", dies)
        a_day_passes(tally, calendar, 100)
        assert last_job(tally).state == "retry_scheduled"
        monkeypatch.setattr(retention, "_cut", whole)
        tally.drain()
        assert (last_job(tally).state, texts_of(tally, forgotten)) == ("done", [])
        assert all(each.status in ("ok", "notice") for each in root.operator.doctor())


def test_it_waits_while_changes_are_suspended(open_sqlite: OpenTally) -> None:
    calendar = Calendar()
    with open_sqlite(clock=calendar) as tally:
        mine, root = tally.bind(ALICE), tally.bind(ROOT)
        expired = mine.remember("The tide turns.", expires_at=calendar.now() + DAY).id
        root.operator.freeze(reason="audit")
        a_day_passes(tally, calendar, 2)
        assert mine.inspect(expired).state == "active"
        assert last_job(tally).error_code == "mutations_frozen"
        root.operator.thaw(reason="done")
        tally.drain()
        assert mine.history(expired)[-1].event == "FORGET"


@pytest.mark.parametrize(
    ("window", "problem"),
    [
        ({}, "at least one window"),
        ({"tombstones_days": 29}, "`tombstones_days` is at least 30"),
        ({"journal_days": 0}, "`journal_days` is a number of days"),
        ({"done_jobs_days": "always"}, "done_jobs_days"),
    ],
)
def test_a_window_that_cannot_be_kept_is_refused(
    open_sqlite: OpenTally, window: Any, problem: str
) -> None:
    with open_sqlite() as tally:
        with pytest.raises(InvalidInput, match=problem):
            tally.bind(ROOT).operator.choose_windows(**window)
        with pytest.raises(Denied):
            tally.bind(ALICE).operator.choose_windows(journal_days=90)


def test_the_windows_that_a_person_chose_go_along_with_an_export(
    open_tally: OpenTally, tmp_path: Path
) -> None:
    chosen = {
        "retention.dead_jobs_days": "60",
        "retention.done_jobs_days": "keep",
        "retention.journal_days": "180",
        "retention.tombstones_days": "45",
    }
    with open_tally() as tally:
        root = tally.bind(ROOT)
        root.operator.choose_windows(
            journal_days=180, tombstones_days=45, done_jobs_days="keep", dead_jobs_days=60
        )
        tally.bind(ALICE).remember("The heron nests in March.")
        tally.bind(ALICE).operator.export(tmp_path / "copy")
    with Tally.open(tmp_path / "new", background=False) as tally:
        tally.bind(ROOT).operator.choose_windows(dead_jobs_days=90)
        tally.bind(ROOT).operator.import_from(tmp_path / "copy")
        with services_of(tally).store.database.read() as connection:
            adopted = {name: settings_rows.get_setting(connection, name) for name in chosen}
    # A window that this tally chose itself stays.
    assert adopted == {**chosen, "retention.dead_jobs_days": "90"}


def test_a_process_that_kept_retention_once_has_no_limit_of_time_afterwards(
    open_sqlite: OpenTally,
) -> None:
    with open_sqlite() as tally:
        tally.keep_retention()
        assert services_of(tally)._retention.until is None
