"""Frozen corpora: a corpus as plain arrays and a short description, to be kept and read again
without analysing its texts anew. What was removed from the corpus is in neither.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from tallystick.ranking.corpus import Corpus
from tallystick.ranking.segment import Segment, merge
from tallystick.ranking.vocabulary import Vocabulary

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

FORM = 1
"""The version of the arrays and of the analysis behind them: others are not read."""

_COLUMN = "column."
_FIELDS = (
    "owner",
    "length",
    "terms",
    "offsets",
    "slice_of",
    "often",
    "words",
    "word_offsets",
    "vectors",
    "vector_owner",
    "sketch",
)


@dataclass(frozen=True)
class Frozen:
    """A corpus of one segment, ready to be kept."""

    about: Mapping[str, Any]
    """JSON: the names of speakers, kinds and conversations, and who goes by several names."""
    arrays: Mapping[str, NDArray[Any]]
    """By name; texts are bytes of UTF-8, one a line."""


def freeze(corpus: Corpus) -> Frozen:
    """Return the live rows of a corpus, with the words that these rows have and no others."""
    import numpy as np

    vocabulary = corpus.vocabulary
    segment = merge([_in_memory(segment) for segment in corpus.segments])
    surface_used = ~vocabulary.says & np.isin(vocabulary.term_of, segment.terms)
    surface_used[segment.words] = True
    surfaces, words = _renumber(np.flatnonzero(surface_used), segment.words, len(surface_used))
    terms, own_terms = _renumber(segment.terms, segment.terms, len(vocabulary.terms))
    _, term_of = _renumber(segment.terms, vocabulary.term_of[surfaces], len(vocabulary.terms))
    columns = dict(segment.columns)
    about: dict[str, Any] = {
        "aliases": [[doc, *names] for doc, names in sorted(corpus.aliases.items())],
    }
    for name, numbers in (
        ("speaker", vocabulary.speakers),
        ("kind", vocabulary.kinds),
        ("conversation", vocabulary.conversations),
        ("state", vocabulary.states),
    ):
        named = list(numbers)
        values = columns[name]
        used = np.unique(values[values >= 0])
        _, columns[name] = _renumber(used, values, len(named))
        about[name] = [named[number] for number in used.tolist()]
    all_terms = list(vocabulary.terms)
    arrays: dict[str, NDArray[Any]] = {
        "surfaces": _bytes_of([vocabulary.spelled[number] for number in surfaces.tolist()]),
        "term_names": _bytes_of([all_terms[number] for number in terms.tolist()]),
        "term_of": term_of.astype(np.int32),
        "says": vocabulary.says[surfaces],
    }
    arrays |= {_COLUMN + name: values.astype(np.int64) for name, values in columns.items()}
    for name in _FIELDS:
        values = getattr(segment, name)
        if values is not None:
            arrays[name] = values
    arrays["words"], arrays["terms"] = words.astype(np.int32), own_terms.astype(np.int32)
    return Frozen(about, arrays)


def thaw(about: Mapping[str, Any], arrays: Mapping[str, Any]) -> Corpus:
    """Return the corpus of which these are the arrays, without copying them."""
    import numpy as np

    vocabulary = Vocabulary()
    vocabulary.spelled = _lines(arrays["surfaces"])
    vocabulary.surfaces.update(zip(vocabulary.spelled, range(len(vocabulary.spelled)), strict=True))
    terms = _lines(arrays["term_names"])
    vocabulary.terms.update(zip(terms, range(len(terms)), strict=True))
    vocabulary.term_of, vocabulary.says = arrays["term_of"], arrays["says"]
    for name, numbers in (
        ("speaker", vocabulary.speakers),
        ("kind", vocabulary.kinds),
        ("conversation", vocabulary.conversations),
        ("state", vocabulary.states),
    ):
        numbers.update({named: number for number, named in enumerate(about[name])})
    columns = {
        name.removeprefix(_COLUMN): values
        for name, values in arrays.items()
        if name.startswith(_COLUMN)
    }
    fields: dict[str, Any] = {name: arrays.get(name) for name in _FIELDS}
    segment = Segment(
        columns=columns,
        alive=np.ones(len(columns["doc"]), dtype=bool),
        **fields,
    )
    return Corpus(
        vocabulary,
        (segment,),
        aliases={doc: tuple(names) for doc, *names in about["aliases"]},
    )


def _in_memory(segment: Segment) -> Segment:
    """Return a segment with all its arrays, also those of which parts are read elsewhere."""
    return replace(
        segment, slice_of=segment.slice_of[:], often=segment.often[:], words=segment.words[:]
    )


def _renumber(
    used: NDArray[Any], values: NDArray[Any], size: int
) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return the numbers in use, and `values` by their places among these; -1 stays."""
    import numpy as np

    place = np.full(size + 1, -1, dtype=np.int64)
    place[used] = np.arange(len(used))
    return used, place[values]


def _bytes_of(texts: list[str]) -> NDArray[np.uint8]:
    import numpy as np

    return np.frombuffer("\n".join(texts).encode(), dtype=np.uint8)


def _lines(values: Any) -> list[str]:
    text = bytes(values).decode()
    return text.split("\n") if text else []
