"""Recalled: the answer of recall, its hits in their order, with how they were found."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import overload

from tallystick.costs import Cost
from tallystick.records import Hit
from tallystick.records.escaping import html_of


@dataclass(frozen=True)
class Recalled(Sequence[Hit]):
    """Hits, best first: a sequence of them, with the way in which they were found."""

    hits: tuple[Hit, ...]
    path: str
    """The search by vectors: `exact`, `chroma` or `none`; behind `database, ` where part of the
    scopes' text was read from there, which also has `2000 by signs`: the number of memories that
    the signs of their vectors proposed. Several where scopes were searched in several ways.
    """
    candidates: int
    """The number of memories that were scored."""
    warnings: tuple[str, ...] = ()
    confidence: float = 0.0
    """How likely it is that they answer the query, between 0 and 1; the score of the best."""
    withheld: int = 0
    """The hits that were found and not given, because `only_confident` asked for likely ones."""
    cost: Cost = field(default_factory=Cost, compare=False)
    """What it took to find them, in this process."""

    @property
    def confident(self) -> bool:
        """True if what was found is likely to answer the query. Adapters show nothing else."""
        from tallystick.ranking import CONFIDENT

        return self.confidence >= CONFIDENT

    def __repr__(self) -> str:
        return f"Recalled({list(self.hits)!r}, path={self.path!r}, candidates={self.candidates})"

    def _repr_html_(self) -> str | None:
        """Return the hits for a notebook."""
        return html_of(self)

    def __len__(self) -> int:
        return len(self.hits)

    @overload
    def __getitem__(self, index: int) -> Hit: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[Hit, ...]: ...
    def __getitem__(self, index: int | slice) -> Hit | tuple[Hit, ...]:
        return self.hits[index]

    def __iter__(self) -> Iterator[Hit]:
        return iter(self.hits)


def places_of(hits: Iterable[Hit]) -> Iterator[dict[str, list[int]]]:
    """Yield for each hit its place in a conversation, where it has one: the conversations are
    numbered as they come up, because their ids are texts of others.
    """
    numbers: dict[str, int] = {}
    for hit in hits:
        conversation, position = hit.memory.conversation, hit.memory.position
        if conversation is None or position is None:
            yield {}
        else:
            yield {"turn": [numbers.setdefault(conversation, len(numbers)), position]}
