"""Corpus: the searchable text of one scope as arrays, so that a question is scored against all of
it at once.

A corpus is an immutable snapshot. Writing makes a new one that shares what did not change: rows
stand in segments, small segments are merged into larger ones, and a row that changed or went is
only marked in its segment. Its statistics are its own: the contents of another scope never change a
score. NumPy is imported on first use.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

from tallystick.errors import DimensionMismatch
from tallystick.ranking.languages import languages_spoken
from tallystick.ranking.segment import (
    CorpusSize,
    Entry,
    Segment,
    merge,
    segment_of,
    sketch_segment,
)
from tallystick.ranking.vocabulary import Vocabulary
from tallystick.ranking.words import analyze

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Ints = NDArray[np.int64]
    Floats = NDArray[np.float64]
    Vectors = NDArray[np.float32]
    Flags = NDArray[np.bool_]

_MANY_VECTORS = 50_000
"""From how many vectors on a product is worth the threads of numpy's library."""

_K1, _B = 1.0, 0.5
"""BM25: how soon repeating a word stops counting, and how much length counts."""


def saturate(often: NDArray[Any], relative: NDArray[Any] | float) -> Floats:
    """Return what a word counts for in BM25, before its rarity, where it occurs so often in a text
    of so many times the average length.
    """
    return often * (_K1 + 1.0) / (often + _K1 * (1.0 - _B + _B * relative))


class RowWords(NamedTuple):
    """Distinct meaningful words of some rows."""

    words: NDArray[np.int32]
    """Numbers of surfaces, row after row."""
    counts: Ints
    """The number of words of each row."""


@dataclass(frozen=True, eq=False)
class Corpus:
    """A snapshot of one scope's searchable memories. Rows are numbered from 0 over all segments."""

    vocabulary: Vocabulary
    segments: tuple[Segment, ...] = ()
    aliases: Mapping[int, tuple[str, ...]] = field(default_factory=dict)
    """By the memory that says so, the names by which one person goes."""
    long_answers: dict[int, bool] = field(default_factory=dict)
    """By conversation, whether its assistants answer at length, as far as that was looked at."""

    @classmethod
    def empty(cls) -> Corpus:
        """A corpus of nothing."""
        return cls(Vocabulary())

    def update(self, entries: Sequence[Entry], *, dimension: int = 0) -> Corpus:
        """Return this corpus with `entries` added, replaced by `doc`, or removed if they are gone.

        `dimension` is the length of one vector. One thread at a time may update the snapshots of
        one scope; any number may read them. Raises DimensionMismatch for vectors of another size.
        """
        return self.update_by_pages([entries], dimension=dimension)

    def update_by_pages(
        self, pages: Iterable[Sequence[Entry]], *, dimension: int = 0, sketches: bool = False
    ) -> Corpus:
        """Same as `update`, of entries that need not be in memory all at once; with `sketches`
        the signs of their vectors are kept instead of these.

        No memory is in two of the pages.
        """
        docs: set[int] = set()
        names: dict[int, tuple[str, ...]] = {}
        added = []
        for page in pages:
            docs.update(entry.doc for entry in page)
            living = [entry for entry in page if entry.words is not None]
            if living:
                made = segment_of(self.vocabulary, living, dimension)
                added.append(sketch_segment(made) if sketches else made)
            names |= {
                entry.doc: tuple(json.loads(entry.names))
                for entry in page
                if entry.names is not None
            }
        if not docs:
            return self
        changed = self.rows_of(docs)
        segments = [*self._without(docs)]
        if added:
            segments.append(merge(added) if len(added) > 1 else added[0])
        touched = [part.columns["conversation"] for part in added]
        touched += [self.column("conversation")[changed]] if len(changed) else []
        ended = {number for numbers in touched for number in numbers.tolist()}
        # Copied first: another thread may look at a further conversation meanwhile.
        long_answers = dict(self.long_answers)
        del added
        while (
            len(segments) > 1
            and segments[-2].sketch is None
            and len(segments[-2]) <= 2 * len(segments[-1])
        ):
            segments[-2:] = [merge(segments[-2:])]
        aliases = {doc: known for doc, known in self.aliases.items() if doc not in docs} | names
        return Corpus(
            self.vocabulary,
            tuple(segments),
            aliases=aliases,
            long_answers={
                number: long for number, long in long_answers.items() if number not in ended
            },
        )

    def with_own_words(self) -> Corpus:
        """Return the same rows with words of their own: updates of this corpus do not add to
        them.
        """
        return replace(self, vocabulary=self.vocabulary.copy())

    def _without(self, docs: set[int]) -> Iterable[Segment]:
        import numpy as np

        ids = np.fromiter(docs, dtype=np.int64)
        for segment in self.segments:
            docs_of, rows = segment.by_doc
            place = np.minimum(np.searchsorted(docs_of, ids), max(0, len(docs_of) - 1))
            hit = rows[place[docs_of[place] == ids]] if len(docs_of) else rows
            if segment.alive[hit].any():
                alive = segment.alive.copy()
                alive[hit] = False
                yield segment.with_alive(alive)
            else:
                yield segment

    # Columns over all segments

    def column(self, name: str) -> NDArray[Any]:
        """One value a row."""
        values = self._columns.get(name)
        if values is None:
            import numpy as np

            parts = [segment.columns[name] for segment in self.segments]
            values = _join(parts) if parts else np.zeros(0, dtype=np.int64)
            self._columns[name] = values
        return values

    @cached_property
    def _columns(self) -> dict[str, NDArray[Any]]:
        return {}

    @cached_property
    def alive(self) -> Flags:
        """For each row, True if it is live."""
        import numpy as np

        parts = [segment.alive for segment in self.segments]
        return _join(parts) if parts else np.zeros(0, dtype=bool)

    @cached_property
    def starts(self) -> list[int]:
        """The first row of each segment."""
        starts = [0]
        for segment in self.segments:
            starts.append(starts[-1] + len(segment))
        return starts

    def __len__(self) -> int:
        return sum(segment.living for segment in self.segments)

    @property
    def is_sketched(self) -> bool:
        """True if it has signs of vectors instead of these, but for what was written lately."""
        return any(segment.sketch is not None for segment in self.segments)

    @cached_property
    def size(self) -> CorpusSize:
        """The number of live slices, and of their words."""
        sizes = [segment.size for segment in self.segments]
        return CorpusSize(sum(size.slices for size in sizes), sum(size.words for size in sizes))

    def rows_of(self, docs: Iterable[int]) -> Ints:
        """Return the live rows of `docs`, in their order."""
        import numpy as np

        ids = np.fromiter(docs, dtype=np.int64)
        found = np.full(len(ids), -1, dtype=np.int64)
        for start, segment in zip(self.starts, self.segments, strict=False):
            if not len(segment):
                continue
            docs_of, rows = segment.by_doc
            place = np.minimum(np.searchsorted(docs_of, ids), len(docs_of) - 1)
            row = rows[place]
            here = (docs_of[place] == ids) & segment.alive[row]
            found[here] = row[here] + start
        return found[found >= 0]

    # Words

    def frequency(self, term: str, *, unless_by: Iterable[str] = ()) -> int:
        """Return the number of live slices that contain `term`, without those that one of some
        speakers said.
        """
        return self.frequencies([term], unless_by=unless_by)[0]

    def frequencies(self, terms: Sequence[str], *, unless_by: Iterable[str] = ()) -> list[int]:
        """Return for each of some terms the number of live slices that contain it; see
        `frequency`.
        """
        import numpy as np

        numbers = [self.vocabulary.terms.get(term, -1) for term in terms]
        bearers = self._numbers_of(unless_by)
        counts = np.zeros(len(terms), dtype=np.int64)
        for segment in self.segments:
            if segment.is_whole and not bearers:
                counts += segment.frequencies(numbers)
                continue
            postings = segment.postings(numbers)
            if postings is None:
                continue
            rows = segment.owner[postings.slices]
            counted = segment.alive[rows]
            if bearers:
                counted &= ~np.isin(segment.columns["speaker"][rows], bearers)
            counts += np.bincount(postings.which[counted], minlength=len(terms))
        frequencies: list[int] = counts.tolist()
        return frequencies

    def _numbers_of(self, speakers: Iterable[str]) -> list[int]:
        numbers = self.vocabulary.speakers
        return [numbers[name] for name in sorted(speakers) if name in numbers]

    @cached_property
    def rarity(self) -> Floats:
        """The rarity of each term by its number, in nats: its inverse document frequency among the
        live rows, as in BM25 (Robertson and Zaragoza 2009); of meaningful words alone.
        """
        import numpy as np

        terms = self.vocabulary.term_of
        size = int(terms.max()) + 1 if len(terms) else 0
        having = np.zeros(size, dtype=np.float64)
        for segment in self.segments:
            live = np.repeat(segment.alive, np.diff(segment.word_offsets))
            having += np.bincount(terms[segment.words[live]], minlength=size)[:size]
        texts = float(len(self))
        having = np.minimum(having, texts)
        rarity: Floats = np.log(1.0 + (texts - having + 0.5) / (having + 0.5))
        return rarity

    def text_scores(
        self,
        weights: Mapping[str, float],
        *,
        average: float,
        names: Mapping[str, frozenset[str]] | None = None,
    ) -> Floats:
        """BM25 of every row: of its best slice. `weights` maps a term to its inverse document
        frequency.

        Terms in `names` do not count in what the speakers say who bear them. Robertson and
        Zaragoza, "The Probabilistic Relevance Framework: BM25 and Beyond" (2009): the sum over
        terms of weight * tf * (k1 + 1) / (tf + k1 * (1 - b + b * length / average)). Terms are
        added in the order of the mapping.
        """
        import numpy as np

        terms = [term for term in weights if term in self.vocabulary.terms]
        numbers = [self.vocabulary.terms[term] for term in terms]
        each = np.array([weights[term] for term in terms], dtype=np.float64)
        bearers = {
            place: own
            for place, term in enumerate(terms)
            if names and (own := self._numbers_of(names.get(term, ())))
        }
        scores = np.zeros(self.starts[-1], dtype=np.float64)
        for start, segment in zip(self.starts, self.segments, strict=False):
            if not len(segment):
                continue
            postings = segment.postings(numbers) if terms else None
            if postings is None:
                continue
            which, where, often = postings
            for place, own in bearers.items():
                said = segment.columns["speaker"][segment.owner[where]]
                kept = (which != place) | ~np.isin(said, own)
                which, where, often = which[kept], where[kept], often[kept]
            relative = segment.length[where] / np.float64(average) if average > 0 else 1.0
            # In the order of the postings: to the last bit the sum term by term.
            worth = each[which] * saturate(often, relative)
            best = np.bincount(where, weights=worth, minlength=len(segment.owner))
            if len(best) > len(segment):
                best = np.maximum.reduceat(best, segment.first_slice)
            scores[start : start + len(segment)] = best
        return scores

    def words_of(self, rows: Ints) -> RowWords:
        """Return the distinct meaningful words of rows."""
        import numpy as np

        if len(self.segments) == 1:
            segment = self.segments[0]
            first = segment.word_offsets[rows]
            counts = (segment.word_offsets[rows + 1] - first).astype(np.int64)
            ends = counts.cumsum()
            within = np.arange(len(counts) and int(ends[-1])) + (first - ends + counts).repeat(
                counts
            )
            return RowWords(segment.words[within], counts)
        place = np.searchsorted(self.starts, rows, side="right") - 1
        counts = np.zeros(len(rows), dtype=np.int64)
        taken: list[tuple[Ints, NDArray[np.int32]]] = []
        for at in np.unique(place).tolist():
            segment, here = self.segments[at], np.flatnonzero(place == at)
            local = rows[here] - self.starts[at]
            first = segment.word_offsets[local]
            own = segment.word_offsets[local + 1] - first
            counts[here] = own
            within = np.arange(int(own.sum())) - np.repeat(np.cumsum(own) - own, own)
            taken.append((np.repeat(here, own), segment.words[np.repeat(first, own) + within]))
        if len(taken) == 1:
            return RowWords(taken[0][1], counts)
        words = np.concatenate([words for _, words in taken] or [np.zeros(0, dtype=np.int32)])
        owners = np.concatenate([owner for owner, _ in taken] or [np.zeros(0, dtype=np.int64)])
        return RowWords(words[np.argsort(owners, kind="stable")], counts)

    # Vectors

    @cached_property
    def vectors(self) -> int:
        """Return the number of live rows that have a vector."""
        return sum(segment.embedded for segment in self.segments)

    def nearness(self, query: Vectors) -> Floats:
        """Return the cosine of `query` with the best slice of every row; -2 for a row without a
        vector.

        Good for choosing candidates: of vectors of which the signs are here it is an estimate, the
        cosine of the angle that as many equal signs mean (Charikar, "Similarity Estimation
        Techniques from Rounding Algorithms", 2002). `exact_nearness` returns values that do not
        depend on other rows. Raises DimensionMismatch.
        """
        import numpy as np

        cosines = np.full(self.starts[-1], -2.0)
        for start, segment in zip(self.starts, self.segments, strict=False):
            if len(segment.vector_owner):
                values = _cosines(segment, query)
                if segment.is_vector_each:
                    cosines[start : start + len(segment)] = values
                    continue
                owner = segment.vector_owner
                first = np.flatnonzero(np.diff(owner, prepend=-1))
                best = values if len(first) == len(owner) else np.maximum.reduceat(values, first)
                cosines[start + owner[first]] = best
        return cosines

    @property
    def is_near_exactly(self) -> bool:
        """True if `nearness` has the values of `exact_nearness`: row by row, without rounding."""
        return all(
            segment.sketch is None and len(segment.vectors) < _MANY_VECTORS
            for segment in self.segments
        )

    def exact_nearness(self, query: Vectors, rows: Ints) -> Floats:
        """Return the cosine of `query` with the best slice of each of `rows`, to the last bit; -2
        without a vector. Of vectors of which only the signs are here it is that of the signs: an
        estimate, finer than that of `nearness`.
        """
        import numpy as np

        cosines = np.full(len(rows), -2.0)
        place = np.searchsorted(self.starts, rows, side="right") - 1
        for at, segment in enumerate(self.segments):
            local_rows = np.flatnonzero(place == at)
            if not len(local_rows) or not len(segment.vector_owner):
                continue
            if segment.sketch is None:
                _same_size(query, segment.vectors)
            local = rows[local_rows] - self.starts[at]
            if segment.is_vector_each:
                places, spread = local, None
            else:
                first = np.searchsorted(segment.vector_owner, local)
                last = np.searchsorted(segment.vector_owner, local, side="right")
                spread = np.repeat(np.arange(len(local_rows)), last - first)
                within = np.arange(len(spread)) - np.repeat(
                    np.cumsum(last - first) - (last - first), last - first
                )
                places = first[spread] + within
            if segment.sketch is None:
                # einsum works row by row; a matrix product may group rows and so round them
                # differently.
                values = np.einsum("ij,j->i", segment.vectors[places], query)
            else:
                values = _along(segment.sketch[places], query)
            values = np.clip(values, -1.0, 1.0)
            if spread is None:
                cosines[local_rows] = values
            else:
                np.maximum.at(cosines, local_rows[spread], values)
        return cosines

    # Conversations

    @cached_property
    def _turns(self) -> tuple[Ints, Ints]:
        """Rows of turns ordered by conversation and position, and for each row its place in that
        order, else -1.
        """
        import numpy as np

        order, keys = self._order_turns(self.segments[:1], 0)
        more, their_keys = self._order_turns(self.segments[1:], 1)
        if keys is None or their_keys is None:
            rows = np.concatenate([order, more])
            conversation, position = (
                self.column(name)[rows] for name in ("conversation", "position")
            )
            order = rows[np.lexsort((rows, position, conversation))]
        elif len(more):
            # What was written since is little: it is put in its places, nothing is sorted anew.
            order = np.insert(order, np.searchsorted(keys, their_keys, side="right"), more)
        places = np.full(self.starts[-1], -1, dtype=np.int64)
        places[order] = np.arange(len(order))
        return order, places

    def _order_turns(self, segments: Sequence[Segment], at: int) -> tuple[Ints, Ints | None]:
        """Return the live turns of some segments, the first of which is the `at`th, in order, with
        their keys; without keys where there are none.
        """
        import numpy as np

        rows, keys = [np.zeros(0, dtype=np.int64)], [np.zeros(0, dtype=np.int64)]
        ordered = True
        for start, segment in zip(self.starts[at:], segments, strict=False):
            own, own_keys = segment.turn_order
            live = segment.alive[own]
            rows.append(own[live] + start)
            ordered &= own_keys is not None
            keys.append(own_keys[live] if own_keys is not None else own[:0])
        if not ordered:
            return np.concatenate(rows), None
        all_rows, all_keys = np.concatenate(rows), np.concatenate(keys)
        if len(segments) < 2:
            return all_rows, all_keys
        order = np.argsort(all_keys, kind="stable")
        return all_rows[order], all_keys[order]

    @property
    def turns(self) -> Ints:
        """The rows of turns, by conversation and position."""
        return self._turns[0]

    def words_in(self, rows: Ints) -> Floats:
        """Return about how many words each of `rows` says, code between fences aside."""
        return self._spoken[rows]

    @cached_property
    def _spoken(self) -> Floats:
        import numpy as np

        parts = [segment.spoken for segment in self.segments]
        return _join(parts) if parts else np.zeros(0, dtype=np.float64)

    def beside(self, rows: Ints, steps: Sequence[int]) -> Ints:
        """Return, for each of `steps` (rows of the result) and each of `rows` (its columns), the
        turn so many places further on in its conversation; -1 if there is none.
        """
        import numpy as np

        order, places = self._turns
        if not len(order):
            return np.full((len(steps), len(rows)), -1)
        own = places[rows]
        place = own + np.array(steps)[:, None]
        turns = order[place.clip(0, len(order) - 1)]
        conversation = self.column("conversation")
        is_there = (place >= 0) & (place < len(order)) & (own >= 0)
        is_there &= conversation[turns] == conversation[rows]
        return np.where(is_there, turns, -1)

    @cached_property
    def speakers(self) -> tuple[str, ...]:
        """Return the speakers, in the order in which they were added."""
        names = list(self.vocabulary.speakers)
        present = {number for segment in self.segments for number in segment.speaking}
        return tuple(names[number] for number in sorted(present))

    @cached_property
    def named_by(self) -> Mapping[str, tuple[tuple[str, str], ...]]:
        """The pairs (name, speaker who goes by it), by each term of the name."""
        speakers = set(self.speakers)
        pairs = {(name, name) for name in speakers}
        for names in self.aliases.values():
            pairs |= {(name, speaker) for speaker in speakers.intersection(names) for name in names}
        by_term: dict[str, list[tuple[str, str]]] = {}
        for name, speaker in sorted(pairs):
            for term in set(_name_terms(name)):
                by_term.setdefault(term, []).append((name, speaker))
        return {term: tuple(named) for term, named in by_term.items()}

    @cached_property
    def languages(self) -> tuple[str, ...]:
        """The languages, English aside, in which the memories are written, by their words of
        grammar.
        """
        surfaces, terms = self.vocabulary.surfaces, self.vocabulary.term_of

        def holds(word: str) -> bool:
            number = surfaces.get(word)
            if number is None or number >= len(terms):
                return False
            term = int(terms[number])
            return any(
                (found := segment.postings([term])) is not None
                and bool(segment.alive[segment.owner[found.slices]].any())
                for segment in self.segments
            )

        return languages_spoken(surfaces.keys(), holds)

    @property
    def bytes(self) -> int:
        """The bytes by which a process grows for it, with all that a question derives from it: an
        estimate, within a fifth of what was measured at 10,000 to 100,000 memories.
        """
        own = sum(segment.bytes for segment in self.segments)
        # Columns and words of several segments are joined for a question; orders by memory and by
        # turn are made once.
        joined = 0
        if len(self.segments) > 1:
            joined = sum(segment.bytes - segment.vectors.nbytes for segment in self.segments)
        return own + joined + 32 * self.starts[-1] + self.vocabulary.bytes


def _along(sketch: NDArray[np.uint8], query: Vectors) -> Floats:
    """Return how far vectors of which only the signs are known lie along `query`: the cosine of
    their signs with it. A byte is eight signs, whose share is looked up at once.
    """
    import numpy as np

    width = sketch.shape[1]
    padded = np.zeros(8 * width)
    padded[: len(query)] = query
    signs = 2.0 * np.unpackbits(np.arange(256, dtype=np.uint8)[:, None], axis=1) - 1.0
    shares = padded.reshape(width, 8) @ signs.T  # of each byte of the sketch and each value of it
    places = sketch + 256 * np.arange(width, dtype=np.int32)
    values: Floats = shares.ravel()[places].sum(axis=1) / np.sqrt(len(query))
    return values


def _cosines(segment: Segment, query: Vectors) -> Any:
    """Return the cosine of `query` with each vector of a segment, or an estimate by its sign."""
    import numpy as np

    sketch = segment.sketch
    if sketch is None:
        _same_size(query, segment.vectors)
        # The threads of a matrix product wait busily for the next one, and take the processor from
        # other processes; below some size they gain less than that costs.
        if len(segment.vectors) < _MANY_VECTORS:
            return np.einsum("ij,j->i", segment.vectors, query)
        return segment.vectors @ query
    bits = np.packbits(query > 0)
    if len(bits) != sketch.shape[1]:
        raise DimensionMismatch(
            name="of the query", expected=8 * sketch.shape[1], got=query.shape[0]
        )
    words, counted = segment.sign_words
    differing = np.zeros(len(sketch), dtype=np.uint16)
    for place, word in enumerate(bits.view(words.dtype)):
        differing += counted(words[:, place] ^ word)
    angles = np.arange(8 * sketch.shape[1] + 1) * (np.pi / query.shape[0])
    cosines: NDArray[Any] = np.cos(np.minimum(angles, np.pi)).astype(np.float32)
    return cosines[differing]


def _join(parts: Sequence[NDArray[Any]]) -> NDArray[Any]:
    """Return arrays one after the other; one alone is not copied."""
    import numpy as np

    return parts[0] if len(parts) == 1 else np.concatenate(parts)


@lru_cache(maxsize=65_536)
def _name_terms(name: str) -> tuple[str, ...]:
    return tuple(analyze(name))


def _same_size(query: Vectors, vectors: Vectors) -> None:
    if query.shape[0] != vectors.shape[1]:
        raise DimensionMismatch(name="of the query", expected=vectors.shape[1], got=query.shape[0])
