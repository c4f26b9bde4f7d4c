"""Jobs as they are shown: durable follow-up work, its state, and the trail of how it got there."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal

from tallystick.records._base import JsonObject, Record, tuple_of
from tallystick.records.identity import Scope
from tallystick.records.times import datetime_of, optional_datetime_of

JobState = Literal["pending", "leased", "retry_scheduled", "done", "empty", "failed", "dead"]
"""The state of a job. `empty`: there was nothing to do. `failed`: what it needs answered unusably,
after all attempts. `dead`: it was refused for good, cancelled, or its attempts are used up.
"""
JOB_STATES: tuple[JobState, ...] = (
    "pending",
    "leased",
    "retry_scheduled",
    "done",
    "empty",
    "failed",
    "dead",
)
"""All states, in the order in which a job goes through them."""


JobStates = Annotated[Sequence[JobState], tuple_of(JobState)]
"""States of jobs."""


class JobEvent(Record):
    """One change of a job's state."""

    at: int
    """Microseconds UTC, by the clock of the database."""
    time = datetime_of("at")
    state: JobState
    worker: str | None = None
    """Who leased it."""
    code: str | None = None
    """The reason: an error code, `requeued`, `cancelled`, `lease_expired`."""


class Job(Record):
    """A piece of follow-up work, committed with what makes it necessary."""

    id: str
    kind: str
    """Such as `embed`."""
    state: JobState
    scope: Scope | None = None
    """None where it concerns the whole tally."""
    subject_id: str
    """The id of the record that it is about."""
    version: int = 0
    """The version of that record for which it was made; 0: whichever there is."""
    priority: int = 100
    """A lower one is leased first, within a scope."""
    attempts: int = 0
    """Attempts that count: those that ended in an unusable answer or with the worker's death."""
    max_attempts: int = 5
    waits: int = 0
    """Attempts that do not count: what it needs was away."""
    leases: int = 0
    """How often it was leased."""
    progress: int = 0
    """Finished parts, of `total` where that is known."""
    total: int | None = None
    cost: JsonObject = {}
    """Whole numbers by name, such as calls and tokens."""
    result: JsonObject | None = None
    error_code: str | None = None
    error_text: str | None = None
    leased_by: str | None = None
    due_at: int | None = None
    """Microseconds UTC from which on it may be leased, or at which its lease ends; None once it
    ended.
    """
    due_time = optional_datetime_of("due_at")
    created_at: int
    """Microseconds UTC."""
    created_time = datetime_of("created_at")
    updated_at: int
    updated_time = datetime_of("updated_at")
    user: str | None = None
    """The user under whose authority it runs; None where the stored actor is not readable."""
    trail: tuple[JobEvent, ...] = ()
    """The changes of its state, oldest first; of many alike the first ones."""

    @property
    def is_over(self) -> bool:
        """True if it ended: it is leased no more, unless it is requeued."""
        return self.state in ("done", "empty", "failed", "dead")
