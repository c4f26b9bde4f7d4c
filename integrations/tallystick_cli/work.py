"""Commands of work: tasks through their states, plans, and links to what is alike."""

from __future__ import annotations

from typing import Annotated, Any

from tallystick_cli.actions import Action, action_command
from tallystick_cli.commands import Call, command, operation_command
from tallystick_cli.session import id_of
from tallystick_cli.views import work as views

aliases = operation_command(
    "aliases", views.alias_table, scope="home", empty="No name stands for another one."
)


keep_apart = operation_command(
    "keep_apart", "✓ they are kept apart", positional=("name", "other"), scope="home"
)
link = operation_command("link_alike", views.alike_view)

task = action_command(
    "List tasks, show what to do next, or the circles of dependencies; start, block, unblock, "
    "submit, complete, cancel, archive or estimate one.",
    {
        "list": Action("tasks", view=views.task_table, empty="There is no such task."),
        "next": Action("prioritize_tasks", view=views.ranked_table, empty="Nothing is open."),
        "cycles": Action(
            "task_cycles", view=views.circles_view, empty="Nothing depends on itself."
        ),
        "start": Action("start_task", "task_id", views.task_line),
        "block": Action("block_task", "task_id blocker", views.task_line),
        "unblock": Action("unblock_task", "task_id", views.task_line),
        "submit": Action("submit_task", "task_id", views.task_line),
        "complete": Action("complete_task", "task_id", views.completed_view),
        "cancel": Action("cancel_task", "task_id", views.task_line),
        "archive": Action("archive_task", "task_id", views.task_line),
        "estimate": Action("estimate_task", "task_id", views.estimate_line),
    },
    helps={"blocker": "Of block: id of a memory, or words for what blocks it."},
    scope="home",
)


@command("plan", "advance_plan", without=("plan_id",), view=views.plan_view)
def plan(
    call: Call, plan_or_id: Annotated[str, "Id of a plan, or how it begins or ends."], /
) -> Any:
    """Show a plan with its steps; with --number give one of them a --state."""
    name = "advance_plan" if "number" in call.arguments else "plan"
    return call.do(name, plan_id=id_of(plan_or_id))
