"""The health of sources: how the newest import of each has ended, for the doctor, and the schedules
by which the next ones begin.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import nullcontext
from typing import Any

from tallystick.jobs.derived import Derived
from tallystick.memory import MemoryContext
from tallystick.memory.memory_write import MemoryWrite
from tallystick.records import Actor, Finding, Job
from tallystick.storage import Connection
from tallystick.storage.engine.writes import JOBS, Writes
from tallystick.storage.rows import job_list, scopes, source_rows
from tallystick.storage.rows.job_list import acting_in


class SourceHealth(Derived):
    """The newest import of every source: failed, paused, or without the job that would read it."""

    name = "sources"

    def follow(self) -> int:
        """Start the imports that are due by their schedules, each with the authority of who gave
        it; return their number. One whose source is still read waits for its next moment.
        """
        now = self._context.store.clock.now()
        with self._database.read() as connection:
            due = source_rows.due_imports(connection, now)
        return sum(_start(self._context, row) for row in due)

    def check(self) -> list[Finding]:
        """Name the sources that are not kept in step, by their adapters."""
        with self._database.read() as connection:
            rows = source_rows.last_imports(connection)
            jobs = {
                row["id"]: None
                if row["job_id"] is None
                else job_list.find(connection, row["job_id"])
                for row in rows
            }
        troubled = [
            Finding(check=f"{self.name}: {row['adapter']}", status="notice", text=text)
            for row in rows
            if (text := _trouble(row, jobs[row["id"]])) is not None
        ]
        if troubled:
            return troubled
        text = f"{len(rows)} sources, each read to its end or under way" if rows else "none"
        return [self._says("ok", text)]

    def repair(self, actor: Actor) -> Finding:
        """Nothing is mended here: whoever imports resumes what stands still."""
        return self._says("ok", "imports go on by `tally source-import resume`")


def _trouble(row: Mapping[str, Any], job: Job | None) -> str | None:
    name = f"the import {row['id']}"
    if row["state"] == "paused" and row["error_code"] is not None:
        return f"{name} is paused: {row['error_code']}"
    if row["state"] == "failed":
        code = row["error_code"] or (job and job.error_code) or "unknown"
        return f"{name} has failed: {code}"
    if row["state"] in ("pending", "running") and (job is None or job.state in ("failed", "dead")):
        return f"{name} stands still: {job.error_code if job is not None else 'its job is gone'}"
    if row["state"] in ("pending", "running") and job is not None and job.error_code:
        return f"{name} tries again after {job.error_code}"
    return None


def _start(context: MemoryContext, due: Mapping[str, Any]) -> bool:
    from tallystick_ingest.imports import IMPORT, new_import, next_due

    store = context.store
    with store.database.read() as connection:
        scope = scopes.get_by_id(connection, due["scope_id"])
        # What was restored or imported from elsewhere has no job here that says who acts.
        actor = acting_in(connection, due["job_id"], IMPORT, due["id"])

    def unit(tx: Connection) -> bool:
        row = source_rows.find_import(tx, due["id"])
        now = store.clock.now()
        if row is None or row["due_at"] is None or row["due_at"] > now:
            return False
        if actor is None:
            source_rows.update_import(tx, row["id"], schedule=None, due_at=None)
            return False
        at = next_due(row["schedule"], now)
        if source_rows.last_import(tx, scope.id, row["source"], source_rows.OPEN_IMPORTS):
            source_rows.update_import(tx, row["id"], due_at=at)
            return False
        write = MemoryWrite(tx, context, actor, now, None)
        new_import(write, scope, {**row, "due_at": at, "is_resync": False})
        return True

    with nullcontext() if actor is None else context.gate.journaling(actor):
        return store.database.write(unit, name="import.start", writes=Writes.of(scope.scope, JOBS))
