"""Forget what matches a query: previewed with a token, then done to exactly what was previewed, all
or none.
"""

from __future__ import annotations

import json
from typing import Literal

from tallystick.access import fits, mint
from tallystick.errors import InvalidInput, StateConflict, VersionConflict
from tallystick.memory.change import (
    forget_one,
    is_locked,
    require_mode,
    require_reason,
    require_unlocked,
)
from tallystick.memory.context import MemoryContext
from tallystick.memory.memory_write import MemoryWrite
from tallystick.memory.recall import Wanted, recall
from tallystick.records import AccessDecision, Actor, ForgetMatch, Forgetting, Json, Scope, part_key
from tallystick.storage import Connection, idempotency, scopes

__all__ = ["forget_matching"]

_PURPOSE = "forget_matching"
_TOKEN_LIFE_US = 15 * 60 * 1_000_000


def forget_matching(
    context: MemoryContext,
    actor: Actor,
    scope: Scope,
    query: str,
    *,
    reason: str,
    mode: Literal["preview", "execute"],
    threshold: float,
    limit: int,
    confirm_token: str | None,
    idempotency_key: str | None,
    correlation_id: str | None,
) -> Forgetting:
    """Preview, or forget in one transaction what a preview showed; pinned memories are kept, locked
    ones from agents.

    Raises Denied (`confirm_token_required` without a token), InvalidInput, StateConflict when the
    token does not fit what matches now, or VersionConflict; then nothing changed.
    """
    require_reason(reason)
    require_mode(mode, "execute")
    if not threshold >= 0 or limit < 1:
        raise InvalidInput("`threshold` is a score, 0 or more; `limit` is at least 1.")
    decision = context.gate.require(actor, "delete", scope)
    with context.store.database.read() as connection:
        row = next(iter(scopes.find(connection, [scope])), None)
        request = (
            ""
            if row is None
            else part_key(
                row.secret, json.dumps([query, reason, threshold, limit, confirm_token]).encode()
            )
        )
        if row is not None and mode == "execute" and idempotency_key is not None:
            answered = idempotency.first_answer(
                connection, row.id, _PURPOSE, idempotency_key, request
            )
            if answered is not None:
                return Forgetting.load(answered)
    matches, complete = _matches(context, actor, scope, query, threshold, limit)
    chosen: list[tuple[str, int]] = [
        (one.memory_id, one.version) for one in matches if one.action == "forget"
    ]
    bound: Json = [[memory_id, version] for memory_id, version in chosen]
    now = context.store.clock.now()
    if mode == "preview":
        until = now + _TOKEN_LIFE_US
        token = (
            mint(row.secret, _PURPOSE, actor, bound, expires_at=until)
            if row is not None and chosen
            else None
        )
        return Forgetting(
            mode="preview",
            matches=matches,
            complete=complete,
            confirm_token=token,
            expires_at=None if token is None else until,
        )
    if confirm_token is None:
        refused: AccessDecision = decision.model_copy(
            update={"allowed": False, "reason": "confirm_token_required"}
        )
        raise context.gate.refuse(actor, refused)
    if row is None or not fits(confirm_token, row.secret, _PURPOSE, actor, bound, now=now):
        raise StateConflict(
            str(scope),
            state="not as previewed",
            reason="the token has run out or other memories match by now",
            hint="Preview again and confirm what it shows.",
            what="Scope",
        )

    def unit(tx: Connection) -> Forgetting:
        context.gate.confirm(tx, actor, "delete", scope)
        writing = MemoryWrite(tx, context, actor, context.store.clock.now(), correlation_id)
        results = []
        for memory_id, version in chosen:
            current = context.visible(tx, actor, memory_id, "delete")
            if current.memory.version != version:
                raise VersionConflict(memory_id, expected=version, actual=current.memory.version)
            require_unlocked(current.memory, actor, writing.now)
            results.append(forget_one(writing, current, reason))
        done = Forgetting(
            mode="execute", matches=matches, complete=complete, results=tuple(results)
        )
        if idempotency_key is not None:
            idempotency.keep_answer(
                tx, row.id, _PURPOSE, idempotency_key, request, done.dumps(), at=writing.now
            )
        return done

    with context.gate.journaling(actor):
        return context.store.database.write(unit, name="apply.forget_matching")


def _matches(
    context: MemoryContext, actor: Actor, scope: Scope, query: str, threshold: float, limit: int
) -> tuple[tuple[ForgetMatch, ...], bool]:
    # One more than asked tells whether the limit cuts something off. Looking is no access: it is
    # not logged. What stands beside a match is no match.
    wanted = Wanted(
        limit=limit + 1, states=("active",), weights=context.weights.by_itself(), sources=False
    )
    hits = [
        hit
        for hit in recall(context, actor, [scope], query, wanted, logged=False)
        if hit.score >= threshold
    ]
    now = context.store.clock.now()
    return tuple(
        ForgetMatch(
            memory_id=hit.memory.id,
            version=hit.memory.version,
            score=hit.score,
            action="keep_pinned"
            if hit.memory.pinned
            else "keep_locked"
            if is_locked(hit.memory, actor, now)
            else "forget",
        )
        for hit in hits[:limit]
    ), len(hits) <= limit
