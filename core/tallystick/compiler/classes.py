"""Budget classes: what an item is, for the order in which the budget is given out."""

from __future__ import annotations

from tallystick.compiler.state import State

__all__ = ["CLASSES", "FIRST_SHARES", "budget_class"]

CLASSES: tuple[str, ...] = (
    "constraints_and_request",
    "task_and_tools",
    "policy",
    "working_memory",
    "retrieval",
    "summaries",
)
"""In the order in which they are served."""

FIRST_SHARES = {"task_and_tools": 60, "working_memory": 50, "retrieval": 85}
"""Percent of what is left that a class may take when it is first served, so that a long conversation leaves
room for what was found and for summaries. What nobody took is then given out again, without these limits."""

_BY_KIND = {
    "constraint": "constraints_and_request",
    "task": "task_and_tools",
    "plan": "task_and_tools",
    "handoff": "task_and_tools",
    "tool_result": "task_and_tools",
    "system": "policy",
    "policy": "policy",
    "tool_schema": "policy",
    "user_msg": "working_memory",
    "assistant_msg": "working_memory",
    "summary": "summaries",
}


def budget_class(state: State, head: str) -> str:
    """The class of a unit. A tool group is active while it is required or of the current turn, else history."""
    if head == state.latest:
        return "constraints_and_request"
    if head in state.groups:
        active = head in state.required or head in state.answered
        return "task_and_tools" if active else "working_memory"
    return _BY_KIND.get(state.items[head].kind, "retrieval")
