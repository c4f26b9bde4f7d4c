"""Work: the board of tasks, what blocks what, and the dependencies drawn in layers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from starlette.responses import Response

from tallystick.records import MOST_RESULTS
from tallystick.records.kinds import TaskStatus
from tallystick.records.work import Task
from tallystick_server.dashboard.runs import scopes_of
from tallystick_server.dashboard.visits import Visit, page

_LISTED, _NEXT = 200, 10
_DRAWN = 60
"""Tasks of the picture: those that others wait for, or that wait."""
_OPEN: tuple[TaskStatus, ...] = ("todo", "doing", "blocked", "review")
_OVER: tuple[TaskStatus, ...] = ("done", "cancelled")
_COLUMNS = (*_OPEN, *_OVER)
_WIDTH, _ROW, _TOP = 230, 44, 26
"""Units of the picture between layers, between tasks of one, and above the first."""


@dataclass(frozen=True)
class Place:
    """A task in the picture."""

    task: Task
    x: int
    y: int


def _work(visit: Visit) -> Response:
    project, assignee = visit.text("project"), visit.text("assignee")
    filters: dict[str, Any] = {
        **({"project": project} if project else {}),
        **({"assignees": [assignee]} if assignee else {}),
    }
    # What is over may be all that is new: it leaves no open task off the board.
    tasks: list[Task] = [
        task
        for statuses, most in ((_OPEN, MOST_RESULTS), (_OVER, _LISTED))
        for task in visit.call("tasks", statuses=statuses, limit=most, **filters)
    ]
    ranked = visit.call(
        "prioritize_tasks", project=project or None, assignee=assignee or None, limit=_NEXT
    )
    places = place_tasks(tasks)
    by_id = {task.id: task for task in tasks}
    return visit.page(
        "work.html",
        scope=visit.bound.scope,
        scopes=[each for each in scopes_of(visit) if each.readable],
        project=project,
        assignee=assignee,
        columns=[
            (status, [each for each in tasks if each.status == status]) for status in _COLUMNS
        ],
        ranked=ranked,
        blocked=[each for each in tasks if each.status == "blocked" or each.waits_for],
        by_id=by_id,
        places=places,
        lines=[
            (places[task.id], places[other])
            for task in tasks
            for other in task.waits_for
            if task.id in places and other in places
        ],
        width=max((each.x for each in places.values()), default=0) + _WIDTH,
        height=max((each.y for each in places.values()), default=0) + _ROW,
    )


def place_tasks(tasks: Sequence[Task]) -> dict[str, Place]:
    """Return the tasks that wait for another one, or are waited for, each to the right of those
    that it waits for.
    """
    known = {task.id: task for task in tasks}
    linked = [
        task
        for task in tasks
        if any(other in known for other in task.waits_for)
        or any(task.id in other.waits_for for other in tasks)
    ][:_DRAWN]
    layers = _layers({task.id: [*task.waits_for] for task in linked})
    rows: dict[int, int] = {}
    places: dict[str, Place] = {}
    for task in sorted(linked, key=lambda each: (layers[each.id], each.id)):
        layer = layers[task.id]
        row = rows[layer] = rows.get(layer, -1) + 1
        places[task.id] = Place(task, _TOP + layer * _WIDTH, _TOP + row * _ROW)
    return places


def _layers(needs: Mapping[str, Sequence[str]]) -> dict[str, int]:
    """Return for each the length of the longest way to what waits for nothing. What stands in a
    circle of an older tally is in the layer where the rounds end.
    """
    layers = dict.fromkeys(needs, 0)
    for _ in needs:
        longer = {
            name: max((layers[each] + 1 for each in ends if each in layers), default=0)
            for name, ends in needs.items()
        }
        if longer == layers:
            break
        layers = longer
    return {name: min(layer, len(needs)) for name, layer in layers.items()}


ROUTES = [page("/work", _work)]
