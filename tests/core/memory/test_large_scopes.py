"""Large scopes, and processes that start: recall reads what another one analysed, answers as if it
had read everything, and lets go of what is erased.
"""

from __future__ import annotations

import errno
import os
import random
import sqlite3
import stat
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest
from filelock import FileLock
from sqlalchemy import Connection, Update, func, select, update

from tallystick import Actor, BoundTally, Tally
from tallystick.jobs.derived import Segments
from tallystick.ranking import Corpus
from tallystick.ranking.frozen import Frozen, freeze
from tallystick.ranking.segment import Entry
from tallystick.records import NewMemory
from tallystick.settings import Settings
from tallystick.storage.engine import tables
from tallystick.storage.index import corpus_cache, segment_files, segments
from tallystick.storage.rows import scopes
from tallystick.tally.services import services_of
from tallystick.testing import HashEmbedder

OpenTally = Callable[..., Tally]
LARGE = Settings.read(large_scope=20, vector_search="exact")
ARRAYS = Settings.read(large_scope=10**6)
ANNA = Actor(user="anna")
ROOT = Actor(user="root", role="operator")
SECRET = "the zyxwvut pelican opens vault qponmlk"
WORDS = [
    f"{a}{b}{c}" for a in ("ba", "do", "ke") for b in ("ri", "lo", "nu", "ma") for c in "stnlr"
]


@pytest.fixture(autouse=True)
def _small_segments(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(corpus_cache, "_KEPT", 10)


def _turns(count: int, *, seed: int = 1) -> Iterator[NewMemory]:
    chance = random.Random(seed)
    for place in range(count):
        yield NewMemory(
            content=" ".join(chance.choices(WORDS, k=9)) + ".?"[place % 2],
            kind=("turn", "fact")[place % 7 == 0],
            speaker=("Anna", "Ben", "assistant")[place % 3],
            conversation=f"c{seed}-{place // 12}",
            occurred_at=1_700_000_000_000_000 + place * 3_600_000_000,
            tags=("odd",) if place % 2 else (),
        )


def _questions(count: int = 6) -> list[str]:
    chance = random.Random(5)
    asked = [f"What about {' '.join(chance.sample(WORDS, 3))}?" for _ in range(count)]
    return [*asked, "What did Anna say about barin?", "When was doloss?", "¿Qué dijo de kenul?"]


Answer = list[tuple[str, object]]


def _answers(bound: BoundTally) -> list[Answer]:
    asked = [
        *(bound.recall(query) for query in _questions()),
        bound.recall("barin doloss", tags=["odd"]),
        bound.recall("barin doloss", kinds=["fact"]),
    ]
    # Vectors of an array are at unit length, those of the database as they are stored.
    return [
        [(hit.memory.content, pytest.approx(hit.score, abs=2e-4)) for hit in found.hits]
        for found in asked
    ]


def _loads(tally: Tally) -> int:
    return services_of(tally).memory.corpora.loads


def _stored(tally: Tally) -> int:
    with services_of(tally).store.database.read() as connection:
        query = select(func.count()).select_from(tables.recall_segments)
        return int(connection.execute(query).scalar_one())


def test_a_large_scope_answers_from_the_database_as_from_memory(open_tally: OpenTally) -> None:
    with open_tally(settings=ARRAYS) as tally:
        bound = tally.bind(ANNA)
        bound.remember_many(list(_turns(90)))
        in_memory = _answers(bound)
        assert bound.recall("barin").path == "exact"
    for loads in (1, 0):
        with open_tally(settings=LARGE) as tally:
            bound = tally.bind(ANNA)
            assert _answers(bound) == in_memory
            assert bound.recall("barin").path == "database, 2000 by signs"
            assert _loads(tally) == loads


def test_writes_behind_a_segment_count_at_once(open_tally: OpenTally) -> None:
    with open_tally(settings=LARGE) as tally, open_tally(settings=LARGE) as other:
        bound, elsewhere = tally.bind(ANNA), other.bind(ANNA)
        bound.remember_many(list(_turns(80)))
        bound.recall("barin")
        bound.recall("barin")
        loads = _loads(tally)
        kept = elsewhere.remember("The heron lives in the vault.")
        assert bound.recall("heron vault")[0].memory.id == kept.id
        elsewhere.modify(kept.id, content="The crane lives in the attic.", reason="it moved")
        assert bound.recall("crane attic")[0].memory.content.startswith("The crane")
        assert not any("heron" in hit.memory.content for hit in bound.recall("heron vault"))
        elsewhere.forget(kept.id, reason="gone")
        assert kept.id not in [hit.memory.id for hit in bound.recall("crane attic")]
        elsewhere.remember_many(list(_turns(40, seed=2)))
        bound.recall("barin")
        assert _loads(tally) == loads
    with open_tally(settings=ARRAYS) as tally:
        in_memory = _answers(tally.bind(ANNA))
    with open_tally(settings=LARGE) as tally:
        assert _answers(tally.bind(ANNA)) == in_memory


def test_erasing_a_text_takes_it_from_segments_in_the_database(open_tally: OpenTally) -> None:
    with open_tally(settings=LARGE) as tally:
        bound, root = tally.bind(ANNA), tally.bind(ROOT)
        bound.remember_many(list(_turns(40)))
        kept = bound.remember(SECRET)
        bound.recall("pelican")
        assert _stored(tally)
        preview = root.operator.erase(kept.id, reason="asked for")
        done = root.operator.erase(
            kept.id, reason="asked for", mode="apply", confirm_token=preview.confirm_token
        )
        assert done.proofs[0].holds
        assert not bound.recall("zyxwvut").confident
        bound.recall("barin")
        with services_of(tally).store.database.read() as connection:
            data = connection.execute(select(tables.recall_segments.c.data)).scalars().all()
        assert data
        assert not any(b"zyxwvut" in bytes(piece) for piece in data)


def test_a_segment_is_not_stored_for_text_that_was_erased_meanwhile(open_tally: OpenTally) -> None:
    with open_tally(settings=LARGE) as tally:
        bound = tally.bind(ANNA)
        bound.remember_many(list(_turns(60)))
        bound.recall("barin")
        database = services_of(tally).store.database
        with database.read() as connection:
            [scope_id] = connection.execute(
                select(tables.recall_segments.c.scope_id).distinct()
            ).scalars()
        before = _stored(tally)
        database.write(lambda tx: scopes.raise_floor(tx, scope_id), name="test.erase")
        frozen = freeze(Corpus.empty().update([_entry(1, "barin")]))
        saved = database.write(
            lambda tx: segments.save(tx, scope_id, frozen, revision=1, fingerprint="", dimension=0),
            name="test.save",
        )
        assert (saved, _stored(tally)) == (False, before)


@pytest.mark.sqlite
def test_a_recall_answers_while_another_process_holds_the_database(
    open_sqlite: OpenTally,
) -> None:
    """What it derived is kept by a later one: what cannot be stored is no failed answer."""
    with open_sqlite(settings=Settings.read(large_scope=20, busy_timeout_ms=50)) as tally:
        bound = tally.bind(ANNA)
        bound.remember_many(list(_turns(60)))
        other = sqlite3.connect(Path(tally.location) / "tally.db", isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        assert len(bound.recall("barin")) > 0
        assert _stored(tally) == 0
        other.execute("ROLLBACK")
        other.close()
        for count in range(2):
            bound.remember(f"The barin came back {count} times.")
            assert len(bound.recall("barin")) > 0
        assert _stored(tally) > 0


def _asked_in_turn(tally: Tally, names: Sequence[str], *, size: int) -> list[str]:
    """Fill a scope for each, ask them in turn, and return the ways of the last answers; once they
    have been asked some times, none is read whole again.
    """
    people = [tally.bind(Actor(user=name)) for name in names]
    for seed, bound in enumerate(people):
        bound.remember_many(list(_turns(size, seed=seed)))
    for _ in range(3):
        for bound in people:
            bound.recall("barin")
    loads = _loads(tally)
    paths = [[bound.recall("barin").path for bound in people] for _ in range(3)]
    assert _loads(tally) == loads
    return paths[-1]


SMALL_CACHE = Settings.read(recall_cache_mb=1)


def test_two_scopes_larger_than_the_cache_stay_warm(open_tally: OpenTally) -> None:
    with open_tally(settings=SMALL_CACHE) as tally:
        paths = _asked_in_turn(tally, ["anna", "ben"], size=300)
        assert all(path.startswith("database") for path in paths)
        assert _loads(tally) == 2


def test_a_scope_is_as_large_as_its_vectors_make_it(open_tally: OpenTally) -> None:
    """100 memories fill a tenth of the cache with 256 numbers each, and a half with 1,536."""
    for dimension, path in ((256, "exact"), (1_536, "database, 2000 by signs")):
        with open_tally(settings=SMALL_CACHE, embedder=HashEmbedder(dimension)) as tally:
            tally.drain()
            bound = tally.bind(Actor(user="anna"))
            if dimension == 256:
                bound.remember_many(list(_turns(100)))
            tally.drain()
            assert bound.recall("barin").path == path


def test_scopes_that_fit_alone_and_not_together_stay_warm(open_tally: OpenTally) -> None:
    """Two of the three fit: one is read from the database, and says so."""
    with open_tally(settings=SMALL_CACHE, embedder=HashEmbedder(1_536)) as tally:
        assert _asked_in_turn(tally, ["anna", "ben"], size=60) == ["exact", "exact"]
    with open_tally(settings=SMALL_CACHE, embedder=HashEmbedder(1_536)) as tally:
        paths = _asked_in_turn(tally, ["cyd", "dot", "eve"], size=60)
        assert {path.partition(",")[0] for path in paths} == {"exact", "database"}
        cache = services_of(tally).memory.corpora
        assert cache.bytes < 1024 * 1024

        # Alone again, each is kept in memory again.
        tally.drop_caches()
        assert tally.bind(Actor(user="cyd")).recall("barin").path == "exact"


def _change(tally: Tally, change: Update) -> None:
    def unit(tx: Connection) -> None:
        tx.execute(change)

    services_of(tally).store.database.write(unit, name="test")


@pytest.mark.slow
def test_a_damaged_piece_of_a_stored_segment_is_never_used(open_tally: OpenTally) -> None:
    """Each piece is damaged in turn: recall answers as before, and makes the segment anew."""
    with open_tally(settings=LARGE, owner=ROOT) as tally:
        bound = tally.bind(ANNA)
        bound.remember_many(list(_turns(60)))
        expected = _answers(bound)
    table = tables.recall_segments
    key = (table.c.name, table.c.piece)
    with open_tally(settings=LARGE, owner=ROOT) as tally:
        database = services_of(tally).store.database
        with database.read() as connection:
            pieces = connection.execute(select(*key, table.c.data).order_by(*key)).all()
    assert len(pieces) > 20
    change = update(table)
    for name, number, data in pieces:
        damaged = bytes(data[:-1]) + bytes([data[-1] ^ 1])

        here = (table.c.name == name) & (table.c.piece == number)
        change = update(table).where(here).values(data=damaged)
        with open_tally(settings=LARGE, owner=ROOT) as tally:
            _change(tally, change)
            doctor = tally.bind(ROOT).operator.doctor
            assert [each.status for each in doctor() if each.check == "segments"] == ["problem"]
            assert _answers(tally.bind(ANNA)) == expected, (name, number)
            assert [each.status for each in doctor() if each.check == "segments"] == ["ok"], name

    with open_tally(settings=LARGE, owner=ROOT) as tally:
        _change(tally, change)
        doctor = tally.bind(ROOT).operator.doctor
        repaired = [each for each in doctor(repair=True, reason="r") if each.check == "segments"]
        assert [each.status for each in repaired] == ["repaired"]
        assert [each.status for each in doctor() if each.check == "segments"] == ["ok"]
        assert _answers(tally.bind(ANNA)) == expected


# Files


def _files(tally: Tally) -> list[Path]:
    return sorted((Path(tally.location) / "recall").glob("*.seg"))


@pytest.mark.sqlite
def test_a_second_process_maps_what_the_first_analysed(open_sqlite: OpenTally) -> None:
    with open_sqlite() as tally:
        bound = tally.bind(ANNA)
        bound.remember_many(list(_turns(80)))
        expected = _answers(bound)
        [file] = _files(tally)
        if os.name != "nt":
            assert stat.S_IMODE(file.stat().st_mode) == 0o600
            assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700
        assert tally.bind(ROOT).operator.doctor()
    with open_sqlite() as tally:
        assert _answers(tally.bind(ANNA)) == expected
        assert (_loads(tally), _files(tally)) == (0, [file])


PREPARED = [pytest.param(LARGE, id="stored"), pytest.param(ARRAYS, id="mapped")]


@pytest.mark.sqlite
@pytest.mark.parametrize("settings", PREPARED)
def test_the_background_analyses_a_scope_before_somebody_asks(
    open_sqlite: OpenTally, settings: Settings
) -> None:
    tally = open_sqlite(settings=settings)
    bound = tally.bind(ANNA)
    context = services_of(tally).memory
    prepare = Segments(context).follow
    with tally:
        bound.remember_many(list(_turns(60)))
        assert prepare() == 1
        assert prepare() == 0
        read = context.corpora.loads
        expected = _answers(bound)
        assert context.corpora.loads == read, "the first recall read the scope whole"

        bound.remember("A little more was said.")
        assert prepare() == 0
        bound.remember_many(list(_turns(40, seed=2)))
        assert prepare() == 1
    with open_sqlite(settings=settings) as again:
        _answers(again.bind(ANNA))
        assert services_of(again).memory.corpora.loads == 0
    assert expected


def _segment(tally: Tally) -> object:
    """Return what tells the kept segment from an earlier one."""
    with services_of(tally).store.database.read() as connection:
        query = select(func.max(tables.recall_segments.c.revision))
        return _files(tally) or connection.execute(query).scalar_one()


@pytest.mark.sqlite
@pytest.mark.parametrize("settings", PREPARED)
@pytest.mark.parametrize("background", [True, False])
def test_a_warm_question_leaves_the_segment_to_the_background(
    open_sqlite: OpenTally, settings: Settings, background: bool
) -> None:
    """Without a background it is made by a question once the scope has doubled."""
    with open_sqlite(settings=settings) as tally:
        bound, context = tally.bind(ANNA), services_of(tally).memory
        context.corpora._background = background
        bound.remember_many(list(_turns(60)))
        for _ in range(2):
            bound.recall("barin")
        first, read = _segment(tally), context.corpora.loads
        for seed in range(2, 6):
            bound.remember_many(list(_turns(12, seed=seed)))
            bound.recall("barin")
        assert _segment(tally) == first
        bound.remember_many(list(_turns(20, seed=6)))
        bound.recall("barin")
        assert (_segment(tally) == first) is background

        assert Segments(context).follow() == int(background)
        assert _segment(tally) != first
        expected = _answers(bound)
        assert context.corpora.loads == read
    with open_sqlite(settings=settings) as again:
        assert _answers(again.bind(ANNA)) == expected
        assert _loads(again) == 0


@pytest.mark.sqlite
@pytest.mark.parametrize("settings", PREPARED)
def test_questions_are_answered_while_the_segment_is_made_anew(
    open_sqlite: OpenTally, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    with open_sqlite(settings=settings) as tally:
        bound, context = tally.bind(ANNA), services_of(tally).memory
        bound.remember_many(list(_turns(60)))
        for _ in range(2):
            bound.recall("barin")
        bound.remember_many(list(_turns(40, seed=2)))
        found = list[str]()

        def ask() -> None:
            bound.remember("The heron lives in the vault.")
            found.append(bound.recall("heron vault")[0].memory.content)

        def freeze_while_asked(corpus: Corpus) -> Frozen:
            asking = threading.Thread(target=ask, daemon=True)
            asking.start()
            asking.join(timeout=60)
            return freeze(corpus)

        with monkeypatch.context() as slow:
            slow.setattr(corpus_cache, "freeze", freeze_while_asked)
            assert Segments(context).follow() == 1
        assert found == ["The heron lives in the vault."]
        read = context.corpora.loads
        assert bound.recall("heron vault")[0].memory.content == found[0]
        expected = _answers(bound)
        assert context.corpora.loads == read
    with open_sqlite(settings=ARRAYS) as again:
        assert _answers(again.bind(ANNA)) == expected


@pytest.mark.sqlite
def test_a_segment_that_cannot_be_kept_is_tried_again_ever_more_rarely(
    open_sqlite: OpenTally, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried = list[int]()

    def full(*_: object) -> None:
        tried.append(1)
        raise OSError(errno.ENOSPC, "No space left on device")

    with open_sqlite() as tally:
        bound, context = tally.bind(ANNA), services_of(tally).memory
        prepare = Segments(context).follow
        bound.remember_many(list(_turns(60)))
        with monkeypatch.context() as disk:
            disk.setattr(segment_files, "open_private", full)
            for count in range(30):
                bound.recall("barin")
                bound.remember(f"The barin came back {count} times.")
            # The first time, and after 1, 2, 4 and 8 questions.
            assert len(tried) == 5
            assert prepare() == 0
        assert _files(tally) == []
        # Room again: nobody has to write for the next try.
        assert sum(prepare() for _ in range(20)) == 1
        assert len(_files(tally)) == 1


def test_a_question_goes_on_with_the_segment_that_another_process_made(
    open_tally: OpenTally, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(segments, "_PIECE", {"words": 8, "slice_of": 8, "often": 8})
    with open_tally(settings=LARGE) as tally, open_tally(settings=LARGE) as other:
        bound, elsewhere = tally.bind(ANNA), other.bind(ANNA)
        bound.remember_many(list(_turns(80)))
        for asker in (bound, elsewhere):
            for _ in range(2):
                asker.recall("barin")
        elsewhere.remember_many(list(_turns(40, seed=2)))
        assert Segments(services_of(other).memory).follow() == 1
        assert _answers(bound) == _answers(elsewhere)
        assert _loads(tally) == 1


@pytest.mark.sqlite
@pytest.mark.parametrize("damage", ["cut", "changed", "foreign", "empty"])
def test_a_file_that_is_not_whole_and_ours_is_made_anew(
    open_sqlite: OpenTally, damage: str, tmp_path: Path
) -> None:
    with open_sqlite() as tally:
        bound = tally.bind(ANNA)
        bound.remember_many(list(_turns(80)))
        expected = _answers(bound)
        [file] = _files(tally)
    data = file.read_bytes()
    if damage == "foreign":
        with Tally.open(tmp_path / "foreign", background=False) as foreign:
            foreign.bind(ANNA).remember_many(list(_turns(60, seed=9)))
            foreign.bind(ANNA).recall("barin")
            [theirs] = _files(foreign)
        data = theirs.read_bytes()
    changed = bytearray(data)
    changed[len(changed) // 2] ^= 255
    file.write_bytes(
        {"cut": data[: len(data) // 2], "changed": bytes(changed), "foreign": data, "empty": b""}[
            damage
        ]
    )
    with open_sqlite() as tally:
        assert _answers(tally.bind(ANNA)) == expected
        assert _loads(tally) == 1
        assert _files(tally) != [file]
        assert len(_files(tally)) == 1


def test_the_last_read_of_a_recall_names_its_scopes(open_tally: OpenTally) -> None:
    """Whatever was derived says, no other scope's text comes back, and nothing foreign raises."""
    with open_tally() as tally:
        anna, ben = tally.bind(ANNA), tally.bind(Actor(user="ben"))
        for bound in (anna, ben):
            bound.remember(f"The heron of {bound.actor.user} lives in the vault.")
            assert bound.recall("heron")
        services = services_of(tally)
        with services.store.database.read() as connection:
            rows = {row.scope: row.id for row in scopes.find(connection, [anna.scope, ben.scope])}
        entries = services.memory.corpora._entries
        entries[rows[anna.scope]].corpus = entries[rows[ben.scope]].corpus
        assert [hit.memory.content for hit in anna.recall("heron vault").hits] == []


def test_a_corpus_in_memory_is_dropped_where_the_journal_went_back(open_tally: OpenTally) -> None:
    with open_tally() as tally:
        bound = tally.bind(ANNA)
        bound.remember_many(list(_turns(20)))
        bound.recall("barin")
        services = services_of(tally)
        database, corpora = services.store.database, services.memory.corpora
        with database.read() as older:
            [(row, revision)] = scopes.revisions(older, [bound.scope])
            bound.remember("The heron lives in the vault.")
            bound.recall("heron")
            # Another thread's snapshot, which began before: the newer text is true.
            assert len(corpora.corpus(older, row.id, revision)) == 21
        entry = corpora._entries[row.id]
        before = entry.revision, entry.origin
        assert entry.origin is not None
        entry.revision += 100
        entry.origin = entry.origin._replace(position=entry.origin.position + 100)
        with database.read() as connection:
            assert len(corpora.corpus(connection, row.id, revision + 1)) == 21
        assert (entry.revision, entry.origin) == before


def _made(tally: Tally) -> Path:
    """Return the file of a scope of 80 memories."""
    bound = tally.bind(ANNA)
    bound.remember_many(list(_turns(80)))
    bound.recall("barin")
    [file] = _files(tally)
    return file


@pytest.mark.sqlite
def test_a_file_without_a_name_of_ours_is_left_alone(open_sqlite: OpenTally) -> None:
    with open_sqlite() as tally:
        file = _made(tally)
        scope_id, _, rest = file.stem.partition("-")
        names = ("copy.seg", "a-b-c.seg", f"{rest} (copy).seg", "note.held")
        foreign = [file.parent / f"{scope_id}-{name}" for name in names]
        for each in foreign:
            each.write_bytes(b"theirs")
    with open_sqlite() as tally:
        bound, operator = tally.bind(ANNA), tally.bind(ROOT).operator
        assert len(bound.recall("barin")) > 0
        assert _loads(tally) == 0

        kept = bound.remember(SECRET)
        preview = operator.erase(kept.id, reason="asked for")
        done = operator.erase(
            kept.id, reason="asked for", mode="apply", confirm_token=preview.confirm_token
        )
        assert done.proofs[0].holds
        assert operator.prove_erased(kept.id, text=SECRET).holds
        assert [each.read_bytes() for each in foreign] == [b"theirs"] * 4


@pytest.mark.sqlite
@pytest.mark.skipif(os.name == "nt", reason="links and pipes of POSIX")
@pytest.mark.parametrize("kind", ["link", "pipe", "folder", "of another user"])
def test_only_a_regular_file_of_this_user_is_mapped(
    open_sqlite: OpenTally, kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with open_sqlite() as tally:
        file = _made(tally)
    if kind == "of another user":
        monkeypatch.setattr(os, "geteuid", lambda: file.stat().st_uid + 1)
    else:
        away = file.rename(tmp_path / "away")
        make: Callable[[], object] = {
            "link": lambda: file.symlink_to(away),
            "pipe": lambda: os.mkfifo(file),
            "folder": file.mkdir,
        }[kind]
        make()
    with open_sqlite() as tally:
        assert len(tally.bind(ANNA).recall("barin")) > 0
        assert _loads(tally) == 1
        assert kind == "folder" or not file.exists()
        made = [each.lstat() for each in _files(tally) if each != file]
        # What is made anew is by the same user, who is another one for as long as the test says so.
        assert [stat.S_ISREG(each.st_mode) for each in made] == [True] * (kind != "of another user")


@pytest.mark.sqlite
@pytest.mark.skipif(os.name == "nt", reason="permissions of POSIX")
def test_a_file_that_others_may_read_is_so_no_longer(open_sqlite: OpenTally) -> None:
    with open_sqlite() as tally:
        file = _made(tally)
    file.chmod(0o644)
    with open_sqlite() as tally:
        assert len(tally.bind(ANNA).recall("barin")) > 0
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
        assert _loads(tally) == 0


@pytest.mark.sqlite
@pytest.mark.parametrize("made", [True, False], ids=["there", "to be made"])
def test_a_recall_answers_where_no_file_can_be_made(
    open_sqlite: OpenTally, made: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A disk without room takes neither a segment nor the lock of a process that maps one."""
    with open_sqlite() as tally:
        bound = tally.bind(ANNA)
        bound.remember_many(list(_turns(80)))
        expected = _answers(bound) if made else None

    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(FileLock, "acquire", full)
    monkeypatch.setattr(segment_files, "open_private", full)
    with open_sqlite() as tally:
        answers = _answers(tally.bind(ANNA))
        assert expected in (None, answers)
        assert all(answers)
        assert len(_files(tally)) == int(made)


@pytest.mark.sqlite
@pytest.mark.skipif(os.name == "nt", reason="a mapped file cannot be cut there")
@pytest.mark.parametrize("then", ["there", "removed"])
def test_a_file_that_is_cut_while_it_is_mapped_is_read_no_more(
    open_sqlite: OpenTally, then: str
) -> None:
    """Touching what was cut off would end the process, so another one asks."""
    with open_sqlite() as tally:
        file = _made(tally)
        with subprocess.Popen(
            [sys.executable, "-c", HOLDER, tally.location],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        ) as other:
            assert other.stdin is not None
            assert other.stdout is not None
            assert other.stdout.readline() == "mapped\n"
            os.truncate(file, 100)
            if then == "removed":
                file.unlink()
            other.stdin.write("\n")
            other.stdin.flush()
            assert other.stdout.readline() == "asked again\n"
            other.stdin.write("\n")
        assert other.returncode == 0


HOLDER = """
import sys
from tallystick import Actor, Tally
from tallystick.storage.index import corpus_cache
corpus_cache._KEPT = 10
with Tally.open(sys.argv[1], background=False) as tally:
    bound = tally.bind(Actor(user="anna"))
    bound.recall("barin")
    print("mapped", flush=True)
    sys.stdin.readline()
    bound.recall("barin")
    print("asked again", flush=True)
    sys.stdin.readline()
"""


@pytest.mark.slow
@pytest.mark.sqlite
def test_the_proof_of_an_erasure_names_the_process_that_maps_the_text(
    open_sqlite: OpenTally, monkeypatch: pytest.MonkeyPatch
) -> None:
    with open_sqlite() as tally:
        bound, root = tally.bind(ANNA), tally.bind(ROOT)
        bound.remember_many(list(_turns(40)))
        kept = bound.remember(SECRET)
        bound.recall("pelican")
        other = subprocess.Popen(
            [sys.executable, "-c", HOLDER, tally.location],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        with other:
            assert other.stdin is not None
            assert other.stdout is not None
            assert other.stdout.readline() == "mapped\n"
            preview = root.operator.erase(kept.id, reason="asked for")
            done = root.operator.erase(
                kept.id, reason="asked for", mode="apply", confirm_token=preview.confirm_token
            )
            problems = " ".join(done.proofs[0].problems)
            assert f"process {other.pid} maps a removed file" in problems
            other.stdin.write("\n")
            other.stdin.flush()
            assert other.stdout.readline() == "asked again\n"
            assert root.operator.prove_erased(kept.id, text=SECRET).holds
            other.stdin.write("\n")
        assert not bound.recall("zyxwvut").confident
        bound.recall("barin")
        [file] = _files(tally)
        assert b"zyxwvut" not in file.read_bytes()


# Corpora


def _entry(doc: int, words: str | None, **fields: object) -> Entry:
    values = {"kind": "turn", "conversation": None, "position": None} | fields
    return Entry(
        doc=doc,
        words=words,
        marks=0,
        speaker=None if words is None else ("Anna", "Ben")[doc % 2],
        occurred_at=None,
        expires_at=None,
        vector=np.ones(8, dtype="<f2").tobytes(),
        **values,  # type: ignore[arg-type]
    )


def _derived(corpus: Corpus) -> Sequence[object]:
    docs = corpus.column("doc")
    rows = corpus.rows_of(range(1, 80))
    words = corpus.words_of(rows)
    spelled = [corpus.vocabulary.spelled[number] for number in words.words.tolist()]
    return (
        docs[rows].tolist(),
        docs[corpus.turns].tolist(),
        [
            [int(docs[row]) if row >= 0 else -1 for row in corpus.beside(rows, (step,))[0].tolist()]
            for step in (-2, -1, 1, 2)
        ],
        words.counts.tolist(),
        [sorted(part) for part in _split(spelled, words.counts.tolist())],
        corpus.words_in(rows).tolist(),
        (len(corpus), corpus.size, corpus.vectors, set(corpus.speakers)),
        [corpus.frequency(word) for word in WORDS],
    )


def _split(values: list[str], counts: list[int]) -> Iterator[list[str]]:
    start = 0
    for count in counts:
        yield values[start : start + count]
        start += count


@pytest.mark.parametrize("large", [False, True], ids=["position", "large position"])
def test_a_corpus_written_bit_by_bit_is_the_one_that_is_made_at_once(large: bool) -> None:
    chance = random.Random(3)
    current: dict[int, Entry] = {}
    corpus = Corpus.empty()
    for step in range(60):
        doc = chance.randint(1, 79)
        gone = doc in current and step % 4 == 0
        position = chance.randint(0, 30) + (2**40 if large else 0)
        entry = _entry(
            doc,
            None if gone else " ".join(chance.choices(WORDS, k=5)),
            conversation=chance.choice(["a", "b", None]),
            position=position,
        )
        current.pop(doc, None)
        if not gone:
            current[doc] = entry
        corpus = corpus.update([entry], dimension=8)
        _derived(corpus)
    # Turns of one place in a conversation stand in the order in which they came.
    whole = Corpus.empty().update(list(current.values()), dimension=8)
    ours, theirs = _derived(corpus), _derived(whole)
    assert ours[0] == theirs[0]
    assert ours[3:] == theirs[3:]
