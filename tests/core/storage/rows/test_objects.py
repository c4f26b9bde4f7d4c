"""Large bodies outside of the database: in a folder and in object storage, moved after they were
committed, checked when they are read, and gone when they are erased.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from tests.servers import s3_server

from tallystick import Actor, Tally
from tallystick.errors import CorruptTally, InvalidInput, SettingsError, StorageError
from tallystick.jobs import patient
from tallystick.ports import BlobStore
from tallystick.settings import Settings
from tallystick.storage.engine.blob_stores import open_blobs
from tallystick.storage.rows import objects
from tallystick.tally.services import services_of
from tallystick.testing import HashEmbedder

OpenTally = Callable[..., Tally]
ROOT = Actor(user="root", role="operator")
ADA = Actor(user="ada")
LARGE = "The heron of the north harbour was seen again. " + "reeds " * 800
OTHER = "An owl lives in the old mill. " + "wheels " * 800


@pytest.fixture(scope="module")
def s3_address() -> Iterator[str]:
    pytest.importorskip("moto")
    with s3_server() as address:
        yield address


@pytest.fixture(params=["folder", "s3"])
def where(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The setting `objects`, for a place that is new."""
    if request.param == "folder":
        return str(tmp_path / "objects")
    import boto3  # type: ignore[import-untyped]

    address = request.getfixturevalue("s3_address")
    for name, value in {
        "AWS_ENDPOINT_URL": address,
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test",
        "AWS_DEFAULT_REGION": "us-east-1",
    }.items():
        monkeypatch.setenv(name, value)
    bucket = f"b{uuid.uuid4().hex}"
    boto3.client("s3").create_bucket(Bucket=bucket)
    return f"s3://{bucket}/tallies"


@dataclass(frozen=True)
class Place:
    """A tally with object storage."""

    where: str
    opening: OpenTally

    def open(self, **options: Any) -> Tally:
        settings = Settings.read(
            objects=self.where, objects_from_kb=1, retention="full_payloads", **options
        )
        return self.opening(settings=settings, embedder=HashEmbedder())

    @property
    def blobs(self) -> BlobStore:
        return open_blobs(self.where)

    def names(self) -> list[str]:
        """Everything that is in the object storage."""
        if self.where.startswith("s3://"):
            return list(self.blobs.names(""))
        folder = Path(self.where)
        return [str(file.relative_to(folder)) for file in folder.rglob("*") if file.is_file()]


@pytest.fixture
def place(where: str, open_tally: OpenTally) -> Place:
    return Place(where, open_tally)


def _recorded(tally: Tally, text: str = LARGE) -> str:
    with tally.bind(ADA).run("keeper") as run, run.step("model_call") as step:
        step.record("request", {"prompt": text})
    return run.id


def _stored(tally: Tally) -> list[bytes]:
    with services_of(tally).store.database.read() as connection:
        rows = connection.exec_driver_sql("SELECT body FROM parts").scalars()
        return [bytes(row) for row in rows]


def test_a_store_keeps_what_it_was_given(where: str) -> None:
    blobs = open_blobs(where)
    assert isinstance(blobs, BlobStore)
    blobs.put("a/one", b"1")
    blobs.put("a/two", b"")
    blobs.put("b/one", bytes(range(256)))
    assert (blobs.get("a/one"), blobs.get("a/two")) == (b"1", b"")
    assert blobs.get("b/one") == bytes(range(256))
    assert blobs.get("a/three") is None
    assert sorted(blobs.names("a/")) == ["a/one", "a/two"]
    assert list(blobs.names("a/", older_than=3_600)) == []
    blobs.delete("a/one")
    blobs.delete("a/one")
    assert blobs.get("a/one") is None


def test_a_large_payload_and_a_large_source_are_moved_and_read_as_before(place: Place) -> None:
    with place.open() as tally:
        ada = tally.bind(ADA)
        run_id = _recorded(tally)
        small = ada.remember("Short.")
        large = ada.remember(LARGE, kind="fact")
        assert place.names() == []
        tally.drain()
        assert len(place.names()) == 2
        assert not any(b"harbour" in body for body in _stored(tally))

    with place.open() as tally:
        ada = tally.bind(ADA)
        assert ada.recordings.verify(run_id).ok
        assert ada.source(large.source_id).text == LARGE
        assert ada.source(small.source_id).text == "Short."
        [step] = ada.recordings.steps(run_id)
        [entry] = [one for one in ada.recordings.entries(step.id) if one.kind == "request"]
        assert entry.payload == {"prompt": LARGE}
        again = ada.remember(LARGE, kind="fact")
        assert (again.id, again.status) == (large.id, "duplicate")
        tally.drain()
        assert len(place.names()) == 2


def test_a_size_without_a_place_is_refused(open_tally: OpenTally) -> None:
    with pytest.raises(InvalidInput, match="no `objects` where"):
        open_tally(settings=Settings.read(objects_from_kb=1))


def test_without_the_setting_nothing_leaves_the_database(open_tally: OpenTally) -> None:
    assert Settings.read().objects is None
    with open_tally(embedder=HashEmbedder()) as tally:
        tally.bind(ADA).remember(LARGE)
        tally.drain()
        assert services_of(tally).store.database.attached.blobs is None
        assert objects.check(services_of(tally).store.database) is None


def test_erasure_reaches_the_object_and_its_proof_names_it(place: Place) -> None:
    with place.open() as tally:
        ada, root = tally.bind(ADA), tally.bind(ROOT)
        run_id = _recorded(tally)
        large = ada.remember(LARGE, kind="fact")
        tally.drain()
        assert len(place.names()) == 2
        preview = root.operator.erase(large.id, reason="asked")
        assert len(preview.payloads) == 1
        erased = root.operator.erase(
            large.id, reason="asked", mode="apply", confirm_token=preview.confirm_token
        )
        [proof] = erased.proofs
        assert (proof.holds, proof.problems) == (True, ())
        assert "every object outside of the database" in proof.checked
        assert place.names() == []
        assert ada.recordings.verify(run_id).ok
        assert root.operator.prove_erased(large.id, text=LARGE).holds


def test_a_proof_finds_the_text_in_an_object_that_stayed(place: Place) -> None:
    with place.open() as tally:
        ada, root = tally.bind(ADA), tally.bind(ROOT)
        large = ada.remember(LARGE, kind="fact")
        preview = root.operator.erase(large.id, reason="asked")
        root.operator.erase(
            large.id, reason="asked", mode="apply", confirm_token=preview.confirm_token
        )
        _recorded(tally)
        tally.drain()
        proof = root.operator.prove_erased(large.id, text=LARGE)
        assert not proof.holds
        assert any("object outside of the database" in problem for problem in proof.problems)


def test_an_object_that_could_not_be_deleted_is_deleted_later(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    with place.open() as tally:
        ada, root = tally.bind(ADA), tally.bind(ROOT)
        run_id = _recorded(tally)
        tally.drain()
        blobs = services_of(tally).store.database.attached.require_blobs()

        def away(*_: Any) -> None:
            raise StorageError("away")

        with monkeypatch.context() as patched:
            patched.setattr(type(blobs), "delete", away)
            with pytest.raises(StorageError, match="away"):
                root.operator.erase_recorded(run_id, reason="asked", mode="apply")
        assert len(place.names()) == 1
        noted = [one for one in root.operator.doctor() if one.check == "objects"]
        assert "1 of what was erased" in noted[0].text
        root.operator.doctor(repair=True, reason="r")
        assert place.names() == []
        assert ada.recordings.verify(run_id).ok
        # Deleted twice, as by two processes at once: no error.
        assert objects.remove_doomed(services_of(tally).store.database) == 0


def test_an_object_whose_reference_was_never_committed_is_swept(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    with place.open() as tally:
        _recorded(tally)
        tally.drain()
        _recorded(tally, LARGE + "cut off")
        database = services_of(tally).store.database

        def cut(*_: Any, **__: Any) -> None:
            raise KeyboardInterrupt

        with monkeypatch.context() as patched:
            patched.setattr(database, "write", cut)
            with pytest.raises(KeyboardInterrupt):
                objects.move(database)
        assert len(place.names()) == 2
        assert objects.sweep(database) == 0  # it may be about to be committed
        assert objects.sweep(database, older_than=0) == 1
        assert len(place.names()) == 1
        assert objects.move(database, everything=True) == 1
        assert [one.status for one in tally.bind(ROOT).operator.doctor() if one.check == "objects"]


@pytest.mark.parametrize("harm", ["missing", "altered"])
def test_a_lost_object_is_a_clear_error_and_the_doctor_finds_it(place: Place, harm: str) -> None:
    with place.open() as tally:
        ada, root = tally.bind(ADA), tally.bind(ROOT)
        large = ada.remember(LARGE, kind="fact")
        other = ada.remember(LARGE + "another", kind="fact")
        tally.drain()
        with services_of(tally).store.database.read() as connection:
            [first, _] = objects.list_references(connection)
        if harm == "missing":
            place.blobs.delete(first.name)
        else:
            place.blobs.put(first.name, b"something else")
        problems = [
            one.text
            for one in root.operator.doctor()
            if (one.check, one.status) == ("objects", "problem")
        ]
        assert len(problems) == 1
        assert first.name in problems[0]
        with pytest.raises(CorruptTally, match=first.name):
            [ada.source(one.source_id) for one in (large, other)]


def test_a_store_that_is_away_costs_a_writer_nothing(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    with place.open() as tally:
        database = services_of(tally).store.database
        blobs = database.attached.require_blobs()

        def away(*_: Any) -> None:
            raise StorageError("away")

        with monkeypatch.context() as patched:
            patched.setattr(type(blobs), "put", away)
            large = tally.bind(ADA).remember(LARGE, kind="fact")
            follow_objects(tally)
            assert tally.bind(ADA).source(large.source_id).text == LARGE
            with pytest.raises(StorageError, match="away"):
                tally.drain()
        tally.drain()
        assert len(place.names()) == 1


def test_nothing_is_put_inside_a_write_transaction(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tallystick.ports import forbid_inside_transaction

    calls = []
    with place.open() as tally:
        blobs = services_of(tally).store.database.attached.require_blobs()
        put = type(blobs).put

        def watched(self: Any, name: str, body: bytes) -> None:
            forbid_inside_transaction("put")
            calls.append(name)
            put(self, name, body)

        monkeypatch.setattr(type(blobs), "put", watched)
        _recorded(tally)
        tally.bind(ADA).remember(LARGE, kind="fact")
        tally.drain()
    assert len(calls) == 2


def test_two_tallies_in_one_store_leave_one_another_alone(where: str, tmp_path: Path) -> None:
    first = Place(where, lambda **given: Tally.open(tmp_path / "one", background=False, **given))
    second = Place(where, lambda **given: Tally.open(tmp_path / "two", background=False, **given))
    with first.open() as one, second.open() as two:
        kept = one.bind(ADA).remember(LARGE, kind="fact")
        two.bind(ADA).remember(LARGE, kind="fact")
        one.drain()
        two.drain()
        assert objects.sweep(services_of(two).store.database, older_than=0) == 0
        assert one.bind(ADA).source(kept.source_id).text == LARGE


def test_a_text_that_looks_like_a_reference_is_a_text(place: Place) -> None:
    with place.open() as tally:
        database = services_of(tally).store.database
        large = tally.bind(ADA).remember(LARGE, kind="fact")
        tally.drain()
        from tallystick.storage.rows import parts, scopes

        with database.read() as connection:
            [reference] = objects.list_references(connection)
        forged = b"\x00tallystick\x00>" + f"{reference.name} {reference.sha256} 1".encode()

        def unit(tx: Any) -> tuple[int, str]:
            scope = scopes.ensure(tx, ADA.private_scope)
            return scope.id, parts.put(tx, scope, forged, at=1)

        scope_id, key = database.write(unit, name="test")
        with database.read() as connection:
            assert parts.get(connection, scope_id, key) == forged
        assert large.source_id


def test_a_backup_and_an_export_have_the_bodies_and_the_new_tally_its_own(
    where: str, tmp_path: Path
) -> None:
    place = Place(where, lambda **given: Tally.open(tmp_path / "one", background=False, **given))
    with place.open() as tally:
        ada = tally.bind(ADA)
        run_id = _recorded(tally)
        large = ada.remember(LARGE, kind="fact")
        tally.drain()
        before = set(place.names())
        tally.bind(ROOT).operator.backup(tmp_path / "backup")
        ada.operator.export(tmp_path / "export")
    Tally.restore(tmp_path / "backup", tmp_path / "two", actor=ROOT)
    imported = Tally.open(tmp_path / "three", background=False)
    with imported:
        imported.bind(ROOT).operator.import_from(tmp_path / "export")
    for name in ("two", "three"):
        with Tally.open(tmp_path / name, background=False, create=False) as tally:
            ada = tally.bind(ADA)
            assert ada.source(large.source_id).text == LARGE
            assert ada.recordings.verify(run_id).ok
            with services_of(tally).store.database.read() as connection:
                assert list(objects.list_references(connection)) == []
    assert set(place.names()) == before


def test_a_tally_opened_without_its_objects_says_what_is_missing(
    open_tally: OpenTally, tmp_path: Path
) -> None:
    place = Place(str(tmp_path / "objects"), open_tally)
    with place.open() as tally:
        large = tally.bind(ADA).remember(LARGE, kind="fact")
        tally.drain()
    with (
        open_tally(embedder=HashEmbedder()) as tally,
        pytest.raises(StorageError, match="setting `objects`"),
    ):
        tally.bind(ADA).source(large.source_id)


@pytest.mark.parametrize("where", ["http://host/bucket", "s3://", "s3://bucket?x=1"])
def test_a_place_that_is_none_is_refused_when_it_is_given(where: str, tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="objects"):
        Tally.open(tmp_path / "tally", settings=Settings.read(objects=where))


def _erased(tally: Tally, memory_id: str) -> Any:
    root = tally.bind(ROOT)
    preview = root.operator.erase(memory_id, reason="asked")
    return root.operator.erase(
        memory_id, reason="asked", mode="apply", confirm_token=preview.confirm_token
    )


@pytest.mark.parametrize("harm", ["missing", "altered"])
def test_a_lost_object_stands_in_the_way_of_no_erasure(place: Place, harm: str) -> None:
    with place.open() as tally:
        ada = tally.bind(ADA)
        large = ada.remember(LARGE, kind="fact")
        tally.drain()
        [name] = place.names()
        name = name.removeprefix("tallies/")
        if harm == "missing":
            place.blobs.delete(name)
        else:
            place.blobs.put(name, LARGE.encode() + b" and more")
        other = ada.remember("The owl is called Quentin.", kind="fact")

        [proof] = _erased(tally, other.id).proofs
        assert proof.holds
        named = [each for each in proof.cannot_prove if name in each]
        assert len(named) == (1 if harm == "missing" else 0)

        assert _erased(tally, large.id).proofs[0].holds
        assert place.names() == []


def test_a_backup_leaves_out_what_is_lost_and_the_restored_tally_says_so(
    where: str, tmp_path: Path
) -> None:
    place = Place(where, lambda **given: Tally.open(tmp_path / "one", background=False, **given))
    with place.open() as tally:
        ada = tally.bind(ADA)
        lost = ada.remember(LARGE, kind="fact")
        tally.drain()
        [name] = place.names()
        kept = ada.remember(OTHER, kind="fact")
        tally.drain()
        place.blobs.delete(name.removeprefix("tallies/"))
        backup = tally.bind(ROOT).operator.backup(tmp_path / "backup")
        assert any("1 bodies" in each and "left out" in each for each in backup.checked)
    Tally.restore(tmp_path / "backup", tmp_path / "two", actor=ROOT)
    with Tally.open(tmp_path / "two", background=False, create=False) as tally:
        ada = tally.bind(ADA)
        assert ada.source(kept.source_id).text == OTHER
        with pytest.raises(CorruptTally, match="was lost"):
            ada.source(lost.source_id)
        assert _erased(tally, lost.id).proofs[0].holds


def test_a_backup_goes_on_while_others_erase(
    place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is erased after the moment of the backup is not there to be copied any more."""
    with place.open() as tally:
        tally.bind(ADA).remember(LARGE, kind="fact")
        tally.drain()
        self_contained = objects.self_contained

        def erased_before(attached: Any, stored: Any, **options: Any) -> bytes:
            for name in place.names():
                place.blobs.delete(name)
            return self_contained(attached, stored, **options)

        with monkeypatch.context() as patched:
            patched.setattr(objects, "self_contained", erased_before)
            backup = tally.bind(ROOT).operator.backup(tmp_path / "backup")
        assert any("erased meanwhile" in each for each in backup.checked)


def test_what_was_large_before_the_setting_or_the_process_is_moved_in_the_end(
    where: str, tmp_path: Path
) -> None:
    with Tally.open(tmp_path / "one", background=False) as tally:
        tally.bind(ADA).remember(LARGE, kind="fact")
    place = Place(where, lambda **given: Tally.open(tmp_path / "one", background=False, **given))
    with place.open() as tally:
        follow_objects(tally)
        assert len(place.names()) == 1
        tally.bind(ADA).remember(LARGE + "another", kind="fact")
    with place.open() as tally:
        tally.drain()
        assert len(place.names()) == 2
        assert tally.bind(ADA).recall("heron of the north harbour").hits


def follow_objects(tally: Tally) -> None:
    """Do what the background does once a minute."""
    [derived] = [each for each in services_of(tally).background.derived if each.name == "objects"]
    patient(derived.name, derived.follow)()


def test_what_nothing_names_is_swept_in_the_background(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    with place.open() as tally:
        tally.bind(ADA).remember(LARGE, kind="fact")
        tally.drain()
        [name] = place.names()
        orphan = f"{name.removeprefix('tallies/').rpartition('/')[0]}/{uuid.uuid4().hex}"
        place.blobs.put(orphan, b"left behind")
        with monkeypatch.context() as patched:
            swept: list[Any] = []
            patched.setattr(objects, "sweep", swept.append)
            follow_objects(tally)
            assert swept == [], "only an hour after the opening"
    monkeypatch.setattr("tallystick.jobs.derived._FIRST_SWEEP", 0.0)
    with place.open() as tally:
        with monkeypatch.context() as patched:
            patched.setattr(objects, "sweep", swept.append)
            follow_objects(tally)
            follow_objects(tally)
            assert len(swept) == 1, "once a day"
        assert objects.sweep(services_of(tally).store.database) == 0
        assert len(place.names()) == 2, "it may be about to be committed"
