"""Vocabulary: numbers for the words, speakers, kinds and conversations of one scope, with the
vectors and the roots of its words.
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
    Vectors = NDArray[np.float32]
    WordVectors = Callable[[Sequence[str]], Vectors | None]

_MEANINGS = 16_384
"""Vectors of single words that are kept for one scope; beyond, they are computed anew."""
_PART = 512
"""Vectors of words that are compared at once."""
_STRING = 200
"""Bytes of a word with its number and its places in tables."""
_ROOT = 130
"""Bytes of the root of a word in a language."""


class _Numbers(dict[str, int]):
    """Numbers for strings, in the order in which they are first looked up."""

    def __missing__(self, key: str) -> int:
        number = self[key] = len(self)
        return number


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
        self._place = np.zeros(0, dtype=np.int64)
        self._meanings = np.zeros((0, 0), dtype=np.float32)

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
        vectors are computed once and cached; None if `vectors` returns none.
        """
        import numpy as np

        with self._guard:
            places = self._places_of(numbers, vectors)
            meanings = self._meanings
        if places is None:
            return None
        cosines = np.empty((len(meant), len(places)), dtype=np.float32)
        # In parts that stay in the processor's cache; row by row rather than by a matrix product,
        # whose threads cost more than they save.
        rows = np.empty((_PART, meanings.shape[1]), dtype=np.float32)
        for start in range(0, len(places), _PART):
            part = places[start : start + _PART]
            taken = np.take(meanings, part, axis=0, out=rows[: len(part)], mode="clip")
            np.einsum("ij,kj->ki", taken, meant, out=cosines[:, start : start + _PART])
        return cosines

    def _places_of(self, numbers: NDArray[np.int64], vectors: WordVectors) -> Ints | None:
        """Return the rows of the cached vectors of surfaces; what is missing is computed."""
        import numpy as np

        if len(self._place) < len(self.spelled):
            enlarged = np.full(len(self.spelled), -1, dtype=np.int64)
            enlarged[: len(self._place)] = self._place
            self._place = enlarged
        missing = numbers[self._place[numbers] < 0]
        if len(self._meanings) + len(missing) > _MEANINGS:
            self._place[:] = -1
            self._meanings = self._meanings[:0]
            missing = numbers
        if len(missing):
            new_vectors = vectors([self.spelled[number] for number in missing.tolist()])
            if new_vectors is None:
                return None
            first = len(self._meanings)
            self._meanings = np.concatenate([self._meanings, new_vectors]) if first else new_vectors
            self._place[missing] = np.arange(first, first + len(missing))
        return self._place[numbers]

    def related(self, words: Sequence[str], language: str) -> dict[str, frozenset[str]]:
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
        """The approximate size: of strings, tables of numbers, and cached vectors of words."""
        roots_of_languages = sum(len(by_root) for _, by_root in list(self._roots.values()))
        words = _STRING * (len(self.surfaces) + len(self.terms)) + _ROOT * roots_of_languages
        return words + self._meanings.nbytes

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
