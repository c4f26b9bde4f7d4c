"""The outbox: memories whose vectors in Chroma may be out of date. Written with the change of a
scope that is in Chroma (`search.queue_for_index`), trimmed after the drain.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from sqlalchemy import Connection, bindparam, delete, func, select

from tallystick.storage import tables

_o = tables.outbox
_TAKE = select(_o.c.sequence, _o.c.doc).order_by(_o.c.sequence).limit(bindparam("most"))


class Batch(NamedTuple):
    """The oldest entries of the outbox."""

    entries: list[int]
    """Their sequences, for `trim`: one that was given a lower sequence may be committed later."""
    docs: list[int]
    """Each memory once."""


def take(connection: Connection, *, most: int = 200) -> Batch:
    """Return the oldest entries, which may be none. Removes nothing."""
    rows = connection.execute(_TAKE, {"most": most}).all()
    return Batch([row.sequence for row in rows], list(dict.fromkeys(row.doc for row in rows)))


def waiting(connection: Connection, *, most: int | None = None) -> list[int]:
    """Return the memories that wait, by number; up to `most` if it is given."""
    return list(connection.execute(select(_o.c.doc).distinct().limit(most)).scalars())


def trim(tx: Connection, entries: Sequence[int]) -> None:
    """Remove the entries of these sequences, which were drained."""
    if entries:
        tx.execute(delete(_o).where(_o.c.sequence.in_(list(entries))))


def backlog(connection: Connection) -> int:
    """Return the number of entries that wait."""
    return int(connection.execute(select(func.count()).select_from(_o)).scalar() or 0)
