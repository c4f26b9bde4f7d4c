"""Import runs: by a job, at once by a source that only this process has, or of one record again.

Batch after batch is stored, each in one commit with its checkpoint. A process that dies loses the
batch under way, which is read again from the checkpoint before it: nothing is lost, and nothing
comes twice. The right to write is asked again in each commit.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace

from tallystick.errors import (
    Denied,
    InvalidInput,
    MissingExtra,
    NotFound,
    SettingsError,
    TallystickError,
)
from tallystick.jobs.runner import Ended, Work
from tallystick.memory import MemoryContext
from tallystick.memory.memory_write import MemoryWrite
from tallystick.records import Actor, Import, ImportedRecord, ImportState, Scope
from tallystick.storage import Connection
from tallystick.storage.engine.writes import Writes
from tallystick.storage.rows import jobs, scopes, source_rows
from tallystick_ingest.adapters import open_source
from tallystick_ingest.contract import (
    AuthorizationNeeded,
    Checkpoint,
    Connector,
    RateLimitReached,
    SourceAdapter,
)
from tallystick_ingest.imports import (
    IMPORT,
    get_import,
    import_values,
    new_import,
    record_status,
    require_private,
)
from tallystick_ingest.preparing import prepare_batch, source_key, source_of, stored_id
from tallystick_ingest.reading import (
    GOES_ON,
    Reading,
    Stored,
    complete_import,
    prepared_pages,
    set_state,
)
from tallystick_ingest.storing import store_batch
from tallystick_ingest.visible import visible_import

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


def import_at_once(
    context: MemoryContext, actor: Actor, scope: Scope, adapter: SourceAdapter, target: str
) -> Import:
    """Import what a target names by an adapter that is at hand; return the import as it ended.

    What is stored when it fails stays; begun anew, only what is new or differs is stored. Raises
    Denied, and what the adapter raises.
    """
    require_private(context, actor, scope)
    with context.gate.journaling(actor):
        reading = _begin_at_once(context, actor, scope, adapter, target)
        try:
            _read_at_once(context, reading)
        except BaseException as error:
            _fail_at_once(context, reading, error)
            raise
    return get_import(context, actor, reading.row["id"])


def _begin_at_once(
    context: MemoryContext, actor: Actor, scope: Scope, adapter: SourceAdapter, target: str
) -> Reading:
    corpus = adapter.corpus(target)

    def unit(tx: Connection) -> Reading:
        context.gate.confirm(tx, actor, "write", scope)
        row = scopes.ensure(tx, scope)
        key = source_key(row.secret, adapter.name, corpus.id)
        write = MemoryWrite(tx, context, actor, context.store.clock.now(), None)
        is_open = source_rows.last_import(tx, row.id, key, source_rows.OPEN_IMPORTS)
        if is_open is not None:
            # Of a process that has died, or of another that reads the same: it stores no more.
            set_state(tx, is_open["id"], "cancelled", write.now)
        values = import_values(adapter, corpus, target, key)
        begun = new_import(write, row, values, state="running")
        return Reading(begun, source_of(row, begun), adapter, actor)

    return context.store.database.write(unit, name="import.start", writes=Writes.of(scope))


def _read_at_once(context: MemoryContext, reading: Reading) -> None:
    scope, database = reading.source.scope.scope, context.store.database

    def commit(unit: Callable[[Connection], object], name: str) -> None:
        def allowed(tx: Connection) -> object:
            context.gate.confirm(tx, reading.actor, "write", scope)
            return unit(tx)

        if database.write_mostly(allowed, name=name, writes=Writes.of(scope)) is None:
            raise NotFound("The import was cancelled meanwhile: what it has stored stays.")

    for store in prepared_pages(context, reading):
        commit(store, "import.store")
    commit(lambda tx: complete_import(tx, context, reading), "import.complete")


def _fail_at_once(context: MemoryContext, reading: Reading, error: BaseException) -> None:
    import_id = reading.row["id"]

    def unit(tx: Connection) -> None:
        row = source_rows.find_import(tx, import_id)
        if row is not None and row["state"] == "running":
            set_state(tx, import_id, "failed", context.store.clock.now(), error)

    scope = reading.source.scope.scope
    context.store.database.write(unit, name="import.fail", writes=Writes.of(scope))


def replay_record(
    context: MemoryContext,
    actor: Actor,
    import_id: str,
    record_id: str,
    from_version: str | None,
) -> ImportedRecord:
    """Read one record again and store what differs; return what is known of it. Raises NotFound,
    Denied, InvalidInput for a source that is no connector, and what the source raises.
    """
    with context.store.database.read() as connection:
        row, scope = visible_import(connection, context, actor, import_id)
    context.gate.require(actor, "write", scope.scope)
    options = json.loads(row["options"])
    adapter, target = open_source(context.settings, actor, row["adapter"], row["target"], options)
    if not isinstance(adapter, Connector):
        raise InvalidInput(
            f"{row['adapter']} replays no single record: import it again, with `resync` all of it.",
            argument="import_id",
        )
    yielded = [
        each
        for each in adapter.replay(target, record_id, from_version)
        if not isinstance(each, Checkpoint)
    ]
    source = replace(source_of(scope, row), is_resync=True)
    batch = prepare_batch(context, actor, source, yielded, {})

    def unit(tx: Connection) -> None:
        context.gate.confirm(tx, actor, "write", scope.scope)
        write = MemoryWrite(tx, context, actor, context.store.clock.now(), import_id)
        store_batch(write, source, batch)

    with context.gate.journaling(actor):
        context.store.database.write_mostly(
            unit, name="import.replay", writes=Writes.of(scope.scope)
        )
    name = stored_id(record_id)
    with context.store.database.read() as connection:
        found = source_rows.records_by_id(connection, scope.id, row["source"], [name]).get(name)
    if found is None:
        raise NotFound(f"The source has no record {name!a}.")
    return record_status(context, found)
