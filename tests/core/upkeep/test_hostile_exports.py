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
from tallystick.checkpoints import Leaf, NewCheckpoint
from tallystick.errors import CorruptTally, InvalidInput, TallystickError
from tallystick.records import canonical_json, text_digest
from tallystick.storage import journal
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
    manifest["files"][file.name]["lines"] = len(rows)
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


def test_an_export_of_the_schema_before_is_brought_to_that_of_today(
    tmp_path: Path,
) -> None:
    checkpoint = NewCheckpoint("", "1", None, {}, Leaf("json", b"{}"), {})
    with _open(tmp_path / "tally") as tally:
        owner = tally.bind()
        first = owner.remember("Once.", kind="turn", conversation="c", idempotency_key="key")
        owner.threads.put("chat", checkpoint)
        owner.on("langgraph").threads.put("chat", checkpoint)
        owner.operator.export(tmp_path / "out")
    # As an earlier release wrote it: names in the journal of a thread, keys as they were given.
    stream = "thread:private:root/chat"
    out = tmp_path / "out"
    _change(out, "idempotency", lambda row: row.update(key="key"))
    _change(out, "threads", lambda row: row.pop("stream"))
    head = journal.genesis(stream)

    def chained(rows: list[Any]) -> list[Any]:
        nonlocal head
        for row in rows:
            if row["stream"] == "thread:1":
                entry = [stream, row["position"], head, row["body"]]
                row |= {"stream": stream, "previous": head}
                row["digest"] = head = text_digest("journal", canonical_json(entry))
        return rows

    def named(rows: list[Any]) -> list[Any]:
        for row in rows:
            if row["name"] == "thread:1":
                row |= {"name": stream, "head": head}
        return rows

    _change_all(out, "journal", chained)
    _change_all(out, "streams", named)
    manifest = json.loads((out / "manifest.json").read_text())
    (out / "manifest.json").write_text(json.dumps(manifest | {"schema": "0011"}))
    _sign(out)

    with _open(tmp_path / "new") as tally:
        owner = tally.bind()
        owner.operator.import_from(out)
        again = owner.remember("Once.", kind="turn", conversation="c", idempotency_key="key")
        assert again == first
        with services_of(tally).store.database.read() as connection:
            streams = connection.exec_driver_sql("SELECT stream FROM threads").scalars().all()
        assert streams == [stream]
