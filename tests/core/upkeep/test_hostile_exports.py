"""An export that somebody else made: import reads its own files alone, and refuses what no release
writes.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tallystick import Actor, Tally
from tallystick.errors import CorruptTally, InvalidInput, TallystickError
from tallystick.records import canonical_json, text_digest
from tallystick.storage.engine import tables
from tallystick.tally.services import services_of
from tallystick.testing import HashEmbedder

ROOT = Actor(user="root", role="operator")
SECRET = "TOP SECRET OF THE HOST"


def _open(folder: Path) -> Tally:
    return Tally.open(folder, owner=ROOT, embedder=HashEmbedder(), background=False)


@pytest.fixture(scope="module")
def export(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An export with rows in most tables and a blob."""
    folder = tmp_path_factory.mktemp("hostile")
    with _open(folder / "tally") as tally:
        owner = tally.bind()
        first = owner.remember("The heron nests in March.", tags=["birds"])
        owner.modify(first.id, content="The heron nests in April.", reason="later")
        with owner.run("coder", goal="g") as run, run.step("model_call") as step:
            step.record("request", {"text": "x" * 9_000 + str(list(range(3_000)))})
        owner.recall("heron")
        owner.operator.export(folder / "out")
    (folder / "secret.txt").write_text(SECRET)
    manifest = json.loads((folder / "out" / "manifest.json").read_text())
    assert manifest["blobs"]
    return folder / "out"


@pytest.fixture
def copy(export: Path, tmp_path: Path) -> Path:
    shutil.copytree(export, tmp_path / "out")
    shutil.copy(export.parent / "secret.txt", tmp_path / "secret.txt")
    return tmp_path / "out"


def _sign(folder: Path) -> None:
    """Make the digests of an export fit its files again, which anybody can."""
    manifest = json.loads((folder / "manifest.json").read_text())
    for name, entry in manifest["files"].items():
        entry["sha256"] = hashlib.sha256((folder / name).read_bytes()).hexdigest()
    manifest.pop("digest", None)
    manifest["digest"] = text_digest("export", canonical_json(manifest))
    (folder / "manifest.json").write_text(json.dumps(manifest))


def _change(folder: Path, table: str, change: Callable[[dict[str, Any]], None]) -> None:
    file = folder / f"{table}.jsonl"
    rows = [json.loads(line) for line in file.read_text().splitlines()]
    change(rows[0])
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    _sign(folder)


def _refused(folder: Path, target: Path) -> None:
    with _open(target) as tally:
        with pytest.raises(TallystickError):
            tally.bind().operator.import_from(folder)
        with services_of(tally).store.database.read() as connection:
            for table in ("scopes", "memories", "parts", "runs"):
                assert not connection.exec_driver_sql(f"SELECT * FROM {table}").all()
        tally.bind().remember("It still works.")


@pytest.mark.parametrize(
    "key",
    ["../../secret.txt", "{secret}", "../manifest.json", "", ".", "0" * 64, None, 7, ["x"]],
)
def test_a_row_names_no_file_but_a_blob_of_the_manifest(
    copy: Path, tmp_path: Path, key: Any
) -> None:
    if isinstance(key, str):
        key = key.format(secret=tmp_path / "secret.txt")
    _change(copy, "parts", lambda row: row.update(body={"blob": key}))
    _refused(copy, tmp_path / "target")


@pytest.mark.parametrize("member", ["parts.jsonl", "blobs", "blobs/*", "manifest.json"])
def test_a_member_that_is_a_link_is_refused(copy: Path, tmp_path: Path, member: str) -> None:
    file = next(copy.glob(member))
    outside = tmp_path / "outside"
    shutil.move(file, outside)
    file.symlink_to(outside)
    _refused(copy, tmp_path / "target")


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="has no pipes")
def test_a_member_that_is_a_pipe_does_not_hang(copy: Path, tmp_path: Path) -> None:
    (copy / "parts.jsonl").unlink()
    os.mkfifo(copy / "parts.jsonl")
    _refused(copy, tmp_path / "target")


def test_a_blob_has_the_bytes_that_its_name_says(copy: Path, tmp_path: Path) -> None:
    blob = next((copy / "blobs").iterdir())
    blob.write_bytes(blob.read_bytes() + b" ")
    _refused(copy, tmp_path / "target")


def test_an_export_as_it_was_written_is_imported(copy: Path, tmp_path: Path) -> None:
    with _open(tmp_path / "target") as tally:
        assert tally.bind().operator.import_from(copy).memories == 1
        assert tally.bind().recall("heron")[0].content == "The heron nests in April."
        assert all(each.status != "problem" for each in tally.bind().operator.doctor())


@pytest.fixture(params=["empty", "filled"])
def target(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    if request.param == "filled":
        with _open(tmp_path / "target") as tally:
            tally.bind(Actor(user="bob")).remember("Bob was here first.")
    return tmp_path / "target"


def _change_all(folder: Path, table: str, change: Callable[[list[Any]], list[Any]]) -> None:
    file = folder / f"{table}.jsonl"
    rows = change([json.loads(line) for line in file.read_text().splitlines()])
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    manifest = json.loads((folder / "manifest.json").read_text())
    manifest["rows"][table] = len(rows)
    (folder / "manifest.json").write_text(json.dumps(manifest))
    _sign(folder)


def _altered(rows: list[Any]) -> list[Any]:
    for row in rows:
        row["body"] = row["body"].replace("heron", "eagle")
    return rows


@pytest.mark.parametrize(
    ("table", "change", "problem"),
    [
        ("journal", lambda rows: rows[1:], "does not verify"),
        ("journal", lambda rows: rows[:-1], "does not verify"),
        ("memory_versions", _altered, "do not match their commitments"),
    ],
    ids=["first entry", "last entry", "texts"],
)
def test_what_does_not_verify_is_imported_into_no_tally(
    copy: Path, target: Path, table: str, change: Any, problem: str
) -> None:
    _change_all(copy, table, change)
    with _open(target) as tally:
        with pytest.raises(CorruptTally, match=problem):
            tally.bind().operator.import_from(copy)
        assert tally.bind().memories() == []
        assert all(each.status != "problem" for each in tally.bind().operator.doctor())


@pytest.mark.parametrize(
    ("table", "change", "problem"),
    [
        ("access_log", {"scopes": "[[]]"}, "names no scopes"),
        ("access_log", {"scopes": '["private:bob"]'}, "names what it does not have"),
        ("scopes", {"name": "private:bob"}, "names what it does not have"),
        ("journal", {"sequence": None}, "a value of journal.sequence that no release writes"),
        ("parts", {"colour": "red"}, "a row of parts with other columns"),
    ],
)
def test_a_row_that_no_release_writes_is_refused_before_anything_is_written(
    copy: Path, target: Path, table: str, change: dict[str, Any], problem: str
) -> None:
    _change(copy, table, lambda row: row.update(change))
    _refused_unseen(copy, target, problem)


def test_a_file_has_the_lines_that_the_manifest_says(copy: Path, target: Path) -> None:
    file = copy / "journal.jsonl"
    file.write_text("".join(file.read_text().splitlines(keepends=True)[:-1]))
    _sign(copy)
    _refused_unseen(copy, target, "has not the lines")


def test_an_export_grants_no_approval(copy: Path, target: Path) -> None:
    """No export has approvals: one that came would let a blocked action pass."""
    columns = {column.name for column in tables.approvals.columns if not column.nullable}
    row = dict.fromkeys(columns, "x") | {"scope_id": 1, "state": "granted"}
    row |= {"created_at": 1, "expires_at": 2**50, "schema_version": 1, "id": "a"}
    (copy / "approvals.jsonl").write_text(json.dumps(row) + "\n")
    manifest = json.loads((copy / "manifest.json").read_text())
    manifest["files"]["approvals.jsonl"] = {"sha256": "", "size": 1}
    manifest["rows"]["approvals"] = 1
    (copy / "manifest.json").write_text(json.dumps(manifest))
    _sign(copy)
    with (
        _open(target) as tally,
        pytest.raises(CorruptTally, match=r"'approvals\.jsonl', which no release writes"),
    ):
        tally.bind().operator.import_from(copy)


def _refused_unseen(copy: Path, target: Path, problem: str) -> None:
    """The import is refused, and not even a number was given."""
    with _open(target) as tally:
        database = services_of(tally).store.database
        with database.read() as connection:
            counters = connection.exec_driver_sql("SELECT * FROM sqlite_sequence").all()
        with pytest.raises(CorruptTally, match=f"{problem}.* Nothing was imported"):
            tally.bind().operator.import_from(copy)
        with database.read() as connection:
            assert connection.exec_driver_sql("SELECT * FROM sqlite_sequence").all() == counters


HOSTILE: st.SearchStrategy[Any] = st.sampled_from(
    [
        None,
        True,
        -1,
        0,
        2**63,
        10**400,
        0.5,
        float("inf"),
        "",
        "\x00",
        "\ud800",
        "../../secret.txt",
        "'; DROP TABLE memories; --",
        [],
        {},
        {"blob": "../../secret.txt"},
        {"blob": "x", "base64": ""},
        {"base64": "%%%"},
        {"base64": 7},
        [[[[]]]],
    ]
)


@given(data=st.data())
@settings(
    max_examples=settings().max_examples // 4,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
def test_whatever_a_field_says_import_raises_our_errors_or_imports(
    export: Path, tmp_path: Path, targets: _Targets, data: st.DataObject
) -> None:
    """25 fields as a rule, 500 under `make soak`. Nothing is stored of what is refused."""
    folder = tmp_path / "fuzzed"
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(export, folder)
    files = sorted(file for file in export.glob("*.json*") if file.stat().st_size)
    file = data.draw(st.sampled_from(files))
    texts = file.read_text().splitlines() if file.suffix == ".jsonl" else [file.read_text()]
    lines = [json.loads(text) for text in texts]
    row = data.draw(st.sampled_from(lines))
    field = data.draw(st.sampled_from([*row, "another"]))
    if data.draw(st.booleans()):
        row[field] = data.draw(HOSTILE)
    else:
        row.pop(field, None)
    (folder / file.name).write_text("".join(json.dumps(line) + "\n" for line in lines))
    with contextlib.suppress(AttributeError, KeyError, InvalidInput, TypeError):
        _sign(folder)
    tally = targets.empty()
    try:
        tally.bind().operator.import_from(folder)
        targets.filled = True
    except TallystickError:
        with services_of(tally).store.database.read() as connection:
            assert not connection.exec_driver_sql("SELECT * FROM scopes").all()
    written = b"".join(each.read_bytes() for each in Path(tally.location).glob("tally.db*"))
    assert SECRET.encode() not in written


class _Targets:
    """Empty tallies: a new one once an import went through."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._count = folder, 0
        self._tally: Tally | None = None
        self.filled = False

    def empty(self) -> Tally:
        if self._tally is None or self.filled:
            self.close()
            self._count += 1
            self._tally, self.filled = _open(self._folder / str(self._count)), False
        return self._tally

    def close(self) -> None:
        if self._tally is not None:
            self._tally.close()


@pytest.fixture
def targets(tmp_path: Path) -> Iterator[_Targets]:
    targets = _Targets(tmp_path / "targets")
    yield targets
    targets.close()
