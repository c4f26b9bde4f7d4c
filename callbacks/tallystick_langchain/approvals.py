"""Asking a person: an interrupt of the form that LangChain's HumanInTheLoopMiddleware makes."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

from langchain_core.runnables.config import ensure_config

from tallystick.adapters import decide_as_person
from tallystick.aio import in_thread
from tallystick.errors import ApprovalRequired
from tallystick.records import Approval
from tallystick.tally import BoundTally

__all__ = ["ActionRequest", "Decision", "approved", "approved_async", "ask_person"]

T = TypeVar("T")

_CHECKPOINTER = "__pregel_checkpointer"
"""Key of the checkpointer of the graph under way, in `configurable`."""


class ActionRequest(NamedTuple):
    """An action that a person is asked about."""

    name: str
    arguments: Any
    description: str
    approval_id: str | None = None
    """The approval that waits for the answer in the tally, where a rule wants one."""


class Decision(NamedTuple):
    """The answer of a person."""

    is_approved: bool
    message: str


def ask_person(requests: Sequence[ActionRequest]) -> Decision | None:
    """Return the decision of a person about these actions together; None where nobody can be asked.

    The graph stops with an interrupt until `Command(resume={"decisions": [{"type": "approve"}]})`,
    with a decision for each action; `True` or `"approve"` approve too, and nothing else does.
    """
    try:
        from langgraph.types import interrupt
    except ImportError:
        return None
    if ensure_config().get("configurable", {}).get(_CHECKPOINTER) is None:
        # No graph, or one that cannot go on where it stopped.
        return None
    try:
        response = interrupt(
            {
                "action_requests": [_action_request(request) for request in requests],
                "review_configs": [
                    {"action_name": request.name, "allowed_decisions": ["approve", "reject"]}
                    for request in requests
                ],
            }
        )
    except (RuntimeError, KeyError):
        # Inside of a graph, but in none of its tasks.
        return None
    decisions = response.get("decisions") if isinstance(response, Mapping) else None
    if not isinstance(decisions, list) or not decisions:
        decisions = [response] * len(requests)
    kinds = [item.get("type") if isinstance(item, Mapping) else item for item in decisions]
    messages = [item.get("message") for item in decisions if isinstance(item, Mapping)]
    is_approved = len(kinds) == len(requests) and all(
        kind is True or kind == "approve" for kind in kinds
    )
    message = next((str(text) for text in messages if text), None)
    return Decision(is_approved, message or ("approved" if is_approved else "A person said no."))


def approved(bound: BoundTally, check: Callable[[], T]) -> T:
    """Return what `check` returns; where a rule wants an approval, once a person has given it.

    Raises ApprovalRequired where nobody can be asked, and ActionDenied where the person says no.
    """
    try:
        return check()
    except ApprovalRequired as error:
        approvals = error.approvals
        decision = _decision(error)
        if decision is None:
            raise
    _decide(bound, approvals, decision)
    return check()


async def approved_async(bound: BoundTally, check: Callable[[], Awaitable[T]]) -> T:
    """Same as `approved`."""
    try:
        return await check()
    except ApprovalRequired as error:
        approvals = error.approvals
        decision = _decision(error)
        if decision is None:
            raise
    await in_thread(_decide, bound, approvals, decision)
    return await check()


def _decision(error: ApprovalRequired) -> Decision | None:
    decision = ask_person(_requests(error.approvals))
    if decision is not None and error.new:
        # Nobody was asked about these before the answer came: the graph was changed while it
        # waited. The answer stays in its state and would be given again, so that it is a denial,
        # which a person may revoke.
        return Decision(False, "The answer was given before these arguments were asked about.")
    return decision


def _decide(bound: BoundTally, approvals: Sequence[Any], decision: Decision) -> None:
    decide_as_person(bound, approvals, approved=decision.is_approved, reason=decision.message)


def _requests(approvals: Sequence[Any]) -> list[ActionRequest]:
    asked_for: list[Approval] = list(approvals)
    return [
        ActionRequest(approval.subject, approval.arguments, approval.reason, approval.id)
        for approval in asked_for
    ]


def _action_request(request: ActionRequest) -> dict[str, Any]:
    approval = {} if request.approval_id is None else {"approval_id": request.approval_id}
    return {
        "name": request.name,
        "args": request.arguments,
        "description": request.description,
        **approval,
    }
