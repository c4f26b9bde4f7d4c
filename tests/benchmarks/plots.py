"""Plots of `make eval-recall`, as SVG: what each signal is worth, and whether a score means what it
says.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

_INK, _LESS, _MORE = "#333333", "#b5483a", "#2d6a8e"
_BINS = 10


class Bar(NamedTuple):
    """What a change does to R@10, in points, with the 95 % interval."""

    name: str
    mean: float
    low: float
    high: float


class Scored(NamedTuple):
    """The score of a question's best hit, and whether it answers."""

    score: float
    answers: bool


def plot_ablation(title: str, bars: Sequence[Bar], path: Path) -> None:
    """Write the differences as bars, in their order from above, with their intervals."""
    figure, axes = _figure(7, 0.32 * len(bars) + 1.2)
    places = range(len(bars))[::-1]
    axes.barh(
        list(places),
        [bar.mean for bar in bars],
        color=[_LESS if bar.mean < 0 else _MORE for bar in bars],
        xerr=[
            [bar.mean - bar.low for bar in bars],
            [bar.high - bar.mean for bar in bars],
        ],
        error_kw={"ecolor": _INK, "elinewidth": 1},
    )
    axes.set_yticks(list(places), [bar.name for bar in bars])
    axes.axvline(0, color=_INK, linewidth=0.8)
    axes.set_xlabel("R@10, points, with the 95 % interval")
    axes.set_title(title, loc="left")
    _save(figure, path)


def plot_calibration(title: str, scored: Sequence[Scored], path: Path) -> None:
    """Write how often the best hit answers, by its score, beside the line of a perfect score; the
    area of a point is the number of questions.
    """
    figure, axes = _figure(5, 5)
    axes.plot([0, 1], [0, 1], color=_INK, linewidth=0.8, linestyle="--")
    for number in range(_BINS):
        low, high = number / _BINS, (number + 1) / _BINS
        rows = [one for one in scored if low <= one.score < high or one.score == high == 1]
        if rows:
            score = sum(one.score for one in rows) / len(rows)
            share = sum(one.answers for one in rows) / len(rows)
            axes.scatter([score], [share], s=20 + 400 * len(rows) / len(scored), color=_MORE)
            axes.annotate(f" {len(rows)}", (score, share), color=_INK, fontsize=8)
    axes.set_xlim(0, 1)
    axes.set_ylim(0, 1)
    axes.set_xlabel("score of the best hit")
    axes.set_ylabel("share of best hits that answer")
    axes.set_title(title, loc="left")
    _save(figure, path)


def _figure(width: float, height: float) -> tuple[Any, Any]:
    try:
        # By name: only the benchmarks install it.
        figures = import_module("matplotlib.figure")
        canvas = import_module("matplotlib.backends.backend_svg")
    except ImportError:
        raise SystemExit("Plots need matplotlib: pip install matplotlib") from None
    figure = figures.Figure(figsize=(width, height), layout="constrained")
    canvas.FigureCanvasSVG(figure)
    axes = figure.add_subplot()
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    return figure, axes


def _save(figure: Any, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    # Without a date: the same figures give the same file.
    figure.savefig(path, metadata={"Date": None})
    print(f"  {path}")
