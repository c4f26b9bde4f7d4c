"""The scoreboard of memory: every suite of `tests.benchmarks.suites`, twice, as one table.

Run it with `make eval`. It exits with 1 when a blocking measure fails, or when two runs do not
agree.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table
from rich.text import Text
from tests.benchmarks.measures import Measure, missed, most
from tests.benchmarks.suites import SUITES, SuiteResult, measures, run_suites

SEED = 7


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("suites", nargs="*", choices=[[], *SUITES], help="By default all of them.")
    parser.add_argument("--seed", type=int, default=SEED)
    chosen = parser.parse_args()
    began = time.perf_counter()
    first, agree = play_twice(chosen.suites, seed=chosen.seed)
    console = Console()
    console.print(_table(first))
    for outcome in first:
        told = [f"{each.name}: {each.value:g} ({each.bar})" for each in missed(measures(outcome))]
        for failure in (*outcome.failures, *told):
            console.print(Text(f"✗ {outcome.suite}: {failure}", style="red"))
    said = "two runs agree" if agree else "two runs DO NOT agree"
    passed = sum(outcome.passed for outcome in first)
    console.print(
        f"{passed} of {len(first)} suites pass; {said}; {time.perf_counter() - began:.0f} s"
    )
    return 0 if agree and passed == len(first) else 1


def play_twice(names: Sequence[str] = (), *, seed: int = SEED) -> tuple[list[SuiteResult], bool]:
    """Return the results of suites, by default of all, and whether a second run agrees."""
    with tempfile.TemporaryDirectory() as folder:
        first = run_suites(Path(folder) / "first", seed=seed, names=names)
        second = run_suites(Path(folder) / "second", seed=seed, names=names)
    return first, [one.stable() for one in first] == [other.stable() for other in second]


def measure(names: Sequence[str] = (), *, seed: int = SEED) -> Iterator[Measure]:
    """Yield the figures of all suites beside their bars."""
    results, agree = play_twice(names, seed=seed)
    for each in results:
        yield from measures(each)
    yield most("runs that do not agree", not agree, 0, "check")


def _table(outcomes: list[SuiteResult]) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0), header_style="dim")
    table.add_column("suite", no_wrap=True)
    for name in ("", "checks", "leaks", "wrong", "src", "R@10", "nDCG", "tokens", "wake", "ms"):
        table.add_column(name, justify="right", no_wrap=True)
    for one in outcomes:
        table.add_row(
            one.suite,
            Text("✓", style="green") if one.passed else Text("✗", style="red"),
            str(one.checks),
            str(one.leaks),
            str(one.wrong_targets),
            f"{one.coverage:.2f}",
            f"{one.recall:.3f}",
            f"{one.ndcg:.3f}",
            str(one.tokens),
            str(one.wake_tokens),
            f"{one.latency_ms:.1f}",
        )
    return table


if __name__ == "__main__":
    sys.exit(main())
