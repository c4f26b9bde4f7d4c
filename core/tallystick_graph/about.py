"""Everything about a name: the memories that mention an entity, what they say of it and others, and
what they mention along with it.

Every hop is asked of policy and state again: what is forgotten, hidden or of another scope is no
way on.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tallystick.access import visible_docs
from tallystick.errors import InvalidInput, NotFound
from tallystick.memory import MemoryContext
from tallystick.memory.explore import memory_views
from tallystick.ranking import cosines, from_float16_bytes
from tallystick.records import (
    Actor,
    Explored,
    ExploredLink,
    ExploredRelation,
    Scope,
    is_storable,
)
from tallystick.storage import Connection
from tallystick.storage.index import graph
from tallystick.storage.rows import edges, memories, scopes
from tallystick_graph.aliases import alias_of
from tallystick_graph.name_forms import normal_name

_NEAR = 0.8
"""The cosine of two names from which on one is taken for the other, where none is spelled alike."""


def about(
    context: MemoryContext,
    actor: Actor,
    scope: Scope,
    around: str | Scope | None,
    depth: int,
    limit: int,
) -> Explored:
    """Return everything about the entity that `around` names, by its name or its id: the entity and
    its other names, then what mentions it, newest first; from depth 2 on what is mentioned along
    with it, and from depth 3 the memories that mention that.

    Raises Denied, InvalidInput, and NotFound for a name that the graph of the scope does not have.
    """
    if not isinstance(around, str) or not around.strip():
        raise InvalidInput(
            "The mode about takes a name, or the id of an entity, as `around`.", argument="around"
        )
    context.gate.require(actor, "read", scope)
    normal = normal_name(around)
    [vector] = context.vectors_for([normal]).blobs
    with context.store.database.read() as connection:
        if not context.gate.decide(connection, actor, "read", scope).allowed:
            raise NotFound(_nothing(around, scope))
        ids = [row.id for row in scopes.find(connection, [scope])]
        walk = Walk(connection, context, actor, ids, limit)
        entities = walk.find_entity(around, normal, vector)
        if not entities:
            raise NotFound(_nothing(around, scope))
        explored = walk.from_entities(entities, depth)
    context.gate.log_read(actor, "explore", [scope], results=len(explored.memories))
    return explored.model_copy(update={"around": around})


def _nothing(around: str, scope: Scope) -> str:
    return (
        f"The graph of {scope} has nothing by the name {around[:80]!a}. It is read once the "
        "setting `graph` is on: `recall` finds memories without it."
    )


class Walk:
    """A walk through the graph of some scopes, by one snapshot."""

    def __init__(
        self,
        connection: Connection,
        context: MemoryContext,
        actor: Actor,
        scope_ids: Sequence[int],
        limit: int,
    ) -> None:
        self._connection, self._context, self._actor = connection, context, actor
        self._scope_ids, self._limit = set(scope_ids), limit
        self._reached: dict[int, memories.Stored] = {}
        self._distance: dict[int, int] = {}
        self._more = False

    def find_entity(self, around: str, normal: str, vector: bytes | None) -> list[int]:
        """Return the entity with this id or name, the main form first, with its other forms."""
        doc = self._by_id(around)
        names = {name.name: name for name in graph.names_in(self._connection, self._scope_ids)}
        if doc is None and normal in names:
            doc = names[normal].doc
        if doc is None:
            candidates = [(name.name, name.type) for name in names.values()]
            threshold = self._context.settings.graph_alias_threshold
            alias = alias_of(normal, "name", candidates, threshold=threshold)
            doc = None if alias is None else names[alias.name].doc
        if doc is None and vector is not None:
            doc = self._nearest(vector, list(names.values()))
        return [] if doc is None else self._forms(doc)

    def _by_id(self, text: str) -> int | None:
        stored = memories.get(self._connection, text) if is_storable(text) else None
        if stored is None or stored.scope_id not in self._scope_ids:
            return None
        return stored.doc if stored.memory.kind == "entity" else None

    def _nearest(self, vector: bytes, names: Sequence[graph.EntityName]) -> int | None:
        import numpy as np

        fingerprint, size = self._context.embedder.fingerprint, len(vector)
        fitting = [
            name
            for name in names
            if name.fingerprint == fingerprint
            and name.vector is not None
            and len(name.vector) == size
        ]
        if not fitting:
            return None
        query_vector = from_float16_bytes([vector])[0]
        matrix = from_float16_bytes([name.vector or b"" for name in fitting])
        near = cosines(query_vector, matrix)
        best = int(np.argmax(near))
        return fitting[best].doc if float(near[best]) >= _NEAR else None

    def _forms(self, doc: int) -> list[int]:
        """Return the entity that a name stands for, and the names that stand for it."""
        ends = edges.follow_to_end(self._connection, "DUPLICATE_OF", [doc], forward=True)
        main = ends.get(doc, doc)
        if not self._find_visible([main]):
            main = doc
        forms, ahead = [main], [main]
        while ahead:
            links = edges.touching(self._connection, ahead, most=self._limit)
            ahead = [
                edge.from_doc
                for edge in links
                if edge.kind == "DUPLICATE_OF"
                and edge.to_doc in ahead
                and edge.from_doc not in forms
            ]
            forms += ahead
        return list(self._find_visible(dict.fromkeys(forms)))

    def _find_visible(self, docs: Iterable[int]) -> dict[int, memories.Stored]:
        """Return those of these memories that the actor may see, in their order."""
        order = list(docs)
        stored = memories.get_docs(self._connection, order)
        own = [
            stored[doc]
            for doc in order
            if doc in stored and stored[doc].scope_id in self._scope_ids
        ]
        now = self._context.store.clock.now()
        shown = visible_docs(self._connection, self._context.gate, self._actor, own, now)
        return {each.doc: each for each in own if each.doc in shown}

    def _reach(self, docs: Iterable[int], distance: int) -> list[int]:
        """Add what may be seen, as far as the limit allows; return what is new."""
        new = []
        for doc, stored in self._find_visible(
            doc for doc in docs if doc not in self._reached
        ).items():
            if len(self._reached) >= self._limit:
                self._more = True
                break
            self._reached[doc], self._distance[doc] = stored, distance
            new.append(doc)
        return new

    def from_entities(self, entities: Sequence[int], depth: int) -> Explored:
        """Return what is around some entities."""
        connection = self._connection
        ahead = self._reach(entities, 0)
        for distance in range(1, depth + 1):
            if distance % 2:
                mentions = graph.mentions(connection, ahead)
                ahead = self._reach(dict.fromkeys(mention.doc for mention in mentions), distance)
            else:
                along = graph.entities_of(connection, ahead)
                ahead = self._reach(dict.fromkeys(mention.entity for mention in along), distance)
        relations = [
            relation
            for relation in graph.relations_of(connection, entities)
            if self._find_visible(relation.mentions)
        ]
        self._reach([end for each in relations for end in (each.from_doc, each.to_doc)], 1)
        # In the order in which they were reached: of mentions the newest first.
        order = sorted(self._reached, key=lambda doc: (self._distance[doc], self._is_entity(doc)))
        ids = {doc: stored.memory.id for doc, stored in self._reached.items()}
        links = [
            ExploredLink(kind="MENTIONS", from_id=ids[doc], to_id=ids[entity])
            for doc, entity in graph.entities_of(connection, order)
            if entity in ids
        ]
        shown = [self._reached[doc] for doc in order]
        return Explored(
            memories=memory_views(connection, self._context, self._actor, shown, self._distance),
            links=tuple(links),
            relations=tuple(
                ExploredRelation(
                    from_id=ids[relation.from_doc],
                    relation=relation.name,
                    to_id=ids[relation.to_doc],
                    mentions=tuple(
                        stored.memory.id
                        for stored in self._find_visible(relation.mentions).values()
                    ),
                    confidence=relation.confidence,
                )
                for relation in relations
                if relation.from_doc in ids and relation.to_doc in ids
            ),
            more=self._more,
        )

    def _is_entity(self, doc: int) -> bool:
        return self._reached[doc].memory.kind == "entity"
