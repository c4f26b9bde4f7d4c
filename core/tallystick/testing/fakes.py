"""A stepping clock, counting ids, scripted models, a hashing embedder, a word counter."""

from __future__ import annotations

import hashlib
import re
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from tallystick.records import (
        DecisionCandidate,
        ExtractedFact,
        Extraction,
        MemoryDecision,
        ProviderDeclaration,
    )


class StepClock:
    """A clock that moves `step` microseconds at each look, so that a whole recording compares
    exactly.
    """

    def __init__(self, start: int = 1_700_000_000_000_000, *, step: int = 1_000) -> None:
        self._now = start
        self._step = step
        self._guard = threading.Lock()

    def now(self) -> int:
        """Microseconds UTC, later than the time before."""
        with self._guard:
            self._now += self._step
            return self._now

    def advance(self, *, seconds: float = 0, days: float = 0) -> None:
        """Let time pass."""
        with self._guard:
            self._now += int((seconds + days * 86_400) * 1_000_000)


class CountingIds:
    """Ids 1, 2, 3, … with a prefix, zero-padded so that they sort in order."""

    def __init__(self, prefix: str = "id") -> None:
        self._prefix = prefix
        self._count = 0
        self._guard = threading.Lock()

    def new(self) -> str:
        """The next id."""
        with self._guard:
            self._count += 1
            return f"{self._prefix}-{self._count:06}"


class ScriptedCall:
    """A model as `recordings.replay` calls it: returns the answers of a script, and keeps the
    requests it got.
    """

    def __init__(self, answers: Iterable[Any]) -> None:
        self._answers = iter(answers)
        self.requests: list[Any] = []
        """The requests that it got, in order."""

    def __call__(self, request: Any) -> Any:
        """The next answer of the script. Raises StopIteration when it is used up."""
        self.requests.append(request)
        return next(self._answers)


class ScriptedExtractor:
    """An extractor that answers by a script, and keeps the texts it got."""

    def __init__(
        self,
        script: Mapping[str, Extraction] | Callable[[str], Extraction],
        *,
        name: str = "scripted",
        local: bool = True,
    ) -> None:
        """Take the answer for each text, or a function that makes it; a text that a mapping does
        not have gives nothing.
        """
        self._script, self._name, self._local = script, name, local
        self.texts: list[str] = []
        """The texts that it got, in order."""

    @property
    def declaration(self) -> ProviderDeclaration:
        """Its name, and that it is on this machine unless it was made as `local=False`."""
        return _declare(self._name, self._local)

    def extract(self, text: str) -> Extraction:
        """Return the answer of the script."""
        from tallystick.records import Extraction

        self.texts.append(text)
        if isinstance(self._script, Mapping):
            return self._script.get(text, Extraction())
        return self._script(text)


class ScriptedDecider:
    """A decider that answers by a function, and keeps the facts and candidates it got."""

    def __init__(
        self,
        script: Callable[
            [Sequence[ExtractedFact], Sequence[Sequence[DecisionCandidate]]],
            Sequence[MemoryDecision],
        ],
        *,
        name: str = "scripted",
        local: bool = True,
    ) -> None:
        self._script, self._name, self._local = script, name, local
        self.facts: list[ExtractedFact] = []
        self.candidates: list[list[DecisionCandidate]] = []
        """For each of the facts, the memories that it was shown."""

    @property
    def declaration(self) -> ProviderDeclaration:
        """Its name, and that it is on this machine unless it was made as `local=False`."""
        return _declare(self._name, self._local)

    def decide(
        self, facts: Sequence[ExtractedFact], candidates: Sequence[Sequence[DecisionCandidate]]
    ) -> Sequence[MemoryDecision]:
        """Return the answer of the function."""
        self.facts += facts
        self.candidates += [list(choices) for choices in candidates]
        return self._script(facts, candidates)


def _declare(name: str, local: bool) -> ProviderDeclaration:
    from tallystick.records import ProviderDeclaration

    return ProviderDeclaration(name=name, model=f"{name}-1", local=local)


class HashEmbedder:
    """An embedder that needs nothing: words hashed into buckets, unit length; equal words are
    near.
    """

    def __init__(self, dimension: int = 64, *, name: str = "hash", local: bool = True) -> None:
        self._dimension = dimension
        self._name = name
        self.local = local
        """True if it counts as running here; False makes embedding a job, as for a remote one."""
        self.calls = 0
        """The number of its calls."""

    @property
    def fingerprint(self) -> str:
        """Name and dimension."""
        return f"{self._name}:1:{self._dimension}"

    @property
    def dimension(self) -> int:
        """Length of every vector."""
        return self._dimension

    def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Unit vectors, shape (len(texts), dimension); a text without words gives zeros."""
        import numpy as np

        self.calls += 1
        vectors = np.zeros((len(texts), self._dimension), dtype=np.float32)
        for row, text in enumerate(texts):
            for word in re.findall(r"\w+", text.casefold()):
                vectors[
                    row,
                    int.from_bytes(hashlib.blake2b(word.encode(), digest_size=4).digest())
                    % self._dimension,
                ] += 1
        norms = np.linalg.norm(vectors, axis=1, keepdims=True)
        unit: NDArray[np.float32] = (vectors / np.where(norms == 0, 1, norms)).astype(np.float32)
        return unit


class WordCounter:
    """A token counter that counts words: exact by its own measure, and easy to reckon with in a
    test.
    """

    method = "words"
    exact = True

    def count(self, text: str) -> int:
        """Words in `text`."""
        return len(text.split())
