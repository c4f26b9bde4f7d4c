"""Approvals that rules want from a person before a request is sent, one for each rule."""

from __future__ import annotations

from tallystick.compiler.normalize import normalize
from tallystick.compiler.policy import decide
from tallystick.compiler.state import State
from tallystick.records import ApprovalRequest, CompilationRequest

__all__ = ["approvals"]


def approvals(request: CompilationRequest) -> tuple[ApprovalRequest, ...]:
    """Return the approvals to ask for, by the ids of the rules that want them; empty if no rule
    wants one.
    """
    if not any(rule.effect == "require_approval" for rule in request.policy_rules):
        return ()
    state = decide(normalize(State(request=request, count=len)))
    waiting: dict[str, list[str]] = {}
    for item_id in state.items:
        verdict = state.verdicts.get(item_id)
        if verdict is not None and verdict.rule_id is not None:
            waiting.setdefault(verdict.rule_id, []).append(item_id)
    reasons = {rule.id: rule.description or rule.name for rule in request.policy_rules}
    return tuple(
        ApprovalRequest(rule_id=rule_id, reason=reasons[rule_id], item_ids=tuple(item_ids))
        for rule_id, item_ids in sorted(waiting.items())
    )
