"""Fusion: several signals become one score by a weighted sum of max-normalised values.

A weighted sum was measured better than reciprocal rank fusion on conversations, because it keeps
how much better one candidate is than the next.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from pydantic import Field

from tallystick.errors import InvalidInput
from tallystick.records import Record

_FULL = 1_000_000


class Weights(Record):
    """The weight of each signal. Only the proportion matters for the order; defaults sum to one."""

    text: float = Field(default=0.6, ge=0, allow_inf_nan=False)
    """Words that query and memory share: BM25."""
    vector: float = Field(default=0.4, ge=0, allow_inf_nan=False)
    """Nearness of meaning: cosine."""


_DEFAULT = Weights()


def fuse(
    signals: Mapping[str, Sequence[float]], weights: Weights | Mapping[str, float] = _DEFAULT
) -> list[float]:
    """One score per candidate: the sum over signals of weight times value divided by the signal's
    largest value.

    Each signal lists one value per candidate, all in the same order. Values at or below zero add
    nothing, and a signal without a positive value adds nothing to anyone. Between 0 and the sum of
    the weights. Signals are added in the order of their names, so that the order of the mapping
    changes no digit; equal scores are the caller's to order. Raises InvalidInput for signals of
    different lengths, for a signal without a weight, and for values that are not finite.
    """
    table: Mapping[str, float] = weights.model_dump() if isinstance(weights, Weights) else weights
    sizes = {len(values) for values in signals.values()}
    if len(sizes) > 1:
        raise InvalidInput(
            f"Signals differ in length: { {name: len(signals[name]) for name in sorted(signals)} }"
        )
    unknown = sorted(set(signals) - set(table))
    if unknown:
        raise InvalidInput(
            f"No weight for the signals {', '.join(unknown)}; weights are known for "
            f"{sorted(table)}."
        )
    scores = [0.0] * next(iter(sizes), 0)
    for name in sorted(signals):
        values = signals[name]
        if not all(map(math.isfinite, values)):
            raise InvalidInput(f"The signal {name} holds a value that is not finite.")
        best = max(values, default=0.0)
        if best > 0:
            weight = table[name]
            scores = [
                score + weight * (value / best) if value > 0 else score
                for score, value in zip(scores, values, strict=True)
            ]
    return scores


def quantise(score: float) -> int:
    """`score` in 0..1 as an integer in 0..1,000,000, nearest, for the compiler; what lies outside
    is clamped.
    """
    if math.isnan(score):
        raise InvalidInput("A score that is not a number cannot be quantised.")
    return round(min(max(score, 0.0), 1.0) * _FULL)
