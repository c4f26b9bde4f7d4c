"""A tally of each earlier release opens, is migrated, verifies and answers as it did, on SQLite and
PostgreSQL; also by a made-up next version, so that there is always a migration.

tests/fixtures/releases/make.py says how each was made.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import func, select, text
from tests.fixtures.releases.make import ADA, CIPHER, ERASED, OPENED, QUESTIONS, ROOT, opened
from tests.fixtures.releases.places import RELEASES, Left, put
from tests.fixtures.releases.recording import OWNER
from tests.next_version import NEXT, install

from tallystick import Tally
from tallystick.storage.engine import migrate, tables
from tallystick.storage.rows import journal
from tallystick.tally.services import services_of
from tallystick.testing import StepClock
from tallystick_ingest import Ingest
from tallystick_langgraph import TallySaver
from tallystick_langgraph.encryption import splitter_and_cipher
from tallystick_synthesis import Synthesis
from tallystick_work import Work

pytestmark = pytest.mark.skipif(not RELEASES, reason="the fixtures are out of reach here")


@pytest.fixture(params=RELEASES)
def release(request: pytest.FixtureRequest) -> str:
    """The version of a release."""
    return str(request.param)


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def url(request: pytest.FixtureRequest) -> str | None:
    """Where PostgreSQL is; None for SQLite."""
    return None if request.param == "sqlite" else request.getfixturevalue("postgres_url")


@pytest.fixture(params=["today", "next"])
def left(
    request: pytest.FixtureRequest,
    release: str,
    url: str | None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Left:
    """What the release left behind, for the code of today or that of the made-up next version."""
    if request.param == "next":
        install(monkeypatch, tmp_path / "migrations")
    return put(release, tmp_path, url)


@pytest.fixture
def tally(left: Left) -> Iterator[Tally]:
    """The tally of the release, as the code of today opens it."""
    with opened(left.where, StepClock(OPENED), schema=left.schema) as tally:
        yield tally


def test_it_has_the_schema_of_today_and_a_row_of_every_kind(tally: Tally, left: Left) -> None:
    with services_of(tally).store.database.read() as connection:
        assert migrate.revision_of(connection) == migrate.HEAD
        counts = {
            table.name: connection.execute(select(func.count()).select_from(table)).scalar_one()
            for table in tables.metadata.sorted_tables
        }
        events = [entry.event for entry in journal.entries(connection, "tally")]
        if migrate.HEAD == NEXT:
            colours = connection.execute(text("SELECT DISTINCT colour FROM memories"))
            assert colours.scalars().all() == ["grey"]
    # What is derived is made again where a backup leaves it out.
    assert {name for name, count in counts.items() if not count} <= (
        {"derived", "item_summaries", "recall_segments"} if left.schema != "tallystick" else set()
    )
    assert ("tally.migrate" in events) is (migrate.HEAD != migrate.FIRST)


def test_every_chain_holds_and_ends_in_the_heads_of_then(tally: Tally, left: Left) -> None:
    with services_of(tally).store.database.read() as connection:
        streams = {entry.stream for entry in journal.all_entries(connection)}
        assert [
            problem for each in streams for problem in journal.verify_stream(connection, each)
        ] == []
    _, cipher = splitter_and_cipher(CIPHER)
    for user in (ADA, OWNER):
        bound = tally.bind(user)
        runs = {
            run.id: bound.recordings.verify(run.id) for run in bound.recordings.runs(limit=1_000)
        }
        assert {each: checked.problems for each, checked in runs.items() if not checked.ok} == {}
        heads = {each: checked.foil.head for each, checked in runs.items()}
        assert heads == left.holds["heads"][user.user]
        for name in bound.threads.names():
            threads = bound.threads.encrypted(cipher if name == "sealed" else None)
            assert threads.verify(name) == []
    findings = tally.bind(ROOT).operator.doctor()
    assert [finding.text for finding in findings if finding.status == "problem"] == []


def test_it_answers_as_it_did(tally: Tally, left: Left) -> None:
    ada = tally.bind(ADA)
    for question, content in QUESTIONS.items():
        hit = ada.recall(question)[0]
        assert (hit.memory.id, hit.memory.content) == (left.holds["answers"][question], content)
        assert hit.source_ids


def test_what_was_forgotten_is_proved_and_brought_back(tally: Tally, left: Left) -> None:
    ada, root, holds = tally.bind(ADA), tally.bind(ROOT), left.holds
    proof = root.operator.prove_unreachable(holds["forgotten"])
    assert (proof.holds, proof.problems) == (True, ())
    erased = root.operator.prove_erased(holds["erased"], text=ERASED)
    assert (erased.holds, erased.problems) == (True, ())
    ada.recover(holds["forgotten"], reason="it was right")
    assert ada.get(holds["forgotten"]).content == "The heron nests in March."
    [change] = [each for each in ada.history(holds["modified"]) if each.event == "UPDATE"]
    assert (change.old, change.new) == (
        {"content": "The gym opens at six."},
        {"content": "The gym opens at seven."},
    )
    assert ada.get(holds["superseded"]).state == "superseded"


def test_extensions_find_what_they_kept(tally: Tally, left: Left) -> None:
    ada, holds = tally.bind(ADA), left.holds
    verified = Synthesis(ada).verify(holds["artifact"]).verification
    assert verified is not None
    assert verified.verdict == "passed_with_gaps"
    states = {each.id: each.status for each in Work(ada).list()}
    assert (states[holds["task"]], states[holds["done"]]) == ("blocked", "done")
    assert {each.title for each in Ingest(ada).documents()} == {"Owls", "Kites"}
    assert any("Hamburg" in each.names for each in ada.explore(mode="communities").communities)
    assert [each.content.content for each in ada.reviews.list() if each.content] == [
        "Ada is allergic to peanuts."
    ]


def test_threads_of_checkpoints_are_read_the_encrypted_too(tally: Tally) -> None:
    ada = tally.bind(ADA)
    saver = TallySaver(ada, serde=CIPHER)
    sealed: Any = saver.get_tuple({"configurable": {"thread_id": "sealed", "checkpoint_ns": ""}})
    assert [each.content for each in sealed.checkpoint["channel_values"]["messages"]] == [
        "hush",
        "sealed",
    ]


def test_work_goes_on(tally: Tally, left: Left) -> None:
    ada = tally.bind(ADA)
    tally.drain()
    stored = ada.remember("The owl moved to the mill.", kind="fact")
    assert ada.recall("Where did the owl move to?")[0].memory.id == stored.id
    ada.modify(left.holds["modified"], content="The gym opens at eight.", reason="newer hours")
    assert ada.recall("When does the gym open?")[0].content == "The gym opens at eight."
    assert [job.kind for job in tally.bind(ROOT).jobs.list() if job.state == "dead"] == []
