"""Choosing what to do next, and how long it may take: an order with its reasons, and the hours of
done tasks that are like one. Pure.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from tallystick.errors import StateConflict
from tallystick.records.kinds import Priority
from tallystick.records.work import Estimate, RankedTask, Task
from tallystick_work.tasks import OVER

_OF_PRIORITY: Mapping[Priority | None, int] = {
    "critical": 400,
    "high": 300,
    None: 200,
    "medium": 200,
    "low": 100,
}
_OVERDUE = 300
_DUE: Sequence[tuple[int, int]] = ((1, 200), (3, 100), (7, 50))
"""Days from now up to which a task is due, and what that counts."""
_WAITING, _MOST_WAITING = 40, 160
"""What each open task counts that waits for one, and all of them at most."""
_UNDER_WAY = 30
_DAY = 24 * 3_600 * 1_000_000
FEWEST = 3
"""Done tasks below which nothing is estimated."""


def prioritize(tasks: Iterable[Task], now: int) -> list[RankedTask]:
    """Return the open tasks in the order in which to do them, with reasons; what is blocked or
    waits for another one comes last. Equal ones are in the order of their ids.
    """
    open_tasks = [task for task in tasks if task.status not in OVER and not task.archived]
    waiting = Counter(each for task in open_tasks for each in task.waits_for)
    ranked = [_rank(task, waiting[task.id], now) for task in open_tasks]
    return sorted(ranked, key=lambda each: (_must_wait(each.task), -each.score, each.task.id))


def _rank(task: Task, waiting: int, now: int) -> RankedTask:
    score = _OF_PRIORITY[task.priority]
    reasons = [f"priority {task.priority}" if task.priority else "no priority"]
    if task.due_at is not None:
        days = -((now - task.due_at) // _DAY)
        if task.due_at < now:
            score += _OVERDUE
            late = (now - task.due_at) // _DAY
            reasons.append(f"overdue by {_days(late)}" if late else "overdue")
        else:
            score += next((counts for most, counts in _DUE if days <= most), 0)
            reasons.append(f"due in {_days(days)}" if days else "due today")
    if waiting:
        score += min(_MOST_WAITING, _WAITING * waiting)
        reasons.append(f"{waiting} open {'task waits' if waiting == 1 else 'tasks wait'} for it")
    if task.status in ("doing", "review"):
        score += _UNDER_WAY
        reasons.append("under way" if task.status == "doing" else "in review")
    if task.status == "blocked":
        reasons.append("blocked")
    if task.waits_for:
        count = len(task.waits_for)
        reasons.append(f"it waits for {count} open {'task' if count == 1 else 'tasks'}")
    return RankedTask(task=task, score=score, reasons=tuple(reasons))


def _must_wait(task: Task) -> bool:
    return task.status == "blocked" or bool(task.waits_for)


def _days(count: int) -> str:
    return f"{count} {'day' if count == 1 else 'days'}"


def estimate(task_id: str, alike: Sequence[tuple[Task, float]]) -> Estimate:
    """Return the hours of done tasks, each with its likeness, that are like one. Raises
    StateConflict below three.
    """
    counted = sorted(
        (each for each in alike if each[0].hours is not None),
        key=lambda each: (-each[1], each[0].id),
    )
    if len(counted) < FEWEST:
        raise StateConflict(
            task_id,
            state="not to be estimated",
            reason=f"{len(counted)} done tasks with hours are like it, and {FEWEST} are needed",
            hint="Give the hours when tasks are completed.",
        )
    # Loaded here: it takes as long as the rest of the extension, and every tally loads that.
    from statistics import median

    hours = [float(task.hours or 0) for task, _ in counted]
    return Estimate(
        median=float(median(hours)),
        low=min(hours),
        high=max(hours),
        task_ids=tuple(task.id for task, _ in counted),
    )
