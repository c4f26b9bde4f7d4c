"""BoundApprovals: list the actions that wait for a person, and decide them."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from tallystick.records import (
    Approval,
    ApprovalId,
    ApprovalState,
    Duration,
    Limit,
    checked_arguments,
    seconds,
)
from tallystick.records.arguments import PAGE_BEFORE, IdempotencyKey, Reason
from tallystick.tally.memory_view import Part


@checked_arguments
class BoundApprovals(Part):
    """The actions of a scope that wait for a person, as one actor may decide them."""

    def get(self, approval_id: ApprovalId) -> Approval:
        """Return one approval. Raises NotFound."""
        self._view._admit("inspect")
        return self._view._approvals.get(approval_id)

    def approve(
        self,
        approval_id: ApprovalId,
        *,
        reason: Reason,
        expires_in: Annotated[
            Duration | None,
            Field(
                description="Seconds, or an ISO 8601 duration, for which it is good; else a day."
            ),
        ] = None,
        idempotency_key: IdempotencyKey = None,
    ) -> Approval:
        """Grant an action, once, for `expires_in` (a timedelta, or seconds; by default a day).

        The answer carries its token. The next identical action of the same actor uses the grant up,
        with the token or without. A person decides: the principal of a private scope, a steward of
        the space, an operator. Raises NotFound, Denied, InvalidInput, StateConflict,
        IdempotencyMismatch.
        """
        return self._view._approvals.decide(
            approval_id,
            "granted",
            reason=reason,
            expires_in=None if expires_in is None else seconds(expires_in, name="expires_in"),
            idempotency_key=idempotency_key,
        )

    def deny(
        self, approval_id: ApprovalId, *, reason: Reason, idempotency_key: IdempotencyKey = None
    ) -> Approval:
        """Deny an action: while it stands, the same action is refused with this reason.

        Raises NotFound, Denied, InvalidInput, StateConflict, IdempotencyMismatch.
        """
        return self._view._approvals.decide(
            approval_id, "denied", reason=reason, idempotency_key=idempotency_key
        )

    def revoke(
        self, approval_id: ApprovalId, *, reason: Reason, idempotency_key: IdempotencyKey = None
    ) -> Approval:
        """Take back a grant that was not used, or a denial: the same action is asked for anew.

        Raises NotFound, Denied, InvalidInput, StateConflict, IdempotencyMismatch.
        """
        return self._view._approvals.decide(
            approval_id, "revoked", reason=reason, idempotency_key=idempotency_key
        )

    def list(
        self,
        *,
        state: Annotated[
            ApprovalState | None,
            Field(description="The state that they are in; none lists every state."),
        ] = "pending",
        limit: Annotated[Limit, Field(description="Approvals at most.")] = 50,
        before: Annotated[ApprovalId | None, PAGE_BEFORE] = None,
    ) -> list[Approval]:
        """List the approvals of the bound scope that this actor may decide, or that its own actions
        wait for, newest first; with `state=None` of every state.

        Give the last id of a page as `before` for the next one. Raises NotFound for an unknown one.
        """
        self._view._admit("inspect")
        return self._view._approvals.in_state(state, limit=limit, before=before)
