"""Idempotent calls: a mutating call under a key is carried out once; the same call again returns
the answer of the first.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, bindparam, delete, insert, select

from tallystick.errors import IdempotencyMismatch, InvalidInput
from tallystick.records import Scope, part_key
from tallystick.storage import byte_search, scopes, tables
from tallystick.storage.scopes import ScopeRow

__all__ = ["IdempotentCall", "check_key", "first_answer", "keep_answer", "remove_answers_with"]

_i = tables.idempotency
_ANSWER = select(_i.c.request_digest, _i.c.result).where(
    _i.c.scope_id == bindparam("scope_id"),
    _i.c.operation == bindparam("operation"),
    _i.c.key == bindparam("key"),
)
_KEEP = insert(_i)


@dataclass(frozen=True)
class IdempotentCall:
    """One call with its arguments. Its answer is stored in the transaction of the change, and never
    without it.
    """

    scope: Scope
    """The scope that stores its answer: of a call that concerns none, the caller's private one."""
    operation: str
    key: str | None
    """None: the call is carried out each time."""
    arguments: Any
    """As JSON or with values that print: a key that is used with other arguments is refused."""

    def answered(self, connection: Connection) -> dict[str, Any] | None:
        """Return the answer of the first call, or None. Raises IdempotencyMismatch,
        InvalidInput.
        """
        if self.key is None:
            return None
        check_key(self.key)
        row = next(iter(scopes.find(connection, [self.scope])), None)
        if row is None:
            return None
        return first_answer(connection, row.id, self.operation, self.key, self._request(row))

    def keep(self, tx: Connection, answer: Mapping[str, Any], *, at: int) -> None:
        """Store the answer, until retention removes it."""
        if self.key is None:
            return
        row = scopes.ensure(tx, self.scope)
        keep_answer(
            tx, row.id, self.operation, self.key, self._request(row), json.dumps(answer), at=at
        )

    def _request(self, row: ScopeRow) -> str:
        request = json.dumps(self.arguments, sort_keys=True, default=str)
        return part_key(row.secret, request.encode())


def check_key(key: str) -> None:
    """Raise InvalidInput for a key that a database cannot store, or that is blank."""
    if not key.isprintable() or not key.strip():
        raise InvalidInput("An idempotency key is printable text, such as an id of the request.")


def first_answer(
    connection: Connection, scope_id: int, operation: str, key: str, request_digest: str
) -> dict[str, Any] | None:
    """Return the answer of the first call under this key, or None. Raises InvalidInput, and
    IdempotencyMismatch where the first call had other arguments.
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
    """Store the answer of a call, so that the same call again returns it and changes nothing."""
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


def remove_answers_with(
    tx: Connection, needles: Sequence[bytes], *, within: Sequence[int] | None
) -> None:
    """Remove the answers of which the key or the result contains one of `needles`, in these scopes
    or, for None, in all.
    """
    for column in (_i.c.key, _i.c.result):
        tx.execute(delete(_i).where(byte_search.contains_within(tx, column, needles, within)))
