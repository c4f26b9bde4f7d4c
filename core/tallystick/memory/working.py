"""Working memory: the values that one run keeps beside its memories. Overwritten in place, gone
when they expire.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from tallystick.errors import InvalidInput
from tallystick.memory.context import MemoryContext
from tallystick.records import LAST_MOMENT, AccessKind, Actor, Json, Scope, is_storable
from tallystick.storage import Connection, journal, scopes, working
from tallystick.storage.idempotency import IdempotentCall

__all__ = ["WorkingMemory"]

_DAY = 24 * 3600


class WorkingMemory:
    """The values that a run keeps under names. Thread-safe. No recall finds them, and they have no
    versions.
    """

    def __init__(self, context: MemoryContext, actor: Actor, scope: Scope, run_id: str) -> None:
        self._context, self._actor, self._scope, self._run_id = context, actor, scope, run_id

    @property
    def run_id(self) -> str:
        """The run whose values these are."""
        return self._run_id

    def set(
        self, name: str, value: Json, *, seconds: int = _DAY, idempotency_key: str | None = None
    ) -> None:
        """Keep `value` under `name` for `seconds`, in place of any other. Raises Denied,
        InvalidInput.

        Under a key that was used before nothing changes, whatever the value is by now;
        IdempotencyMismatch is raised where it was used for something else.
        """
        now = self._context.store.clock.now()
        if (
            not name.strip()
            or not is_storable(name)
            or not 1 <= seconds <= (LAST_MOMENT - now) // 1_000_000
        ):
            raise InvalidInput(
                "A value is kept under a name, for one second at least, and not beyond the year "
                "9999."
            )
        try:
            body = json.dumps(value, ensure_ascii=False, allow_nan=False)
            body.encode()
        except (TypeError, ValueError, RecursionError) as error:
            raise InvalidInput(
                "A value of working memory is JSON: text, numbers, lists and objects."
            ) from error
        self._context.gate.require(self._actor, "write", self._scope)
        call = IdempotentCall(
            self._scope, "working.set", idempotency_key, [self._run_id, name, body, seconds]
        )

        def unit(tx: Connection) -> None:
            self._context.gate.confirm(tx, self._actor, "write", self._scope)
            if call.answered(tx) is not None:
                return
            row, now = scopes.ensure(tx, self._scope), self._context.store.clock.now()
            working.put(
                tx,
                row.id,
                self._run_id,
                name,
                body,
                created_by=self._actor.user,
                at=now,
                expires_at=now + seconds * 1_000_000,
            )
            self._note(tx, "working.set", now, {"bytes": len(body.encode())})
            call.keep(tx, {}, at=now)

        with self._context.gate.journaling(self._actor):
            self._context.store.database.write(unit, name="working.set")

    def get(self, name: str, default: Json = None) -> Json:
        """Return the value under `name` if it has not expired, else `default`. Raises Denied."""
        return self.all().get(name, default)

    def all(self) -> Mapping[str, Json]:
        """Return every value that has not expired, by name. Raises Denied."""
        self._context.gate.require(self._actor, "read", self._scope)
        now = self._context.store.clock.now()
        with self._context.store.database.read() as connection:
            ids = [row.id for row in scopes.find(connection, [self._scope])]
            bodies = working.bodies_of(connection, ids, self._run_id, at=now)
            return {name: json.loads(body) for name, body in bodies.items()}

    def drop(self, name: str, *, idempotency_key: str | None = None) -> bool:
        """Remove a value; return True if there was one. Raises Denied, IdempotencyMismatch."""
        return self._remove(name, "working.drop", idempotency_key) > 0

    def clear(self, *, idempotency_key: str | None = None) -> int:
        """Remove every value of the run; return their number. Raises Denied,
        IdempotencyMismatch.
        """
        return self._remove(None, "working.clear", idempotency_key)

    def _remove(self, name: str | None, operation_name: str, key: str | None) -> int:
        operation: AccessKind = "write"
        self._context.gate.require(self._actor, operation, self._scope)
        call = IdempotentCall(self._scope, operation_name, key, [self._run_id, name])

        def unit(tx: Connection) -> int:
            self._context.gate.confirm(tx, self._actor, operation, self._scope)
            answered = call.answered(tx)
            if answered is not None:
                return int(answered["values"])
            ids = [row.id for row in scopes.find(tx, [self._scope])]
            count = working.remove(tx, ids, self._run_id, name)
            now = self._context.store.clock.now()
            if count:
                self._note(tx, "working.drop", now, {"values": count})
            call.keep(tx, {"values": count}, at=now)
            return count

        with self._context.gate.journaling(self._actor):
            return self._context.store.database.write(unit, name="working.drop")

    def _note(self, tx: Connection, event: str, at: int, details: Mapping[str, int]) -> None:
        journal.append(
            tx,
            journal.Event(
                stream=f"scope:{self._scope}",
                event=event,
                actor=self._actor,
                at=at,
                audit_id=self._context.store.ids.new(),
                subject_id=self._run_id,
                details=details,
            ),
        )
