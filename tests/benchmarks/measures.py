"""Measures: the shape in which every benchmark hands out its figures, each beside its own bar.

A benchmark's bars are written where it measures, and nowhere else: its table, its exit code and the
gates of `make gates` read the same measures.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

Verdict = Literal["held", "missed", "figure"]
"""`figure` is a measure without a bar."""


class Bar(NamedTuple):
    """The least or the most that a measure may be."""

    limit: float
    is_least: bool = False

    def holds(self, value: float) -> bool:
        """Return True if a value is on the right side of it; one that is no number is not."""
        return value >= self.limit if self.is_least else value <= self.limit

    def __str__(self) -> str:
        return f"{'≥' if self.is_least else '≤'} {self.limit:g}"


@dataclass(frozen=True)
class Measure:
    """One figure."""

    name: str
    value: float
    bar: Bar | None = None
    category: str = ""
    """The kind of error that it counts, or of cost, such as `leak`, `wrong target` or `time`."""
    note: str = ""
    """What a person reads beside the figure."""

    @property
    def verdict(self) -> Verdict:
        """What the bar says."""
        if self.bar is None:
            return "figure"
        return "held" if self.bar.holds(self.value) else "missed"


TIME = "time"
"""The category of what depends on the machine."""


def most(name: str, value: float, limit: float, category: str, note: str = "") -> Measure:
    """Return a measure that is `limit` at most."""
    return Measure(name, float(value), Bar(limit), category, note)


def least(name: str, value: float, limit: float, category: str, note: str = "") -> Measure:
    """Return a measure that is `limit` at least."""
    return Measure(name, float(value), Bar(limit, is_least=True), category, note)


def figure(name: str, value: float, category: str, note: str = "") -> Measure:
    """Return a measure without a bar."""
    return Measure(name, float(value), None, category, note)


def missed(measures: Iterable[Measure]) -> list[Measure]:
    """Return the measures whose bar is missed."""
    return [each for each in measures if each.verdict == "missed"]


def lines(measures: Sequence[Measure]) -> list[str]:
    """Return a line for each measure."""
    width = max((len(each.name) for each in measures), default=0)
    return [
        f"{each.name:{width}} {each.value:12,.3f}  {each.bar or ''!s:10}"
        f"{'  MISSED' if each.verdict == 'missed' else ''}{f'  {each.note}' if each.note else ''}"
        for each in measures
    ]
