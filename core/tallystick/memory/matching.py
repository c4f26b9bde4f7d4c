"""Forget the memories that match a query: previewed with a token, then exactly those that were
previewed, all or none.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

from tallystick.access import Confirmation
from tallystick.errors import InvalidInput
from tallystick.memory.change import (
    forget_one,
    is_locked,
    require_mode,
    require_reason,
    require_unlocked,
    require_version,
)
from tallystick.memory.context import MemoryContext
from tallystick.memory.memory_write import MemoryWrite
from tallystick.memory.recall import RecallRequest, recall
from tallystick.records import Actor, ForgetMatch, Forgetting, Forgotten, Json, Scope
from tallystick.storage import Connection, scopes
from tallystick.storage.idempotency import IdempotentCall

__all__ = ["forget_matching"]

_PURPOSE = "forget_matching"


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
    """Preview, or forget in one transaction the memories that a preview showed; pinned memories are
    kept, locked ones from agents.

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
        call = IdempotentCall(
            row or scope,
            _PURPOSE,
            idempotency_key if mode == "execute" else None,
            [query, reason, threshold, limit, confirm_token],
        )
        answered = None if row is None else call.answered(connection)
        if answered is not None:
            return Forgetting.load(answered)
    matches, complete = _matches(context, actor, scope, query, threshold, limit)
    chosen = [match for match in matches if match.action == "forget"]
    preview: Json = [[match.memory_id, match.version] for match in chosen]
    now = context.store.clock.now()
    secret = None if row is None else row.secret
    confirmation = Confirmation(context.gate, secret, _PURPOSE, actor)
    if mode == "preview":
        forgetting = Forgetting(mode="preview", matches=matches, complete=complete)
        if secret is None or not chosen:
            return forgetting
        token, expires_at = confirmation.token(preview, now=now)
        return forgetting.model_copy(update={"confirm_token": token, "expires_at": expires_at})
    if confirm_token is None:
        raise confirmation.refusal(decision)
    confirmation.require(
        confirm_token,
        preview,
        now=now,
        subject=str(scope),
        reason="the token has run out or other memories match by now",
        what="Scope",
    )

    def unit(tx: Connection) -> Forgetting:
        context.gate.confirm(tx, actor, "delete", scope)
        write = MemoryWrite(tx, context, actor, context.store.clock.now(), correlation_id)
        results = tuple(_forget_match(write, match, reason) for match in chosen)
        result = Forgetting(mode="execute", matches=matches, complete=complete, results=results)
        call.keep(tx, result, at=write.now)
        return result

    with context.gate.journaling(actor):
        return context.store.database.write(unit, name="apply.forget_matching")


def _forget_match(write: MemoryWrite, match: ForgetMatch, reason: str) -> Forgotten:
    """Forget one match inside the open transaction, at the version that was previewed."""
    current = write.context.visible(write.tx, write.actor, match.memory_id, "delete")
    require_version(current.memory, match.version)
    require_unlocked(current.memory, write.actor, write.now)
    return forget_one(write, current, reason)


class _Matches(NamedTuple):
    matches: tuple[ForgetMatch, ...]
    complete: bool
    """True if no more than these match."""


def _matches(
    context: MemoryContext, actor: Actor, scope: Scope, query: str, threshold: float, limit: int
) -> _Matches:
    # One more than the limit tells if the limit cuts something off. A preview is no access: it is
    # not logged. Turns beside a match are no matches.
    request = RecallRequest(
        limit=limit + 1, states=("active",), weights=context.weights.by_itself(), sources=False
    )
    hits = [
        hit
        for hit in recall(context, actor, [scope], query, request, logged=False)
        if hit.score >= threshold
    ]
    now = context.store.clock.now()
    matches = tuple(
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
    )
    return _Matches(matches, complete=len(hits) <= limit)
