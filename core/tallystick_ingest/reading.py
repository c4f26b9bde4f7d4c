"""Reading: batch after batch of a source, each stored in one commit with its checkpoint, by a job
or by whoever has the source at hand.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

from tallystick.errors import InvalidInput, TallystickError
from tallystick.memory import MemoryContext
from tallystick.memory.memory_write import MemoryWrite
from tallystick.records import Actor, ImportCounters, ImportState
from tallystick.storage import Connection
from tallystick.storage.rows import source_rows
from tallystick_ingest.contract import (
    CHECKPOINT_BYTES,
    CHECKPOINT_RECORDS,
    Checkpoint,
    Known,
    SourceAdapter,
    SourceRecord,
    Yielded,
)
from tallystick_ingest.pacing import bytes_of
from tallystick_ingest.preparing import Batch, Source, prepare_batch, stored_id
from tallystick_ingest.storing import store_batch

GOES_ON = ("pending", "running")
"""States of an import of which more may be stored."""
_ENDED = ("completed", "failed", "cancelled")
_PATIENCE = 2
"""Times as much as a checkpoint may be apart from the last one, before a source is stopped that
gives none: what it yields is held in memory until then.
"""


class NoCheckpoint(InvalidInput):
    """The adapter of a source yields too much without a checkpoint."""


class Page(NamedTuple):
    """What a source yielded up to a checkpoint."""

    records: list[Yielded]
    cursor: str | None
    share: float | None = None
    """How much of the corpus lies before its end, where its source can tell."""


@dataclass
class Reading:
    """An import as it is read at once, or for as long as a lease of its job."""

    row: Mapping[str, Any]
    source: Source
    adapter: SourceAdapter
    actor: Actor
    made: int = 0
    """Memories that were made or changed."""


class Stored(NamedTuple):
    """What a commit made, and the counters of the import with it."""

    made: int
    counters: ImportCounters
    total: int | None


def pages(context: MemoryContext, reading: Reading) -> Iterator[Page]:
    """Yield what comes after the last checkpoint, up to each further one."""
    adapter, records = reading.adapter, list[Yielded]()
    size, cursor = 0, reading.row["cursor"]
    source = reading.source
    known = known_versions(context, source.scope.id, source.key, is_resync=source.is_resync)
    for each in adapter.records(reading.row["target"], cursor, known):
        if isinstance(each, Checkpoint):
            if records or each.cursor != cursor:
                # One that says nothing new is no progress, and forgives no attempt.
                yield Page(records, each.cursor, each.share)
            records, size, cursor = [], 0, each.cursor
            continue
        records.append(each)
        size += bytes_of(each)
        if len(records) > _PATIENCE * CHECKPOINT_RECORDS or (
            len(records) > 1 and size > _PATIENCE * CHECKPOINT_BYTES
        ):
            raise NoCheckpoint(
                f"{adapter.name} yields more than {CHECKPOINT_RECORDS} records, or "
                f"{CHECKPOINT_BYTES:,} bytes, without a checkpoint."
            )
    if records:
        yield Page(records, None)


def known_versions(
    context: MemoryContext, scope_id: int, source: str, *, is_resync: bool = False
) -> Known:
    """Return what says which version of a record is stored; no record of a source that is read for
    the first time is asked for, nor of one that is read anew.
    """
    database = context.store.database
    with database.read() as connection:
        if is_resync or not source_rows.has_records(connection, scope_id, source):
            return lambda _: None

    def known(record_id: str) -> str | None:
        with database.read() as connection:
            return source_rows.version_of(connection, scope_id, source, stored_id(record_id))

    return known


def prepared_pages(
    context: MemoryContext, reading: Reading
) -> Iterator[Callable[[Connection], Stored | None]]:
    """Yield for each page what stores it with its checkpoint: None where the import was paused or
    ended meanwhile.
    """
    begun = time.monotonic()
    for page in pages(context, reading):
        batch = _prepare_page(context, reading, page)
        now = time.monotonic()
        worked, begun = int((now - begun) * 1_000_000), now
        yield partial(
            _store_page, context=context, reading=reading, batch=batch, page=page, worked=worked
        )


def _prepare_page(context: MemoryContext, reading: Reading, page: Page) -> Batch:
    """Return what the records of a page become, before any transaction."""
    source = reading.source
    names = [stored_id(each.record_id) for each in page.records if isinstance(each, SourceRecord)]
    with context.store.database.read() as connection:
        stored = source_rows.records_by_id(connection, source.scope.id, source.key, names)
    return prepare_batch(context, reading.actor, source, page.records, stored)


def _store_page(
    tx: Connection,
    context: MemoryContext,
    reading: Reading,
    batch: Batch,
    page: Page,
    worked: int,
) -> Stored | None:
    """Store the batch of a page; `worked` are the microseconds that it took."""
    row = source_rows.find_import(tx, reading.row["id"])
    if row is None or row["state"] not in GOES_ON:
        return None
    now = context.store.clock.now()
    write = MemoryWrite(tx, context, reading.actor, now, row["id"])
    stored = store_batch(write, reading.source, batch)
    counters = add_counters(ImportCounters.load(json.loads(row["counters"])), stored.counters)
    total = row["total"]
    if page.share:
        total = max(counters.seen, round(counters.seen / page.share))
    source_rows.update_import(
        tx,
        row["id"],
        state="running",
        cursor=row["cursor"] if page.cursor is None else page.cursor,
        total=total,
        counters=counters.dumps(),
        worked=row["worked"] + worked,
        error_code=None,
        error_text=None,
        updated_at=now,
    )
    return Stored(stored.counters.chunks, counters, total)


def set_state(
    tx: Connection, import_id: str, state: ImportState, now: int, error: BaseException | None = None
) -> None:
    """Note the state of an import, with the error that it is in for."""
    is_own = isinstance(error, TallystickError)
    code = error.code if isinstance(error, TallystickError) else type(error).__name__
    source_rows.update_import(
        tx,
        import_id,
        state=state,
        error_code=None if error is None else code,
        # What others say may hold a text of the source.
        error_text=stored_id(str(error)[:500]) if is_own else None,
        updated_at=now,
        ended_at=now if state in _ENDED else None,
    )


def complete_import(
    tx: Connection, context: MemoryContext, reading: Reading
) -> dict[str, Any] | None:
    """Note that a source was read to its end; return what is said of it, None where the import was
    paused or ended meanwhile.
    """
    row = source_rows.find_import(tx, reading.row["id"])
    if row is None or row["state"] not in GOES_ON:
        return None
    now = context.store.clock.now()
    set_state(tx, row["id"], "completed", now)
    counters = ImportCounters.load(json.loads(row["counters"]))
    details: dict[str, Any] = {"seen": counters.seen, "stored": counters.stored}
    write = MemoryWrite(tx, context, reading.actor, now, row["id"])
    write.journal_event(reading.source.scope.scope, "import.complete", row["id"], details)
    return details


def add_counters(first: ImportCounters, second: ImportCounters) -> ImportCounters:
    """Return the sum of two counts."""
    values: dict[str, Any] = {}
    for name in ImportCounters.model_fields:
        one, other = getattr(first, name), getattr(second, name)
        is_by_reason = isinstance(one, dict)
        values[name] = dict(Counter(one) + Counter(other)) if is_by_reason else one + other
    return ImportCounters(**values)
