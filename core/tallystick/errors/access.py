"""Errors of who may do what: refusals, rules and approvals, and what to do after a refusal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from tallystick.errors.base import TallystickError

REMEDIES: Mapping[str, str] = {
    "missing_actor": "Name who acts: give the call its user, or the piece of the adapter an "
    "`actor`; a call with an id alone needs the view of one user, `tally.bind(Actor(user=…))`.",
    "missing_organization": "Give the actor its organization.",
    "missing_memory_space": "Let an operator create the space first.",
    "missing_scope_key": "Name the diary by its project.",
    "missing_project_id": "Name the project of the diary.",
    "scope_disabled": "It stays closed until an operator creates or opens its space.",
    "missing_permission": "Ask a steward for another role, or let an operator do it.",
    "outside_credential": "The access token is not good for that; use one that is.",
    "person_required": "A person does it: at a terminal, or with a session token made there.",
    "unverified_membership": "Name the project in the credential, or let a steward add the member.",
    "principal_mismatch": "It belongs to somebody else; sharing is the owner's to do.",
    "agent_identity_required": "Give the actor its agent.",
    "delegation_required": "Let the delegator add the agent to the space, and name the "
    "delegation in the credential.",
    "delegation_expired": "Let the delegator renew it.",
    "scope_crossing_requires_promotion": "Ask who owns the scope to promote or share it.",
    "mixed_scopes": "Reflect on the sources of one scope, or name the broadest of their scopes as "
    "`into`.",
    "unsupported_scope": "Nothing is shared into a private scope or a diary; share from it "
    "instead.",
    "hidden_source": "Restore that memory first.",
    "redacted_source": "Restore that memory first.",
    "source_deleted": "Recover that memory first.",
    "confirm_token_required": "Preview it, and confirm with the token that the preview gives.",
    "preview_only": "This tally previews what a query would forget and never forgets by one; "
    "forget single memories, or let whoever opens it unset `forget_preview_only`.",
    "mutations_frozen": "An operator suspended every change; wait until it is taken back.",
    "autonomy_frozen": "An operator suspended autonomous work; wait until it is taken back.",
}
"""The remedy for a refusal, by its reason code. docs/reference/policy.md says more."""

TOKEN_REMEDIES: Mapping[str, str] = {
    "token_foreign": "It is not of exactly this action by this actor in this scope: call without "
    "it, and ask anew.",
    "token_expired": "Call without it, which asks anew.",
    "token_revoked": "The grant was taken back: call without it, which asks anew.",
    "token_used": "A grant is good for one action: call without it, which asks anew.",
}
"""The remedy for a refused token, by its reason code."""


class Decision(Protocol):
    """The parts of an access decision that a refusal needs; see `records.AccessDecision`."""

    @property
    def reason(self) -> str: ...
    @property
    def operation(self) -> str: ...
    @property
    def scope(self) -> object: ...
    @property
    def surface(self) -> str: ...
    @property
    def audit_id(self) -> str | None: ...


class StoredApproval(Protocol):
    """The parts of an approval that its error needs; see `records.Approval`."""

    @property
    def id(self) -> str: ...
    @property
    def action(self) -> str: ...
    @property
    def subject(self) -> str: ...
    @property
    def arguments(self) -> Any: ...
    @property
    def state(self) -> str: ...
    @property
    def rule_id(self) -> str: ...
    @property
    def reason(self) -> str: ...
    @property
    def run_id(self) -> str | None: ...
    @property
    def step_id(self) -> str | None: ...


class Denied(TallystickError):
    """Policy refused. `decision.reason` is the stable reason code."""

    code = "denied"

    def __init__(self, decision: Decision, message: str | None = None) -> None:
        self.decision = decision
        refusal = (
            f"{decision.operation} in {decision.scope or 'no scope'} was refused: {decision.reason}"
        )
        remedy = REMEDIES.get(decision.reason)
        super().__init__(message or (refusal if remedy is None else f"{refusal}. {remedy}"))

    def facts(self) -> dict[str, Any]:
        """Return the decision."""
        decision = self.decision
        return {
            "reason": decision.reason,
            "operation": decision.operation,
            "scope": None if decision.scope is None else str(decision.scope),
            "surface": decision.surface,
            "audit_id": decision.audit_id,
        }

    @property
    def reason(self) -> str:
        """The stable reason code."""
        return self.decision.reason


class Unauthenticated(TallystickError):
    """The caller over a network sent no access token, or one that is not good.

    A token that never was, that has run out or that was revoked are told apart for nobody.
    """

    code = "unauthenticated"

    def __init__(self) -> None:
        super().__init__(
            "Send a good access token, as in `Authorization: Bearer tally_…`. Whoever operates the "
            "tally makes one with `tally token make`."
        )


class RateLimited(Denied):
    """This actor called more often than the tally allows. Try again after `retry_after` seconds."""

    code = "rate_limited"

    def __init__(self, decision: Decision, *, retry_after_us: int) -> None:
        self.retry_after = -(-retry_after_us // 1_000_000)
        """Seconds, rounded up."""
        super().__init__(
            decision,
            f"{decision.operation} was refused: {decision.reason}. Try again in "
            f"{self.retry_after} s.",
        )

    def facts(self) -> dict[str, Any]:
        """Return the decision, and when to try again."""
        return {**super().facts(), "retry_after": self.retry_after}


class Blocked(TallystickError):
    """A rule stopped an action before it happened. No tool ran and nothing was sent."""

    code = "blocked"


class ActionDenied(Blocked):
    """A rule or a person denied an action, or what the rule requires is missing.

    `reason` is `denied_by_rule`, `denied_by_person`, `receipt_required` or `not_enforced`.
    """

    code = "action_denied"
    _facts = ("action", "subject", "rule_id", "reason", "approval_id")

    def __init__(
        self,
        action: str,
        subject: str,
        *,
        rule_id: str,
        reason: str,
        why: str,
        approval_id: str | None = None,
    ) -> None:
        self.action = action
        self.subject = subject
        """The name of the tool or model, or the ids of items."""
        self.rule_id = rule_id
        self.reason = reason
        """The stable reason code."""
        self.approval_id = approval_id
        super().__init__(f"{action} {subject} was stopped by rule {rule_id}: {why}")


class ApprovalRequired(Blocked):
    """A rule wants an approval of a person first. Nothing happened; the step is blocked."""

    code = "approval_required"

    def __init__(
        self, approvals: Sequence[StoredApproval], *, new: frozenset[str] = frozenset()
    ) -> None:
        self.approvals = tuple(approvals)
        """The approvals that are waited for: `records.Approval`."""
        self.new = new
        """Ids of those that nobody had been asked for before this call: an answer that the call
        brings along was given to something else.
        """
        listed = "; ".join(
            f"{approval.action} {approval.subject} (rule {approval.rule_id}: {approval.reason}), "
            f"approval {approval.id}"
            for approval in self.approvals
        )
        super().__init__(
            f"An approval is required: {listed}. Once a person has granted it "
            "(bound.approvals.approve, or `tally approve` at a terminal), do exactly the same "
            "again."
        )

    def facts(self) -> dict[str, Any]:
        """Return the approvals: id, action, subject and rule."""
        approvals = [
            {
                "id": approval.id,
                "action": approval.action,
                "subject": approval.subject,
                "rule_id": approval.rule_id,
            }
            for approval in self.approvals
        ]
        return {"approvals": approvals}


class TokenRefused(Blocked):
    """The token of an approval is not good for this action, which did not happen.

    `reason` is `token_foreign` (of other arguments, another actor or another scope),
    `token_expired`, `token_revoked` or `token_used`.
    """

    code = "token_refused"
    _facts = ("reason", "approval_id")

    def __init__(self, reason: str, *, approval_id: str | None = None) -> None:
        self.reason = reason
        """The stable reason code."""
        self.approval_id = approval_id
        super().__init__(f"The approval token was refused: {reason}. {TOKEN_REMEDIES[reason]}")
