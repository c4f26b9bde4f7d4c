"""Commands of work: tasks through their states, plans, and links to what is alike."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Any

from rich.console import Group, RenderableType
from rich.text import Text

from tallystick.operations import OPERATIONS
from tallystick.records.work import CompletedTask, Estimate, LinkedAlike, Plan, Task
from tallystick_cli.actions import Action, action_command
from tallystick_cli.commands import Call, command, operation_command
from tallystick_cli.session import id_of
from tallystick_cli.views.common import join_ids, note, report, rows, short, state_text, table

task_table = rows("id status priority who=assignees due=due_at says=text waits_for")
ranked_table = rows("id=task.id score says=task.text why=reasons")
alias_table = rows("alias entity said_in=evidence", why=lambda each: each.reason.replace("_", " "))


def task_line(task: Task) -> Text:
    """Return what became of a task, in a line."""
    branch = f", branch {task.branch}" if task.branch and task.status == "doing" else ""
    archived = ", archived" if task.archived else ""
    return report(f"{short(task.id)} is {task.status}{archived}{branch}")


def completed_view(completed: CompletedTask) -> RenderableType:
    """Return what the completion of a task has made."""
    lines: list[Text | str] = [task_line(completed.task), f"episode {short(completed.episode_id)}"]
    if completed.error_patterns:
        lines.append(f"error patterns {join_ids(completed.error_patterns)}")
    if completed.project_id is not None:
        lines.append(f"project: {completed.done} of {completed.total} tasks are done")
    return Group(*lines, *map(note, completed.warnings))


def estimate_line(estimate: Estimate) -> str:
    """Return the hours that tasks took, in a line."""
    hours = f"{estimate.median:g} hours ({estimate.low:g} to {estimate.high:g})"
    return f"{hours}, from {join_ids(estimate.task_ids)}"


def circles_view(circles: Iterable[Iterable[str]]) -> str:
    """Return circles of dependencies, one in a line."""
    return "\n".join(" → ".join(map(short, circle)) for circle in circles)


def plan_view(plan: Plan) -> RenderableType:
    """Return a plan with its steps."""
    steps = [
        Text.assemble(f"{number:3}  ", state_text(step.state), f"  {step.text}")
        for number, step in enumerate(plan.steps, 1)
    ]
    return Group(Text.assemble((plan.text, "bold"), "  ", state_text(plan.status)), *steps)


def alike_view(linked: LinkedAlike) -> RenderableType:
    """Return what a memory is like, and whether it was linked."""
    if not linked.links:
        return "It is like no pattern, rule, template, error pattern or topic."
    shown = table(linked.links, "id kind like says=text", like=lambda each: f"{each.score} %")
    done = linked.mode == "apply"
    return Group(shown, report("they are linked") if done else "To link them: --apply")


aliases = operation_command(
    "aliases", alias_table, scope="home", empty="No name stands for another one."
)


keep_apart = operation_command(
    "keep_apart", "✓ they are kept apart", positional=("name", "other"), scope="home"
)
link = operation_command("link_alike", alike_view)


def _tasks(call: Call) -> Any:
    """List tasks; --assignee is one here, as in the other actions."""
    who = call.arguments.pop("assignee", None)
    return call.do(**({} if who is None else {"assignees": [who]}))


task = action_command(
    "List tasks, show what to do next, or the circles of dependencies; start, block, unblock, "
    "submit, complete, cancel, archive or estimate one.",
    {
        "list": Action(
            "tasks",
            view=task_table,
            empty="There is no such task. One is made by: tally remember TEXT --kind task",
            run=_tasks,
        ),
        "next": Action("prioritize_tasks", view=ranked_table, empty="Nothing is open."),
        "cycles": Action("task_cycles", view=circles_view, empty="Nothing depends on itself."),
        "start": Action("start_task", "task_id", task_line),
        "block": Action("block_task", "task_id blocker", task_line),
        "unblock": Action("unblock_task", "task_id", task_line),
        "submit": Action("submit_task", "task_id", task_line),
        "complete": Action("complete_task", "task_id", completed_view),
        "cancel": Action("cancel_task", "task_id", task_line),
        "archive": Action("archive_task", "task_id", task_line),
        "estimate": Action("estimate_task", "task_id", estimate_line),
    },
    helps={"blocker": "Of block: id of a memory, or words for what blocks it."},
    without=("assignees",),
    scope="home",
)


@command("plan", "advance_plan", without=("plan_id",), view=plan_view)
def plan(
    call: Call,
    plan_id: Annotated[str, "Id of a plan."],
    /,
    number: Annotated[int | None, OPERATIONS["advance_plan"].help("number")] = None,
) -> Any:
    """Show a plan with its steps; with --number give one of them a --state."""
    if number is None:
        return call.do("plan", plan_id=id_of(plan_id))
    return call.do("advance_plan", plan_id=id_of(plan_id), number=number)
