"""Listing checkpoints, greatest id first: pages by key, filters compared by marks in SQL and then
exactly.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from tallystick.checkpoints.checked import checked_state, joined, read_later, writes_at
from tallystick.checkpoints.desk import Desk
from tallystick.checkpoints.frames import Frame
from tallystick.checkpoints.loading import load_values
from tallystick.checkpoints.marks import matches, sought
from tallystick.checkpoints.stored import StoredCheckpoint, Summary
from tallystick.storage import checkpoints
from tallystick.storage.checkpoints import StateRow

__all__ = ["Asked", "listed", "summaries"]

_PAGE = 50


@dataclass(frozen=True)
class Asked:
    """Which checkpoints are asked for; what is None asks for all."""

    thread: str | None
    namespace: str | None = None
    id: str | None = None
    before: str | None = None
    limit: int | None = None
    filter: Mapping[str, Any] = field(default_factory=dict)


def listed(desk: Desk, asked: Asked) -> Iterator[StoredCheckpoint]:
    """Checkpoints with their pending writes; their state is read when it is asked for."""
    for state, summary, frame in _found(desk, asked):
        with desk.store.database.read() as connection:
            waiting = writes_at(desk, connection, summary.thread, state)
            more = load_values(connection, desk.scope_cache, [one.roots for _, one in waiting])
        yield StoredCheckpoint(
            summary, frame.body, joined(waiting, more, desk.codec), read_later(desk, frame)
        )


def summaries(desk: Desk, asked: Asked) -> Iterator[Summary]:
    """Same as `listed`, without state and writes, of which nothing is read."""
    for _, summary, _ in _found(desk, asked):
        yield summary


def _found(desk: Desk, asked: Asked) -> Iterator[tuple[StateRow, Summary, Frame]]:
    left = asked.limit
    if left is not None and left <= 0:
        return
    marks = sought(asked.filter, desk.codec)
    for name in _names(desk, asked):
        after: tuple[str, str] | None = None
        while True:
            size = _PAGE if left is None else min(_PAGE, left)
            with desk.store.database.read() as connection:
                row = desk.thread(connection, name)
                page = (
                    []
                    if row is None
                    else checkpoints.page(
                        connection,
                        row.id,
                        namespace=asked.namespace,
                        id=asked.id,
                        before=asked.before,
                        after=after,
                        marks=marks,
                        size=size,
                    )
                )
            for state in page:
                summary, frame = checked_state(desk, name, state)
                if not matches(summary.metadata, asked.filter):
                    continue
                yield state, summary, frame
                if left is not None:
                    left -= 1
                    if left <= 0:
                        return
            if len(page) < size:
                break
            after = (page[-1].id, page[-1].namespace)


def _names(desk: Desk, asked: Asked) -> list[str]:
    if asked.thread is not None:
        return [asked.thread]
    with desk.store.database.read() as connection:
        return checkpoints.thread_names(connection, desk.scope_cache.scope.id)
