"""Budget classes: what an item is, for the order in which the budget is given out."""

from __future__ import annotations

from tallystick.compiler.state import State

CLASSES: tuple[str, ...] = (
    "constraints_and_request",
    "task_and_tools",
    "policy",
    "working_memory",
    "retrieval",
    "summaries",
)
"""In the order in which they are served."""

FIRST_SHARES = {"task_and_tools": 60, "working_memory": 25, "retrieval": 85}
"""Percent of what is left that a class may take when it is first served, so that one class leaves
room for the next. Of working memory only what a run set is served first: a long conversation has
its window already. What nobody took is then given out again, without these limits.
"""

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
    "working": "working_memory",
    "summary": "summaries",
}


_KEPT = frozenset({"constraint", "decision", "open_question"})
"""Tags of turns, and kinds of memories, that outlast a compaction where anything does."""


def budget_class(state: State, head: str, *, ranked: bool) -> str:
    """The class of a unit. A tool group is active while it is required or of the current turn, else
    history.

    Where something says which older turns matter (`ranked`), those outside of the window compete
    with what was retrieved, as what they are: text found again.
    """
    if head == state.latest:
        return "constraints_and_request"
    if head in state.groups and (head in state.required or head in state.answered):
        return "task_and_tools"
    item = state.items[head]
    if head in state.position and state.position[head] < state.turn and head not in state.window:
        if not _KEPT.isdisjoint(item.tags):
            return "task_and_tools"
        return "retrieval" if ranked else "working_memory"
    if head in state.groups:
        return "working_memory"
    if not _KEPT.isdisjoint(item.tags) or item.metadata.get("memory_kind") in _KEPT:
        return "task_and_tools"
    return _BY_KIND.get(item.kind, "retrieval")
