"""A backup is the tally of one moment, taken while others write; what is restored is checked
first.
"""

from __future__ import annotations

import hashlib
import json
import sqlite3
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import create_engine, select, text
from tests.pages import every

from tallystick import Actor, Tally
from tallystick.checkpoints import Leaf, NewCheckpoint
from tallystick.errors import (
    ClosedTally,
    CorruptTally,
    Denied,
    InvalidInput,
    StateConflict,
    StorageError,
    TallyNotFound,
)
from tallystick.records import canonical_json, text_digest
from tallystick.storage.engine import tables
from tallystick.storage.move import archives
from tallystick.storage.rows import journal
from tallystick.tally.services import services_of

ROOT = Actor(user="root", role="operator")
ADA = Actor(user="ada")


@dataclass(frozen=True)
class Places:
    """Where the tally of a test is, and where it is restored."""

    tmp: Path
    first: str
    second: str
    schema: str
    other: str

    @property
    def is_postgres(self) -> bool:
        return "://" in self.first

    def open(self) -> Tally:
        return Tally.open(self.first, schema=self.schema, background=False)

    def open_second(self) -> Tally:
        return Tally.open(self.second, schema=self.other, background=False, create=False)

    def restore(self, **options: Any) -> Any:
        return Tally.restore(
            self.tmp / "backup", self.second, schema=self.other, actor=ROOT, **options
        )

    @property
    def is_there(self) -> bool:
        """Whether anything is at the second place."""
        if not self.is_postgres:
            return any(path.name.strip(".").startswith("second") for path in self.tmp.iterdir())
        engine = create_engine(self.second.replace("postgresql://", "postgresql+psycopg://"))
        query = text("SELECT COUNT(*) FROM pg_namespace WHERE nspname = :name")
        with engine.connect() as connection:
            count = connection.execute(query, {"name": self.other}).scalar()
        engine.dispose()
        return bool(count)


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def places(request: pytest.FixtureRequest, tmp_path: Path) -> Places:
    if request.param == "sqlite":
        first, second = str(tmp_path / "first"), str(tmp_path / "second")
        return Places(tmp_path, first, second, "tallystick", "tallystick")
    url = request.getfixturevalue("postgres_url")
    return Places(tmp_path, url, url, f"b{uuid.uuid4().hex}", f"r{uuid.uuid4().hex}")


def _fill(tally: Tally) -> str:
    ada = tally.bind(ADA)
    ada.remember("Ada keeps a heron called Otto.", kind="fact")
    with ada.run("keeper") as run, run.step("tool_call", name="feed") as step:
        step.record("tool_call", {"fish": 3})
    ada.remember("The heron eats three fish a day.", kind="fact")
    return run.id


def test_a_restored_backup_answers_verifies_and_goes_on(places: Places) -> None:
    with places.open() as tally:
        run_id = _fill(tally)
        before = [hit.memory.id for hit in tally.bind(ADA).recall("what does the heron eat?")]
        written = tally.bind(ROOT).operator.backup(places.tmp / "backup")

    restored = places.restore()

    assert restored.digest == written.digest
    assert restored.rows == written.rows
    assert written.left_out == restored.left_out
    with places.open_second() as tally:
        ada = tally.bind(ADA)
        assert [hit.memory.id for hit in ada.recall("what does the heron eat?")] == before
        assert ada.recordings.verify(run_id).ok
        later = ada.remember("Otto sleeps on one leg.", kind="fact")
        assert later.id not in before
        findings = tally.bind(ROOT).operator.doctor()
        assert [one for one in findings if one.status == "problem"] == []
        with services_of(tally).store.database.read() as connection:
            events = [entry.event for entry in journal.entries(connection, "tally")]
        assert events[-1] == "tally.restore"
        assert "tally.backup" in events


def test_a_backup_is_taken_while_others_write_and_has_what_they_were_answered_before(
    places: Places,
) -> None:
    stop, answered = threading.Event(), []
    with places.open() as tally, Tally.open(places.first, schema=places.schema) as other:
        writers = [tally.bind(ADA), other.bind(Actor(user="bob"))]

        def write(number: int) -> None:
            count = 0
            while not stop.is_set():
                said = writers[number].remember(f"{number} says {count}", kind="fact")
                answered.append(said.id)
                count += 1

        threads = [threading.Thread(target=write, args=(number,)) for number in range(2)]
        for thread in threads:
            thread.start()
        while len(answered) < 20:
            pass
        before = list(answered)
        tally.bind(ROOT).operator.backup(places.tmp / "backup")
        stop.set()
        for thread in threads:
            thread.join()
    places.restore()
    with places.open_second() as tally:
        with services_of(tally).store.database.read() as connection:
            found = set(connection.exec_driver_sql("SELECT COUNT(*) FROM memories").scalars())
        [count] = found
        assert len(before) <= count <= len(answered)
        seen = {memory.id for user in ("ada", "bob") for memory in _all(tally, user)}
        assert set(before) <= seen


def _all(tally: Tally, user: str) -> list[Any]:
    return every(tally.bind(Actor(user=user)).memories)


def test_nothing_is_restored_over_a_tally(places: Places) -> None:
    with places.open() as tally:
        _fill(tally)
        tally.bind(ROOT).operator.backup(places.tmp / "backup")
    places.restore()

    with pytest.raises(StateConflict, match="in use: this backup is restored there already, and"):
        places.restore()
    with places.open() as tally:
        with pytest.raises(InvalidInput, match=r"there already: a backup of .* complete and whole"):
            tally.bind(ROOT).operator.backup(places.tmp / "backup")
        tally.bind(ROOT).operator.backup(places.tmp / "another")
        (places.tmp / "backup" / "manifest.json").write_text("{}")
        with pytest.raises(InvalidInput, match=r"there already\. Back up into a new"):
            tally.bind(ROOT).operator.backup(places.tmp / "backup")
    with pytest.raises(StateConflict, match=r"in use: (something is there|it has tables)"):
        Tally.restore(places.tmp / "another", places.second, schema=places.other, actor=ROOT)
    with places.open_second() as tally:
        assert len(_all(tally, "ada")) == 2


def test_a_damaged_backup_is_refused_and_leaves_nothing(places: Places) -> None:
    with places.open() as tally:
        _fill(tally)
        tally.bind(ROOT).operator.backup(places.tmp / "backup")
    [largest] = sorted((places.tmp / "backup").glob("*[!n]"), key=lambda path: path.stat().st_size)[
        -1:
    ]
    whole = largest.read_bytes()
    largest.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))

    with pytest.raises(CorruptTally, match="does not match its digest"):
        places.restore()

    assert not places.is_there
    largest.write_bytes(whole)
    places.restore()


def test_a_backup_whose_rows_were_changed_is_refused_although_every_digest_fits(
    places: Places,
) -> None:
    """Somebody who rewrites the manifest too is found by the chain."""
    with places.open() as tally:
        _fill(tally)
        tally.bind(ROOT).operator.backup(places.tmp / "backup")
    _rewrite_an_entry(places.tmp / "backup", places.is_postgres)

    with pytest.raises(CorruptTally, match="journal"):
        places.restore()

    assert not places.is_there


def _rewrite_an_entry(backup: Path, is_postgres: bool) -> None:
    if is_postgres:
        file = backup / "journal.jsonl"
        lines = file.read_text()
        file.write_text(lines.replace('\\"ada\\"', '\\"eve\\"'))
        assert file.read_text() != lines
    else:
        file = backup / "tally.db"
        with closing(sqlite3.connect(file)) as database:
            database.execute("UPDATE journal SET event = event || 'x' WHERE position = 2")
            database.commit()
    manifest = json.loads((backup / "manifest.json").read_text())
    content = file.read_bytes()
    sha256 = hashlib.sha256(content).hexdigest()
    manifest["files"][file.name] = {"sha256": sha256, "size": len(content)}
    manifest.pop("digest")
    manifest["digest"] = text_digest("backup", canonical_json(manifest))
    (backup / "manifest.json").write_text(json.dumps(manifest))


def _killed_in(function: str, call: str) -> None:
    """Make a call in a process that ends at once where it enters a function."""
    module, name = function.rsplit(".", 1)
    code = (
        "import os, importlib\n"
        "from pathlib import Path\n"
        "from tallystick import Actor, Tally\n"
        f"module = importlib.import_module({module!r})\n"
        f"setattr(module, {name!r}, lambda *a, **k: os.kill(os.getpid(), 9))\n"
        f"root = Actor(user='root', role='operator')\n{call}\n"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, timeout=120)
    assert ended.returncode == -9, ended.stderr.decode()


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="it kills itself with a signal")
def test_a_restore_that_was_cut_off_leaves_no_tally_and_is_begun_anew(places: Places) -> None:
    with places.open() as tally:
        _fill(tally)
        tally.bind(ROOT).operator.backup(places.tmp / "backup")
    arguments = (str(places.tmp / "backup"), places.second)
    _killed_in(
        "tallystick.upkeep.backup.require_whole",
        f"Tally.restore(*{arguments!r}, schema={places.other!r}, actor=root)",
    )
    with pytest.raises(TallyNotFound):
        places.open_second()

    places.restore()

    with places.open_second() as tally:
        assert len(_all(tally, "ada")) == 2
        with services_of(tally).store.database.read() as connection:
            events = [entry.event for entry in journal.entries(connection, "tally")]
        assert events.count("tally.restore") == 1
    assert not list(places.tmp.glob(".*"))


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="it kills itself with a signal")
@pytest.mark.parametrize("verb", ["backup", "export"])
@pytest.mark.parametrize("is_there", [False, True], ids=["new", "empty"])
def test_what_was_cut_off_is_written_anew_by_the_same_call(
    places: Places, verb: str, is_there: bool
) -> None:
    target = places.tmp / "copy"
    if is_there:
        target.mkdir()  # as where a disk is mounted
    with places.open() as tally:
        _fill(tally)
    _killed_in(
        "tallystick.storage.move.archives.canonical_json",
        f"tally = Tally.open({places.first!r}, schema={places.schema!r}, background=False)\n"
        f"tally.bind(root).operator.{verb}(Path({str(target)!r}))",
    )
    assert not (target / "manifest.json").exists()

    with places.open() as tally:
        getattr(tally.bind(ROOT).operator, verb)(target)

    assert (target / "manifest.json").exists()
    assert not list(target.glob(".*"))
    assert not list(places.tmp.glob(".*"))


@pytest.mark.postgres
def test_what_else_is_in_a_schema_stays_whatever_becomes_of_a_restore(
    postgres_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    schema, other = f"b{uuid.uuid4().hex}", f"r{uuid.uuid4().hex}"
    with Tally.open(postgres_url, schema=schema, background=False) as tally:
        _fill(tally)
        tally.bind(ROOT).operator.backup(tmp_path / "backup")
    engine = create_engine(postgres_url.replace("postgresql://", "postgresql+psycopg://"))
    with engine.begin() as connection:
        connection.execute(text(f"CREATE SCHEMA {other}"))
        connection.execute(text(f"CREATE VIEW {other}.mine AS SELECT 7 AS x"))

    def damaged(connection: Any) -> None:
        raise CorruptTally("The chains do not verify.")

    with monkeypatch.context() as patched:
        patched.setattr("tallystick.upkeep.backup.require_whole", damaged)
        with pytest.raises(CorruptTally):
            Tally.restore(tmp_path / "backup", postgres_url, schema=other, actor=ROOT)
    with engine.begin() as connection:
        assert connection.execute(text(f"SELECT x FROM {other}.mine")).scalar() == 7
        schemas = text("SELECT COUNT(*) FROM pg_namespace WHERE nspname LIKE :name")
        assert connection.execute(schemas, {"name": f"{other}%"}).scalar() == 1

    Tally.restore(tmp_path / "backup", postgres_url, schema=other, actor=ROOT)

    with engine.begin() as connection:
        assert connection.execute(text(f"SELECT x FROM {other}.mine")).scalar() == 7
    engine.dispose()
    with Tally.open(postgres_url, schema=other, background=False, create=False) as tally:
        assert len(_all(tally, "ada")) == 2
        tally.bind(ADA).remember("The heron likes rain.")


def test_counters_go_on_behind_the_numbers_that_were_ever_given(places: Places) -> None:
    """The newest thread was deleted: its number is not given to another one."""
    with places.open() as tally:
        threads = tally.bind(ADA).threads
        threads.put("chat", _state())
        threads.delete("chat")
        tally.bind(ROOT).operator.backup(places.tmp / "backup")
    places.restore()
    with places.open_second() as tally:
        tally.bind(ADA).threads.put("another", _state())
        with services_of(tally).store.database.read() as connection:
            assert connection.execute(select(tables.threads.c.id)).scalars().all() == [2]


def _state() -> NewCheckpoint:
    body = Leaf("json", json.dumps({"said": "x" * 5_000}).encode())
    return NewCheckpoint("", "1", None, {"source": "input"}, body, {"messages": body})


def test_who_is_no_operator_backs_nothing_up(places: Places) -> None:
    with places.open() as tally, pytest.raises(Denied):
        tally.bind(Actor(user="eve")).operator.backup(places.tmp / "backup")
    assert not (places.tmp / "backup").exists()


def test_a_backup_needs_a_new_folder(places: Places) -> None:
    (places.tmp / "backup").mkdir()
    (places.tmp / "backup" / "mine").write_text("kept")
    with places.open() as tally, pytest.raises(InvalidInput, match="already"):
        tally.bind(ROOT).operator.backup(places.tmp / "backup")
    assert [path.name for path in (places.tmp / "backup").iterdir()] == ["mine"]


@pytest.mark.parametrize("verb", ["backup", "export"])
def test_what_cannot_be_finished_leaves_no_files(
    places: Places, monkeypatch: pytest.MonkeyPatch, verb: str
) -> None:
    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(archives, "write_manifest", full)
    with places.open() as tally:
        before = sorted(path.name for path in places.tmp.iterdir())
        with pytest.raises(StorageError, match="No space left"):
            getattr(tally.bind(ROOT).operator, verb)(places.tmp / "copy")
    assert sorted(path.name for path in places.tmp.iterdir()) == before


@pytest.mark.postgres
def test_a_tally_moves_whole_to_the_other_kind_of_database_and_back(
    postgres_url: str, tmp_path: Path
) -> None:
    """All of it: owner, tokens, approvals, settings, threads, and the numbers of rows."""
    schema = f"c{uuid.uuid4().hex}"
    with Tally.open(tmp_path / "first", owner=ADA, background=False) as tally:
        run_id = _fill(tally)
        gone = tally.bind(ADA).remember("It is erased.")
        tally.bind(ADA).threads.put("chat", _state())
        operator = tally.bind(ROOT).operator
        operator.choose_windows(journal_days=90)
        preview = operator.erase(gone.id, reason="asked for")
        operator.erase(
            gone.id, reason="asked for", mode="apply", confirm_token=preview.confirm_token
        )
        before = _everything(tally)
        operator.backup(tmp_path / "of sqlite")

    Tally.restore(tmp_path / "of sqlite", postgres_url, schema=schema, actor=ROOT)

    with Tally.open(postgres_url, schema=schema, background=False, create=False) as tally:
        assert _everything(tally) == before
        assert tally.bind(ADA).recordings.verify(run_id).ok
        assert tally.bind(ADA).threads.verify() == []
        assert [one for one in tally.bind(ROOT).operator.doctor() if one.status == "problem"] == []
        later = tally.bind(ADA).remember("Otto sleeps on one leg.")
        tally.bind(ADA).threads.put("another", _state())
        moved = _everything(tally)
        tally.bind(ROOT).operator.backup(tmp_path / "of postgres")

    Tally.restore(tmp_path / "of postgres", tmp_path / "second", actor=ROOT)

    with Tally.open(tmp_path / "second", background=False, create=False) as tally:
        assert _everything(tally) == moved
        assert tally.owner == ADA
        assert tally.bind(ADA).get(later.id).content == "Otto sleeps on one leg."
        assert tally.bind(ADA).threads.verify() == []
        assert [one for one in tally.bind(ROOT).operator.doctor() if one.status == "problem"] == []
        tally.bind(ADA).remember("A boat came in.")


def _everything(tally: Tally) -> dict[str, list[Any]]:
    """Every row but those that backing up and restoring add, and what is derived."""
    left = {"derived", "recall_segments", "access_log"}
    rows: dict[str, list[Any]] = {}
    with services_of(tally).store.database.read() as connection:
        for table in tables.metadata.sorted_tables:
            if table.name not in left:
                query = select(table).order_by(*table.primary_key.columns)
                rows[table.name] = [tuple(row) for row in connection.execute(query)]
    rows["settings"] = [row for row in rows["settings"] if not row[0].startswith("chroma.")]
    rows["journal"] = [row for row in rows["journal"] if row[2] != "tally"]
    rows["streams"] = [row for row in rows["streams"] if row[0] != "tally"]
    return rows


def test_a_place_that_is_restored_to_was_closed_before(tmp_path: Path) -> None:
    """Restoring opens the tally to check it, and leaves nothing open."""
    with Tally.open(tmp_path / "first", background=False) as tally:
        mine = tally.bind(ROOT)
        mine.operator.backup(tmp_path / "backup")
    with pytest.raises(ClosedTally):
        mine.operator.backup(tmp_path / "other")
    Tally.restore(tmp_path / "backup", tmp_path / "second", actor=ROOT)
    assert sorted(path.name for path in (tmp_path / "second").glob("tally.db*")) == ["tally.db"]


def test_a_drill_brings_back_what_was_answered_before_and_tells_its_timings(
    places: Places, record_property: Callable[[str, object], None]
) -> None:
    """What an operator does now and then: back up while people work, restore beside, ask the same
    questions, check. `make test ARGS="-k drill -s"` prints how long each step takes.
    """
    questions = ("How is the heron called?", "How many fish does the heron eat?")
    stopping = threading.Event()
    with places.open() as tally:
        run_id = _fill(tally)
        ada = tally.bind(ADA)
        before = [[hit.memory.id for hit in ada.recall(each, limit=2)] for each in questions]

        def write() -> None:
            while not stopping.is_set():
                ada.remember(f"A boat came in, number {uuid.uuid4().hex}.")

        writers = [threading.Thread(target=write) for _ in range(2)]
        for writer in writers:
            writer.start()
        try:
            backup = tally.bind(ROOT).operator.backup(places.tmp / "backup")
        finally:
            stopping.set()
            for writer in writers:
                writer.join()
    restored = places.restore()
    with places.open_second() as tally:
        ada = tally.bind(ADA)
        tally.drain()
        after = [[hit.memory.id for hit in ada.recall(each, limit=2)] for each in questions]
        assert after == before
        assert ada.recordings.verify(run_id).ok
        began = time.perf_counter()
        findings = tally.bind(ROOT).operator.doctor()
        checked_ms = round(1_000 * (time.perf_counter() - began))
        assert all(finding.status != "problem" for finding in findings)
    assert restored.digest == backup.digest
    for step, took in (
        ("backup", backup.took_ms),
        ("restore", restored.took_ms),
        ("doctor", checked_ms),
    ):
        record_property(f"{step}_ms", took)
        print(f"drill on {'PostgreSQL' if places.is_postgres else 'SQLite'}: {step} {took} ms")  # noqa: T201
