"""Signals: what speaks for a candidate of recall, each a small pure function with a name.

`SIGNALS` are computed in their order and weighed by the field of `RecallWeights` of the same name.
A signal sees the candidates of one question, and the score that the signals before it add up to. It
returns one value for each candidate, or None where the question does not ask for it.

The structure of a conversation is exact here: a neighbour is the turn whose position is one more or
one less, a session is the candidates of one conversation. Signals of position say nothing about
loose notes, nor about the passages of a document: each stands for itself.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

from tallystick.ranking.corpus import Corpus
from tallystick.ranking.dates import date_fit
from tallystick.ranking.question import Question, likest_words
from tallystick.ranking.segment import NEVER

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from tallystick.ranking.vocabulary import WordVectors

    Floats = NDArray[np.float64]
    Ints = NDArray[np.int64]
    Flags = NDArray[np.bool_]
    Vectors = NDArray[np.float32]

_ASSISTANTS = frozenset({"assistant", "ai", "agent", "bot", "chatbot", "model"})
"""The names by which protocols call the speaker that is a model."""
USER = "user"
"""The name under which protocols, and the turns that adapters keep, have the person who asks."""
_LONG = 3.0
"""How many times the words of the others' median turn those of the assistants' must be. Chats with
an assistant measured 6 to 20, friends at most 1.4.
"""
_READ = 400
"""Turns of one conversation that are counted: its latest."""


def is_assistant(speaker: str | None) -> bool:
    """Return True if the speaker is an assistant by role rather than a person by name."""
    return speaker is not None and speaker.strip().lower() in _ASSISTANTS


def answered_at_length(corpus: Corpus, rows: Ints) -> Flags:
    """Return, for each row, True if it is a turn of a conversation whose assistants answer at
    length: their median turn has more than three times the words of the others'.

    What is found of a conversation stands until one of its turns changes.
    """
    import numpy as np

    vocabulary = corpus.vocabulary
    # A list first: another thread may add a speaker meanwhile.
    assistants = [
        number for name, number in list(vocabulary.speakers.items()) if is_assistant(name)
    ]
    conversation = corpus.column("conversation")[rows]
    if not assistants:
        return np.zeros(len(rows), dtype=bool)
    numbers, place = np.unique(conversation, return_inverse=True)
    new = [
        number for number in numbers.tolist() if number >= 0 and number not in corpus.long_answers
    ]
    if new:
        corpus.long_answers.update(_compare(corpus, np.array(new, dtype=np.int64), assistants))
    long = [number >= 0 and corpus.long_answers[number] for number in numbers.tolist()]
    return np.array(long, dtype=bool)[place]


def _compare(corpus: Corpus, conversations: Ints, assistants: list[int]) -> dict[int, bool]:
    import numpy as np

    turns = corpus.turns
    ordered = corpus.column("conversation")[turns]
    end = np.searchsorted(ordered, conversations, side="right")
    start = np.maximum(np.searchsorted(ordered, conversations), end - _READ)
    counts = end - start
    within = np.arange(int(counts.sum())) - np.repeat(np.cumsum(counts) - counts, counts)
    rows = turns[np.repeat(start, counts) + within]
    words = corpus.words_in(rows)
    # Each conversation in two groups: what others say, and what assistants say.
    group = 2 * np.repeat(np.arange(len(conversations)), counts)
    group += np.isin(corpus.column("speaker")[rows], assistants)
    order = np.lexsort((words, group))
    words, group = words[order], group[order]
    groups = np.arange(2 * len(conversations))
    first, last = np.searchsorted(group, groups), np.searchsorted(group, groups, side="right")
    # Of an even number of turns the lower of the two in the middle; of none, nothing.
    middle = np.minimum((first + last - 1) // 2, len(words) - 1)
    median = np.where(last > first, words[middle], 0.0).reshape(-1, 2)
    both = (last > first).reshape(-1, 2).all(axis=1)
    long = both & (median[:, 1] > _LONG * median[:, 0])
    return dict(zip(conversations.tolist(), long.tolist(), strict=True))


_NEAR, _FAR = 0.5, 0.25
"""The weight of a word in the turn beside, and in the one after that."""
_PASSAGE = "document"
"""The kind of the passages of a document: what one says is not said again beside it."""
_STEPS = (-1, 1, -2, 2)
"""The places of the turns beside one."""
_MANY = 10
"""Conversations among whose best scores one that is far above the others says something."""


class Pool(NamedTuple):
    """The candidates of one corpus: their rows, and what words and vectors say of them."""

    corpus: Corpus
    rows: Ints
    """Ascending."""
    text: Floats
    vector: Floats


@dataclass(frozen=True)
class Candidates:
    """The candidates of one question over all pools, one value or place each."""

    question: Question
    pools: Sequence[Pool]
    vectors: WordVectors | None = None

    def __len__(self) -> int:
        return sum(len(pool.rows) for pool in self.pools)

    def column(self, name: str) -> NDArray[np.int64]:
        """Return a column of the corpora, for each candidate."""
        return _join([pool.corpus.column(name)[pool.rows] for pool in self.pools])

    @cached_property
    def meant(self) -> Vectors | None:
        """The vectors of the question's words, in their order; None where there are none."""
        words = list(self.question.words)
        return self.vectors(words) if self.vectors is not None and words else None

    @cached_property
    def unread_share(self) -> float:
        """The share of the question's words, speakers' names aside, by rarity, to which the
        embedder gives no vector; 0 where it gives no vectors of words at all.
        """
        import numpy as np

        if self.meant is None:
            return 0.0
        question = self.question
        rarity = np.array(
            [
                0.0 if term in question.names else question.weights[term]
                for term in question.words.values()
            ]
        )
        total = rarity.sum()
        return float(rarity[~self.meant.any(axis=1)].sum() / total) if total else 0.0

    @cached_property
    def session(self) -> Ints:
        """The conversation of each, numbered over all pools; -1 for loose notes."""
        import numpy as np

        numbers, first = [], 0
        for pool in self.pools:
            own = pool.corpus.column("conversation")[pool.rows]
            numbers.append(np.where(own >= 0, own + first, -1))
            first += len(pool.corpus.vocabulary.conversations)
        return _join(numbers)

    @cached_property
    def in_long_answers(self) -> Flags:
        """True for turns of conversations whose assistants answer at length."""
        return _join([answered_at_length(pool.corpus, pool.rows) for pool in self.pools])

    @cached_property
    def has_long_answers(self) -> bool:
        """True if one of them is such a turn."""
        return bool(self.in_long_answers.any())

    @cached_property
    def by_assistant(self) -> Flags:
        """True for what an assistant said."""
        return self.spoken_by(is_assistant)

    def spoken_by(self, is_speaker: Callable[[str], bool]) -> Flags:
        """Return True for what a speaker said whose name fulfils a condition."""
        import numpy as np

        flags = []
        for pool in self.pools:
            # A list first: another thread may add a speaker meanwhile.
            speakers = list(pool.corpus.vocabulary.speakers.items())
            numbers = [number for name, number in speakers if is_speaker(name)]
            flags.append(np.isin(pool.corpus.column("speaker")[pool.rows], numbers))
        return _join(flags)

    @cached_property
    def own_likest(self) -> Floats:
        """For each, and each word of the question, the likeness of the likest of its own words."""
        best = []
        for pool in self.pools:
            row_words = pool.corpus.words_of(pool.rows)
            meant = (self.meant, self.vectors)
            best.append(likest_words(self.question, pool.corpus, *row_words, *meant))
        likest = _join(best)
        for place, term in enumerate(self.question.words.values()):
            if bearers := self.question.names.get(term):
                likest[self.spoken_by(bearers.__contains__), place] = 0.0
        return likest

    @cached_property
    def likest(self) -> Floats:
        """The same, or less of the likest word in a turn beside it."""
        import numpy as np

        likest = self.own_likest
        own = np.vstack([likest, np.zeros((1, likest.shape[1]))])
        for step, places in self.beside.items():
            if self.has_long_answers:
                # The page of an assistant has a word for every question.
                places = np.where(self.in_long_answers, -1, places)
            likest = np.maximum(likest, (_NEAR if abs(step) == 1 else _FAR) * own[places])
        return likest

    @cached_property
    def beside(self) -> dict[int, Ints]:
        """For -1, 1, -2 and 2 the place, among the candidates, of the turn so many further on; -1
        where there is none, and for a passage of a document.
        """
        return dict(zip(_STEPS, _beside(self.pools), strict=True))


class Signal(NamedTuple):
    """What speaks for a candidate."""

    name: str
    """Its field in `RecallWeights`, and its key in the signals of a hit."""
    meaning: str
    """One line for a person."""
    measure: Callable[[Candidates, Floats], Floats | None]
    """For each candidate its value, from the candidates and the score so far."""
    is_scaled: bool = False
    """True if its weight counts standard deviations of the candidates' values."""


# The signals


def _text(candidates: Candidates, score: Floats) -> Floats:
    return _join([pool.text for pool in candidates.pools])


def _vector(candidates: Candidates, score: Floats) -> Floats:
    import numpy as np

    values: Floats = np.maximum(_join([pool.vector for pool in candidates.pools]), 0.0)
    return values


def _words(candidates: Candidates, score: Floats) -> Floats:
    return _share(candidates, tuple(candidates.question.words))


def _content(candidates: Candidates, score: Floats) -> Floats:
    return _share(candidates, tuple(candidates.question.content))


def _share(candidates: Candidates, words: Sequence[str]) -> Floats:
    """Return the share that each candidate has of some of the question's words, by their rarity."""
    import numpy as np

    question, chosen = candidates.question, set(words)
    kept = [word in chosen for word in question.words]
    weights = np.array([question.weights[question.words[word]] for word in words], dtype="f8")
    total = float(weights.sum())
    share: Floats = np.zeros(len(candidates), dtype=np.float64)
    return (candidates.likest[:, kept] * weights).sum(axis=1) / total if total > 0 else share


def _neighbours(candidates: Candidates, score: Floats) -> Floats:
    import numpy as np

    others = np.append(score - score.mean(), 0.0)
    total = np.zeros(len(score))
    for step, places in candidates.beside.items():
        if abs(step) == 2 and candidates.has_long_answers:
            # Two turns on from a page is another matter.
            places = np.where(candidates.in_long_answers, -1, places)
        total += others[places] / abs(step)
    return total


def _session(candidates: Candidates, score: Floats) -> Floats:
    import numpy as np

    session, best = candidates.session, score.copy()
    numbers, place = np.unique(session, return_inverse=True)
    of_session = np.full(len(numbers), -np.inf)
    np.maximum.at(of_session, place, score)
    turns = session >= 0
    best[turns] = of_session[place[turns]]
    values = (best - best.mean()) / (spread_of(best) or 1.0)
    # Among few conversations that none is far above, the best one says less.
    count = int((numbers >= 0).sum())
    lifts: Floats = np.where(turns, values * min(1.0, count / _MANY), values)
    return lifts


def _date(candidates: Candidates, score: Floats) -> Floats | None:
    import numpy as np

    dates = candidates.question.dates
    if not dates:
        return None
    times, place = np.unique(candidates.column("occurred_at"), return_inverse=True)
    fit = [date_fit(None if time == NEVER else time, dates) for time in times.tolist()]
    values: Floats = np.array(fit, dtype=np.float64)[place]
    return values


def _speaker(candidates: Candidates, score: Floats) -> Floats | None:
    speakers = candidates.question.speakers
    if len(speakers) != 1:
        return None
    return candidates.spoken_by(speakers.__contains__).astype("f8")


def _long_answers(candidates: Candidates, score: Floats) -> Floats:
    import numpy as np

    if not candidates.has_long_answers:
        return np.zeros(len(candidates))
    pages = (candidates.in_long_answers & candidates.by_assistant).astype("f8")
    if not pages.any():
        return pages
    # What the turn before a page says already, the page repeats; the rest it tells itself.
    own = candidates.own_likest
    before = np.vstack([own, np.zeros((1, own.shape[1]))])[candidates.beside[-1]]
    weights = np.array([candidates.question.weights[t] for t in candidates.question.words.values()])
    total = (own * weights).sum(axis=1)
    repeated = (np.minimum(own, before) * weights).sum(axis=1)
    share = np.divide(repeated, total, out=np.ones(len(total)), where=total > 0)
    repeats: Floats = pages * np.sqrt(share)
    return repeats


SIGNALS = (
    Signal("text", "Words that query and memory share: BM25.", _text, is_scaled=True),
    Signal("vector", "Nearness of the whole meaning: cosine.", _vector, is_scaled=True),
    Signal(
        "words",
        "Share of the query's words that the memory, or a turn beside it, has in the same or "
        "similar words.",
        _words,
        is_scaled=True,
    ),
    Signal(
        "content",
        "The same share of those of the query's words that are no stop words.",
        _content,
    ),
    Signal("neighbours", "Score of the turns beside it; two places away a half.", _neighbours),
    Signal("session", "Best score in the conversation that the turn belongs to.", _session),
    Signal("date", "It is of a date that the query names.", _date),
    Signal("speaker", "The one speaker named in the query said it.", _speaker),
    Signal(
        "long_answers",
        "An assistant said it, who answers at length, and the turn before says it too: the square "
        "root of the share.",
        _long_answers,
    ),
)
"""The signals of recall in the order in which they are computed."""


# Scales and places


def spread_of(values: Floats) -> float:
    """Return the standard deviation of values; a tenth of the largest where it is below that, so
    that among few or much alike candidates a small difference stays small.
    """
    return max(float(values.std()), float(abs(values).max()) / 10) if len(values) else 0.0


def _beside(pools: Sequence[Pool]) -> Ints:
    """Return for each of `_STEPS` the place of the turn so many further on, for each candidate."""
    import numpy as np

    places_beside, first = [], 0
    for pool in pools:
        rows = pool.corpus.beside(pool.rows, _STEPS)
        passage = pool.corpus.vocabulary.kinds.get(_PASSAGE)
        if passage is not None:
            rows[:, pool.corpus.column("kind")[pool.rows] == passage] = -1
        if len(pool.rows):
            places = pool.rows.searchsorted(rows).clip(max=len(pool.rows) - 1)
            rows = np.where((rows >= 0) & (pool.rows[places] == rows), places + first, -1)
        places_beside.append(rows)
        first += len(pool.rows)
    return places_beside[0] if len(pools) == 1 else np.concatenate(places_beside, axis=1)


def _join(parts: Sequence[NDArray[Any]]) -> NDArray[Any]:
    """Return the parts one after the other; one alone is not copied."""
    import numpy as np

    return parts[0] if len(parts) == 1 else np.concatenate(parts)
