"""Question: a query, read once against the words of the corpora that it is asked of, and how alike
their words and those of the question are.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import islice
from typing import TYPE_CHECKING

from tallystick.ranking.corpus import Corpus
from tallystick.ranking.dates import Span, spans
from tallystick.ranking.languages import (
    ENGLISH,
    is_latin,
    languages_of,
    listed_words,
    unspaced_languages_of,
)
from tallystick.ranking.sentences import excerpt
from tallystick.ranking.words import analyze, surfaces_of, words_of

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from tallystick.ranking.vocabulary import WordVectors

    Floats = NDArray[np.float64]
    Ints = NDArray[np.int64]
    Vectors = NDArray[np.float32]

QUERY_READ = 4_000
"""Characters of a query that are read: half of them at its beginning, half at its end."""
_MOST_WORDS = 500
"""Different words of a query that are looked for."""
_LISTED = 0.5
"""What a word counts that is listed as a stop word, and long enough to carry meaning."""
_NAME = re.compile(r"(?<=[^\W\d_] )[^\W\d_a-z][^\W\d_]+")
_FREQUENT, _FEW = 0.5, 50
"""The share of a scope's texts, and their number at least, beyond which a listed word is left out.
"""
_TOGETHER = re.compile(r"\s*(?:[,&+/]|\w{1,3})\s*")
"""What stands between two names of one list: a sign, or a short word such as "and"."""


@dataclass(frozen=True)
class Statistics:
    """The number and average length of the slices of some corpora together, and of no others."""

    slices: int
    average_length: float

    @classmethod
    def of(cls, corpora: Iterable[Corpus]) -> Statistics:
        """Return the statistics of these corpora."""
        sizes = [corpus.size for corpus in corpora]
        count = sum(slices for slices, _ in sizes)
        return cls(count, sum(words for _, words in sizes) / count if count else 1.0)


@dataclass(frozen=True)
class Question:
    """A query, read once against the words of the corpora."""

    text: str
    meaning: str = ""
    """The words to embed: names of speakers say who, not what."""
    words: Mapping[str, str] = field(default_factory=dict)
    """Each word without stop words, with its term."""
    listed: frozenset[str] = frozenset()
    """Those of `words` that are listed as stop words."""
    forms: Mapping[str, frozenset[str]] = field(default_factory=dict)
    """Other terms that a word may stand in, where the question's language bends it: by the word."""
    weights: Mapping[str, float] = field(default_factory=dict)
    """Each term with its inverse document frequency; all terms of one word have one."""
    names: Mapping[str, frozenset[str]] = field(default_factory=dict)
    """The terms of speakers' names, with the speakers who bear them: such a word counts where
    others say it.
    """
    speakers: frozenset[str] = frozenset()
    """Known speakers that the query names."""
    dates: tuple[Span, ...] = ()
    average_length: float = 1.0

    @cached_property
    def content(self) -> dict[str, str]:
        """Those of `words` that are neither stop words nor speakers' names, with their terms; all
        but these names where none is left.
        """
        words = {word: term for word, term in self.words.items() if term not in self.names}
        return {word: term for word, term in words.items() if word not in self.listed} or words


def ask(query: str, corpora: Sequence[Corpus], now: int) -> Question:
    """Read a query, seen from `now`, against the words of these corpora.

    Of a query longer than `QUERY_READ` the beginning and the end are read, and of more than
    `_MOST_WORDS` different words the first.
    """
    query = excerpt(query, QUERY_READ)
    pairs = words_of(query)
    words = dict(islice(dict(pairs).items(), _MOST_WORDS))
    # Of a script without spaces `words_of` leaves out the words that show the language.
    own = languages_of(words if query.isascii() else surfaces_of(query))
    listed = listed_words(own[0]) if len(own) == 1 else frozenset().union(*map(listed_words, own))
    names = {name.lower() for name in names_within(query)}
    terms = {term for word, term in words.items() if word not in listed or word in names}
    named = {pair for corpus in corpora for term in terms for pair in corpus.named_by.get(term, ())}
    bearers: dict[str, set[str]] = {}
    for name, speaker in named:
        for term in analyze(name):
            bearers.setdefault(term, set()).add(speaker)
    surfaces = {surface: term for surface, term in words.items() if term not in bearers}
    statistics = Statistics.of(corpora)

    frequency = _Frequencies(corpora)
    frequency.count(surfaces.values())
    # A listed word that half of the texts have tells none apart.
    most = max(_FEW, statistics.slices * _FREQUENT)
    surfaces = {
        surface: term
        for surface, term in surfaces.items()
        if surface not in listed or frequency[term] <= most
    } or surfaces
    forms = _forms(surfaces, own, corpora)
    frequency.count(term for terms in forms.values() for term in terms)

    weights: dict[str, float] = {}
    for surface, term in surfaces.items():
        every = [term, *sorted(forms.get(surface, ()))]
        found = sum(frequency[form] for form in every)
        inverse = inverse_frequency(statistics.slices, found)
        inverse *= _LISTED if surface in listed else 1.0
        weights |= {form: max(inverse, weights.get(form, 0.0)) for form in every}
    borne = {
        term: frozenset(bearers[term]) for term in dict.fromkeys(words.values()) if term in bearers
    }
    for term, who in borne.items():
        said = sum(corpus.frequency(term, unless_by=who) for corpus in corpora)
        weights[term] = inverse_frequency(statistics.slices, said)
    speakers = frozenset(_subject(query, named))
    return Question(
        text=query,
        meaning=" ".join(surfaces) or query,
        words={
            surface: term for surface, term in words.items() if surface in surfaces or term in borne
        },
        listed=listed.intersection(surfaces),
        forms=forms,
        weights=weights,
        names=borne,
        speakers=speakers,
        dates=spans(query, now, _languages_of_dates(query, own, corpora)),
        average_length=statistics.average_length,
    )


class _Frequencies(dict[str, int]):
    """By term the number of slices of some corpora that contain it, as far as it was counted."""

    def __init__(self, corpora: Sequence[Corpus]) -> None:
        super().__init__()
        self._corpora = corpora

    def count(self, terms: Iterable[str]) -> None:
        """Count those of some terms that are not counted yet."""
        new = [term for term in dict.fromkeys(terms) if term not in self]
        if new:
            of_corpora = [corpus.frequencies(new) for corpus in self._corpora]
            self.update(zip(new, map(sum, zip(*of_corpora, strict=True)), strict=False))
            self.update((term, 0) for term in new if term not in self)


def names_within(text: str) -> list[str]:
    """Return the words that are written as names within a sentence: "Will" in "Did Will call?"."""
    return _NAME.findall(text)


def _languages_of_dates(
    query: str, own: Sequence[str], corpora: Sequence[Corpus]
) -> tuple[str, ...]:
    """Return the languages in which a query may name a date: its own, where it shows none those of
    the scopes, and English.
    """
    own = [*unspaced_languages_of(query), *own]
    own = own or [language for corpus in corpora for language in corpus.languages]
    return tuple(dict.fromkeys([*own, ENGLISH]))


def _forms(
    words: Mapping[str, str], own: Sequence[str], corpora: Sequence[Corpus]
) -> dict[str, frozenset[str]]:
    """Return, for the words of a question, the other terms that its language, or those of the
    scopes, make of their roots.

    English and the scripts of one language need none: text is indexed by them.
    """
    latin = [word for word in words if word.isalpha() and is_latin(word)]
    languages = own if latin else (ENGLISH,)
    forms: dict[str, frozenset[str]] = {}
    for corpus in corpora:
        for language in languages or corpus.languages:
            if language == ENGLISH:
                continue
            for word, terms in corpus.vocabulary.related_terms(latin, language).items():
                forms[word] = forms.get(word, frozenset()) | terms - {words[word]}
    return {word: terms for word, terms in forms.items() if terms}


def _subject(query: str, named: Iterable[tuple[str, str]]) -> set[str]:
    """Return the speakers among the named (name, speaker) that the query is about.

    In "What did Jon say of Gina's store" Jon; of "Jon and Gina" both.
    """
    pairs = sorted(named)
    places = set()
    for name, speaker in pairs:
        match = re.search(
            rf"(?<!\w){re.escape(name.split()[0])}(['\u2019]s\b)?", query, re.IGNORECASE
        )
        if match is not None:
            places.add((match.start(), match.end(), match[1] is not None, speaker))
    ordered = sorted(places)
    free = [place for place in ordered if not place[2]] or ordered
    if len(free) < 2:
        return {place[3] for place in free} or {speaker for _, speaker in pairs}
    between = query[free[0][1] : free[1][0]]
    return {place[3] for place in free} if _TOGETHER.fullmatch(between) else {free[0][3]}


def inverse_frequency(n_documents: int, frequency: int) -> float:
    """Return the rarity of a term that `frequency` of `n_documents` contain; above 0."""
    bounded = min(max(frequency, 0), n_documents)
    return math.log(1.0 + (n_documents - bounded + 0.5) / (bounded + 0.5))


def likest_words(
    question: Question,
    corpus: Corpus,
    numbers: NDArray[np.int32],
    counts: Ints,
    meant: Vectors | None,
    vectors: WordVectors | None,
) -> Floats:
    """Return for each candidate (rows) and each word of the question (columns) the likeness of the
    likest of the candidate's own words; 0 where it has none.

    `numbers` are the words of the candidates, one candidate after the other, and `counts` says how
    many each has; `meant` are the vectors of the question's words, if there are any. It is the
    inner half of MaxSim (Khattab and Zaharia, "ColBERT", 2020).
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
    likeness = _word_likeness(question, corpus, distinct, meant, vectors)
    for column, of_word in enumerate(likeness):
        best[filled, column] = np.maximum.reduceat(of_word[place], starts)
    return best


def _word_likeness(
    question: Question,
    corpus: Corpus,
    distinct: Ints,
    meant: Vectors | None,
    vectors: WordVectors | None,
) -> Vectors:
    """Return the likeness of each word of the question (rows) to words of the corpus (columns); 1
    for equal terms.
    """
    import numpy as np

    vocabulary = corpus.vocabulary
    words = list(question.words)
    likeness = np.zeros((len(words), len(distinct)), dtype=np.float32)
    # A stop word is like itself only, and so is a name.
    content = [
        place
        for place, (word, term) in enumerate(question.words.items())
        if word not in question.listed and term not in question.names
    ]
    if vectors is not None and meant is not None and content:
        cosines = vocabulary.cosines(distinct, meant[content], vectors)
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
