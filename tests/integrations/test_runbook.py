"""The runbook is run: each of its commands, and the alert rules of the page on stewardship."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families
from typer.testing import CliRunner

from tallystick.records import Actor
from tallystick.tally import Tally
from tallystick_cli import app as cli
from tallystick_steward import Steward

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
