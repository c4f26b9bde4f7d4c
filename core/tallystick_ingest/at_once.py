"""At once: an import by a source that only this process has, without a job."""

from __future__ import annotations

from collections.abc import Callable

from tallystick.errors import NotFound
from tallystick.memory import MemoryContext
from tallystick.memory.memory_write import MemoryWrite
from tallystick.records import Actor, Import, Scope
from tallystick.storage import Connection
from tallystick.storage.engine.writes import Writes
from tallystick.storage.rows import scopes, source_rows
from tallystick_ingest.contract import SourceAdapter
from tallystick_ingest.imports import get_import, import_values, new_import, require_private
from tallystick_ingest.preparing import source_key, source_of
from tallystick_ingest.reading import Reading, complete_import, prepared_pages, set_state


def import_at_once(
    context: MemoryContext, actor: Actor, scope: Scope, adapter: SourceAdapter, target: str
) -> Import:
    """Import what a target names by an adapter that is at hand; return the import as it ended.

    What is stored when it fails stays; begun anew, only what is new or differs is stored. Raises
    Denied, and what the adapter raises.
    """
    require_private(context, actor, scope)
    with context.gate.journaling(actor):
        reading = _begin(context, actor, scope, adapter, target)
        try:
            _read(context, reading)
        except BaseException as error:
            _fail(context, reading, error)
            raise
    return get_import(context, actor, reading.row["id"])


def _begin(
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


def _read(context: MemoryContext, reading: Reading) -> None:
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


def _fail(context: MemoryContext, reading: Reading, error: BaseException) -> None:
    import_id = reading.row["id"]

    def unit(tx: Connection) -> None:
        row = source_rows.find_import(tx, import_id)
        if row is not None and row["state"] == "running":
            set_state(tx, import_id, "failed", context.store.clock.now(), error)

    scope = reading.source.scope.scope
    context.store.database.write(unit, name="import.fail", writes=Writes.of(scope))
