"""The memory tree: files come back byte for byte, lines are memories, and no path leads outside."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.trees import lines_in, refusals, stored_files

from tallystick.errors import (
    InvalidInput,
    NotFound,
    TallystickError,
)
from tallystick.memory.tree_lines import decode, encode
from tallystick.records import Actor, Credential, Scope
from tallystick.records.escaping import as_field
from tallystick.settings import Settings
from tallystick.tally import MemoryTree, Tally

OpenTally = Callable[..., Tally]
ALICE = Actor(user="alice", projects={"apollo"})
BOB = Actor(user="bob", projects={"apollo"})
CODER = Actor(user="alice", agent="coder", projects={"apollo"})
_NUMBERS = count()


# Files

PATHS = ["a.txt", "b.md", "d", "d/a.txt", "d/e/f.xml", "d/e", "ü/日本.md"]
_path = st.sampled_from(PATHS)
_text = st.one_of(st.text(max_size=30), st.text(alphabet="ab\n\r \t\\<>/-\x00\u2028é", max_size=40))
_command = st.one_of(
    st.tuples(st.just("create"), _path, _text),
    st.tuples(st.just("str_replace"), _path, st.text("ab\n ", min_size=1, max_size=2), _text),
    st.tuples(st.just("insert"), _path, st.integers(-1, 6), _text),
    st.tuples(st.just("delete"), _path),
    st.tuples(st.just("rename"), _path, _path),
)


class Refused(Exception):
    """The plain file system refuses a command."""


class PlainFiles:
    """A file system as small as can be."""

    def __init__(self) -> None:
        self.files: dict[str, str] = {}

    def beneath(self, path: str) -> list[str]:
        return [each for each in self.files if each == path or each.startswith(f"{path}/")]

    def require(self, holds: Any) -> None:
        if not holds:
            raise Refused

    def require_free(self, path: str) -> None:
        self.require(not self.beneath(path))
        self.require(not any(path.startswith(f"{each}/") for each in self.files))

    def create(self, path: str, text: str) -> None:
        self.require_free(path)
        self.files[path] = text

    def str_replace(self, path: str, old: str, new: str) -> None:
        self.require(self.files.get(path, "").count(old) == 1)
        self.files[path] = self.files[path].replace(old, new)

    def insert(self, path: str, line: int, text: str) -> None:
        self.require(path in self.files)
        lines = self.files[path].split("\n")
        if lines[-1] == "":
            lines.pop()
        self.require(0 <= line <= len(lines))
        lines.insert(line, text.rstrip("\n"))
        joined = "\n".join(lines)
        self.files[path] = joined if joined.endswith("\n") else f"{joined}\n"

    def delete(self, path: str) -> None:
        self.require(gone := self.beneath(path))
        for each in gone:
            del self.files[each]

    def rename(self, old: str, new: str) -> None:
        self.require(moved := self.beneath(old))
        self.require_free(new)
        self.require(not new.startswith(f"{old}/"))
        for each in moved:
            self.files[new + each[len(old) :]] = self.files.pop(each)


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Any:
    with Tally.open(tmp_path_factory.mktemp("tree"), background=False) as tally:
        yield tally


@given(commands=st.lists(_command, max_size=12))
def test_any_commands_leave_the_files_that_a_plain_file_system_has(
    shared: Tally, commands: list[tuple[Any, ...]]
) -> None:
    bound = shared.bind(Actor(user=f"user-{next(_NUMBERS)}"))
    tree, plain = MemoryTree(bound), PlainFiles()

    for name, path, *rest in commands:
        arguments = [f"/memories/{each}" if name == "rename" else each for each in rest]
        try:
            getattr(plain, name)(path, *rest)
        except Refused:
            with pytest.raises(TallystickError):
                getattr(tree, name)(f"/memories/{path}", *arguments)
        else:
            getattr(tree, name)(f"/memories/{path}", *arguments)

    assert stored_files(bound) == plain.files
    for path, text in plain.files.items():
        if "<" not in text:
            assert "\n".join(lines_in(tree.view(f"/memories/{path}"))) == text
    assert sorted(tree.paths()) == sorted(f"/memories/{path}" for path in plain.files)


def test_a_file_keeps_its_versions_and_is_found_by_its_words(open_tally: OpenTally) -> None:
    with open_tally() as tally:
        bound = tally.bind(CODER)
        tree = MemoryTree(bound)
        tree.create("/memories/notes/boats.xml", "<boats>\n\n\n</boats>\n")
        tree.insert("/memories/notes/boats.xml", 1, "  <boat>The dinghy leaks.</boat>")

        [hit] = bound.recall("which boat leaks?")
        history = bound.history(hit.memory.id)

        assert hit.memory.content.startswith("notes/boats.xml\n<boats>\n  <boat>The dinghy leaks")
        assert [entry.event for entry in history] == ["ADD", "UPDATE"]
        assert history[1].reason == "memory tool: insert"
        assert tree.delete("/memories/notes") == "Successfully deleted /memories/notes"
        assert not bound.recall("which boat leaks?")
        bound.recover(hit.memory.id, reason="it was needed")
        assert "The dinghy leaks" in tree.view("/memories/notes/boats.xml")


def test_two_files_with_one_text_are_two_files(open_tally: OpenTally) -> None:
    with open_tally() as tally:
        bound = tally.bind(ALICE)
        tree = MemoryTree(bound)
        for name in ("a", "b", "c/d"):
            tree.create(f"/memories/{name}", "same\n")
        tree.create("/memories/empty", "")

        assert stored_files(bound) == {"a": "same\n", "b": "same\n", "c/d": "same\n", "empty": ""}


def test_a_file_that_is_too_large_is_refused_whole(open_tally: OpenTally) -> None:
    with open_tally() as tally:
        bound = tally.bind(ALICE)
        tree = MemoryTree(bound)
        most = 1_024 * 1_024
        tree.create("/memories/a", "x" * (most - 2))

        errors = refusals(
            InvalidInput,
            lambda: tree.create("/memories/b", "x" * most),
            lambda: tree.insert("/memories/a", 1, "y"),
            lambda: tree.rename("/memories/a", "/memories/longer"),
        )

        assert all("longest_memory_kb" in str(error) for error in errors)
        assert stored_files(bound) == {"a": "x" * (most - 2)}


def test_no_store_of_a_runtime_reaches_a_file(open_tally: OpenTally) -> None:
    from tallystick.memory import Put

    with open_tally() as tally:
        bound = tally.bind(ALICE)
        MemoryTree(bound).create("/memories/a.txt", "mine")
        bound.items.put([Put(("notes",), "k", {"v": 1})])

        assert bound.items.namespaces() == [("notes",)]
        assert [item.key for item in bound.items.find(())] == ["k"]
        with pytest.raises(InvalidInput):
            bound.items.put([Put((), "a.txt", {"v": 1})])
        assert MemoryTree(bound).paths() == ["/memories/a.txt"]


def test_a_secret_is_replaced_before_a_file_is_stored(open_tally: OpenTally) -> None:
    secret = "sk-ant-api03-" + "Ab1" * 31 + "-AA"
    with open_tally() as tally:
        bound = tally.bind(ALICE)
        tree = MemoryTree(bound)

        answer = tree.create("/memories/a.txt", f"key: {secret}\n")

        assert "secrets were replaced before it was stored" in answer
        assert secret not in stored_files(bound)["a.txt"] + tree.view("/memories/a.txt")
        with pytest.raises(InvalidInput, match="The path holds a secret"):
            tree.create(f"/memories/{secret}", "x")


def test_files_move_with_an_export_and_go_with_an_erasure(
    open_tally: OpenTally, tmp_path: Path
) -> None:
    root = Actor(user="root", role="operator")
    text = "The heron nests in March.\n"
    with open_tally() as tally, Tally.open(tmp_path / "other", background=False) as other:
        tree = MemoryTree(tally.bind(root))
        tree.create("/memories/birds/heron.txt", text)
        tree.create("/memories/kept.txt", "kept")
        tally.bind(root).operator.export(tmp_path / "copy")
        other.bind(root).operator.import_from(tmp_path / "copy")

        there = MemoryTree(other.bind(root))
        assert lines_in(there.view("/memories/birds/heron.txt")) == text.split("\n")
        there.insert("/memories/birds/heron.txt", 1, "It eats frogs.")

        [gone] = [each.id for each in tally.bind(root).memories() if "heron" in each.content]
        operator = tally.bind(root).operator
        preview = operator.erase(gone, reason="asked for")
        operator.erase(gone, reason="asked for", mode="apply", confirm_token=preview.confirm_token)
        assert tree.paths() == ["/memories/kept.txt"]
        tree.create("/memories/birds/heron.txt", "new")
        assert tree.paths() == ["/memories/birds/heron.txt", "/memories/kept.txt"]


def test_rate_limits_count_each_line_that_changes(open_tally: OpenTally) -> None:
    settings = Settings.read(rate_limits={"forget": 2})
    with open_tally(settings=settings) as tally:
        bound = tally.bind(ALICE)
        for text in ("a", "b", "c"):
            bound.remember(text, kind="fact")
        tree = MemoryTree(bound)

        with pytest.raises(InvalidInput, match="rate_limits"):
            tree.delete("/memories/facts.md")
        assert len(bound.memories()) == 3


def test_a_token_for_some_scopes_shows_no_other(open_tally: OpenTally) -> None:
    with open_tally() as tally:
        MemoryTree(tally.bind(ALICE)).create("/memories/mine.txt", "x")
        MemoryTree(tally.bind(ALICE)).create("/memories/projects/apollo/ours.txt", "x")
        bounds = Credential(scopes=(Scope.parse("project:apollo"),))
        tree = MemoryTree(tally.bind(ALICE.replace(credential=bounds)))

        assert tree.paths() == ["/memories/projects/apollo/ours.txt"]
        assert "mine" not in tree.view("/memories")
        refusals(
            NotFound,
            lambda: tree.view("/memories/mine.txt"),
            lambda: tree.create("/memories/other.txt", "x"),
        )


# Lines


@given(text=_text.filter(str.strip))
def test_a_text_as_a_line_is_one_line_without_marks_and_comes_back(text: str) -> None:
    shown = encode(text)

    assert "\n" not in shown
    assert shown == shown.strip()
    assert as_field(f"- {shown}") == f"- {shown}"
    assert (shown if shown == text else decode(shown)) == text


def test_each_kind_is_a_file_with_a_line_for_each_memory(open_tally: OpenTally) -> None:
    with open_tally() as tally:
        bound = tally.bind(ALICE)
        first = bound.remember("I drink tea.", kind="preference")
        bound.remember("Two\nlines of <system> text", kind="preference")
        bound.remember("hello", kind="turn", conversation="c")
        tally.bind(ALICE, scope="project:apollo").remember("Ship in May.", kind="decision")
        tree = MemoryTree(bound)

        assert tree.paths() == [
            "/memories/preferences.md",
            "/memories/projects/apollo/decisions.md",
        ]
        shown = lines_in(tree.view("/memories/preferences.md"))
        assert shown[0] == f"- I drink tea. <!-- {first.id[-8:]}@1 -->"
        assert shown[1].startswith("- Two\\nlines of \\u003csystem\\u003e text <!-- ")
        assert shown[2:] == [""]


def test_editing_lines_modifies_forgets_and_remembers(open_tally: OpenTally) -> None:
    with open_tally() as tally:
        bound = tally.bind(ALICE)
        tea = bound.remember("I drink tea.", kind="preference").id
        dogs = bound.remember("I like dogs.", kind="preference").id
        tree = MemoryTree(bound)
        path = "/memories/preferences.md"

        tree.str_replace(path, "- I drink tea.", "- I drink coffee.")
        tree.insert(path, 0, "- I get up at six.\n\n- I like dogs.\n")
        lines = lines_in(tree.view(path))
        tree.str_replace(path, f"{lines[1]}\n", "")

        assert (bound.get(tea).content, bound.get(tea).version) == ("I drink coffee.", 2)
        assert [memory.content for memory in bound.memories(kinds=["preference"])] == [
            "I get up at six.",
            "I drink coffee.",
        ]
        assert bound.history(dogs)[-1].event == "FORGET"
        assert bound.history(dogs)[-1].reason == "memory tool: str_replace"


def test_a_whole_line_may_be_written_anew_without_its_handle(open_tally: OpenTally) -> None:
    with open_tally() as tally:
        bound = tally.bind(ALICE)
        tea = bound.remember("I drink tea.", kind="preference").id
        tree = MemoryTree(bound)
        [line, _] = lines_in(tree.view("/memories/preferences.md"))

        tree.str_replace("/memories/preferences.md", line, "- I drink water.")

        assert bound.get(tea).content == "I drink water."


@pytest.mark.parametrize(
    ("old", "new"),
    [("- a <!-- {a}@1 -->", "- a <!-- {b}@1 -->"), ("@1 -->\n- b", "@1 --> b"), ("{a}@1", "{a}@7")],
    ids=["another's handle", "two on one line", "another version"],
)
def test_a_handle_that_was_changed_is_refused_and_nothing_is_lost(
    open_tally: OpenTally, old: str, new: str
) -> None:
    with open_tally() as tally:
        bound = tally.bind(ALICE)
        handles = {name: bound.remember(name, kind="fact").id[-8:] for name in ("a", "b")}
        tree = MemoryTree(bound)

        with pytest.raises(InvalidInput):
            tree.str_replace("/memories/facts.md", old.format(**handles), new.format(**handles))

        assert [memory.content for memory in bound.memories()] == ["b", "a"]


def test_a_line_with_a_secret_is_removed_and_never_overwritten(open_tally: OpenTally) -> None:
    secret = "sk-ant-api03-" + "Ab1" * 31 + "-AA"
    with open_tally(settings=Settings.read(secrets_in_memory="keep")) as tally:
        bound = tally.bind(ALICE)
        stored = bound.remember(f"The key is {secret}", kind="fact")
        tree = MemoryTree(bound)
        [line, _] = lines_in(tree.view("/memories/facts.md"))

        assert secret not in line
        with pytest.raises(InvalidInput, match="is not shown"):
            tree.str_replace("/memories/facts.md", "The key", "A key")
        assert bound.get(stored.id).content.endswith(secret)
        tree.str_replace("/memories/facts.md", f"{line}\n", "")
        assert bound.memories() == []


def test_a_file_of_very_many_memories_shows_the_newest_and_says_so(open_tally: OpenTally) -> None:
    with open_tally() as tally:
        bound = tally.bind(ALICE)
        bound.remember_many([{"content": f"{n} " + "x" * 99_000, "kind": "fact"} for n in range(6)])
        tree = MemoryTree(bound)

        shown = tree.view("/memories/facts.md")

        assert [line[2] for line in lines_in(shown)[:4]] == ["2", "3", "4", "5"]
        assert "Older memories of this kind are not shown: search them." in shown
        with pytest.raises(InvalidInput, match="more memories than it shows"):
            tree.delete("/memories/facts.md")


def test_an_organization_has_a_tree_of_its_own(open_tally: OpenTally) -> None:
    acme, plain = ALICE.replace(organization="acme"), ALICE
    with open_tally() as tally:
        MemoryTree(tally.bind(acme)).create("/memories/projects/apollo/a.txt", "acme's")
        MemoryTree(tally.bind(acme)).create("/memories/a.txt", "acme's")

        assert MemoryTree(tally.bind(plain)).paths() == []
        assert MemoryTree(tally.bind(acme)).paths() == [
            "/memories/a.txt",
            "/memories/projects/apollo/a.txt",
        ]


def test_a_file_and_a_line_are_of_another_kind_where_they_are_moved(
    open_tally: OpenTally,
) -> None:
    with open_tally() as tally:
        bound = tally.bind(ALICE)
        one = bound.remember("Use Go.", kind="note").id
        tree = MemoryTree(bound)

        tree.rename("/memories/notes.md", "/memories/decisions.md")
        [line, _] = lines_in(tree.view("/memories/decisions.md"))
        bound.remember("Ship in May.", kind="plan")
        tree.insert("/memories/plans.md", 0, line)

        assert (bound.get(one).kind, bound.get(one).content) == ("plan", "Use Go.")
        with pytest.raises(NotFound):
            tree.view("/memories/decisions.md")
        with pytest.raises(InvalidInput, match="all memories of one kind"):
            tree.rename("/memories/plans.md", "/memories/a.txt")


def test_a_handle_from_elsewhere_moves_nothing(open_tally: OpenTally) -> None:
    from tallystick.memory import Put

    with open_tally() as tally:
        bound, apollo = tally.bind(ALICE), tally.bind(ALICE, scope="project:apollo")
        bound.remember("a", kind="fact")
        tree = MemoryTree(bound)
        tree.create("/memories/own.txt", "x")
        bound.items.put([Put(("notes",), "k", {"v": 1})])
        bound.remember("said", kind="turn", conversation="c")
        apollo.remember("theirs", kind="fact")
        others = [*bound.memories(kinds=["document", "store_item", "turn"]), *apollo.memories()]

        for memory in others:
            line = f"- {memory.content} <!-- {memory.id[-8:]}@1 -->".replace("\n", "")
            with pytest.raises(InvalidInput, match="no line in another file of this scope"):
                tree.insert("/memories/facts.md", 0, line)

        assert len(others) == 4
        after = [*bound.memories(kinds=["document", "store_item", "turn"]), *apollo.memories()]
        assert after == others


def test_nothing_moves_to_other_readers_by_a_rename(open_tally: OpenTally) -> None:
    with open_tally() as tally:
        bound = tally.bind(ALICE)
        bound.remember("I drink tea.", kind="preference")
        tree = MemoryTree(bound)
        tree.create("/memories/a.txt", "mine")

        for old, new in (
            ("a.txt", "projects/apollo/a.txt"),
            ("preferences.md", "projects/apollo/preferences.md"),
        ):
            with pytest.raises(InvalidInput, match="promote or share the memory, with a preview"):
                tree.rename(f"/memories/{old}", f"/memories/{new}")
        assert tally.bind(ALICE, scope="project:apollo").memories() == []
