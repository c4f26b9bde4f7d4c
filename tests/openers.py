"""Openers of the tests' tallies, one for each database and each way to search vectors."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tallystick import BoundTally, Tally
from tallystick.memory.recalled import Recalled
from tallystick.settings import Settings

OpenTally = Callable[..., Tally]
EITHER_WAY = ["sqlite", "chroma", pytest.param("postgres", marks=pytest.mark.postgres)]
"""Parameters of a fixture for `opener`: the exact way on both databases, and embedded Chroma."""


def opener(way: str, request: pytest.FixtureRequest, **given: Any) -> OpenTally:
    """Return what opens a fresh store at first and the same store afterwards, with the options that
    are given unless a test has its own.

    The store begins as a copy of an empty one, in a third of the time that making its tables takes.
    """
    given = {"background": False, **given}
    if way == "postgres":
        url = request.getfixturevalue("database")
        return lambda **options: Tally.open(url, **{**given, **options})
    folder: Path = request.getfixturevalue("tmp_path") / "tally"
    shutil.copytree(request.getfixturevalue("empty_tally"), folder)
    if way == "chroma":
        return _by_chroma(folder, request.getfixturevalue("monkeypatch"))
    return lambda **options: Tally.open(folder, **{**given, **options})


def _by_chroma(folder: Path, monkeypatch: pytest.MonkeyPatch) -> OpenTally:
    """Every recall finds Chroma filled with all that was written before it, and is answered by it
    wherever vectors are searched.
    """
    direct = BoundTally.recall

    def recall(self: BoundTally, *arguments: Any, **options: Any) -> Recalled:
        self.tally.drain()
        recalled = direct(self, *arguments, **options)
        assert recalled.path in ("chroma", "none"), (recalled.path, recalled.warnings)
        return recalled

    def opened(**options: Any) -> Tally:
        settings = options.pop("settings", None) or Settings.read()
        settings = settings.model_copy(update={"vector_search": "chroma"})
        chosen: dict[str, Any] = {"background": False, "settings": settings, **options}
        return Tally.open(folder, **chosen)

    monkeypatch.setattr(BoundTally, "recall", recall)
    return opened
