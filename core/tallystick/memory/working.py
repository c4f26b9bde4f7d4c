"""Working memory: the values that one run keeps beside its memories. Overwritten in place, gone
when they expire.

Six names have a meaning: `task`, `plan`, `questions`, `facts`, `outputs` and `artifacts`, a map of
names to references. These and all others are candidates of compiles, packs and wakes of the run.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Annotated

from pydantic import SkipValidation

from tallystick.errors import InvalidInput
from tallystick.memory.context import MemoryContext
from tallystick.records import (
    LAST_MOMENT,
    Actor,
    ContextItem,
    Duration,
    Json,
    PackItem,
    Scope,
    SourceRef,
    checked_arguments,
    is_storable,
    seconds,
)
from tallystick.storage import Connection
from tallystick.storage.engine.writes import Writes
from tallystick.storage.rows import journal, scopes, working
from tallystick.storage.rows.idempotency import IdempotentCall

SLOTS = ("task", "plan", "questions", "facts", "outputs", "artifacts")
"""The names with a meaning, in the order in which an agent reads them."""
_IMPORTANCE = {"task": 80, "plan": 70}
_DAY = 24 * 3600
_LONGEST, _MOST = 1_200, 16
"""Characters of one value in a context, and the values in it: the named ones, then others by
name.
"""


@checked_arguments
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
        self,
        name: str,
        value: Annotated[Json, SkipValidation],
        *,
        expires_in: Duration = _DAY,
        idempotency_key: str | None = None,
    ) -> None:
        """Keep `value` under `name`, in place of any other, for `expires_in`: a timedelta, or
        seconds; by default a day. Raises Denied, InvalidInput.

        The value of a slot (`SLOTS`) is a text, a list or an object; `artifacts` is an object.
        Under a key that was used before nothing changes, whatever the value is by now;
        IdempotencyMismatch is raised where it was used for something else.
        """
        now = self._context.store.clock.now()
        life = seconds(expires_in, name="expires_in")
        if (
            not name.strip()
            or not is_storable(name)
            or not 1 <= life <= (LAST_MOMENT - now) // 1_000_000
        ):
            raise InvalidInput(
                "A value is kept under a name, for one second at least, and not beyond the year "
                "9999."
            )
        _require_fitting(name, value)
        try:
            body = json.dumps(value, ensure_ascii=False, allow_nan=False)
            body.encode()
        except (TypeError, ValueError, RecursionError) as error:
            raise InvalidInput(
                "A value of working memory is JSON: text, numbers, lists and objects."
            ) from error
        self._context.gate.require(self._actor, "write", self._scope)
        self._context.gate.admit(self._actor, "write", self._scope)
        call = IdempotentCall(
            self._scope, "working.set", idempotency_key, [self._run_id, name, body, life]
        )

        def unit(tx: Connection) -> None:
            self._context.gate.confirm(tx, self._actor, "write", self._scope)
            if call.read_answer(tx) is not None:
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
                expires_at=now + life * 1_000_000,
            )
            self._note(tx, "working.set", now, {"bytes": len(body.encode())})
            call.keep(tx, {}, at=now)

        with self._context.gate.journaling(self._actor):
            self._context.store.database.write(
                unit, name="working.set", writes=Writes.of(self._scope)
            )

    def get(self, name: str, default: Annotated[Json, SkipValidation] = None) -> Json:
        """Return the value under `name` if it has not expired, else `default`. Raises Denied."""
        return self.all().get(name, default)

    def all(self) -> Mapping[str, Json]:
        """Return every value that has not expired, by name. Raises Denied."""
        self._context.gate.require(self._actor, "read", self._scope)
        return {value.name: json.loads(value.body) for value in self._values()}

    def items(self) -> tuple[ContextItem, ...]:
        """Return the values as candidates of a compile. Raises Denied.

        Their ids are `working:` and the name; a long value is cut.
        """
        self._context.gate.require(self._actor, "read", self._scope)
        return tuple(
            ContextItem(
                id=f"working:{value.name}",
                kind="working",
                content=_text(value),
                source_ref=SourceRef(source_type="app_state", title=value.name),
                freshness_ts=value.updated_at,
                trust_score=100,
                importance_score=_IMPORTANCE.get(value.name, 50),
                scope=self._scope,
            )
            for value in self._list_shown()
        )

    def pack_items(self) -> tuple[PackItem, ...]:
        """Return the values as items of a pack. Raises Denied."""
        decision = self._context.gate.require(self._actor, "read", self._scope)
        return tuple(
            PackItem(
                id=f"working:{value.name}",
                source_ids=(),
                visible_to=self._scope,
                access_reason=decision.reason,
                chosen_as="working",
                fresh="current",
                known_at=value.updated_at,
                kind="working",
                text=_text(value),
            )
            for value in self._list_shown()
        )

    def _list_shown(self) -> list[working.StoredValue]:
        values = {value.name: value for value in self._values()}
        names = [name for name in SLOTS if name in values]
        names += [name for name in values if name not in SLOTS]
        return [values[name] for name in names[:_MOST]]

    def _values(self) -> list[working.StoredValue]:
        now = self._context.store.clock.now()
        with self._context.store.database.read() as connection:
            ids = [row.id for row in scopes.find(connection, [self._scope])]
            return working.values_of(connection, ids, self._run_id, at=now) if ids else []

    def drop(self, name: str, *, idempotency_key: str | None = None) -> bool:
        """Remove a value; return True if there was one. Raises Denied, IdempotencyMismatch."""
        return self._remove(name, "working.drop", idempotency_key) > 0

    def clear(self, *, idempotency_key: str | None = None) -> int:
        """Remove every value of the run; return their number. Raises Denied,
        IdempotencyMismatch.
        """
        return self._remove(None, "working.clear", idempotency_key)

    def _remove(self, name: str | None, operation_name: str, key: str | None) -> int:
        self._context.gate.require(self._actor, "write", self._scope)
        self._context.gate.admit(self._actor, "write", self._scope)
        call = IdempotentCall(self._scope, operation_name, key, [self._run_id, name])

        def unit(tx: Connection) -> int:
            self._context.gate.confirm(tx, self._actor, "write", self._scope)
            answered = call.read_answer(tx)
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
            return self._context.store.database.write(
                unit, name="working.drop", writes=Writes.of(self._scope)
            )

    def _note(self, tx: Connection, event: str, at: int, details: Mapping[str, int]) -> None:
        journal.append(
            tx,
            journal.Event(
                stream=f"scope:{self._scope}",
                event=event,
                actor=self._actor,
                at=at,
                audit_id=self._context.store.ids.new(),
                details=details,
                texts={"run": self._run_id},
            ),
        )


def _require_fitting(name: str, value: Json) -> None:
    """Raise InvalidInput for a value that its slot cannot hold."""
    if name == "artifacts" and not isinstance(value, dict):
        raise InvalidInput(
            "`artifacts` is a map: an object of names and what they refer to, such as "
            '{"report": "file:report.md"}.'
        )
    if name in SLOTS and not isinstance(value, str | list | dict):
        raise InvalidInput(f"`{name}` is a text, a list or an object.")


def _text(value: working.StoredValue) -> str:
    """Return a value as an agent reads it, after its name: a list or an object line by line."""
    content = json.loads(value.body)
    if isinstance(content, list):
        lines = [f"- {_line(item)}" for item in content]
    elif isinstance(content, dict):
        lines = [f"- {name}: {_line(item)}" for name, item in content.items()]
    else:
        lines = []
    text = "\n".join([f"{value.name}:", *lines]) if lines else f"{value.name}: {_line(content)}"
    return text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…"


def _line(value: Json) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
