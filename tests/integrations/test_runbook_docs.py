"""The runbook is run: each of its commands, and the alert rules of the page on stewardship."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families
from tests.terminals import invoke

from tallystick.settings import Settings
from tallystick.tally import Tally
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


@pytest.mark.parametrize("command", COMMANDS)
def test_each_command_of_the_runbook_runs(command: str, tmp_path: Path) -> None:
    """Each on a tally of its own: a repair rests after it was made."""
    where = tmp_path / "tally"
    with Tally.open(where, background=False) as tally:
        tally.bind().remember("The heron nests at the weir.")
    result = invoke(shlex.split(command), env={"TALLYSTICK_TALLY": str(where)})
    assert result.exit_code == 0, f"{result.output}{result.exception or ''}"


def test_the_runbook_has_what_goes_wrong() -> None:
    text = (DOCS / "runbook.md").read_text()
    assert [each for each in SECTIONS if f"## {each}" not in text] == []


def test_what_was_changed_wrongly_is_taken_back_as_the_runbook_says(tmp_path: Path) -> None:
    where = tmp_path / "tally"
    with Tally.open(where, background=False) as tally:
        ada = tally.bind()
        stored = ada.remember("The heron nests at the weir.")
        ada.forget(stored.id, reason="a sweep")
    env = {"TALLYSTICK_TALLY": str(where)}
    [command] = [each for each in COMMANDS if each.startswith("take-back")]
    previewed = invoke(shlex.split(command), env=env)
    token = re.search(r"--token (\S+)", previewed.output)
    # A memory that was added and forgotten again has the forgetting as its last change.
    assert token is not None
    applied = invoke([*shlex.split(command), "--apply", "--token", token[1]], env=env)
    assert applied.exit_code == 0, applied.output
    with Tally.open(where, background=False) as tally:
        assert [each.id for each in tally.bind().memories()] == [stored.id]


def test_a_timeline_is_a_page_that_stands_by_itself(tmp_path: Path) -> None:
    where = tmp_path / "tally"
    with Tally.open(where, background=False) as tally:
        stored = tally.bind().remember("The heron nests at the weir.")
    page = tmp_path / "page.html"
    env = {"TALLYSTICK_TALLY": str(where)}
    result = invoke(["timeline", stored.id, "--html", str(page)], env=env)
    assert result.exit_code == 0, f"{result.output}{result.exception or ''}"
    assert "memory.add" in page.read_text()
    assert "heron" not in page.read_text()


def test_the_rules_of_the_page_ask_for_measures_that_there_are(tmp_path: Path) -> None:
    rules = re.findall(r"^ +expr: (.+)$", (DOCS / "steward.md").read_text(), re.M)
    with Tally.open(tmp_path / "tally", background=False) as tally:
        bound = tally.bind()
        stored = bound.remember("The heron nests at the weir.")
        bound.forget(stored.id, reason="moved away")
        text = Steward(bound).exposition().decode()
    names: dict[str, set[str]] = {}
    for family in text_string_to_metric_families(text):
        names.setdefault(family.name, set())
        for sample in family.samples:
            names.setdefault(sample.name, set()).update(sample.labels)
    assert len(rules) == 6
    for rule in rules:
        [(name, labels)] = re.findall(r"(tallystick_[a-z_]+)(?:\{([^}]*)\})?", rule)
        assert name in names
        asked = set(re.findall(r"(\w+)=", labels))
        # A measure without a sample has no labels yet.
        assert asked <= names[name] or not names[name]


@pytest.mark.parametrize(
    ("preset", "retention", "personal", "secrets"),
    [
        ("strict", "metadata_only", True, "refuse"),
        ("team", "redacted_payloads", False, "redact"),
        ("full", "full_payloads", False, "redact"),
    ],
)
def test_a_preset_of_redaction_is_chosen_with_a_new_tally(
    preset: str, retention: str, personal: bool, secrets: str, tmp_path: Path
) -> None:
    where = tmp_path / "tally"
    env = {"TALLYSTICK_TALLY": str(where)}
    result = invoke(["init", "--redaction", preset], env=env)
    assert result.exit_code == 0, f"{result.output}{result.exception or ''}"
    settings = Settings.read(where)
    assert settings.retention == retention
    assert settings.redact_pii is personal
    assert settings.secrets_in_memory == secrets
    unknown = invoke(["init", "--redaction", "loose"], env=env)
    assert "strict, team, full" in f"{unknown.output}{unknown.exception or ''}"
