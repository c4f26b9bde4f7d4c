"""Operations on jobs: list and read follow-up work, retry and cancel it, and the calls of models
that it made.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from tallystick.operations.operation import Arguments, Before, IdempotencyKey, Operation, Reason
from tallystick.records import Job, JobState, OutboundCall

JobId = Annotated[str, Field(description="Id of a job.")]


class ListJobs(Arguments):
    """Arguments of `jobs`."""

    state: Annotated[
        tuple[JobState, ...], Field(description="The states that they are in; by default any.")
    ] = ()
    kind: Annotated[str | None, Field(description="Such as embed; by default any.")] = None
    limit: Annotated[int, Field(description="Jobs at most.", ge=1)] = 50
    before: Before = None


class OfJob(Arguments):
    """Arguments of `job`."""

    job_id: JobId


class RetryJobs(Arguments):
    """Arguments of `retry_jobs`."""

    job_ids: Annotated[
        tuple[str, ...] | None,
        Field(description="Ids of jobs; by default all that failed or died."),
    ] = None
    idempotency_key: IdempotencyKey = None


class CancelJob(Arguments):
    """Arguments of `cancel_job`."""

    job_id: JobId
    reason: Reason
    idempotency_key: IdempotencyKey = None


class ListOutboundCalls(Arguments):
    """Arguments of `outbound_calls`."""

    purpose: Annotated[
        str | None, Field(description="extract, decide or summarize; by default any.")
    ] = None
    limit: Annotated[int, Field(description="Calls at most.", ge=1)] = 50
    before: Before = None


OPERATIONS = (
    Operation(
        name="jobs",
        title="List jobs",
        description="List follow-up work with its state and its last error, newest first.",
        effect="read",
        arguments=ListJobs,
        result=list[Job],
        errors=("denied", "invalid_input", "not_found"),
        verb="operator.jobs",
    ),
    Operation(
        name="job",
        title="Read a job",
        description="Read one job: its state, progress, attempts, errors and trail.",
        effect="read",
        arguments=OfJob,
        result=Job,
        errors=("not_found",),
        verb="operator.job",
    ),
    Operation(
        name="retry_jobs",
        title="Retry jobs",
        description="Let jobs that failed, died or wait for their next attempt be done anew.",
        effect="change",
        arguments=RetryJobs,
        result=list[str],
        errors=("not_found", "state_conflict", "idempotency_mismatch"),
        verb="operator.retry_jobs",
    ),
    Operation(
        name="cancel_job",
        title="Cancel a job",
        description="End a job that has not ended; a worker that holds it stores nothing more.",
        effect="change",
        arguments=CancelJob,
        result=Job,
        errors=("not_found", "state_conflict", "invalid_input", "idempotency_mismatch"),
        verb="operator.cancel_job",
    ),
    Operation(
        name="outbound_calls",
        title="List outbound calls",
        description="List the calls of models that Tallystick itself made, newest first: to whom, "
        "about what, how much and how it ended, without the text.",
        effect="read",
        arguments=ListOutboundCalls,
        result=list[OutboundCall],
        errors=("denied", "not_found"),
        verb="operator.outbound_calls",
    ),
)
"""In the order in which surfaces list them."""
