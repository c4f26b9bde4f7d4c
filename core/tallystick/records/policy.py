"""Rules and decisions: PolicyRule, AccessDecision and the stable reason codes."""

from __future__ import annotations

from typing import Literal

from tallystick.records._base import JsonObject, Persisted, Record
from tallystick.records.identity import Scope

__all__ = [
    "AccessDecision",
    "ApprovalRequest",
    "Limited",
    "AccessKind",
    "PolicyConditions",
    "PolicyEffect",
    "PolicyRule",
    "ReasonCode",
]

AccessKind = Literal[
    "read",
    "write",
    "reflect",
    "share",
    "promote",
    "inspect",
    "correct",
    "export",
    "delete",
    "record",
    "manage",
]

ReasonCode = Literal[
    "allowed_private",
    "allowed_diary",
    "allowed_project",
    "allowed_member",
    "allowed_operator",
    "missing_actor",
    "missing_organization",
    "missing_memory_space",
    "missing_scope_key",
    "missing_project_id",
    "scope_disabled",
    "missing_permission",
    "unverified_membership",
    "principal_mismatch",
    "agent_identity_required",
    "delegation_required",
    "delegation_expired",
    "scope_crossing_requires_promotion",
    "unsupported_scope",
    "hidden_source",
    "redacted_source",
    "source_deleted",
    "pinned_memory",
    "version_conflict",
    "confirm_token_required",
    "rate_limited",
    "mutations_frozen",
    "job_policy_context_missing",
    "job_policy_context_stale",
]

Limited = Literal["read", "inspect", "preview", "export"]
"""Operations that a tally may limit for each actor: recalls and other reads, inspections, previews,
exports.
"""

PolicyEffect = Literal["allow", "deny", "redact", "require_approval", "require_receipt"]


class AccessDecision(Record):
    """The one shape of every decision about access."""

    allowed: bool
    reason: ReasonCode
    operation: AccessKind
    scope: Scope | None = None
    surface: str
    audit_id: str | None = None
    """The journal event of this decision; set for every refusal."""


class ApprovalRequest(Record):
    """An approval that a rule wants from a person."""

    action: Literal["send_to_model"] = "send_to_model"
    rule_id: str
    reason: str
    """The description of the rule."""
    item_ids: tuple[str, ...]
    """The candidates it is about, in their order."""


class PolicyConditions(Record):
    """Conditions under which a rule applies; each field that is set must match one of its
    values.
    """

    agent: tuple[str, ...] = ()
    task_type: tuple[str, ...] = ()
    provider: tuple[str, ...] = ()
    sensitivity: tuple[str, ...] = ()
    tool_class: tuple[str, ...] = ()
    environment: tuple[str, ...] = ()
    scope: tuple[str, ...] = ()
    """Scopes as text, compared whole; a bare kind such as `project` matches every scope of that
    kind.
    """
    kind: tuple[str, ...] = ()
    """Item kinds."""
    tag: tuple[str, ...] = ()


class PolicyRule(Persisted):
    """One rule. Highest priority wins; at equal priority deny wins."""

    id: str
    name: str
    description: str = ""
    applies_to: Literal["context_item", "tool_call", "memory", "model_call"] = "context_item"
    effect: PolicyEffect
    conditions: PolicyConditions = PolicyConditions()
    priority: int = 0
    metadata: JsonObject = {}
