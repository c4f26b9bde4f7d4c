"""Previewing: what a sync would change, read from the source without storing anything."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence

from tallystick.memory import MemoryContext
from tallystick.records import Actor, ImportPreview, JsonObject, Scope, part_key
from tallystick.storage import ScopeRow
from tallystick.storage.rows import scopes, source_rows
from tallystick_ingest.adapters import load_adapter, require_place
from tallystick_ingest.contract import (
    CHECKPOINT_RECORDS,
    Checkpoint,
    Corpus,
    Known,
    Removed,
    Skipped,
    SourceAdapter,
    SourceRecord,
    Unchanged,
    Yielded,
)
from tallystick_ingest.imports import require_private
from tallystick_ingest.preparing import source_key, stored_id
from tallystick_ingest.reading import known_versions

_SECONDS = 60.0
"""For which a source is read at most."""


class _Seen:
    """What a source has, counted by what a sync would do with it."""

    def __init__(self, limit: int) -> None:
        self.counts: Counter[str] = Counter()
        self.skipped: Counter[str] = Counter()
        self.names: dict[str, list[str]] = {"new": [], "changed": [], "vanished": []}
        self.ids: set[str] = set()
        self._limit = limit

    def note(self, kind: str, record_id: str) -> None:
        """Count a record, and name it among the first of its kind."""
        self.counts[kind] += 1
        named = self.names.get(kind)
        if named is not None and len(named) < self._limit:
            named.append(record_id)


def preview_import(
    context: MemoryContext,
    actor: Actor,
    scope: Scope,
    *,
    adapter: str,
    target: str,
    options: JsonObject,
    limit: int,
) -> ImportPreview:
    """Read what a target names and say what an import of it would change; nothing is stored. Raises
    as `start_import`, and what the source raises.
    """
    require_private(context, actor, scope)
    reader = load_adapter(context.settings, adapter, options)
    place = require_place(context.settings, actor, adapter, reader, target, options)
    corpus = reader.corpus(place)
    with context.store.database.read() as connection:
        found = scopes.find(connection, [scope])
    row = found[0] if found else None
    key = None if row is None else source_key(row.secret, adapter, corpus.id)
    seen = _Seen(limit)
    is_whole = _read(context, reader, place, corpus, row, key, seen)
    if row is not None and key is not None and is_whole:
        with context.store.database.read() as connection:
            stored = source_rows.ids_of_source(connection, row.id, key)
        for record_id, is_gone in stored:
            # One that a feed says is gone was noted when it was read.
            is_read = record_id in seen.ids
            if not is_read and (is_gone or corpus.lists_all):
                seen.note("vanished", record_id)
    context.gate.log_read(actor, "source", [scope], results=sum(seen.counts.values()))
    return ImportPreview(
        adapter=adapter,
        target=place,
        title=corpus.title or place,
        new=seen.counts["new"],
        changed=seen.counts["changed"],
        unchanged=seen.counts["unchanged"],
        vanished=seen.counts["vanished"],
        skipped=dict(seen.skipped),
        new_records=tuple(seen.names["new"]),
        changed_records=tuple(seen.names["changed"]),
        vanished_records=tuple(seen.names["vanished"]),
        is_whole=is_whole,
    )


def _read(
    context: MemoryContext,
    reader: SourceAdapter,
    place: str,
    corpus: Corpus,
    row: ScopeRow | None,
    key: str | None,
    seen: _Seen,
) -> bool:
    """Note what a source has; return False where it takes too long to be read to its end."""
    cursor = None
    if row is not None and key is not None and not corpus.lists_all:
        with context.store.database.read() as connection:
            last = source_rows.last_import(connection, row.id, key, ["completed"])
        cursor = None if last is None else last["cursor"]
    known: Known = lambda _: None
    if row is not None and key is not None:
        known = known_versions(context, row.id, key)
    until = time.monotonic() + _SECONDS
    page: list[SourceRecord] = []
    for each in reader.records(place, cursor, known):
        if isinstance(each, Checkpoint):
            continue
        seen.ids.add(stored_id(each.record_id))
        if isinstance(each, SourceRecord):
            page.append(each)
        else:
            _note(seen, each)
        if len(page) == CHECKPOINT_RECORDS:
            _compare(context, row, key, page, seen)
            page = []
        if time.monotonic() > until:
            _compare(context, row, key, page, seen)
            return False
    _compare(context, row, key, page, seen)
    return True


def _note(seen: _Seen, each: Yielded) -> None:
    if isinstance(each, Unchanged):
        seen.note("unchanged", each.record_id)
    elif isinstance(each, Removed):
        seen.note("vanished", stored_id(each.record_id))
    elif isinstance(each, Skipped):
        seen.skipped[each.reason] += 1


def _compare(
    context: MemoryContext,
    row: ScopeRow | None,
    key: str | None,
    page: Sequence[SourceRecord],
    seen: _Seen,
) -> None:
    """Note records by what is stored of them: one that says the same under another version, or
    another name, changes nothing.
    """
    stored: dict[str, source_rows.StoredRecord] = {}
    digests, saying = [""] * len(page), dict[str, str]()
    if row is not None and key is not None:
        digests = [
            part_key(row.secret, each.dedupe_key.encode("utf-8", "surrogatepass")) for each in page
        ]
        with context.store.database.read() as connection:
            names = [stored_id(each.record_id) for each in page]
            stored = source_rows.records_by_id(connection, row.id, key, names)
            saying = source_rows.documents_saying(connection, row.id, digests)
    for each, digest in zip(page, digests, strict=True):
        name = stored_id(each.record_id)
        before = stored.get(name)
        is_there = before is not None and before.document_id is not None
        if before is not None and before.dedupe == digest and not before.is_gone:
            seen.note("unchanged", name)
        elif is_there:
            seen.note("changed", name)
        else:
            seen.note("unchanged" if digest in saying else "new", name)
