"""The log of allowed reads: outside the chain, written in batches."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import Connection, insert, select

from tallystick.storage import tables

__all__ = ["append", "recent"]

_INSERT = insert(tables.access_log)


def append(tx: Connection, reads: Sequence[dict[str, Any]]) -> None:
    """Write rows of the log."""
    if reads:
        tx.execute(_INSERT, list(reads))


def recent(connection: Connection, *, limit: int) -> list[dict[str, Any]]:
    """Return the newest rows, newest first."""
    query = select(tables.access_log).order_by(tables.access_log.c.id.desc()).limit(limit)
    return [dict(row._mapping) for row in connection.execute(query)]
