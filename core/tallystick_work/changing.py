"""Changing: the steps that a task takes, each by the one function that changes a memory, and what
holds for a change of a task that comes by another way.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from tallystick.memory import MemoryContext, modify
from tallystick.memory.change import StepOfWork
from tallystick.memory.context import Write
from tallystick.records import Actor, Change, JsonObject, Memory
from tallystick.records.kinds import StepState, TaskStatus
from tallystick.storage.rows import memories
from tallystick_work.tasks import (
    branch_of,
    is_way,
    joined,
    plan_of,
    require_archivable,
    require_step,
    require_way,
    status_of,
    with_step,
)

Changes = Callable[[Memory], Mapping[str, Any]]


def take_step(
    context: MemoryContext,
    actor: Actor,
    task_id: str,
    step: StepOfWork,
    *,
    reason: str,
    if_version: int | None,
    idempotency_key: str | None,
    correlation_id: str | None,
) -> Change:
    """Change a task, or a plan, by a step. Raises as `modify`, and StateConflict where it does not
    allow the step.
    """
    return modify(
        context,
        actor,
        task_id,
        step,
        reason=reason,
        if_version=if_version,
        idempotency_key=idempotency_key,
        correlation_id=correlation_id,
    )


def start(assignee: str | None, branch: str | None) -> StepOfWork:
    """Return the step from todo to doing; from blocked it is `unblock`."""

    def changes(memory: Memory) -> Mapping[str, Any]:
        attributes: dict[str, Any] = {"branch": branch or branch_of(memory)}
        if assignee is not None:
            attributes["assignees"] = joined(memory.attributes, "assignees", [assignee])
        return {"attributes": {**attributes, "status": "doing"}}

    return _way("start", "doing", changes, {"assignee": assignee, "branch": branch}, ("todo",))


def block(blocker: str, blocker_id: str | None) -> StepOfWork:
    """Return the step from doing to blocked: by a memory, on which it depends from then on, or by
    what words say.
    """

    def changes(memory: Memory) -> Mapping[str, Any]:
        blockers = joined(memory.attributes, "blockers", [blocker_id or blocker])
        links = {} if blocker_id is None else {"depends_on": {"add": [blocker_id]}}
        return {"attributes": {"status": "blocked", "blockers": blockers}, **links}

    return _way("block", "blocked", changes, {"blocker": blocker_id or blocker})


def unblock() -> StepOfWork:
    """Return the step from blocked back to doing. What blocked it stays named, for what is learned
    from it.
    """
    changes = {"attributes": {"status": "doing"}}
    return _way("unblock", "doing", lambda memory: changes, {}, ("blocked",))


def submit(commits: tuple[str, ...], pr_url: str | None) -> StepOfWork:
    """Return the step from doing to review."""

    def changes(memory: Memory) -> Mapping[str, Any]:
        attributes: dict[str, Any] = {"commits": joined(memory.attributes, "commits", commits)}
        if pr_url is not None:
            attributes["pr_url"] = pr_url
        return {"attributes": {**attributes, "status": "review"}}

    return _way("submit", "review", changes, {"commits": list(commits), "pr_url": pr_url})


def cancel() -> StepOfWork:
    """Return the step from any state to cancelled."""
    changes = {"attributes": {"status": "cancelled"}}
    return _way("cancel", "cancelled", lambda memory: changes, {})


def archive() -> StepOfWork:
    """Return the step that takes a task that is over off the board; it stays in recall."""
    changes = {"attributes": {"archived": True}}
    return StepOfWork({"step": "archive"}, lambda memory: changes, require_archivable)


def advance_plan(number: int, state: StepState) -> StepOfWork:
    """Return the step that gives a step of a plan a state."""
    return StepOfWork(
        {"step": "plan", "number": number, "state": state},
        lambda memory: (
            {"attributes": with_step(memory.attributes, number, state)}
            if memory.kind == "plan"
            else {"attributes": {}}
        ),
        lambda memory: require_step(plan_of(memory), number),
    )


def _way(
    name: str,
    status: TaskStatus,
    changes: Changes,
    arguments: JsonObject,
    since: tuple[TaskStatus, ...] = (),
) -> StepOfWork:
    """Return the step by which a task comes to a state, from one of `since` where several lead
    there.
    """
    return StepOfWork(
        {"step": name, **arguments},
        lambda memory: changes(memory) if memory.kind == "task" else {"attributes": {}},
        lambda memory: require_way(memory, status, since),
    )


def follow_task(write: Write, before: memories.Stored, after: Memory) -> None:
    """Refuse a change that brings a task to a state which does not follow its own, whoever makes
    it. What is corrected or taken back goes to any.
    """
    was = before.memory
    if was.kind != "task" or after.kind != "task" or was.corrected != after.corrected:
        return
    old, new = status_of(was), status_of(after)
    if old != new and not is_way(old, new):
        require_way(was, new)
