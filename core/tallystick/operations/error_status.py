"""Errors on the wire: one map from the code of an error to HTTP and MCP, one JSON shape."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from tallystick.errors import TallystickError

_INVALID_PARAMS = -32602
_INTERNAL_ERROR = -32603


class WireStatus(NamedTuple):
    """Statuses and forms in which surfaces report an error."""

    http: int
    """The HTTP status."""
    mcp: int | None = None
    """The JSON-RPC code of an MCP answer; None for a tool result with `isError`, on which a model
    can act.
    """


STATUS: Mapping[str, WireStatus] = {
    "tallystick_error": WireStatus(500, _INTERNAL_ERROR),
    "invalid_input": WireStatus(422),
    "unknown_name": WireStatus(422),
    "unknown_argument": WireStatus(422),
    "invalid_record": WireStatus(422),
    "invalid_scope": WireStatus(422),
    "idempotency_mismatch": WireStatus(422),
    "settings_error": WireStatus(500, _INTERNAL_ERROR),
    "missing_extra": WireStatus(501, _INTERNAL_ERROR),
    "storage_error": WireStatus(500, _INTERNAL_ERROR),
    "tally_not_found": WireStatus(404, _INTERNAL_ERROR),
    "newer_tally": WireStatus(503, _INTERNAL_ERROR),
    "unreleased_tally": WireStatus(503, _INTERNAL_ERROR),
    "closed_tally": WireStatus(503, _INTERNAL_ERROR),
    "forked_tally": WireStatus(500, _INTERNAL_ERROR),
    "busy_tally": WireStatus(503),
    "read_only_tally": WireStatus(503),
    "corrupt_tally": WireStatus(500, _INTERNAL_ERROR),
    "blocked_type": WireStatus(422, _INVALID_PARAMS),
    "inside_transaction": WireStatus(500, _INTERNAL_ERROR),
    "not_found": WireStatus(404),
    "unreachable": WireStatus(502),
    "unauthenticated": WireStatus(401),
    "denied": WireStatus(403),
    "rate_limited": WireStatus(429),
    "conflict": WireStatus(409),
    "version_conflict": WireStatus(409),
    "state_conflict": WireStatus(409),
    "position_taken": WireStatus(409),
    "embedding_error": WireStatus(502, _INTERNAL_ERROR),
    "embedder_unavailable": WireStatus(503, _INTERNAL_ERROR),
    "embedder_failed": WireStatus(502, _INTERNAL_ERROR),
    "text_refused": WireStatus(422),
    "unusable_vectors": WireStatus(502, _INTERNAL_ERROR),
    "dimension_mismatch": WireStatus(500, _INTERNAL_ERROR),
    "extraction_error": WireStatus(502, _INTERNAL_ERROR),
    "model_unavailable": WireStatus(503, _INTERNAL_ERROR),
    "credential_refused": WireStatus(503, _INTERNAL_ERROR),
    "model_failed": WireStatus(502, _INTERNAL_ERROR),
    "model_refused": WireStatus(422),
    "egress_denied": WireStatus(403),
    "budget_spent": WireStatus(429),
    "lease_lost": WireStatus(409),
    "blocked": WireStatus(403),
    "action_denied": WireStatus(403),
    "approval_required": WireStatus(403),
    "token_refused": WireStatus(403),
    "compile_error": WireStatus(422),
    "request_denied": WireStatus(403),
    "budget_infeasible": WireStatus(422),
    "invalid_context": WireStatus(422),
    "recorder_error": WireStatus(500, _INTERNAL_ERROR),
    "run_closed": WireStatus(409),
    "not_replayable": WireStatus(409),
    "tape_diverged": WireStatus(409),
    "recorded_failure": WireStatus(502),
    "not_of_format": WireStatus(422),
    "authorization_needed": WireStatus(424),
    "source_rate_limited": WireStatus(503),
}
"""By the code of the error. A test holds that no error is missing."""


def wire_status(error: TallystickError) -> WireStatus:
    """Return the status of an error, or of the nearest class above it that has one."""
    for kind in type(error).__mro__:
        status = STATUS.get(getattr(kind, "code", ""))
        if status is not None:
            return status
    return STATUS[TallystickError.code]


def error_json(error: TallystickError) -> dict[str, Any]:
    """Return an error as surfaces send it: its code, its message for people and its facts."""
    return {"code": error.code, "message": str(error), "facts": error.facts()}
