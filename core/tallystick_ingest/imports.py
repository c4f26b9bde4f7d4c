"""Imports: started, followed and steered; the job does the work."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from tallystick.errors import InvalidInput, StateConflict, require
from tallystick.memory import MemoryContext
from tallystick.memory.memory_write import MemoryWrite
from tallystick.records import (
    Actor,
    Import,
    ImportCounters,
    ImportedRecord,
    ImportState,
    Job,
    JsonObject,
    ReasonCode,
    RecordState,
    Scope,
)
from tallystick.storage import Connection, ScopeRow
from tallystick.storage.engine.writes import JOBS, Writes
from tallystick.storage.rows import documents, job_list, jobs, scopes, source_rows
from tallystick.storage.rows.source_rows import StoredRecord
from tallystick_ingest.adapters import open_source
from tallystick_ingest.contract import Corpus, SourceAdapter
from tallystick_ingest.preparing import source_key
from tallystick_ingest.reading import GOES_ON, set_state
from tallystick_ingest.visible import visible_import

IMPORT = "import"
"""The kind of job that reads a source."""
_WHAT = "Import"


def start_import(
    context: MemoryContext,
    actor: Actor,
    scope: Scope,
    *,
    adapter: str,
    target: str,
    is_resync: bool,
    options: JsonObject,
    schedule: str | None,
) -> Import:
    """Start the import of what a target names into a private scope, or go on with the one of the
    same corpus that has not ended; return it.

    Raises Denied, InvalidInput, NotOfFormat for a target that is none of the adapter's kind,
    AuthorizationNeeded, and StateConflict where it has not ended and has other options.
    """
    require_private(context, actor, scope)
    reader, place = open_source(context.settings, actor, adapter, target, options)
    store = context.store
    due = None if schedule is None else next_due(schedule, store.clock.now())
    corpus = reader.corpus(place)

    def unit(tx: Connection) -> str:
        context.gate.confirm(tx, actor, "write", scope)
        row = scopes.ensure(tx, scope)
        key = source_key(row.secret, adapter, corpus.id)
        write = MemoryWrite(tx, context, actor, store.clock.now(), None)
        is_open = source_rows.last_import(tx, row.id, key, source_rows.OPEN_IMPORTS)
        if is_open is not None:
            if json.loads(is_open["options"]) != options:
                raise StateConflict(
                    is_open["id"],
                    state=is_open["state"],
                    reason="one of the same source with other options has not ended",
                    hint="Let it end, or cancel it.",
                    what=_WHAT,
                )
            _go_on(write, row, is_open)
            if schedule is not None:
                source_rows.end_schedule(tx, row.id, key)
                source_rows.update_import(tx, is_open["id"], schedule=schedule, due_at=due)
            return str(is_open["id"])
        values = {
            **import_values(reader, corpus, place, key),
            "adapter": adapter,
            "is_resync": is_resync,
            "options": json.dumps(options),
            "schedule": schedule,
            "due_at": due,
            "cursor": None if is_resync else feed_cursor(tx, row.id, key, corpus),
        }
        return str(new_import(write, row, values)["id"])

    with context.gate.journaling(actor):
        import_id = store.database.write(unit, name="import.start", writes=Writes.of(scope))
    return get_import(context, actor, import_id)


def feed_cursor(connection: Connection, scope_id: int, source: str, corpus: Corpus) -> str | None:
    """Return where a feed of changes goes on: where the last import has ended. None for a source
    that lists all it has.
    """
    if corpus.lists_all:
        return None
    last = source_rows.last_import(connection, scope_id, source, ["completed"])
    return None if last is None else last["cursor"]


def next_due(schedule: str, after: int) -> int:
    """Return when a schedule is due next: microseconds UTC, as `after`. `schedule` is that of cron,
    of five fields. Raises InvalidInput for one that is none, MissingExtra.
    """
    require("cronsim", extra="mailbox")
    from cronsim import CronSim, CronSimError

    moment = datetime.fromtimestamp(after / 1_000_000, UTC)
    try:
        return round(next(CronSim(schedule, moment)).timestamp() * 1_000_000)
    except (CronSimError, StopIteration) as error:
        raise InvalidInput(
            f"`schedule` {schedule!a} is none of cron: {error}.", argument="schedule"
        ) from error


def require_private(context: MemoryContext, actor: Actor, scope: Scope) -> None:
    """Raise Denied unless an actor may write a scope that nobody else reads."""
    decision = context.gate.require(actor, "write", scope)
    if scope.kind != "private":
        reason: ReasonCode = "scope_crossing_requires_promotion"
        refused = decision.model_copy(update={"allowed": False, "reason": reason})
        raise context.gate.refuse(
            actor,
            refused,
            f"An import goes into a private scope, and {scope} has other readers. Import into "
            f"{actor.private_scope}, look at what came, and promote or share from there with a "
            "preview.",
        )


def import_values(adapter: SourceAdapter, corpus: Corpus, target: str, key: str) -> dict[str, Any]:
    """Return what the row of an import says of its source."""
    return {
        "source": key,
        "adapter": adapter.name,
        "adapter_version": adapter.version,
        "privacy_class": adapter.privacy_class,
        "target": target,
        "corpus": corpus.id,
        "corpus_version": corpus.version,
        "title": corpus.title or target,
        "lists_all": corpus.lists_all,
        "is_resync": False,
        "options": "{}",
        "total": corpus.size,
    }


def new_import(
    write: MemoryWrite,
    scope: ScopeRow,
    values: Mapping[str, Any],
    *,
    state: ImportState = "pending",
) -> dict[str, Any]:
    """Store an import, with its job where that is to read it; return its row. `values` are what it
    reads, or the row of an import that it repeats: a feed of changes goes on where that one ended.
    """
    if values.get("due_at") is not None:
        source_rows.end_schedule(write.tx, scope.id, values["source"])
    row = {
        **values,
        "id": write.context.store.ids.new(),
        "scope_id": scope.id,
        "state": state,
        "cursor": None if values["lists_all"] else values.get("cursor"),
        "counters": "{}",
        "worked": 0,
        "error_code": None,
        "error_text": None,
        "job_id": None,
        "created_by": write.actor.user,
        "created_at": write.now,
        "updated_at": write.now,
        "ended_at": None,
    }
    source_rows.add_import(write.tx, row)
    if state == "pending":
        _enqueue(write, scope, row["id"])
    details = {"adapter": values["adapter"], "resync": values["is_resync"]}
    write.journal_event(scope.scope, "import.start", row["id"], details)
    return row


def _enqueue(write: MemoryWrite, scope: ScopeRow, import_id: str) -> None:
    job_id = write.enqueue(IMPORT, import_id, scope.id, actor=write.actor)
    source_rows.update_import(write.tx, import_id, job_id=job_id)


def _go_on(write: MemoryWrite, scope: ScopeRow, row: Mapping[str, Any]) -> None:
    """Let an import go on as this actor, from its last checkpoint."""
    if row["job_id"] is not None:
        # Also where a worker has died over it: what that one still has, it can store no more.
        jobs.requeue(write.tx, [row["job_id"]], under_way=True)
    set_state(write.tx, row["id"], "pending", write.now)
    _enqueue(write, scope, row["id"])


def pause_import(context: MemoryContext, actor: Actor, import_id: str) -> Import:
    """Let an import rest after the batch under way. Raises NotFound, Denied, StateConflict."""

    def steer(write: MemoryWrite, scope: ScopeRow, row: Mapping[str, Any]) -> None:
        _require_state(row, _state_of(row, _job_of(write.tx, row)), GOES_ON)
        source_rows.update_import(write.tx, import_id, state="paused", updated_at=write.now)

    return _steer(context, actor, import_id, "import.pause", steer)


def resume_import(context: MemoryContext, actor: Actor, import_id: str) -> Import:
    """Let an import go on from its last checkpoint: one that is paused or failed, or whose worker
    has died. Raises NotFound, Denied, StateConflict.
    """

    def steer(write: MemoryWrite, scope: ScopeRow, row: Mapping[str, Any]) -> None:
        state = _state_of(row, _job_of(write.tx, row))
        _require_state(row, state, (*source_rows.OPEN_IMPORTS, "failed"))
        _go_on(write, scope, row)

    return _steer(context, actor, import_id, "import.resume", steer)


def cancel_import(context: MemoryContext, actor: Actor, import_id: str) -> Import:
    """End an import that has not ended, and its schedule; what it has stored stays. Of one that has
    ended only the schedule ends. Raises NotFound, Denied, StateConflict.
    """

    def steer(write: MemoryWrite, scope: ScopeRow, row: Mapping[str, Any]) -> None:
        state = _state_of(row, _job_of(write.tx, row))
        if row["due_at"] is not None:
            source_rows.end_schedule(write.tx, scope.id, row["source"])
            if state in ("completed", "cancelled"):
                return
        _require_state(row, state, (*source_rows.OPEN_IMPORTS, "failed"))
        if row["job_id"] is not None:
            jobs.cancel(write.tx, row["job_id"])
        values = {"state": "cancelled", "updated_at": write.now, "ended_at": write.now}
        source_rows.update_import(write.tx, import_id, **values)

    return _steer(context, actor, import_id, "import.cancel", steer)


def _steer(context: MemoryContext, actor: Actor, import_id: str, event: str, steer: Any) -> Import:
    with context.store.database.read() as connection:
        _, scope = visible_import(connection, context, actor, import_id)
    context.gate.require(actor, "write", scope.scope)

    def unit(tx: Connection) -> None:
        context.gate.confirm(tx, actor, "write", scope.scope)
        current, _ = visible_import(tx, context, actor, import_id)
        write = MemoryWrite(tx, context, actor, context.store.clock.now(), None)
        steer(write, scope, current)
        write.journal_event(scope.scope, event, import_id, {})

    with context.gate.journaling(actor):
        context.store.database.write(unit, name=event, writes=Writes.of(scope.scope, JOBS))
    return get_import(context, actor, import_id)


def _require_state(row: Mapping[str, Any], state: ImportState, allowed: tuple[str, ...]) -> None:
    if state not in allowed:
        raise StateConflict(
            row["id"],
            state=state,
            reason=f"only one that is {', '.join(allowed[:-1])} or {allowed[-1]} can be",
            hint="Start it anew.",
            what=_WHAT,
        )


def get_import(context: MemoryContext, actor: Actor, import_id: str) -> Import:
    """Return an import as it stands. Raises NotFound alike for hidden and for absent ones."""
    fingerprint = context.settled_fingerprint()
    with context.store.database.read() as connection:
        row, scope = visible_import(connection, context, actor, import_id)
        return _import_of(connection, row, scope, fingerprint)


def list_imports(
    context: MemoryContext, actor: Actor, scope: Scope, *, limit: int, before: str | None
) -> list[Import]:
    """Return the imports of a scope, newest first. Raises Denied, NotFound for an unknown
    `before`.
    """
    context.gate.require(actor, "read", scope)
    fingerprint = context.settled_fingerprint()
    with context.store.database.read() as connection:
        last = None
        if before is not None:
            row, _ = visible_import(connection, context, actor, before)
            last = (row["created_at"], before)
        found = scopes.find(connection, [scope])
        if not found:
            return []
        rows = source_rows.imports_of(connection, found[0].id, limit=limit, before=last)
        return [_import_of(connection, row, found[0], fingerprint) for row in rows]


def list_records(
    context: MemoryContext,
    actor: Actor,
    import_id: str,
    states: tuple[RecordState, ...],
    *,
    limit: int,
    after: str,
) -> list[ImportedRecord]:
    """Return the records that an import saw last, by their ids. Raises NotFound."""
    stored = sorted({"embedding_pending" if each == "indexed" else each for each in states})
    listed = list[ImportedRecord]()
    with context.store.database.read() as connection:
        visible_import(connection, context, actor, import_id)
        # Which of those that are stored have their vectors is told of a page that was read.
        while rows := source_rows.records_of(
            connection, import_id, stored, after=after, limit=limit
        ):
            records = _records_of(connection, context, rows)
            listed += [each for each in records if not states or each.state in states]
            after = rows[-1].record_id
            if len(listed) >= limit or len(rows) < limit:
                break
    return listed[:limit]


def record_status(context: MemoryContext, row: StoredRecord) -> ImportedRecord:
    """Return what is known of a record, with how far it is."""
    with context.store.database.read() as connection:
        return _records_of(connection, context, [row])[0]


def _records_of(
    connection: Connection, context: MemoryContext, rows: list[StoredRecord]
) -> list[ImportedRecord]:
    named = {each.document_id for each in rows if each.document_id is not None}
    waiting = documents.unembedded(connection, named, context.settled_fingerprint())
    return [_record_of(row, waiting) for row in rows]


def _record_of(row: StoredRecord, waiting: set[str]) -> ImportedRecord:
    is_done = row.state == "embedding_pending" and row.document_id not in waiting
    return ImportedRecord.load(
        {
            **{name: getattr(row, name) for name in ImportedRecord.model_fields},
            **({"state": "indexed"} if is_done else {}),
        }
    )


def is_newest(connection: Connection, row: Mapping[str, Any]) -> bool:
    """Return True for the import that says what its source has: the newest of those that go on or
    are completed.
    """
    states = (*source_rows.OPEN_IMPORTS, "completed")
    newest = source_rows.last_import(connection, row["scope_id"], row["source"], states)
    return newest is not None and newest["id"] == row["id"]


def _job_of(connection: Connection, row: Mapping[str, Any]) -> Job | None:
    return None if row["job_id"] is None else job_list.find(connection, row["job_id"])


def _state_of(row: Mapping[str, Any], job: Job | None) -> ImportState:
    """Return the state of an import: what is stored, unless its job says that it came to an end."""
    state: ImportState = row["state"]
    if state not in GOES_ON:
        return state
    if job is None or job.state in ("failed", "dead"):
        is_cancelled = job is not None and job.error_code == job_list.CANCELLED
        return "cancelled" if is_cancelled else "failed"
    return "running" if job.state == "leased" else state


def _import_of(
    connection: Connection, row: Mapping[str, Any], scope: ScopeRow, fingerprint: str | None
) -> Import:
    job = _job_of(connection, row)
    state = _state_of(row, job)
    counters = ImportCounters.load(json.loads(row["counters"]))
    failed = job if job is not None and state in ("failed", *GOES_ON) else None
    left = None
    if state in GOES_ON and row["total"] is not None and counters.seen:
        rest = max(0, row["total"] - counters.seen)
        left = round(rest * row["worked"] / counters.seen / 1_000_000)
    vanished = 0
    if state == "completed" and is_newest(connection, row):
        vanished = source_rows.count_vanished(
            connection, scope.id, row["source"], row["id"], lists_all=row["lists_all"]
        )
    return Import(
        **{
            name: row[name]
            for name in Import.model_fields
            if name in row
            and name not in ("state", "counters", "options", "error_code", "error_text")
        },
        options=json.loads(row["options"]),
        scope=scope.scope,
        state=state,
        counters=counters,
        waiting=documents.waiting_count(connection, row["id"], fingerprint),
        vanished=vanished,
        seconds_left=left,
        error_code=row["error_code"] or (None if failed is None else failed.error_code),
        error_text=row["error_text"] or (None if failed is None else failed.error_text),
        retry_at=job.due_at if job is not None and job.state == "retry_scheduled" else None,
    )
