"""Mending: put right what of the graph is not as it must be. What it needs is in the memories."""

from __future__ import annotations

from tallystick.memory import MemoryContext
from tallystick.memory.memory_write import MemoryWrite
from tallystick.memory.mentions import remove_orphans, settle
from tallystick.records import Actor
from tallystick.storage import Connection, graph, memories


def mend_graph(context: MemoryContext, actor: Actor) -> int:
    """Remove entities, links and relations that nothing bears out, and forget entities that no
    active memory mentions; return their number.
    """

    def unit(tx: Connection) -> int:
        write = MemoryWrite(tx, context, actor, context.store.clock.now(), None)
        drift = graph.drift(tx)
        graph.remove_drift(tx, drift)
        # Without the strays others may have nothing left that mentions them.
        orphans = graph.without_mention(tx)
        remove_orphans(write, list(memories.get_docs(tx, orphans).values()))
        settle(write, set(drift.shown) - set(orphans))
        derived = len(drift.strays) + len(drift.relations) + len(drift.communities)
        return len({*drift.shown, *orphans}) + derived

    return context.store.database.write(unit, name="graph.mend")
