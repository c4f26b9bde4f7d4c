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
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from tallystick.errors import DimensionMismatch
from tallystick.ranking.languages import languages_spoken
from tallystick.ranking.vocabulary import Vocabulary
from tallystick.ranking.words import analyze

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Ints = NDArray[np.int64]
    Floats = NDArray[np.float64]
    Vectors = NDArray[np.float32]
    Flags = NDArray[np.bool_]

__all__ = ["NEVER", "Corpus", "Entry", "Segment"]

NEVER = -(2**62)
"""The moment of a memory without one."""
_FOREVER = 2**62

K1, B = 1.0, 0.5
"""BM25: how soon repeating a word stops counting, and how much length counts."""


class Entry(NamedTuple):
    """One memory as it enters a corpus."""

    doc: int
    words: str | None
    """Its words as `indexed_words` writes them; None when it is gone."""
    flags: int
    speaker: str | None
    kind: str
    conversation: str | None
    position: int | None
    occurred_at: int | None
    expires_at: int | None
    vector: bytes | None
    """One float16 vector for each slice, one after the other; None while it has none."""
    names: str | None = None
    """A JSON list of the names by which one person goes, where the memory says so."""
    state: str = "active"
    valid_from: int | None = None
    valid_until: int | None = None
    created_at: int | None = None


class CorpusSize(NamedTuple):
    """The live slices of a corpus, counted."""

    slices: int
    words: float
    """Words of all these slices together."""


class RowWords(NamedTuple):
    """Distinct meaningful words of some rows."""

    words: NDArray[np.int32]
    """Numbers of surfaces, row after row."""
    counts: Ints
    """The number of words of each row."""


@dataclass(frozen=True, eq=False)
class Segment:
    """Rows with their inverted index. Slices of a row stand side by side."""

    columns: Mapping[str, NDArray[Any]]
    """By name, one value a row: doc, flags, speaker, kind, conversation, position, times, state."""
    alive: Flags
    owner: NDArray[np.int32]
    """For each slice its row."""
    length: NDArray[np.float32]
    """For each slice its words."""
    terms: NDArray[np.int32]
    """The terms that occur, ascending."""
    offsets: Ints
    slice_of: NDArray[np.int32]
    often: NDArray[np.float32]
    """Postings of `terms[i]`: `slice_of` and `often` from `offsets[i]` to `offsets[i + 1]`."""
    words: NDArray[np.int32]
    word_offsets: Ints
    """Distinct meaningful surfaces of row i: `words` from `word_offsets[i]` to `word_offsets[i +
    1]`.
    """
    vectors: Vectors
    vector_owner: NDArray[np.int32]

    def __len__(self) -> int:
        return len(self.alive)

    @cached_property
    def bytes(self) -> int:
        """The size of all its arrays."""
        arrays = [value for value in vars(self).values() if hasattr(value, "nbytes")]
        return sum(array.nbytes for array in [*arrays, *self.columns.values()])

    @cached_property
    def spoken(self) -> Floats:
        """The words of each row."""
        import numpy as np

        counts = np.bincount(self.owner, weights=self.length, minlength=len(self))
        return counts.astype(np.float64)

    def postings(self, term: int) -> tuple[NDArray[np.int32], NDArray[np.float32]] | None:
        import numpy as np

        place = int(np.searchsorted(self.terms, term))
        if place == len(self.terms) or self.terms[place] != term:
            return None
        start, end = self.offsets[place], self.offsets[place + 1]
        return self.slice_of[start:end], self.often[start:end]


@dataclass(frozen=True, eq=False)
class Corpus:
    """A snapshot of one scope's searchable memories. Rows are numbered from 0 over all segments."""

    vocabulary: Vocabulary
    segments: tuple[Segment, ...] = ()
    entries: int = 0
    """The number of entries from which it was made, removed ones included."""
    aliases: Mapping[int, tuple[str, ...]] = field(default_factory=dict)
    """By the memory that says so, the names by which one person goes."""
    gone: frozenset[int] = field(default_factory=frozenset)
    long_answers: dict[int, bool] = field(default_factory=dict)
    """By conversation, whether its assistants answer at length, as far as that was looked at."""

    @classmethod
    def empty(cls) -> Corpus:
        """A corpus of nothing."""
        return cls(Vocabulary())

    def updated(self, entries: Sequence[Entry], *, dimension: int = 0) -> Corpus:
        """Return this corpus with `entries` added, replaced by `doc`, or removed if they are gone.

        `dimension` is the length of one vector. One thread at a time may update the snapshots of
        one scope; any number may read them. Raises DimensionMismatch for vectors of another size.
        """
        return self.updated_by_pages([entries], dimension=dimension)

    def updated_by_pages(self, pages: Iterable[Sequence[Entry]], *, dimension: int = 0) -> Corpus:
        """Same as `updated`, of entries that need not be in memory all at once.

        No memory is in two of the pages.
        """
        docs: set[int] = set()
        names: dict[int, tuple[str, ...]] = {}
        removed: set[int] = set()
        added = []
        for page in pages:
            docs.update(entry.doc for entry in page)
            living = [entry for entry in page if entry.words is not None]
            if living:
                added.append(_segment(self.vocabulary, living, dimension))
            names |= {
                entry.doc: tuple(json.loads(entry.names))
                for entry in page
                if entry.names is not None
            }
            removed.update(entry.doc for entry in page if entry.words is None)
        if not docs:
            return self
        changed = self.rows_of(docs)
        existing = len(docs.intersection(self.gone)) + len(changed)
        segments = [*self._without(docs)]
        if added:
            segments.append(_merge(added) if len(added) > 1 else added[0])
        touched = [part.columns["conversation"] for part in added]
        touched += [self.column("conversation")[changed]] if len(changed) else []
        ended = {number for numbers in touched for number in numbers.tolist()}
        # Copied first: another thread may look at a further conversation meanwhile.
        long_answers = dict(self.long_answers)
        del added
        while len(segments) > 1 and len(segments[-2]) <= 2 * len(segments[-1]):
            segments[-2:] = [_merge(segments[-2:])]
        aliases = {doc: known for doc, known in self.aliases.items() if doc not in docs} | names
        gone = (self.gone - docs) | removed
        return Corpus(
            self.vocabulary,
            tuple(segments),
            entries=self.entries + len(docs) - existing,
            aliases=aliases,
            gone=frozenset(gone),
            long_answers={
                number: long for number, long in long_answers.items() if number not in ended
            },
        )

    def _without(self, docs: set[int]) -> Iterable[Segment]:
        import numpy as np

        ids = np.fromiter(docs, dtype=np.int64)
        for segment in self.segments:
            hit = np.isin(segment.columns["doc"], ids) & segment.alive
            yield replace(segment, alive=segment.alive & ~hit) if hit.any() else segment

    # Columns over all segments

    def column(self, name: str) -> NDArray[Any]:
        """One value a row."""
        values = self._columns.get(name)
        if values is None:
            import numpy as np

            parts = [segment.columns[name] for segment in self.segments]
            values = _joined(parts) if parts else np.zeros(0, dtype=np.int64)
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
        return _joined(parts) if parts else np.zeros(0, dtype=bool)

    @cached_property
    def starts(self) -> list[int]:
        """The first row of each segment."""
        starts = [0]
        for segment in self.segments:
            starts.append(starts[-1] + len(segment))
        return starts

    def __len__(self) -> int:
        return int(self.alive.sum())

    @cached_property
    def size(self) -> CorpusSize:
        """The number of live slices, and of their words."""
        slices, words = 0, 0.0
        for segment in self.segments:
            live = segment.alive[segment.owner]
            slices += int(live.sum())
            words += float(segment.length[live].sum())
        return CorpusSize(slices, words)

    @cached_property
    def _by_doc(self) -> tuple[Ints, Ints]:
        import numpy as np

        rows = np.flatnonzero(self.alive)
        docs = self.column("doc")[rows]
        order = np.argsort(docs, kind="stable")
        return docs[order], rows[order]

    def rows_of(self, docs: Iterable[int]) -> Ints:
        """Return the live rows of `docs`, in their order."""
        import numpy as np

        ids = np.fromiter(docs, dtype=np.int64)
        sorted_ids, rows = self._by_doc
        if not len(sorted_ids) or not len(ids):
            return np.zeros(0, dtype=np.int64)
        places = np.minimum(np.searchsorted(sorted_ids, ids), len(sorted_ids) - 1)
        return cast("Ints", rows[places][sorted_ids[places] == ids])

    # Words

    def frequency(self, term: str) -> int:
        """Return the number of live slices that contain `term`."""
        number = self.vocabulary.terms.get(term)
        if number is None:
            return 0
        count = 0
        for segment in self.segments:
            postings = segment.postings(number)
            if postings is not None:
                count += int(segment.alive[segment.owner[postings[0]]].sum())
        return count

    def text_scores(
        self, weights: Mapping[str, float], *, average: float, loose: Iterable[str] = ()
    ) -> Floats:
        """BM25 of every row: of its best slice. `weights` maps a term to its inverse document
        frequency.

        Terms in `loose` count in rows without a speaker only. Robertson and Zaragoza, "The
        Probabilistic Relevance Framework: BM25 and Beyond" (2009): the sum over terms of weight *
        tf * (k1 + 1) / (tf + k1 * (1 - b + b * length / average)). Terms are added in the order of
        the mapping.
        """
        import numpy as np

        unspoken = set(loose)
        scores = np.zeros(self.starts[-1], dtype=np.float64)
        for start, segment in zip(self.starts, self.segments, strict=False):
            sums = np.zeros(len(segment.owner), dtype=np.float64)
            for term, weight in weights.items():
                number = self.vocabulary.terms.get(term)
                postings = segment.postings(number) if number is not None else None
                if postings is None:
                    continue
                where, often = postings
                if term in unspoken:
                    quiet = segment.columns["speaker"][segment.owner[where]] < 0
                    where, often = where[quiet], often[quiet]
                relative = segment.length[where] / np.float64(average) if average > 0 else 1.0
                sums[where] += weight * often * (K1 + 1.0) / (often + K1 * (1.0 - B + B * relative))
            if len(sums):
                first = np.searchsorted(segment.owner, np.arange(len(segment)))
                best = sums if len(sums) == len(segment) else np.maximum.reduceat(sums, first)
                scores[start : start + len(segment)] = best
        return scores

    def words_of(self, rows: Ints) -> RowWords:
        """Return the distinct meaningful words of rows."""
        import numpy as np

        place = np.searchsorted(self.starts, rows, side="right") - 1
        counts = np.zeros(len(rows), dtype=np.int64)
        first = np.zeros(len(rows), dtype=np.int64)
        base = 0
        for at, segment in enumerate(self.segments):
            local_rows = np.flatnonzero(place == at)
            local = rows[local_rows] - self.starts[at]
            first[local_rows] = segment.word_offsets[local] + base
            counts[local_rows] = segment.word_offsets[local + 1] - segment.word_offsets[local]
            base += len(segment.words)
        within = np.arange(int(counts.sum())) - np.repeat(np.cumsum(counts) - counts, counts)
        return RowWords(self._all_words[np.repeat(first, counts) + within], counts)

    @cached_property
    def _all_words(self) -> NDArray[np.int32]:
        import numpy as np

        parts = [segment.words for segment in self.segments]
        return _joined(parts) if parts else np.zeros(0, dtype=np.int32)

    # Vectors

    @cached_property
    def vectors(self) -> int:
        """Return the number of live rows that have a vector."""
        import numpy as np

        return sum(
            int(segment.alive[np.unique(segment.vector_owner)].sum()) for segment in self.segments
        )

    def nearness(self, query: Vectors) -> Floats:
        """Return the cosine of `query` with the best slice of every row; -2 for a row without a
        vector.

        Good for choosing candidates; `exact_nearness` returns values that do not depend on other
        rows. Raises DimensionMismatch.
        """
        import numpy as np

        cosines = np.full(self.starts[-1], -2.0)
        for start, segment in zip(self.starts, self.segments, strict=False):
            if len(segment.vectors):
                _same_size(query, segment.vectors)
                values = segment.vectors @ query
                owner = segment.vector_owner
                first = np.flatnonzero(np.diff(owner, prepend=-1))
                best = values if len(first) == len(owner) else np.maximum.reduceat(values, first)
                cosines[start + owner[first]] = best
        return cosines

    def exact_nearness(self, query: Vectors, rows: Ints) -> Floats:
        """Return the cosine of `query` with the best slice of each of `rows`, to the last bit; -2
        without a vector.
        """
        import numpy as np

        cosines = np.full(len(rows), -2.0)
        place = np.searchsorted(self.starts, rows, side="right") - 1
        for at, segment in enumerate(self.segments):
            local_rows = np.flatnonzero(place == at)
            if not len(local_rows) or not len(segment.vectors):
                continue
            _same_size(query, segment.vectors)
            local = rows[local_rows] - self.starts[at]
            first = np.searchsorted(segment.vector_owner, local)
            last = np.searchsorted(segment.vector_owner, local, side="right")
            spread = np.repeat(np.arange(len(local_rows)), last - first)
            within = np.arange(len(spread)) - np.repeat(
                np.cumsum(last - first) - (last - first), last - first
            )
            chosen = segment.vectors[first[spread] + within]
            # einsum works row by row; a matrix product may group rows and so round them
            # differently.
            values = np.clip(np.einsum("ij,j->i", chosen, query), -1.0, 1.0)
            np.maximum.at(cosines, local_rows[spread], values)
        return cosines

    # Conversations

    @cached_property
    def _turns(self) -> tuple[Ints, Ints]:
        """Rows of turns ordered by conversation and position, and for each row its place in that
        order, else -1.
        """
        import numpy as np

        conversation = self.column("conversation")
        rows = np.flatnonzero(self.alive & (conversation >= 0))
        order = rows[np.lexsort((self.column("position")[rows], conversation[rows]))]
        places = np.full(self.starts[-1], -1, dtype=np.int64)
        places[order] = np.arange(len(order))
        return order, places

    @property
    def turns(self) -> Ints:
        """The rows of turns, by conversation and position."""
        return self._turns[0]

    def words_in(self, rows: Ints) -> Floats:
        """Return the number of words of each of `rows`."""
        return self._spoken[rows]

    @cached_property
    def _spoken(self) -> Floats:
        import numpy as np

        parts = [segment.spoken for segment in self.segments]
        return _joined(parts) if parts else np.zeros(0, dtype=np.float64)

    def beside(self, rows: Ints, step: int) -> Ints:
        """Return, for each of `rows`, the turn `step` places further on in its conversation; -1 if
        there is none.
        """
        import numpy as np

        order, places = self._turns
        place = places[rows] + step
        inside = (places[rows] >= 0) & (place >= 0) & (place < len(order))
        turns = np.where(inside, order[np.where(inside, place, 0)] if len(order) else -1, -1)
        conversation = self.column("conversation")
        same = (
            (turns >= 0) & (conversation[turns] == conversation[rows]) if len(order) else turns >= 0
        )
        return np.where(same, turns, -1)

    @cached_property
    def speakers(self) -> tuple[str, ...]:
        """Return the speakers, in the order in which they were added."""
        import numpy as np

        present = np.unique(self.column("speaker")[self.alive])
        names = list(self.vocabulary.speakers)
        return tuple(names[number] for number in present.tolist() if number >= 0)

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
            postings = (segment.postings(int(terms[number])) for segment in self.segments)
            return any(
                posting is not None and bool(segment.alive[segment.owner[posting[0]]].any())
                for segment, posting in zip(self.segments, postings, strict=True)
            )

        return languages_spoken(holds)

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


def _joined(parts: Sequence[NDArray[Any]]) -> NDArray[Any]:
    """Return arrays one after the other; one alone is not copied."""
    import numpy as np

    return parts[0] if len(parts) == 1 else np.concatenate(parts)


@lru_cache(maxsize=65_536)
def _name_terms(name: str) -> tuple[str, ...]:
    return tuple(analyze(name))


def _same_size(query: Vectors, vectors: Vectors) -> None:
    if query.shape[0] != vectors.shape[1]:
        raise DimensionMismatch(name="of the query", expected=vectors.shape[1], got=query.shape[0])


def _segment(vocabulary: Vocabulary, entries: Sequence[Entry], dimension: int) -> Segment:
    import numpy as np

    numbers = vocabulary.surfaces.__getitem__
    ids: list[int] = []
    lengths: list[int] = []
    owner: list[int] = []
    for row, entry in enumerate(entries):
        for line in (entry.words or "").split("\n"):
            numbered = list(map(numbers, line.split()))
            ids += numbered
            lengths.append(len(numbered))
            owner.append(row)
    vocabulary.catch_up()
    surfaces = np.array(ids, dtype=np.int32)
    owners = np.array(owner, dtype=np.int32)
    length = np.array(lengths, dtype=np.float32)
    slice_of = np.repeat(np.arange(len(owners), dtype=np.int32), np.array(lengths, dtype=np.int64))
    keys = vocabulary.term_of[surfaces].astype(np.int64) * len(owners) + slice_of
    postings, often = np.unique(keys, return_counts=True)
    says = vocabulary.says[surfaces]
    words = np.unique(
        owners[slice_of[says]].astype(np.int64) * len(vocabulary.spelled) + surfaces[says]
    )
    word_rows = words // max(1, len(vocabulary.spelled))
    vectors, vector_owner = _vectors(entries, dimension)
    speakers, kinds, conversations = vocabulary.speakers, vocabulary.kinds, vocabulary.conversations
    columns = {
        "doc": np.array([entry.doc for entry in entries], dtype=np.int64),
        "flags": np.array([entry.flags for entry in entries], dtype=np.int64),
        "speaker": np.array(
            [-1 if e.speaker is None else speakers[e.speaker] for e in entries], dtype=np.int64
        ),
        "kind": np.array([kinds[entry.kind] for entry in entries], dtype=np.int64),
        "conversation": np.array(
            [
                -1
                if e.conversation is None or e.position is None
                else conversations[e.conversation]
                for e in entries
            ],
            dtype=np.int64,
        ),
        "position": np.array([entry.position or 0 for entry in entries], dtype=np.int64),
        "occurred_at": np.array(
            [NEVER if entry.occurred_at is None else entry.occurred_at for entry in entries],
            dtype=np.int64,
        ),
        # For filters, what nobody dated was said when it was remembered; a question's dates fit
        # what was dated alone.
        "said_at": np.array(
            [_first_set(entry.occurred_at, entry.created_at, NEVER) for entry in entries], np.int64
        ),
        "expires_at": np.array(
            [_FOREVER if entry.expires_at is None else entry.expires_at for entry in entries],
            dtype=np.int64,
        ),
        # Without a word on it, a memory holds since it was said.
        "valid_from": np.array(
            [_first_set(entry.valid_from, entry.occurred_at, NEVER) for entry in entries], np.int64
        ),
        "valid_until": np.array(
            [_first_set(entry.valid_until, _FOREVER) for entry in entries], dtype=np.int64
        ),
        "state": np.array([vocabulary.states[entry.state] for entry in entries], dtype=np.int64),
    }
    return Segment(
        columns=columns,
        alive=np.ones(len(entries), dtype=bool),
        owner=owners,
        length=length,
        **_inverted_index(postings // max(1, len(owners)), postings % max(1, len(owners)), often),
        words=(words % max(1, len(vocabulary.spelled))).astype(np.int32),
        word_offsets=np.searchsorted(word_rows, np.arange(len(entries) + 1)),
        vectors=vectors,
        vector_owner=vector_owner,
    )


def _first_set(*moments: int | None) -> int:
    return next(moment for moment in moments if moment is not None)


def _inverted_index(
    terms: NDArray[Any], slice_of: NDArray[Any], often: NDArray[Any]
) -> dict[str, Any]:
    """Postings already sorted by term and slice, with the offset of each term."""
    import numpy as np

    distinct, offsets = np.unique(terms, return_index=True)
    return {
        "terms": distinct.astype(np.int32),
        "offsets": np.append(offsets, len(terms)).astype(np.int64),
        "slice_of": slice_of.astype(np.int32),
        "often": often.astype(np.float32),
    }


def _vectors(entries: Sequence[Entry], dimension: int) -> tuple[Vectors, NDArray[np.int32]]:
    import numpy as np

    having = [(row, entry.vector) for row, entry in enumerate(entries) if entry.vector]
    if not having or not dimension:
        return np.zeros((0, 0), dtype=np.float32), np.zeros(0, dtype=np.int32)
    for _, blob in having:
        if len(blob) % (2 * dimension):
            raise DimensionMismatch(
                name="of the stored vectors", expected=dimension, got=len(blob) // 2
            )
    flat = (
        np.frombuffer(b"".join(blob for _, blob in having), dtype="<f2")
        .reshape(-1, dimension)
        .astype(np.float32)
    )
    lengths = np.sqrt(np.einsum("ij,ij->i", flat, flat))
    flat /= np.where(lengths > 0, lengths, 1.0)[:, None]
    counts = np.array([len(blob) // (2 * dimension) for _, blob in having])
    return flat, np.repeat(np.array([row for row, _ in having], dtype=np.int32), counts)


def _merge(segments: Sequence[Segment]) -> Segment:
    """Return one segment of the live rows, in the same order."""
    import numpy as np

    columns = {
        name: np.concatenate([segment.columns[name][segment.alive] for segment in segments])
        for name in segments[0].columns
    }
    owner, length, terms, slice_of, often, words, counts, vectors, vector_owner = (
        [],
        [],
        [],
        [],
        [],
        [],
        [],
        [],
        [],
    )
    rows = slices = 0
    for segment in segments:
        new_row = np.cumsum(segment.alive) - 1 + rows
        live = segment.alive[segment.owner]
        new_slice = np.cumsum(live) - 1 + slices
        owner.append(new_row[segment.owner[live]])
        length.append(segment.length[live])
        postings = live[segment.slice_of]
        terms.append(np.repeat(segment.terms, np.diff(segment.offsets))[postings])
        slice_of.append(new_slice[segment.slice_of[postings]])
        often.append(segment.often[postings])
        sizes = np.diff(segment.word_offsets)
        words.append(segment.words[np.repeat(segment.alive, sizes)])
        counts.append(sizes[segment.alive])
        if len(segment.vectors):
            with_vectors = segment.alive[segment.vector_owner]
            vectors.append(segment.vectors[with_vectors])
            vector_owner.append(new_row[segment.vector_owner[with_vectors]])
        rows += int(segment.alive.sum())
        slices += int(live.sum())
    if len({part.shape[1] for part in vectors if len(part)}) > 1:
        raise DimensionMismatch(
            name="of the stored vectors", expected=vectors[0].shape[1], got=vectors[1].shape[1]
        )
    all_terms, all_slices = np.concatenate(terms), np.concatenate(slice_of)
    order = np.lexsort((all_slices, all_terms))
    vectors = [part for part in vectors if len(part)]
    return Segment(
        columns=columns,
        alive=np.ones(rows, dtype=bool),
        owner=np.concatenate(owner).astype(np.int32),
        length=np.concatenate(length),
        **_inverted_index(all_terms[order], all_slices[order], np.concatenate(often)[order]),
        words=np.concatenate(words),
        word_offsets=np.concatenate([[0], np.cumsum(np.concatenate(counts))]).astype(np.int64),
        vectors=np.concatenate(vectors) if vectors else np.zeros((0, 0), dtype=np.float32),
        vector_owner=np.concatenate(vector_owner).astype(np.int32)
        if vectors
        else np.zeros(0, dtype=np.int32),
    )
