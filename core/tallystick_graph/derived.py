"""The graph as derived state: how it follows its scopes, is checked and is mended."""

from __future__ import annotations

from tallystick.jobs.derived import MEND, Derived, Progress
from tallystick.records import Actor, Finding
from tallystick.storage import Connection
from tallystick.storage.engine.writes import Writes
from tallystick.storage.index import communities, graph
from tallystick.storage.index.marks import forget_marks
from tallystick.storage.rows import jobs, memories
from tallystick_graph.mentions import SUMMARIZE, graph_subject, remove_orphans, settle
from tallystick_graph.reading_jobs import enqueue_unread


class GraphState(Derived):
    """Entities, what mentions them, and relations: read from texts by jobs, dropped in the
    transaction in which a text goes.
    """

    name = "graph"

    def follow(self) -> int:
        """Enqueue a job for each scope with texts that were not read."""
        return enqueue_unread(self._context)

    def rebuild(self, progress: Progress) -> int:
        """Let all texts be read anew."""
        self._database.write(
            lambda tx: forget_marks(tx, graph.NAME),
            name="graph.new",
            writes=Writes.of(graph.NAME),
        )
        self.follow()
        return 0

    def check(self) -> Finding:
        """Name what is not as it must be: entities that nothing mentions, and the like."""
        with self._database.read() as connection:
            drift, count = graph.drift(connection), graph.count_entities(connection)
        wrong = {
            "entities that nothing mentions": drift.orphans,
            "links that end at no entity of their scope": drift.strays,
            "entities shown though no active memory mentions them": drift.shown,
            "relations that no text says": drift.relations,
            "communities of nothing": drift.communities,
        }
        if problems := [f"{len(some)} {kind}" for kind, some in wrong.items() if some]:
            text = f"{', '.join(problems)}: {MEND}"
            return self._says("problem", text)
        text = f"{count} entities, each with a memory that mentions it" if count else "it is empty"
        return self._says("ok", text)

    def repair(self, actor: Actor) -> Finding:
        """Remove entities, links and relations that nothing bears out, forget entities that no
        active memory mentions, and let the texts be read anew.
        """

        def unit(tx: Connection) -> int:
            write = self._begin_write(tx, actor)
            drift = graph.drift(tx)
            graph.remove_drift(tx, drift)
            # Without the strays others may have nothing left that mentions them.
            orphans = graph.without_mention(tx)
            remove_orphans(write, list(memories.get_docs(tx, orphans).values()))
            settle(write, set(drift.shown) - set(orphans))
            # What the texts say beside that is read anew.
            forget_marks(tx, graph.NAME)
            derived = len(drift.strays) + len(drift.relations) + len(drift.communities)
            return len({*drift.shown, *orphans}) + derived

        count = self._database.write(unit, name="graph.mend")
        text = f"{count} things of the graph were removed or put right"
        return self._says("repaired", text)


class Summaries(Derived):
    """What a model says of communities: written by jobs, dropped in the transaction in which one of
    the memories that it was given changes or goes.
    """

    name = "summaries"

    def check(self) -> Finding:
        """Name summaries of texts that are not there any more."""
        with self._database.read() as connection:
            stale = communities.unfounded_summaries(connection)
        if stale:
            text = f"{len(stale)} summaries were made from texts that are gone: {MEND}"
            return self._says("problem", text)
        return self._says("ok", "every summary is of texts that are active")

    def repair(self, actor: Actor) -> Finding:
        """Remove summaries of texts that are gone, and let the model write them anew."""

        def unit(tx: Connection) -> int:
            stale = memories.get_docs(tx, communities.unfounded_summaries(tx))
            remove_orphans(self._begin_write(tx, actor), list(stale.values()))
            for scope_id in sorted({each.scope_id for each in stale.values()}):
                jobs.start_again(tx, SUMMARIZE, graph_subject(scope_id))
            return len(stale)

        count = self._database.write(unit, name="summaries.mend")
        return self._says("repaired", f"{count} summaries were removed, to be written anew")
