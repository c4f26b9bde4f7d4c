"""Order: the candidates of one question, scored by every signal, weighed and sorted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

from pydantic import Field

from tallystick.ranking.corpus import Corpus
from tallystick.ranking.dates import Span
from tallystick.ranking.question import Question
from tallystick.ranking.signals import SIGNALS, Candidates, Pool, spread_of
from tallystick.records import Record

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from tallystick.ranking.vocabulary import WordVectors

    Floats = NDArray[np.float64]
    Ints = NDArray[np.int64]
    Flags = NDArray[np.bool_]


class RecallWeights(Record):
    """The weight of each signal in a memory's score. A weight of 0 leaves its signal out.

    `text`, `vector`, `words` and `session` multiply standardised values (distance from the
    candidates' mean in standard deviations); `neighbours` is a share of a neighbour's score; the
    others are added in full where the signal is 1.
    """

    text: float = Field(default=0.2, allow_inf_nan=False)
    """Words that query and memory share: BM25."""
    vector: float = Field(default=0.4, allow_inf_nan=False)
    """Nearness of the whole meaning: cosine."""
    foreign_text: float = Field(default=0.6, allow_inf_nan=False)
    """Instead of `text`, for the share of the query's words that the embedder cannot read."""
    foreign_vector: float = Field(default=0.2, allow_inf_nan=False)
    """Instead of `vector`, for the same share."""
    words: float = Field(default=0.6, allow_inf_nan=False)
    """Nearness of single words: for each word of the query the likest word of the memory."""
    content: float = Field(default=0.0, allow_inf_nan=False)
    """The same of those words that are no stop words: what the confidence is made of."""
    neighbours: float = Field(default=0.3, allow_inf_nan=False)
    """Share of its score that a turn gives to the turns beside it; a half of that two places away.
    """
    session: float = Field(default=0.5, allow_inf_nan=False)
    """Best score in the conversation that the turn belongs to."""
    date: float = Field(default=5.0, allow_inf_nan=False)
    """The memory is of a date that the query names."""
    speaker: float = Field(default=3.0, allow_inf_nan=False)
    """The one speaker named in the query said it."""
    long_answers: float = Field(default=-4.0, allow_inf_nan=False)
    """An assistant who answers at length repeats what the turn before says."""
    vector_only: float = Field(default=-1.0, allow_inf_nan=False)
    """Filters leave less than a tenth of the scope, and only the vector speaks for it."""
    freshness: float = Field(default=0.0, allow_inf_nan=False)
    """It is recent: 1 now, half of that for each 30 days."""
    access: float = Field(default=0.0, allow_inf_nan=False)
    """It was recalled often: the logarithm of 1 and how often, to base 10."""
    task: float = Field(default=0.0, allow_inf_nan=False)
    """It was written in the run under way."""
    project: float = Field(default=0.0, allow_inf_nan=False)
    """It belongs to the project that the caller is bound to; the other scopes asked may be others.
    """
    source: float = Field(default=0.0, allow_inf_nan=False)
    """The query names the source it was drawn from: its title, its address or its file."""
    mentions: float = Field(default=0.5, allow_inf_nan=False)
    """It mentions an entity that the query names, where the graph is on: 1 for a rare one."""
    related: float = Field(default=4.0, allow_inf_nan=False)
    """It mentions an entity that texts relate to one of the query, where the graph is on."""

    def of(self, signal: str) -> float:
        """Return the weight of a signal by its name; that of an extension without one counts in
        full.
        """
        weight: float = getattr(self, signal, 1.0)
        return weight

    def by_itself(self) -> RecallWeights:
        """Return these weights for the memory's own text only, without its neighbours."""
        return self.replace(neighbours=0.0, session=0.0)

    def for_unread(self, share: float) -> RecallWeights:
        """Return these weights for a query of which the embedder cannot read a share."""
        if not share:
            return self
        return self.replace(
            text=(1 - share) * self.text + share * self.foreign_text,
            vector=(1 - share) * self.vector + share * self.foreign_vector,
        )


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
