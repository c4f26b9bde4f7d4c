"""The memory tree with others: conflicts, paths that lead outside, hidden scopes, processes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.trees import refusals, stored_files, unframed

from tallystick.errors import (
    Conflict,
    Denied,
    InvalidInput,
    NotFound,
    StateConflict,
    VersionConflict,
)
from tallystick.memory.tree_paths import folder_name, place_of
from tallystick.records import Actor
from tallystick.tally import MemoryTree, Tally

OpenTally = Callable[..., Tally]
ALICE = Actor(user="alice", projects={"apollo"})
BOB = Actor(user="bob", projects={"apollo"})
CODER = Actor(user="alice", agent="coder", projects={"apollo"})


# Conflicts


def test_an_edit_of_what_changed_since_it_was_shown_is_a_conflict(open_tally: OpenTally) -> None:
    with open_tally() as tally:
        apollo = tally.bind(ALICE, scope="project:apollo")
        ship = apollo.remember("Ship in May.", kind="decision").id
        alice, bob = MemoryTree(tally.bind(ALICE)), MemoryTree(tally.bind(BOB))
        view, text = "/memories/projects/apollo/decisions.md", "/memories/projects/apollo/a.txt"
        alice.create(text, "one\ntwo\n")
        for tree in (alice, bob):
            tree.view(view)
            tree.view(text)

        alice.str_replace(view, "in May", "in June, and tell everybody")
        alice.insert(text, 0, "zero")

        refusals(
            VersionConflict,
            lambda: bob.str_replace(view, "Ship", "Sail"),
            lambda: bob.insert(text, 1, "x"),
            lambda: bob.str_replace(text, "two", "2"),
            lambda: bob.rename(text, "/memories/projects/apollo/b.txt"),
            lambda: bob.delete(text),
            lambda: bob.delete(view),
        )
        assert apollo.get(ship).content == "Ship in June, and tell everybody."
        assert stored_files(apollo) == {"a.txt": "zero\none\ntwo\n"}
        bob.view(text)
        bob.str_replace(text, "two", "2")
        assert stored_files(apollo) == {"a.txt": "zero\none\n2\n"}


def test_of_two_who_create_one_file_one_is_told_that_it_exists(open_tally: OpenTally) -> None:
    with open_tally() as tally:
        trees = [MemoryTree(tally.bind(actor)) for actor in (ALICE, BOB) * 4]
        start = threading.Barrier(len(trees))
        outcomes: list[int] = []
        refused: list[str] = []

        def create(number: int, tree: MemoryTree) -> None:
            start.wait()
            try:
                tree.create("/memories/projects/apollo/a.txt", f"{number}\n")
                outcomes.append(number)
            except Conflict as error:
                refused.append(str(error))

        threads = [threading.Thread(target=create, args=each) for each in enumerate(trees)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

        [winner] = outcomes
        assert refused == ["File /memories/projects/apollo/a.txt already exists"] * 7
        assert stored_files(tally.bind(ALICE, scope="project:apollo")) == {"a.txt": f"{winner}\n"}


def test_one_line_that_is_refused_leaves_all_as_they_were(open_tally: OpenTally) -> None:
    with open_tally() as tally:
        bound = tally.bind(ALICE)
        bound.remember("a", kind="fact")
        bound.remember("b", kind="fact", pinned=True)
        agent = MemoryTree(tally.bind(CODER))

        with pytest.raises(StateConflict, match="pinned"):
            agent.delete("/memories/facts.md")

        assert [memory.content for memory in bound.memories()] == ["b", "a"]


def test_a_frozen_memory_says_so(open_tally: OpenTally) -> None:
    with open_tally(owner=Actor(user="root", role="operator")) as tally:
        bound = tally.bind(ALICE)
        bound.remember("a", kind="fact")
        tree = MemoryTree(bound)
        tree.create("/memories/a.txt", "x")
        tally.bind(Actor(user="root", role="operator")).operator.freeze(reason="an incident")

        errors = refusals(
            Denied,
            lambda: tree.create("/memories/b.txt", "x"),
            lambda: tree.insert("/memories/a.txt", 0, "x"),
            lambda: tree.delete("/memories/facts.md"),
        )

        assert [error.reason for error in errors] == ["mutations_frozen"] * 3
        assert "a.txt" in tree.view("/memories")


# Paths

TRICKS = [
    "/etc/passwd",
    "memories/a",
    "/memoriesx/a",
    "/memories/../a",
    "/memories/a/../../b",
    "/memories/./a",
    "/memories/%2e%2e/a",
    "/memories/%252e%252e/a",
    "/memories/a%2fb",
    "/memories/a%5Cb",
    "/memories/a%00b",
    "/memories/..\\a",
    "/memories/a\x00b",
    "/memories/a\nb",
    "/memories/\u202etxt.a",
    "/memories/\uff0e\uff0e/a",
    "/memories/\u2025/a",
    "/memories/a\u2215b",
    "/memories/a\uff0fb",
    "/memories/a\ud800",
    "/memories/e\u0301",
    "/memories/ ",
    "/memories/a ",
    f"/memories/{'a' * 201}",
    f"/memories/{'a/' * 13}b",
    f"/memories/{'a' * 2_000}",
    "/memories/preferences.md/a",
    "/memories/projects/a.txt",
    "/memories/projects/apollo%2f..%2fsecret/a",
    "/memories/projects/%61pollo/a",
    "/memories/projects/Apollo/a",
    "/memories/teams/apollo/a",
    "/memories/public",
]


@pytest.mark.parametrize("path", TRICKS, ids=ascii)
def test_a_path_that_is_none_reads_and_writes_nothing(open_sqlite: OpenTally, path: str) -> None:
    with open_sqlite() as tally:
        bound = tally.bind(ALICE)
        tree = MemoryTree(bound)
        tree.create("/memories/mine.txt", "mine")
        commands: list[Callable[[], str]] = [
            lambda: tree.create(path, "x"),
            lambda: tree.str_replace(path, "a", "b"),
            lambda: tree.insert(path, 0, "x"),
            lambda: tree.delete(path),
            lambda: tree.rename("/memories/mine.txt", path),
            lambda: tree.rename(path, "/memories/other.txt"),
        ]
        if path != "/memories/public":
            commands.append(lambda: tree.view(path))

        refusals((InvalidInput, NotFound), *commands)

        assert tree.paths() == ["/memories/mine.txt"]


@given(key=st.text(min_size=1, max_size=20))
def test_every_scope_has_a_folder_of_its_own(key: str) -> None:
    actor = Actor(user="alice")
    name = folder_name(key)

    assert "/" not in name
    assert name.strip(".")
    place = place_of(actor, ("projects", name))
    assert place.scope is not None
    assert place.scope.key == key


def test_a_hidden_scope_and_an_absent_one_answer_alike(open_tally: OpenTally) -> None:
    with open_tally() as tally:
        carol = Actor(user="carol", projects={"secret"})
        MemoryTree(tally.bind(carol)).create("/memories/projects/secret/a.txt", "x")
        tally.bind(carol, scope="project:secret").remember("y", kind="fact")
        tree = MemoryTree(tally.bind(ALICE))

        def answers(key: str) -> list[str]:
            base = f"/memories/projects/{key}"
            errors = refusals(
                NotFound,
                lambda: tree.view(base),
                lambda: tree.view(f"{base}/a.txt"),
                lambda: tree.view(f"{base}/facts.md"),
                lambda: tree.create(f"{base}/a.txt", "x"),
                lambda: tree.create(f"{base}/b.txt", "x"),
                lambda: tree.str_replace(f"{base}/facts.md", "y", "z"),
                lambda: tree.insert(f"{base}/a.txt", 0, "x"),
                lambda: tree.delete(f"{base}/a.txt"),
                lambda: tree.rename(f"{base}/a.txt", f"{base}/b.txt"),
            )
            return [str(error).replace(key, "KEY") for error in errors]

        assert answers("secret") == answers("absent")
        assert "secret" not in tree.view("/memories") + tree.view("/memories/projects")


def test_what_is_shown_of_a_folder_is_what_the_actor_may_read(open_tally: OpenTally) -> None:
    with open_tally() as tally:
        MemoryTree(tally.bind(BOB)).create("/memories/private.txt", "bob's")
        MemoryTree(tally.bind(BOB)).create("/memories/projects/apollo/ours.txt", "12345")
        MemoryTree(tally.bind(ALICE)).create("/memories/notes/a.txt", "1")
        tree = MemoryTree(tally.bind(ALICE))

        assert unframed(tree.view("/memories")).split("\n") == [
            "Here're the files and directories up to 2 levels deep in /memories, excluding "
            "hidden items:",
            "1B\t/memories",
            "1B\t/memories/notes/",
            "1B\t/memories/notes/a.txt",
            "0B\t/memories/projects/",
            "0B\t/memories/projects/apollo/",
        ]
        assert "5B\t/memories/projects/apollo/ours.txt" in tree.view("/memories/projects")


def test_what_was_shown_is_not_remembered_again(open_tally: OpenTally) -> None:
    with open_tally() as tally:
        bound = tally.bind(ALICE)
        tree = MemoryTree(bound)
        tree.create("/memories/a.txt", "the heron")
        shown = tree.view("/memories/a.txt")

        assert bound.remember(shown.partition("\n")[2]).status == "skipped"
        with pytest.raises(InvalidInput, match="recalled from here"):
            tree.create("/memories/b.txt", shown)
        with pytest.raises(InvalidInput, match="recalled from here"):
            tree.insert("/memories/a.txt", 0, shown)


# Processes

_WRITER = """
import sys
from tallystick import Actor, Tally
from tallystick.tally import MemoryTree

tally = Tally.open(sys.argv[1], background=False)
tree = MemoryTree(tally.bind(Actor(user="alice")))
tree.create("/memories/log.txt", "")
print("created", flush=True)
number = 0
while True:
    tree.insert("/memories/log.txt", number, f"line {number}")
    tree.create(f"/memories/parts/{number}.txt", f"part {number}\\n" * 50)
    tree.rename(f"/memories/parts/{number}.txt", f"/memories/done/{number}.txt")
    print(number, flush=True)
    number += 1
"""


@pytest.mark.parametrize("acknowledged", [1, 4, 9])
def test_a_killed_process_loses_nothing_that_was_acknowledged(
    tmp_path: Path, acknowledged: int
) -> None:
    folder = tmp_path / "tally"
    writer = subprocess.Popen(
        [sys.executable, "-c", _WRITER, str(folder)], stdout=subprocess.PIPE, text=True
    )
    assert writer.stdout is not None
    for _ in range(acknowledged + 1):
        writer.stdout.readline()
    os.kill(writer.pid, signal.SIGKILL)
    last = [line for line in writer.stdout.read().split("\n") if line.isdigit()]
    writer.wait()
    writer.stdout.close()

    with Tally.open(folder, background=False) as tally:
        files = stored_files(tally.bind(Actor(user="alice")))
        tree = MemoryTree(tally.bind(Actor(user="alice")))
        paths = set(tree.paths())

    done = int(last[-1]) if last else acknowledged - 1
    lines = files.pop("log.txt").splitlines()
    assert lines == [f"line {number}" for number in range(len(lines))]
    assert len(lines) in (done + 1, done + 2)
    assert {f"done/{number}.txt" for number in range(done + 1)} <= set(files)
    assert all(
        text == f"part {path.partition('/')[2].removesuffix('.txt')}\n" * 50
        for path, text in files.items()
    )
    assert paths == {"/memories/log.txt", *(f"/memories/{path}" for path in files)}


_APPENDER = """
import sys
from tallystick import Actor, Tally
from tallystick.errors import VersionConflict
from tallystick.tally import MemoryTree

folder, name = sys.argv[1:]
tally = Tally.open(folder, background=False)
tree = MemoryTree(tally.bind(Actor(user=name, projects={"apollo"})))
path = "/memories/projects/apollo/log.txt"
for number in range(15):
    while True:
        tree.view(path)
        try:
            tree.insert(path, 0, f"{name} {number}")
            break
        except VersionConflict:
            pass
tally.close()
"""


def test_two_processes_that_write_one_file_lose_no_line(tmp_path: Path) -> None:
    folder = tmp_path / "tally"
    with Tally.open(folder, background=False) as tally:
        MemoryTree(tally.bind(ALICE)).create("/memories/projects/apollo/log.txt", "")
        writers = [
            subprocess.Popen([sys.executable, "-c", _APPENDER, str(folder), name])
            for name in ("alice", "bob")
        ]
        assert [writer.wait() for writer in writers] == [0, 0]
        files = stored_files(tally.bind(ALICE, scope="project:apollo"))

    expected = [f"{name} {number}" for name in ("alice", "bob") for number in range(15)]
    assert sorted(files["log.txt"].splitlines()) == sorted(expected)
