"""Asking a person: an interrupt of the form that LangChain's HumanInTheLoopMiddleware makes.

Must hold: a task of a graph asks about one call. LangGraph hands the answers of a task out in the
order in which its calls ask, which is by chance where the task makes several in parallel, and hands
them out again when it repeats the task. Without the comparison with the question that waits, which
the checkpointer has, an answer to one call would approve another.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

from langchain_core.runnables.config import ensure_config

from tallystick.aio import in_thread
from tallystick.errors import ApprovalRequired
from tallystick.kit import decide_as_person
from tallystick.records import Approval
from tallystick.tally import BoundTally

T = TypeVar("T")

_CHECKPOINTER = "__pregel_checkpointer"
"""Key of the checkpointer of the graph under way, in `configurable`."""
_INTERRUPT = "__interrupt__"
"""Channel of the questions of a task, in the pending writes of a checkpoint."""


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
    with a decision for each action; `True` or `"approve"` approve too, and nothing else does. None
    as well where the same task has asked about another call.
    """
    configurable = ensure_config().get("configurable", {})
    return None if _has_asked_of_another(configurable, requests) else _ask(requests)


async def ask_person_async(requests: Sequence[ActionRequest]) -> Decision | None:
    """Same as `ask_person`."""
    configurable = ensure_config().get("configurable", {})
    is_of_another = await in_thread(_has_asked_of_another, configurable, requests)
    return None if is_of_another else _ask(requests)


def _has_asked_of_another(
    configurable: Mapping[str, Any], requests: Sequence[ActionRequest]
) -> bool:
    """Return True if the question of this task that the checkpointer has is about another call."""
    saver = configurable.get(_CHECKPOINTER)
    if saver is None:
        return False
    graph, _, task = str(configurable.get("checkpoint_ns", "")).rpartition("|")
    checkpoints = configurable.get("checkpoint_map") or {}
    place = {**configurable, "checkpoint_ns": graph, "checkpoint_id": checkpoints.get(graph)}
    saved = saver.get_tuple({"configurable": place})
    calls = [(request.name, request.arguments) for request in requests]
    return saved is not None and any(
        calls != [(item["name"], item["args"]) for item in interrupt.value["action_requests"]]
        for task_id, channel, interrupts in saved.pending_writes or ()
        if task_id == task.rpartition(":")[2] and channel == _INTERRUPT
        for interrupt in interrupts
        if isinstance(interrupt.value, Mapping) and "action_requests" in interrupt.value
    )


def _ask(requests: Sequence[ActionRequest]) -> Decision | None:
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
    return _decision(response, len(requests))


def _decision(response: Any, count: int) -> Decision:
    decisions = response.get("decisions") if isinstance(response, Mapping) else None
    if not isinstance(decisions, list) or not decisions:
        decisions = [response] * count
    kinds = [item.get("type") if isinstance(item, Mapping) else item for item in decisions]
    messages = [item.get("message") for item in decisions if isinstance(item, Mapping)]
    is_approved = len(kinds) == count and all(kind is True or kind == "approve" for kind in kinds)
    message = next((str(text) for text in messages if text), None)
    return Decision(is_approved, message or ("approved" if is_approved else "A person said no."))


def check_with_approval(bound: BoundTally, check: Callable[[], T]) -> T:
    """Return what `check` returns; where a rule wants an approval, once a person has given it.

    Raises ApprovalRequired where nobody can be asked, and ActionDenied where the person says no.
    """
    try:
        return check()
    except ApprovalRequired as error:
        approvals = error.approvals
        decision = ask_person(_requests(approvals))
        if decision is None:
            raise
        decision = _about(error, decision)
    _decide(bound, approvals, decision)
    return check()


async def approved_async(bound: BoundTally, check: Callable[[], Awaitable[T]]) -> T:
    """Same as `check_with_approval`."""
    try:
        return await check()
    except ApprovalRequired as error:
        approvals = error.approvals
        decision = await ask_person_async(_requests(approvals))
        if decision is None:
            raise
        decision = _about(error, decision)
    await in_thread(_decide, bound, approvals, decision)
    return await check()


def _about(error: ApprovalRequired, decision: Decision) -> Decision:
    """Return a decision about exactly what waits."""
    if not error.new:
        return decision
    # Nobody was asked about these before the answer came: the graph was changed while it waited.
    # The answer stays in its state and would be given again, so that it is a denial, which a person
    # may revoke.
    return Decision(False, "The answer was given before these arguments were asked about.")


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
