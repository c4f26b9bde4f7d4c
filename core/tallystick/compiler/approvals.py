"""What rules want before a request is sent: approvals of a person, a receipt, or that parts of it
stay out.
"""

from __future__ import annotations

from tallystick.compiler.normalize import normalize
from tallystick.compiler.policy import decide, judge
from tallystick.compiler.state import State
from tallystick.records import ApprovalRequest, CompilationRequest


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
        if verdict is not None and verdict.effect == "require_approval" and verdict.rule_id:
            waiting.setdefault(verdict.rule_id, []).append(item_id)
    reasons = {rule.id: rule.description or rule.name for rule in request.policy_rules}
    return tuple(
        ApprovalRequest(rule_id=rule_id, reason=reasons[rule_id], item_ids=tuple(item_ids))
        for rule_id, item_ids in sorted(waiting.items())
    )


def receipts_wanted(request: CompilationRequest) -> dict[str, str]:
    """Return the rule that wants a receipt for each item that one does, by the id of the item."""
    if not any(rule.effect == "require_receipt" for rule in request.policy_rules):
        return {}
    state = normalize(State(request=request, count=len))
    return {
        item.id: receipt
        for item, (_, receipt) in zip(state.candidates, judge(state), strict=True)
        if receipt is not None
    }


def withholding_rules(request: CompilationRequest) -> dict[str, str]:
    """Return the rule that keeps each item from the model as it is, by the id of the item. What was
    redacted already is sent.
    """
    state = normalize(State(request=request, count=len))
    return {
        item.id: verdict.rule_id
        for item, (verdict, _) in zip(state.candidates, judge(state), strict=True)
        if verdict is not None
        and verdict.rule_id is not None
        and not (verdict.effect == "redact" and item.content == verdict.placeholder)
    }
