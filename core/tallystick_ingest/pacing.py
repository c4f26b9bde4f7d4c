"""Pacing: checkpoints between the records of an adapter, as often as the contract asks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from tallystick_ingest.contract import (
    CHECKPOINT_BYTES,
    Checkpoint,
    SourceRecord,
    Yielded,
)

Cursor = str | Callable[[], str]
"""A cursor, or what writes it: one that is long is only written where a checkpoint is."""

_RECORDS = 25
"""Records between two checkpoints: one that is killed reads half as many again, on average."""


def with_checkpoints(
    items: Iterable[tuple[Cursor, Yielded | None]],
    start: Cursor | None = None,
    *,
    share_before: Callable[[str], float | None] = lambda _: None,
) -> Iterator[Yielded]:
    """Yield items with checkpoints between them, and one at the end.

    Each item comes with the cursor of the place behind it; None moves the cursor alone. `start` is
    the cursor of the place before the first: without it and without an item nothing is yielded.
    `share_before` tells from a cursor how much of the corpus lies before it, from 0 to 1.
    """

    def checkpoint(place: Cursor) -> Checkpoint:
        written = place if isinstance(place, str) else place()
        return Checkpoint(written, share_before(written))

    cursor, records, size = start, 0, 0
    for behind, item in items:
        if item is not None:
            weight = bytes_of(item)
            if records == _RECORDS or (records and size + weight > CHECKPOINT_BYTES):
                if cursor is not None:
                    yield checkpoint(cursor)
                records = size = 0
            yield item
            records, size = records + 1, size + weight
        cursor = behind
    if cursor is not None:
        yield checkpoint(cursor)


def bytes_of(item: Yielded) -> int:
    """Return the bytes of a record's body and attachments; a character of a text counts as one."""
    if not isinstance(item, SourceRecord):
        return 0
    return len(item.body) + sum(len(each.content or b"") for each in item.attachments)
