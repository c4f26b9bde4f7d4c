"""Dependencies: what must come before a memory, in an order in which each comes after those that it
depends on, with the circles in which no order is possible.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache

from tallystick.access import visible_docs
from tallystick.errors import InvalidScope
from tallystick.memory.context import MemoryContext
from tallystick.memory.explore import memory_views
from tallystick.records import Actor, Explored, ExploredLink, Memory, Scope
from tallystick.storage import Connection
from tallystick.storage.rows import edges, memories, scopes

_FAN = 200
_OVER = ("done", "cancelled")


def dependencies(
    context: MemoryContext, actor: Actor, around: str | Scope, *, limit: int
) -> Explored:
    """Return what a memory depends on, directly and through others, or the dependencies between the
    active memories of a scope. Every link is followed only where the actor may see its end.

    Raises Denied for a scope, NotFound for a memory alike where it is hidden and where it is
    absent, InvalidInput.
    """
    scope = _as_scope(actor, around)
    if scope is not None:
        context.gate.require(actor, "read", scope)
    with context.store.database.read() as connection:
        first = _first(connection, context, actor, around, scope, limit)
        followed = _follow(connection, context, actor, first, limit)
        reached, needs = followed.reached, followed.needs
        if scope is not None:
            # Of a scope only what depends on something, or is depended on.
            linked = {doc for doc in needs if needs[doc]}.union(*needs.values())
            reached = {doc: stored for doc, stored in reached.items() if doc in linked}
            needs = {doc: needs[doc] for doc in reached}
        order, circles = in_order(needs)
        ids = {doc: stored.memory.id for doc, stored in reached.items()}
        views = memory_views(connection, context, actor, [reached[doc] for doc in order], {})
    explored = Explored(
        around=str(around),
        memories=views,
        links=tuple(
            ExploredLink(kind="DEPENDS_ON", from_id=ids[doc], to_id=ids[other])
            for doc in order
            for other in needs[doc]
        ),
        cycles=tuple(tuple(ids[doc] for doc in circle) for circle in circles),
        unfinished=tuple(ids[doc] for doc in order if _is_unfinished(reached[doc].memory)),
        elsewhere=len(followed.elsewhere),
        more=followed.more,
    )
    read = sorted({view.scope for view in views}, key=str)
    context.gate.log_read(actor, "explore", read, results=len(views))
    return explored


@dataclass
class _Followed:
    """The memories that dependencies lead to, and those that each of them needs."""

    reached: dict[int, memories.Stored]
    needs: dict[int, list[int]]
    elsewhere: set[int] = field(default_factory=set)
    """Memories in scopes that the actor may not read."""
    more: bool = False
    """True if the limit left some out."""


def _follow(
    connection: Connection,
    context: MemoryContext,
    actor: Actor,
    first: Mapping[int, memories.Stored],
    limit: int,
) -> _Followed:
    """Follow the dependencies of memories, and of those that they lead to, up to `limit`."""
    may_read = cache(lambda scope: context.gate.decide(connection, actor, "read", scope).allowed)
    followed = _Followed(dict(first), {doc: [] for doc in first})
    ahead = list(first)
    while ahead:
        links = edges.leaving(connection, "DEPENDS_ON", ahead, most=_FAN * len(ahead))
        linked = memories.get_docs(
            connection, {edge.to_doc for edge in links} - set(followed.reached)
        )
        followed.elsewhere |= {
            doc for doc, other in linked.items() if not may_read(other.memory.scope)
        }
        readable = [other for doc, other in linked.items() if doc not in followed.elsewhere]
        now = context.store.clock.now()
        shown = visible_docs(connection, context.gate, actor, readable, now)
        visible = sorted(
            (other for other in readable if other.doc in shown), key=lambda each: each.doc
        )
        room = limit - len(followed.reached)
        followed.more |= len(visible) > room
        ahead = [other.doc for other in visible[: max(0, room)]]
        followed.reached |= {doc: linked[doc] for doc in ahead}
        followed.needs |= {doc: [] for doc in ahead}
        for edge in links:
            if edge.to_doc in followed.reached:
                followed.needs[edge.from_doc].append(edge.to_doc)
    return followed


def _is_unfinished(memory: Memory) -> bool:
    is_work = memory.kind in ("task", "milestone")
    return is_work and memory.attributes.get("status", "todo") not in _OVER


def _as_scope(actor: Actor, around: str | Scope) -> Scope | None:
    if isinstance(around, Scope):
        return around
    try:
        return actor.home(around)
    except InvalidScope:
        return None


def _first(
    connection: Connection,
    context: MemoryContext,
    actor: Actor,
    around: str | Scope,
    scope: Scope | None,
    limit: int,
) -> dict[int, memories.Stored]:
    if scope is None:
        stored = context.visible(connection, actor, str(around), "read")
        now = context.store.clock.now()
        if not visible_docs(connection, context.gate, actor, [stored], now):
            raise context.absent(actor, str(around))
        return {stored.doc: stored}
    ids = [row.id for row in scopes.find(connection, [scope])]
    docs = edges.with_kind(connection, "DEPENDS_ON", ids, most=limit)
    return {
        doc: stored
        for doc, stored in memories.get_docs(connection, docs).items()
        if stored.memory.state == "active"
    }


def in_order(needs: Mapping[int, Sequence[int]]) -> tuple[list[int], list[tuple[int, ...]]]:
    """Return the keys of `needs`, each after those that it needs, and the circles among them.

    It is Tarjan's order of strongly connected components: members of a circle stand together, by
    number. Pure; equal inputs give equal orders.
    """
    index: dict[int, int] = {}
    low: dict[int, int] = {}
    stack: list[int] = []
    on_stack: set[int] = set()
    order: list[int] = []
    circles: list[tuple[int, ...]] = []
    for root in sorted(needs):
        if root in index:
            continue
        work = [(root, iter(sorted(needs[root])))]
        index[root] = low[root] = len(index)
        stack.append(root)
        on_stack.add(root)
        while work:
            node, ahead = work[-1]
            following = next((other for other in ahead if other in needs), None)
            if following is None:
                work.pop()
                if work:
                    low[work[-1][0]] = min(low[work[-1][0]], low[node])
                if low[node] == index[node]:
                    circle = stack[stack.index(node) :]
                    del stack[stack.index(node) :]
                    on_stack -= set(circle)
                    order += sorted(circle)
                    if len(circle) > 1 or node in needs[node]:
                        circles.append(tuple(sorted(circle)))
            elif following not in index:
                index[following] = low[following] = len(index)
                stack.append(following)
                on_stack.add(following)
                work.append((following, iter(sorted(needs[following]))))
            elif following in on_stack:
                low[node] = min(low[node], index[following])
    return order, circles
