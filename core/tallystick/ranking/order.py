"""Order: candidates of one question with every signal, weighted into one score."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby, islice
from typing import TYPE_CHECKING, cast

from tallystick.ranking import signals as s
from tallystick.ranking.asked_kind import asked_kind
from tallystick.ranking.bm25 import inverse_frequency
from tallystick.ranking.conversations import answered_at_length
from tallystick.ranking.corpus import Corpus
from tallystick.ranking.dates import date_fit, spans
from tallystick.ranking.days import moments_of
from tallystick.ranking.excerpt import excerpt
from tallystick.ranking.introductions import asked_of_oneself, asked_of_speaker
from tallystick.ranking.languages import (
    ASKS,
    ENGLISH,
    PREFERS,
    STANDING,
    TELLS_TIME,
    asking_share,
    introduced,
    is_latin,
    languages_of,
)
from tallystick.ranking.likeness import word_likeness
from tallystick.ranking.pages import (
    CLEAR,
    BestSentence,
    PageReader,
    Pages,
    best_sentences,
    in_turn_if_better,
)
from tallystick.ranking.segment import NEVER
from tallystick.ranking.standing import asks_for_help, in_turn
from tallystick.ranking.time_spans import Span
from tallystick.ranking.weights import RecallWeights
from tallystick.ranking.words import analyze, query_words, surfaces_of

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from tallystick.ranking.likeness import WordVectors

    Floats = NDArray[np.float64]
    Ints = NDArray[np.int64]
    Flags = NDArray[np.bool_]
    Vector = NDArray[np.float32]

_TOGETHER = re.compile(r"\s*(?:,|and|&|or|und|y|e|et)\s*", re.IGNORECASE)

QUERY_READ = 4_000
"""Characters of a query that are read: half of them at its beginning, half at its end."""
_MOST_WORDS = 500
"""Different words of a query that are looked for."""
_NEAR, _FAR = 0.5, 0.25
"""The weight of a word in the turn beside, and in the one after that."""
_INTRODUCTIONS = 50
"""Memories in which somebody says who they are that are candidates for that alone, at most."""
_PAGES = 24
"""Long answers of assistants that are read sentence by sentence, at most."""
_MOST_LENT = 1.0
"""The score of which a turn lends its neighbours a share, at most, for a question that the embedder
cannot read. Without vectors a turn that asks the same of somebody else has nearly all its words:
pairs of characters that overlap count a long phrase many times.
"""


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
    words: Mapping[str, str] = field(default_factory=dict)
    """Each word without stop words and speakers' names, with its term."""
    forms: Mapping[str, frozenset[str]] = field(default_factory=dict)
    """Other terms that a word may stand in, where the question's language bends it: by the word."""
    weights: Mapping[str, float] = field(default_factory=dict)
    """Each term with its inverse document frequency; all terms of one word have one."""
    names: Mapping[str, float] = field(default_factory=dict)
    """The terms of speakers' names; they count in memories without a speaker."""
    speakers: frozenset[str] = frozenset()
    """Known speakers that the query names."""
    who: int = 0
    """What it asks of who the asker, or the one speaker that it names, is; see `introductions`."""
    dates: tuple[Span, ...] = ()
    average_length: float = 1.0

    @property
    def meaning(self) -> str:
        """The words to embed: names say who, not what."""
        return " ".join(self.words) or self.text


@dataclass(frozen=True, slots=True)
class Ranked:
    """A candidate's score with each signal before weighting."""

    doc: int
    score: float
    signals: dict[str, float]
    sentence: BestSentence | None = None
    """The sentence for which it stands where it does, if it is a page that was lifted by one."""


def ask(query: str, corpora: Sequence[Corpus], now: int) -> Question:
    """Read a query, seen from `now`, against the words of these corpora.

    Of a query longer than `QUERY_READ` the beginning and the end are read, and of more than
    `_MOST_WORDS` different words the first.
    """
    query = excerpt(query, QUERY_READ)
    words = dict(islice(query_words(query).items(), _MOST_WORDS))
    terms = set(words.values())
    named = {pair for corpus in corpora for term in terms for pair in corpus.named_by.get(term, ())}
    dropped = {term for name, _ in named for term in analyze(name)}
    surfaces = {surface: term for surface, term in words.items() if term not in dropped}
    statistics = Statistics.of(corpora)
    forms = _forms(query, surfaces, corpora)

    def weight(*terms: str) -> float:
        frequency = sum(corpus.frequency(term) for corpus in corpora for term in terms)
        return inverse_frequency(statistics.slices, min(frequency, statistics.slices))

    weights: dict[str, float] = {}
    for surface, term in surfaces.items():
        every = [term, *sorted(forms.get(surface, ()))]
        inverse = weight(*every)
        weights |= {form: max(inverse, weights.get(form, 0.0)) for form in every}
    speakers = frozenset(_subject(query, named))
    asked = {0: asked_of_oneself, 1: asked_of_speaker}.get(len(speakers))
    return Question(
        text=query,
        words=surfaces,
        forms=forms,
        weights=weights,
        names={term: weight(term) for term in dict.fromkeys(words.values()) if term in dropped},
        speakers=speakers,
        who=0 if asked is None else asked(query),
        dates=spans(query, now),
        average_length=statistics.average_length,
    )


def _forms(
    query: str, words: Mapping[str, str], corpora: Sequence[Corpus]
) -> dict[str, frozenset[str]]:
    """Return, for the words of a question, the other terms that its language, or those of the
    scopes, make of their roots.

    English and the scripts of one language need none: text is indexed by them.
    """
    latin = [word for word in words if word.isalpha() and is_latin(word)]
    languages = languages_of(surfaces_of(query)) if latin else (ENGLISH,)
    forms: dict[str, frozenset[str]] = {}
    for corpus in corpora:
        for language in languages or corpus.languages:
            if language == ENGLISH:
                continue
            for word, terms in corpus.vocabulary.related(latin, language).items():
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


def introducing(corpus: Corpus, question: Question, allowed: Flags) -> Ints:
    """Return the rows, the latest of those allowed, in which is said what the question asks of who
    somebody is; in their order.
    """
    import numpy as np

    if not question.who:
        return np.zeros(0, dtype=np.int64)
    said = introduced(corpus.column("flags")) & question.who
    return np.flatnonzero((said > 0) & allowed)[-_INTRODUCTIONS:]


def proposals(scores: Floats, depth: int) -> Ints:
    """The rows of the `depth` best scores above zero; equal ones by row, lowest first."""
    import numpy as np

    rows = np.flatnonzero(scores > 0)
    if len(rows) > depth:
        found = scores[rows]
        last = np.partition(found, len(rows) - depth)[len(rows) - depth]
        best = np.flatnonzero(found >= last)
        rows = rows[best[np.argsort(-found[best], kind="stable")]][:depth]
    return cast("Ints", rows)


@dataclass(frozen=True)
class Pool:
    """The candidates of one corpus: their rows, and what words and vectors say of them."""

    corpus: Corpus
    rows: Ints
    text: Floats
    vector: Floats


def rank(
    question: Question,
    pools: Sequence[Pool],
    weights: RecallWeights,
    vectors: WordVectors | None,
    extra: Mapping[str, Floats] | None = None,
    *,
    most: int | None = None,
    reader: PageReader | None = None,
) -> list[Ranked]:
    """Return the candidates, best first, at most `most`; equal scores by `doc`, lowest first.

    `extra` adds signals that the caller computed. By `reader` the likeliest of the assistants' long
    answers are read sentence by sentence; one that is lifted as far as the best of others stands
    before it only where its sentence is clearly better.

    `signals` has the value of each signal before weighting. A memory that matches nothing scores
    about 0; scores compare within one answer only.
    """
    import numpy as np

    if not any(len(pool.rows) for pool in pools):
        return []
    join = np.concatenate
    docs = join([pool.corpus.column("doc")[pool.rows] for pool in pools])
    flags = join([pool.corpus.column("flags")[pool.rows] for pool in pools])
    session = _sessions(pools)
    long = join([answered_at_length(pool.corpus, pool.rows) for pool in pools])
    before, after, second_before, second_after = (_beside(pools, step) for step in (-1, 1, -2, 2))
    # A page of an answer has a word for every question, what an assistant asks in the end is no
    # question that is answered next, and two turns on is another matter.
    asks = ((flags & ASKS) > 0) & (session >= 0) & ~long
    second_before, second_after = (
        np.where(long, -1, places) for places in (second_before, second_after)
    )
    own = {
        "text": join([pool.text for pool in pools]),
        "vector": np.maximum(join([pool.vector for pool in pools]), 0.0),
        "words": _words(
            question,
            pools,
            vectors,
            [np.where(long, -1, places) for places in (before, after)],
            [second_before, second_after],
            structured=weights.near != 0,
        ),
    }
    core = np.zeros(len(docs), dtype=np.float64)
    floor = 0.0
    unread = _unread_share(question, vectors)
    shares = _shares(weights, unread)
    for name, column in own.items():
        standard = s.standardise(column)
        core += shares[name] * standard.values
        floor += shares[name] * standard.zero
    lent = np.minimum(core, _MOST_LENT / unread) if unread else core
    flows = {
        "neighbours": s.neighbour_flow(
            lent,
            [
                (before, weights.near),
                (after, weights.near),
                (second_before, weights.far),
                (second_after, weights.far),
            ],
        ),
        "answers": s.answer_flow(lent, before, asks, weights.answers),
    }
    flowed = core + flows["neighbours"] + flows["answers"]
    flows["session"] = s.session_flow(flowed, session)
    score = flowed - floor + weights.session * flows["session"]
    assistant = join([_spoken_by(pool, s.is_assistant) for pool in pools])
    asks_assistant = s.asks_assistant(question.text)
    signals = _own_signals(question, pools, flags, long)
    if not asks_assistant:
        signals["role"] = np.where(long, 0.0, assistant)
        signals["long_answers"] = np.where(long, assistant, 0.0)
    kind = () if s.asks_when(question.text) else asked_kind(question.text)
    if kind and vectors is not None:
        signals["asked_kind"] = _of_kind(kind, question, pools, vectors)
    if question.who:
        said = (introduced(flags) & question.who) > 0
        theirs = signals["speaker"] > 0 if "speaker" in signals else assistant == 0
        signals["introduction"] = (said & theirs).astype(np.float64)
    signals |= extra or {}
    for name, column in signals.items():
        score += getattr(weights, name) * column
    if asks_for_help(question.text):
        asked_for = ((flags & STANDING) > 0) & (assistant == 0)
        preferred = ((flags & PREFERS) > 0) & (assistant == 0) & ~asked_for
        lifts = {"standing": in_turn(score, asked_for), "preference": in_turn(score, preferred)}
        score += weights.standing * lifts["standing"] + weights.preference * lifts["preference"]
        signals |= lifts
    pages = long & (assistant > 0)
    sentences: dict[int, BestSentence] = {}
    behind = np.zeros(len(docs), dtype=np.int64)
    if reader is not None and weights.sentence and pages.any() and not pages.all():
        likeliest = np.flatnonzero(pages)
        likeliest = likeliest[np.argsort(-core[likeliest], kind="stable")][:_PAGES]
        sentences = _sentences(
            question, pools, docs, likeliest, own, ~pages, shares, reader, vectors
        )
        told = np.zeros(len(docs), dtype=np.float64)
        leads = np.array([best.lead for best in sentences.values()], dtype=np.float64)
        told[list(sentences)] = in_turn_if_better(leads, asked=asks_assistant)
        signals["sentence"] = told * np.maximum(score[~pages].max() - score, 0.0)
        score += weights.sentence * signals["sentence"]
        # As far as the best of others is before that only where it is clear.
        clear = np.full(len(docs), asks_assistant)
        clear[list(sentences)] |= leads >= CLEAR
        behind = np.where(signals["sentence"] > 0, np.where(clear, -1, 1), 0)
    score = np.round(score, 6)
    order = np.lexsort((docs, behind, -score))[:most].tolist()
    columns = {**own, **flows, **signals}
    values = {name: np.round(column[order], 6).tolist() for name, column in columns.items()}
    always = {"text", "vector", "words"}
    lifted = {row: best for row, best in sentences.items() if signals["sentence"][row] > 0}
    return [
        Ranked(
            doc,
            value,
            {
                name: numbers[place]
                for name, numbers in values.items()
                if name in always or numbers[place]
            },
            lifted.get(row),
        )
        for place, (row, doc, value) in enumerate(
            zip(order, docs[order].tolist(), score[order].tolist(), strict=True)
        )
    ]


def _sentences(
    question: Question,
    pools: Sequence[Pool],
    docs: Ints,
    likeliest: Ints,
    own: Mapping[str, Floats],
    others: Flags,
    shares: Mapping[str, float],
    reader: PageReader,
    vectors: WordVectors | None,
) -> dict[int, BestSentence]:
    """Read the likeliest pages, and return the best sentence of each by the place of its candidate,
    lowest first; without those that are gone.
    """
    import numpy as np

    contents = reader.contents(docs[likeliest].tolist())
    read = sorted(place for place in likeliest.tolist() if int(docs[place]) in contents)
    rows = np.concatenate([pool.rows for pool in pools])
    ends = np.cumsum([len(pool.rows) for pool in pools])
    parts = []
    for at, group in groupby(read, key=lambda place: int(np.searchsorted(ends, place, "right"))):
        places = list(group)
        texts = [contents[int(docs[place])] for place in places]
        parts.append(Pages(pools[at].corpus, rows[places], texts))
    best = best_sentences(question, parts, own, others, shares, reader, vectors)
    return dict(zip(read, best, strict=True))


def _unread_share(question: Question, vectors: WordVectors | None) -> float:
    """Return the share of a question's words, by rarity, that the embedder cannot read: to which it
    gives no vector. 0 where it gives no vectors of words at all.
    """
    import numpy as np

    words = list(question.words)
    known = vectors(words) if vectors is not None and words else None
    if known is None:
        return 0.0
    rarity = np.array([question.weights[question.words[word]] for word in words])
    return float(rarity[~known.any(axis=1)].sum() / rarity.sum())


def _shares(weights: RecallWeights, unread: float) -> dict[str, float]:
    """Return the weights of text, vector and words for a question of which so much is unread."""
    return {
        "text": (1 - unread) * weights.text + unread * weights.foreign_text,
        "vector": (1 - unread) * weights.vector + unread * weights.foreign_vector,
        "words": weights.words,
    }


def _sessions(pools: Sequence[Pool]) -> Ints:
    """Return the conversation of each candidate, numbered over all pools; -1 for loose notes."""
    import numpy as np

    numbers, first = [], 0
    for pool in pools:
        own = pool.corpus.column("conversation")[pool.rows]
        numbers.append(np.where(own >= 0, own + first, -1))
        first += len(pool.corpus.vocabulary.conversations)
    return np.concatenate(numbers)


def _beside(pools: Sequence[Pool], step: int) -> Ints:
    """Return for each candidate the place, among the candidates, of the turn `step` further on; -1
    if there is none.
    """
    import numpy as np

    places_beside, first = [], 0
    for pool in pools:
        rows = pool.corpus.beside(pool.rows, step)
        order = np.argsort(pool.rows, kind="stable")
        ordered = pool.rows[order]
        places = np.minimum(np.searchsorted(ordered, rows), max(0, len(ordered) - 1))
        here = (rows >= 0) & (ordered[places] == rows) if len(ordered) else rows >= 0
        places_beside.append(np.where(here, order[places] + first, -1) if len(ordered) else rows)
        first += len(pool.rows)
    return np.concatenate(places_beside)


def _words(
    question: Question,
    pools: Sequence[Pool],
    vectors: WordVectors | None,
    near: Sequence[Ints],
    far: Sequence[Ints],
    *,
    structured: bool,
) -> Floats:
    """Return the share of the question's words that a candidate, or a turn beside it, contains in
    the same or similar words; between 0 and 1.
    """
    import numpy as np

    weights = np.array(
        [question.weights[term] for term in question.words.values()], dtype=np.float64
    )
    scores = []
    for pool in pools:
        row_words = pool.corpus.words_of(pool.rows)
        distinct, place = np.unique(row_words.words, return_inverse=True)
        likeness = word_likeness(question, pool.corpus, distinct, vectors)
        scores.append(s.best_words(likeness[place], row_words.counts))
    best = np.concatenate(scores)
    if structured:
        best = s.word_flow(
            best, [*((turn, _NEAR) for turn in near), *((turn, _FAR) for turn in far)]
        )
    total = float(weights.sum())
    return (
        cast("Floats", (best * weights).sum(axis=1) / total) if total > 0 else np.zeros(len(best))
    )


def _of_kind(
    kind: Sequence[str], question: Question, pools: Sequence[Pool], vectors: WordVectors
) -> Floats:
    """Return for each candidate the cosine of the likest pair of one of its words and one of the
    kind's; words of the question say nothing of the answer.
    """
    import numpy as np

    meant = vectors(kind)
    scores = []
    for pool in pools:
        row_words = pool.corpus.words_of(pool.rows)
        distinct, place = np.unique(row_words.words, return_inverse=True)
        vocabulary = pool.corpus.vocabulary
        rows = None if meant is None else vocabulary.meanings(distinct, vectors)
        if meant is None or rows is None or not len(distinct):
            scores.append(np.zeros(len(pool.rows)))
            continue
        likeness = np.clip(np.einsum("ij,kj->ik", rows, meant).max(axis=1), 0.0, 1.0).astype(
            np.float64
        )
        terms = vocabulary.term_of[distinct]
        asked = [vocabulary.terms[term] for term in question.weights if term in vocabulary.terms]
        likeness[np.isin(terms, asked)] = 0.0
        scores.append(s.best_words(likeness[place][:, None], row_words.counts)[:, 0])
    return np.concatenate(scores)


def _own_signals(
    question: Question, pools: Sequence[Pool], flags: Ints, long: Flags
) -> dict[str, Floats]:
    """Return the signals of each candidate's text, speaker and time that matter for the
    question; `long` are the turns of conversations whose assistants answer at length.
    """
    import numpy as np

    join = np.concatenate
    turns = (_sessions(pools) >= 0) & ~long
    signals = {"question": np.where(turns, asking_share(flags), 0) / 100.0}
    if s.asks_when(question.text):
        signals["time_words"] = ((flags & TELLS_TIME) > 0).astype(np.float64)
    if question.dates:
        moments = [moments_of(pool.corpus, pool.rows) for pool in pools]
        times = {time for said, told in moments for time in {*said.tolist(), *told.tolist()}}
        fit = {time: date_fit(None if time == NEVER else time, question.dates) for time in times}
        # Said on the day that is asked for, or telling of it.
        signals["date"] = join(
            [
                np.array([max(fit[a], fit[b]) for a, b in zip(said, told, strict=True)])
                for said, told in ((said.tolist(), told.tolist()) for said, told in moments)
            ]
        )
    if len(question.speakers) == 1:
        signals["speaker"] = join(
            [_spoken_by(pool, question.speakers.__contains__) for pool in pools]
        )
    return signals


def _spoken_by(pool: Pool, is_named: Callable[[str], bool]) -> Floats:
    import numpy as np

    # A list first: another thread may add a speaker meanwhile.
    numbers = [
        number for name, number in list(pool.corpus.vocabulary.speakers.items()) if is_named(name)
    ]
    return np.isin(pool.corpus.column("speaker")[pool.rows], numbers).astype(np.float64)
