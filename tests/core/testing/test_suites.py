"""The suites of the scoreboard: each passes, leaks nothing, hits no wrong target, and a second run
agrees.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.benchmarks.suites import SUITES, run_suite

ONCE = {"feedback-loop"}
"""A loop of 200 turns is too long for `make test`: `make soak` plays it once, `make eval` twice."""


def test_the_scoreboard_has_every_suite() -> None:
    assert list(SUITES) == [
        "coding-handoff",
        "personal-memory",
        "project-recall",
        "delegated-recall",
        "agent-diary",
        "private-leak-negative",
        "stale-decision-replacement",
        "source-grounding",
        "forget-then-probe",
        "mutation-targets",
        "injection",
        "feedback-loop",
        "cjk",
    ]


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=[pytest.mark.soak] if name in ONCE else []) for name in SUITES],
)
def test_a_suite_of_the_scoreboard_passes_and_a_second_run_agrees(
    name: str, tmp_path: Path
) -> None:
    outcome = run_suite(name, tmp_path / "first")
    assert (outcome.failures, outcome.leaks, outcome.wrong_targets, outcome.coverage) == (
        (),
        0,
        0,
        1.0,
    )
    assert outcome.passed
    if name not in ONCE:
        assert run_suite(name, tmp_path / "second").stable() == outcome.stable()
