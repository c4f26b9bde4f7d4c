"""The runbook is run: each of its commands, and the alert rules of the page on stewardship."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tallystick.tally import Tally

DOCS = Path(__file__).parents[2] / "docs"
COMMANDS = re.findall(r"^\$ tally (.+)$", (DOCS / "runbook.md").read_text(), re.M)
SECTIONS = (
    "A provider is away",
    "The queue stands still",
    "The index is damaged",
    "A wrong change of many memories",
    "The disk is full",
    "A key is rotated",
)


@pytest.fixture(scope="module")
def where(tmp_path_factory: pytest.TempPathFactory) -> Path:
    where = tmp_path_factory.mktemp("runbook") / "tally"
    with Tally.open(where, background=False) as tally:
        tally.bind().remember("The heron nests at the weir.")
    return where
