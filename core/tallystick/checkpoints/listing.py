"""Listing checkpoints, greatest id first: pages by key, filters compared by fingerprints in SQL and
then exactly.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from tallystick.checkpoints.context import ThreadScope
from tallystick.checkpoints.formats import Frame
from tallystick.checkpoints.metadata_filter import filter_fingerprints, matches
from tallystick.checkpoints.reading import (
    check_checkpoint,
    load_values,
    pending_writes,
    values_reader,
    writes_at,
)
from tallystick.checkpoints.stored import StoredCheckpoint, Summary
from tallystick.storage.rows import checkpoints
from tallystick.storage.rows.checkpoints import StateRow

_PAGE = 50
"""Checkpoints that one query reads."""


@dataclass(frozen=True)
class CheckpointQuery:
    """Restrictions on the checkpoints of a listing; None restricts nothing."""

    thread: str | None
    namespace: str | None = None
    id: str | None = None
    before: str | None = None
    limit: int | None = None
    filter: Mapping[str, Any] = field(default_factory=dict)


class _Match(NamedTuple):
    state: StateRow
    summary: Summary
    frame: Frame


def list_checkpoints(scope: ThreadScope, query: CheckpointQuery) -> Iterator[StoredCheckpoint]:
    """Yield checkpoints with their pending writes; their state is read on first access."""
    for state, summary, frame in _matches(scope, query):
        with scope.store.database.read() as connection:
            writes = writes_at(scope, connection, summary.thread, state)
            values = load_values(connection, scope.cache, [write.frame.roots for write in writes])
        yield StoredCheckpoint(
            summary,
            frame.body,
            pending_writes(writes, values, scope.codec),
            values_reader(scope, frame),
        )


def list_summaries(scope: ThreadScope, query: CheckpointQuery) -> Iterator[Summary]:
    """Same as `list_checkpoints`, without state and writes, of which nothing is read."""
    for match in _matches(scope, query):
        yield match.summary


def _matches(scope: ThreadScope, query: CheckpointQuery) -> Iterator[_Match]:
    remaining = query.limit
    if remaining is not None and remaining <= 0:
        return
    fingerprints = filter_fingerprints(query.filter, scope.codec)
    for name in _thread_names(scope, query):
        after: tuple[str, str] | None = None
        while True:
            size = _PAGE if remaining is None else min(_PAGE, remaining)
            with scope.store.database.read() as connection:
                row = scope.find_thread(connection, name)
                page = (
                    []
                    if row is None
                    else checkpoints.page(
                        connection,
                        row.id,
                        namespace=query.namespace,
                        id=query.id,
                        before=query.before,
                        after=after,
                        fingerprints=fingerprints,
                        size=size,
                    )
                )
            for state in page:
                summary, frame = check_checkpoint(scope, name, state)
                if not matches(summary.metadata, query.filter):
                    continue
                yield _Match(state, summary, frame)
                if remaining is not None:
                    remaining -= 1
                    if remaining <= 0:
                        return
            if len(page) < size:
                break
            after = (page[-1].id, page[-1].namespace)


def _thread_names(scope: ThreadScope, query: CheckpointQuery) -> list[str]:
    if query.thread is not None:
        return [query.thread]
    with scope.store.database.read() as connection:
        return checkpoints.thread_names(connection, scope.id)
