"""Small keyed values: what the tally knows of itself, and the first answers of idempotent calls."""

from __future__ import annotations

import json
from typing import Any

from sqlalchemy import Connection, bindparam, insert, select
from sqlalchemy.dialects import postgresql, sqlite

from tallystick.errors import IdempotencyMismatch, InvalidInput
from tallystick.storage import tables
from tallystick.storage.prepared import Prepared

__all__ = ["check_key", "first_answer", "get_setting", "keep_answer", "set_setting"]

_s = tables.settings
_i = tables.idempotency
_GET = Prepared(select(_s.c.value).where(_s.c.name == bindparam("name")))
_ANSWER = select(_i.c.request_digest, _i.c.result).where(
    _i.c.scope_id == bindparam("scope_id"),
    _i.c.operation == bindparam("operation"),
    _i.c.key == bindparam("key"),
)
_KEEP = insert(_i)


def get_setting(connection: Connection, name: str) -> str | None:
    """One value that the tally keeps of itself."""
    found = _GET(connection, {"name": name})
    return found[0][0] if found else None


def set_setting(tx: Connection, name: str, value: str) -> None:
    """Keep one value, replacing what was there."""
    statement = (postgresql if tx.dialect.name == "postgresql" else sqlite).insert(_s)
    tx.execute(
        statement.on_conflict_do_update(
            index_elements=["name"], set_={"value": statement.excluded.value}
        ),
        {"name": name, "value": value},
    )


def check_key(key: str) -> None:
    """Raise InvalidInput for what no database keeps as a key, or what says nothing of a request."""
    if not key.isprintable() or not key.strip():
        raise InvalidInput("An idempotency key is printable text, such as an id of the request.")


def first_answer(
    connection: Connection, scope_id: int, operation: str, key: str, request_digest: str
) -> dict[str, Any] | None:
    """What this call answered the first time, or None. Raises InvalidInput; IdempotencyMismatch for
    other arguments.
    """
    check_key(key)
    row = connection.execute(
        _ANSWER, {"scope_id": scope_id, "operation": operation, "key": key}
    ).first()
    if row is None:
        return None
    if row.request_digest != request_digest:
        raise IdempotencyMismatch(
            f"The idempotency key {key!r} was used before by {operation} with other arguments. "
            "Use a new key for a new request."
        )
    answer: dict[str, Any] = json.loads(row.result)
    return answer


def keep_answer(
    tx: Connection,
    scope_id: int,
    operation: str,
    key: str,
    request_digest: str,
    result: str,
    *,
    at: int,
) -> None:
    """Keep the answer of a call so that the same call again gives the same answer and changes
    nothing.
    """
    tx.execute(
        _KEEP,
        {
            "scope_id": scope_id,
            "operation": operation,
            "key": key,
            "request_digest": request_digest,
            "result": result,
            "created_at": at,
        },
    )
