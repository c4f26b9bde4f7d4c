"""BM25: how well documents answer a query by their words.

Robertson and Zaragoza, "The Probabilistic Relevance Framework: BM25 and Beyond" (2009), with the
inverse document frequency that never turns negative:

    idf(t)      = ln(1 + (N - df(t) + 0.5) / (df(t) + 0.5)) score(q, d) = sum over t in q of  idf(t)
    * tf * (k1 + 1) / (tf + k1 * (1 - b + b * |d| / average))

The caller passes the statistics, which are those of the actor's scopes: the contents of other
scopes never change a score.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from tallystick.errors import InvalidInput


def bm25(
    query_terms: Sequence[str],
    documents_tf: Sequence[Mapping[str, int]],
    lengths: Sequence[int],
    *,
    n_documents: int,
    average_length: float,
    document_frequency: Mapping[str, int],
    k1: float = 1.0,
    b: float = 0.5,
) -> list[float]:
    """Return one score per document, in the order given; 0.0 for a document that contains none of
    the terms.

    `documents_tf` maps a term to its number of occurrences in the document, `lengths` are in words.
    A term that occurs twice in the query counts twice. A document frequency above `n_documents` is
    read as `n_documents`. Raises InvalidInput when documents and lengths do not pair up.
    """
    if len(documents_tf) != len(lengths):
        raise InvalidInput(
            f"{len(documents_tf)} documents came with {len(lengths)} lengths; give one length each."
        )
    weights = [
        (term, inverse_frequency(n_documents, document_frequency.get(term, 0)))
        for term in query_terms
    ]
    scores: list[float] = []
    for frequencies, length in zip(documents_tf, lengths, strict=True):
        relative = length / average_length if average_length > 0 else 1.0
        saturation = k1 * (1.0 - b + b * relative)
        score = 0.0
        for term, idf in weights:
            tf = frequencies.get(term, 0)
            if tf > 0:
                score += idf * tf * (k1 + 1.0) / (tf + saturation)
        scores.append(score)
    return scores


def inverse_frequency(n_documents: int, frequency: int) -> float:
    """Return the rarity of a term that `frequency` of `n_documents` contain; above 0."""
    bounded = min(max(frequency, 0), n_documents)
    return math.log(1.0 + (n_documents - bounded + 0.5) / (bounded + 0.5))
