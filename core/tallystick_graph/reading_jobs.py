"""Reading jobs: read the names in the memories of a scope into its graph, page by page."""

from __future__ import annotations

from collections.abc import Sequence

from tallystick.errors import MissingExtra
from tallystick.jobs.runner import Ended, Work, enqueue_in_scope
from tallystick.logs import get_logger
from tallystick.memory import MemoryContext
from tallystick.memory.memory_write import MemoryWrite
from tallystick.storage import Connection
from tallystick.storage.engine.writes import Writes
from tallystick.storage.index import graph
from tallystick.storage.index.marks import Mark, keep_marks, lags_of
from tallystick.storage.rows import job_list, jobs
from tallystick.storage.rows.jobs import TALLY_ACTOR
from tallystick_graph.communities import divide, read_division
from tallystick_graph.mentions import READ, SUMMARIZE, graph_subject
from tallystick_graph.reading import ReadPage, link_page, read_page

_PAGE = 100
_LEASE_SECONDS = 120


class GraphHandler:
    """Carries out the jobs of the kind `READ`: what the graph has not read of one scope."""

    kind = READ
    batch = 1
    lease_seconds = _LEASE_SECONDS
    is_upkeep = True
    changes_memory = True
    is_autonomous = True

    def __init__(self, context: MemoryContext) -> None:
        self._context = context

    def handle(self, work: Work) -> int:
        """Read page by page, each in a commit of its own, until nothing is unread; return how many
        vectors of names were made. A graph that was turned off since reads nothing more. Raises
        LeaseLost.
        """
        [job] = work.jobs
        texts = mentions = vectors = 0
        while not work.is_stopping:
            page = self._next_page(job)
            if page is None:
                self._divide(work, job)
                if self._end(work, job, texts, mentions):
                    break
                continue
            mentions += self._commit_page(work, job, page)
            texts, vectors = texts + len(page.texts), vectors + len(page.vectors)
            work.note_progress(job, texts)
        return vectors

    def _next_page(self, job: jobs.LeasedJob) -> ReadPage | None:
        assert job.scope_id is not None
        if not self._context.settings.graph:
            return None
        return read_page(self._context, job.scope_id, limit=_PAGE)

    def _commit_page(self, work: Work, job: jobs.LeasedJob, page: ReadPage) -> int:
        mentions = 0

        def unit(tx: Connection, allowed: Sequence[jobs.LeasedJob]) -> dict[str, Ended]:
            nonlocal mentions
            now = self._context.store.clock.now()
            mentions = link_page(MemoryWrite(tx, self._context, TALLY_ACTOR, now, job.id), page)
            return {}

        work.commit(unit)
        return mentions

    def _divide(self, work: Work, job: jobs.LeasedJob) -> None:
        """Divide the scope into communities anew, where enough of it is new and the extra `graph`
        is installed.
        """
        assert job.scope_id is not None
        if not self._context.settings.graph:
            return
        try:
            division = read_division(self._context, job.scope_id)
        except MissingExtra as error:
            get_logger("jobs").info("communities_not_made", reason=str(error))
            return
        if division is None:
            return

        def unit(tx: Connection, allowed: Sequence[jobs.LeasedJob]) -> dict[str, Ended]:
            now = self._context.store.clock.now()
            divide(tx, division, at=now)
            if self._context.models.summarizer is not None:
                jobs.start_again(tx, SUMMARIZE, job.subject_id)
            return {}

        work.commit(unit)

    def _end(self, work: Work, job: jobs.LeasedJob, texts: int, mentions: int) -> bool:
        """End the job, unless something was written since the last page: that found the job under
        way, and enqueued none.
        """
        is_over = True

        def unit(tx: Connection, allowed: Sequence[jobs.LeasedJob]) -> dict[str, Ended]:
            nonlocal is_over
            assert job.scope_id is not None
            lag = lags_of(tx, graph.NAME, [job.scope_id]).get(job.scope_id)
            if lag is not None and self._context.settings.graph:
                is_over = not graph.unread(tx, job.scope_id, lag.mark, limit=1)
            if not is_over:
                return {}
            return {job.id: Ended("done" if texts else "empty", result={"mentions": mentions})}

        work.commit(unit)
        return is_over


def enqueue_unread(context: MemoryContext) -> int:
    """Enqueue a job for each scope with memories that the graph has not read, where it is on;
    return the number of scopes. A scope whose job failed is left alone until somebody requeues it.
    """
    store = context.store
    if not context.settings.graph:
        return 0
    with store.database.read() as connection:
        lags = lags_of(connection, graph.NAME)
        unread = [each for each in lags if graph.unread(connection, each, lags[each].mark, limit=1)]
        waiting = job_list.open_subjects(connection, READ) if unread else set()
    if passed := {each: Mark.at(lags[each].revision) for each in lags if each not in unread}:
        store.database.write(
            lambda tx: keep_marks(tx, graph.NAME, passed),
            name="graph.passed",
            writes=Writes.of(graph.NAME),
        )
    missing = [scope_id for scope_id in unread if graph_subject(scope_id) not in waiting]
    for scope_id in missing:
        enqueue_in_scope(store, READ, graph_subject(scope_id), scope_id)
    return len(missing)
