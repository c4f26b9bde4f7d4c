"""The scoreboard of memory: every suite of `tests.benchmarks.suites`, twice, as one table.

Run it with `make eval`. It exits with 1 when a blocking measure fails, or when two runs do not
agree.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path

from rich.console import Console
from rich.table import Table
from rich.text import Text
from tests.benchmarks.suites import SUITES, SuiteResult, run_suites


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("suites", nargs="*", choices=[[], *SUITES], help="By default all of them.")
    parser.add_argument("--seed", type=int, default=7)
    chosen = parser.parse_args()
    began = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        first = run_suites(Path(folder) / "first", seed=chosen.seed, names=chosen.suites)
        second = run_suites(Path(folder) / "second", seed=chosen.seed, names=chosen.suites)
    agree = [one.stable() for one in first] == [other.stable() for other in second]
    console = Console()
    console.print(_table(first))
    for outcome in first:
        for failure in outcome.failures:
            console.print(Text(f"✗ {outcome.suite}: {failure}", style="red"))
    said = "two runs agree" if agree else "two runs DO NOT agree"
    passed = sum(outcome.passed for outcome in first)
    console.print(
        f"{passed} of {len(first)} suites pass; {said}; {time.perf_counter() - began:.0f} s"
    )
    return 0 if agree and passed == len(first) else 1


def _table(outcomes: list[SuiteResult]) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0), header_style="dim")
    table.add_column("suite", no_wrap=True)
    for name in ("", "checks", "leaks", "wrong", "src", "R@10", "nDCG", "tokens", "ms"):
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
            f"{one.latency_ms:.1f}",
        )
    return table


if __name__ == "__main__":
    sys.exit(main())
