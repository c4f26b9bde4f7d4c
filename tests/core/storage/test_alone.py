"""The page on scale lists every unit that declares nothing, and so runs alone on PostgreSQL."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[3]
FOLDERS = ("core", "checkpointers", "callbacks", "integrations")
VERBS = {"write", "submit", "write_soon", "write_if_possible"}


def _alone() -> Iterator[str]:
    for folder in FOLDERS:
        for file in (ROOT / folder).rglob("*.py"):
            for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
                if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
                    continue
                given = {each.arg: each.value for each in node.keywords}
                name = given.get("name")
                if (
                    node.func.attr in VERBS
                    and "writes" not in given
                    and isinstance(name, ast.Constant)
                    and ast.unparse(node.func.value).endswith("database")
                ):
                    yield str(name.value)


def test_the_page_lists_every_unit_that_runs_alone() -> None:
    page = (ROOT / "docs/reference/scale.md").read_text(encoding="utf-8")
    part = page.split("### What runs alone", 1)[1].split("\n#", 1)[0]
    listed = set(re.findall(r"`([a-z.]+\.[a-z_.]+|[a-z_]+)`", part))
    assert listed == set(_alone())
