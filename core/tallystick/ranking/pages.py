"""Pages: what single sentences of an assistant's long answers have of a question.

A page has a word for every question, so as a whole it is held back. Yet what the assistant told
stands on a page alone, and there in one sentence, which can be compared with what the user said.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple, cast

from tallystick.ranking import signals as s
from tallystick.ranking.corpus import Corpus, saturated
from tallystick.ranking.fences import with_blank_code
from tallystick.ranking.likeness import word_likeness
from tallystick.ranking.sentences import sentence_spans
from tallystick.ranking.words import indexed_words

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from tallystick.ranking.likeness import WordVectors
    from tallystick.ranking.order import Question

    Floats = NDArray[np.float64]
    Ints = NDArray[np.int64]
    Flags = NDArray[np.bool_]

_ASCII = frozenset(map(chr, range(128)))
_LONGEST = 20_000
"""Characters of a page that are read."""
_SENTENCE = 15
"""Characters of the shortest sentence that is read by itself: shorter ones go with the next."""
_COMPARED = 3
"""Sentences of a page that are compared by meaning: those with the most of the question's words."""
_TOKENIZED = 8
"""Sentences of a page whose words are read, at most: those with the most words alike."""
_ALIKE = 0.3
"""Likeness of two words from which on a sentence with the one is read for the other."""
_SURE = 0.5
"""Standard deviations by which a sentence must be better than all that others said to count in
full.
"""

CLEAR = 2.0
"""Standard deviations by which it must be better for its page to come before what others said, and
not right behind the best of it.
"""


class PageReader(NamedTuple):
    """Where sentences come from, and their vectors."""

    contents: Callable[[Sequence[int]], Mapping[int, str]]
    """The texts of some documents, by document; those that are gone are left out."""
    nearness: Callable[[Sequence[str]], NDArray[np.float32] | None]
    """The cosine of each text with the question; None without vectors."""


class Pages(NamedTuple):
    """Pages of one corpus that are read."""

    corpus: Corpus
    rows: Ints
    contents: Sequence[str]


class BestSentence(NamedTuple):
    """The sentence of a page that has the most of the question."""

    lead: float
    """How much better it is than anything that others said."""
    words: float
    vector: float | None
    """The signals of that sentence; its vector is None where sentences are given none."""


class _Sentences(NamedTuple):
    """The sentences of some pages, one page after the other, with what words say of each."""

    texts: list[str]
    counts: Ints
    """The number of sentences of each page: at least one."""
    text: Floats
    words: Floats


def best_sentences(
    question: Question,
    pages: Sequence[Pages],
    own: Mapping[str, Floats],
    others: Flags,
    shares: Mapping[str, float],
    reader: PageReader,
    vectors: WordVectors | None,
) -> list[BestSentence]:
    """Return the best sentence of each page, in their order.

    `own` holds the signals `text`, `vector` and `words` of all candidates, and `others` says which
    are no pages. Sentences are measured on the scale of what others said, each signal with its
    share.
    """
    import numpy as np

    if not pages:
        return []
    scales = {name: s.scale_of(column[others], within=column) for name, column in own.items()}
    read = [_read(question, part, vectors) for part in pages]
    counts = np.concatenate([part.counts for part in read])
    text = np.concatenate([part.text for part in read])
    words = np.concatenate([part.words for part in read])
    scores = _weighted({"text": text, "words": words}, scales, shares)
    owner = np.repeat(np.arange(len(counts)), counts)
    order = np.lexsort((-scores, owner))
    place = np.arange(len(order)) - np.repeat(np.cumsum(counts) - counts, counts)
    compared = order[place < _COMPARED]
    texts = [text for part in read for text in part.texts]
    near = reader.nearness([texts[place] for place in compared.tolist()])
    scores, words, owner = scores[compared], words[compared], owner[compared]
    vector = None if near is None else np.maximum(near, 0.0).astype(np.float64)
    if vector is not None:
        scores = scores + _weighted({"vector": vector}, scales, shares)
    names = ("text", "words") if vector is None else ("text", "words", "vector")
    bar = _weighted({name: own[name][others] for name in names}, scales, shares).max()
    order = np.lexsort((-scores, owner))
    best = order[np.searchsorted(owner, np.arange(len(counts)))]
    return [
        BestSentence(
            float(scores[place] - bar),
            float(words[place]),
            None if vector is None else float(vector[place]),
        )
        for place in best.tolist()
    ]


def in_turn_if_better(leads: Floats, *, asked: bool = False) -> Floats:
    """Return 1 for the page with the greatest lead, 1/2 for the second, 1/3 for the third, …, each
    times how sure it is that its best sentence has more of the question than anything that others
    said: between 0 and 1, and 1 where it is `asked` what the assistant said. Equal ones by their
    order.
    """
    import numpy as np

    sure = np.ones(len(leads)) if asked else np.clip(leads / _SURE, 0.0, 1.0)
    values = np.zeros(len(leads), dtype=np.float64)
    order = np.argsort(-leads, kind="stable")
    values[order] = sure[order] / np.arange(1, len(leads) + 1)
    return values


def _weighted(
    columns: Mapping[str, Floats], scales: Mapping[str, s.Scale], shares: Mapping[str, float]
) -> Floats:
    import numpy as np

    weighted = [shares[name] * scales[name].of(column) for name, column in columns.items()]
    return cast("Floats", np.sum(weighted, axis=0))


def _read(question: Question, pages: Pages, vectors: WordVectors | None) -> _Sentences:
    """Return the sentences of pages that have a word like one of the question's, with the BM25 of
    each and the share of the question's words that it has in the same or similar words.
    """
    import numpy as np

    corpus, vocabulary = pages.corpus, pages.corpus.vocabulary
    weights = np.array(
        [question.weights[term] for term in question.words.values()], dtype=np.float64
    )
    own = corpus.words_of(pages.rows)
    distinct, place = np.unique(own.words, return_inverse=True)
    likeness = word_likeness(question, corpus, distinct, vectors)
    alike = likeness.max(axis=1, initial=0.0) >= _ALIKE
    sentences: list[list[str]] = []
    end = 0
    for content, count in zip(pages.contents, own.counts.tolist(), strict=True):
        start, end = end, end + count
        rows = place[start:end][alike[place[start:end]]]
        spelled = [vocabulary.spelled[word] for word in distinct[rows].tolist()]
        sentences.append(_sentences(content, spelled, likeness[rows] * weights))
    texts = [text for page in sentences for text in page]
    lines = [line.split() for line in indexed_words(texts).split("\n")]
    number = vocabulary.surfaces.get
    every = np.array([number(word, -1) for line in lines for word in line], dtype=np.int64)
    owner = np.repeat(np.arange(len(texts)), [len(line) for line in lines])
    # What carries no meaning, and what came since the corpus was read, is not among the words.
    at = np.minimum(np.searchsorted(distinct, every), max(0, len(distinct) - 1))
    known = distinct[at] == every if len(distinct) else np.zeros(len(every), dtype=bool)
    every, owner, at = every[known], owner[known], at[known]
    counts = np.bincount(owner, minlength=len(texts))
    average = question.average_length
    relative = np.array([len(line) for line in lines]) / (average if average > 0 else 1.0)
    text = np.zeros(len(texts), dtype=np.float64)
    terms = vocabulary.term_of[every]
    for term, weight in question.weights.items():
        times = np.bincount(owner[terms == vocabulary.terms.get(term, -1)], minlength=len(texts))
        text += weight * saturated(times, relative)
    words = s.best_words(likeness[at], counts) @ weights / (float(weights.sum()) or 1.0)
    return _Sentences(texts, np.array([len(page) for page in sentences]), text, words)


def _sentences(content: str, words: Sequence[str], worth: Floats) -> list[str]:
    """Return the sentences of a text, without code between fences, that may have the most of a
    question: `worth` has a row for each of some words, a column for each word of the question.
    Short sentences go together with the next; an empty one where none has any of the words.
    """
    text = with_blank_code(content[:_LONGEST])
    spans: list[tuple[int, int]] = []
    start: int | None = None
    for first, end in sentence_spans(text):
        start = first if start is None else start
        if end - start >= _SENTENCE:
            spans.append((start, end))
            start = None
    if start is not None:
        spans.append((start, len(text)))
    lowered = text.lower()
    if len(lowered) == len(text) and not any(map(str.isalnum, _beyond_ascii(lowered))):
        # Only there words stand in a text as in the vocabulary, but for their case.
        spans = [spans[place] for place in _likeliest(lowered, spans, words, worth)]
    return [text[start:end] for start, end in spans] or [""]


def _likeliest(
    text: str, spans: Sequence[tuple[int, int]], words: Sequence[str], worth: Floats
) -> list[int]:
    """Return which spans of a text have, in some words or in parts of them, the most of a question,
    in their order, the first of equal ones.
    """
    import numpy as np

    ends = [end for _, end in spans]
    places: list[int] = []
    found_words: list[int] = []
    for number, word in enumerate(words):
        found = text.find(word)
        while found >= 0:
            place = bisect_right(ends, found)
            if place == len(ends):
                break
            places.append(place)
            found_words.append(number)
            found = text.find(word, ends[place])
    best = np.zeros((len(spans), worth.shape[1]))
    np.maximum.at(best, places, worth[found_words])
    total = best.sum(axis=1)
    likeliest = np.argsort(-total, kind="stable")[:_TOKENIZED]
    return sorted(likeliest[total[likeliest] > 0].tolist())


def _beyond_ascii(text: str) -> str:
    return "" if text.isascii() else "".join(set(text) - _ASCII)
