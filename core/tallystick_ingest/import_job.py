"""The job of an import: batch after batch, each stored in one commit with its checkpoint.

A process that dies loses the batch under way, which is read again from the checkpoint before it:
nothing is lost, and nothing comes twice. The right to write is asked again in each commit.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from tallystick.errors import Denied, InvalidInput, MissingExtra, SettingsError, TallystickError
from tallystick.jobs.runner import Ended, Work
from tallystick.memory import MemoryContext
from tallystick.memory.memory_write import MemoryWrite
from tallystick.records import Actor, ImportCounters, ImportState
from tallystick.storage import Connection
from tallystick.storage.rows import jobs, scopes, source_rows
from tallystick_ingest.adapters import load_adapter
from tallystick_ingest.contract import (
    CHECKPOINT_BYTES,
    CHECKPOINT_RECORDS,
    AuthorizationNeeded,
    Checkpoint,
    RateLimitReached,
    SourceAdapter,
    SourceRecord,
    Yielded,
)
from tallystick_ingest.imports import IMPORT
from tallystick_ingest.preparing import Batch, Source, prepare_batch, stored_id
from tallystick_ingest.storing import store_batch

_FOR_GOOD = (InvalidInput, MissingExtra, SettingsError, Denied)
"""Errors that the next attempt would meet again."""
_PATIENCE = 2
"""Times as much as a checkpoint may be apart from the last one, before a source is stopped that
gives none: what it yields is held in memory until then.
"""


class _NoCheckpoint(InvalidInput):
    """The adapter of a source yields too much without a checkpoint."""


class _Page(NamedTuple):
    """What a source yielded up to a checkpoint."""

    records: list[Yielded]
    cursor: str | None


@dataclass
class _Reading:
    """An import as one lease of its job reads it."""

    row: Mapping[str, Any]
    source: Source
    adapter: SourceAdapter
    actor: Actor
    made: int = 0


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
        try:
            reading = self._begin(job)
        except _FOR_GOOD as error:
            self._stop(work, job, "failed", error)
            return 0
        if reading is None:
            work.commit(lambda tx, allowed: {job.id: Ended("empty")})
            return 0
        try:
            self._read(work, job, reading)
        except AuthorizationNeeded as error:
            self._stop(work, job, "paused", error)
        except RateLimitReached as error:
            self._rest(work, job, error)
        except _FOR_GOOD as error:
            self._stop(work, job, "failed", error)
        return reading.made

    def give_up(self, tx: Connection, job: jobs.LeasedJob) -> None:
        """Let the import fail with its job."""
        now = self._context.store.clock.now()
        values = {"state": "failed", "updated_at": now, "ended_at": now}
        source_rows.update_import(tx, job.subject_id, **values)

    def _begin(self, job: jobs.LeasedJob) -> _Reading | None:
        """Return what there is to read; None for an import that was paused or has ended."""
        assert job.actor is not None
        with self._context.store.database.read() as connection:
            row = source_rows.find_import(connection, job.subject_id)
            if row is None or row["state"] not in ("pending", "running"):
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
        adapter = load_adapter(self._context.settings, row["adapter"], options)
        return _Reading(row, source, adapter, job.actor)

    def _read(self, work: Work, job: jobs.LeasedJob, reading: _Reading) -> None:
        begun = time.monotonic()
        for page in _pages(reading.adapter, reading, self._version_of(reading.source)):
            if work.is_stopping:
                return
            batch = self._prepare(reading, page)
            now = time.monotonic()
            worked, begun = int((now - begun) * 1_000_000), now
            if not self._commit(work, job, reading, batch, page.cursor, worked):
                return
        self._complete(work, job)

    def _version_of(self, source: Source) -> Any:
        """Return what says which version of a record is stored."""

        def known(record_id: str) -> str | None:
            if source.is_resync:
                return None
            name = stored_id(record_id)
            with self._context.store.database.read() as connection:
                return source_rows.version_of(connection, source.scope.id, source.key, name)

        return known

    def _prepare(self, reading: _Reading, page: _Page) -> Batch:
        source = reading.source
        names = [
            stored_id(each.record_id) for each in page.records if isinstance(each, SourceRecord)
        ]
        with self._context.store.database.read() as connection:
            known = source_rows.records_by_id(connection, source.scope.id, source.key, names)
        return prepare_batch(self._context, reading.actor, source, page.records, known)

    def _commit(
        self,
        work: Work,
        job: jobs.LeasedJob,
        reading: _Reading,
        batch: Batch,
        cursor: str | None,
        worked: int,
    ) -> bool:
        """Store a batch with its checkpoint; return False where the import was paused meanwhile."""
        goes_on, made = True, 0

        def unit(tx: Connection, allowed: Sequence[jobs.LeasedJob]) -> dict[str, Ended]:
            nonlocal goes_on, made
            row = source_rows.find_import(tx, job.subject_id)
            if row is None or row["state"] not in ("pending", "running"):
                goes_on = False
                return {job.id: Ended("empty")}
            now = self._context.store.clock.now()
            write = MemoryWrite(tx, self._context, reading.actor, now, row["id"])
            stored = store_batch(write, reading.source, batch)
            made = stored.counters.chunks
            counters = _add(ImportCounters.load(json.loads(row["counters"])), stored.counters)
            source_rows.update_import(
                tx,
                row["id"],
                state="running",
                cursor=row["cursor"] if cursor is None else cursor,
                counters=counters.dumps(),
                worked=row["worked"] + worked,
                error_code=None,
                error_text=None,
                updated_at=now,
            )
            jobs.note_progress(tx, job, counters.seen, row["total"])
            jobs.count_anew(tx, job)
            return {}

        work.commit(unit)
        reading.made += made
        return goes_on

    def _complete(self, work: Work, job: jobs.LeasedJob) -> None:
        def unit(tx: Connection, allowed: Sequence[jobs.LeasedJob]) -> dict[str, Ended]:
            row = source_rows.find_import(tx, job.subject_id)
            if row is None or row["state"] not in ("pending", "running"):
                return {job.id: Ended("empty")}
            now = self._context.store.clock.now()
            values = {"state": "completed", "updated_at": now, "ended_at": now}
            source_rows.update_import(tx, row["id"], **values, error_code=None, error_text=None)
            counters = ImportCounters.load(json.loads(row["counters"]))
            details: dict[str, Any] = {"seen": counters.seen, "stored": counters.stored}
            assert job.actor is not None
            write = MemoryWrite(tx, self._context, job.actor, now, row["id"])
            scope = scopes.get_by_id(tx, row["scope_id"]).scope
            write.journal_event(scope, "import.complete", row["id"], details)
            return {job.id: Ended("done" if counters.stored else "empty", result=details)}

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


def _pages(adapter: SourceAdapter, reading: _Reading, known: Any) -> Iterator[_Page]:
    """Yield what comes after the last checkpoint, up to each further one."""
    records: list[Yielded] = []
    size, cursor = 0, reading.row["cursor"]
    for each in adapter.records(reading.row["target"], cursor, known):
        if isinstance(each, Checkpoint):
            if records or each.cursor != cursor:
                # One that says nothing new is no progress, and forgives no attempt.
                yield _Page(records, each.cursor)
            records, size, cursor = [], 0, each.cursor
            continue
        records.append(each)
        if isinstance(each, SourceRecord):
            size += len(each.body) + sum(len(part.content or b"") for part in each.attachments)
        if len(records) > _PATIENCE * CHECKPOINT_RECORDS or (
            len(records) > 1 and size > _PATIENCE * CHECKPOINT_BYTES
        ):
            raise _NoCheckpoint(
                f"{adapter.name} yields more than {CHECKPOINT_RECORDS} records, or "
                f"{CHECKPOINT_BYTES:,} bytes, without a checkpoint."
            )
    if records:
        yield _Page(records, None)


def _add(first: ImportCounters, second: ImportCounters) -> ImportCounters:
    """Return the sum of two counts."""
    values: dict[str, Any] = {}
    for name in ImportCounters.model_fields:
        one, other = getattr(first, name), getattr(second, name)
        is_by_reason = isinstance(one, dict)
        values[name] = dict(Counter(one) + Counter(other)) if is_by_reason else one + other
    return ImportCounters(**values)
