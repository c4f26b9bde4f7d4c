"""Idempotent calls: a mutating call under a key is carried out once; the same call again returns
the answer of the first.
"""

from __future__ import annotations

import hmac
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, bindparam, delete, select, update

from tallystick.errors import IdempotencyMismatch, InvalidInput
from tallystick.records import Record, Scope, part_key, require_length
from tallystick.storage.engine import containment, tables
from tallystick.storage.engine.batches import Read
from tallystick.storage.engine.prepared import Prepared, insert_row
from tallystick.storage.engine.writes import require
from tallystick.storage.rows import scopes
from tallystick.storage.rows.scopes import ScopeRow

_i = tables.idempotency
_ANSWER = Prepared(
    select(_i.c.request_digest, _i.c.result).where(
        _i.c.scope_id == bindparam("scope_id"),
        _i.c.operation == bindparam("operation"),
        _i.c.key == bindparam("key"),
    )
)
_KEEP = Prepared(
    insert_row(_i, "scope_id", "operation", "key", "request_digest", "result", "created_at")
)
_REPLACE = Prepared(
    update(_i)
    .where(
        _i.c.scope_id == bindparam("scope_id"),
        _i.c.operation == bindparam("operation"),
        _i.c.key == bindparam("of_key"),
    )
    .values(result=bindparam("new_result"), created_at=bindparam("new_at"))
)
_KEY_DIGITS = 32


@dataclass(frozen=True)
class IdempotentCall:
    """One call with its arguments. Its answer is stored in the transaction of the change, and never
    without it.
    """

    scope: Scope | ScopeRow
    """The scope that stores its answer: of a call that concerns none, the caller's private one."""
    operation: str
    key: str | None
    """None: the call is carried out each time."""
    arguments: Any
    """As JSON or with values that print, or the bytes that stand for them: a key that is used with
    other arguments is refused.
    """

    def answered_ahead(self) -> list[Read]:
        """Return what is read ahead of a unit that calls `read_answer` first, of a scope whose row
        is known. Raises InvalidInput.
        """
        if self.key is None or isinstance(self.scope, Scope):
            return []
        _check_key(self.key)
        return [(_ANSWER, self._place(self.scope, self.key))]

    def read_answer(self, connection: Connection) -> dict[str, Any] | None:
        """Return the answer of the first call, or None. Raises InvalidInput, and
        IdempotencyMismatch where the first call had other arguments.
        """
        if self.key is None:
            return None
        _check_key(self.key)
        scope = self.scope
        if isinstance(scope, Scope):
            rows = scopes.find(connection, [scope])
            if not rows:
                return None
            scope = rows[0]
        rows = _ANSWER(connection, self._place(scope, self.key))
        if not rows:
            return None
        ((request_digest, result),) = rows
        if request_digest != self._request_digest(scope):
            raise IdempotencyMismatch(
                f"The idempotency key {self.key!r} was used before by {self.operation} with other "
                "arguments. Use a new key for a new request."
            )
        answer: dict[str, Any] = json.loads(result)
        return answer

    def keep(self, tx: Connection, answer: Mapping[str, Any] | Record, *, at: int) -> None:
        """Store the answer, until retention removes it."""
        if self.key is None:
            return
        scope = scopes.ensure(tx, self.scope) if isinstance(self.scope, Scope) else self.scope
        # Two calls under one key must wait for one another.
        require(tx, str(scope.scope))
        _KEEP(
            tx,
            {
                **self._place(scope, self.key),
                "request_digest": self._request_digest(scope),
                "result": answer.dumps() if isinstance(answer, Record) else json.dumps(answer),
                "created_at": at,
            },
        )

    def replace(self, tx: Connection, answer: Mapping[str, Any], *, at: int) -> None:
        """Store another answer for a call that has one."""
        if self.key is None:
            return
        scope = scopes.ensure(tx, self.scope) if isinstance(self.scope, Scope) else self.scope
        require(tx, str(scope.scope))
        place = self._place(scope, self.key)
        place["of_key"] = place.pop("key")
        _REPLACE(tx, {**place, "new_result": json.dumps(answer), "new_at": at})

    def _place(self, scope: ScopeRow, key: str) -> dict[str, Any]:
        return {
            "scope_id": scope.id,
            "operation": self.operation,
            "key": _key_digest(scope.secret, key),
        }

    def _request_digest(self, scope: ScopeRow) -> str:
        # Equal bytes for equal calls of all releases: a stored key is compared by this digest.
        request = self.arguments
        if not isinstance(request, bytes):
            request = json.dumps(request, sort_keys=True, default=str).encode()
        return part_key(scope.secret, request)


def _key_digest(secret: bytes, key: str) -> str:
    """Return what a key is stored as: a digest under the key of the scope, because nobody needs to
    read it and it may say anything.
    """
    body = b"tallystick/idempotency-key/v1\x00" + key.encode("utf-8", "surrogatepass")
    return hmac.digest(secret, body, "sha256").hex()[:_KEY_DIGITS]


def _check_key(key: str) -> None:
    """Raise InvalidInput for a key that a database cannot store, or that is blank or too long."""
    require_length("idempotency_key", key)
    if not key.isprintable() or not key.strip():
        raise InvalidInput("An idempotency key is printable text, such as an id of the request.")


def remove_answers_with(
    tx: Connection, needles: Sequence[bytes], *, within: Sequence[int] | None
) -> None:
    """Remove the answers that contain one of `needles`, in these scopes or, for None, in all."""
    tx.execute(delete(_i).where(containment.holds(tx, _i, needles, within)))
