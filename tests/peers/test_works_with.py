"""The page on packages that work with ours says what their scripts have shown."""

from __future__ import annotations

import ast
import json
import re

from tests.peers.works_with import PAGE, STORED, packages, page_of


def _parts(page: str) -> list[str]:
    """The prose of a page, and its code without its layout."""
    pieces = re.split(r"^```(?:python)?$", page, flags=re.M)
    return [
        piece if place % 2 == 0 else ast.dump(ast.parse(piece))
        for place, piece in enumerate(pieces)
    ]


def test_the_page_is_made_from_the_scripts_and_from_what_they_have_shown() -> None:
    stored = json.loads(STORED.read_text(encoding="utf-8"))

    assert _parts(PAGE.read_text(encoding="utf-8")) == _parts(page_of(stored))


def test_each_script_makes_the_promises_of_the_page() -> None:
    """A sentence that a script no longer checks is found without running it."""
    stored = json.loads(STORED.read_text(encoding="utf-8"))

    assert list(stored) == [each.name for each in packages()]
    for package in packages():
        script = (STORED.parent / "packages" / f"{package.name}.py").read_text(encoding="utf-8")
        words = script.replace('"\n            "', "")
        assert [each for each in stored[package.name]["holds"] if each not in words] == []
        assert script.count("promise(") == len(stored[package.name]["holds"])
        assert package.recipe()
