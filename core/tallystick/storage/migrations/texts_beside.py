"""The step to schema 0012 in rows: a text that a caller gave names neither a journal nor an answer.

A migration takes it, and an import of what an earlier release exported. It speaks SQL alone and
changes with nothing else, as a migration does.
"""

from __future__ import annotations

import hmac

from sqlalchemy import Connection, text

SCHEMA = "0012"


def upgrade(connection: Connection) -> None:
    """Give threads the journals that they have, and replace idempotency keys by their digests."""
    connection.execute(
        text(
            "UPDATE threads SET stream = 'thread:' || "
            "(SELECT name FROM scopes WHERE scopes.id = threads.scope_id) || '/' || name"
        )
    )
    keys = connection.execute(
        text(
            "SELECT i.scope_id, i.operation, i.key, s.secret FROM idempotency i "
            "JOIN scopes s ON s.id = i.scope_id"
        )
    ).all()
    rows = [
        {
            "scope": row.scope_id,
            "operation": row.operation,
            "key": row.key,
            "digest": _digest(bytes(row.secret), row.key),
        }
        for row in keys
    ]
    if rows:
        connection.execute(
            text(
                "UPDATE idempotency SET key = :digest "
                "WHERE scope_id = :scope AND operation = :operation AND key = :key"
            ),
            rows,
        )


def _digest(secret: bytes, key: str) -> str:
    body = b"tallystick/idempotency-key/v1\x00" + key.encode("utf-8", "surrogatepass")
    return hmac.digest(secret, body, "sha256").hex()[:32]
