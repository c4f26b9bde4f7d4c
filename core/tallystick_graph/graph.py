"""Graph: everything about a name, the names of one entity, and the communities of the names that
memories mention.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from tallystick.records import Explored, Limit, Words, checked_arguments
from tallystick.records.arguments import Reason
from tallystick.records.graph import EntityAlias
from tallystick.records.memory import ScopeName
from tallystick.tally.daily_verbs import explore
from tallystick.tally.memory_view import Part
from tallystick.tally.served_verbs import AsyncFace, Offered
from tallystick_graph.merges import keep_apart, list_aliases

Depth = Annotated[int, Field(ge=1, le=3)]


@checked_arguments
class Graph(Part):
    """The entities that memories mention: `Graph(bound)`. Surfaces offer `about` and `communities`
    as modes of `explore`.
    """

    @property
    def aio(self) -> AsyncGraph:
        """The same verbs for `async def` callers, awaited."""
        return AsyncGraph(self)

    def about(self, around: str, *, depth: Depth = 1, limit: Limit = 50) -> Explored:
        """Return everything about a name, or an entity's id: what mentions it, what is said of it,
        and from a depth of 2 what is mentioned along with it. Raises Denied, NotFound,
        InvalidInput.
        """
        return explore(self._view, around, mode="about", depth=depth, limit=limit)

    def communities(
        self, around: ScopeName | None = None, *, depth: Depth = 1, limit: Limit = 50
    ) -> Explored:
        """Return the groups of entities that memories mention together, in `depth` levels: those of
        a scope, or those that a name or words are about. Raises Denied, NotFound, InvalidInput,
        MissingExtra.
        """
        return explore(self._view, around, mode="communities", depth=depth, limit=limit)

    def aliases(self) -> list[EntityAlias]:
        """Return the names of the bound scope that stand for other entities, each with what tells
        it. The correction `restore` of a name parts it again. Raises Denied.
        """
        self._view._admit("read")
        return list_aliases(self._view._services.memory, self._view.actor, self._view.scope)

    def keep_apart(
        self,
        name: Annotated[Words, Field(description="A name.")],
        other: Annotated[Words, Field(description="Another one, which is somebody else's.")],
        *,
        reason: Reason,
    ) -> None:
        """Part two names, and forbid that they are ever taken for one entity. Raises Denied,
        InvalidInput, and NotFound for a name that the graph does not have.
        """
        view = self._view
        with view._observe_call("memory_write", "keep_apart") as call:
            view._admit("modify")
            keep_apart(
                view._services.memory,
                view._traced_actor,
                view.scope,
                name,
                other,
                reason=reason,
                correlation_id=call.correlation_id,
            )
            call.record("memory_write", {"reason": reason}, summary={"names": 2})
        view._wake_worker()


class GraphVerbs:
    """Verbs of `Graph` that are operations."""

    aliases = Offered(Graph.aliases)
    keep_apart = Offered(Graph.keep_apart)


class AsyncGraph(AsyncFace, GraphVerbs):
    """Same as `Graph`, awaited."""
