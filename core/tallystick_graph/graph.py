"""Graph: everything about a name, and the communities of the names that memories mention."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from tallystick.records import Explored, Limit, checked_arguments
from tallystick.records.memory import ScopeName
from tallystick.tally import BoundTally

Depth = Annotated[int, Field(ge=1, le=3)]


@checked_arguments
class Graph:
    """The entities that memories mention: `Graph(bound)`. Surfaces offer both as modes of
    `explore`.
    """

    def __init__(self, bound: BoundTally) -> None:
        self._bound = bound

    def about(self, around: str, *, depth: Depth = 1, limit: Limit = 50) -> Explored:
        """Return everything about a name, or an entity's id: what mentions it, what is said of it,
        and from a depth of 2 what is mentioned along with it. Raises Denied, NotFound,
        InvalidInput.
        """
        return self._bound.explore(around, mode="about", depth=depth, limit=limit)

    def communities(
        self, around: ScopeName | None = None, *, depth: Depth = 1, limit: Limit = 50
    ) -> Explored:
        """Return the groups of entities that memories mention together, in `depth` levels: those of
        a scope, or those that a name or words are about. Raises Denied, NotFound, InvalidInput,
        MissingExtra.
        """
        return self._bound.explore(around, mode="communities", depth=depth, limit=limit)
