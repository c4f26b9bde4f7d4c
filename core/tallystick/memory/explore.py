"""Explore: look around without a query. From scopes to what stands in them, from a memory to what
hangs on it.

Policy chooses the scopes before anything is looked for, and is asked again for each thing before it
is shown.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from functools import cache

from tallystick.access import shown_to
from tallystick.errors import Denied, InvalidInput, InvalidScope
from tallystick.memory.context import MemoryContext
from tallystick.memory.previews import beginning
from tallystick.memory.read import require_states
from tallystick.policy import PolicyState, decide
from tallystick.records import (
    Actor,
    Explored,
    ExploredLink,
    ExploredMemory,
    ExploredScope,
    LinkCount,
    MemoryState,
    ReasonCode,
    Scope,
)
from tallystick.storage import Connection, edges, memories, scopes, spaces

__all__ = ["explore"]

_MOST = 120
"""Characters of a text that are shown."""
_PAGE = 10_000
_DEEPEST = 2
_FAN = 200
"""Links of one memory that are followed."""


def explore(
    context: MemoryContext,
    actor: Actor,
    around: str | Scope | None,
    *,
    depth: int = 1,
    limit: int = 50,
    before: str | None = None,
    states: Sequence[MemoryState] = ("active",),
) -> Explored:
    """Everything that `actor` may look into; a scope with its memories, newest first; a memory with
    what hangs on it.

    Raises Denied for a scope, NotFound for a memory alike where it is hidden and where it is
    absent, InvalidInput.
    """
    if not 1 <= depth <= _DEEPEST or limit < 1:
        raise InvalidInput(f"`depth` is 1 or {_DEEPEST}, `limit` at least 1.")
    require_states(states)
    limit = min(limit, _PAGE)
    scope = _as_scope(actor, around)
    if scope is not None:
        context.gate.require(actor, "read", scope)
    with context.store.database.read() as connection:
        if around is None:
            found = _scopes(connection, context, actor)
        elif scope is not None:
            found = _in_scope(connection, context, actor, scope, limit, before, states)
        else:
            found = _around(connection, context, actor, str(around), depth, limit)
    looked = {one.scope for one in found.scopes} | {one.scope for one in found.memories}
    seen = sorted(looked, key=str)
    context.gate.log_read(actor, "explore", seen, results=len(found.memories) or len(found.scopes))
    return found


def _as_scope(actor: Actor, around: str | Scope | None) -> Scope | None:
    """The scope that is named, or None where a memory is."""
    if around is None or isinstance(around, Scope):
        return around
    try:
        return actor.home(around)
    except InvalidScope:
        return None


def _scopes(connection: Connection, context: MemoryContext, actor: Actor) -> Explored:
    """The scopes that were written to or have a space, where the actor may read or inspect, with
    what is there.
    """
    stored = {space.scope: space for space in spaces.all_spaces(connection)}
    every = sorted({*scopes.all_scopes(connection), *stored}, key=str)
    state = PolicyState(stored, context.store.clock.now())
    found = []
    for scope in every:
        read = decide(actor, "read", scope, state)
        inspects = decide(actor, "inspect", scope, state).allowed
        if read.allowed or inspects:
            name = stored[scope].name if scope in stored and inspects else None
            found.append(
                _place(
                    connection, scope, read.reason, readable=read.allowed, whole=inspects, name=name
                )
            )
    return Explored(scopes=tuple(found))


def _place(
    connection: Connection,
    scope: Scope,
    reason: ReasonCode,
    *,
    readable: bool,
    whole: bool,
    name: str | None,
) -> ExploredScope:
    """What stands in a scope, counted; what is not recalled there only for who may inspect."""
    states: dict[str, int] = {}
    kinds: dict[str, int] = {}
    for state, kind, count in memories.state_counts(
        connection, [row.id for row in scopes.find(connection, [scope])]
    ):
        if state == "active":
            kinds[kind] = kinds.get(kind, 0) + count
        if whole or state == "active":
            states[state] = states.get(state, 0) + count
    return ExploredScope(
        scope=scope,
        name=name,
        readable=readable,
        reason=reason,
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
) -> Explored:
    decision = context.gate.decide(connection, actor, "read", scope)
    if not decision.allowed:
        raise Denied(decision)
    ids = [row.id for row in scopes.find(connection, [scope])]
    doc = None if before is None else context.visible(connection, actor, before, "read").doc
    page = memories.latest(connection, ids, states=states, limit=limit + 1, before_doc=doc)
    whole = context.gate.decide(connection, actor, "inspect", scope).allowed
    place = _place(connection, scope, decision.reason, readable=True, whole=whole, name=None)
    return Explored(
        around=str(scope),
        scopes=(place,),
        more=len(page) > limit,
        memories=_shown(connection, context, actor, page[:limit], {}),
    )


def _around(
    connection: Connection,
    context: MemoryContext,
    actor: Actor,
    memory_id: str,
    depth: int,
    limit: int,
) -> Explored:
    may_read = _reading(connection, context, actor)
    first = context.visible(connection, actor, memory_id, "read")
    known = {first.doc: first}
    distance = {first.doc: 0}
    links: dict[tuple[str, str, str], ExploredLink] = {}
    hidden: set[int] = set()
    more = False
    ahead = [first.doc]
    for level in range(1, depth + 1):
        around = edges.touching(connection, ahead, most=_FAN * len(ahead))
        others = memories.get_docs(connection, _ends(around) - set(known))
        readable = {doc: other for doc, other in others.items() if may_read(other.memory.scope)}
        hidden |= set(others) - set(readable)
        ahead = []
        for doc, other in sorted(readable.items()):
            if len(known) > limit:
                more = True
                break
            known[doc], distance[doc] = other, level
            ahead.append(doc)
        for one in around:
            if one.from_doc in known and one.to_doc in known:
                link = ExploredLink(kind=one.kind, from_id=one.from_id, to_id=one.to_id)
                links[link.kind, link.from_id, link.to_id] = link
    ordered = sorted(known.values(), key=lambda one: (distance[one.doc], one.doc))
    return Explored(
        around=memory_id,
        memories=_shown(connection, context, actor, ordered, distance),
        links=tuple(links.values()),
        elsewhere=len(hidden),
        more=more,
    )


def _reading(
    connection: Connection, context: MemoryContext, actor: Actor
) -> Callable[[Scope], bool]:
    """Whether the actor may read a scope by what this snapshot sees; each scope is decided once."""
    return cache(lambda scope: context.gate.decide(connection, actor, "read", scope).allowed)


def _ends(around: Sequence[edges.EdgeRow]) -> set[int]:
    return {end for one in around for end in (one.from_doc, one.to_doc)}


def _shown(
    connection: Connection,
    context: MemoryContext,
    actor: Actor,
    page: Sequence[memories.Stored],
    distance: dict[int, int],
) -> tuple[ExploredMemory, ...]:
    """What may be told of each, policy asked once more; those that may not be read are left out."""
    may_read = _reading(connection, context, actor)
    page = [one for one in page if may_read(one.memory.scope)]
    shown = shown_to(connection, context.gate, actor, page, context.store.clock.now())
    around = edges.touching(connection, [one.doc for one in page], most=_FAN * len(page))
    others = memories.get_docs(connection, _ends(around))
    readable = {doc for doc, other in others.items() if may_read(other.memory.scope)}
    found = []
    for one in page:
        memory, says = one.memory, one.doc in shown
        counts = Counter(
            (edge.kind, "to" if edge.from_doc == one.doc else "from")
            for edge in around
            if one.doc in (edge.from_doc, edge.to_doc) and {edge.from_doc, edge.to_doc} <= readable
        )
        found.append(
            ExploredMemory(
                memory_id=memory.id,
                scope=memory.scope,
                kind=memory.kind,
                state=memory.state,
                version=memory.version,
                pinned=memory.pinned,
                updated_at=memory.updated_at,
                distance=distance.get(one.doc, 0),
                preview=beginning(context, memory, most=_MOST) if says else None,
                subject=memory.subject if says else None,
                tags=memory.tags if says else (),
                sources=tuple(source.source_id for source in memory.sources),
                links=tuple(
                    LinkCount.load({"kind": kind, "direction": way, "count": count})
                    for (kind, way), count in sorted(counts.items())
                ),
            )
        )
    return tuple(found)
