"""A stepping clock, counting ids, scripted models, a hashing embedder, a word counter."""

from __future__ import annotations

import hashlib
import re
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from tallystick.records import (
        ExtractedFact,
        Extraction,
        KnownFact,
        LearningRequest,
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


class ScriptedLearner:
    """A learner that answers by a script, and keeps the requests it got."""

    def __init__(
        self,
        script: Mapping[str, Extraction] | Callable[[str], Extraction] = MappingProxyType({}),
        change: Callable[[ExtractedFact, Sequence[KnownFact]], ExtractedFact | None] | None = None,
        *,
        name: str = "scripted",
        local: bool = True,
    ) -> None:
        """Take the answer for the text of each turn, or a function that makes it; a text that a
        mapping does not have gives nothing. `change` returns each fact with what it does to one of
        the known facts, or None to leave it out. A fact without a span has that of its whole text.
        """
        self._script, self._change, self._name, self._local = script, change, name, local
        self.requests: list[LearningRequest] = []
        """The requests that it got, in order."""

    @property
    def texts(self) -> list[str]:
        """The new turns that it got, in order."""
        return [turn.text for request in self.requests for turn in request.new_turns]

    @property
    def declaration(self) -> ProviderDeclaration:
        """Its name, and that it is on this machine unless it was made as `local=False`."""
        from tallystick.records import ProviderDeclaration

        return ProviderDeclaration(name=self._name, model=f"{self._name}-1", local=self._local)

    def learn(self, request: LearningRequest) -> Extraction:
        """Return the answers of the script for the new turns, as one."""
        from tallystick.records import Extraction

        self.requests.append(request)
        drawn = [(turn, self._read(turn.text)) for turn in request.new_turns]
        facts = []
        for turn, extraction in drawn:
            for fact in extraction.facts:
                said = fact.model_copy(update={"turn": turn.id, "span": fact.span or turn.text})
                changed = said if self._change is None else self._change(said, request.known)
                facts += [] if changed is None else [changed]
        return Extraction(
            facts=tuple(facts),
            entities=tuple(each for _, one in drawn for each in one.entities),
            relations=tuple(each for _, one in drawn for each in one.relations),
            warnings=tuple(each for _, one in drawn for each in one.warnings),
        )

    def _read(self, text: str) -> Extraction:
        from tallystick.records import Extraction

        if isinstance(self._script, Mapping):
            return self._script.get(text, Extraction())
        return self._script(text)


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
