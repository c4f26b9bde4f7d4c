"""Costs: what a piece of work took, counted where it is done.

A piece is measured in the thread that does it: its time, and how often the database was read and
written to, an embedder called and a text analysed within. What a piece within another one took is
in both; the sums of the process have it once, under the inner one.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Literal, NamedTuple, TypeAlias

Counted: TypeAlias = Literal["reads", "writes", "embeddings", "analyses"]
"""What is counted: snapshots of the database, units of writing, calls of an embedder, and texts
that were split into words.
"""
Piece: TypeAlias = Literal[
    "recall", "compile", "record", "checkpoint", "capture", "remember", "policy"
]
"""A piece of a turn."""
COSTS = "costs"
"""The name in a step's metadata of what its pieces took, by piece."""


class Cost(NamedTuple):
    """What a piece of work took."""

    cpu_us: int = 0
    """Microseconds of the processor, in the thread that did it."""
    wall_us: int = 0
    """Microseconds until it was done."""
    reads: int = 0
    writes: int = 0
    embeddings: int = 0
    analyses: int = 0

    def plus(self, other: Cost) -> Cost:
        """Return both together."""
        return Cost(*map(sum, zip(self, other, strict=True)))


_ZERO = Cost()


def costs_in(metadata: Mapping[str, Any]) -> dict[str, dict[str, int]]:
    """Return what the pieces of a step took, from its metadata, in which its caller may have
    another thing of this name.
    """
    costs = metadata.get(COSTS)
    return {
        piece: dict(values)
        for piece, values in (costs.items() if isinstance(costs, dict) else ())
        if isinstance(values, dict)
        and values.keys() == set(Cost._fields)
        and all(type(value) is int for value in values.values())
    }


class Meter:
    """Counts while a piece of work is under way. Used by the one thread that does it."""

    __slots__ = ("_cpu", "_inner", "_wall", "cost", "counts", "piece")

    def __init__(self, piece: Piece) -> None:
        self.piece: Piece = piece
        self.cost = _ZERO
        """What it took, once it is done."""
        self.counts = {"reads": 0, "writes": 0, "embeddings": 0, "analyses": 0}
        self._inner = _ZERO
        self._cpu, self._wall = time.thread_time_ns(), time.perf_counter_ns()

    def _finish(self, outer: Meter | None) -> None:
        cpu = (time.thread_time_ns() - self._cpu) // 1_000
        wall = (time.perf_counter_ns() - self._wall) // 1_000
        own = Cost(cpu, wall, **self.counts)
        self.cost = Cost(cpu, wall, *own.plus(self._inner)[2:])
        if outer is not None:
            outer._inner = outer._inner.plus(self.cost)
        alone = Cost(max(0, cpu - self._inner.cpu_us), max(0, wall - self._inner.wall_us), *own[2:])
        with _guard:
            _totals[self.piece] = _totals.get(self.piece, _ZERO).plus(alone)


_meter: ContextVar[Meter | None] = ContextVar("tallystick_meter", default=None)
_totals: dict[Piece, Cost] = {}
_guard = threading.Lock()


@contextmanager
def measured(piece: Piece) -> Iterator[Meter]:
    """Measure the block; its meter has the `cost` when the block has ended."""
    outer, meter = _meter.get(), Meter(piece)
    token = _meter.set(meter)
    try:
        yield meter
    finally:
        _meter.reset(token)
        meter._finish(outer)


def count(what: Counted) -> None:
    """Count one of them for the piece under way, if there is one."""
    meter = _meter.get()
    if meter is not None:
        meter.counts[what] += 1


def totals() -> Mapping[Piece, Cost]:
    """Return what the pieces of this process took since it began, each without those within it."""
    with _guard:
        return dict(_totals)
