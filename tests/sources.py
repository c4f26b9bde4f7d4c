"""Source files as syntax trees, for tests that look for a construct in all of them."""

from __future__ import annotations

import ast
import gc
from collections.abc import Iterator
from pathlib import Path


def syntax_trees(*folders: Path) -> Iterator[tuple[Path, ast.Module]]:
    """Yield each Python file below `folders` with its tree, in the order of their paths.

    The collector is off while a file is parsed: a finalizer that formats an exception would parse
    too, and CPython 3.11 raises SystemError where one conversion of a tree is entered from another.
    """
    for folder in folders:
        for path in sorted(folder.rglob("*.py")):
            text = path.read_text(encoding="utf-8")
            was_enabled = gc.isenabled()
            gc.disable()
            try:
                tree = ast.parse(text)
            finally:
                if was_enabled:
                    gc.enable()
            yield path, tree
