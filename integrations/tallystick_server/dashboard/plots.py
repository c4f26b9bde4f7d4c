"""Plots: bars in an SVG that the page contains, made of the figures that it shows anyway."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tallystick.records import StepRecord
from tallystick_server.dashboard.figures import Summarized, context_tokens

_WIDTH = 1_000
_SLOTS = 12
"""Bars that a plot has room for at least."""


@dataclass(frozen=True)
class Bar:
    """One bar, in thousandths of the width and the height of its plot."""

    x: float
    width: float
    height: float
    whole: float
    """The height of what it is a part of; 0 where it is a part of nothing."""
    title: str
    link: str


@dataclass(frozen=True)
class Plot:
    """Bars beside one another, and the value at the top."""

    bars: tuple[Bar, ...]
    top: float
    says: str
    """What it shows, for who does not see it."""


def bars_of(says: str, values: Sequence[tuple[float, float, str, str]]) -> Plot | None:
    """Return the plot of values, each with what it is a part of (or 0), its title and its link;
    None where there is nothing to compare.
    """
    top = max((max(value, whole) for value, whole, _, _ in values), default=0)
    if len(values) < 2 or top <= 0:
        return None
    slot = _WIDTH / max(len(values), _SLOTS)
    return Plot(
        bars=tuple(
            Bar(
                x=round(place * slot, 2),
                width=round(slot * 0.8, 2),
                height=round(value * _WIDTH / top, 1),
                whole=round(whole * _WIDTH / top, 1),
                title=title,
                link=link,
            )
            for place, (value, whole, title, link) in enumerate(values)
        ),
        top=top,
        says=says,
    )


def budget_of_steps(
    steps: Sequence[StepRecord], summaries: Mapping[str, Sequence[Summarized]]
) -> Plot | None:
    """Return the plot of what the steps that compiled took of their budgets."""
    values = []
    for step in steps:
        used = budget = 0
        for entry in summaries.get(step.id, ()):
            if entry.kind == "compiled":
                used = context_tokens(entry.summary)
            if entry.kind == "compile_request":
                stated = entry.summary.get("budget")
                budget = stated if isinstance(stated, int) else 0
        if used or budget:
            title = f"Step {step.step_index}: {used:,} of {budget:,} tokens"
            values.append((float(used), float(budget), title, f"/steps/{step.id}"))
    return bars_of("Tokens of each compiled context, in its budget", values)
