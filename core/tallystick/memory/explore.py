"""Explore: look around without a query. From scopes to their memories, from a memory to those that
are linked with it.

Policy chooses the scopes before anything is read, and is asked again for each memory before it is
shown. What the first questions of a person need is read before they ask.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from functools import cache
from typing import NamedTuple

from tallystick.access import visible_docs
from tallystick.errors import Denied, InvalidScope
from tallystick.memory.context import MemoryContext, labels_of_memory
from tallystick.memory.labels import require_known_labels
from tallystick.memory.read import preview_of
from tallystick.memory.recall import recall
from tallystick.policy import PolicyState, decide
from tallystick.records import (
    Actor,
    EdgeKind,
    Explored,
    ExploredLink,
    ExploredMemory,
    ExploredScope,
    LinkCount,
    Memory,
    MemoryState,
    ReasonCode,
    Scope,
)
from tallystick.storage import Connection
from tallystick.storage.index import search
from tallystick.storage.rows import edges, memories, scopes, spaces

_MOST = 120
"""Characters of a text that are shown."""
_SCOPE_LINKS = 10_000
"""Memories of a scope that links of one kind leave, which a filter looks at."""
_FAN = 200
"""Links of one memory that are followed."""


class ExploreFilter(NamedTuple):
    """What is explored is narrowed to; empty lets everything pass."""

    kinds: tuple[str, ...] = ()
    status: str | None = None
    links: tuple[EdgeKind, ...] = ()
    """Links of these kinds are followed."""


def explore(
    context: MemoryContext,
    actor: Actor,
    around: str | Scope | None,
    *,
    depth: int = 1,
    limit: int = 50,
    before: str | None = None,
    states: Sequence[MemoryState] = ("active",),
    only: ExploreFilter = ExploreFilter(),  # noqa: B008 # a tuple of nothing, which nobody changes
    logged: bool = True,
) -> Explored:
    """Return the scopes that `actor` may look into; a scope with its memories, newest first; or a
    memory with those that are linked with it; `only` what passes filters.

    Raises Denied for a scope, NotFound for a memory alike where it is hidden and where it is
    absent, InvalidInput.
    """
    scope = scope_around(actor, around)
    if scope is not None:
        context.gate.require(actor, "read", scope)
    with context.store.database.read() as connection:
        if around is None:
            explored = _scopes(connection, context, actor)
        elif scope is not None:
            explored = _in_scope(connection, context, actor, scope, limit, before, states, only)
        else:
            explored = _around(connection, context, actor, str(around), depth, limit, only)
    if only.status is not None and len(explored.memories) <= (scope is None):
        places = [view.scope for view in explored.memories] if scope is None else [scope]
        require_known_labels(context, actor, places, {"status": only.status})
    if not logged:
        return explored
    scopes_read = {place.scope for place in explored.scopes}
    scopes_read |= {view.scope for view in explored.memories}
    context.gate.log_read(
        actor,
        "explore",
        sorted(scopes_read, key=str),
        results=len(explored.memories) or len(explored.scopes),
    )
    return explored


def scope_around(actor: Actor, around: str | Scope | None) -> Scope | None:
    """Return the scope that is named, or None where a memory is."""
    if around is None or isinstance(around, Scope):
        return around
    try:
        return actor.home(around)
    except InvalidScope:
        return None


def _scopes(connection: Connection, context: MemoryContext, actor: Actor) -> Explored:
    """Return the scopes that were written to or have a space, where the actor may read or inspect,
    with their counts.
    """
    stored = {space.scope: space for space in spaces.all_spaces(connection)}
    every = sorted({*scopes.all_scopes(connection), *stored}, key=str)
    state = PolicyState(stored, context.store.clock.now())
    readable_scopes = []
    for scope in every:
        read = decide(actor, "read", scope, state)
        inspects = decide(actor, "inspect", scope, state).allowed
        if read.allowed or inspects:
            name = stored[scope].name if scope in stored and inspects else None
            readable_scopes.append(
                _counted_scope(
                    connection, scope, read.reason, readable=read.allowed, whole=inspects, name=name
                )
            )
    return Explored(scopes=tuple(readable_scopes))


def _counted_scope(
    connection: Connection,
    scope: Scope,
    reason: ReasonCode,
    *,
    readable: bool,
    whole: bool,
    name: str | None,
) -> ExploredScope:
    """Return a scope with its memories counted; those that recall never gives are counted only for
    actors who may inspect (`whole`).
    """
    ids = [row.id for row in scopes.find(connection, [scope])]
    states = memories.state_counts(connection, ids)
    if not whole:
        states = {state: count for state, count in states.items() if state == "active"}
    kinds = memories.active_kinds(connection, ids)
    return ExploredScope(
        scope=scope,
        name=name,
        readable=readable,
        access_reason=reason,
        states=dict(sorted(states.items())),
        kinds=dict(sorted(kinds.items())),
    )


def _in_scope(
    connection: Connection,
    context: MemoryContext,
    actor: Actor,
    scope: Scope,
    limit: int,
    before: str | None,
    states: Sequence[MemoryState],
    only: ExploreFilter,
) -> Explored:
    decision = context.gate.decide(connection, actor, "read", scope)
    if not decision.allowed:
        raise Denied(decision)
    ids = [row.id for row in scopes.find(connection, [scope])]
    doc = None if before is None else context.visible(connection, actor, before, "read").doc
    only_docs: set[int] | None = None
    if only.status is not None:
        only_docs = search.find_labelled(connection, ids, {"status": only.status})
    if only.links:
        linked = {
            doc
            for kind in only.links
            for doc in edges.with_kind(connection, kind, ids, most=_SCOPE_LINKS)
        }
        only_docs = linked if only_docs is None else only_docs & linked
    page = memories.latest(
        connection,
        ids,
        kinds=only.kinds,
        states=states,
        limit=limit + 1,
        before_doc=doc,
        only_docs=only_docs,
    )
    whole = context.gate.decide(connection, actor, "inspect", scope).allowed
    place = _counted_scope(
        connection, scope, decision.reason, readable=True, whole=whole, name=None
    )
    return Explored(
        around=str(scope),
        scopes=(place,),
        more=len(page) > limit,
        memories=memory_views(connection, context, actor, page[:limit], {}),
    )


def _around(
    connection: Connection,
    context: MemoryContext,
    actor: Actor,
    memory_id: str,
    depth: int,
    limit: int,
    only: ExploreFilter,
) -> Explored:
    may_read, now = _may_read(connection, context, actor), context.store.clock.now()
    first = context.visible(connection, actor, memory_id, "read")
    reached = {first.doc: first}
    distance = {first.doc: 0}
    links: dict[tuple[str, str, str], ExploredLink] = {}
    hidden: set[int] = set()
    more = False
    ahead = [first.doc]
    for level in range(1, depth + 1):
        around = [
            edge
            for edge in edges.touching(connection, ahead, most=_FAN * len(ahead))
            if not only.links or edge.kind in only.links
        ]
        linked = memories.get_docs(connection, _ends(around) - set(reached))
        readable = {doc: other for doc, other in linked.items() if may_read(other.memory.scope)}
        hidden |= set(linked) - set(readable)
        # What was forgotten or hidden is no way on, and its id is not named.
        shown = visible_docs(connection, context.gate, actor, readable.values(), now)
        readable = {
            doc: other
            for doc, other in readable.items()
            if doc in shown and _passes(other.memory, only)
        }
        ahead = []
        for doc, other in sorted(readable.items()):
            if len(reached) > limit:
                more = True
                break
            reached[doc], distance[doc] = other, level
            ahead.append(doc)
        for edge in around:
            if edge.from_doc in reached and edge.to_doc in reached:
                link = ExploredLink(kind=edge.kind, from_id=edge.from_id, to_id=edge.to_id)
                links[link.kind, link.from_id, link.to_id] = link
    ordered = sorted(reached.values(), key=lambda stored: (distance[stored.doc], stored.doc))
    return Explored(
        around=memory_id,
        memories=memory_views(connection, context, actor, ordered, distance),
        links=tuple(links.values()),
        elsewhere=len(hidden),
        more=more,
    )


def _passes(memory: Memory, only: ExploreFilter) -> bool:
    labels = dict(labels_of_memory(memory))
    return (not only.kinds or memory.kind in only.kinds) and (
        only.status is None or labels.get("status") == only.status
    )


def _may_read(
    connection: Connection, context: MemoryContext, actor: Actor
) -> Callable[[Scope], bool]:
    """Return the decision to read a scope, by this snapshot; each scope is decided once."""
    return cache(lambda scope: context.gate.decide(connection, actor, "read", scope).allowed)


def _ends(around: Sequence[edges.EdgeRow]) -> set[int]:
    return {end for edge in around for end in (edge.from_doc, edge.to_doc)}


def memory_views(
    connection: Connection,
    context: MemoryContext,
    actor: Actor,
    page: Sequence[memories.Stored],
    distance: dict[int, int],
) -> tuple[ExploredMemory, ...]:
    """Return the view of each memory, policy asked once more; those that may not be read are left
    out.
    """
    may_read = _may_read(connection, context, actor)
    page = [stored for stored in page if may_read(stored.memory.scope)]
    visible = visible_docs(connection, context.gate, actor, page, context.store.clock.now())
    around = edges.touching(connection, [stored.doc for stored in page], most=_FAN * len(page))
    linked = memories.get_docs(connection, _ends(around))
    readable = {doc for doc, other in linked.items() if may_read(other.memory.scope)}
    explored = []
    for stored in page:
        memory, readable_text = stored.memory, stored.doc in visible
        counts = Counter(
            (edge.kind, "to" if edge.from_doc == stored.doc else "from")
            for edge in around
            if stored.doc in (edge.from_doc, edge.to_doc)
            and {edge.from_doc, edge.to_doc} <= readable
        )
        explored.append(
            ExploredMemory(
                id=memory.id,
                scope=memory.scope,
                kind=memory.kind,
                state=memory.state,
                version=memory.version,
                pinned=memory.pinned,
                updated_at=memory.updated_at,
                distance=distance.get(stored.doc, 0),
                preview=preview_of(context, memory, most=_MOST) if readable_text else None,
                subject=memory.subject if readable_text else None,
                tags=memory.tags if readable_text else (),
                sources=tuple(source.source_id for source in memory.sources),
                links=tuple(
                    LinkCount.load({"kind": kind, "direction": way, "count": count})
                    for (kind, way), count in sorted(counts.items())
                ),
            )
        )
    return tuple(explored)


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
