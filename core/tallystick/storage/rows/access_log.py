"""The log of allowed reads: outside the chain, written in batches."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import Connection, insert, select

from tallystick.storage.engine import tables

_INSERT = insert(tables.access_log)


def append(tx: Connection, reads: Sequence[dict[str, Any]]) -> None:
    """Write rows of the log."""
    if reads:
        tx.execute(_INSERT, list(reads))


def recent(
    connection: Connection, *, limit: int, before: int | None = None, operation: str | None = None
) -> list[dict[str, Any]]:
    """Return the newest rows, or those before one, of an operation or of all; newest first."""
    columns = tables.access_log.c
    query = select(tables.access_log).order_by(columns.id.desc()).limit(limit)
    if before is not None:
        query = query.where(columns.id < before)
    if operation is not None:
        query = query.where(columns.operation == operation)
    return [dict(row._mapping) for row in connection.execute(query)]
