"""Passages: the slice of a long text that answers a question."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from tallystick.ranking.corpus import K1, B, Corpus
from tallystick.ranking.order import Question
from tallystick.ranking.vectors import slices

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Vector = NDArray[np.float32]

__all__ = ["BestSlice", "best_slice", "passage_of"]


class BestSlice(NamedTuple):
    """The slice of a text that answers best."""

    place: int
    """Counted from 0."""
    slices: int
    """The number of slices of the text."""


def best_slice(
    corpus: Corpus, row: int, question: Question, vector: Vector | None
) -> BestSlice | None:
    """Return the slice of a row's text with the most of the question's words and meaning, the
    first of equal ones; None for a text that is no longer than one.
    """
    import numpy as np

    segment, local = corpus.segment_of(row)
    first, last = np.searchsorted(segment.owner, (local, local + 1)).tolist()
    count = last - first
    if count < 2:
        return None
    scores = np.zeros(count, dtype=np.float64)
    average = question.average_length
    relative = segment.length[first:last] / average if average > 0 else np.ones(count)
    for term, weight in question.weights.items():
        number = corpus.vocabulary.terms.get(term)
        postings = segment.postings(number) if number is not None else None
        if postings is not None:
            where, often = postings
            low, high = np.searchsorted(where, (first, last)).tolist()
            places, times = where[low:high] - first, often[low:high]
            scores[places] += weight * times / (times + K1 * (1.0 - B + B * relative[places]))
    if scores.max() > 0:
        scores /= scores.max()
    if vector is not None and len(segment.vectors):
        low, high = np.searchsorted(segment.vector_owner, (local, local + 1)).tolist()
        if high - low == count:
            # einsum works row by row, so that no digit depends on the other rows.
            scores += np.maximum(np.einsum("ij,j->i", segment.vectors[low:high], vector), 0.0)
    return BestSlice(int(np.argmax(np.round(scores, 6))), count)


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
