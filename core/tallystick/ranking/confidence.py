"""Confidence: whether a note has anything to do with a request, and how likely it is that anything
which was found answers it, on one scale for all questions.

The best of twenty unrelated notes is still unrelated, so an order says nothing of it. Evidence is
what the best slice of a note has of the words and of the meaning of the request; a long note has
many slices, of which one is like anything, and needs more. `make eval-floor` measures the constants
of evidence over functions, sections of documentation, scenes of FriendsQA and single lines of
these, each beside twenty texts of other kinds: of what answers 92, 90, 97 and 82 in a hundred are
kept, of the others 5, 4, 26 and 19.

All weights are set by hand: the meaning of a whole question says more than one word that it shares
with a memory. `make fit-confidence` fits others to labelled questions, and measures both. They are
of the default table; of another embedder they say less.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import NamedTuple

from tallystick.ranking.corpus import Corpus
from tallystick.ranking.languages import ENGLISH, is_latin, languages_of
from tallystick.ranking.order import Ranked
from tallystick.ranking.question import Question, names_within
from tallystick.ranking.words import analyze, surfaces_of

CONFIDENT = 0.25
"""The confidence below which a recall is taken to have found nothing; docs/reference/recall.md says
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


UNRELATED = 0.25
"""The relevance below which a note answers nothing: the floor of a compile, by default."""
_LEAST, _FEW_WORDS = 0.4, 12
"""The least evidence for a request of so many words; less for longer ones, of which no note has
many.
"""
_TEXT = 2.0
"""The weight of shared words: a word that a slice has once counts about a half of it."""
_SLICE, _OF_SLICES = 700, 0.09
"""Characters of a slice, and what a note needs more for each time that it has e times as many."""
_SAYS_ENOUGH = 2
"""Words of a request, function words aside, from which on it says enough to call a note unrelated:
"go on" does not.
"""
_JOINT = r"[./\\:]+"


def has_evidence(hit: Ranked, question: Question, content: str, *, vectors: bool) -> bool:
    """Return True if a note has enough of a request; `vectors` is False where only words were
    compared.
    """
    rarity = sum(question.weights[term] for term in question.content.values())
    text = hit.signals["text"] / rarity if rarity else 0.0
    vector = hit.signals["vector"] if vectors else VECTOR_OF_WORDS * hit.signals["words"]
    length = math.log(max(1.0, len(content) / _SLICE))
    least = _LEAST * min(1.0, _FEW_WORDS / max(1, len(question.content)))
    return _TEXT * text + vector - _OF_SLICES * length >= least


def names_file(query: str, uri: str | None) -> bool:
    """Return True if a query names a file: by its name with its ending, or with the folder above
    it, in which form ever (`ledger/statement.py`, `ledger.statement`, `ledger::statement`).
    """
    parts = [part for part in re.split(r"[/\\]", uri or "") if part]
    if not parts or "." not in parts[-1].strip("."):
        return False
    stem = parts[-1].partition(".")[0]
    names = [re.escape(parts[-1])]
    if len(parts) > 1 and stem:
        names.append(rf"{re.escape(parts[-2])}{_JOINT}{re.escape(stem)}")
    return re.search(rf"(?<!\w)(?:{'|'.join(names)})(?!\w)", query, re.IGNORECASE) is not None


def names_source(query: str, uri: str | None, title: str | None) -> bool:
    """Return True if a query names a source: by its title, its address, or the file at the end of
    its address.
    """
    names = [title, uri]
    if uri is not None:
        file = uri.rstrip("/").rpartition("/")[2]
        names += [file, file.partition(".")[0]]
    folded = query.casefold()
    return any(_stands_in(name.strip().casefold(), folded) for name in names if name is not None)


def _stands_in(name: str, text: str) -> bool:
    # Two letters stand in every other sentence by chance.
    return len(name) > 2 and re.search(rf"(?<!\w){re.escape(name)}(?!\w)", text) is not None


def says_enough(question: Question) -> bool:
    """Return True if a request has words enough to call a note unrelated to it."""
    # Scripts without spaces are read as overlapping pairs, of which a short word has one or two.
    words = {word for word, term in question.words.items() if term not in question.names}
    words -= question.listed
    unspaced = sum(len(word) == 2 and not is_latin(word) for word in words)
    return len(words) - unspaced // 2 >= _SAYS_ENOUGH


def is_of_their_language(question: Question, corpora: Sequence[Corpus]) -> bool:
    """Return True if a request is written in a language of the texts."""
    spoken = {language for corpus in corpora for language in corpus.languages or (ENGLISH,)}
    return not spoken.isdisjoint(languages_of(surfaces_of(question.text)))
