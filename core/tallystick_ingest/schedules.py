"""Schedules: imports that begin by themselves, at the moments of a schedule of cron."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tallystick.memory import MemoryContext
from tallystick.memory.memory_write import MemoryWrite
from tallystick.storage import Connection
from tallystick.storage.engine.writes import JOBS, Writes
from tallystick.storage.rows import scopes, source_rows
from tallystick.storage.rows.job_list import acting_in
from tallystick_ingest.imports import IMPORT, new_import, next_due


def start_due(context: MemoryContext) -> int:
    """Start the imports that are due by their schedules, each with the authority of who gave it;
    return their number. One whose source is still read waits for its next moment.
    """
    now = context.store.clock.now()
    with context.store.database.read() as connection:
        due = source_rows.due_imports(connection, now)
    return sum(_start(context, row) for row in due)


def _start(context: MemoryContext, due: Mapping[str, Any]) -> bool:
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

    if actor is None:
        return store.database.write(unit, name="import.start", writes=Writes.of(scope.scope, JOBS))
    with context.gate.journaling(actor):
        return store.database.write(unit, name="import.start", writes=Writes.of(scope.scope, JOBS))
