"""A folder is read as it stands, as git sees it, and never beyond it."""

from __future__ import annotations

import os
import shutil
import subprocess
import threading
from pathlib import Path

import pytest

from tallystick.testing.source_contract import Source, SourceContract
from tallystick_ingest.contract import NotOfFormat, Skipped, SourceRecord, Yielded
from tallystick_sources.files import FilesSource


def _write(root: Path, files: dict[str, str | bytes]) -> None:
    for name, content in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)


def _read(root: Path, source: FilesSource | None = None) -> dict[str, Yielded]:
    items = (source or FilesSource()).records(str(root), None, lambda _: None)
    return {item.record_id: item for item in items if hasattr(item, "record_id")}


class TestContract(SourceContract):
    @pytest.fixture
    def source(self, tmp_path: Path) -> Source:
        root = tmp_path / "notes"
        _write(root, {f"{number % 7}/{number:03}.md": f"# Note {number}" for number in range(230)})
        _write(root, {"b.txt": "b", "a/b.txt": "in a folder", "a.txt": "beside it"})
        (root / "away.txt").symlink_to("/etc/hostname")
        return Source(
            FilesSource,
            str(root),
            not_of_format=(str(tmp_path / "nothing"), "/dev/null"),
            skipped=frozenset({"away.txt"}),
        )


class TestContractOfAFile(SourceContract):
    @pytest.fixture
    def source(self, tmp_path: Path) -> Source:
        _write(tmp_path, {"a.md": "# One", "b.md": "# Two"})
        return Source(FilesSource, str(tmp_path))


def test_a_single_file_is_a_corpus_of_its_own(tmp_path: Path) -> None:
    _write(tmp_path, {"note.md": "# One", "other.md": "# Two"})

    [record] = _read(tmp_path / "note.md").values()

    assert isinstance(record, SourceRecord)
    assert (record.record_id, record.body, record.media_type) == (
        "note.md",
        b"# One",
        "text/markdown",
    )


def test_what_git_ignores_is_left_out(tmp_path: Path) -> None:
    if shutil.which("git") is None:
        pytest.skip("git is not on this machine")
    _write(
        tmp_path,
        {
            ".gitignore": "*.log\n!kept.log\nbuild/\n/top.txt\ndoc/*.pdf\n**/deep/*.tmp\n\\#x\n[\n"
            "a b.txt\n# a comment\nspace \\ \n",
            "one.log": "1",
            "kept.log": "1",
            "build/x.txt": "1",
            "src/build/y.txt": "1",
            "top.txt": "1",
            "src/top.txt": "1",
            "doc/a.pdf": "1",
            "doc/more/b.pdf": "1",
            "x/deep/c.tmp": "1",
            "#x": "1",
            "a b.txt": "1",
            "src/.gitignore": "!one.log\nlocal\n*.md\n",
            "src/one.log": "1",
            "src/two.log": "1",
            "src/local/z.txt": "1",
            "src/readme.md": "1",
            "src/inner/.gitignore": "!readme.md\n",
            "src/inner/readme.md": "1",
            "local/fine.txt": "1",
        },
    )
    git = ["git", "-c", "core.excludesFile=", "-C", str(tmp_path)]
    subprocess.run([*git, "init", "-q"], check=True, capture_output=True)
    listed = subprocess.run(
        [*git, "ls-files", "-z", "--others", "--exclude-standard"], check=True, capture_output=True
    )

    assert sorted(_read(tmp_path)) == sorted(listed.stdout.decode().split("\0")[:-1])


def test_a_pattern_that_is_none_or_is_made_to_take_hours_is_ignored(tmp_path: Path) -> None:
    _write(tmp_path, {".gitignore": f"[z-a]\n{'*a' * 20}b\n*.log\n", "a" * 200: "1", "b.log": "1"})

    assert sorted(_read(tmp_path)) == [".gitignore", "a" * 200]


def test_a_link_is_followed_only_within_the_folder(tmp_path: Path) -> None:
    root = tmp_path / "root"
    _write(root, {"a.txt": "inside", "sub/b.txt": "b"})
    _write(tmp_path, {"secret.txt": "secret", "other/c.txt": "c"})
    (root / "inside.txt").symlink_to(root / "a.txt")
    (root / "out.txt").symlink_to(tmp_path / "secret.txt")
    (root / "folder-out").symlink_to(tmp_path / "other")
    (root / "folder-in").symlink_to(root / "sub")
    (root / "loop").symlink_to(root / "loop")
    (root / "nowhere").symlink_to(root / "gone")

    items = _read(root)

    inside = items["inside.txt"]
    assert isinstance(inside, SourceRecord)
    assert inside.body == b"inside"
    assert {
        name: item.reason for name, item in sorted(items.items()) if isinstance(item, Skipped)
    } == {
        "folder-in": "ignored",
        "folder-out": "outside",
        "loop": "unreadable",
        "nowhere": "not_found",
        "out.txt": "outside",
    }


def test_what_cannot_be_read_is_skipped_with_its_reason(tmp_path: Path) -> None:
    _write(tmp_path, {"fine.txt": "fine", "large.txt": "x" * 2_000})
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / os.fsdecode(b"caf\xe9.txt")).write_text("latin")

    items = _read(tmp_path, FilesSource(largest=1_000))

    assert {name: item.reason for name, item in items.items() if isinstance(item, Skipped)} == {
        "large.txt": "too_large",
        "pipe": "unsupported_type",
        "caf\\udce9.txt": "unreadable",
    }


def test_a_file_that_changes_while_it_is_read_is_skipped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "busy.log"
    file.write_text("first")
    look = os.fstat

    def look_and_write(descriptor: int) -> os.stat_result:
        status = look(descriptor)
        with file.open("a") as log:
            log.write(" and more")
        return status

    items = FilesSource().records(str(tmp_path), None, lambda _: None)
    monkeypatch.setattr("tallystick_sources.files.os.fstat", look_and_write)
    first = next(items)
    monkeypatch.undo()

    assert first == Skipped("busy.log", "unreadable", "a file that changes while it is read")


def test_folders_may_be_deep_and_one_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    deep = tmp_path
    for _ in range(1_200):
        deep = deep / "d"
    subprocess.run(["mkdir", "-p", str(deep)], check=True)
    (deep / "end.txt").write_text("end")
    closed = tmp_path / "closed"
    closed.mkdir()
    (closed / "a.txt").write_text("a")
    closed.chmod(0)

    try:
        items = _read(tmp_path)
    finally:
        closed.chmod(0o700)
        subprocess.run(["rm", "-r", str(tmp_path / "d")], check=True)  # Python's own recurses

    assert f"{'d/' * 1_200}end.txt" in items
    if os.geteuid() != 0:
        assert items["closed"] == Skipped("closed", "unreadable", "a folder: Permission denied")


def test_a_path_outside_of_the_roots_is_refused(tmp_path: Path) -> None:
    _write(tmp_path, {"allowed/a.txt": "a", "other/b.txt": "b"})
    (tmp_path / "allowed/link").symlink_to(tmp_path / "other")
    source = FilesSource([tmp_path / "allowed"])

    assert source.corpus(str(tmp_path / "allowed")).id.endswith("/allowed")
    for target in ("other", "allowed/../other", "allowed/link"):
        with pytest.raises(NotOfFormat, match="outside of the folders"):
            source.corpus(str(tmp_path / target))


def test_media_types_are_those_of_the_name_and_of_the_bytes(tmp_path: Path) -> None:
    _write(
        tmp_path,
        {
            "a.md": "# a",
            "b.rst": "b",
            "c.html": "<p>c",
            "d.unknown": "d",
            "e.txt": b"%PDF-1.7 ...",
            "f.docx": b"PK\x03\x04 ...",
            "g": b"a\x00b",
            "h.ts": "let x",
        },
    )

    kinds = [item.media_type for item in _read(tmp_path).values() if isinstance(item, SourceRecord)]

    assert kinds == [
        "text/markdown",
        "text/x-rst",
        "text/html",
        "text/plain",
        "application/pdf",
        "application/zip",
        "application/octet-stream",
        "text/x-typescript",
    ]


def test_a_watch_tells_when_to_sync_again(tmp_path: Path) -> None:
    _write(tmp_path, {"a.txt": "a", ".git/index": "x"})
    stop = threading.Event()
    seen: list[frozenset[str]] = []

    def watch() -> None:
        for changed in FilesSource().watch(str(tmp_path), stop=stop, debounce=50):
            seen.append(changed)
            stop.set()

    thread = threading.Thread(target=watch)
    thread.start()
    number = 0
    while thread.is_alive():
        number += 1
        _write(tmp_path, {"b.txt": f"b {number}", ".git/index": str(number)})
        thread.join(0.1)

    assert seen == [frozenset({"b.txt"})]
