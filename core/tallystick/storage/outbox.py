"""The outbox: memories whose vectors in Chroma may be out of date. Written with the change
(`search.queue_for_index`), trimmed after the drain.
"""

from __future__ import annotations

from typing import NamedTuple

from sqlalchemy import Connection, bindparam, delete, func, select

from tallystick.storage import tables

__all__ = ["Batch", "backlog", "take", "trim", "waiting"]

_o = tables.outbox
_TAKE = select(_o.c.sequence, _o.c.doc).order_by(_o.c.sequence).limit(bindparam("most"))
_TRIM = delete(_o).where(_o.c.sequence <= bindparam("sequence"))


class Batch(NamedTuple):
    """The oldest entries of the outbox."""

    last: int
    """The sequence of the last of them, for `trim`."""
    docs: list[int]
    """Each memory once."""


def take(connection: Connection, *, most: int = 200) -> Batch:
    """Return the oldest entries; (0, []) without any. Removes nothing."""
    rows = connection.execute(_TAKE, {"most": most}).all()
    if not rows:
        return Batch(0, [])
    return Batch(rows[-1].sequence, list(dict.fromkeys(row.doc for row in rows)))


def waiting(connection: Connection, *, most: int | None = None) -> list[int]:
    """Return the memories that wait, by number; up to `most` if it is given."""
    return list(connection.execute(select(_o.c.doc).distinct().limit(most)).scalars())


def trim(tx: Connection, sequence: int) -> None:
    """Remove the entries up to and with `sequence`, which were drained."""
    tx.execute(_TRIM, {"sequence": sequence})


def backlog(connection: Connection) -> int:
    """Return the number of entries that wait."""
    return int(connection.execute(select(func.count()).select_from(_o)).scalar() or 0)
