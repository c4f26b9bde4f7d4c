"""Jobs: the follow-up work of a tally, as one actor may see, retry or cancel it."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from tallystick.records import (
    Job,
    JobId,
    JobIds,
    JobStates,
    Limit,
    Words,
    checked_arguments,
)
from tallystick.records.arguments import (
    PAGE_BEFORE,
    IdempotencyKey,
    Reason,
)
from tallystick.records.wire import Wire
from tallystick.tally.memory_view import Part
from tallystick.upkeep import (
    jobs,
)


@checked_arguments
class Jobs(Part):
    """Follow-up work as one actor may see and steer it."""

    def get(self, job_id: JobId) -> Job:
        """Return one job with its trail. Raises NotFound alike for hidden and for absent ones."""
        return jobs.get_job(self._view._services.memory, self._view.actor, job_id)

    def retry(
        self,
        job_ids: Annotated[
            JobId | JobIds | None,
            Wire(tuple[str, ...] | None),
            Field(description="Ids of jobs; by default all that failed or died."),
        ] = None,
        *,
        reason: Reason,
        idempotency_key: IdempotencyKey = None,
    ) -> list[str]:
        """Let jobs that failed, died or wait be done anew at once; return their ids.

        Without ids it takes all that failed or died, but for those that were cancelled. Raises
        InvalidInput, NotFound, StateConflict, IdempotencyMismatch.
        """
        ids = None if job_ids is None else [job_ids] if isinstance(job_ids, str) else list(job_ids)
        requeued = jobs.retry_jobs(
            self._view._services.memory,
            self._view.actor,
            ids,
            reason=reason,
            idempotency_key=idempotency_key,
        )
        self._view._services.wake()
        return requeued

    def cancel(
        self, job_id: JobId, *, reason: Reason, idempotency_key: IdempotencyKey = None
    ) -> Job:
        """End a job that has not ended; a worker that holds it stores nothing more.

        Raises NotFound, StateConflict, InvalidInput, IdempotencyMismatch.
        """
        return jobs.cancel_job(
            self._view._services.memory,
            self._view.actor,
            job_id,
            reason=reason,
            idempotency_key=idempotency_key,
        )

    def list(
        self,
        *,
        state: Annotated[
            JobStates, Field(description="The states that they are in; by default any.")
        ] = (),
        kind: Annotated[Words | None, Field(description="Such as embed; by default any.")] = None,
        limit: Annotated[Limit, Field(description="Jobs at most.")] = 50,
        before: Annotated[JobId | None, PAGE_BEFORE] = None,
    ) -> list[Job]:
        """List follow-up work, newest first: for an operator of every scope, else of the bound one.

        `state` are the states that they are in; by default jobs in any are listed. Give the last id
        of a page as `before` for the next one. Raises Denied, and NotFound for an unknown `before`.
        """
        return jobs.list_jobs(
            self._view._services.memory,
            self._view.actor,
            self._view.scope,
            kind=kind,
            states=state,
            limit=limit,
            before=before,
        )
