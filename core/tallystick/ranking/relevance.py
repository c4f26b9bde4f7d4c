"""Relevance for the compiler: how well each candidate answers a request, as quantised integers.

The words and vectors of recall, in a weighted sum without the signals of conversations; statistics are those of the
candidates themselves.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING

from tallystick.errors import EmbeddingError
from tallystick.ranking.bm25 import bm25
from tallystick.ranking.fusion import fuse, quantise
from tallystick.ranking.vectors import cosines
from tallystick.ranking.words import analyze, query_terms

if TYPE_CHECKING:
    from tallystick.ports import Embedder

__all__ = ["relevance"]


def relevance(query: str, texts: Mapping[str, str], embedder: Embedder | None) -> dict[str, int]:
    """Candidate id to relevance in 0..1,000,000. An embedder that fails costs its signal, nothing else."""
    if not texts:
        return {}
    ids = sorted(texts)
    words = [analyze(texts[name]) for name in ids]
    terms = query_terms(query)
    wanted = set(terms)
    counted = [Counter(word for word in document if word in wanted) for document in words]
    scores = bm25(
        terms,
        counted,
        [len(document) for document in words],
        n_documents=len(ids),
        average_length=sum(map(len, words)) / len(ids) or 1.0,
        document_frequency=Counter(word for counts in counted for word in counts),
    )
    fused = fuse({"text": scores, "vector": _nearness(query, [texts[name] for name in ids], embedder)})
    return {name: quantise(score) for name, score in zip(ids, fused, strict=True)}


def _nearness(query: str, texts: list[str], embedder: Embedder | None) -> list[float]:
    if embedder is None:
        return [0.0] * len(texts)
    try:
        vectors = embedder.embed([query, *texts])
    except EmbeddingError:
        return [0.0] * len(texts)
    return [max(0.0, float(value)) for value in cosines(vectors[0], vectors[1:])]
