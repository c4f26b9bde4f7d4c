"""Confidence: how likely it is that anything which was found answers the question, on one scale for
all questions.

The weights were fitted by logistic regression on generated conversations and on FriendsQA:
questions whose answer is among the first twenty, and requests that nothing there answers
(`make fit-confidence` fits them again). They are of the default table; of another embedder they say
less.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import NamedTuple

from tallystick.ranking.corpus import Corpus
from tallystick.ranking.order import Question, Ranked
from tallystick.ranking.words import analyze, query_words

CONFIDENT = 0.25
"""The confidence below which a recall is taken to have found nothing; docs/recall.md says
what it is made of, and what it cannot tell apart.
"""
_BEST = 5
"""Hits that are looked at: a turn beside the answer may be the first."""
_FEW = 50
"""Slices below which rarity says nothing: of one memory, each word that it has is common."""
_IN_OTHER_WORDS = 0.5
"""The share of the question's words that a memory is taken to have which says what is asked of who
somebody is.
"""
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
_CLAUSE = re.compile(r"[.!?:;\n\u3002\uff01\uff1f]+")
_ASKS_FOR = re.compile(
    r"^\W*(?:(?:so|and|but|well|ok(?:ay)?|hi|hello|hey|please|for\s+(?:my|our)\s+\w+)\W+)*"
    r"(?:i(?:['\u2019]d)?\s+(?:(?:just|really|also|would|still)\s+)*"
    r"(?:need|want|wish|like|love|have|must|should|am\s+trying|was\s+asked|wonder)\b"
    r"|i['\u2019]m\s+(?:trying|looking|supposed|wondering)\b"
    r"|(?:can|could|may|might)\s+(?:i|we)\s+(?:get|have|see|ask)\b"
    r"|(?:we|i)\s+(?:were|was|are|am)\s+(?:asked|told|supposed)\b"
    r"|ich\s+(?:brauche|m\u00f6chte|will|muss|h\u00e4tte|suche)\b"
    r"|j['\u2019](?:ai\s+besoin|aimerais)|je\s+(?:voudrais|veux|dois|cherche)\b)",
    re.IGNORECASE,
)
"""How somebody begins who asks for something, as "I need …"."""
_CASED = re.compile(r"[A-Za-z\u00c0-\u024f\u0370-\u052f]")
_NAME = re.compile(r"(?<=[^\W\d_] )[^\W\d_a-z][^\W\d_]+")


class Evidence(NamedTuple):
    """What says that a question is answered by what was found."""

    words: float
    """The share of the question's words that the best of the first hits has, between 0 and 1."""
    vector: float
    """The cosine of the nearest of them."""
    about: float
    """How far the question is about anybody known: 1 if it names somebody, else the share of its
    words, by rarity, that stand in clauses in which the asker speaks of himself.
    """


_WEIGHTS, _NONE = Evidence(5.5, 5.4, 4.1), -6.0


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
    words = max(_words(hit) for hit in best)
    if sum(corpus.size.slices for corpus in corpora) < _FEW:
        words = max(words, _share_of_words(question, corpora))
    vector = max(_vector(hit) for hit in best) if vectors else VECTOR_OF_WORDS * words
    is_about = bool(question.who) or _names_somebody(question, corpora)
    about = 1.0 if is_about else _about_oneself(question)
    if not about and not _CASED.search(question.text):
        # Names do not show in a script without capitals: a word that was said stands for one.
        about = float(any(hit.signals["text"] > 0 for hit in best))
    return Evidence(words, vector, about)


def _words(hit: Ranked) -> float:
    # A page as a whole has a word for every question.
    words = hit.signals["words"] if hit.sentence is None else hit.sentence.words
    # Who says who he is answers in other words.
    return max(words, _IN_OTHER_WORDS) if hit.signals.get("introduction") else words


def _vector(hit: Ranked) -> float:
    vector = hit.signals["vector"]
    if hit.sentence is None or hit.sentence.vector is None:
        return vector
    return min(vector, hit.sentence.vector)


def _about_oneself(question: Question) -> float:
    """Return the share of a question's words, by rarity, in clauses about the asker. Who needs a
    poem, or wants something explained, does not ask about himself.
    """
    total = sum(question.weights[term] for term in question.words.values())
    about = 0.0
    for clause in _CLAUSE.split(question.text):
        if _OURS.search(_ASKS_FOR.sub("", clause)):
            terms = set(query_words(clause).values()) & set(question.words.values())
            about += sum(question.weights[term] for term in terms)
    return min(1.0, about / total) if total else float(_OURS.search(question.text) is not None)


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
