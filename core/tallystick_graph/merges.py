"""Merges: the names that stand for other entities, with what tells it; and two that a person keeps
apart, whatever a text tells later.
"""

from __future__ import annotations

from tallystick.access import visible_docs
from tallystick.errors import InvalidInput, NotFound
from tallystick.memory import MemoryContext
from tallystick.memory.change import require_reason
from tallystick.memory.memory_write import MemoryWrite
from tallystick.records import Actor, Scope
from tallystick.records.graph import EntityAlias
from tallystick.storage import Connection
from tallystick.storage.engine.writes import Writes
from tallystick.storage.index import graph
from tallystick.storage.rows import edges, memories, scopes
from tallystick_graph.name_forms import normal_name
from tallystick_graph.reading import part_alias


def list_aliases(context: MemoryContext, actor: Actor, scope: Scope) -> list[EntityAlias]:
    """Return the names of a scope that stand for other entities, in their order, each with the
    memories whose texts tell it, as far as the actor may read them. Raises Denied.
    """
    context.gate.require(actor, "read", scope)
    with context.store.database.read() as connection:
        if not context.gate.decide(connection, actor, "read", scope).allowed:
            return []
        ids = [row.id for row in scopes.find(connection, [scope])]
        docs = [name.doc for name in graph.names_in(connection, ids)]
        links = edges.leaving(connection, "DUPLICATE_OF", docs, most=None) if docs else []
        ends = memories.get_docs(connection, {doc for link in links for doc in _ends(link)})
        told = memories.get_many(connection, {each for link in links for each in link.evidence})
        readable = [
            each
            for each in told
            if context.gate.decide(connection, actor, "read", each.memory.scope).allowed
        ]
        shown = visible_docs(connection, context.gate, actor, readable, context.store.clock.now())
        evidence = {each.memory.id for each in readable if each.doc in shown}
    context.gate.log_read(actor, "list", [scope], results=len(links))
    return [
        EntityAlias(
            alias_id=link.from_id,
            alias=ends[link.from_doc].memory.content,
            entity_id=link.to_id,
            entity=ends[link.to_doc].memory.content,
            reason=link.reason or "",
            evidence=tuple(each for each in link.evidence if each in evidence),
        )
        for link in links
    ]


def _ends(link: edges.EdgeRow) -> tuple[int, int]:
    return link.from_doc, link.to_doc


def keep_apart(
    context: MemoryContext,
    actor: Actor,
    scope: Scope,
    first: str,
    second: str,
    *,
    reason: str,
    correlation_id: str | None,
) -> None:
    """Part two names of a scope, and forbid that they are taken for one entity: both ways. Raises
    Denied, InvalidInput, and NotFound for a name that the graph of the scope does not have.
    """
    require_reason(reason)
    names = [normal_name(each) for each in (first, second)]
    if names[0] == names[1]:
        raise InvalidInput("Name two names to keep apart.", argument="other")

    def unit(tx: Connection) -> None:
        context.gate.confirm(tx, actor, "correct", scope)
        [row] = scopes.find(tx, [scope]) or [scopes.ensure(tx, scope)]
        known = {name.name: name.doc for name in graph.names_in(tx, [row.id])}
        if missing := [each for each in names if each not in known]:
            raise NotFound(f"The graph of {scope} has no name {missing[0]!a}.")
        write = MemoryWrite(tx, context, actor, context.store.clock.now(), correlation_id)
        docs = [known[each] for each in names]
        stored = memories.get_docs(tx, docs)
        # Two names of a third one are one entity too: each of them leaves it.
        ends = edges.follow_to_end(tx, "DUPLICATE_OF", docs, forward=True)
        if len({ends.get(doc, doc) for doc in docs}) == 1:
            for doc in ends:
                part_alias(write, stored[doc])
        for part, whole in (docs, docs[::-1]):
            if not edges.was_linked(tx, "DUPLICATE_OF", part, whole):
                # A closed edge is what forbids it: it says that somebody parted the two.
                _add_closed(write, row.id, part, whole, reason)
            details = {
                "version": memories.get_docs(tx, [part])[part].memory.version,
                "kept_apart_from": stored[whole].memory.id,
            }
            write.journal_event(
                scope, "graph.kept_apart", stored[part].memory.id, details, reason=reason
            )

    with context.gate.journaling(actor):
        context.store.database.write_mostly(unit, name="apply.keep_apart", writes=Writes.of(scope))


def _add_closed(write: MemoryWrite, scope_id: int, part: int, whole: int, reason: str) -> None:
    edge_id = write.context.store.ids.new()
    edges.add(
        write.tx,
        edge_id=edge_id,
        kind="DUPLICATE_OF",
        scope_id=scope_id,
        from_doc=part,
        to_doc=whole,
        at=write.now,
        reason=reason,
    )
    edges.close(write.tx, [edge_id], at=write.now)
