"""The job of an import: batch after batch, each stored in one commit with its checkpoint.

A process that dies loses the batch under way, which is read again from the checkpoint before it:
nothing is lost, and nothing comes twice. The right to write is asked again in each commit.
"""

from __future__ import annotations

import json
import time
from collections.abc import Sequence

from tallystick.errors import Denied, InvalidInput, MissingExtra, SettingsError, TallystickError
from tallystick.jobs.runner import Ended, Work
from tallystick.memory import MemoryContext
from tallystick.records import ImportState
from tallystick.storage import Connection
from tallystick.storage.rows import jobs, scopes, source_rows
from tallystick_ingest.adapters import load_adapter, require_place
from tallystick_ingest.contract import AuthorizationNeeded, RateLimitReached
from tallystick_ingest.imports import IMPORT
from tallystick_ingest.preparing import Batch, Source, stored_id
from tallystick_ingest.reading import (
    GOES_ON,
    Page,
    Reading,
    complete_import,
    pages,
    prepare_page,
    store_page,
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
        now = self._context.store.clock.now()
        values = {"state": "failed", "updated_at": now, "ended_at": now}
        source_rows.update_import(tx, job.subject_id, **values)

    def _begin(self, job: jobs.LeasedJob) -> Reading | None:
        """Return what there is to read; None for an import that was paused or has ended."""
        assert job.actor is not None
        with self._context.store.database.read() as connection:
            row = source_rows.find_import(connection, job.subject_id)
            if row is None or row["state"] not in GOES_ON:
                return None
            scope = scopes.get_by_id(connection, row["scope_id"])
        source = Source(
            scope=scope,
            key=row["source"],
            import_id=row["id"],
            is_resync=row["is_resync"],
            author=f"{row['adapter']}/{row['adapter_version']}",
        )
        options = json.loads(row["options"])
        settings, name = self._context.settings, row["adapter"]
        adapter = load_adapter(settings, name, options)
        # What may be read is asked again: a root may be gone from the settings, and a folder may
        # have become a link.
        place = require_place(settings, job.actor, name, adapter, row["target"], options)
        if place != row["target"]:
            raise InvalidInput(f"{row['target']} leads elsewhere than when it was given.")
        return Reading(row, source, adapter, job.actor)

    def _read(self, work: Work, job: jobs.LeasedJob, reading: Reading) -> None:
        begun = time.monotonic()
        for page in pages(self._context, reading):
            if work.is_stopping:
                return
            batch = prepare_page(self._context, reading, page)
            now = time.monotonic()
            worked, begun = int((now - begun) * 1_000_000), now
            if not self._commit(work, job, reading, batch, page, worked):
                return
        self._complete(work, job, reading)

    def _commit(
        self,
        work: Work,
        job: jobs.LeasedJob,
        reading: Reading,
        batch: Batch,
        page: Page,
        worked: int,
    ) -> bool:
        """Store a batch with its checkpoint; return False where the import was paused meanwhile."""
        goes_on, made = True, 0

        def unit(tx: Connection, allowed: Sequence[jobs.LeasedJob]) -> dict[str, Ended]:
            nonlocal goes_on, made
            stored = store_page(tx, self._context, reading, batch, page, worked)
            if stored is None:
                goes_on = False
                return {job.id: Ended("empty")}
            made = stored.made
            jobs.come_further(tx, job, stored.counters.seen, stored.total)
            return {}

        work.commit(unit)
        reading.made += made
        return goes_on

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
            now = self._context.store.clock.now()
            source_rows.update_import(
                tx,
                job.subject_id,
                state=state,
                error_code=error.code,
                error_text=stored_id(str(error)[:500]),
                updated_at=now,
                ended_at=now if state == "failed" else None,
            )
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
