"""Corrections: correct a memory, change many, forget by query, and carry into other scopes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

from pydantic import Field

from tallystick import memory
from tallystick.records import (
    MOST_RESULTS,
    Changed,
    Correction,
    CorrectionKind,
    Crossing,
    Forgetting,
    JsonObject,
    MemoryId,
    Moment,
    Scope,
    SourceIds,
    SourceType,
    Words,
    checked_arguments,
    tuple_of,
)
from tallystick.records.arguments import (
    ConfirmMode,
    ConfirmToken,
    Force,
    IdempotencyKey,
    IfVersion,
    KindFilter,
    Reason,
    Since,
    TagFilter,
    Until,
)
from tallystick.records.memory import ScopeName
from tallystick.records.wire import Wire
from tallystick.tally.memory_view import Part

Changes = Annotated[
    Sequence[Mapping[str, Any]], tuple_of(Annotated[Mapping[str, Any], Wire(JsonObject)])
]
"""Arguments of `modify`, one mapping for each memory."""


@checked_arguments
class Corrections(Part):
    """What an actor corrects: previewed, then applied with the preview's token."""

    def make(
        self,
        memory_id: MemoryId,
        correction: Annotated[CorrectionKind, Field(description="What to do with it.")],
        *,
        reason: Reason,
        mode: ConfirmMode = "preview",
        by: Annotated[
            MemoryId | None, Field(description="The replacement, or the memory that it repeats.")
        ] = None,
        field: Annotated[
            str, Field(description="What to redact, such as attributes.phone.")
        ] = "content",
        replacement: Annotated[str, Field(description="The text in its place.")] = "[redacted]",
        evidence: Annotated[SourceIds, Field(description="Ids of the sources that show it.")] = (),
        valid_from: Annotated[
            Moment | None,
            Field(description="Since when the replacement holds: ISO 8601, or microseconds UTC."),
        ] = None,
        confirm_token: ConfirmToken = None,
        if_version: IfVersion = None,
        force: Force = False,
        idempotency_key: IdempotencyKey = None,
    ) -> Correction:
        """Preview a correction, or with `mode="apply"` and the preview's token apply it.

        The token is good for 15 minutes. `by` is the replacement for `supersede`, valid since
        `valid_from` as `evidence` (source ids) shows, and the canonical memory for
        `mark_duplicate`. `redact` puts `replacement` in the place of `field`: content, subject,
        speaker, category, tags or a path such as attributes.phone. `restore` reverses the latest
        correction. Raises InvalidInput, NotFound, Denied (`confirm_token_required`),
        VersionConflict, StateConflict when something changed since the preview, or
        IdempotencyMismatch; then nothing changed.
        """
        if mode == "preview":
            self._view._admit("preview")
        if force:
            self._view._services.gate.require_person(self._view.actor, "delete", self._view.scope)
        request = memory.CorrectionRequest(
            correction=correction,
            reason=reason,
            other_id=by,
            field=field,
            replacement=replacement,
            evidence=tuple(evidence),
            valid_from=self._view._moment(valid_from, "valid_from"),
            force=force,
        )
        with self._view._observe_call("memory_write", "correct") as call:
            if mode == "apply":
                self._view._admit("forget" if correction == "delete" else "modify")
            from tallystick.memory.correct import correct

            result = correct(
                self._view._services.memory,
                self._view._traced_actor,
                memory_id,
                request,
                mode=mode,
                confirm_token=confirm_token,
                if_version=if_version,
                idempotency_key=idempotency_key,
                correlation_id=call.correlation_id,
            )
            if result.result is not None:
                self._view._record_change(
                    call, result.result, {"reason": reason, "correction": correction}
                )
        return result

    def modify_many(
        self,
        items: Annotated[
            Changes,
            Field(description="For each memory its id, the reason and the fields to change."),
        ],
        *,
        idempotency_key: IdempotencyKey = None,
    ) -> list[Changed]:
        """Same as `bound.modify` for each mapping of its arguments; results in order.

        Each is changed or not by itself: a refusal is returned in its place instead of raised. With
        an `idempotency_key` a call that was cut off resumes. Raises IdempotencyMismatch.
        """
        return memory.modify_many(
            self._view._services.memory,
            self._view.actor,
            items,
            modify=self._view.modify,
            idempotency_key=idempotency_key,
        )

    def forget_matching(
        self,
        query: Annotated[
            str | None, Field(description="What to forget, in plain words; or filters alone.")
        ] = None,
        *,
        reason: Reason,
        mode: ConfirmMode = "preview",
        threshold: Annotated[float, Field(description="The least score of a match.", ge=0)] = 0.5,
        limit: Annotated[
            int | None,
            Field(
                description="Matches at most; by default as many as are allowed.",
                ge=1,
                le=MOST_RESULTS,
            ),
        ] = None,
        kinds: KindFilter = (),
        tags: TagFilter = (),
        speaker: Annotated[Words | None, Field(description="Only what this speaker said.")] = None,
        source_type: Annotated[
            SourceType | None, Field(description="Only from sources of this type, such as tool.")
        ] = None,
        since: Since = None,
        until: Until = None,
        confirm_token: ConfirmToken = None,
        idempotency_key: IdempotencyKey = None,
    ) -> Forgetting:
        """Forget the memories of the bound scope that pass every filter and answer `query`.

        Filters keep `kinds`, all of `tags`, what `speaker` said, what came from a `source_type`,
        and what was said or happened, else was remembered, from `since` up to `until`; a timedelta
        is so long ago. With a `query`
        a match is what recall scores at `threshold` or more; one of all these is needed. At most
        `limit` are forgotten, by default and at most `forget_batch` (100).

        Pinned memories are kept, and from agents those that a person's edit locks. A preview
        changes nothing and returns the token with which, within 15 minutes, exactly the ids it
        lists, at their versions, are forgotten, all or none. Raises Denied
        (`confirm_token_required` without one, `preview_only` where the tally never applies it),
        InvalidInput, VersionConflict, IdempotencyMismatch, or StateConflict when other memories
        match by now.
        """
        if mode == "preview":
            self._view._admit("preview")
        request = memory.ForgetRequest(
            query=query,
            threshold=threshold,
            limit=limit,
            kinds=tuple(kinds),
            tags=tuple(tags),
            speaker=speaker,
            source_type=source_type,
            since=self._view._ago(since, "since"),
            until=self._view._ago(until, "until"),
        )
        with self._view._observe_call("memory_write", "forget_matching") as call:
            forgetting = memory.forget_matching(
                self._view._services.memory,
                self._view._traced_actor,
                self._view.scope,
                request,
                reason=reason,
                mode=mode,
                confirm_token=confirm_token,
                idempotency_key=idempotency_key,
                correlation_id=call.correlation_id,
            )
            for change in forgetting.results:
                self._view._record_change(
                    call, change, {"reason": reason, "query": query, **request.filters}
                )
        return forgetting

    def promote(
        self,
        memory_id: MemoryId,
        into: Annotated[ScopeName, Field(description="Where to, such as project:apollo.")],
        *,
        reason: Reason,
        mode: ConfirmMode = "preview",
        confirm_token: ConfirmToken = None,
        if_version: IfVersion = None,
        idempotency_key: IdempotencyKey = None,
    ) -> Crossing:
        """Preview a copy of a memory into another scope, or with the preview's token make it.

        The preview names who would read it there. Raises as `correct`, and Denied with
        `missing_memory_space`, `unsupported_scope` or `scope_crossing_requires_promotion`.
        """
        return self._cross(
            "promote", memory_id, into, reason, mode, confirm_token, if_version, idempotency_key
        )

    def share(
        self,
        memory_id: MemoryId,
        into: Annotated[ScopeName, Field(description="Where to, such as project:apollo.")],
        *,
        reason: Reason,
        mode: ConfirmMode = "preview",
        confirm_token: ConfirmToken = None,
        if_version: IfVersion = None,
        idempotency_key: IdempotencyKey = None,
    ) -> Crossing:
        """Same as `promote`, for a copy that follows its origin and is withdrawn with it."""
        return self._cross(
            "share", memory_id, into, reason, mode, confirm_token, if_version, idempotency_key
        )

    def _cross(
        self,
        operation: Literal["promote", "share"],
        memory_id: MemoryId,
        into: str | Scope,
        reason: str,
        mode: Literal["preview", "apply"],
        confirm_token: str | None,
        if_version: int | None,
        idempotency_key: str | None,
    ) -> Crossing:
        if mode == "preview":
            self._view._admit("preview")
        with self._view._observe_call("memory_write", operation) as call:
            if mode == "apply":
                self._view._admit("write")
            crossing = memory.cross(
                self._view._services.memory,
                self._view._traced_actor,
                memory_id,
                self._view.actor.home(into),
                operation,
                reason=reason,
                mode=mode,
                confirm_token=confirm_token,
                if_version=if_version,
                idempotency_key=idempotency_key,
                correlation_id=call.correlation_id,
            )
            if crossing.mode == "apply":
                self._view._wake_worker()
                call.record(
                    "memory_write",
                    {"reason": reason, "into": str(crossing.into)},
                    summary=crossing.dump(),
                )
        return crossing
