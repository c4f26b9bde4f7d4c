"""The health of sources: how the newest import of each has ended, for the doctor, and the schedules
by which the next ones begin.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tallystick.jobs.derived import Derived
from tallystick.records import Actor, Finding, Job
from tallystick.storage.rows import job_list, source_rows


class SourceHealth(Derived):
    """The newest import of every source: failed, paused, or without the job that would read it."""

    name = "sources"

    def follow(self) -> int:
        """Start the imports that are due by their schedules."""
        from tallystick_ingest.schedules import start_due

        return start_due(self._context)

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
