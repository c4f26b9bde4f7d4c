"""Likeness: how alike the words of a corpus and those of a question are."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from tallystick.ranking.corpus import Corpus
    from tallystick.ranking.question import Question

    Floats = NDArray[np.float64]
    Ints = NDArray[np.int64]
    WordVectors = Callable[[Sequence[str]], NDArray[np.float32] | None]

_SHARPNESS = 1.5
"""Power of the cosine of two words: the higher, the less a word counts that is only a little alike.
"""


def word_likeness(
    question: Question,
    corpus: Corpus,
    distinct: NDArray[np.int32],
    vectors: WordVectors | None,
) -> Floats:
    """Return the likeness of words: a row for each word of the corpus, a column for each word of
    the question, in its order; 1 for equal terms.
    """
    import numpy as np

    vocabulary = corpus.vocabulary
    words = list(question.words)
    likeness = np.zeros((len(distinct), len(words)), dtype=np.float64)
    # A stop word is like itself only.
    content = [place for place, word in enumerate(words) if word not in question.listed]
    if vectors is not None and content and len(distinct):
        meant = vectors([words[place] for place in content])
        rows = vocabulary.meanings(distinct, vectors) if meant is not None else None
        if meant is not None and rows is not None:
            # Row by row rather than by a matrix product, whose threads cost more than they save.
            cosines = np.clip(np.einsum("ij,kj->ik", rows, meant), 0.0, 1.0)
            likeness[:, content] = cosines.astype(np.float64) ** _SHARPNESS
    terms = vocabulary.term_of[distinct]
    for column, word in enumerate(words):
        for term in (question.words[word], *question.forms.get(word, ())):
            number = vocabulary.terms.get(term)
            if number is not None:
                likeness[terms == number, column] = 1.0
    return likeness


def best_words(likeness: Floats, counts: Ints) -> Floats:
    """For each candidate (rows) and each word of the query (columns) the likeness of the likest of
    its own words.

    `likeness` has a row for each word of each candidate, one candidate after the other, and a
    column for each word of the query; `counts` says how many rows each candidate has. It is the
    inner half of MaxSim (Khattab and Zaharia, "ColBERT", 2020).
    """
    import numpy as np

    best = np.zeros((len(counts), likeness.shape[1]), dtype=np.float64)
    filled = counts > 0
    if filled.any() and likeness.shape[1]:
        starts = np.concatenate([[0], np.cumsum(counts)])[:-1][filled]
        best[filled] = np.maximum.reduceat(likeness, starts, axis=0)
    return best
