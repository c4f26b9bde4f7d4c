"""Files of a tally are for the user who runs it; a file that was lost or damaged is named."""

from __future__ import annotations

import os
import sqlite3
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from tallystick import Tally
from tallystick.errors import CorruptTally
from tallystick.settings import Settings
from tallystick.testing import HashEmbedder

pytestmark = pytest.mark.skipif(os.name == "nt", reason="permissions of Unix")


@pytest.fixture(autouse=True)
def _wide_umask() -> Iterator[None]:
    """The umask that lets everybody read and write."""
    before = os.umask(0)
    yield
    os.umask(before)


def _open(folder: Path, **options: object) -> Tally:
    settings = Settings.read(**{"vector_search": "chroma", **options})
    return Tally.open(folder, embedder=HashEmbedder(), settings=settings, background=False)


def _modes(folder: Path) -> dict[str, int]:
    return {
        str(path.relative_to(folder)): stat.S_IMODE(path.stat().st_mode)
        for path in (folder, *folder.iterdir())
    }


def test_a_tally_is_for_its_user_alone_whatever_the_umask(tmp_path: Path) -> None:
    with _open(tmp_path / "tally") as tally:
        owner = tally.bind()
        with owner.run("coder"):
            owner.remember("The heron nests in March.")
            tally.drain()
            modes = _modes(tmp_path / "tally")
            held = _modes(tmp_path / "tally" / "alive")
        owner.operator.export(tmp_path / "out")
    assert {"tally.db", "tally.db-wal", "tally.db-shm", "chroma", "alive", "vectors.lock"} <= set(
        modes
    )
    for name, mode in {**modes, **held}.items():
        assert mode & 0o077 == 0, name
    assert all(mode & 0o077 == 0 for mode in _modes(tmp_path / "out").values())


def test_an_existing_folder_is_tightened_unless_a_group_shares_it(tmp_path: Path) -> None:
    folder = tmp_path / "tally"
    _open(folder, private_files=False).close()
    assert _modes(folder)["tally.db"] & 0o077
    with _open(folder, private_files=False) as tally:
        [finding] = [each for each in tally.bind().operator.doctor() if each.check == "files"]
        assert finding.status == "notice"
        assert "others may read" in finding.text
    with _open(folder) as tally:
        assert all(mode & 0o077 == 0 for mode in _modes(folder).values())
        [finding] = [each for each in tally.bind().operator.doctor() if each.check == "files"]
        assert finding.status == "ok"


@pytest.mark.parametrize("sibling", ["chroma", "alive"])
def test_a_database_that_became_empty_beside_its_siblings_is_refused(
    tmp_path: Path, sibling: str
) -> None:
    folder = tmp_path / "tally"
    with _open(folder) as tally:
        tally.bind().remember("The heron nests in March.")
        if sibling == "chroma":
            tally.drain()
        else:
            with tally.bind().run("coder"):
                pass
    (folder / "tally.db").write_bytes(b"")
    with pytest.raises(CorruptTally, match="Restore it from a copy"):
        _open(folder)
    assert (folder / "tally.db").stat().st_size == 0


def test_an_empty_database_alone_becomes_a_tally(tmp_path: Path) -> None:
    """A process was killed while it made its tally."""
    (tmp_path / "tally").mkdir()
    (tmp_path / "tally" / "tally.db").write_bytes(b"")
    with _open(tmp_path / "tally") as tally:
        assert tally.bind().remember("The heron nests in March.").status == "created"


def test_the_doctor_names_what_could_not_be_read_and_goes_on(tmp_path: Path) -> None:
    folder = tmp_path / "tally"
    with _open(folder) as tally:
        tally.bind().remember_many([f"heron number {number} " * 40 for number in range(200)])
    raw = sqlite3.connect(folder / "tally.db")
    size = raw.execute("PRAGMA page_size").fetchone()[0]
    tables = "SELECT rootpage FROM sqlite_master WHERE name IN ('journal', 'memory_versions')"
    damaged = [row[0] for row in raw.execute(tables)]
    raw.close()
    with (folder / "tally.db").open("r+b") as file:
        for page in damaged:
            file.seek((page - 1) * size)
            file.write(os.urandom(size))
    with _open(folder) as tally:
        findings = tally.bind().operator.doctor()
    problems = {finding.check for finding in findings if finding.status == "problem"}
    unreadable = [finding for finding in findings if "could not be read" in finding.text]
    assert {"journal", "versions"} <= problems
    assert unreadable
    assert {"jobs", "graph", "who acts"} <= {finding.check for finding in findings} - problems


def test_the_doctor_reads_the_words_of_recall_and_derives_them_anew(tmp_path: Path) -> None:
    """A flipped bit there made recall fail, and the doctor said nothing."""
    folder = tmp_path / "tally"
    with _open(folder) as tally:
        tally.bind().remember_many([f"heron number {number} of the reeds" for number in range(5)])
    raw = sqlite3.connect(folder / "tally.db")
    with raw:
        damaged = "UPDATE search_text SET words = CAST(X'00FFFE0102' AS BLOB) WHERE doc = 2"
        raw.execute(damaged)
        raw.execute("UPDATE search_text SET tags = '[' WHERE doc = 3")
        raw.execute("CREATE TRIGGER theirs AFTER INSERT ON jobs BEGIN DELETE FROM edges; END")
    raw.close()
    with _open(folder) as tally:
        root = tally.bind().operator
        with pytest.raises(CorruptTally):
            tally.bind().recall("heron number 1")
        problems = {each.check: each.text for each in root.doctor() if each.status == "problem"}
        assert "2 memories" in problems["search text"]
        assert "theirs on jobs" in problems["database"]
        [repaired] = [
            each for each in root.doctor(repair=True, reason="r") if each.check == "search text"
        ]
        assert repaired.status == "repaired"
        hits = tally.bind().recall("heron number 1").hits
        assert hits[0].memory.content == "heron number 1 of the reeds"
        assert {each.status for each in root.doctor() if each.check == "search text"} == {"ok"}
