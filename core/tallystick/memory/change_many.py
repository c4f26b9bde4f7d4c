"""Many changes in one call, each by itself."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from tallystick.errors import Conflict, Denied, InvalidInput, NotFound, VersionConflict
from tallystick.memory.context import MemoryContext
from tallystick.records import Actor, Change, Changed, text_digest
from tallystick.storage import Connection
from tallystick.storage.engine.writes import Writes
from tallystick.storage.rows.idempotency import IdempotentCall


def modify_many(
    context: MemoryContext,
    actor: Actor,
    items: Iterable[Mapping[str, Any]],
    *,
    modify: Callable[..., Change],
    idempotency_key: str | None,
) -> list[Changed]:
    """Call `modify` with each mapping of arguments; return the results in order.

    A refusal is returned in its place. Under an `idempotency_key` each item has a key of its own,
    so that a call that was cut off resumes, and the answer of a finished call is returned again.
    Raises IdempotencyMismatch.
    """
    requests = [dict(item) for item in items]
    database = context.store.database
    call = IdempotentCall(actor.private_scope, "modify_many", idempotency_key, requests)
    with database.read() as connection:
        first_answer = call.read_answer(connection)
    if first_answer is not None:
        return [Changed.load(changed) for changed in first_answer["changed"]]
    results = []
    for number, request in enumerate(requests):
        arguments = dict(request)
        if idempotency_key is not None:
            # With its number behind it, a long key would be none any more.
            own = text_digest("modify_many", f"{idempotency_key} {number}")
            arguments.setdefault("idempotency_key", own)
        memory_id = str(arguments.pop("memory_id", None) or "")
        reason = arguments.pop("reason", "")
        try:
            change = modify(memory_id, reason=reason, **arguments)
            results.append(Changed(id=memory_id, change=change))
        except (InvalidInput, NotFound, Denied, Conflict) as error:
            results.append(_refusal(memory_id, error))
    if idempotency_key is not None:
        answer = {"changed": [result.dump() for result in results]}

        def unit(tx: Connection) -> None:
            if call.read_answer(tx) is None:  # the same call may have ended meanwhile
                call.keep(tx, answer, at=context.store.clock.now())

        database.write(unit, name="modify_many.answer", writes=Writes.of(actor.private_scope))
    return results


def _refusal(memory_id: str, error: Exception) -> Changed:
    conflict = error if isinstance(error, VersionConflict) else None
    return Changed(
        id=memory_id,
        error=type(error).__name__,
        message=str(error),
        expected=None if conflict is None else conflict.expected,
        actual=None if conflict is None else conflict.actual,
    )
