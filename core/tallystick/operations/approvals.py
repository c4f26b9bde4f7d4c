"""Operations on approvals: list what waits for a person, and decide it."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from tallystick.operations.operation import Arguments, Before, IdempotencyKey, Operation, Reason
from tallystick.records import Approval, ApprovalState, DurationField

ApprovalId = Annotated[str, Field(description="Id of an approval.")]


class ListApprovals(Arguments):
    """Arguments of `approvals`."""

    state: Annotated[
        ApprovalState | None,
        Field(description="The state that they are in; none lists every state."),
    ] = "pending"
    limit: Annotated[int, Field(description="Approvals at most.", ge=1)] = 50
    before: Before = None


class OfApproval(Arguments):
    """Arguments of `approval`."""

    approval_id: ApprovalId


class Approve(Arguments):
    """Arguments of `approve`."""

    approval_id: ApprovalId
    reason: Reason
    expires_in: Annotated[
        DurationField | None,
        Field(description="Seconds, or an ISO 8601 duration, for which it is good; else a day."),
    ] = None
    idempotency_key: IdempotencyKey = None


class Decide(Arguments):
    """Arguments of `deny` and `revoke`."""

    approval_id: ApprovalId
    reason: Reason
    idempotency_key: IdempotencyKey = None


_DECIDE = ("not_found", "denied", "invalid_input", "state_conflict", "idempotency_mismatch")

OPERATIONS = (
    Operation(
        name="approvals",
        title="List approvals",
        description="List the actions that wait for a person, or were decided, newest first.",
        effect="read",
        arguments=ListApprovals,
        result=list[Approval],
        errors=("invalid_input", "not_found"),
        verb="approvals",
    ),
    Operation(
        name="approval",
        title="Read an approval",
        description="Read one approval: the action, its arguments, and what was decided.",
        effect="read",
        arguments=OfApproval,
        result=Approval,
        errors=("not_found",),
        verb="approval",
    ),
    Operation(
        name="approve",
        title="Grant an approval",
        description="Grant one blocked action, with exactly its arguments, once.",
        effect="operate",
        arguments=Approve,
        result=Approval,
        errors=_DECIDE,
        verb="approve",
    ),
    Operation(
        name="deny",
        title="Deny an approval",
        description="Deny one blocked action; its agent gets the reason.",
        effect="operate",
        arguments=Decide,
        result=Approval,
        errors=_DECIDE,
        verb="deny",
    ),
    Operation(
        name="revoke",
        title="Take a decision back",
        description="Take back a grant that was not used, or a denial.",
        effect="operate",
        arguments=Decide,
        result=Approval,
        errors=_DECIDE,
        verb="revoke",
    ),
)
"""In the order in which surfaces list them."""
