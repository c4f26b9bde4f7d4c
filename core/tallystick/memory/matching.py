"""Forget the memories that filters and a query match: previewed with a token, then exactly those
that were previewed, all or none.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple

from tallystick.access import Confirmation
from tallystick.errors import InvalidInput
from tallystick.memory.change import forget_one, require_reason, require_version
from tallystick.memory.context import MemoryContext
from tallystick.memory.memory_write import MemoryWrite, is_locked, is_pinned_for
from tallystick.memory.recall import recall
from tallystick.memory.recall_request import RecallRequest
from tallystick.records import Actor, ForgetMatch, Forgetting, Forgotten, Json, Scope, SourceType
from tallystick.storage import Connection
from tallystick.storage.engine.writes import Writes
from tallystick.storage.index import search
from tallystick.storage.rows import memories, scopes
from tallystick.storage.rows.idempotency import IdempotentCall

_PURPOSE = "forget_matching"


@dataclass(frozen=True)
class ForgetRequest:
    """The memories to forget: those that pass every filter and, with a query, answer it."""

    query: str | None
    threshold: float
    """The least score of a match, as recall scores it against the query."""
    limit: int | None
    """Matches at most; None is the largest batch."""
    kinds: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()
    """All of them."""
    speaker: str | None = None
    source_type: SourceType | None = None
    since: int | None = None
    until: int | None = None
    """When it was said or happened, else remembered, microseconds UTC: from `since` up to `until`,
    exclusive.
    """

    @property
    def filters(self) -> dict[str, Json]:
        """The filters that are set, by name."""
        named: dict[str, Json] = {
            "kinds": list(self.kinds),
            "tags": list(self.tags),
            "who": self.speaker,
            "source_type": self.source_type,
            "since": self.since,
            "until": self.until,
        }
        return {name: value for name, value in named.items() if value not in (None, [])}


def forget_matching(
    context: MemoryContext,
    actor: Actor,
    scope: Scope,
    request: ForgetRequest,
    *,
    reason: str,
    mode: Literal["preview", "apply"],
    confirm_token: str | None,
    idempotency_key: str | None,
    correlation_id: str | None,
) -> Forgetting:
    """Preview, or forget in one transaction the memories that a preview showed; pinned memories are
    kept, locked ones from agents.

    Raises Denied (`preview_only` where a tally lets nobody apply it, `confirm_token_required`
    without a token), InvalidInput, StateConflict when the token does not fit what matches now, or
    VersionConflict; then nothing changed.
    """
    require_reason(reason)
    limit = _checked_limit(context, request)
    decision = context.gate.require(actor, "delete", scope)
    if mode == "apply" and context.forget_preview_only:
        refused = decision.model_copy(update={"allowed": False, "reason": "preview_only"})
        raise context.gate.refuse(actor, refused)
    arguments: list[Json] = [request.query, reason, request.threshold, limit, confirm_token]
    if request.filters:
        arguments.append(request.filters)
    # Matched before the answer is looked for: once the same call has forgotten, nothing matches.
    matches, complete = _matches(context, actor, scope, request, limit)
    with context.store.database.read() as connection:
        row = next(iter(scopes.find(connection, [scope])), None)
        call = IdempotentCall(
            row or scope,
            _PURPOSE,
            idempotency_key if mode == "apply" else None,
            arguments,
        )
        answered = call.read_answer(connection)
        if answered is not None:
            return Forgetting.load(answered)
    chosen = [match for match in matches if match.action == "forget"]
    preview: Json = [[match.id, match.version] for match in chosen]
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
    confirmation.require(confirm_token, preview, now=now, subject=str(scope), what="Scope")
    context.gate.admit(actor, "forget", scope, count=len(chosen))

    def unit(tx: Connection) -> Forgetting:
        context.gate.confirm(tx, actor, "delete", scope)
        answered = call.read_answer(tx)
        if answered is not None:
            return Forgetting.load(answered)
        write = MemoryWrite(tx, context, actor, context.store.clock.now(), correlation_id)
        results = tuple(_forget_match(write, match, reason) for match in chosen)
        result = Forgetting(mode="apply", matches=matches, complete=complete, results=results)
        call.keep(tx, result, at=write.now)
        return result

    with context.gate.journaling(actor):
        return context.store.database.write_mostly(
            unit, name="apply.forget_matching", writes=Writes.of(scope)
        )


def _checked_limit(context: MemoryContext, request: ForgetRequest) -> int:
    """Return the matches at most. Raises InvalidInput for a request that would forget too much, or
    that cannot match.
    """
    most = context.forget_batch
    if request.query is None and not request.filters:
        raise InvalidInput(f"Say what to forget: a query, or one or more of {', '.join(_FILTERS)}.")
    if request.query is not None and not request.query.strip():
        raise InvalidInput("`query` is empty. Leave it out to forget by filters alone.")
    if request.since is not None and request.until is not None and request.since >= request.until:
        raise InvalidInput("`since` must come before `until`.")
    limit = most if request.limit is None else request.limit
    if limit < 1:
        raise InvalidInput("`limit` is at least 1.")
    if limit > most:
        raise InvalidInput(
            f"`limit` {limit} is more than one call may forget here, {most}. Narrow it by filters "
            f"and forget in several calls, or raise the setting `forget_batch`."
        )
    return limit


_FILTERS = ("kinds", "tags", "speaker", "source_type", "since", "until")


def _forget_match(write: MemoryWrite, match: ForgetMatch, reason: str) -> Forgotten:
    """Forget one match inside the open transaction, at the version that was previewed."""
    current = write.context.visible(write.tx, write.actor, match.id, "delete")
    require_version(current.memory, match.version)
    return forget_one(write, write.permit(current, "delete"), reason)


class _Matches(NamedTuple):
    matches: tuple[ForgetMatch, ...]
    complete: bool
    """True if no more than these match."""


def _matches(
    context: MemoryContext, actor: Actor, scope: Scope, request: ForgetRequest, limit: int
) -> _Matches:
    now = context.store.clock.now()
    with context.store.database.read() as connection:
        docs = _docs(connection, scope, request, now)
    scores: dict[str, float] | None = None
    if request.query is not None:
        # One more than the limit tells if the limit cuts something off. A preview is no access: it
        # is not logged. Turns beside a match are no matches.
        recall_request = RecallRequest(
            limit=limit + 1,
            states=("active",),
            docs=None if docs is None else frozenset(docs),
            namespace=(),
            weights=context.weights.by_itself(),
            sources=False,
        )
        hits = recall(context, actor, [scope], request.query, recall_request, logged=False)
        # Beside the best match: how sure it is that any answers matters to a question, not here.
        best = max((hit.score for hit in hits), default=0.0) or 1.0
        relative = {hit.memory.id: round(hit.score / best, 6) for hit in hits}
        scores = {name: score for name, score in relative.items() if score >= request.threshold}
    with context.store.database.read() as connection:
        if scores is None:
            stored = memories.get_docs(connection, (docs or [])[: limit + 1])
            ordered = [stored[doc] for doc in docs or () if doc in stored]
        else:
            by_id = (memories.get(connection, name, sources=False) for name in scores)
            ordered = [entry for entry in by_id if entry is not None]
        matches = tuple(
            ForgetMatch(
                id=entry.memory.id,
                version=entry.memory.version,
                score=None if scores is None else scores[entry.memory.id],
                action="keep_pinned"
                if entry.memory.pinned or is_pinned_for(connection, entry, actor)
                else "keep_locked"
                if is_locked(entry.memory, actor, now)
                else "forget",
            )
            for entry in ordered[:limit]
        )
    return _Matches(matches, complete=len(ordered) <= limit)


def _docs(
    connection: Connection, scope: Scope, request: ForgetRequest, now: int
) -> list[int] | None:
    """Return the memories that pass the filters, newest first; None without a filter."""
    if not request.filters:
        return None
    return search.active_docs(
        connection,
        [row.id for row in scopes.find(connection, [scope])],
        now=now,
        kinds=request.kinds,
        tags=request.tags,
        speaker=request.speaker,
        source_type=request.source_type,
        since=request.since,
        until=request.until,
    )
