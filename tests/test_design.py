"""The drawings of docs/design.md are the house: floors, flows and the table of questions."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.core.first_look import FIRST_LOOK
from tests.sources import syntax_trees

ROOT = Path(__file__).parent.parent
CORE = ROOT / "core" / "tallystick"

pytestmark = pytest.mark.skipif(not CORE.is_dir(), reason="the source is out of reach here")


def _page() -> str:
    return (ROOT / "docs" / "design.md").read_text(encoding="utf-8")


def _blocks() -> list[str]:
    return re.findall(r"```text\n(.*?)```", _page(), re.DOTALL)


def _floors() -> dict[str, int]:
    """Rooms by their floor, counted from the ground."""
    rows = [line.split("  ")[0].split() for line in _blocks()[0].splitlines()]
    return {room: len(rows) - number for number, row in enumerate(rows) for room in row}


def _rooms() -> set[str]:
    return {
        path.stem if path.is_file() else path.name
        for path in CORE.iterdir()
        if path.suffix == ".py" or (path / "__init__.py").is_file()
    } - {"__init__"}


def _imports() -> Iterator[tuple[str, str]]:
    """Yield each room with each other room that it imports, for types alone too."""
    for path, tree in syntax_trees(CORE):
        room = path.relative_to(CORE).parts[0].removesuffix(".py")
        for node in ast.walk(tree):
            names = []
            if isinstance(node, ast.ImportFrom) and node.module:
                names = [f"{node.module}.{alias.name}" for alias in node.names]
            elif isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            for name in names:
                package, _, rest = name.partition(".")
                target = rest.split(".")[0]
                if package == "tallystick" and target in _rooms() and room not in ("", target):
                    yield room, target


def test_each_room_is_drawn_once() -> None:
    drawn = [room for line in _blocks()[0].splitlines() for room in line.split("  ")[0].split()]

    assert sorted(drawn) == sorted(_rooms())


def test_a_room_imports_only_rooms_on_lower_floors_as_drawn() -> None:
    floors = _floors()
    imports = {(room, target) for room, target in _imports() if room != "__init__"}
    upward = {pair for pair in imports if floors[pair[0]] <= floors[pair[1]]}

    assert len(imports) > 60
    assert upward == set()


def test_a_room_of_storage_imports_only_rooms_that_are_drawn_below_it() -> None:
    table = _page().split("| room of `storage` |", 1)[1].split("\n\n", 1)[0]
    drawn = re.findall(r"^\| `(\w+)` \|", table, re.MULTILINE)
    storage = CORE / "storage"
    upward = set()
    for path, tree in syntax_trees(storage):
        room = path.relative_to(storage).parts[0]
        for node in ast.walk(tree):
            module = getattr(node, "module", None) if isinstance(node, ast.ImportFrom) else None
            parts = (module or "").split(".")
            if room in drawn and parts[:2] == ["tallystick", "storage"]:
                target = parts[2] if len(parts) > 2 else ""
                if target not in drawn[drawn.index(room) :]:
                    upward.add((path.name, module))

    assert set(drawn) == {path.parent.name for path in storage.glob("*/__init__.py")}
    assert upward == set()


@pytest.mark.parametrize("number", [1, 2, 3])
def test_a_flow_names_files_that_exist(number: int) -> None:
    names = re.findall(r"[\w/]+\.py", _blocks()[number])

    assert len(names) > 8
    for name in names:
        assert (ROOT / name).is_file() or (CORE / name).is_file(), name


def test_each_question_is_answered_by_a_file_that_exists() -> None:
    rows = re.findall(r"^\| ([^|]+\?) \| (.+) \|$", _page(), re.MULTILINE)

    assert len(rows) >= 15
    for question, answer in rows:
        paths = re.findall(r"`([^`]+)`", answer)
        assert paths, question
        for path in paths:
            assert (ROOT / path).exists(), path


def _modules() -> set[str]:
    """Modules of the core by their path, those of an extension behind its name."""
    return {
        path.relative_to(CORE.parent)
        .with_suffix("")
        .as_posix()
        .removeprefix("tallystick/")
        .removeprefix("tallystick_")
        for path in CORE.parent.rglob("*.py")
        if path.name != "__init__.py" and "migrations" not in path.parts
    }


def test_each_module_has_one_test_file_to_look_into_first() -> None:
    tests = ROOT / "tests" / "core"
    listed = [(name, file) for file, names in FIRST_LOOK.items() for name in names.split()]
    own = {
        name
        for name in _modules()
        if (tests / Path(name).parent / f"test_{Path(name).name}.py").is_file()
    }

    for _, file in listed:
        assert (tests / file).is_file(), file
    assert len({name for name, _ in listed}) == len(listed)
    assert {name for name, _ in listed} == _modules() - own
