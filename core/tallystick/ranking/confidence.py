"""Confidence: how likely it is that anything which was found answers the question, on one scale for
all questions.

The weights are set by hand: the meaning of a whole question says more than one word that it shares
with a memory. `make fit-confidence` fits others to labelled questions, and measures both. They are
of the default table; of another embedder they say less.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import NamedTuple

from tallystick.ranking.corpus import Corpus
from tallystick.ranking.order import Ranked
from tallystick.ranking.question import Question, names_within
from tallystick.ranking.words import analyze

CONFIDENT = 0.25
"""The confidence below which a recall is taken to have found nothing; docs/recall.md says
what it is made of, and what it cannot tell apart.
"""
_BEST = 5
"""Hits that are looked at: a turn beside the answer may be the first."""
_FEW = 50
"""Slices below which rarity says nothing: of one memory, each word that it has is common."""
VECTOR_OF_WORDS = 0.6
"""The cosine to expect for a share of words, where there is no vector."""
_CASED = re.compile(r"[A-Za-z\u00c0-\u024f\u0370-\u052f]")


class Evidence(NamedTuple):
    """What says that a question is answered by what was found."""

    words: float
    """The share of the question's words, stop words aside, that the best of the first hits has,
    between 0 and 1.
    """
    vector: float
    """The cosine of the nearest of them."""
    about: float
    """1 if the question names somebody that is known, else 0."""


_WEIGHTS, _NONE = Evidence(4.0, 8.0, 4.1), -5.75


def confidence(
    question: Question, ranked: Sequence[Ranked], corpora: Sequence[Corpus], *, vectors: bool
) -> float:
    """Return how likely the question is answered by what was found, between 0 and 1; 0 for
    nothing. `vectors` is False where only words were compared.
    """
    evidence = evidence_of(question, ranked, corpora, vectors=vectors)
    if evidence is None:
        return 0.0
    logit = sum(weight * value for weight, value in zip(_WEIGHTS, evidence, strict=True)) + _NONE
    return round(1 / (1 + math.exp(-logit)), 6)


def evidence_of(
    question: Question, ranked: Sequence[Ranked], corpora: Sequence[Corpus], *, vectors: bool
) -> Evidence | None:
    """Return what the first hits say; None if there are none."""
    best = ranked[:_BEST]
    if not best:
        return None
    words = max(hit.signals["content"] for hit in best)
    if sum(corpus.size.slices for corpus in corpora) < _FEW:
        words = max(words, _share_of_words(question, corpora))
    # One word says little: as if half a word more had been asked for, which none has.
    words *= len(question.content) / (len(question.content) + 0.5)
    vector = max(hit.signals["vector"] for hit in best) if vectors else VECTOR_OF_WORDS * words
    about = float(_names_somebody(question, corpora))
    if not about and not _CASED.search(question.text):
        # Names do not show in a script without capitals: a word that was said stands for one.
        about = float(any(hit.signals["text"] > 0 for hit in best))
    return Evidence(words, vector, about)


def _names_somebody(question: Question, corpora: Sequence[Corpus]) -> bool:
    """Return True if the question names a speaker, or has a name that the memories have too."""
    if question.names or question.speakers:
        return True
    terms = {term for name in names_within(question.text) for term in analyze(name)}
    return any(corpus.frequency(term) for corpus in corpora for term in sorted(terms))


def _share_of_words(question: Question, corpora: Sequence[Corpus]) -> float:
    """Return the share of the question's content words that the memories have."""
    words = question.content
    if not words:
        return 0.0
    present = [
        any(
            corpus.frequency(form) > 0
            for corpus in corpora
            for form in (term, *question.forms.get(word, ()))
        )
        for word, term in words.items()
    ]
    return sum(present) / len(present)
