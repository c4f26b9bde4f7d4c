"""The bars of recall on the sets of our own: it finds at least as much as what stands beside it.

    python -m tests.benchmarks.own_sets

They are bars of a comparison within one run, so that none is a figure of the past.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from tests.benchmarks.conversations import ADVERSARIAL
from tests.benchmarks.eval_recall import OWN_SETS, load, mean, run
from tests.benchmarks.measures import Measure, figure, least, lines, missed

BESIDE = ("FTS5, porter", "Chroma", "RRF of both")
_RECALL = "recall"
_FIGURES = ("R@5", "R@10", "nDCG", "pack")
_BARS = ("R@5", "R@10")


def measures(paths: Sequence[Path] = OWN_SETS) -> Iterator[Measure]:
    """Yield the figures of each set, in percent, and what recall finds more than the best of the
    others.
    """
    for path in paths:
        results = {
            name: [each for each in rows if each["kind"] != ADVERSARIAL]
            for name, rows in run(load(path)).items()
        }
        ours = results[_RECALL]
        for key in _FIGURES:
            yield figure(f"{path.stem}: {key}, percent", mean(ours, key), "not found")
        for key in _BARS:
            best = max(mean(results[name], key) for name in BESIDE)
            more = round(mean(ours, key) - best, 6)
            name = f"{path.stem}: {key} more than the best of FTS5, Chroma and their fusion"
            yield least(name, more, 0, "not found", f"{best:.1f} percent")


def main() -> int:
    """Print every figure; return 1 where a bar is missed."""
    found = list(measures())
    print(*lines(found), sep="\n")
    return 1 if missed(found) else 0


if __name__ == "__main__":
    sys.exit(main())
