"""The outbox: which vectors in Chroma may be out of date. Written with the change, trimmed after
the drain.
"""

from __future__ import annotations

from collections.abc import Iterable

from sqlalchemy import Connection, bindparam, delete, func, select

from tallystick.storage import tables
from tallystick.storage.prepared import Prepared, insert_row

__all__ = ["append", "backlog", "take", "trim", "waiting"]

_o = tables.outbox
_APPEND = Prepared(insert_row(_o, "doc"))
_TAKE = select(_o.c.sequence, _o.c.doc).order_by(_o.c.sequence).limit(bindparam("most"))
_TRIM = delete(_o).where(_o.c.sequence <= bindparam("sequence"))


def append(tx: Connection, docs: Iterable[int]) -> None:
    """Say that the vectors of `docs` changed, appeared or went, in the transaction that did it."""
    rows = [{"doc": doc} for doc in docs]
    if rows:
        _APPEND(tx, rows[0] if len(rows) == 1 else rows)


def take(connection: Connection, *, most: int = 200) -> tuple[int, list[int]]:
    """The oldest entries as (last sequence, distinct docs); (0, []) when there are none. Removes
    nothing.
    """
    rows = connection.execute(_TAKE, {"most": most}).all()
    return (rows[-1].sequence, list(dict.fromkeys(row.doc for row in rows))) if rows else (0, [])


def waiting(connection: Connection) -> list[int]:
    """Every doc that waits."""
    return list(connection.execute(select(_o.c.doc).distinct()).scalars())


def trim(tx: Connection, sequence: int) -> None:
    """Remove what was drained, up to and with `sequence`."""
    tx.execute(_TRIM, {"sequence": sequence})


def backlog(connection: Connection) -> int:
    """How many entries wait."""
    return int(connection.execute(select(func.count()).select_from(_o)).scalar() or 0)
