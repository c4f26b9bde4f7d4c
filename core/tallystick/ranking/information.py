"""Information: how much each text of a scope tells about whoever wrote it, and which later text
speaks of the same.

Rarity decides, by the statistics of the scope alone: a statement tells as much as its words are
rare there. NumPy is imported on first use.
"""

from __future__ import annotations

import unicodedata
from functools import lru_cache
from typing import TYPE_CHECKING

from tallystick.ranking.question import inverse_frequency
from tallystick.ranking.sentences import code_spans

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from tallystick.ranking.corpus import Corpus

    Floats = NDArray[np.float64]
    Ints = NDArray[np.int64]

_SAME_MATTER = 4.0
"""The most that the words which two texts share have to be rare together, in nats, for one to speak
of what the other does. Where texts are few, a word that these two alone have is enough.
"""
_ALONE = 2
_COMMON = 1.0
"""Words below this rarity, which a third of the texts have, say nothing of a matter."""
_QUESTION, _QUOTING = 0.5, 0.6
"""What a text counts for that asks, and one that quotes: neither is said of oneself."""


def information(corpus: Corpus) -> Floats:
    """Return for each row the rarity of its distinct meaningful words, added up, in nats; 0 for
    rows that are not live.

    Rarity is that of `Corpus.rarity`.
    """
    import numpy as np

    rarity = corpus.rarity
    told = np.zeros(corpus.starts[-1], dtype=np.float64)
    terms = corpus.vocabulary.term_of
    for start, segment in zip(corpus.starts, corpus.segments, strict=False):
        counts = np.diff(segment.word_offsets)
        rows = np.repeat(np.arange(len(segment)), counts)
        sums = np.bincount(rows, weights=rarity[terms[segment.words]], minlength=len(segment))
        told[start : start + len(segment)] = np.where(segment.alive, sums, 0.0)
    return told


def stated(text: str) -> float:
    """Return what a text counts for by its form, between 0 and 1: less where it asks or quotes."""
    worth = 1.0
    signs = {_sign(char) for char in set(text)}
    if "question" in signs:
        worth *= _QUESTION
    if "quote" in signs or text.count('"') > 1 or code_spans(text):
        worth *= _QUOTING
    return worth


@lru_cache(maxsize=4_096)
def _sign(char: str) -> str:
    if "QUESTION MARK" in unicodedata.name(char, ""):
        return "question"
    # The sign that ends a quotation in some languages is the apostrophe of others.
    is_quote = unicodedata.category(char) in ("Pi", "Pf") and char not in "\u2018\u2019"
    return "quote" if is_quote else ""


def later_on_same_matter(corpus: Corpus, row: int) -> Ints:
    """Return the rows that were said after `row` and share rare words with it, the latest first."""
    import numpy as np

    rarity, terms = corpus.rarity, corpus.vocabulary.term_of
    own = np.unique(terms[corpus.words_of(np.array([row])).words])
    own = own[rarity[own] >= _COMMON]
    shared = np.zeros(corpus.starts[-1], dtype=np.float64)
    for start, segment in zip(corpus.starts, corpus.segments, strict=False):
        postings = segment.postings(own.tolist())
        if postings is None:
            continue
        rows = segment.owner[postings.slices].astype(np.int64)
        # Slices of one row stand side by side: it is counted once a term.
        once = np.flatnonzero(np.diff(postings.which * len(segment) + rows, prepend=-1))
        worth = rarity[own[postings.which[once]]]
        counted = np.bincount(rows[once], weights=worth, minlength=len(segment))
        shared[start : start + len(segment)] = counted
    said = corpus.column("said_at")
    least = min(_SAME_MATTER, inverse_frequency(len(corpus), _ALONE))
    later = np.flatnonzero((shared >= least) & corpus.alive & (said > said[row]))
    return later[np.argsort(-said[later], kind="stable")]
