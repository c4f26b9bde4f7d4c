"""A tally of a commit before 0.1.0 is refused. One of an earlier release is migrated, here by a
made-up next version.
"""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from sqlalchemy import Column, Connection, MetaData, Text, inspect, text
from tests.next_version import BEFORE, NEXT, install

from tallystick import Actor, Tally
from tallystick.errors import CorruptTally, InvalidInput, StorageError, UnreleasedTally
from tallystick.settings import Settings
from tallystick.storage import Database, Location
from tallystick.storage.engine import migrate, tables
from tallystick.storage.move.archives import Archive
from tallystick.storage.rows import journal
from tallystick.tally.services import services_of

ADA = Actor(user="ada")
ROOT = Actor(user="root", role="operator")


class Place:
    """Where a tally is, and how it is opened there."""

    def __init__(self, where: str, schema: str) -> None:
        self.where, self.schema = where, schema

    def open(self) -> Tally:
        return Tally.open(self.where, schema=self.schema, background=False)

    def migrate(self, **options: Any) -> Any:
        return Tally.migrate(self.where, schema=self.schema, **options)

    @contextmanager
    def rows(self) -> Iterator[Connection]:
        """The database as it is, opened without a migration."""
        database = Database(Location.find(self.where).url, schema=self.schema)
        try:
            with database.read() as connection:
                yield connection
        finally:
            database.close()

    @property
    def revision(self) -> str | None:
        with self.rows() as connection:
            return migrate.revision_of(connection)

    def stamp(self, revision: str) -> None:
        with self.open() as tally:
            statement = text("UPDATE alembic_version SET version_num = :revision")
            services_of(tally).store.database.write(
                lambda tx: tx.execute(statement, {"revision": revision}), name="stamp"
            )

    def noted(self) -> Any:
        """The entry of the journal that says that the tally was migrated."""
        with self.open() as tally, services_of(tally).store.database.read() as connection:
            entries = list(journal.entries(connection, "tally"))
        [entry] = [entry for entry in entries if entry.event == "tally.migrate"]
        return entry


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def places(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[str], Place]:
    """Places by name, once per database."""
    if request.param == "sqlite":
        return lambda name: Place(str(tmp_path / name), "tallystick")
    url, schema = request.getfixturevalue("postgres_url"), f"t{uuid.uuid4().hex}"
    return lambda name: Place(url, f"{schema}_{name}")


@pytest.fixture
def old(places: Callable[[str], Place], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    """A tally of the release before this one."""
    place = places("old")
    with place.open() as tally:
        tally.bind(ADA).remember("Ada keeps a heron called Otto.", kind="fact")
    install(monkeypatch, tmp_path / "migrations")
    return place


def _memories(place: Place, user: str = "ada") -> list[str]:
    with place.open() as tally:
        return [memory.content for memory in tally.bind(Actor(user=user)).memories()]


@pytest.mark.parametrize("revision", ["0001", "0018", "0001.ffffffffffff"])
def test_a_tally_of_a_commit_before_the_first_release_is_refused_and_left_alone(
    places: Callable[[str], Place], tmp_path: Path, revision: str
) -> None:
    place = places("old")
    with place.open() as tally:
        tally.bind(ADA).remember("kept")
    place.stamp(revision)

    for call in (
        place.open,
        place.migrate,
        lambda: place.migrate(mode="dry_run"),
        lambda: place.migrate(mode="apply", backup=tmp_path / "backup"),
    ):
        with pytest.raises(UnreleasedTally, match=r"before 0\.1\.0.*make a new tally") as refused:
            call()
        assert refused.value.facts() == {"schema": revision, "supported": migrate.HEAD}
    assert place.revision == revision
    assert not (tmp_path / "backup").exists()
    with place.rows() as connection:
        assert connection.execute(text("SELECT COUNT(*) FROM memories")).scalar() == 1


def test_other_tables_have_another_fingerprint(monkeypatch: pytest.MonkeyPatch) -> None:
    assert migrate.HEAD[5:] == migrate.fingerprint(), (
        "The declared tables are not those of the newest migration: add the next one, and name it "
        f"as HEAD with the fingerprint {migrate.fingerprint()} (CONTRIBUTING.md)."
    )
    other = MetaData(naming_convention=tables.metadata.naming_convention)
    for table in tables.metadata.sorted_tables:
        table.to_metadata(other)
    monkeypatch.setattr(migrate, "metadata", other)
    assert migrate.fingerprint() == migrate.HEAD[5:]
    other.tables["memories"].append_column(Column("colour", Text))
    assert migrate.fingerprint() != migrate.HEAD[5:]


def test_a_migration_is_seen_tried_and_done_with_a_backup_before_it(
    old: Place, places: Callable[[str], Place], tmp_path: Path
) -> None:
    with pytest.raises(InvalidInput, match="Nothing is changed"):
        old.migrate(backup=tmp_path / "backup")
    with pytest.raises(InvalidInput, match="Nothing is changed"):
        old.migrate(mode="dry_run", without_backup=True)
    with pytest.raises(InvalidInput, match="not both"):
        old.migrate(mode="apply", backup=tmp_path / "backup", without_backup=True)
    planned = old.migrate()
    assert (planned.before, planned.after) == (BEFORE, NEXT)
    [step] = planned.steps
    assert (step.schema_revision, step.text) == (NEXT, "Colours: each memory may have one.")
    assert old.revision == BEFORE

    tried = old.migrate(mode="dry_run")
    assert tried.steps == planned.steps
    assert any("chains hold" in line for line in tried.checked)
    assert old.revision == BEFORE

    with pytest.raises(InvalidInput, match="backup"):
        old.migrate(mode="apply")
    assert old.revision == BEFORE

    done = old.migrate(mode="apply", backup=tmp_path / "backup", actor=ROOT)
    assert done.backup is not None
    assert done.backup.schema_revision == BEFORE
    with old.rows() as connection:
        assert connection.execute(text("SELECT colour FROM memories")).scalars().all() == ["grey"]
        indexes = [index["name"] for index in inspect(connection).get_indexes("memories")]
    assert "ix_memories_colour" in indexes
    noted = old.noted()
    assert noted.details == {
        "before": BEFORE,
        "after": NEXT,
        "backup": done.backup.digest,
    }
    assert noted.actor["user"] == "root"
    assert old.migrate(mode="apply").steps == ()

    again = places("again")
    restored = Tally.restore(tmp_path / "backup", again.where, schema=again.schema, actor=ROOT)
    assert restored.schema_revision == BEFORE
    assert again.revision == NEXT
    assert _memories(again) == _memories(old) == ["Ada keeps a heron called Otto."]
    if "://" in again.where:
        with pytest.raises(InvalidInput, match="migrated there first"):
            Tally.restore(tmp_path / "backup", tmp_path / "folder", actor=ROOT)


def test_a_migration_whose_check_fails_changes_nothing(
    old: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def damaged(connection: Any) -> None:
        raise CorruptTally("The chains do not verify.")

    with monkeypatch.context() as patched:
        patched.setattr("tallystick.upkeep.backup.require_whole", damaged)
        with pytest.raises(CorruptTally):
            old.migrate(mode="apply", backup=tmp_path / "backup", actor=ROOT)
    assert old.revision == BEFORE
    assert old.migrate(mode="apply", without_backup=True).steps


def test_a_migration_on_opening_is_in_the_journal_behind_a_backup(
    old: Place, tmp_path: Path
) -> None:
    noted = old.noted()
    beside = tmp_path / f"old.schema-{BEFORE}"
    digest: dict[str, str] = {}
    if "://" not in old.where:
        Tally.restore(beside, tmp_path / "again", actor=ROOT)
        digest = {"backup": Archive(beside, "backup").manifest["digest"]}
        assert _memories(Place(str(tmp_path / "again"), old.schema)) == _memories(old)
    assert noted.details == {"before": BEFORE, "after": NEXT, **digest}
    assert noted.actor["user"] == "tallystick"
    assert old.revision == NEXT


def _beside(place: Place) -> list[str]:
    folder = Path(place.where)
    return sorted(each.name for each in folder.parent.glob(f"{folder.name}.schema-*"))


@pytest.mark.sqlite
@pytest.mark.parametrize("places", ["sqlite"], indirect=True)
def test_opening_needs_room_for_the_backup_and_says_how_much(
    old: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=4_096))
        with pytest.raises(StorageError, match=r"needs [0-9,]+ bytes, and 4,096 are free"):
            old.open()
    assert (old.revision, _beside(old)) == (BEFORE, [])
    with Tally.open(
        old.where, background=False, settings=Settings.read(backup_before_migration=False)
    ):
        assert (old.revision, _beside(old)) == (NEXT, [])


@pytest.mark.sqlite
@pytest.mark.parametrize("places", ["sqlite"], indirect=True)
def test_an_empty_tally_is_migrated_without_a_backup(
    places: Callable[[str], Place], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = places("empty")
    place.open().close()
    install(monkeypatch, tmp_path / "migrations")
    place.open().close()
    assert (place.revision, _beside(place)) == (NEXT, [])
