"""Whatever is derived follows the texts: it is killed, rolled back, damaged and erased, and answers
as if it were made anew. Each test runs over every kind.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from sqlalchemy import text
from tests.core.graph.naming import named

from tallystick import Actor, Tally
from tallystick.jobs.derived import Segments
from tallystick.records import ProviderDeclaration
from tallystick.settings import Settings
from tallystick.storage.index import corpus_cache
from tallystick.tally.services import services_of
from tallystick.testing import HashEmbedder

pytestmark = pytest.mark.sqlite
ANNA, BEN = Actor(user="anna"), Actor(user="ben")
ROOT = Actor(user="root", role="operator")
SECRET = "the zyxwvut pelican opens the vault"
WORDS = [f"{a}{b}{c}" for a in ("ba", "do", "ke") for b in ("ri", "lo", "nu") for c in "stnlr"]
NAMES = ("Anna Schmidt", "Bob Miller", "Acme Labs", "Oslo")
FEW = 24
"""More texts than a scope has that is not large."""
QUESTIONS = ("heron number 7", "who met Bob Miller", "a crane over Oslo", "wren")


def _open(folder: Path, settings: Settings) -> Tally:
    options: Any = {"summarizer": Scribe()} if settings.graph else {}
    if "objects_from_kb" in settings.model_fields_set:
        settings = settings.model_copy(update={"objects": f"{folder}-objects"})
    return Tally.open(
        folder, embedder=HashEmbedder(), settings=settings, background=False, **options
    )


class Scribe:
    """A summarizer."""

    declaration = ProviderDeclaration(name="scribe", model="s-1", local=True)

    def summarize(self, text: str, *, max_tokens: int) -> str:
        return f"Herons, in {len(text.splitlines())} texts."


def _execute(folder: Path, statement: str) -> None:
    with _open(folder, Settings.read()) as tally:
        database = services_of(tally).store.database
        database.write(lambda tx: tx.execute(text(statement)), name="test")


def _cut_files(folder: Path) -> None:
    for file in (folder / "recall").glob("*.seg"):
        file.write_bytes(file.read_bytes()[:-9])


def _leave_object(folder: Path) -> None:
    """Leave an object behind that nothing names, as a put that was cut off long ago."""
    objects = folder.with_name(f"{folder.name}-objects")
    body = next(each for each in objects.rglob("*") if each.is_file())
    orphan = body.with_name("0" * 32)
    shutil.copyfile(body, orphan)
    os.utime(orphan, (0, 0))


class Kind(NamedTuple):
    """One kind of derived state, as a setting chooses it, and an accident that befalls it."""

    check: str
    settings: Settings
    damage: Callable[[Path], None]
    is_outside: bool = False
    """True if it stands outside of the database."""
    status: str | None = "problem"
    """The finding of the doctor; None where damage is found when it is read."""


KINDS = {
    "words": Kind(
        "search text",
        Settings.read(large_scope=10**6),
        lambda folder: _execute(folder, "UPDATE search_text SET tags = '[' WHERE doc = 7"),
    ),
    "mapped": Kind(
        "segments", Settings.read(large_scope=10**6), _cut_files, is_outside=True, status=None
    ),
    "stored": Kind(
        "segments",
        Settings.read(large_scope=20, vector_search="exact"),
        lambda folder: _execute(folder, "UPDATE recall_segments SET data = x'00' WHERE piece = 0"),
    ),
    "chroma": Kind(
        "index",
        Settings.read(large_scope=20),
        lambda folder: shutil.rmtree(folder / "chroma"),
        True,
    ),
    "graph": Kind(
        "graph",
        Settings.read(graph=True),
        lambda folder: _execute(folder, "DELETE FROM edges WHERE kind = 'MENTIONS'"),
    ),
    "summaries": Kind(
        "summaries",
        Settings.read(graph=True),
        lambda folder: _execute(
            folder,
            "UPDATE edges SET to_doc = (SELECT min(doc) FROM memories WHERE state = 'deleted') "
            "WHERE id = (SELECT min(edges.id) FROM edges JOIN memories ON doc = from_doc "
            "WHERE edges.kind = 'DERIVED_FROM' AND memories.kind = 'community')",
        ),
    ),
    "vectors": Kind(
        "vectors",
        Settings.read(large_scope=10**6),
        lambda folder: _execute(folder, "DELETE FROM vectors WHERE doc = 7"),
        status="notice",
    ),
    "conclusions": Kind(
        "conclusions",
        Settings.read(large_scope=10**6),
        lambda folder: _execute(
            folder, "UPDATE memories SET state = 'active' WHERE state = 'hidden'"
        ),
    ),
    "objects": Kind(
        "objects",
        Settings.read(objects_from_kb=1),
        _leave_object,
        status="notice",
    ),
}
every_kind = pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)


@pytest.fixture(autouse=True)
def _small_segments(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(corpus_cache, "_KEPT", 10)


def said(number: int) -> str:
    """Return the text of a number; two are unlike each other, or Chroma may not find them."""
    words = " ".join(random.Random(number).choices(WORDS, k=8))
    met, other = (NAMES[(number + each) % len(NAMES)] for each in (0, 1))
    return f"heron number {number} met {met} and {other} {words}"


def write(tally: Tally, start: int, count: int, actor: Actor = ANNA) -> None:
    """Remember some texts, change one and forget one; conclude something from a text that goes, and
    remember a large text.
    """
    bound = tally.bind(actor)
    kept = bound.remember_many([named(said(each)) for each in range(start, start + count)])
    bound.modify(kept[0].id, content=f"crane {start} flew over Oslo", reason="seen")
    bound.forget(kept[1].id, reason="flew off")
    nest = bound.remember(f"egret nest {start}").id
    bound.remember(f"egrets breed here, {start}", derived_from=[nest])
    bound.forget(nest, reason="abandoned")
    bound.remember(f"ibis {start} " + "reeds " * 400)


def follow(tally: Tally) -> None:
    """Bring everything derived up to date."""
    tally.drain()
    Segments(services_of(tally).memory).follow()  # what a drain found damaged it has removed


def answers(tally: Tally) -> tuple[object, ...]:
    """Return what is found, and by which names."""
    bound = tally.bind(ANNA)
    hits = [tuple(hit.content for hit in bound.recall(each)) for each in QUESTIONS]
    entities = sorted(each.content for each in bound.memories(kinds=["entity"]))
    return (*hits, *entities)


def finds(tally: Tally, number: int) -> bool:
    """Return True if the text of a number is found."""
    hits = tally.bind(ANNA).recall(f"heron number {number}")
    return any(hit.content.startswith(f"heron number {number} ") for hit in hits)


def assert_as_made_anew(tally: Tally, kind: Kind) -> None:
    """Compare what is answered with what is when everything is derived anew; all of it is whole."""
    doctor = tally.bind(ROOT).operator.doctor
    assert [each for each in doctor() if each.status == "problem"] == []
    assert tally.drain().left == 0
    before = answers(tally)
    if kind.check == "index":
        assert tally.reconcile_index(repair=False).whole
    tally.bind(ROOT).operator.rebuild_index(reason="compared")
    follow(tally)
    assert answers(tally) == before
    assert [each for each in doctor() if each.status == "problem"] == []


@every_kind
def test_it_follows_what_is_written_in_other_processes(tmp_path: Path, kind: Kind) -> None:
    with _open(tmp_path, kind.settings) as tally, _open(tmp_path, kind.settings) as other:
        write(tally, 0, FEW)
        follow(tally)
        answers(tally)
        write(other, 100, 16)
        write(other, 200, 5, BEN)
        assert finds(tally, 107)
        follow(tally)
        assert_as_made_anew(tally, kind)


@every_kind
@pytest.mark.parametrize("mends", [True, False], ids=["repaired", "not repaired"])
def test_it_is_not_of_a_database_that_was_put_back(tmp_path: Path, kind: Kind, mends: bool) -> None:
    folder = tmp_path / "tally"
    with _open(folder, kind.settings) as tally:
        write(tally, 0, FEW)
        follow(tally)
        answers(tally)
    shutil.copyfile(folder / "tally.db", tmp_path / "copy.db")
    with _open(folder, kind.settings) as tally:
        write(tally, 100, FEW)
        follow(tally)
        answers(tally)
    for name in ("tally.db-wal", "tally.db-shm"):
        (folder / name).unlink(missing_ok=True)
    shutil.copyfile(tmp_path / "copy.db", folder / "tally.db")
    with _open(folder, kind.settings) as tally:
        if mends:
            doctor = tally.bind(ROOT).operator.doctor
            [found] = [each for each in doctor() if each.check == kind.check]
            assert found.status == ("problem" if kind.is_outside else "ok")
            doctor(repair=True, reason="restored")
        write(tally, 300, FEW + 5)
        assert (finds(tally, 307), finds(tally, 107)) == (True, False)
        follow(tally)
        assert_as_made_anew(tally, kind)


@every_kind
def test_the_doctor_names_damage_and_mends_it(tmp_path: Path, kind: Kind) -> None:
    with _open(tmp_path, kind.settings) as tally:
        write(tally, 0, FEW)
        follow(tally)
        expected = answers(tally)
    kind.damage(tmp_path)
    with _open(tmp_path, kind.settings) as tally:
        doctor = tally.bind(ROOT).operator.doctor
        if kind.status is not None:
            assert [each.status for each in doctor() if each.check == kind.check] == [kind.status]
            mended = [each for each in doctor(repair=True, reason="r") if each.check == kind.check]
            assert [each.status for each in mended] == ["repaired"]
        follow(tally)
        assert answers(tally) == expected
        assert_as_made_anew(tally, kind)


@every_kind
def test_an_erased_text_is_nowhere(tmp_path: Path, kind: Kind) -> None:
    with _open(tmp_path, kind.settings) as tally:
        write(tally, 0, FEW)
        bound, root = tally.bind(ANNA), tally.bind(ROOT).operator
        kept = bound.remember(SECRET, entities=("Zebedee Quill",))
        follow(tally)
        assert bound.recall(SECRET)[0].content == SECRET
        preview = root.erase(kept.id, reason="asked for")
        done = root.erase(
            kept.id, reason="asked for", mode="apply", confirm_token=preview.confirm_token
        )
        assert done.proofs[0].holds, done.proofs[0].problems
        assert not bound.recall("zyxwvut").confident
        follow(tally)
        proof = root.prove_erased(kept.id, text=SECRET)
        assert proof.holds, proof.problems
        assert_as_made_anew(tally, kind)
        assert "Zebedee" not in str(answers(tally))


@every_kind
def test_a_step_that_was_rolled_back_is_taken_again(
    tmp_path: Path, kind: Kind, monkeypatch: pytest.MonkeyPatch
) -> None:
    with _open(tmp_path, kind.settings) as tally:
        write(tally, 0, FEW)
        with monkeypatch.context() as patched:
            patched.setattr("tallystick.jobs.chroma.keep_state", _refuse)
            patched.setattr("tallystick_graph.reading.keep_marks", _refuse)
            patched.setattr("tallystick.storage.index.segments.save", _refuse)
            patched.setattr("tallystick.storage.index.segment_files.SegmentFiles.save", _refuse)
            with suppress(RuntimeError):  # a job that fails so is tried again
                follow(tally)
        follow(tally)
        assert_as_made_anew(tally, kind)


def _refuse(*_: object, **__: object) -> None:
    raise RuntimeError("cut off")


KILLED = """
import sys
from pathlib import Path
from tests.core.jobs import test_derived as suite
from tallystick.jobs import chroma
from tallystick.storage.index import corpus_cache

corpus_cache._KEPT, chroma._AT_ONCE = 10, 7
kind = suite.KINDS[sys.argv[2]]
tally = suite._open(Path(sys.argv[1]), kind.settings)
for number in range(1_000):
    suite.write(tally, 100 * number, 30)
    print("written", number, flush=True)
    suite.follow(tally)
    suite.answers(tally)
    print("followed", number, flush=True)
"""


@pytest.mark.slow
@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize("lines", [1, 3])
def test_a_process_that_is_killed_loses_and_shows_nothing(
    tmp_path: Path, name: str, lines: int
) -> None:
    command = [sys.executable, "-c", KILLED, str(tmp_path), name]
    written = 0
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for _ in range(lines):
            written += process.stdout.readline().startswith("written")
        process.send_signal(signal.SIGKILL)
        process.communicate()
    with _open(tmp_path, KINDS[name].settings) as tally:
        anna = tally.bind(ANNA)
        kept = {each.content for each in anna.memories(limit=1_000)}
        assert all(said(100 * each + 7) in kept for each in range(written))
        follow(tally)
        assert_as_made_anew(tally, KINDS[name])
