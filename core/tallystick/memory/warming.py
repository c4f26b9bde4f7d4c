"""Warming: what the first questions of a person need is read before they ask."""

from __future__ import annotations

from tallystick.memory.context import MemoryContext
from tallystick.memory.explore import explore
from tallystick.memory.recall import recall
from tallystick.records import Actor


def warm(context: MemoryContext, actor: Actor) -> None:
    """Count the scopes that an actor may look into, and recall the newest text of the largest that
    they may read from all of these: indexes are mapped then, and the embedder is loaded.

    Nobody is shown anything, so nothing is logged; nothing is sent to an embedder or a reranker
    elsewhere. Raises StorageError, EmbeddingError.
    """
    places = explore(context, actor, None, logged=False).scopes
    sizes = {place.scope: place.states.get("active", 0) for place in places if place.readable}
    if not any(sizes.values()):
        return
    largest = max(sizes, key=lambda scope: sizes[scope])
    newest = explore(context, actor, largest, limit=1, logged=False).memories
    query = " ".join(view.preview or "" for view in newest)
    if query.strip():
        recall(context.silent(), actor, list(sizes), query, logged=False)
