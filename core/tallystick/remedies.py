"""Remedies: what to do after a refusal, by its reason code."""

from __future__ import annotations

from collections.abc import Mapping

REMEDIES: Mapping[str, str] = {
    "missing_actor": "Name who acts: give the call its user, or the piece of the adapter an "
    "`actor`.",
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
"""The remedy for a refusal, by its reason code. docs/policy.md says more."""

TOKEN_REMEDIES: Mapping[str, str] = {
    "token_foreign": "It is not of exactly this action by this actor in this scope: call without "
    "it, and ask anew.",
    "token_expired": "Call without it, which asks anew.",
    "token_revoked": "The grant was taken back: call without it, which asks anew.",
    "token_used": "A grant is good for one action: call without it, which asks anew.",
}
"""The remedy for a refused token, by its reason code."""
