"""Storage: schema and migrations, errors of the layers below, embedders that change, work that
waits.
"""

from __future__ import annotations

import re
import shutil
import sqlite3
import sys
import uuid
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy.exc
from sqlalchemy import Connection, inspect, text
from tests.servers import chroma_server

from tallystick import Actor, BoundTally, Tally, errors
from tallystick.errors import (
    BusyTally,
    CorruptTally,
    EmbeddingError,
    InvalidInput,
    MissingExtra,
    NewerTally,
    StorageError,
    TallyNotFound,
    TallystickError,
)
from tallystick.errors.base import install_line
from tallystick.records import RebuiltIndex
from tallystick.settings import Settings
from tallystick.storage.engine import migrate, tables
from tallystick.storage.engine.database_errors import translate
from tallystick.storage.engine.migrate import HEAD, revision_of
from tallystick.storage.index.chroma import VectorPoint
from tallystick.tally.services import services_of
from tallystick.testing import CountingIds, HashEmbedder, StepClock

OpenTally = Callable[..., Tally]
ALICE = Actor(user="alice")


def test_the_migrations_make_exactly_the_tables_that_a_fresh_tally_has(
    places: Callable[[str], Tally], monkeypatch: pytest.MonkeyPatch
) -> None:
    def migrated(connection: Connection, revision: str) -> None:
        migrate.upgrade(connection, revision)

    from alembic.autogenerate import compare_metadata
    from alembic.migration import MigrationContext

    with places("fresh") as tally, services_of(tally).store.database.read() as connection:
        fresh = _described(connection)
        assert revision_of(connection) == HEAD
    monkeypatch.setattr(migrate, "create_schema", migrated)
    with places("migrated") as tally, services_of(tally).store.database.read() as connection:
        assert _described(connection) == fresh
        assert revision_of(connection) == HEAD
        assert compare_metadata(MigrationContext.configure(connection), tables.metadata) == []


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def places(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[str], Tally]:
    """Opens tallies by name, once per database."""
    if request.param == "sqlite":
        return lambda name: Tally.open(tmp_path / name, background=False)
    url, schema = request.getfixturevalue("postgres_url"), f"t{uuid.uuid4().hex}"
    return lambda name: Tally.open(url, schema=f"{schema}_{name}", background=False)


def _described(connection: Connection) -> dict[str, Any]:
    """Everything in a database: columns in order, keys and indexes of each table; of SQLite its own
    words too.
    """
    there = inspect(connection)
    found: dict[str, Any] = {
        table: [
            [
                {**column, "type": str(column["type"]), "autoincrement": None}
                for column in there.get_columns(table)
            ],
            there.get_pk_constraint(table),
            *(
                sorted(map(str, of(table)))
                for of in (
                    there.get_foreign_keys,
                    there.get_unique_constraints,
                    there.get_check_constraints,
                )
            ),
            sorted(
                str(
                    {
                        **index,
                        "dialect_options": sorted(
                            (key, str(value)) for key, value in options.items()
                        ),
                    }
                )
                for index in there.get_indexes(table)
                for options in [index.get("dialect_options", {})]
            ),
        ]
        for table in there.get_table_names()
    }
    if connection.dialect.name == "sqlite":
        others = text(
            "SELECT name, sql FROM sqlite_master WHERE type <> 'table' AND sql IS NOT NULL"
        )
        counting = text("SELECT name FROM sqlite_master WHERE sql LIKE '%AUTOINCREMENT%'")
        found["counting"] = sorted(connection.execute(counting).scalars())
        found["others"] = {name: " ".join(sql.split()) for name, sql in connection.execute(others)}
    return found


def test_a_tally_of_a_newer_release_is_refused_and_left_alone(open_tally: OpenTally) -> None:
    with open_tally() as tally:
        tally.bind(ALICE).remember("kept")
        services_of(tally).store.database.write(
            lambda tx: tx.execute(
                text("UPDATE alembic_version SET version_num = '9999.0123456789ab'")
            ),
            name="test",
        )
    with pytest.raises(NewerTally) as refused:
        open_tally()
    assert refused.value.facts() == {"schema": "9999.0123456789ab", "supported": HEAD}


def test_opening_nothing_says_so(tmp_path: Path) -> None:
    with pytest.raises(TallyNotFound):
        Tally.open(tmp_path / "absent", create=False)
    assert not (tmp_path / "absent").exists()
    (tmp_path / "file").write_text("x")
    with pytest.raises(InvalidInput, match="is a file"):
        Tally.open(tmp_path / "file")
    with pytest.raises(InvalidInput, match="PostgreSQL"):
        Tally.open("mysql://somewhere/db")


def test_a_damaged_file_is_reported_as_damage(tmp_path: Path) -> None:
    (tmp_path / "tally").mkdir()
    (tmp_path / "tally" / "tally.db").write_bytes(b"this is no database" * 100)
    with pytest.raises(CorruptTally):
        Tally.open(tmp_path / "tally", background=False)


def test_a_database_that_another_holds_is_busy(tmp_path: Path) -> None:
    with Tally.open(
        tmp_path / "tally", settings=Settings.read(busy_timeout_ms=50), background=False
    ) as tally:
        other = sqlite3.connect(tmp_path / "tally" / "tally.db", isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        try:
            with pytest.raises(BusyTally):
                tally.bind().remember("waits too long")
        finally:
            other.execute("ROLLBACK")
            other.close()
        tally.bind().remember("goes through")
        assert [memory.content for memory in tally.bind().memories()] == ["goes through"]


def test_every_error_of_the_database_layer_becomes_one_of_ours() -> None:
    originals = [
        sqlite3.OperationalError("database is locked"),
        sqlite3.DatabaseError("malformed"),
        sqlite3.Error("?"),
    ]
    kinds = [
        value
        for value in vars(sqlalchemy.exc).values()
        if isinstance(value, type) and issubclass(value, sqlalchemy.exc.DBAPIError)
    ]
    for kind in kinds:
        for original in originals:
            found = translate(kind("SELECT secret", {"value": "secret"}, original))
            assert isinstance(found, StorageError)
            assert "secret" not in str(found)
    assert isinstance(translate(sqlalchemy.exc.TimeoutError("pool")), BusyTally)


def test_postgres_without_its_driver_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:

    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(MissingExtra, match=re.escape(install_line("postgres"))):
        Tally.open("postgresql://nobody@127.0.0.1:1/none")


def test_a_tally_on_postgres_has_no_owner(open_tally: OpenTally) -> None:
    with open_tally() as tally:
        if services_of(tally).store.location.is_embedded:
            assert tally.bind().actor.user == "local"
            return
        with pytest.raises(errors.Denied) as refused:
            tally.bind()
        assert refused.value.reason == "missing_actor"


def test_a_changed_embedder_never_mixes_vectors_and_recall_stays_right(
    open_tally: OpenTally,
) -> None:
    with open_tally(embedder=HashEmbedder(64, name="old")) as tally:
        tally.bind(ALICE).remember_many(["The heron nests in March.", "We indent with tabs."])
    with open_tally(embedder=HashEmbedder(32, name="new")) as tally:
        alice = tally.bind(ALICE)
        before = alice.recall("heron")
        assert (before[0].memory.content, before.path) == ("The heron nests in March.", "none")
        assert tally.drain().embedded == 2
        after = alice.recall("heron")
        assert (after[0].memory.content, after.path) == ("The heron nests in March.", "exact")
        assert after[0].signals["vector"] > 0


def test_a_remote_embedder_works_as_a_job_and_the_text_is_recallable_at_once(
    open_tally: OpenTally,
) -> None:
    embedder = HashEmbedder(local=False)
    with open_tally(embedder=embedder) as tally:
        alice = tally.bind(ALICE)
        stored = alice.remember("The heron nests in March.")
        assert (stored.job_id is not None, embedder.calls) == (True, 0)
        assert [hit.memory.id for hit in alice.recall("heron")] == [stored.id]
        assert tally.drain().embedded == 1
        assert alice.recall("heron")[0].signals["vector"] > 0


class _Failing(HashEmbedder):
    def embed(self, texts: Sequence[str]) -> Any:
        raise EmbeddingError("down")


def test_while_a_remote_embedder_is_away_memories_are_found_by_their_words(
    open_tally: OpenTally,
) -> None:
    with open_tally(embedder=_Failing(local=False)) as tally:
        alice = tally.bind(ALICE)
        alice.remember("The heron nests in March.")
        with pytest.raises(EmbeddingError):
            tally.drain()
        found = alice.recall("heron")
        assert (len(found), found.path) == (1, "none")


def test_a_failing_local_embedder_costs_the_vector_and_says_so(open_sqlite: OpenTally) -> None:
    with open_sqlite(embedder=_Failing()) as tally:
        stored = tally.bind().remember("The heron nests in March.")
        assert "without a vector" in stored.warnings[0]
        assert len(tally.bind().recall("heron")) == 1


def test_chroma_and_the_exact_scan_find_the_same(tmp_path: Path) -> None:
    words = [
        f"{colour} {thing}"
        for colour in ("red", "green", "blue")
        for thing in ("heron", "reed", "stone", "boat")
    ]
    found = {}
    for way in ("exact", "chroma"):
        settings = Settings.read(vector_search=way)
        with Tally.open(
            tmp_path / way,
            settings=settings,
            embedder=HashEmbedder(),
            clock=StepClock(),
            ids=CountingIds(),
            background=False,
        ) as tally:
            tally.bind().remember_many(words)
            tally.drain()
            recalled = tally.bind().recall("green heron")
            assert recalled.path == way
            found[way] = [(hit.memory.content, round(hit.score, 5)) for hit in recalled]
    assert found["exact"] == found["chroma"]


def test_a_chroma_server_serves_any_tally(open_tally: OpenTally, tmp_path: Path) -> None:
    with chroma_server(tmp_path / "server") as address:
        settings = Settings.read(vector_search="chroma", chroma=address)
        with open_tally(settings=settings, embedder=HashEmbedder()) as tally:
            alice = tally.bind(ALICE)
            alice.remember_many(["The heron nests in March.", "We indent with tabs."])
            assert tally.drain().left == 0
            found = alice.recall("heron")
            assert (found[0].memory.content, found.path, found.warnings) == (
                "The heron nests in March.",
                "chroma",
                (),
            )


def test_chroma_forgets_what_was_forgotten(tmp_path: Path) -> None:
    settings = Settings.read(vector_search="chroma")
    with Tally.open(tmp_path / "tally", settings=settings, background=False) as tally:
        owner = tally.bind()
        stored = owner.remember("The heron nests in March.")
        tally.drain()
        owner.forget(stored.id, reason="not ours")
        assert list(owner.recall("heron")) == []
        tally.drain()
        index_of_tally = services_of(tally).index
        assert index_of_tally is not None
        assert index_of_tally.count() == 0


def _filled(tally: Tally, count: int = 40) -> Any:
    """A tally whose memories all stand in Chroma; its index."""
    tally.bind().remember_many([f"heron number {number} of the reeds" for number in range(count)])
    tally.drain()
    index_of_tally = services_of(tally).index
    assert index_of_tally is not None
    return services_of(tally).index


def test_an_index_that_matches_is_left_as_it_is(tmp_path: Path) -> None:
    with Tally.open(tmp_path / "tally", settings=CHROMA, background=False) as tally:
        index = _filled(tally)
        found = tally.reconcile_index()
        assert (found.whole, found.checked, found.rebuilt, index.layout.generation) == (
            True,
            40,
            False,
            1,
        )


@pytest.mark.parametrize("damage", ["missing", "stale", "ghosts"])
def test_an_index_that_lost_or_kept_too_much_is_rebuilt(damage: str, tmp_path: Path) -> None:
    with Tally.open(tmp_path / "tally", settings=CHROMA, background=False) as tally:
        index = _filled(tally)
        vector = services_of(tally).embedder.embed(["heron"])[0]
        if damage == "missing":
            index.delete([1, 2, 3])
        elif damage == "stale":
            index.upsert([VectorPoint(doc, 1, 7, vector) for doc in (1, 2, 3)])
        else:
            index.upsert([VectorPoint(doc, 1, 1, vector) for doc in (1001, 1002, 1003)])

        found = tally.reconcile_index()

        assert (getattr(found, damage), found.rebuilt, index.layout.generation) == (3, True, 2)
        assert tally.reconcile_index(repair=False).whole
    with Tally.open(tmp_path / "tally", settings=CHROMA, background=False) as tally:
        assert tally.bind().recall("heron number 7").path == "chroma"
        index_of_tally = services_of(tally).index
        assert index_of_tally is not None
        assert (index_of_tally.layout.generation, index_of_tally.count()) == (
            2,
            40,
        )


def _large_scope(tally: Tally) -> BoundTally:
    """Alice's forty memories of herons beside the owner's; the limit of the exact scan is below
    forty.
    """
    alice = tally.bind(ALICE)
    alice.remember_many([f"heron number {number} of the reeds" for number in range(40)])
    tally.bind(tally.owner).remember_many(
        [f"egret number {number} of the pond" for number in range(20)]
    )
    tally.drain()
    return alice


CHROMA = Settings.read(vector_search="chroma")
LARGE_ABOVE_THIRTY = Settings.read(large_scope=30)


def test_a_scope_that_grew_large_has_a_collection_of_its_own(tmp_path: Path) -> None:
    with Tally.open(tmp_path / "tally", settings=LARGE_ABOVE_THIRTY, background=False) as tally:
        alice, index = _large_scope(tally), services_of(tally).index
        assert index is not None
        assert len(index.layout.own) == 1
        assert index.count() == 40
        found = alice.recall("heron number 7")
        assert (found[0].memory.content, found.path, found.warnings) == (
            "heron number 7 of the reeds",
            "database, chroma",
            (),
        )
        assert tally.bind(tally.owner).recall("egret number 7").path == "exact"
        assert tally.reconcile_index().whole
        alice.forget(found[0].memory.id, reason="flew off")
        tally.drain()
        assert index.count() == 39
    with Tally.open(tmp_path / "tally", settings=LARGE_ABOVE_THIRTY, background=False) as tally:
        assert "number 7 of" not in " ".join(
            hit.memory.content for hit in tally.bind(ALICE).recall("heron number 7")
        )
        assert tally.bind(Actor(user="root", role="operator")).operator.rebuild_index(
            reason="r"
        ) == RebuiltIndex(chroma=39)
        index_of_tally = services_of(tally).index
        assert index_of_tally is not None
        assert len(index_of_tally.layout.own) == 1
        assert tally.reconcile_index(repair=False).whole


@pytest.mark.slow
def test_two_processes_of_one_chroma_server_follow_one_layout(tmp_path: Path) -> None:
    with chroma_server(tmp_path / "server") as address:
        settings = Settings.read(vector_search="chroma", chroma=address, large_scope=30)
        place = tmp_path / "tally"
        with (
            Tally.open(place, settings=settings, background=False) as first,
            Tally.open(place, settings=settings, background=False) as second,
        ):
            alice = _large_scope(first)
            elsewhere = second.bind(ALICE)
            elsewhere.remember("heron number 40 of the reeds")
            assert second.drain().left == 0
            index_of_first = services_of(first).index
            assert index_of_first is not None
            index_of_second = services_of(second).index
            assert index_of_second is not None
            assert index_of_second.layout == index_of_first.layout
            second.bind(Actor(user="root", role="operator")).operator.rebuild_index(reason="r")
            elsewhere.remember("heron number 41 of the reeds")
            assert first.drain().left == 0
            for number in (7, 40, 41):
                found = alice.recall(f"heron number {number}")
                assert (found[0].memory.content, found.path) == (
                    f"heron number {number} of the reeds",
                    "database, chroma",
                )
            assert first.reconcile_index(repair=False).whole


def test_a_deleted_chroma_folder_loses_nothing(tmp_path: Path) -> None:
    place = tmp_path / "tally"
    with Tally.open(place, settings=CHROMA, background=False) as tally:
        _filled(tally)
    shutil.rmtree(place / "chroma")
    with Tally.open(place, settings=CHROMA, background=False) as tally:
        seen: list[tuple[int, int]] = []
        assert tally.reconcile_index(repair=False).missing == 40
        rebuilt = tally.bind(Actor(user="root", role="operator")).operator.rebuild_index(
            reason="r", progress=lambda done, total: seen.append((done, total))
        )
        assert rebuilt == RebuiltIndex(chroma=40)
        assert (seen[0], seen[-1]) == ((0, 40), (40, 40))
        assert tally.bind().recall("heron number 7").path == "chroma"


def test_what_chroma_has_not_followed_yet_is_no_damage(tmp_path: Path) -> None:
    with Tally.open(tmp_path / "tally", settings=CHROMA, background=False) as tally:
        _filled(tally)
        tally.bind().remember("not drained yet")
        assert tally.reconcile_index(repair=False).whole


def test_a_process_that_does_not_own_chroma_may_not_rebuild_it(tmp_path: Path) -> None:
    with Tally.open(tmp_path / "tally", settings=CHROMA, background=False) as first:
        _filled(first)
        with (
            Tally.open(tmp_path / "tally", settings=CHROMA, background=False) as second,
            pytest.raises(StorageError, match="owns"),
        ):
            second.bind(Actor(user="root", role="operator")).operator.rebuild_index(reason="r")


def test_a_broken_chroma_folder_degrades_to_the_exact_scan_and_says_so(tmp_path: Path) -> None:
    place = tmp_path / "tally"
    with Tally.open(place, settings=CHROMA, background=False) as tally:
        tally.bind().remember("The heron nests in March.")
        (place / "chroma").write_text("not a folder")
        found = tally.bind().recall("heron")
        assert (found[0].memory.content, found.path) == ("The heron nests in March.", "exact")
        assert "Chroma" in found.warnings[0]


def test_a_recording_with_fakes_compares_exactly(open_tally: OpenTally) -> None:
    def play(tally: Tally) -> list[Any]:
        alice = tally.bind(ALICE)
        with alice.run("coder") as run, run.step("model_call") as step:
            step.record("request", {"prompt": "hi"})
        return [
            (receipt.step_id, receipt.started_at, receipt.position)
            for receipt in alice.recordings.receipts(run.id)
        ]

    with open_tally(clock=StepClock(), ids=CountingIds(), embedder=HashEmbedder()) as tally:
        [(step_id, started_at, position)] = play(tally)
    assert (step_id.startswith("id-"), started_at > 1_700_000_000_000_000, position) == (
        True,
        True,
        1,
    )


def test_reads_are_logged_in_batches_outside_the_chain(open_tally: OpenTally) -> None:
    from tallystick.storage.rows import access_log
    from tallystick.testing import effects

    with open_tally() as tally:
        alice = tally.bind(ALICE)
        stored = alice.remember("The heron nests in March.")
        written = len(effects(tally))
        for _ in range(3):
            alice.recall("heron")
        services_of(tally).gate.flush()
        with services_of(tally).store.database.read() as connection:
            log = access_log.recent(connection, limit=10)
        assert [(row["operation"], row["results"]) for row in log] == [("recall", 1)] * 3
        assert len(effects(tally)) == written
        assert alice.get(stored.id).access_count == 3


def test_errors_of_tallystick_are_one_tree() -> None:
    assert issubclass(StorageError, TallystickError)
    assert issubclass(MissingExtra, ImportError)
