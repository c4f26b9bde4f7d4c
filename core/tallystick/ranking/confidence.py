"""Confidence: how likely it is that anything which was found answers the question, on one scale for
all questions.

The weights were fitted by logistic regression on generated conversations and on FriendsQA:
questions whose answer is among the first twenty, and requests that nothing there answers. They are
of the default table; of another embedder they say less.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence

from tallystick.ranking.corpus import Corpus
from tallystick.ranking.order import Question, Ranked
from tallystick.ranking.words import analyze

__all__ = ["CONFIDENT", "VECTOR_OF_WORDS", "confidence"]

CONFIDENT = 0.25
"""The confidence below which a recall is taken to have found nothing; docs/recall.md says
what it is made of, and what it cannot tell apart.
"""
_WORDS, _VECTOR, _ABOUT, _NONE = 5.8, 6.0, 3.8, -6.0
_BEST = 5
"""Hits that are looked at: a turn beside the answer may be the first."""
_FEW = 50
"""Slices below which rarity says nothing: of one memory, each word that it has is common."""
VECTOR_OF_WORDS = 0.6
"""The cosine to expect for a share of words, where there is no vector."""
_OURS = re.compile(
    r"\b(?:i|i['\u2019](?:m|ve|d|ll)|my|mine|myself|we|our|ours|us"
    r"|ich|mein\w*|mir|mich|wir|unser\w*|je|mon|ma|mes|moi|nous|notre|nos"
    r"|yo|mi|mis|nosotr[oa]s|nuestr\w+|io|mio|mia|miei|noi|nostr\w+|eu|meu|minha|nosso|nossa"
    r"|ik|mijn|wij|onze|я|мой|моя|моё|мои|моей|моего|мы|наш\w*|nós|mój|moja|moje|nasz\w*)\b"
    r"|[我咱]|私|僕|俺|나의|내가|우리|제가",
    re.IGNORECASE,
)
"""Words for oneself: a request without them, and without a name that is known, is seldom about what
was said.
"""
_CASED = re.compile(r"[A-Za-z\u00c0-\u024f\u0370-\u052f]")
_NAME = re.compile(r"(?<=[^\W\d_] )[^\W\d_a-z][^\W\d_]+")


def confidence(
    question: Question, ranked: Sequence[Ranked], corpora: Sequence[Corpus], *, vectors: bool
) -> float:
    """Return how likely the question is answered by what was found, between 0 and 1; 0 for
    nothing. `vectors` is False where only words were compared.
    """
    best = [hit.signals for hit in ranked[:_BEST]]
    if not best:
        return 0.0
    words = max(signals["words"] for signals in best)
    if sum(corpus.size.slices for corpus in corpora) < _FEW:
        words = max(words, _share_of_words(question, corpora))
    vector = max(signals["vector"] for signals in best) if vectors else VECTOR_OF_WORDS * words
    about = _OURS.search(question.text) is not None or _names_somebody(question, corpora)
    if not about and not _CASED.search(question.text):
        # Names do not show in a script without capitals: a word that was said stands for one.
        about = any(signals["text"] > 0 for signals in best)
    evidence = _WORDS * words + _VECTOR * vector + _ABOUT * about + _NONE
    return round(1 / (1 + math.exp(-evidence)), 6)


def _names_somebody(question: Question, corpora: Sequence[Corpus]) -> bool:
    """Return True if the question names a speaker, or has a name that the memories have too."""
    if question.names or question.speakers:
        return True
    terms = {term for name in _NAME.findall(question.text) for term in analyze(name)}
    return any(corpus.frequency(term) for corpus in corpora for term in sorted(terms))


def _share_of_words(question: Question, corpora: Sequence[Corpus]) -> float:
    """Return the share of the question's words that the memories have."""
    if not question.words:
        return 0.0
    present = [
        any(
            corpus.frequency(form) > 0
            for corpus in corpora
            for form in (term, *question.forms.get(word, ()))
        )
        for word, term in question.words.items()
    ]
    return sum(present) / len(present)
