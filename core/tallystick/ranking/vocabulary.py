"""Vocabulary: numbers for the words, speakers, kinds and conversations of one scope, with the roots
of its words; and the vectors of words, which all scopes share.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from tallystick.ranking.languages import roots
from tallystick.ranking.words import is_function_word, stems

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Ints = NDArray[np.int64]
    Rows = NDArray[np.int32]
    Vectors = NDArray[np.float32]

_MEANINGS = 16_384
"""Vectors of single words that are kept; beyond, they are computed anew."""
_PRODUCT = 262_144
"""Multiplications of one matrix product at most: OpenBLAS starts threads for larger ones, which
cost more than they save.
"""
_STRING = 200
"""Bytes of a word with its number and its places in tables."""
_ROOT = 130
"""Bytes of the root of a word in a language."""


class _Numbers(dict[str, int]):
    """Numbers for strings, in the order in which they are first looked up."""

    def __missing__(self, key: str) -> int:
        number = self[key] = len(self)
        return number


class WordVectors:
    """Vectors of single words, by an embedder's table: one cache for all scopes, since a word has
    the same vector everywhere. Thread-safe.
    """

    def __init__(
        self,
        embed: Callable[[Sequence[str]], Vectors | None],
        *,
        most_bytes: int = 16 * 1024 * 1024,
    ) -> None:
        """Keep vectors of `most_bytes` at most, unless one call needs more."""
        self._embed = embed
        self._most = most_bytes
        self._guard = threading.Lock()
        self._rows: dict[str, int] = {}
        self._matrix: Vectors | None = None

    def __call__(self, words: Sequence[str]) -> Vectors | None:
        """Return the vectors of words; None where there are none. Those that are not kept already
        are not kept.
        """
        import numpy as np

        with self._guard:
            known = [self._rows.get(word, -1) for word in words]
            kept = None if self._matrix is None else self._matrix[known]
        new = [place for place, row in enumerate(known) if row < 0]
        if kept is None or len(new) == len(words):
            return self._embed(words)
        if new:
            vectors = self._embed([words[place] for place in new])
            if vectors is None:
                return None
            kept[new] = vectors
        return np.ascontiguousarray(kept)

    def update_matrix(
        self, words: Sequence[str], known: Rows, matrix: Vectors | None
    ) -> Vectors | None:
        """Return the matrix in which words have rows, and write these to `known`, where -1 stands
        for words of no row in `matrix`; another matrix than that has all of them anew. None where
        the embedder has no vectors.
        """
        import numpy as np

        with self._guard:
            if matrix is None or matrix is not self._matrix:
                known[:] = -1
            places = np.flatnonzero(known < 0).tolist()
            new = [words[place] for place in places if words[place] not in self._rows]
            new = list(dict.fromkeys(new))
            if self._matrix is None or len(self._rows) + len(new) > len(self._matrix):
                known[:] = -1
                places, new = list(range(len(words))), list(dict.fromkeys(words))
                self._matrix = None
            if new:
                vectors = self._embed(new)
                if vectors is None:
                    return None
                if self._matrix is None:
                    # Of what is never written to, the system gives no memory.
                    most = self._most // vectors[0].nbytes
                    size = max(min(_MEANINGS, most), len(new))
                    self._rows = {}
                    self._matrix = np.empty((size, vectors.shape[1]), dtype=np.float32)
                first = len(self._rows)
                self._matrix[first : first + len(new)] = vectors
                self._rows.update((word, first + place) for place, word in enumerate(new))
            known[places] = [self._rows[words[place]] for place in places]
            return self._matrix

    def clear(self) -> None:
        """Forget the vectors that are kept, and their words."""
        with self._guard:
            self._rows, self._matrix = {}, None

    @property
    def bytes(self) -> int:
        """The approximate size of the vectors that are kept, with their words."""
        matrix = self._matrix
        return 0 if matrix is None else len(self._rows) * (matrix[0].nbytes + _STRING)


class Vocabulary:
    """Numbers for the words, stems, speakers, kinds and conversations of one scope. It only
    grows.
    """

    def __init__(self) -> None:
        import numpy as np

        self.surfaces = _Numbers()
        self.terms = _Numbers()
        self.speakers = _Numbers()
        self.kinds = _Numbers()
        self.conversations = _Numbers()
        self.states = _Numbers()
        self.spelled: list[str] = []
        """Each surface by its number."""
        self.term_of = np.zeros(0, dtype=np.int32)
        """For each surface the number of its term."""
        self.says = np.zeros(0, dtype=bool)
        """For each surface, True if it carries meaning: no function word, no single letter."""
        self._roots: dict[str, tuple[int, dict[str, tuple[str, ...]]]] = {}
        """By language, the number of surfaces indexed so far, and the terms of the words of each
        root.
        """
        self._guard = threading.Lock()
        # By surface the row of its vector, or -1: few of a scope's words are ever looked up.
        self._place = np.zeros(0, dtype=np.int32)
        self._meanings: Vectors | None = None

    def copy(self) -> Vocabulary:
        """Return the same numbers, to which nothing is added; vectors and roots are left out."""
        other = Vocabulary()
        other.surfaces, other.terms = _Numbers(self.surfaces), _Numbers(self.terms)
        other.speakers, other.kinds = _Numbers(self.speakers), _Numbers(self.kinds)
        other.conversations = _Numbers(self.conversations)
        other.states = _Numbers(self.states)
        other.spelled, other.term_of, other.says = self.spelled, self.term_of, self.says
        return other

    def cosines(
        self, numbers: NDArray[np.int64], meant: Vectors, vectors: WordVectors
    ) -> Vectors | None:
        """Return the cosines of `meant` (rows) with surfaces by their numbers (columns), whose
        vectors `vectors` keeps; None if it has none.
        """
        import numpy as np

        with self._guard:
            if len(self._place) < len(self.spelled):
                enlarged = np.full(len(self.spelled), -1, dtype=np.int32)
                enlarged[: len(self._place)] = self._place
                self._place = enlarged
            places = self._place[numbers]
            if self._meanings is None or (places < 0).any():
                words = [self.spelled[number] for number in numbers.tolist()]
                meanings = vectors.update_matrix(words, places, self._meanings)
                if meanings is None:
                    return None
                if meanings is not self._meanings:
                    self._place[:], self._meanings = -1, meanings
                self._place[numbers] = places
            meanings = self._meanings
        assert meanings is not None
        # A column more than one, because the product with a single vector has threads of its own.
        asked = np.zeros((meanings.shape[1], max(2, len(meant))), dtype=np.float32)
        asked[:, : len(meant)] = meant.T
        cosines = np.empty((len(places), asked.shape[1]), dtype=np.float32)
        # In parts that stay in the processor's cache.
        size = max(1, _PRODUCT // asked.size)
        rows = np.empty((size, meanings.shape[1]), dtype=np.float32)
        for start in range(0, len(places), size):
            part = places[start : start + size]
            taken = np.take(meanings, part, axis=0, out=rows[: len(part)], mode="clip")
            np.matmul(taken, asked, out=cosines[start : start + size])
        return np.ascontiguousarray(cosines.T[: len(meant)])

    def related_terms(self, words: Sequence[str], language: str) -> dict[str, frozenset[str]]:
        """Return, for each of some words, the terms of all words here that share its root in a
        language.
        """
        with self._guard:
            start, terms_by_root = self._roots.get(language, (0, {}))
            end, terms = len(self.spelled), list(self.terms)
            new = [place for place in range(start, end) if self.spelled[place].isalpha()]
            words_of_new = [self.spelled[place] for place in new]
            for place, root in zip(new, roots(words_of_new, language), strict=True):
                term, others = terms[self.term_of[place]], terms_by_root.get(root, ())
                if term not in others:
                    # Mostly one: a set for each would be most of what a scope needs.
                    terms_by_root[root] = (*others, term)
            self._roots[language] = (end, terms_by_root)
            return {
                word: frozenset(terms_by_root.get(root, ()))
                for word, root in zip(words, roots(words, language), strict=True)
            }

    @property
    def bytes(self) -> int:
        """The approximate size: of strings and tables of numbers."""
        roots_of_languages = sum(len(by_root) for _, by_root in list(self._roots.values()))
        return _STRING * (len(self.surfaces) + len(self.terms)) + _ROOT * roots_of_languages

    def catch_up(self) -> None:
        """Stem the surfaces that came since the last time."""
        import numpy as np

        new = list(self.surfaces)[len(self.spelled) :]
        if not new:
            return
        numbers = [self.terms[term] for term in stems(new)]
        self.term_of = np.concatenate([self.term_of, np.array(numbers, dtype=np.int32)])
        says = [
            not is_function_word(word) and (len(word) > 1 or not word.isascii() or word.isdigit())
            for word in new
        ]
        self.says = np.concatenate([self.says, np.array(says, dtype=bool)])
        self.spelled = self.spelled + new
