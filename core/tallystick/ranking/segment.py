"""Segment: rows of a corpus with their inverted index, as arrays. It never changes; segments are
merged into larger ones. NumPy is imported on first use.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

from tallystick.errors import DimensionMismatch
from tallystick.ranking.sentences import CODE_PERCENT
from tallystick.ranking.vocabulary import Vocabulary

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Ints = NDArray[np.int64]
    Floats = NDArray[np.float64]
    Vectors = NDArray[np.float32]
    Flags = NDArray[np.bool_]

NEVER = -(2**62)
"""The moment of a memory without one."""
_FOREVER = 2**62
_POSITIONS = 2**32
"""Positions in a conversation that fit beside its number."""
_OF_ROWS = frozenset(
    {"by_doc", "first_slice", "is_vector_each", "sign_words", "spoken", "turn_order"}
)
"""What is derived from rows whether they are live or not."""


class Entry(NamedTuple):
    """One memory as it enters a corpus."""

    doc: int
    words: str | None
    """Its words as `indexed_words` writes them; None when it is gone."""
    marks: int
    """The percentage of its text that is code between fences, in the bits of `CODE_PERCENT`."""
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


class Postings(NamedTuple):
    """Where some terms occur, in their order: one value each for each term and slice."""

    which: Ints
    """The place of the term among those that were asked for."""
    slices: NDArray[np.int32]
    often: NDArray[np.float32]


@dataclass(frozen=True, eq=False)
class Segment:
    """Rows with their inverted index. Slices of a row stand side by side."""

    columns: Mapping[str, NDArray[Any]]
    """By name, one value a row: doc, code, speaker, kind, conversation, position, times, state."""
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
    sketch: NDArray[np.uint8] | None = None
    """The signs of the numbers of each vector, eight to a byte, where they stand for `vectors`."""

    def __len__(self) -> int:
        return len(self.alive)

    def with_alive(self, alive: Flags) -> Segment:
        """Return the same rows, of which these are live."""
        other = replace(self, alive=alive)
        # What does not depend on it is computed once.
        kept = {name: value for name, value in vars(self).items() if name in _OF_ROWS}
        vars(other).update(kept)
        return other

    @cached_property
    def bytes(self) -> int:
        """The size of all its arrays."""
        arrays = [value for value in vars(self).values() if hasattr(value, "nbytes")]
        return sum(array.nbytes for array in [*arrays, *self.columns.values()])

    @cached_property
    def is_vector_each(self) -> bool:
        """True if each row has one vector, in the order of the rows."""
        import numpy as np

        return np.array_equal(self.vector_owner, np.arange(len(self)))

    @cached_property
    def spoken(self) -> Floats:
        """The words that each row says, about: those outside of code between fences."""
        import numpy as np

        counts = np.bincount(self.owner, weights=self.length, minlength=len(self))
        return counts.astype(np.float64) * (1.0 - self.columns["code"] / 100.0)

    @cached_property
    def by_doc(self) -> tuple[Ints, Ints]:
        """The memories of all rows, ascending, and their rows."""
        import numpy as np

        order = np.argsort(self.columns["doc"], kind="stable")
        return self.columns["doc"][order], order

    @cached_property
    def first_slice(self) -> Ints:
        """The first slice of each row."""
        import numpy as np

        return np.searchsorted(self.owner, np.arange(len(self)))

    @cached_property
    def turn_order(self) -> tuple[Ints, Ints | None]:
        """The rows of turns by conversation and position, live or not, with one ascending number
        for each; None where positions are too large for one.
        """
        import numpy as np

        conversation, position = self.columns["conversation"], self.columns["position"]
        rows = np.flatnonzero(conversation >= 0)
        conversation = conversation[rows].astype(np.int64)
        position = position[rows].astype(np.int64)
        order = np.lexsort((position, conversation))
        if len(rows) and (int(position.min()) < 0 or int(position.max()) >= _POSITIONS):
            return rows[order], None
        return rows[order], (conversation * _POSITIONS + position)[order]

    @cached_property
    def size(self) -> CorpusSize:
        """The number of live slices, and of their words."""
        if self.is_whole:
            return CorpusSize(len(self.owner), float(self.length.sum(dtype="f8")))
        live = self.alive[self.owner]
        return CorpusSize(int(live.sum()), float(self.length[live].sum(dtype="f8")))

    @cached_property
    def is_whole(self) -> bool:
        """True if every row is live."""
        return bool(self.alive.all())

    @cached_property
    def living(self) -> int:
        """The number of live rows."""
        return int(self.alive.sum())

    @cached_property
    def speaking(self) -> tuple[int, ...]:
        """The numbers of the speakers of live rows, ascending."""
        import numpy as np

        numbers = np.unique(self.columns["speaker"][self.alive])
        return tuple(numbers[numbers >= 0].tolist())

    @cached_property
    def sign_words(self) -> tuple[NDArray[Any], Callable[[NDArray[Any]], NDArray[Any]]]:
        """The sketches in the widest words that fit, those of one place side by side, and what
        counts the bits of such words.
        """
        import numpy as np

        sketch = self.sketch
        assert sketch is not None
        if hasattr(np, "bitwise_count") and sketch.shape[1] % 8 == 0:
            return np.asfortranarray(sketch.view(np.uint64)), np.bitwise_count
        ones = np.unpackbits(np.arange(256, dtype=np.uint8)[:, None], axis=1).sum(axis=1)
        return np.asfortranarray(sketch), ones.astype(np.uint8).__getitem__

    @cached_property
    def embedded(self) -> int:
        """The number of live rows that have a vector."""
        import numpy as np

        owner = self.vector_owner
        return int(self.alive[owner[np.flatnonzero(np.diff(owner, prepend=-1))]].sum())

    def frequencies(self, terms: Sequence[int]) -> NDArray[np.int64]:
        """Return for each of some terms the number of slices that contain it, live or not."""
        import numpy as np

        counts = np.zeros(len(terms), dtype=np.int64)
        if len(self.terms):
            asked = np.array(terms, dtype=np.int32)
            places = self.terms.searchsorted(asked).clip(max=len(self.terms) - 1)
            inside = (self.terms[places] == asked).nonzero()[0]
            counts[inside] = self.offsets[places[inside] + 1] - self.offsets[places[inside]]
        return counts

    def postings(self, terms: Sequence[int]) -> Postings | None:
        """Return where some terms occur; None where none does."""
        import numpy as np

        asked = np.array(terms, dtype=np.int32)
        places = self.terms.searchsorted(asked)
        inside = places < len(self.terms)
        inside[inside] = self.terms[places[inside]] == asked[inside]
        which = inside.nonzero()[0]
        if not len(which):
            return None
        starts = self.offsets[places[which]].tolist()
        ends = self.offsets[places[which] + 1].tolist()
        # In slices, as some of these arrays are read from a file or the database.
        ranges = [slice(start, end) for start, end in zip(starts, ends, strict=True)]
        slices = [self.slice_of[each] for each in ranges]
        often = [self.often[each] for each in ranges]
        return Postings(
            np.repeat(which, [len(each) for each in slices]), _join(slices), _join(often)
        )


def _join(parts: Sequence[NDArray[Any]]) -> NDArray[Any]:
    import numpy as np

    return parts[0] if len(parts) == 1 else np.concatenate(parts)


def segment_of(vocabulary: Vocabulary, entries: Sequence[Entry], dimension: int) -> Segment:
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
        "code": np.array([entry.marks & CODE_PERCENT for entry in entries], dtype=np.int64),
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


def sketch_segment(segment: Segment) -> Segment:
    """Return the same rows with the signs of their vectors instead of these."""
    import numpy as np

    empty = np.zeros((0, 0), dtype=np.float32)
    return replace(segment, vectors=empty, sketch=_sketch_of(segment))


def _sketch_of(segment: Segment) -> Any:
    import numpy as np

    return (
        segment.sketch if segment.sketch is not None else np.packbits(segment.vectors > 0, axis=1)
    )


def merge(segments: Sequence[Segment]) -> Segment:
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
    sketched = any(segment.sketch is not None for segment in segments)
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
        if len(segment.vector_owner):
            with_vectors = segment.alive[segment.vector_owner]
            kept = _sketch_of(segment) if sketched else segment.vectors
            vectors.append(kept[with_vectors])
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
    joined: Any = np.concatenate(vectors) if vectors else np.zeros((0, 0), dtype=np.float32)
    return Segment(
        columns=columns,
        alive=np.ones(rows, dtype=bool),
        owner=np.concatenate(owner).astype(np.int32),
        length=np.concatenate(length),
        **_inverted_index(all_terms[order], all_slices[order], np.concatenate(often)[order]),
        words=np.concatenate(words),
        word_offsets=np.concatenate([[0], np.cumsum(np.concatenate(counts))]).astype(np.int64),
        vectors=joined if not sketched else np.zeros((0, 0), dtype=np.float32),
        sketch=joined.astype(np.uint8, copy=False) if sketched else None,
        vector_owner=np.concatenate(vector_owner).astype(np.int32)
        if vectors
        else np.zeros(0, dtype=np.int32),
    )
