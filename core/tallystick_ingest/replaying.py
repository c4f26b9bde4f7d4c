"""Replaying: one record of a source, read again as it is now."""

from __future__ import annotations

import json
from dataclasses import replace

from tallystick.errors import InvalidInput, NotFound
from tallystick.memory import MemoryContext
from tallystick.memory.memory_write import MemoryWrite
from tallystick.records import Actor, ImportedRecord
from tallystick.storage import Connection
from tallystick.storage.engine.writes import Writes
from tallystick.storage.rows import source_rows
from tallystick_ingest.adapters import open_source
from tallystick_ingest.contract import Checkpoint, Connector
from tallystick_ingest.imports import record_status
from tallystick_ingest.preparing import prepare_batch, source_of, stored_id
from tallystick_ingest.storing import store_batch
from tallystick_ingest.visible import visible_import


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
