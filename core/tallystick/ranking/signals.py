"""Signals of recall: small pure functions over the candidates of one question, one value per
candidate.

A turn is a candidate that belongs to a conversation. Signals of position say nothing about loose
notes.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]
    Ints = NDArray[np.int64]
    Flags = NDArray[np.bool_]

_MANY = 10
"""Conversations among whose best scores one that is far above the others says something."""
_QUESTION_WORD = re.compile(
    r"\b(?:what|which|how|why|where|when|who(?:m|se)?)\b|[.!?\n]", re.IGNORECASE
)
_WHEN = re.compile(
    r"\b(?:what|which|on what|in what|in "
    r"which)\s+(?:date|day|month|year|week|time|season)\b"
    r"|\bhow (?:long|many (?:days|weeks|months|years))\b|\bhow (?:recently|often)\b"
    r"|\b(?:cu[áa]ndo|quand|wann|quando|wanneer|когда|kiedy|kdy"
    r"|når|hvornår|när|milloin|mikor|când|ne zaman|πότε|متى)\b"
    r"|什么时候|什麼時候|何时|何時|哪天|哪一天|几月|哪年|几号|いつ|何月|何日|何年|언제|며칠|몇 월",
    re.IGNORECASE,
)
_ASSISTANTS = frozenset({"assistant", "ai", "agent", "bot", "chatbot", "model"})
_ASKS_ASSISTANT = re.compile(
    r"\b(?:assistant|chatbot|bot|ai|agent|model)(?:'s)?\b"
    r"|\b(?:did|have|had|were) you\b|\byou(?:'ve)? (?:just |already |once )?"
    r"(?:said|told|suggested|recommended|mentioned|gave|given|proposed|advised|explained|wrote)\b"
    r"|\byour (?:answer|advice|suggestion|recommendation|reply|proposal|list)",
    re.IGNORECASE,
)


class Standardised(NamedTuple):
    """Values on the scale of their own spread."""

    values: Floats
    """Distance of each value from the mean, in standard deviations."""
    zero: float
    """The place of 0 on the same scale."""


class Scale(NamedTuple):
    """Where values lie, and how far apart."""

    mean: float
    spread: float

    def of(self, values: Floats) -> Floats:
        """Return values as distances from the mean in spreads; all 0.0 where there is none."""
        return (values - self.mean) / self.spread if self.spread else values * 0.0


def scale_of(values: Floats, within: Floats | None = None) -> Scale:
    """Return the mean of values and their standard deviation; a tenth of the largest value, of
    those `within` which they stand, where it is below that, so that among few or much alike
    candidates a small difference stays small.
    """
    if not len(values):
        return Scale(0.0, 0.0)
    largest = float(abs(values if within is None else within).max())
    return Scale(float(values.mean()), max(float(values.std()), largest / 10))


def standardise(values: Floats) -> Standardised:
    """Return values as distances from their mean in standard deviations, by their `scale_of`."""
    scale = scale_of(values)
    zero = -scale.mean / scale.spread if scale.spread else 0.0
    return Standardised(scale.of(values), zero)


def best_words(likeness: Floats, counts: Ints) -> Floats:
    """For each candidate (rows) and each word of the query (columns) the likeness of the likest of
    its own words.

    `likeness` has a row for each word of each candidate, one candidate after the other, and a
    column for each word of the query; `counts` says how many rows each candidate has. It is the
    inner half of MaxSim (Khattab and Zaharia, "ColBERT", 2020).
    """
    import numpy as np

    best = np.zeros((len(counts), likeness.shape[1]), dtype=np.float64)
    filled = counts > 0
    if filled.any() and likeness.shape[1]:
        starts = np.concatenate([[0], np.cumsum(counts)])[:-1][filled]
        best[filled] = np.maximum.reduceat(likeness, starts, axis=0)
    return best


def word_flow(best: Floats, beside: Sequence[tuple[Ints, float]]) -> Floats:
    """`best` where a word that a candidate lacks may stand in a neighbour: for each (index or -1,
    share of it).
    """
    import numpy as np

    padded = np.vstack([best, np.zeros((1, best.shape[1]))])
    for index, share in beside:
        best = np.maximum(best, share * padded[index])
    return best


def neighbour_flow(scores: Floats, beside: Sequence[tuple[Ints, float]]) -> Floats:
    """Return the score that flows to each candidate from others: for each (index of the other or
    -1, share), that share of its score.
    """
    import numpy as np

    total = np.zeros(len(scores), dtype=np.float64)
    padded = np.append(scores, 0.0)
    for index, share in beside:
        total += share * padded[index]
    return total


def answer_flow(scores: Floats, before: Ints, asks: Flags, share: float) -> Floats:
    """Return the score that flows to each candidate from the turn before it (its index or -1) if
    that was a question.
    """
    import numpy as np

    return share * np.append(np.where(asks, scores, 0.0), 0.0)[before]


def session_flow(scores: Floats, session: Ints) -> Floats:
    """Return the best score in the conversation of each candidate, standardised; less of it for
    turns where the candidates are of few conversations, of which none is far above the others.
    """
    import numpy as np

    count = len(np.unique(session[session >= 0]))
    values = standardise(_best_in_session(scores, session)).values
    return np.where(session >= 0, values * min(1.0, count / _MANY), values)


def _best_in_session(scores: Floats, session: Ints) -> Floats:
    """Return the best score in the conversation of each candidate; a candidate outside of any (-1)
    keeps its own.
    """
    import numpy as np

    result = scores.copy()
    turns = np.flatnonzero(session >= 0)
    if len(turns):
        numbers, place = np.unique(session[turns], return_inverse=True)
        best = np.full(len(numbers), -np.inf)
        np.maximum.at(best, place, scores[turns])
        result[turns] = best[place]
    return result


def question_words(query: str) -> frozenset[str]:
    """Return the words with which the sentences of an English query ask, in small letters: of each
    the first. A later one mostly joins: "what did she say when he left" asks for no time.
    """
    words = set()
    is_open = True
    for match in _QUESTION_WORD.finditer(query):
        word = match[0].lower()
        if word.isalpha():
            if is_open:
                words.add(word)
            is_open = False
        else:
            is_open = True
    return frozenset(words)


def asks_when(query: str) -> bool:
    """Return True if the query asks for a time."""
    return "when" in question_words(query) or _WHEN.search(query) is not None


def is_assistant(speaker: str | None) -> bool:
    """Return True if the speaker is an assistant by role rather than a person by name."""
    return speaker is not None and speaker.strip().lower() in _ASSISTANTS


def asks_assistant(query: str) -> bool:
    """Return True if the query asks what the assistant said before. "Could you suggest" asks for
    something new, to which what the user said matters.
    """
    return _ASKS_ASSISTANT.search(query) is not None


def names_source(query: str, uri: str | None, title: str | None) -> bool:
    """Return True if a query names a source: by its title, its address, or the file at the end of
    its address.
    """
    names = [title, uri]
    if uri is not None:
        file = uri.rstrip("/").rpartition("/")[2]
        names += [file, file.partition(".")[0]]
    folded = query.casefold()
    return any(_stands_in(name.strip().casefold(), folded) for name in names if name is not None)


def _stands_in(name: str, text: str) -> bool:
    # Two letters stand in every other sentence by chance.
    return len(name) > 2 and re.search(rf"(?<!\w){re.escape(name)}(?!\w)", text) is not None
