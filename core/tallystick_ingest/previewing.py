"""Previewing: what a sync would change, read from the source without storing anything."""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import dataclass, field

from tallystick.memory import MemoryContext
from tallystick.records import Actor, ImportPreview, JsonObject, Scope
from tallystick.storage import ScopeRow
from tallystick.storage.rows import scopes, source_rows
from tallystick_ingest.adapters import open_source
from tallystick_ingest.contract import (
    CHECKPOINT_RECORDS,
    Checkpoint,
    Corpus,
    Removed,
    Skipped,
    SourceAdapter,
    SourceRecord,
    Unchanged,
)
from tallystick_ingest.imports import feed_cursor, require_private
from tallystick_ingest.preparing import digest_of, is_same, source_key, stored_id
from tallystick_ingest.reading import known_versions
from tallystick_ingest.storing import has_other_files

_SECONDS = 60.0
"""For which a source is read at most."""


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
    reader, place = open_source(context.settings, actor, adapter, target, options)
    corpus = reader.corpus(place)
    with context.store.database.read() as connection:
        found = scopes.find(connection, [scope])
    # Of a scope that nobody has written to nothing is stored: no row has its number.
    row = found[0] if found else ScopeRow(0, scope, b"")
    key = source_key(row.secret, adapter, corpus.id)
    preview = _Preview(context, row, key, limit)
    is_whole = preview.read(reader, place, corpus)
    if is_whole:
        preview.note_vanished(lists_all=corpus.lists_all)
    counts, names = preview.counts, preview.names
    context.gate.log_read(actor, "source", [scope], results=sum(counts.values()))
    return ImportPreview(
        adapter=adapter,
        target=place,
        title=corpus.title or place,
        new=counts["new"],
        changed=counts["changed"],
        unchanged=counts["unchanged"],
        vanished=counts["vanished"],
        skipped=dict(preview.skipped),
        new_records=tuple(names["new"]),
        changed_records=tuple(names["changed"]),
        vanished_records=tuple(names["vanished"]),
        is_whole=is_whole,
    )


@dataclass
class _Preview:
    """What a source has, counted by what a sync would do with it."""

    context: MemoryContext
    scope: ScopeRow
    key: str
    limit: int
    counts: Counter[str] = field(default_factory=Counter)
    skipped: Counter[str] = field(default_factory=Counter)
    names: dict[str, list[str]] = field(
        default_factory=lambda: {"new": [], "changed": [], "vanished": []}
    )
    ids: set[str] = field(default_factory=set)

    def read(self, reader: SourceAdapter, place: str, corpus: Corpus) -> bool:
        """Note what a source has; return False where it takes too long to be read to its end."""
        with self.context.store.database.read() as connection:
            cursor = feed_cursor(connection, self.scope.id, self.key, corpus)
        until = time.monotonic() + _SECONDS
        known = known_versions(self.context, self.scope.id, self.key)
        page: list[SourceRecord] = []
        for each in reader.records(place, cursor, known):
            if isinstance(each, Checkpoint):
                continue
            name = stored_id(each.record_id)
            self.ids.add(name)
            if isinstance(each, SourceRecord):
                page.append(each)
            elif isinstance(each, Unchanged):
                self._note("unchanged", name)
            elif isinstance(each, Removed):
                self._note("vanished", name)
            elif isinstance(each, Skipped):
                self.skipped[each.reason] += 1
            is_late = time.monotonic() > until
            if is_late or len(page) == CHECKPOINT_RECORDS:
                self._compare(page)
                page = []
            if is_late:
                return False
        self._compare(page)
        return True

    def note_vanished(self, *, lists_all: bool) -> None:
        """Note what is stored of a source that was read to its end, and that it has no more."""
        with self.context.store.database.read() as connection:
            stored = source_rows.ids_of_source(connection, self.scope.id, self.key)
        for record_id, is_gone in stored:
            # One that a feed says is gone was noted when it was read.
            if record_id not in self.ids and (is_gone or lists_all):
                self._note("vanished", record_id)

    def _note(self, kind: str, record_id: str) -> None:
        """Count a record, and name it among the first of its kind."""
        self.counts[kind] += 1
        named = self.names.get(kind)
        if named is not None and len(named) < self.limit:
            named.append(record_id)

    def _compare(self, page: list[SourceRecord]) -> None:
        """Note records by what is stored of them: one that says the same under another version, or
        another name, changes nothing, unless its attachments differ.
        """
        names = [stored_id(each.record_id) for each in page]
        digests = [digest_of(self.scope, each) for each in page]
        with self.context.store.database.read() as connection:
            stored = source_rows.records_by_id(connection, self.scope.id, self.key, names)
            saying = source_rows.documents_saying(connection, self.scope.id, digests)
            same = {
                name
                for name, digest, each in zip(names, digests, page, strict=True)
                if (before := stored.get(name)) is not None
                and before.dedupe == digest
                and not before.is_gone
                and (
                    is_same(before, each.version)
                    or before.document_id is None
                    or not has_other_files(connection, before.document_id, each.attachments)
                )
            }
        for name, digest in zip(names, digests, strict=True):
            before = stored.get(name)
            if name in same:
                self._note("unchanged", name)
            elif before is not None and before.document_id is not None:
                self._note("changed", name)
            else:
                self._note("unchanged" if digest in saying else "new", name)
