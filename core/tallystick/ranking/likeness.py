"""Likeness: how alike the words of a corpus and those of a question are."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from tallystick.ranking.corpus import Corpus
    from tallystick.ranking.question import Question
    from tallystick.ranking.vocabulary import WordVectors

    Floats = NDArray[np.float64]
    Ints = NDArray[np.int64]


def likest_words(
    question: Question,
    corpus: Corpus,
    numbers: NDArray[np.int32],
    counts: Ints,
    vectors: WordVectors | None,
) -> Floats:
    """Return for each candidate (rows) and each word of the question (columns) the likeness of the
    likest of the candidate's own words; 0 where it has none.

    `numbers` are the words of the candidates, one candidate after the other, and `counts` says how
    many each has. It is the inner half of MaxSim (Khattab and Zaharia, "ColBERT", 2020).
    """
    import numpy as np

    best = np.zeros((len(counts), len(question.words)), dtype=np.float64)
    filled = counts > 0
    if not filled.any():
        return best
    starts = (np.cumsum(counts) - counts)[filled]
    # Most words are those of many candidates.
    is_present = np.zeros(int(numbers.max()) + 1, dtype=bool)
    is_present[numbers] = True
    distinct = np.flatnonzero(is_present)
    place = (np.cumsum(is_present) - 1)[numbers]
    likeness = _word_likeness(question, corpus, distinct, vectors)
    for column, of_word in enumerate(likeness):
        best[filled, column] = np.maximum.reduceat(of_word[place], starts)
    return best


def _word_likeness(
    question: Question, corpus: Corpus, distinct: Ints, vectors: WordVectors | None
) -> NDArray[np.float32]:
    """Return the likeness of each word of the question (rows) to words of the corpus (columns); 1
    for equal terms.
    """
    import numpy as np

    vocabulary = corpus.vocabulary
    words = list(question.words)
    likeness = np.zeros((len(words), len(distinct)), dtype=np.float32)
    # A stop word is like itself only.
    content = [place for place, word in enumerate(words) if word not in question.listed]
    meant = vectors([words[place] for place in content]) if vectors and content else None
    if vectors is not None and meant is not None:
        cosines = vocabulary.cosines(distinct, meant, vectors)
        if cosines is not None:
            np.clip(cosines, 0.0, 1.0, out=cosines)
            # To the power of 1.5: a word that is only a little alike counts less.
            likeness[content] = cosines * np.sqrt(cosines)
    terms = vocabulary.term_of[distinct]
    for row, word in enumerate(words):
        for term in (question.words[word], *question.forms.get(word, ())):
            number = vocabulary.terms.get(term)
            if number is not None:
                likeness[row, terms == number] = 1.0
    return likeness
