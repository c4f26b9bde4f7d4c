"""Entity signals: what the graph adds to recall, for a question that names an entity.

One hop: memories that mention an entity of the question, and memories that mention another one of
which texts say how it is related to it. A question without an entity has neither.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from math import log
from typing import TYPE_CHECKING

from tallystick.memory.context import MemoryContext, SignalRequest
from tallystick.storage import Connection
from tallystick.storage.index import graph
from tallystick.storage.rows import edges
from tallystick_graph.name_forms import name_spans

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

_MOST = 8
"""Entities of a question that are followed, those with the longest names."""
_RELATED = 50
"""Entities that are related to those of the question, at most."""


def entity_signals(
    connection: Connection, context: MemoryContext, request: SignalRequest
) -> dict[str, Floats]:
    """Return the signals `mentions` and `related` of these candidates, 0 to 1 in their order: 1 for
    an entity that few of the `texts` mention, near 0 for one that nearly all do. Empty where the
    graph is off, neither has a weight, or the question names no entity.
    """
    weights, texts = request.weights, request.texts
    if not (context.settings.graph and (weights.mentions or weights.related)):
        return {}
    import numpy as np

    ids = request.scope_ids
    if graph.is_empty(connection, ids):
        return {}
    spans = name_spans(request.question)
    names = {
        doc: name
        for scope_id in ids
        for name, doc in graph.find_names(connection, scope_id, spans).items()
    }
    # "Anna Schmidt" is no question about every Schmidt.
    named = [
        doc
        for doc, name in names.items()
        if not any(name != other and f" {name} " in f" {other} " for other in names.values())
    ]
    named.sort(key=lambda doc: (-len(names[doc]), doc))
    if not named:
        return {}
    entities = _forms(connection, named[:_MOST])
    related = {
        end
        for relation in graph.relations_of(connection, entities)
        for end in (relation.from_doc, relation.to_doc)
    } - entities
    values = {
        "mentions": _rarity_of(connection, entities, texts),
        "related": _rarity_of(
            connection, _forms(connection, sorted(related)[:_RELATED]) - entities, texts
        ),
    }
    return {
        name: np.array([by_doc.get(doc, 0.0) for doc in request.docs], dtype=np.float64)
        for name, by_doc in values.items()
    }


def _forms(connection: Connection, docs: Sequence[int]) -> set[int]:
    """Return these entities with the other forms of their names."""
    ends = edges.follow_to_end(connection, "DUPLICATE_OF", docs, forward=True)
    forms = set(docs) | set(ends.values())
    around = edges.touching(connection, sorted(forms), most=_RELATED * max(1, len(forms)))
    return forms | {edge.from_doc for edge in around if edge.kind == "DUPLICATE_OF"}


def _rarity_of(connection: Connection, entities: set[int], texts: int) -> Mapping[int, float]:
    """Return the memories that mention one of these entities, each with how rare the rarest is."""
    if not entities:
        return {}
    by_entity: dict[int, list[int]] = defaultdict(list)
    for doc, entity in graph.mentions(connection, entities):
        by_entity[entity].append(doc)
    rarities: dict[int, float] = {}
    for mentioned in by_entity.values():
        rarity = max(0.0, 1 - log(1 + len(mentioned)) / log(2 + max(texts, len(mentioned))))
        for doc in mentioned:
            rarities[doc] = max(rarities.get(doc, 0.0), rarity)
    return rarities
