"""Commands of work: tasks through their states, plans, and links to what is alike."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from tallystick.errors import InvalidInput
from tallystick_cli.commands import Answer, Call, command, operation_command
from tallystick_cli.session import id_of
from tallystick_cli.views import work as views

_STEPS = {
    "start": "start_task",
    "block": "block_task",
    "unblock": "unblock_task",
    "submit": "submit_task",
    "complete": "complete_task",
    "cancel": "cancel_task",
    "archive": "archive_task",
    "estimate": "estimate_task",
}
"""What is done with one task, and its operation."""

aliases = operation_command(
    "aliases", views.alias_table, scope="home", empty="No name stands for another one."
)


@command("keep_apart", positional=("name", "other"), scope="home")
def keep_apart(call: Call) -> Answer:
    call.do()
    return Answer({"kept_apart": True}, "✓ they are kept apart")


link = operation_command("link_alike", views.alike_view)


@command(
    *("tasks", "prioritize_tasks", "task_cycles", *_STEPS.values()),
    without=("task_id", "blocker"),
    scope="home",
)
def task(
    call: Call,
    action: Literal[
        "list",
        "next",
        "cycles",
        "start",
        "block",
        "unblock",
        "submit",
        "complete",
        "cancel",
        "archive",
        "estimate",
    ] = "list",
    task_or_id: Annotated[str | None, "Id of a task, or how it begins or ends."] = None,
    blocker: Annotated[str | None, "Of block: id of a memory, or words for what blocks it."] = None,
    /,
) -> Answer:
    """List tasks, show what to do next, or the circles of dependencies; start, block, unblock,
    submit, complete, cancel, archive or estimate one.
    """
    if (task_or_id is None) != (action in ("list", "next", "cycles")) or (blocker is None) != (
        action != "block"
    ):
        raise InvalidInput("Write tally task list, next or cycles; start ID …; block ID BLOCKER.")
    if action == "list":
        tasks = call.do("tasks")
        return Answer(tasks, views.task_table(tasks) if tasks else "There is no such task.")
    if action == "next":
        ranked = call.do("prioritize_tasks")
        return Answer(ranked, views.ranked_table(ranked) if ranked else "Nothing is open.")
    if action == "cycles":
        circles = call.do("task_cycles")
        return Answer(circles, views.circles_view(circles))
    of_task: dict[str, Any] = {"task_id": id_of(task_or_id or "")}
    if blocker is not None:
        of_task["blocker"] = blocker
    result = call.do(_STEPS[action], **of_task)
    if action == "complete":
        return Answer(result, views.completed_view(result))
    if action == "estimate":
        return Answer(result, views.estimate_line(result))
    return Answer(result, views.task_line(result))


@command(
    *("plan", "advance_plan"),
    without=("plan_id",),
)
def plan(
    call: Call,
    plan_or_id: Annotated[str, "Id of a plan, or how it begins or ends."],
    /,
) -> Answer:
    """Show a plan with its steps; with --number give one of them a --state."""
    name = "advance_plan" if "number" in call.arguments else "plan"
    result = call.do(name, plan_id=id_of(plan_or_id))
    return Answer(result, views.plan_view(result))
