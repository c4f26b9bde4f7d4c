"""How other projects' suites are compared with our pieces in them, and a fast part of them."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from tests.peers.mcp_conformance import PACKAGE, RELEASE, REVISIONS, Outcome
from tests.peers.run import (
    PAGE,
    Accepted,
    Report,
    accepted_differences,
    block_of,
    compare,
    reasons,
    suites,
    with_repeated,
)

PYTHON = Path(".venv/peers/bin/python")
"""The environment of `make test-peers`, with what those suites need."""


def _report(**outcomes: str) -> Report:
    return Report(outcomes, 0)


def test_a_failure_with_ours_alone_has_to_be_accepted() -> None:
    official = _report(both="passed", neither="failed", ours="failed", lost="passed", skip="passed")
    inserted = _report(both="passed", neither="failed", ours="passed", lost="failed")

    found = compare(official, inserted, [])
    assert (found.failures, found.stale, found.accepted) == (["lost", "skip"], [], 0)
    excused = compare(official, inserted, [Accepted("s", ("lo*", "skip"), "for a reason")])
    assert (excused.failures, excused.stale, excused.accepted) == ([], [], 2)


def test_a_test_that_is_run_once_more_counts_as_it_ended_then() -> None:
    official = _report(race="passed", broken="passed")
    first = Report({"race": "failed", "broken": "failed"}, 1)
    again = Report({"race": "passed", "broken": "failed"}, 2)

    ours = with_repeated(first, again)

    assert (compare(official, ours, []).failures, ours.lost) == (["broken"], 3)


def test_an_accepted_difference_that_no_longer_happens_is_stale() -> None:
    passing = _report(**{"t.py::test[a]": "passed"})
    listed = [Accepted("s", ("t.py::test[a]", "t.py::*"), "once")]

    assert compare(passing, passing, listed).stale == ["t.py::*", "t.py::test[a]"]
    assert compare(passing, passing, listed, whole=False).stale == []
    failing = _report(**{"t.py::test[a]": "failed"})
    assert compare(passing, failing, listed).stale == []


def test_every_accepted_difference_belongs_to_a_suite_and_has_a_reason() -> None:
    names = {suite.name for suite in suites()} | {f"mcp-{each}" for each in REVISIONS}
    for difference in accepted_differences():
        assert difference.suite in names
        assert len(difference.reason) > 30
        assert difference.tests


def test_the_page_says_why_each_difference_is_accepted() -> None:
    page = PAGE.read_text()
    for name, of_mcp in (("accepted", False), ("mcp", True)):
        _, told, _ = block_of(page, name)
        assert told.count("\n- ") == len(reasons(of_mcp=of_mcp))
        assert all(f"- {reason}\n" in told for reason in reasons(of_mcp=of_mcp))
    assert f"{PACKAGE} {RELEASE}" in block_of(page, "mcp")[1]


def test_a_scenario_of_mcp_passes_where_none_of_its_checks_fails() -> None:
    checks = {"tools::a": True, "tools::b": False, "ping::a": True, "tasks::a": False}
    outcome = Outcome(("tools", "ping", "warns", "tasks"), checks, {"tasks": "extension"})

    assert outcome.scenarios(scored=True) == {"tools": False, "ping": True, "warns": True}
    assert outcome.scenarios(scored=False) == {"tasks": False}


@pytest.mark.skipif(not PYTHON.exists(), reason="`make test-peers` has not been run here")
def test_a_fast_part_of_the_suites_passes_with_ours() -> None:
    """Two dozen tests of LangGraph's; all of them are `make test-peers`."""
    command = [
        str(PYTHON),
        "tests/peers/run.py",
        "--only",
        "langgraph",
        "checkpoint-sqlite",
        "-n",
        "0",
    ]
    command += ["-k", "time_travel_to_input or empty_checkpoint_id or batch_rejects"]
    result = subprocess.run(command, text=True, capture_output=True, timeout=250, check=False)

    assert result.returncode == 0, result.stdout + result.stderr[-2_000:]
