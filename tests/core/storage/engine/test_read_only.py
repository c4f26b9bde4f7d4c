"""A tally that cannot be written is read: on a read-only or full disk, without permission."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from sqlalchemy import URL, Connection, create_engine, make_url, text
from tests.core.storage.engine.unwritable import run_full, run_unwritable
from tests.next_version import NEXT, write_migrations

from tallystick import Actor, Tally
from tallystick.errors import BusyTally, ReadOnlyTally, RecorderError, UnwritableReason
from tallystick.storage.engine import migrate
from tallystick.storage.engine.database import Database

pytestmark = pytest.mark.skipif(os.name == "nt", reason="permissions and mounts of Unix")

WRITER = """
import os, sys
from tallystick import Actor, Tally
from tallystick.testing import HashEmbedder

def write(folder):
    tally = Tally.open(folder, embedder=HashEmbedder(), background=False)
    owner = tally.bind()
    owner.remember("The heron nests in March.")
    with owner.run("coder") as run, run.step("model_call") as step:
        step.record("request", {"prompt": "Mend it."})
    return tally

write(sys.argv[1] + "/closed").close()
tally = write(sys.argv[1] + "/crashed")
with tally.bind().run("crashed") as run, run.step("model_call"):
    tally.bind().remember("The stork nests in April.")
    os._exit(0)
"""

READER = """
import json, sys
from tallystick import Actor, Tally
from tallystick.errors import TallystickError
from tallystick.testing import HashEmbedder

def name(call):
    try:
        call()
    except TallystickError as error:
        return f"{error.code}: {error.facts().get('reason')}"
    return "no error"

def look(folder):
    tally = Tally.open(folder, embedder=HashEmbedder())
    owner = tally.bind()
    found = owner.recall("Who nests in spring?")
    first = found[0].memory.id
    run = next(run for run in owner.recordings.runs() if run.agent_name == "coder")
    step = owner.recordings.steps(run.run_id)[0].step_id
    operator = tally.bind(Actor(user="olga", role="operator"))
    stranger = tally.bind(Actor(user="eve"), "private:local")
    findings = owner.operator.doctor()
    answer = {
        "read_only": tally.read_only,
        "recalled": sorted(hit.memory.content for hit in found),
        "warnings": found.warnings,
        "verified": owner.recordings.verify(run.run_id).ok,
        "shown": owner.recordings.entries(step)[0].payload,
        "exported": len(owner.recordings.export_receipt(run.run_id)) > 500,
        "pack": "heron" in owner.pack("heron").text,
        "inspected": owner.inspect(first).id == first,
        "doctor": [finding.status for finding in findings if finding.check == "writing"],
        "problems": [finding.text for finding in findings if finding.status == "problem"],
        "refused": name(lambda: stranger.memories()),
        "writes": {
            "remember": name(lambda: owner.remember("Nothing of this.")),
            "modify": name(lambda: owner.modify(first, content="Nothing.", reason="new")),
            "forget": name(lambda: owner.forget(first, reason="old")),
            "run": name(lambda: owner.run("later").end()),
            "drain": name(tally.drain),
            "export": name(lambda: owner.operator.export(folder + "-export")),
            "look": name(lambda: operator.recordings.entries(step)),
        },
    }
    tally.drop_caches()
    answer["closed"] = name(tally.close)
    return answer

print(json.dumps([look(sys.argv[1] + "/closed"), look(sys.argv[1] + "/crashed")]))
"""
MARCH, APRIL = "The heron nests in March.", "The stork nests in April."


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a tally that was closed, and one whose process died with changes in its log."""
    place = tmp_path_factory.mktemp("written")
    subprocess.run([sys.executable, "-c", WRITER, str(place)], check=True)
    assert not (place / "closed" / "tally.db-wal").exists()
    assert (place / "crashed" / "tally.db-wal").stat().st_size > 0
    return place


@pytest.fixture
def place(written: Path, tmp_path: Path) -> Path:
    """A copy of what was written."""
    return shutil.copytree(written, tmp_path / "place")


def _state(folder: Path) -> dict[str, bytes]:
    contents = {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and not path.name.endswith("-shm")
    }
    return {name: content for name, content in contents.items() if content}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("condition", "reason"),
    [
        ("read-only mount", "read_only"),
        ("no permission", "no_permission"),
        ("full disk", "disk_full"),
        ("file size limit", "write_failed"),
    ],
)
def test_a_tally_that_cannot_be_written_is_read_and_says_so(
    condition: str, reason: UnwritableReason, place: Path
) -> None:
    """What a process that died had committed is in the log, and is read too."""
    before = _state(place)
    closed, crashed = json.loads(run_unwritable(condition, READER, place))
    assert _state(place) == before

    cause = ReadOnlyTally(reason).cause
    for answer, memories in ((closed, [MARCH]), (crashed, [MARCH, APRIL])):
        assert answer["recalled"] == memories
        assert {answer[name] for name in ("verified", "exported", "pack", "inspected")} == {True}
        assert answer["shown"] == {"prompt": "Mend it."}
        assert answer["doctor"] == ["notice"]
        assert answer["problems"] == []
        assert answer["refused"] == "denied: principal_mismatch"
        if answer is crashed and condition == "full disk":
            # Its log has room for some changes, so that it is opened for writing.
            continue
        assert answer["read_only"] == cause
        assert answer["warnings"] == [f"the access log does not name this read. {cause}"]
        assert set(answer["writes"].values()) == {f"read_only_tally: {reason}"}
        assert answer["closed"] == "no error"


def test_what_cannot_be_made_or_migrated_is_refused_with_what_to_do(tmp_path: Path) -> None:
    old = tmp_path / "old"
    Tally.open(old, background=False).close()
    write_migrations(tmp_path / "migrations")
    script = f"""
import json, sys
from pathlib import Path
from tallystick import Actor, Tally
from tallystick.errors import TallystickError
from tallystick.storage.engine import migrate

migrate.HEAD, migrate.FOLDER = {NEXT!r}, Path({str(tmp_path / "migrations")!r})

def told(folder):
    try:
        Tally.open(folder, background=False)
    except TallystickError as error:
        return [error.code, str(error)]

print(json.dumps([told(sys.argv[1]), told(sys.argv[1] + "-new")]))
"""
    older, new = json.loads(run_unwritable("file size limit", script, old))
    assert older[0] == "read_only_tally"
    assert f"schema {migrate.HEAD} and must be migrated to {NEXT}" in older[1]
    assert new[0] == "tally_not_found"
    assert "none can be made" in new[1]


def test_a_reader_without_permission_sees_what_others_write_meanwhile(tmp_path: Path) -> None:
    """Locked while the writer has it open, immutable in between; a change is noticed."""
    with Tally.open(tmp_path, background=False) as tally:
        tally.bind().remember(MARCH)
    url = URL.create("sqlite", database=str(tmp_path / "tally.db"))
    reader = Database(url, unwritable="no_permission")

    def count() -> int:
        with reader.read() as connection:
            return int(connection.exec_driver_sql("SELECT count(*) FROM memories").scalar_one())

    assert count() == 1
    with Tally.open(tmp_path, background=False) as tally:
        tally.bind().remember(APRIL)
        assert count() == 2
        tally.bind().remember("The swift nests in May.")
        assert count() == 3
    assert count() == 3
    with pytest.raises(ReadOnlyTally):
        reader.write(lambda tx: None, name="test")
    reader.close()

    Tally.open(tmp_path, background=False).close()  # which leaves no log
    reader = Database(url, unwritable="no_permission")
    assert count() == 3
    with pytest.raises(BusyTally), reader.read():
        os.utime(tmp_path / "tally.db", ns=(0, 1))
    assert count() == 3
    reader.close()


CLOSED_WHEN_FULL = """
import json, os, sys
from tallystick import Actor, Tally
from tallystick.errors import TallystickError
from tallystick.testing import HashEmbedder

tally = Tally.open(sys.argv[1], embedder=HashEmbedder(), background=False)
owner = tally.bind()
run = owner.run("coder")
with run.step("model_call", name="stored") as step:
    step.record("request", {"prompt": "Mend it."})
filling = os.open(sys.argv[1] + "/filling", os.O_WRONLY | os.O_CREAT)
try:
    while True:
        os.write(filling, bytes(4096))
except OSError:
    os.close(filling)
# More than the log has room for.
for number in range(3):
    step = run.step("model_call", name=f"lost {number}")
    step.record("request", {"prompt": os.urandom(400_000).hex()})
    step.end(wait=False)
owner.recall("anything")
try:
    tally.close()
    told = "nothing"
except TallystickError as error:
    told = f"{error.code}: {error}"
print(json.dumps([run.id, told]))
"""


def test_a_close_that_could_not_write_says_so_and_the_next_verify_names_the_loss(
    tmp_path: Path,
) -> None:
    folder = tmp_path / "tally"
    folder.mkdir()
    run_id, told = json.loads(run_full(CLOSED_WHEN_FULL, folder))
    assert told.startswith("recorder_error: ")
    assert run_id in told

    with Tally.open(folder, background=False) as tally:
        recordings = tally.recordings
        assert recordings.steps(run_id)[0].name == "stored"
        verified = recordings.verify(run_id)
        assert verified.ok, verified
        lost = verified.gaps[f"run {run_id}"]["lost at closing"]
        assert lost >= 3
        assert recordings.run(run_id).status == "interrupted"
        assert recordings.run(run_id).gaps == lost
        assert list((folder / "alive").iterdir()) == []
    with Tally.open(folder, background=False) as tally:
        assert tally.recordings.run(run_id).gaps == lost


@pytest.mark.postgres
def test_a_server_that_only_reads_is_read(postgres_url: str) -> None:
    """A replica, or a role whose sessions only read."""
    owner = Actor(user="ada")
    with Tally.open(postgres_url, schema="read_only", background=False) as tally:
        tally.bind(owner).remember(MARCH)
    sign = "&" if "?" in postgres_url else "?"
    url = f"{postgres_url}{sign}options=-c%20default_transaction_read_only%3Don"
    with Tally.open(url, schema="read_only", background=False) as tally:
        ada = tally.bind(owner)
        assert tally.read_only == ReadOnlyTally("read_only").cause
        assert [hit.memory.content for hit in ada.recall("heron")] == [MARCH]
        with pytest.raises(ReadOnlyTally):
            ada.remember(APRIL)


@pytest.mark.postgres
def test_what_a_server_did_not_take_before_the_close_is_told_by_the_next_process(
    postgres_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    with _as_role(postgres_url, "lossy") as (url, administrator):
        tally = Tally.open(url, schema="lossy", background=False)
        run = tally.bind(Actor(user="ada")).run("coder")
        run.step("model_call", name="stored").end()
        for change in (
            "ALTER ROLE lossy SET default_transaction_read_only = on",
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'lossy'",
        ):
            administrator.execute(text(change))
        run.step("model_call", name="lost").end(wait=False)
        with pytest.raises(RecorderError, match=run.id):
            tally.close()
        assert [file.stat().st_mode & 0o777 for file in tmp_path.rglob("*.lost")] == [0o600]

        administrator.execute(text("ALTER ROLE lossy RESET default_transaction_read_only"))
        with Tally.open(url, schema="lossy", background=False) as tally:
            verified = tally.bind(Actor(user="ada")).recordings.verify(run.id)
            assert verified.ok, verified
            assert verified.gaps[f"run {run.id}"]["lost at closing"] >= 1
            assert list(tmp_path.rglob("*.lost")) == []


@pytest.mark.postgres
def test_a_user_without_a_home_opens_and_closes_a_tally_on_a_server(
    postgres_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("XDG_STATE_HOME", raising=False)

    def no_home() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(Path, "home", no_home)
    with Tally.open(postgres_url, schema="homeless", background=False) as tally:
        tally.bind(Actor(user="ada")).remember(MARCH)
    # A home that is somebody else's, as in a container with another user.
    closed = tmp_path / "closed"
    closed.write_text("no folder")
    monkeypatch.setenv("XDG_STATE_HOME", str(closed))
    with Tally.open(postgres_url, schema="homeless", background=False) as tally:
        assert len(tally.bind(Actor(user="ada")).memories()) == 1


@contextmanager
def _as_role(url: str, role: str) -> Iterator[tuple[str, Connection]]:
    """Yield the address of the database as another role, and a connection of its owner."""
    engine = create_engine(make_url(url).set(drivername="postgresql+psycopg"))
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        connection.execute(text(f"CREATE ROLE {role} LOGIN"))
        database = connection.execute(text("SELECT current_database()")).scalar_one()
        connection.execute(text(f'GRANT CREATE ON DATABASE "{database}" TO {role}'))
        try:
            yield make_url(url).set(username=role).render_as_string(False), connection
        finally:
            connection.execute(text(f"DROP OWNED BY {role}"))
            connection.execute(text(f"DROP ROLE {role}"))
    engine.dispose()
