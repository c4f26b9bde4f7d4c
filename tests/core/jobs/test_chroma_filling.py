"""Chroma has the scopes that have grown large: it is filled in the background, from the database,
and nothing of it is there before.
"""

from __future__ import annotations

import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.servers import chroma_server

from tallystick import Actor, BoundTally, Tally
from tallystick.jobs import chroma
from tallystick.records import RebuiltIndex
from tallystick.settings import Settings
from tallystick.storage import ChromaIndex
from tallystick.storage.index.chroma import NAME, IndexState, forget, state_of
from tallystick.storage.index.marks import marks_of
from tallystick.tally.services import services_of
from tallystick.testing import HashEmbedder

OpenTally = Callable[..., Tally]
ROOT = Actor(user="root", role="operator")
ANNA, BEN = Actor(user="anna"), Actor(user="ben")
LARGE = Settings.read(large_scope=30)
EXACT = Settings.read(large_scope=30, vector_search="exact")
BY_SIGNS, BY_CHROMA = "database, 2000 by signs", "database, chroma"

SMALL = """
import sys
from sqlalchemy import text
from tallystick import Actor, Tally
from tallystick.tally.services import services_of

options = {"schema": sys.argv[2]} if len(sys.argv) > 2 else {}
with Tally.open(sys.argv[1], **options) as tally:
    ann = tally.bind(Actor(user="ann"))
    kept = ann.remember_many([f"heron number {number} of the reeds" for number in range(60)])
    ann.modify(kept[0].id, content="the egret came instead", reason="seen")
    ann.forget(kept[1].id, reason="flew off")
    assert ann.recall("heron number 7")[0].content == "heron number 7 of the reeds"
    drained = tally.drain()
    assert (drained.indexed, drained.left) == (0, 0)
    # Its background has looked for large scopes too.
    assert services_of(tally).background.failures == 0
    with services_of(tally).store.database.read() as connection:
        [count] = connection.execute(text("SELECT count(*) FROM derived")).scalars()
        [marks] = connection.execute(
            text("SELECT count(*) FROM settings WHERE name LIKE 'chroma%'")
        ).scalars()
    assert (count, marks) == (0, 0)
print("chromadb" in sys.modules)
"""


def _open(folder: Path, settings: Settings = LARGE, *, background: bool = False) -> Tally:
    return Tally.open(folder, embedder=HashEmbedder(), settings=settings, background=background)


def _fill_scope(tally: Tally, count: int = 100, actor: Actor = ANNA) -> BoundTally:
    bound = tally.bind(actor)
    bound.remember_many([f"heron number {number} of the reeds" for number in range(count)])
    return bound


def _state(tally: Tally) -> IndexState:
    services = services_of(tally)
    with services.store.database.read() as connection:
        fingerprint = services.embedder.fingerprint
        return state_of(connection, fingerprint)


def _waiting(tally: Tally) -> int:
    return _drain(tally).backlog()


def _is_filling(tally: Tally) -> bool:
    with services_of(tally).store.database.read() as connection:
        return any(mark.filling for mark in marks_of(connection, NAME).values())


def _index(tally: Tally) -> ChromaIndex:
    index = services_of(tally).index
    assert index is not None
    return index


def _finding(tally: Tally) -> tuple[str, str]:
    [found] = [each for each in tally.bind(ROOT).operator.doctor() if each.check == "index"]
    return found.status, found.text


def _drain(tally: Tally) -> chroma.ChromaDrain:
    return services_of(tally).background._chroma


@pytest.fixture
def small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chroma, "_AT_ONCE", 20)


def test_a_tally_of_small_scopes_has_nothing_of_chroma(tmp_path: Path) -> None:
    command = [sys.executable, "-c", SMALL, str(tmp_path / "tally")]
    said = subprocess.run(command, check=True, capture_output=True, text=True).stdout

    assert said == "False\n"
    assert not (tmp_path / "tally" / "chroma").exists()
    assert not (tmp_path / "tally" / "vectors.lock").exists()


@pytest.mark.postgres
def test_a_tally_on_postgresql_without_a_server_has_nothing_of_chroma(postgres_url: str) -> None:
    command = [sys.executable, "-c", SMALL, postgres_url, f"t{uuid.uuid4().hex}"]
    said = subprocess.run(command, check=True, capture_output=True, text=True).stdout

    assert said == "False\n"


@pytest.mark.usefixtures("small_batches")
def test_a_scope_that_grows_large_is_filled_and_says_how_it_is_searched_meanwhile(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", logger="tallystick.jobs")
    with _open(tmp_path / "tally") as tally:
        anna = _fill_scope(tally, 30)
        tally.drain()
        assert _finding(tally) == (
            "ok",
            "Chroma is not needed: no scope has more than 30 memories",
        )
        anna.remember("an egret of the pond")
        found = anna.recall("an egret of the pond")
        assert (found.path, found.warnings) == (
            BY_SIGNS,
            (
                "Chroma was not used (it was not filled yet); vectors were compared by their signs "
                "first",
            ),
        )
        assert _finding(tally)[0] == "notice"
        assert _drain(tally).take_in_grown() == 1
        assert _drain(tally).step() == 20
        found = anna.recall("an egret of the pond")
        assert (found[0].content, found.path) == ("an egret of the pond", BY_SIGNS)
        assert "it is being filled" in found.warnings[0]
        assert _finding(tally) == (
            "notice",
            "Chroma is being filled with 1 large scope: 20 of 31 vectors are there; until then "
            "they are scanned",
        )
        assert _drain(tally).step() == 11
        said = [each.message.split()[0] for each in caplog.records]
        assert said == ["event='chroma.filling'", "event='chroma.filled'"]
        found = anna.recall("an egret of the pond")
        assert (found[0].content, found.path, found.warnings) == (
            "an egret of the pond",
            BY_CHROMA,
            (),
        )
        assert _finding(tally) == ("ok", "31 vectors match the database")
        assert tally.bind(BEN).recall("heron").path == "none"


def test_writes_of_a_scope_that_chroma_has_wait_for_it_and_others_do_not(tmp_path: Path) -> None:
    with _open(tmp_path / "tally") as tally:
        anna = _fill_scope(tally)
        tally.drain()
        tally.bind(BEN).remember("ben saw a heron")
        assert _waiting(tally) == 0
        kept = anna.remember("a wren in the hedge")
        assert _waiting(tally) == 1
        both = tally.bind(ANNA).recall("a wren in the hedge")
        assert (both[0].content, both.path) == ("a wren in the hedge", BY_CHROMA)
        anna.forget(kept.id, reason="flew off")
        assert tally.drain().left == 0
        assert _index(tally).count() == 100
        assert tally.reconcile_index(repair=False).whole


def test_scopes_that_are_searched_in_both_ways_are_answered_together(tmp_path: Path) -> None:
    project = "project:reeds"
    ada = Actor(user="ada", projects={"reeds"})
    with _open(tmp_path / "tally") as tally:
        _fill_scope(tally, actor=ada)
        tally.bind(ada, project).remember("heron number 7 belongs to the project")
        tally.drain()
        found = tally.bind(ada).recall("heron number 7", scopes=["private:ada", project], limit=2)
        assert found.path == "database, chroma, exact"
        assert {hit.content for hit in found} == {
            "heron number 7 of the reeds",
            "heron number 7 belongs to the project",
        }


@pytest.mark.slow
@pytest.mark.usefixtures("small_batches")
def test_writers_go_on_while_a_scope_is_filled(tmp_path: Path) -> None:
    with _open(tmp_path / "tally") as tally:
        anna = _fill_scope(tally, 200)
        kept = [hit.id for hit in anna.memories(limit=40)]
        _drain(tally).take_in_grown()
        _drain(tally).step()

        def write() -> None:
            for number, memory_id in enumerate(kept):
                anna.forget(memory_id, reason="flew off")
                anna.remember(f"crane number {number} of the pond")

        writer = threading.Thread(target=write)
        writer.start()
        while _drain(tally).step() is not None:
            pass
        writer.join()
        assert tally.drain().left == 0
        agreed = tally.reconcile_index(repair=False)
        assert (agreed.whole, agreed.checked) == (True, 200)
        for number in range(0, 40, 8):
            found = anna.recall(f"crane number {number} of the pond")
            assert (found[0].content, found.path) == (
                f"crane number {number} of the pond",
                BY_CHROMA,
            )
            assert not {hit.memory.id for hit in found}.intersection(kept)


def test_the_background_fills_it(tmp_path: Path) -> None:
    with _open(tmp_path / "tally") as tally:
        _fill_scope(tally)
    with _open(tmp_path / "tally", background=True) as tally:
        until = time.monotonic() + 60
        while (found := tally.bind(ANNA).recall("heron number 7")).path != BY_CHROMA:
            assert time.monotonic() < until, found.warnings
            time.sleep(0.2)


def test_a_scope_that_is_no_longer_large_is_scanned_and_keeps_its_place(tmp_path: Path) -> None:
    with _open(tmp_path / "tally") as tally:
        _fill_scope(tally)
        tally.drain()
    with _open(tmp_path / "tally", Settings.read(large_scope=500)) as tally:
        anna = tally.bind(ANNA)
        anna.remember("a wren in the hedge")
        found = anna.recall("a wren in the hedge")
        assert (found.path, found.warnings) == ("exact", ())
        tally.drain()
        assert _index(tally).count() == 101
        assert tally.bind(Actor(user="root", role="operator")).operator.rebuild_index(
            reason="r"
        ) == RebuiltIndex(chroma=0)
        assert not (tmp_path / "tally" / "chroma").exists()
        anna.remember("a second wren")
        assert (_waiting(tally), tally.drain().indexed) == (0, 0)


def test_exact_fills_nothing_and_leaves_chroma_behind(tmp_path: Path) -> None:
    with _open(tmp_path / "tally", EXACT) as tally:
        anna = _fill_scope(tally)
        tally.drain()
        found = anna.recall("heron number 7")
        assert (found.path, found.warnings) == (BY_SIGNS, ())
        assert not (tmp_path / "tally" / "chroma").exists()
    with _open(tmp_path / "tally") as tally:
        tally.drain()
    with _open(tmp_path / "tally", EXACT) as tally:
        anna = tally.bind(ANNA)
        for number in range(31):
            anna.remember(f"crane number {number}")
        assert (tally.drain().indexed, _waiting(tally)) == (0, 0)
        assert anna.recall("crane number 3").path == BY_SIGNS
    with _open(tmp_path / "tally") as tally:
        assert tally.drain().indexed == 31
        assert tally.bind(ANNA).recall("crane number 3").path == BY_CHROMA
        assert tally.reconcile_index(repair=False).whole


def test_another_embedder_is_filled_anew(tmp_path: Path) -> None:
    with _open(tmp_path / "tally") as tally:
        _fill_scope(tally)
        tally.drain()
    with Tally.open(
        tmp_path / "tally", embedder=HashEmbedder(96), settings=LARGE, background=False
    ) as tally:
        assert tally.bind(ANNA).recall("heron number 7").path != BY_CHROMA
        tally.drain()
        found = tally.bind(ANNA).recall("heron number 7")
        assert (found[0].content, found.path) == ("heron number 7 of the reeds", BY_CHROMA)
        assert tally.reconcile_index(repair=False).whole
    with _open(tmp_path / "tally") as tally:
        assert tally.bind(ANNA).recall("heron number 7").path != BY_CHROMA


@pytest.mark.parametrize("settings", [LARGE, Settings.read()], ids=["large", "small"])
def test_a_restored_tally_fills_a_chroma_of_its_own(tmp_path: Path, settings: Settings) -> None:
    with _open(tmp_path / "tally", settings) as tally:
        _fill_scope(tally)
        tally.drain()
        tally.bind(ANNA).remember("a wren that waits for Chroma")
        tally.bind(ROOT).operator.backup(tmp_path / "backup")
    Tally.restore(tmp_path / "backup", tmp_path / "restored")
    with _open(tmp_path / "restored", settings) as tally:
        assert (_waiting(tally), _state(tally)) == (0, IndexState())
        assert not (tmp_path / "restored" / "chroma").exists()
        anna = tally.bind(ANNA)
        assert anna.recall("a wren that waits")[0].content == "a wren that waits for Chroma"
        tally.drain()
        assert anna.recall("a wren").path == (BY_CHROMA if settings is LARGE else "exact")
        if settings is LARGE:
            assert tally.reconcile_index(repair=False).whole


@pytest.mark.postgres
def test_a_server_of_chroma_gets_large_scopes_only(postgres_url: str, tmp_path: Path) -> None:
    schema = f"t{uuid.uuid4().hex}"
    with chroma_server(tmp_path / "server") as address:
        chosen = LARGE.model_copy(update={"chroma": address})

        def opened(settings: Settings = chosen) -> Tally:
            return Tally.open(
                postgres_url,
                schema=schema,
                embedder=HashEmbedder(),
                settings=settings,
                background=False,
            )

        with opened() as tally, opened() as other:
            tally.bind(BEN).remember("ben saw a heron")
            anna = _fill_scope(tally)
            assert tally.drain().indexed == 100
            assert _index(tally).count() == 100
            elsewhere = other.bind(ANNA)
            elsewhere.remember("a wren in the hedge")
            assert other.drain().left == 0
            found = anna.recall("a wren in the hedge")
            assert (found[0].content, found.path) == ("a wren in the hedge", BY_CHROMA)
            assert tally.bind(BEN).recall("heron").path == "exact"
            assert other.bind(Actor(user="root", role="operator")).operator.rebuild_index(
                reason="r"
            ) == RebuiltIndex(chroma=101)
            assert tally.reconcile_index(repair=False).whole
            assert anna.recall("a wren in the hedge").path == BY_CHROMA
            names = [each.name for each in _index(tally)._client.list_collections()]
            assert len(names) == 2
        with opened(LARGE) as tally:
            root = tally.bind(Actor(user="root", role="operator")).operator
            assert root.rebuild_index(reason="r") == RebuiltIndex(chroma=0)


def test_what_another_process_took_out_is_filled_again(tmp_path: Path) -> None:
    with _open(tmp_path / "tally") as tally:
        anna = _fill_scope(tally)
        tally.drain()
        with services_of(tally).store.database.read() as connection:
            state = state_of(connection, services_of(tally).embedder.fingerprint)
            assert len(state.layout.own) == 1
        services_of(tally).store.database.write(forget, name="chroma.forget")
        assert anna.recall("heron number 7").path == BY_SIGNS
        tally.drain()
        assert anna.recall("heron number 7").path == BY_CHROMA
        assert tally.reconcile_index(repair=False).whole
