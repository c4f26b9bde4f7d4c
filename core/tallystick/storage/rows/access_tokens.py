"""Access tokens as rows, each with the digest of what its caller sends."""

from __future__ import annotations

from sqlalchemy import Connection, bindparam, insert, select, update

from tallystick.records import AccessToken
from tallystick.storage.engine import tables
from tallystick.storage.engine.prepared import Prepared

_t = tables.access_tokens
_OF = Prepared(select(_t.c.body).where(_t.c.digest == bindparam("digest")))
_FIND = Prepared(select(_t.c.body).where(_t.c.id == bindparam("id")))
_ALL = select(_t.c.body).order_by(_t.c.created_at.desc(), _t.c.id.desc())


def add(tx: Connection, token: AccessToken, digest: str) -> None:
    """Write a new token under the digest of its secret."""
    tx.execute(insert(_t), {"id": token.id, "digest": digest, **_row(token)})


def replace(tx: Connection, token: AccessToken) -> None:
    """Write `token` over its earlier state; its digest stays."""
    tx.execute(update(_t).where(_t.c.id == token.id).values(**_row(token)))


def of_digest(connection: Connection, digest: str) -> AccessToken | None:
    """Return the token of a secret, in whatever state it is, or None."""
    rows = _OF(connection, {"digest": digest})
    return AccessToken.loads(rows[0][0]) if rows else None


def find(connection: Connection, token_id: str) -> AccessToken | None:
    """Return one token, or None: the caller decides who may see it."""
    rows = _FIND(connection, {"id": token_id})
    return AccessToken.loads(rows[0][0]) if rows else None


def all_tokens(connection: Connection) -> list[AccessToken]:
    """Return every token, newest first: the caller decides who may see it."""
    return [AccessToken.loads(body) for body in connection.execute(_ALL).scalars()]


def _row(token: AccessToken) -> dict[str, object]:
    return {"body": token.dumps(), "created_at": token.created_at, "expires_at": token.expires_at}
