"""Passages: the slice of a long text that answers a question."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, cast

from tallystick.ranking.corpus import Corpus, saturate
from tallystick.ranking.question import Question
from tallystick.ranking.vectors import slices

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from tallystick.ranking.segment import Segment

    Floats = NDArray[np.float64]
    Ints = NDArray[np.int64]
    Vector = NDArray[np.float32]


class BestSlice(NamedTuple):
    """The slice of a text that answers best."""

    place: int
    """Counted from 0."""
    slices: int
    """The number of slices of the text."""


def best_slices(
    corpus: Corpus, rows: Ints, question: Question, vector: Vector | None
) -> dict[int, BestSlice]:
    """Return, for each row whose text has several slices, the one with the most of the question's
    words and meaning, the first of equal ones.
    """
    import numpy as np

    best: dict[int, BestSlice] = {}
    place = np.searchsorted(corpus.starts, rows, side="right") - 1
    for at in np.unique(place).tolist():
        segment, start = corpus.segments[at], corpus.starts[at]
        local = rows[place == at] - start
        first = np.searchsorted(segment.owner, local)
        counts = np.searchsorted(segment.owner, local, side="right") - first
        local, first, counts = (values[counts > 1] for values in (local, first, counts))
        if not len(local):
            continue
        ends = np.cumsum(counts)
        chosen = np.repeat(first - (ends - counts), counts) + np.arange(int(ends[-1]))
        scores = _text_scores(corpus, segment, chosen, question)
        for row, end, count in zip(local.tolist(), ends.tolist(), counts.tolist(), strict=True):
            own = scores[end - count : end]
            own = own / own.max() if own.max() > 0 else own
            if vector is not None:
                own = own + _nearness(segment, row, count, vector)
            best[row + start] = BestSlice(int(np.argmax(np.round(own, 6))), count)
    return best


def _text_scores(corpus: Corpus, segment: Segment, chosen: Ints, question: Question) -> Floats:
    """Return BM25 of some slices of a segment."""
    import numpy as np

    average = question.average_length
    lengths = segment.length[chosen]
    relative = lengths / average if average > 0 else np.ones(len(chosen))
    scores = np.zeros(len(chosen), dtype=np.float64)
    for term, weight in question.weights.items():
        number = corpus.vocabulary.terms.get(term)
        postings = segment.postings(number) if number is not None else None
        if postings is None:
            continue
        where, often = postings
        places = np.minimum(np.searchsorted(where, chosen), len(where) - 1)
        times = np.where(where[places] == chosen, often[places], 0.0)
        scores += weight * saturate(times, relative)
    return scores


def _nearness(segment: Segment, row: int, count: int, vector: Vector) -> Floats:
    """Return the cosine of each slice of a row; 0 where it has no vector for each."""
    import numpy as np

    low, high = np.searchsorted(segment.vector_owner, (row, row + 1)).tolist()
    if high - low != count:
        return np.zeros(count, dtype=np.float64)
    # einsum works row by row, so that no digit depends on the other rows.
    cosines = np.einsum("ij,j->i", segment.vectors[low:high], vector).astype(np.float64)
    return cast("Floats", np.maximum(cosines, 0.0))


def passage_of(text: str, best: BestSlice) -> tuple[int, int] | None:
    """Return the characters from and up to which a slice of a text goes, without the white space
    around it; None if the text is cut otherwise by now.
    """
    pieces = slices(text)
    if len(pieces) != best.slices:
        return None
    start = sum(map(len, pieces[: best.place]))
    piece = pieces[best.place]
    return start + len(piece) - len(piece.lstrip()), start + len(piece.rstrip())
