"""The bridge: due jobs become workflows of DBOS, which carry them out by the handlers of the tally.

The job in the tally stays what decides: it is committed with the memory that needs it, and its
lease and its authority are looked at in the transaction that stores the result. DBOS says where and
when the work runs, and runs it again where a host dies.
"""

from __future__ import annotations

from collections.abc import Sequence

from dbos import DBOS, Queue, SetWorkflowID

from tallystick import Tally
from tallystick.kit import JobRunning, check_count


class DbosBridge:
    """Hands the jobs of a tally to DBOS.

    Make it before `DBOS.launch()`, with the same name on every host that shall carry out jobs; then
    call `dispatch` now and then, on any of them, from a schedule of DBOS or of your own. Open the
    tally with `background=False` where DBOS alone shall work.
    """

    def __init__(
        self,
        tally: Tally,
        *,
        name: str = "tallystick",
        kinds: Sequence[str] | None = None,
        concurrency: int | None = None,
    ) -> None:
        """Register the workflow, and name the queue, in which at most `concurrency` jobs run at
        once on each host; by default DBOS sets no limit. `kinds` are those that it carries out,
        by default all. Raises InvalidInput.
        """
        if concurrency is not None:
            check_count("concurrency", concurrency, least=1)
        running = JobRunning(tally, kinds, usage="DbosBridge({})")
        self._running = running
        self._name = name
        self._concurrency = concurrency
        self._queue: Queue | None = None

        @DBOS.step(name=f"{name}.carry_out")
        def carry_out(job_id: str, kind: str) -> bool:
            return running.carry_out(job_id, kind)

        @DBOS.workflow(name=f"{name}.job")
        def job(job_id: str, kind: str) -> bool:
            return carry_out(job_id, kind)

        self._workflow = job

    def dispatch(self, *, limit: int = 1_000) -> int:
        """Enqueue a workflow for each job that is due, at most `limit`, in turn from each scope;
        return their number. Call it after `DBOS.launch()`.

        Each attempt of a job is one workflow, whoever dispatches, and however often. Raises
        InvalidInput, StorageError, and what DBOS raises.
        """
        if self._queue is None:
            self._queue = DBOS.register_queue(self._name, worker_concurrency=self._concurrency)
        due = self._running.due(limit=limit)
        for job in due:
            # Enqueued again, by any host, it is the same workflow.
            with SetWorkflowID(f"{self._name}-{job.id}-{job.leases}"):
                self._queue.enqueue(self._workflow, job.id, job.kind)
        return len(due)
