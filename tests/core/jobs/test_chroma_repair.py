"""Chroma is derived: whatever happens to its folder, recall answers, says how, and it is mended."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tallystick import Actor, Tally
from tallystick.errors import StorageError
from tallystick.settings import Settings
from tallystick.tally.services import services_of
from tallystick.testing import HashEmbedder

CHROMA = Settings.read(vector_search="chroma")
COUNT = 30
EARLIER = "heron number 3 of the reeds"
LATER = "a kingfisher dives from the willow"


def _open(folder: Path, *, background: bool = False) -> Tally:
    return Tally.open(folder, embedder=HashEmbedder(), settings=CHROMA, background=background)


def _delete_points(folder: Path) -> None:
    with _open(folder) as tally:
        index = services_of(tally).index
        assert index is not None
        tally.bind().recall("heron")
        index._collection(None).delete(where={"version": {"$gte": 0}})


def _move_in_another(folder: Path) -> None:
    with _open(folder.with_name("another")) as tally:
        tally.bind().remember_many([f"invoice {number} was paid" for number in range(COUNT + 1)])
        tally.drain()
    shutil.rmtree(folder / "chroma")
    shutil.move(folder.with_name("another") / "chroma", folder / "chroma")


def _restore_an_older_copy(folder: Path) -> None:
    """The copy has as many points as the database; one of them is another."""
    shutil.rmtree(folder / "chroma")
    shutil.copytree(folder.with_name("copy"), folder / "chroma")


def _overwrite(folder: Path, body: bytes) -> None:
    for file in (folder / "chroma").rglob("*"):
        if file.is_file():
            file.write_bytes(body)


def _make_a_file(folder: Path) -> None:
    shutil.rmtree(folder / "chroma")
    (folder / "chroma").write_text("not a folder")


def _garble_its_graph(folder: Path) -> None:
    for file in (folder / "chroma").rglob("*.bin"):
        file.write_bytes(os.urandom(file.stat().st_size // 2))


ACCIDENTS: dict[str, Callable[[Path], None]] = {
    "deleted": lambda folder: shutil.rmtree(folder / "chroma"),
    "emptied": _delete_points,
    "of another tally": _move_in_another,
    "an older copy": _restore_an_older_copy,
    "garbage": lambda folder: _overwrite(folder, os.urandom(9_000)),
    "of zero bytes": lambda folder: _overwrite(folder, b""),
    "a file": _make_a_file,
}


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tally of `COUNT` memories whose last one came after the copy of Chroma beside it."""
    folder = tmp_path_factory.mktemp("filled") / "tally"
    with _open(folder) as tally:
        owner = tally.bind()
        for number in range(COUNT - 1):
            owner.remember(f"heron number {number} of the reeds")
        gone = owner.remember("an egret of yesterday")
        tally.drain()
    shutil.copytree(folder / "chroma", folder.with_name("copy"))
    with _open(folder) as tally:
        tally.bind().forget(gone.id, reason="it flew off")
        tally.bind().remember(LATER)
        tally.drain()
    return folder


@pytest.fixture
def damaged(filled: Path, tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    """A copy of the tally that had the accident of the test's parameter."""
    shutil.copytree(filled.parent, tmp_path, dirs_exist_ok=True)
    ACCIDENTS[request.param](tmp_path / "tally")
    return tmp_path / "tally"


every_accident = pytest.mark.parametrize("damaged", ACCIDENTS, indirect=True)


def _is_answered_by_chroma(tally: Tally) -> bool:
    found = tally.bind().recall(LATER)
    assert found[0].content == LATER
    return (found.path, found.warnings) == ("chroma", ())


@every_accident
def test_recall_is_answered_by_the_scan_with_a_warning_and_a_drain_mends_chroma(
    damaged: Path,
) -> None:
    with _open(damaged) as tally:
        for content in (LATER, EARLIER):
            found = tally.bind().recall(content)
            assert (found[0].content, found.path) == (content, "exact")
            assert "vectors were scanned exactly" in found.warnings[0]
        # Nothing was written, so that nothing waits.
        tally.drain()
        assert _is_answered_by_chroma(tally)
        assert tally.reconcile_index(repair=False).whole


@pytest.mark.parametrize("damaged", ["deleted", "garbage"], indirect=True)
def test_the_background_mends_it_without_a_write(damaged: Path) -> None:
    with _open(damaged, background=True) as tally:
        _wait_until(lambda: _is_answered_by_chroma(tally))


@pytest.mark.parametrize("damaged", ["an older copy"], indirect=True)
def test_a_write_is_no_way_to_make_an_older_copy_look_whole(damaged: Path) -> None:
    with _open(damaged) as tally:
        stored = tally.bind().remember("a wren sings in the hedge")
        tally.drain()
        assert _is_answered_by_chroma(tally)
        assert tally.bind().recall("a wren sings in the hedge")[0].memory.id == stored.id
        assert tally.reconcile_index(repair=False).whole


@pytest.mark.parametrize("drains", [1, 2])
def test_a_database_of_an_earlier_time_does_not_trust_a_later_chroma(
    filled: Path, tmp_path: Path, drains: int
) -> None:
    folder = tmp_path / "tally"
    with _open(folder) as tally:
        owner = tally.bind()
        owner.remember("a heron waits")
        tally.drain()
    shutil.copy(folder / "tally.db", tmp_path / "earlier.db")
    for content in ("a stork lands", "a crane calls")[:drains]:
        with _open(folder) as tally:
            tally.bind().remember(content)
            tally.drain()
    for sibling in ("tally.db-wal", "tally.db-shm"):
        (folder / sibling).unlink(missing_ok=True)
    shutil.copy(tmp_path / "earlier.db", folder / "tally.db")
    with _open(folder) as tally:
        found = tally.bind().recall("a heron waits")
        assert (found[0].content, found.path) == ("a heron waits", "exact")
        assert "copy of another time" in found.warnings[0]
        tally.drain()
        assert tally.reconcile_index(repair=False).whole


def test_a_folder_that_goes_while_the_tally_is_open_is_noticed(
    filled: Path, tmp_path: Path
) -> None:
    shutil.copytree(filled, tmp_path / "tally")
    with _open(tmp_path / "tally") as tally:
        assert _is_answered_by_chroma(tally)
        shutil.rmtree(tmp_path / "tally" / "chroma")
        found = tally.bind().recall(LATER)
        assert (found[0].content, found.path) == (LATER, "exact")
        assert "its files are gone" in found.warnings[0]
        tally.drain()
        assert _is_answered_by_chroma(tally)


def test_the_graph_of_chroma_may_be_damaged_alone(filled: Path, tmp_path: Path) -> None:
    shutil.copytree(filled, tmp_path / "tally")
    _garble_its_graph(tmp_path / "tally")
    with _open(tmp_path / "tally") as tally:
        assert tally.bind().recall(LATER)[0].content == LATER
        assert tally.bind().recall(EARLIER)[0].content == EARLIER
        tally.bind().operator.doctor(repair=True, reason="r")
        assert tally.reconcile_index(repair=False).whole


def test_what_waits_for_chroma_is_found_by_its_vector(filled: Path, tmp_path: Path) -> None:
    shutil.copytree(filled, tmp_path / "tally")
    with _open(tmp_path / "tally") as tally:
        tally.bind().remember("a wren sings in the hedge")
        found = tally.bind().recall("a wren sings in the hedge")
        assert (found[0].content, found.path, found.warnings) == (
            "a wren sings in the hedge",
            "chroma",
            (),
        )
        assert found[0].signals["vector"] > 0.5


def test_two_tallies_on_one_machine_never_share_a_collection(tmp_path: Path) -> None:
    names = []
    for name in ("a", "b"):
        with _open(tmp_path / name) as tally:
            tally.bind().remember("a heron waits")
            tally.drain()
            index = services_of(tally).index
            assert index is not None
            names.append(index._name(None))
    assert len(set(names)) == 2


def test_a_process_without_the_lock_repairs_nothing(filled: Path, tmp_path: Path) -> None:
    shutil.copytree(filled, tmp_path / "tally")
    shutil.rmtree(tmp_path / "tally" / "chroma")
    with _open(tmp_path / "tally") as holder, _open(tmp_path / "tally") as other:
        index = services_of(holder).index
        assert index is not None
        assert index.owned
        found = other.bind().recall(LATER)
        assert (found[0].content, found.path) == (LATER, "exact")
        other.drain()
        with pytest.raises(StorageError, match="Another process owns"):
            other.bind(Actor(user="root", role="operator")).operator.rebuild_index(reason="r")
        assert not (tmp_path / "tally" / "chroma").exists()
        holder.drain()
        assert _is_answered_by_chroma(holder)


def _wait_until(condition: Callable[[], bool]) -> None:
    for _ in range(600):
        if condition():
            return
        time.sleep(0.1)
    raise AssertionError("it was not mended")


def test_a_point_that_chroma_leaves_out_of_a_batch_is_written_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from chromadb import Collection

    upsert = Collection.upsert

    def leave_one_out(collection: Collection, **points: Any) -> None:
        rest = {name: values[:-1] or values for name, values in points.items()}
        upsert(collection, **rest)

    monkeypatch.setattr(Collection, "upsert", leave_one_out)
    with _open(tmp_path / "tally") as tally:
        tally.bind().remember_many([f"heron number {number} of the reeds" for number in range(9)])
        tally.bind().remember(LATER)
        tally.drain()
        assert _is_answered_by_chroma(tally)
        assert tally.reconcile_index(repair=False).whole
