"""The job of an import: batch after batch, each stored in one commit with its checkpoint.

A process that dies loses the batch under way, which is read again from the checkpoint before it:
nothing is lost, and nothing comes twice. The right to write is asked again in each commit.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence

from tallystick.errors import Denied, InvalidInput, MissingExtra, SettingsError, TallystickError
from tallystick.jobs.runner import Ended, Work
from tallystick.memory import MemoryContext
from tallystick.records import ImportState
from tallystick.storage import Connection
from tallystick.storage.rows import jobs, scopes, source_rows
from tallystick_ingest.adapters import open_source
from tallystick_ingest.contract import AuthorizationNeeded, RateLimitReached
from tallystick_ingest.imports import IMPORT
from tallystick_ingest.preparing import source_of
from tallystick_ingest.reading import (
    GOES_ON,
    Reading,
    Stored,
    complete_import,
    prepared_pages,
    set_state,
)

_FOR_GOOD = (InvalidInput, MissingExtra, SettingsError, Denied)
"""Errors that the next attempt would meet again."""


class ImportHandler:
    """Carries out the jobs of the kind `IMPORT`."""

    kind = IMPORT
    batch = 1
    lease_seconds = 60
    is_upkeep = False
    changes_memory = True
    is_autonomous = False

    def __init__(self, context: MemoryContext) -> None:
        self._context = context

    def handle(self, work: Work) -> int:
        """Read a source from its last checkpoint to its end, or until somebody pauses it; return
        how many memories were made or changed. Raises LeaseLost, and what the source raises.
        """
        [job] = work.jobs
        reading: Reading | None = None
        try:
            reading = self._begin(job)
            if reading is None:
                work.commit(lambda tx, allowed: {job.id: Ended("empty")})
            else:
                self._read(work, job, reading)
        except AuthorizationNeeded as error:
            self._stop(work, job, "paused", error)
        except RateLimitReached as error:
            self._rest(work, job, error)
        except _FOR_GOOD as error:
            self._stop(work, job, "failed", error)
        return 0 if reading is None else reading.made

    def give_up(self, tx: Connection, job: jobs.LeasedJob) -> None:
        """Let the import fail with its job."""
        set_state(tx, job.subject_id, "failed", self._context.store.clock.now())

    def _begin(self, job: jobs.LeasedJob) -> Reading | None:
        """Return what there is to read; None for an import that was paused or has ended."""
        assert job.actor is not None
        with self._context.store.database.read() as connection:
            row = source_rows.find_import(connection, job.subject_id)
            if row is None or row["state"] not in GOES_ON:
                return None
            scope = scopes.get_by_id(connection, row["scope_id"])
        # What may be read is asked again: a root may be gone from the settings, and a folder may
        # have become a link.
        options, settings = json.loads(row["options"]), self._context.settings
        adapter, target = open_source(settings, job.actor, row["adapter"], row["target"], options)
        if target != row["target"]:
            raise InvalidInput(f"{row['target']} leads elsewhere than when it was given.")
        return Reading(row, source_of(scope, row), adapter, job.actor)

    def _read(self, work: Work, job: jobs.LeasedJob, reading: Reading) -> None:
        for store in prepared_pages(self._context, reading):
            stored = self._commit(work, job, store)
            if stored is None:
                return
            reading.made += stored.made
            if work.is_stopping:
                return
        self._complete(work, job, reading)

    def _commit(
        self, work: Work, job: jobs.LeasedJob, store: Callable[[Connection], Stored | None]
    ) -> Stored | None:
        """Store a page with how far the job is; None where the import was paused meanwhile."""
        stored: Stored | None = None

        def unit(tx: Connection, allowed: Sequence[jobs.LeasedJob]) -> dict[str, Ended]:
            nonlocal stored
            stored = store(tx)
            if stored is None:
                return {job.id: Ended("empty")}
            jobs.come_further(tx, job, stored.counters.seen, stored.total)
            return {}

        work.commit(unit)
        return stored

    def _complete(self, work: Work, job: jobs.LeasedJob, reading: Reading) -> None:
        def unit(tx: Connection, allowed: Sequence[jobs.LeasedJob]) -> dict[str, Ended]:
            details = complete_import(tx, self._context, reading)
            if details is None:
                return {job.id: Ended("empty")}
            return {job.id: Ended("done" if details["stored"] else "empty", result=details)}

        work.commit(unit)

    def _stop(
        self, work: Work, job: jobs.LeasedJob, state: ImportState, error: TallystickError
    ) -> None:
        """End the job with an import that cannot go on by itself."""

        def unit(tx: Connection, allowed: Sequence[jobs.LeasedJob]) -> dict[str, Ended]:
            set_state(tx, job.subject_id, state, self._context.store.clock.now(), error)
            if state == "paused":
                return {job.id: Ended("empty")}
            return {job.id: Ended("failed", code=error.code, text=str(error))}

        work.commit(unit)

    def _rest(self, work: Work, job: jobs.LeasedJob, error: RateLimitReached) -> None:
        """Let the import go on when its source takes requests again."""

        def unit(tx: Connection, allowed: Sequence[jobs.LeasedJob]) -> dict[str, Ended]:
            jobs.wait(tx, allowed, code=error.code, text=str(error), seconds=error.retry_after)
            return {}

        work.commit(unit)
