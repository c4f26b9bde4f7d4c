"""Tasks: the states of one and the ways between them, its branch, and how it is read from a memory.
Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, get_args

from tallystick.errors import InvalidInput, StateConflict
from tallystick.memory.context import labels_of_memory
from tallystick.ranking.languages import fold_accents
from tallystick.records import JsonObject, Memory
from tallystick.records.kinds import StepState, TaskStatus
from tallystick.records.work import Plan, PlanStep, Task

OVER: tuple[TaskStatus, ...] = ("done", "cancelled")
STATUSES: tuple[TaskStatus, ...] = get_args(TaskStatus)
WAYS: Mapping[TaskStatus, tuple[TaskStatus, ...]] = {
    "todo": ("doing",),
    "doing": ("review", "blocked"),
    "blocked": ("doing",),
    "review": ("done",),
    "done": (),
    "cancelled": (),
}
"""The states that follow each state; beside these any task may be cancelled."""
_LONGEST_SLUG = 40
_ID = 8
"""Characters of the id in the name of a branch, the last ones: the first are of the time."""


def status_of(memory: Memory) -> TaskStatus:
    """Return the state of a task."""
    status = memory.attributes.get("status", "todo")
    return status if status in STATUSES else "todo"


def require_task(memory: Memory) -> None:
    """Raise InvalidInput for what is no task."""
    if memory.kind != "task":
        raise InvalidInput(f"{memory.id} is a {memory.kind}, and no task.", argument="task_id")


def require_way(memory: Memory, status: TaskStatus, since: Sequence[TaskStatus] = ()) -> None:
    """Raise StateConflict with what is allowed where a task may not come to `status` from where it
    is, or is in none of `since` where these are named; InvalidInput for what is no task.
    """
    require_task(memory)
    was = status_of(memory)
    if is_way(was, status) and was in (since or STATUSES):
        return
    allowed = [*WAYS[was], *(() if was == "cancelled" else ("cancelled",))]
    raise StateConflict(
        memory.id,
        state=was,
        reason=f"a task that is {was} does not become {status}",
        hint=f"From {was} it may become {', '.join(allowed)}."
        if allowed
        else f"What is {was} stays so.",
    )


def is_way(was: TaskStatus, status: TaskStatus) -> bool:
    """Return True if a task may come from one state to another."""
    return status in WAYS[was] or (status == "cancelled" and was != "cancelled")


def require_archivable(memory: Memory) -> None:
    """Raise StateConflict for a task that is not over, InvalidInput for what is no task."""
    require_task(memory)
    was = status_of(memory)
    if was not in OVER:
        raise StateConflict(
            memory.id,
            state=was,
            reason="only a task that is over is archived",
            hint=f"Complete or cancel it first: from {was} it may become "
            f"{', '.join((*WAYS[was], 'cancelled'))}.",
        )


def require_step(plan: Plan, number: int) -> None:
    """Raise InvalidInput for a step that a plan does not have."""
    if not 1 <= number <= len(plan.steps):
        raise InvalidInput(
            f"`number` {number} is none of the {len(plan.steps)} steps of this plan.",
            argument="number",
        )


def branch_of(memory: Memory) -> str:
    """Return the name of a task's branch: `task/`, words of its text, and the end of its id."""
    plain = fold_accents(memory.content).casefold()
    words = "".join(char if char.isalnum() else " " for char in plain).split()
    slug = ""
    for word in words:
        longer = f"{slug}-{word}" if slug else word[:_LONGEST_SLUG]
        if len(longer) > _LONGEST_SLUG:
            break
        slug = longer
    return f"task/{slug or 'task'}-{memory.id[-_ID:]}"


def task_of(memory: Memory, waits_for: Sequence[str] = ()) -> Task:
    """Return a task as it is listed."""
    attributes = memory.attributes
    return Task.model_construct(
        id=memory.id,
        scope=memory.scope,
        version=memory.version,
        text=memory.content,
        status=status_of(memory),
        priority=attributes.get("priority"),
        assignees=assignees_of(attributes),
        due_at=attributes.get("due_at"),
        technologies=texts(attributes, "technologies"),
        project=project_of(memory),
        estimate=attributes.get("estimate"),
        hours=attributes.get("hours"),
        branch=attributes.get("branch"),
        commits=texts(attributes, "commits"),
        pr_url=attributes.get("pr_url"),
        blockers=texts(attributes, "blockers"),
        waits_for=tuple(waits_for),
        archived=attributes.get("archived") is True,
        updated_at=memory.updated_at,
    )


def assignees_of(attributes: JsonObject) -> tuple[str, ...]:
    """Return everybody whom a task is assigned to."""
    one = attributes.get("assignee")
    first = (one,) if isinstance(one, str) and one else ()
    return tuple(dict.fromkeys((*first, *texts(attributes, "assignees"))))


def project_of(memory: Memory) -> str | None:
    """Return the project that a memory is of."""
    return dict(labels_of_memory(memory)).get("project")


def texts(attributes: JsonObject, name: str) -> tuple[str, ...]:
    """Return an attribute that lists texts, but for blank ones."""
    value = attributes.get(name)
    listed = value if isinstance(value, list) else ()
    return tuple(each for each in listed if isinstance(each, str) and each.strip())


def joined(attributes: JsonObject, name: str, added: Iterable[str]) -> list[str]:
    """Return an attribute that lists texts with further ones, each once."""
    return list(
        dict.fromkeys((*texts(attributes, name), *(each for each in added if each.strip())))
    )


def plan_of(memory: Memory) -> Plan:
    """Return a plan as it is read. Raises InvalidInput for what is no plan."""
    if memory.kind != "plan":
        raise InvalidInput(f"{memory.id} is a {memory.kind}, and no plan.", argument="plan_id")
    status: Any = memory.attributes.get("status", "open")
    return Plan(
        id=memory.id,
        scope=memory.scope,
        version=memory.version,
        text=memory.content,
        status=status,
        steps=steps_of(memory.attributes),
    )


def steps_of(attributes: JsonObject) -> tuple[PlanStep, ...]:
    """Return the steps of a plan; one that is a text only is to be done."""
    steps: Any = attributes.get("steps") or ()
    return tuple(
        PlanStep(text=each)
        if isinstance(each, str)
        else PlanStep(text=each["text"], state=each.get("state", "todo"))
        for each in steps
    )


def with_step(attributes: JsonObject, number: int, state: StepState) -> dict[str, Any]:
    """Return the attributes of a plan in which the step `number`, counted from 1, has a state; it
    is done once each step is done or skipped.
    """
    steps = list(steps_of(attributes))
    if 1 <= number <= len(steps):
        steps[number - 1] = steps[number - 1].model_copy(update={"state": state})
    is_done = bool(steps) and all(step.state in ("done", "skipped") for step in steps)
    status = attributes.get("status", "open")
    return {
        "steps": [step.dump() for step in steps],
        "status": status if status == "cancelled" else "done" if is_done else "open",
    }
