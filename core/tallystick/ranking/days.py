"""Days: the moments that memories are of, and those that are of the days that a question names."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from tallystick.ranking.corpus import Corpus
from tallystick.ranking.dates import EVENT_DAYS
from tallystick.ranking.segment import NEVER
from tallystick.ranking.time_spans import Span

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Ints = NDArray[np.int64]
    Floats = NDArray[np.float64]
    Flags = NDArray[np.bool_]


class Moments(NamedTuple):
    """The times of some rows, microseconds UTC; NEVER where a row has none."""

    said: Ints
    """When it was said."""
    told: Ints
    """When it happened, where a word such as "yesterday" says that it was another day."""


def moments_of(corpus: Corpus, rows: Ints) -> Moments:
    """Return when rows were said, and when what they tell of happened."""
    import numpy as np

    said = corpus.column("occurred_at")[rows].astype(np.int64)
    told = said.copy()
    surfaces = corpus.vocabulary.surfaces
    shifts = {surfaces[word]: shift for word, shift in EVENT_DAYS.items() if word in surfaces}
    if shifts:
        words = corpus.words_of(rows)
        owner = np.repeat(np.arange(len(rows)), words.counts)
        for number, shift in shifts.items():
            places = owner[words.words == number]
            told[places] = np.where(said[places] == NEVER, NEVER, said[places] + shift)
    return Moments(said, told)


def of_these_days(
    corpus: Corpus, spans: Sequence[Span], allowed: Flags, worth: Floats, depth: int
) -> Ints:
    """Return the rows, at most `depth`, that were said within the spans or tell of a day within
    them; of more those of most worth, equal ones by row.

    A span without beginning or end proposes nothing: it is of half of all memories.
    """
    import numpy as np

    closed = [span for span in spans if span.is_closed]
    times = corpus.column("occurred_at")
    longest = max(map(abs, EVENT_DAYS.values()))
    near = np.zeros(len(times), dtype=bool)
    for span in closed:
        near |= (times >= span.start - longest) & (times < span.end + longest)
    rows = np.flatnonzero(near & allowed)
    if not len(rows):
        return rows
    said, told = moments_of(corpus, rows)
    inside = np.zeros(len(rows), dtype=bool)
    for span in closed:
        for moments in (said, told):
            inside |= (moments >= span.start) & (moments < span.end)
    rows = rows[inside]
    return np.sort(rows[np.argsort(-worth[rows], kind="stable")][:depth])
