"""Order: the candidates of one question, scored by every signal, weighed and sorted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

from tallystick.ranking.corpus import Corpus
from tallystick.ranking.dates import Span
from tallystick.ranking.question import Question
from tallystick.ranking.signals import SIGNALS, Candidates, Pool, spread_of
from tallystick.ranking.weights import RecallWeights

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from tallystick.ranking.vocabulary import WordVectors

    Floats = NDArray[np.float64]
    Ints = NDArray[np.int64]
    Flags = NDArray[np.bool_]


_SHOWN_ALWAYS = frozenset({"text", "vector", "words", "content"})
"""The signals of a candidate that are computed and listed whatever their weight."""


@dataclass(frozen=True, slots=True)
class Ranked:
    """A candidate's score with each signal before weighting."""

    doc: int
    score: float
    signals: dict[str, float]


def rank(
    question: Question,
    pools: Sequence[Pool],
    weights: RecallWeights,
    vectors: WordVectors | None,
    extra: Mapping[str, Floats] | None = None,
    *,
    most: int | None = None,
) -> list[Ranked]:
    """Return the candidates, best first, at most `most`; equal scores by `doc`, lowest first.

    The score is the sum of `SIGNALS` and of `extra`, which the caller computed, each times its
    weight. A memory that matches nothing scores about 0; scores compare within one answer only.
    """
    import numpy as np

    candidates = Candidates(question, pools, vectors)
    if not len(candidates):
        return []
    weights = weights.for_unread(candidates.unread_share)
    score = np.zeros(len(candidates), dtype=np.float64)
    columns: dict[str, Floats] = {}
    for signal in SIGNALS:
        weight = weights.of(signal.name)
        is_needed = weight or signal.name in _SHOWN_ALWAYS
        column = signal.measure(candidates, score) if is_needed else None
        if column is not None:
            columns[signal.name] = column
            scale = spread_of(column) if signal.is_scaled else 1.0
            score = score + (weight / scale if scale else 0.0) * column
    for name, column in (extra or {}).items():
        columns[name] = column
        score = score + weights.of(name) * column
    score = np.round(score, 6)
    docs = candidates.column("doc")
    order = np.lexsort((docs, -score))[:most].tolist()
    values = {name: np.round(column[order], 6).tolist() for name, column in columns.items()}
    return [
        Ranked(
            doc,
            value,
            {
                name: numbers[place]
                for name, numbers in values.items()
                if name in _SHOWN_ALWAYS or numbers[place]
            },
        )
        for place, (doc, value) in enumerate(
            zip(docs[order].tolist(), score[order].tolist(), strict=True)
        )
    ]


def rows_within(
    corpus: Corpus, named: Sequence[Span], allowed: Flags, worth: Floats, depth: int
) -> Ints:
    """Return the rows, at most `depth`, that were said within the spans; of more those of most
    worth, equal ones by row.
    """
    import numpy as np

    times = corpus.column("occurred_at")
    inside = np.zeros(len(times), dtype=bool)
    for span in named:
        inside |= (times >= span.start) & (times < span.end)
    rows = np.flatnonzero(inside & allowed)
    return np.sort(rows[np.argsort(-worth[rows], kind="stable")][:depth])


def proposals(scores: Floats, depth: int) -> Ints:
    """Return the rows of the `depth` best scores above zero; equal ones by row, lowest first."""
    import numpy as np

    rows = np.flatnonzero(scores > 0)
    if len(rows) > depth:
        positive = scores[rows]
        last = np.partition(positive, len(rows) - depth)[len(rows) - depth]
        best = np.flatnonzero(positive >= last)
        rows = rows[best[np.argsort(-positive[best], kind="stable")]][:depth]
    return cast("Ints", rows)
