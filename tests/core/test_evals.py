"""The suites of the scoreboard that must never fail: leaks, changes, injection; and that two runs agree."""

from __future__ import annotations

from pathlib import Path

import pytest

from tallystick.testing.evals import SUITES, run_suite

BLOCKING = [name for name in SUITES if name != "feedback-loop"]


@pytest.mark.parametrize("name", BLOCKING)
def test_a_suite_of_the_scoreboard_passes(name: str, tmp_path: Path) -> None:
    outcome = run_suite(name, tmp_path / "tally")
    assert (outcome.failures, outcome.leaks, outcome.wrong_targets, outcome.coverage) == ((), 0, 0, 1.0)


def test_two_runs_of_a_suite_agree(tmp_path: Path) -> None:
    first, second = (run_suite("stale-decision-replacement", tmp_path / name) for name in ("a", "b"))
    assert first.stable() == second.stable()
