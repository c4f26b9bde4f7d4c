"""The HNSW index of pgvector: large scopes on PostgreSQL get their candidates from it, as if every
vector had been compared; what is erased leaves it, and what differs is found and mended.
"""

from __future__ import annotations

import random
import re
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Thread
from typing import Any

import psycopg
import pytest
from psycopg import sql
from tests.core.storage.test_scope_keys import watched
from tests.servers import chroma_server, new_database

from tallystick import Actor, Tally
from tallystick.errors import SettingsError, StorageError
from tallystick.memory import candidates
from tallystick.memory.recall import Recalled
from tallystick.records import Finding, NewMemory, RebuiltIndex
from tallystick.settings import Settings
from tallystick.storage import Connection, hnsw, memories, scopes
from tallystick.storage.prepared import Prepared
from tallystick.tally.services import services_of
from tallystick.testing import HashEmbedder

pytestmark = pytest.mark.postgres

OpenTally = Callable[..., Tally]
HNSW = Settings.read(large_scope=20, vector_search="hnsw")
EXACT = Settings.read(large_scope=20, vector_search="exact")
ARRAYS = Settings.read(large_scope=10**6)
ANNA, BEN = Actor(user="anna"), Actor(user="ben")
ROOT = Actor(user="root", role="operator")
WORDS = [
    f"{a}{b}{c}" for a in ("ba", "do", "ke") for b in ("ri", "lo", "nu", "ma") for c in "stnlr"
]


@pytest.fixture
def opened(postgres_url: str) -> OpenTally:
    """Opens a fresh store at first and the same afterwards. No plan sorts, so that the index is
    asked of few vectors too.
    """
    schema = f"h{uuid.uuid4().hex}"
    url = f"{postgres_url}&options=-c%20enable_sort%3Doff"

    def open_tally(settings: Settings = HNSW, **options: Any) -> Tally:
        given = {"embedder": HashEmbedder(), "schema": schema, "background": False, **options}
        return Tally.open(url, settings=settings, **given)

    return open_tally


def _turns(count: int, *, seed: int = 1) -> Iterator[NewMemory]:
    chance = random.Random(seed)
    for place in range(count):
        yield NewMemory(
            content=" ".join(chance.choices(WORDS, k=9)) + ".?"[place % 2],
            kind=("turn", "fact")[place % 7 == 0],
            conversation=f"c{seed}-{place // 12}",
            tags=("odd",) if place % 2 else (),
        )


def _questions(count: int = 10) -> list[str]:
    chance = random.Random(5)
    return [f"What about {' '.join(chance.sample(WORDS, 3))}?" for _ in range(count)]


def _large(tally: Tally, count: int = 300, *, actor: Actor = ANNA, seed: int = 1) -> None:
    """A large scope whose vectors are all in the index."""
    tally.bind(actor).remember_many(list(_turns(count, seed=seed)))
    tally.drain()


def _scope_id(tally: Tally, actor: Actor = ANNA) -> int:
    with services_of(tally).store.database.read() as connection:
        return scopes.find(connection, [actor.private_scope])[0].id


def _in_index(tally: Tally, actor: Actor = ANNA) -> set[int]:
    scope_id = _scope_id(tally, actor)
    with services_of(tally).store.database.read() as connection:
        query = f"SELECT doc FROM hnsw_vectors WHERE scope_id = {scope_id}"
        return set(connection.exec_driver_sql(query).scalars())


def _waiting(tally: Tally, actor: Actor = ANNA) -> set[int]:
    scope_id = _scope_id(tally, actor)
    with services_of(tally).store.database.read() as connection:
        return set(hnsw.waiting(connection, scope_id, most=10_000) or ())


def _doc(tally: Tally, memory_id: str) -> int:
    with services_of(tally).store.database.read() as connection:
        stored = memories.get(connection, memory_id)
    assert stored is not None
    return stored.doc


def _nearest(tally: Tally, text: str, *, most: int, actor: Actor = ANNA) -> list[int]:
    context, scope_id = services_of(tally).memory, _scope_id(tally, actor)
    vector = context.query_vector(text)
    assert vector is not None
    with context.store.database.read() as connection:
        index = hnsw.find(connection)
        assert index is not None
        return hnsw.nearest(connection, index, scope_id, vector, most=most)


def _write(tally: Tally, statement: str) -> None:
    services_of(tally).store.database.write(
        lambda tx: tx.exec_driver_sql(statement), name="test.write"
    )


def _finding(tally: Tally, *, repair: bool = False) -> Finding:
    findings = tally.bind(ROOT).operator.doctor(repair=repair)
    [found] = [each for each in findings if each.check == "hnsw"]
    return found


def _ids(found: Recalled) -> list[str]:
    return [hit.memory.id for hit in found]


def test_the_hundred_nearest_are_got_where_the_server_alone_gives_forty(
    opened: OpenTally, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hnsw, "_EF_SEARCH", 40)
    monkeypatch.setattr(hnsw, "_EF_SEARCH_MOST", 40)
    with opened() as tally:
        _large(tally)
        assert len(set(_nearest(tally, "barin doloss", most=100))) == 100
        monkeypatch.setattr(hnsw, "_TUNE", Prepared("SELECT :ef_search || :most"))
        assert len(_nearest(tally, "barin doloss", most=100)) == 40


def test_a_large_scope_answers_by_the_index_as_by_every_vector(opened: OpenTally) -> None:
    with opened(EXACT) as tally:
        _large(tally)
        asked = _questions()
        exact = [_ids(tally.bind(ANNA).recall(query)) for query in asked]
        assert tally.bind(ANNA).recall("barin").path == "database, exact"
    with opened() as tally:
        tally.drain()
        by_index = [tally.bind(ANNA).recall(query) for query in asked]
        assert {(found.path, found.warnings) for found in by_index} == {("database, hnsw", ())}
    pairs = zip(by_index, exact, strict=True)
    shared = [len(set(_ids(found)) & set(ids)) / len(ids) for found, ids in pairs]
    assert sum(shared) / len(shared) > 0.97


def test_no_search_gives_or_reads_vectors_of_another_scope(
    opened: OpenTally, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In one partition, where the vectors of the other scope are the nearest."""
    monkeypatch.setattr(hnsw, "_PARTITIONS", 1)
    with opened() as tally:
        tally.bind(BEN).remember_many([f"barin doloss {word}" for word in WORDS])
        _large(tally, 120)
        docs = _nearest(tally, "barin doloss", most=100)
        assert len(docs) == 100
        assert set(docs) <= _in_index(tally)
        assert not set(docs) & _in_index(tally, BEN)
        hits = tally.bind(ANNA).recall("barin doloss", limit=100)
        assert {str(hit.memory.scope) for hit in hits} == {"private:anna"}


def test_a_search_goes_through_the_partition_of_its_scope_alone(opened: OpenTally) -> None:
    with opened() as tally:
        _large(tally)
        scope_id = _scope_id(tally)
        with services_of(tally).store.database.read() as connection:
            index = hnsw.find(connection)
            assert index is not None
            query = str(hnsw._nearest(index.schema)._given["postgresql"])
            given = {":scope_id": scope_id, ":vector": f"'[{'0.5,' * 63}0.5]'", ":most": 100}
            for name, value in given.items():
                query = query.replace(name, str(value))
            plan = "\n".join(connection.exec_driver_sql(f"EXPLAIN {query}").scalars())
            part = hnsw._partition_of(connection, scope_id)
        assert f"Index Scan using hnsw_vectors_{part}_embedding_idx" in plan
        assert set(re.findall(r"on hnsw_vectors_(\d+)", plan)) == {str(part)}


def test_no_statement_of_a_call_reaches_beyond_its_scope(
    opened: OpenTally, monkeypatch: pytest.MonkeyPatch
) -> None:
    with opened() as tally:
        _large(tally, 50)
        bound = tally.bind(ANNA)
        with watched(monkeypatch) as seen:
            kept = bound.remember("A heron.")
            bound.modify(kept.id, content="A crane.", reason="it is one")
            assert bound.recall("crane").path == "database, hnsw"
            bound.forget(kept.id, reason="gone")
    statements = [text for text, _ in seen if re.search("hnsw_(vectors|waiting|scopes)", text)]
    assert len(statements) >= 2
    assert [text for text in statements if "scope_id = %(scope_id)s" not in text] == []


def test_a_recall_over_several_scopes_asks_the_index_of_the_large_ones(opened: OpenTally) -> None:
    shared = Actor(user="anna", projects={"apollo", "gemini"})
    with opened() as tally:
        _large(tally, 60)
        bound = tally.bind(shared)
        for name, count in (("apollo", 60), ("gemini", 5)):
            tally.bind(shared, scope=f"project:{name}").remember_many(list(_turns(count, seed=3)))
        asked = ["private:anna", "project:gemini"]
        assert bound.recall("barin", scopes=asked).path == "database, hnsw"
        found = bound.recall("barin", scopes=[*asked, "project:apollo"])
        assert found.path == "database, hnsw, 3000 by signs"
        [warning] = found.warnings
        assert warning.startswith("the HNSW index of project:apollo was not used")
        tally.drain()
        found = bound.recall("barin", scopes=[*asked, "project:apollo"])
        assert (found.path, found.warnings) == ("database, hnsw", ())


def test_what_was_just_written_changed_or_forgotten_counts_at_once(opened: OpenTally) -> None:
    """Whoever does it, with whichever setting."""
    with opened() as tally, opened(ARRAYS) as other:
        _large(tally)
        bound, elsewhere = tally.bind(ANNA), other.bind(ANNA)
        kept = elsewhere.remember("The heron lives in the vault.")
        doc = _doc(tally, kept.id)
        assert (doc in _in_index(tally), doc in _waiting(tally)) == (False, True)
        assert bound.recall("heron vault")[0].memory.id == kept.id
        assert bound.recall("heron vault").path == "database, hnsw"

        tally.drain()
        assert (doc in _in_index(tally), doc in _waiting(tally)) == (True, False)
        elsewhere.modify(kept.id, content="The crane lives in the attic.", reason="it moved")
        assert (doc in _in_index(tally), doc in _waiting(tally)) == (False, True)
        assert bound.recall("crane attic")[0].memory.content.startswith("The crane")

        tally.drain()
        elsewhere.forget(kept.id, reason="gone")
        assert (doc in _in_index(tally), doc in _waiting(tally)) == (False, False)
        assert kept.id not in _ids(bound.recall("crane attic"))
        elsewhere.recover(kept.id, reason="back")
        assert bound.recall("crane attic")[0].memory.id == kept.id


def test_each_slice_of_a_long_text_is_in_the_index(opened: OpenTally) -> None:
    with opened() as tally:
        _large(tally, 100)
        text = " ".join(f"{word} follows." for word in WORDS * 3)
        kept = tally.bind(ANNA).remember(f"{text} The heron lives in the vault. {text}")
        tally.drain()
        doc = _doc(tally, kept.id)
        query = f"SELECT count(*) FROM hnsw_vectors WHERE doc = {doc}"
        with services_of(tally).store.database.read() as connection:
            assert connection.exec_driver_sql(query).scalar_one() > 2
        assert _nearest(tally, "follows", most=3) == [doc]
        assert _finding(tally).status == "ok"


def test_filters_that_pass_few_are_answered_without_the_index(opened: OpenTally) -> None:
    with opened(EXACT) as tally:
        _large(tally)
        tally.bind(ANNA).remember_many(
            [NewMemory(content=f"{w} nest", tags=("rare",)) for w in WORDS[:9]]
        )
        exact = [
            _ids(tally.bind(ANNA).recall("barin nest", kinds=["turn"])),
            _ids(tally.bind(ANNA).recall("barin nest", tags=["rare"])),
        ]
    with opened() as tally:
        tally.drain()
        wide = tally.bind(ANNA).recall("barin nest", kinds=["turn"])
        narrow = tally.bind(ANNA).recall("barin nest", tags=["rare"])
        assert (wide.path, narrow.path) == ("database, hnsw", "database, 3000 by signs")
        assert [_ids(wide), _ids(narrow)] == exact
        assert (wide.warnings, narrow.warnings) == ((), ())


def test_a_recall_says_why_the_index_was_not_used(
    opened: OpenTally, monkeypatch: pytest.MonkeyPatch
) -> None:
    with opened() as tally:
        bound = tally.bind(ANNA)
        bound.remember_many(list(_turns(100)))

        def why() -> str:
            found = bound.recall("barin")
            assert found.path == "database, 3000 by signs"
            [warning] = found.warnings
            return warning

        assert "private:anna was not used (it was not filled yet)" in why()
        tally.drain()
        assert bound.recall("barin").warnings == ()
        bound.remember_many(list(_turns(20, seed=2)))
        monkeypatch.setattr(candidates, "_LAG", 10)
        assert "(more than 10 memories wait for it)" in why()
        tally.drain()
        _write(tally, "DELETE FROM hnsw_vectors")
        assert "(it finds less than it was given)" in why()
        with opened(embedder=HashEmbedder(dimension=32)):
            assert "(it is that of another embedder)" in why()


def test_the_index_is_made_anew_for_another_embedder(opened: OpenTally) -> None:
    with opened() as tally:
        _large(tally, 100)
    with opened(embedder=HashEmbedder(dimension=32)) as tally:
        tally.drain()
        assert len(_in_index(tally)) == 100
        assert tally.bind(ANNA).recall("barin").path == "database, hnsw"
        with services_of(tally).store.database.read() as connection:
            index = hnsw.find(connection)
        assert index is not None
        assert index.dimension == 32
        assert _finding(tally).status == "ok"


def test_an_erasure_takes_a_vector_from_the_index_and_from_its_files(opened: OpenTally) -> None:
    with opened() as tally:
        _large(tally, 100)
        kept = tally.bind(ANNA).remember("the zyxwvut pelican opens vault qponmlk")
        tally.drain()
        files = f"SELECT pg_relation_filenode('{_partition(tally)}')"
        with services_of(tally).store.database.read() as connection:
            before = connection.exec_driver_sql(files).scalar_one()
        doc, root = _doc(tally, kept.id), tally.bind(ROOT)
        preview = root.operator.erase(kept.id, reason="asked for")
        done = root.operator.erase(
            kept.id, reason="asked for", mode="apply", confirm_token=preview.confirm_token
        )
        assert done.proofs[0].holds
        with services_of(tally).store.database.read() as connection:
            assert connection.exec_driver_sql(files).scalar_one() != before
        assert (_in_index(tally), len(_waiting(tally))) == (set(), 100)
        tally.drain()
        assert (doc in _in_index(tally), len(_in_index(tally))) == (False, 100)

        _write(
            tally,
            f"INSERT INTO hnsw_vectors SELECT scope_id, {doc}, slice, version, embedding "
            "FROM hnsw_vectors LIMIT 1",
        )
        proof = root.operator.prove_erased(kept.id)
        assert proof.problems == ("its vectors are in the HNSW index: run `tally doctor --repair`",)


def _partition(tally: Tally) -> str:
    with services_of(tally).store.database.read() as connection:
        return f"hnsw_vectors_{hnsw._partition_of(connection, _scope_id(tally))}"


def test_a_vector_that_is_removed_while_it_is_brought_in_is_not_left_there(
    opened: OpenTally, postgres_url: str
) -> None:
    with opened() as tally:
        _large(tally, 60)
        one, two = tally.bind(ANNA).remember_many(["A heron.", "A crane."])
        docs = _doc(tally, one.id), _doc(tally, two.id)
        database, scope_id = services_of(tally).store.database, _scope_id(tally)
        with database.read() as connection:
            index = hnsw.find(connection)
        assert index is not None
        with psycopg.connect(postgres_url) as removing:

            def remove(doc: int) -> None:
                removing.execute("DELETE FROM vectors WHERE doc = %s", (doc,))

            removing.execute(
                sql.SQL("SET search_path TO {}").format(sql.Identifier(database.schema))
            )
            remove(docs[0])

            def fill(tx: Connection) -> Thread:
                brought = hnsw.bring_in(tx, index, scope_id, after=-1, most=100)
                assert brought == [docs[1]]
                # It waits for this unit, and then sees what came in.
                thread = Thread(target=remove, args=(docs[1],))
                thread.start()
                return thread

            database.write(fill, name="test.fill").join()
        assert not {*docs} & _in_index(tally)
        assert _finding(tally).status == "ok"


def test_the_setting_is_refused_where_there_can_be_no_index(
    postgres_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(SettingsError, match="is for a tally on PostgreSQL"):
        Tally.open(tmp_path / "tally", settings=HNSW)
    with new_database(postgres_url) as url:
        monkeypatch.setattr(hnsw, "_OLDEST", (99, 0))
        with pytest.raises(SettingsError, match=r"needs pgvector 99\.0 or later, .* has 0\.\d"):
            Tally.open(url, settings=HNSW)
        monkeypatch.undo()
        with pytest.raises(SettingsError, match=r"up to 4000 numbers, .* have 4001"):
            Tally.open(url, settings=HNSW, embedder=HashEmbedder(dimension=4_001))
    with new_database(postgres_url) as url:
        # As on a server without the extension's files.
        monkeypatch.setattr(
            hnsw, "_create_extension", lambda tx: tx.exec_driver_sql("CREATE EXTENSION vectorless")
        )
        with pytest.raises(SettingsError, match=r'"vectorless" is not available.* Install it'):
            Tally.open(url, settings=HNSW)
        with Tally.open(url, settings=ARRAYS, background=False) as tally:
            assert tally.bind(ANNA).recall("barin").warnings == ()


@pytest.mark.parametrize(
    ("damage", "text"),
    [
        ("DELETE FROM hnsw_vectors WHERE doc = {doc}", "1 vectors are missing"),
        ("UPDATE hnsw_vectors SET version = 7 WHERE doc = {doc}", "1 are of another version"),
        ("UPDATE hnsw_vectors SET doc = 10000 WHERE doc = {doc}", "1 are of no memory"),
        ("DROP INDEX hnsw_nearest", "16 partitions have no index"),
        ("DROP EXTENSION vector CASCADE", "there is no HNSW index for this embedder"),
    ],
)
def test_the_doctor_finds_what_differs_and_makes_the_index_anew(
    opened: OpenTally, damage: str, text: str
) -> None:
    with opened() as tally:
        _large(tally, 50)
        ok = "the index has what 1 large scopes have, 50 memories"
        assert (_finding(tally).status, _finding(tally).text) == ("ok", ok)
        _write(tally, damage.format(doc=min(_in_index(tally))))
        found = _finding(tally)
        assert found.status == "problem"
        assert text in found.text
        assert _finding(tally, repair=True).status == "repaired"
        tally.drain()
        assert (_finding(tally).status, _finding(tally).text) == ("ok", ok)
        assert tally.bind(ANNA).recall("barin").path == "database, hnsw"


def test_the_index_is_made_anew_by_the_call_that_makes_chroma_anew(
    opened: OpenTally, tmp_path: Path
) -> None:
    with opened() as tally:
        _large(tally, 50)
        _write(tally, "DELETE FROM hnsw_vectors")
        assert tally.bind(ROOT).operator.rebuild_index() == RebuiltIndex(hnsw=50)
        assert _finding(tally).status == "ok"
        assert tally.bind(ANNA).recall("barin").path == "database, hnsw"
    with chroma_server(tmp_path) as address, opened(HNSW, chroma=address) as tally:
        assert tally.bind(ROOT).operator.rebuild_index() == RebuiltIndex(chroma=50, hnsw=50)
    with opened(EXACT) as tally, pytest.raises(StorageError, match="no Chroma index"):
        tally.bind(ROOT).operator.rebuild_index()


def test_an_index_that_no_setting_asks_for_is_kept_in_step_until_the_doctor_removes_it(
    opened: OpenTally,
) -> None:
    with opened() as tally:
        _large(tally, 50)
    with opened(Settings.read(large_scope=20)) as tally:
        tally.bind(ANNA).remember("A heron.")
        tally.drain()
        assert tally.bind(ANNA).recall("heron").path == "database, 3000 by signs"
        assert (len(_in_index(tally)), len(_waiting(tally))) == (50, 1)
        assert _finding(tally).status == "notice"
        assert _finding(tally, repair=True).text == "the HNSW index was removed"
        assert not [each for each in tally.bind(ROOT).operator.doctor() if each.check == "hnsw"]
        tally.bind(ANNA).remember("A crane.")
    with opened() as tally:
        tally.drain()
        assert (len(_in_index(tally)), _finding(tally).status) == (52, "ok")


def test_a_backup_leaves_the_index_out_and_a_restored_tally_makes_its_own(
    opened: OpenTally, postgres_url: str, tmp_path: Path
) -> None:
    with opened() as tally:
        _large(tally, 50)
        tally.bind(ROOT).operator.backup(tmp_path / "backup")
        uses = {use.kind: use.size for use in tally.bind(ROOT).operator.sizes().uses}
        assert uses["index of vectors"] > 0
    assert not list((tmp_path / "backup").glob("hnsw*"))
    schema = f"h{uuid.uuid4().hex}"
    Tally.restore(tmp_path / "backup", postgres_url, schema=schema)
    with Tally.open(
        postgres_url, schema=schema, settings=HNSW, embedder=HashEmbedder(), background=False
    ) as restored:
        restored.drain()
        assert len(_in_index(restored)) == 50
        assert restored.bind(ANNA).recall("barin").path == "database, hnsw"


def test_a_process_with_its_background_fills_the_index_by_itself(
    postgres_url: str,
) -> None:
    schema = f"h{uuid.uuid4().hex}"
    given: dict[str, Any] = {"schema": schema, "settings": HNSW, "embedder": HashEmbedder()}
    with Tally.open(postgres_url, background=False, **given) as tally:
        tally.bind(ANNA).remember_many(list(_turns(50)))
    with Tally.open(postgres_url, **given) as tally:
        for _ in range(300):
            if len(_in_index(tally)) == 50:
                break
            time.sleep(0.1)
        assert tally.bind(ANNA).recall("barin").path == "database, hnsw"
