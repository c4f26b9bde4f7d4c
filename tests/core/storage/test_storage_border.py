"""Only `storage` speaks SQL: no other room imports SQLAlchemy or the tables, runs a statement or
names a dialect.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.sources import syntax_trees

ROOT = Path(__file__).parents[3]
ROOTS = tuple(
    ROOT / name / package
    for name, pattern in (
        ("core", "tallystick*"),
        ("checkpointers", "tallystick_*"),
        ("callbacks", "tallystick_*"),
        ("integrations", "tallystick_*"),
    )
    for package in sorted(path.name for path in (ROOT / name).glob(pattern))
)
STORAGE = Path("core/tallystick/storage")
FOREIGN = {Path("checkpointers/tallystick_langgraph/importing.py")}
"""Reads the database of another checkpointer."""
STATEMENTS = {"execute", "executemany", "exec_driver_sql"}
DIALECTS = {"sqlite", "postgresql", "is_postgres", "dialect"}

pytestmark = pytest.mark.skipif(
    not (ROOT / "core").is_dir(), reason="the source is out of reach here"
)


def crossings(tree: ast.Module) -> Iterator[str]:
    """Yield what a module does that belongs to storage alone, each with its line."""
    for node in ast.walk(tree):
        line = getattr(node, "lineno", 0)
        if isinstance(node, ast.Import):
            modules = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            module = node.module or ""
            modules = [module, *(f"{module}.{alias.name}" for alias in node.names)]
        else:
            modules = []
        for module in modules:
            if module.split(".")[0] in {"sqlalchemy", "sqlite3", "psycopg"}:
                yield f"{line}: imports {module}"
            elif module.startswith("tallystick.storage.engine.tables"):
                yield f"{line}: imports the tables"
        if isinstance(node, ast.Call) and getattr(node.func, "attr", None) in STATEMENTS:
            yield f"{line}: runs a statement"
        if isinstance(node, ast.Attribute) and node.attr in DIALECTS:
            yield f"{line}: reads .{node.attr}"
        if isinstance(node, ast.Compare):
            for side in (node.left, *node.comparators):
                if isinstance(side, ast.Constant) and side.value in ("sqlite", "postgresql"):
                    yield f"{line}: compares with {side.value!r}"


def test_no_room_but_storage_speaks_sql() -> None:
    problems = []
    read = 0
    for path, tree in syntax_trees(*ROOTS):
        place = path.relative_to(ROOT)
        if place.is_relative_to(STORAGE) or place in FOREIGN:
            continue
        read += 1
        problems += [f"{place}:{crossing}" for crossing in crossings(tree)]

    assert problems == []
    assert read > 150


@pytest.mark.parametrize("place", sorted(FOREIGN))
def test_an_exception_is_still_needed(place: Path) -> None:
    assert list(crossings(ast.parse((ROOT / place).read_text(encoding="utf-8"))))


@pytest.mark.parametrize(
    "source",
    [
        "import sqlalchemy",
        "from sqlalchemy import select",
        "from sqlalchemy.dialects import postgresql",
        "import sqlite3",
        "from tallystick.storage.engine import tables",
        "from tallystick.storage.engine.tables import memories",
        "def rows(tx): return tx.execute('SELECT 1')",
        "def rows(tx): return tx.executemany('SELECT 1', [])",
        "def serves(tx): return tx.dialect",
        "def serves(database): return database.is_postgres",
        "def serves(name): return name == 'postgresql'",
    ],
)
def test_a_room_that_speaks_sql_is_found(source: str) -> None:
    assert list(crossings(ast.parse(source)))


def test_storage_itself_would_be_found() -> None:
    found = [crossing for _, tree in syntax_trees(ROOT / STORAGE) for crossing in crossings(tree)]

    assert len(found) > 100
