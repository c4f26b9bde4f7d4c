"""Once: a mutating call under an idempotency key is done once; the same call again gives the answer
of the first.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection

from tallystick.records import Scope, part_key
from tallystick.storage import scopes, settings_rows
from tallystick.storage.scopes import ScopeRow

__all__ = ["Once"]


@dataclass(frozen=True)
class Once:
    """One call as it was asked for. Its answer is kept in the transaction of the change, and never
    without it.
    """

    scope: Scope
    """Where its answer is kept: of a call that concerns no scope, the private one of who calls."""
    operation: str
    key: str | None
    """None: the call is done each time."""
    asked: Any
    """Its arguments, as JSON or with values that print: a key that is used with others is refused.
    """

    def answered(self, connection: Connection) -> dict[str, Any] | None:
        """What it answered the first time, or None. Raises IdempotencyMismatch, InvalidInput."""
        if self.key is None:
            return None
        settings_rows.check_key(self.key)
        row = next(iter(scopes.find(connection, [self.scope])), None)
        if row is None:
            return None
        return settings_rows.first_answer(
            connection, row.id, self.operation, self.key, self._request(row)
        )

    def keep(self, tx: Connection, answer: Mapping[str, Any], *, at: int) -> None:
        """Keep what it answers, until retention takes it."""
        if self.key is None:
            return
        row = scopes.ensure(tx, self.scope)
        request = self._request(row)
        settings_rows.keep_answer(
            tx, row.id, self.operation, self.key, request, json.dumps(answer), at=at
        )

    def _request(self, row: ScopeRow) -> str:
        return part_key(row.secret, json.dumps(self.asked, sort_keys=True, default=str).encode())
