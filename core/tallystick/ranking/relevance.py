"""Relevance for the compiler: how well each candidate answers a request, as quantised integers.

The signals, weights and statistics of recall, over the candidates themselves: messages are the
turns of one conversation, everything else is a note. Lines of a transcript that begin with who
speaks are read so.
"""

from __future__ import annotations

import math
import re
import threading
from collections import OrderedDict, deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache, partial
from typing import TYPE_CHECKING, NamedTuple, cast

from tallystick.errors import EmbeddingError, InvalidInput
from tallystick.ranking.confidence import (
    UNRELATED,
    has_evidence,
    is_of_their_language,
    names_file,
    says_enough,
)
from tallystick.ranking.corpus import Corpus, saturate
from tallystick.ranking.dates import DAY, moment
from tallystick.ranking.order import proposals, rank
from tallystick.ranking.question import Question, ask
from tallystick.ranking.segment import Entry
from tallystick.ranking.sentences import code_percent
from tallystick.ranking.signals import Pool
from tallystick.ranking.vectors import slices, slices_to_embed, to_float16_bytes
from tallystick.ranking.vocabulary import WordVectors
from tallystick.ranking.weights import RecallWeights
from tallystick.ranking.words import indexed_words

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from tallystick.ports import Embedder
    from tallystick.ranking.segment import Segment

    Floats = NDArray[np.float64]
    Ints = NDArray[np.int64]
    Vector = NDArray[np.float32]

_HEADER = re.compile(
    r"\s*(?:\[(?P<before>[^\]\n]{3,60})\]\s*)?"
    r"(?P<name>[^\W\d_][\w.'’-]*(?: [\w.'’-]+){0,3})"
    r"\s*(?:[\[(](?P<after>[^\])\n]{3,60})[\])])?\s*[:：]\s"
)
_MOST_SPEAKERS = 30
_SHARE = 0.6


class Header(NamedTuple):
    """The speaker with which a line begins."""

    name: str
    when: int | None
    """Microseconds UTC, where it is a date."""


@lru_cache(maxsize=65_536)
def read_header(text: str) -> Header | None:
    """The header of a line, or None. A word and a colon look like one: ask `speakers_of` whether
    they are.
    """
    match = _HEADER.match(text[:200])
    if match is None:
        return None
    when = match["before"] or match["after"]
    return Header(match["name"], None if when is None else moment(when))


def speakers_of(texts: Sequence[str]) -> frozenset[str]:
    """Return the speakers of a transcript: the names before most of its lines, few and each more
    than once; empty for other texts.
    """
    names = [header.name for text in texts if (header := read_header(text)) is not None]
    several = (
        {name for name in set(names) if names.count(name) > 1}
        if len(set(names)) <= _MOST_SPEAKERS
        else set()
    )
    spoken_lines = sum(name in several for name in names)
    return (
        frozenset(several)
        if len(several) > 1 and spoken_lines >= _SHARE * len(texts)
        else frozenset()
    )


_BEST = 1_000_000
_LEAST = 200
"""The least number of candidates that words, and vectors, propose."""
_ANALYSED = 20_000
"""Texts whose words and vectors are cached."""


class Text(NamedTuple):
    """One candidate, as relevance sees it."""

    id: str
    content: str
    kind: str
    speaker: str | None = None
    conversation: str | None = None
    """The exchange it is a turn of; None for a note."""
    position: int | None = None
    """Its place there; None where turns are given in their order."""
    at: int | None = None
    """The time at which it was said or valid, microseconds UTC."""
    source: str | None = None
    """The address or path of the file that it was drawn from."""

    @property
    def in_order(self) -> bool:
        """True if its position is its place among the texts."""
        return self.conversation is not None and self.position is None


class _Asked(NamedTuple):
    """What relevance is measured of: the steps of a turn ask the same."""

    query: str
    texts: tuple[Text, ...]
    day: int
    most: int


@dataclass
class _Set:
    """A corpus that follows one working set from compile to compile."""

    corpus: Corpus = field(default_factory=Corpus.empty)
    docs: dict[Text, int] = field(default_factory=dict)
    speakers: frozenset[str] = frozenset()
    last: int = 0


class WorkingSets:
    """Relevance of candidates, with a cache of analysed texts from one compile to the next.
    Thread-safe.

    What is kept changes no result: a corpus that follows a working set is the one that would be
    made anew.
    """

    def __init__(
        self,
        embedder: Embedder | None,
        *,
        weights: RecallWeights | None = None,
        word_vectors: WordVectors | None = None,
        most: int = 4,
    ) -> None:
        self._embedder = (
            embedder if embedder is not None and getattr(embedder, "local", False) else None
        )
        self._weights = weights or RecallWeights()
        self._most = most
        self._word_vectors = word_vectors or WordVectors(self._embed_words)
        self._guard = threading.Lock()
        self._sets: list[_Set] = []
        self._relevance: deque[tuple[_Asked, dict[str, int]]] = deque(maxlen=most)
        """The last ones that were measured."""
        self._analysed: OrderedDict[tuple[str, str], tuple[str, int, bytes | None]] = OrderedDict()

    def relevance(
        self, query: str, texts: Sequence[Text], *, now: int, most: int = 0
    ) -> dict[str, int]:
        """Return candidate id to relevance in 0..1,000,000: 1,000,000 for the best, 0 for notes
        that have too little of the query, however they compare.

        At least `most` candidates are scored, the likeliest. A note below the default floor has no
        relevance, rather than little, where the query says too little to call it unrelated: one or
        two words, or nothing that any note has while it may lean on the talk before it, or be of
        another language than the notes. An embedder that fails or runs elsewhere costs its signal,
        nothing else: a compile sends nothing anywhere.
        """
        if not texts or not query.strip():
            return {}
        # A date in a query is read from its day on: nothing else depends on the moment.
        asked = _Asked(query, tuple(texts), now // DAY, most)
        with self._guard:
            known = next((found for each, found in self._relevance if each == asked), None)
        if known is not None:
            return dict(known)
        found, has_vector = self._measure(asked, now)
        if has_vector or self._embedder is None:  # one that fails is asked again
            with self._guard:
                self._relevance.append((asked, found))
        return dict(found)

    def _measure(self, asked: _Asked, now: int) -> tuple[dict[str, int], bool]:
        """Return the relevance of what is asked, and True if vectors took part."""
        query, texts, _, most = asked
        with self._guard:
            corpus, ids = self._follow(texts)
        question = ask(query, [corpus], now)
        vector = self._vector(question.meaning)
        pool = _pool(corpus, question, vector, max(_LEAST, most))
        words = None if vector is None else self._word_vectors
        ranked = rank(question, [pool], self._weights, words)
        best = max((hit.score for hit in ranked[:1]), default=0.0)
        relevance = {ids[hit.doc]: quantise(hit.score / best) for hit in ranked if hit.score > 0}
        notes = {text.id: text for text in texts if text.conversation is None}
        named = {name for name, text in notes.items() if names_file(query, text.source)}
        # The order knows no files: what the query names by its file is half way to the best.
        relevance |= {name: (_BEST + relevance.get(name, 0)) // 2 for name in sorted(named)}
        related = named | {
            name
            for hit in ranked
            if (name := ids[hit.doc]) in notes
            and has_evidence(hit, question, notes[name].content, vectors=vector is not None)
        }
        stands_alone = not any(text.in_order for text in texts)
        if says_enough(question) and (
            related or (stands_alone and is_of_their_language(question, [corpus]))
        ):
            unrelated = sorted(notes.keys() - (related & relevance.keys()))
            return relevance | dict.fromkeys(unrelated, 0), vector is not None
        least = quantise(UNRELATED)
        kept = {
            name: value for name, value in relevance.items() if name not in notes or value >= least
        }
        return kept, vector is not None

    def _follow(self, texts: Sequence[Text]) -> tuple[Corpus, dict[int, str]]:
        speakers = speakers_of([text.content for text in texts if text.in_order])
        distinct = set(texts)
        nearest = max(
            self._sets, key=lambda candidate: len(distinct & candidate.docs.keys()), default=None
        )
        if (
            nearest is None
            or nearest.speakers != speakers
            or 2 * len(distinct & nearest.docs.keys()) < len(distinct)
        ):
            nearest = _Set(speakers=speakers)
        else:
            self._sets.remove(nearest)
        removed = [text for text in nearest.docs if text not in distinct]
        fresh = [text for text in texts if text not in nearest.docs]
        turns = [nearest.docs[text] for text in texts if text.in_order and text in nearest.docs]
        if (
            turns != sorted(turns)
            or (fresh and not _are_appended(texts, nearest.docs))
            or len(removed) > len(distinct)
        ):
            nearest, removed, fresh = _Set(speakers=speakers), [], list(texts)
        self._embed(fresh)
        entries = [
            Entry(nearest.docs.pop(text), None, 0, None, text.kind, None, None, None, None, None)
            for text in removed
        ]
        for text in fresh:
            nearest.last += 1
            nearest.docs[text] = nearest.last
            entries.append(self._entry(nearest.last, text, speakers))
        nearest.corpus = nearest.corpus.update(entries, dimension=self._dimension())
        self._sets.append(nearest)
        del self._sets[: -self._most]
        return nearest.corpus, {doc: text.id for text, doc in nearest.docs.items()}

    def _entry(self, doc: int, text: Text, speakers: frozenset[str]) -> Entry:
        speaker, at = text.speaker, text.at
        header = read_header(text.content) if text.in_order else None
        if header is not None and header.name in speakers:
            speaker, at = header.name, header.when if header.when is not None else at
        words, marks, vector = self._analyse(text.content, speaker or "")
        position = doc if text.in_order else text.position
        return Entry(
            doc, words, marks, speaker, text.kind, text.conversation, position, at, None, vector
        )

    def _analyse(self, content: str, speaker: str) -> tuple[str, int, bytes | None]:
        analysis = self._analysed.get((content, speaker))
        if analysis is None:
            parts = slices(content)
            words = indexed_words(parts, header=speaker)
            analysis = self._analysed[content, speaker] = (
                words,
                code_percent(content),
                self._vectors(slices_to_embed(content)),
            )
            if len(self._analysed) > _ANALYSED:
                self._analysed.popitem(last=False)
        else:
            self._analysed.move_to_end((content, speaker))
        return analysis

    def _embed(self, texts: Sequence[Text]) -> None:
        """Make the vectors of new texts in one call; the embedder keeps them."""
        new = [each for each in texts if (each.content, each.speaker or "") not in self._analysed]
        if len(new) > 1:
            self._vectors([part for text in new for part in slices_to_embed(text.content)])

    def _dimension(self) -> int:
        try:
            return self._embedder.dimension if self._embedder is not None else 0
        except EmbeddingError:
            return 0

    def _vectors(self, parts: Sequence[str]) -> bytes | None:
        if self._embedder is None:
            return None
        try:
            return b"".join(to_float16_bytes(self._embedder.embed(list(parts))))
        except EmbeddingError:
            return None

    def _vector(self, text: str) -> NDArray[np.float32] | None:
        if self._embedder is None:
            return None
        try:
            vector: NDArray[np.float32] = self._embedder.embed([text])[0]
        except EmbeddingError:
            return None
        return vector if bool(vector.any()) else None

    def _embed_words(self, words: Sequence[str]) -> NDArray[np.float32] | None:
        offered = getattr(self._embedder, "embed_words", None)
        if offered is None:
            return None
        try:
            vectors: NDArray[np.float32] | None = offered(words)
        except EmbeddingError:
            return None
        return vectors


def _are_appended(texts: Sequence[Text], existing: dict[Text, int]) -> bool:
    """Return True if every new turn comes after every existing one."""
    new = False
    for text in texts:
        if text.in_order:
            if text not in existing:
                new = True
            elif new:
                return False
    return True


def _pool(
    corpus: Corpus, question: Question, vector: NDArray[np.float32] | None, depth: int
) -> Pool:
    """The likeliest by words and by vectors, and the turns beside them."""
    import numpy as np

    scores = partial(corpus.text_scores, average=question.average_length, names=question.names)
    text = np.where(corpus.alive, scores(question.weights), 0.0)
    rows = proposals(text, depth)
    if vector is not None:
        rows = np.union1d(
            rows, proposals(np.where(corpus.alive, corpus.nearness(vector), 0.0), depth)
        )
    rows = np.unique(np.concatenate([rows, corpus.beside(rows, (-2, -1, 1, 2)).ravel()]))
    rows = rows[rows >= 0]
    rows = rows[corpus.alive[rows]]
    nearness = np.zeros(len(rows)) if vector is None else corpus.exact_nearness(vector, rows)
    return Pool(corpus, rows, text[rows], nearness)


def quantise(score: float) -> int:
    """`score` in 0..1 as an integer in 0..1,000,000, nearest, for the compiler; what lies outside
    is clamped.
    """
    if math.isnan(score):
        raise InvalidInput("A score that is not a number cannot be quantised.")
    return round(min(max(score, 0.0), 1.0) * 1_000_000)


class BestSlice(NamedTuple):
    """The slice of a text that answers best."""

    place: int
    """Counted from 0."""
    slices: int
    """The number of slices of the text."""


def best_slices(
    corpus: Corpus, rows: Ints, question: Question, vector: Vector | None
) -> dict[int, BestSlice]:
    """Return, for each row whose text has several slices, the one with the most of the question's
    words and meaning, the first of equal ones.
    """
    import numpy as np

    best: dict[int, BestSlice] = {}
    place = np.searchsorted(corpus.starts, rows, side="right") - 1
    for at in np.unique(place).tolist():
        segment, start = corpus.segments[at], corpus.starts[at]
        local = rows[place == at] - start
        first = np.searchsorted(segment.owner, local)
        counts = np.searchsorted(segment.owner, local, side="right") - first
        local, first, counts = (values[counts > 1] for values in (local, first, counts))
        if not len(local):
            continue
        ends = np.cumsum(counts)
        chosen = np.repeat(first - (ends - counts), counts) + np.arange(int(ends[-1]))
        scores = _text_scores(corpus, segment, chosen, question)
        for row, end, count in zip(local.tolist(), ends.tolist(), counts.tolist(), strict=True):
            own = scores[end - count : end]
            own = own / own.max() if own.max() > 0 else own
            if vector is not None:
                own = own + _nearness(segment, row, count, vector)
            best[row + start] = BestSlice(int(np.argmax(np.round(own, 6))), count)
    return best


def _text_scores(corpus: Corpus, segment: Segment, chosen: Ints, question: Question) -> Floats:
    """Return BM25 of some slices of a segment."""
    import numpy as np

    average = question.average_length
    lengths = segment.length[chosen]
    relative = lengths / average if average > 0 else np.ones(len(chosen))
    scores = np.zeros(len(chosen), dtype=np.float64)
    for term, weight in question.weights.items():
        number = corpus.vocabulary.terms.get(term)
        postings = segment.postings([number]) if number is not None else None
        if postings is None:
            continue
        where, often = postings.slices, postings.often
        places = np.minimum(np.searchsorted(where, chosen), len(where) - 1)
        times = np.where(where[places] == chosen, often[places], 0.0)
        scores += weight * saturate(times, relative)
    return scores


def _nearness(segment: Segment, row: int, count: int, vector: Vector) -> Floats:
    """Return the cosine of each slice of a row; 0 where it has no vector for each."""
    import numpy as np

    low, high = np.searchsorted(segment.vector_owner, (row, row + 1)).tolist()
    if high - low != count:
        return np.zeros(count, dtype=np.float64)
    # einsum works row by row, so that no digit depends on the other rows.
    cosines = np.einsum("ij,j->i", segment.vectors[low:high], vector).astype(np.float64)
    return cast("Floats", np.maximum(cosines, 0.0))


def passage_of(text: str, best: BestSlice) -> tuple[int, int] | None:
    """Return the characters from and up to which a slice of a text goes, without the white space
    around it; None if the text is cut otherwise by now.
    """
    pieces = slices(text)
    if len(pieces) != best.slices:
        return None
    start = sum(map(len, pieces[: best.place]))
    piece = pieces[best.place]
    return start + len(piece) - len(piece.lstrip()), start + len(piece.rstrip())
