"""Views of work: tasks, their order, what was completed, plans, and links to what is alike."""

from __future__ import annotations

from collections.abc import Iterable

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from tallystick.records.graph import EntityAlias
from tallystick.records.work import (
    CompletedTask,
    Estimate,
    LinkedAlike,
    Plan,
    RankedTask,
    Task,
)
from tallystick_cli.views import common
from tallystick_cli.views.common import join_ids, report, short, state_text, table


def task_table(tasks: Iterable[Task]) -> Table:
    """Return tasks, one in a row."""
    return table(
        tasks,
        "id",
        status=lambda each: state_text(each.status),
        priority=lambda each: each.priority,
        who=lambda each: ", ".join(each.assignees),
        due=lambda each: each.due_at and common.local_time(each.due_at),
        says=lambda each: common.says(each.text),
        waits_for=lambda each: join_ids(each.waits_for),
    )


def ranked_table(ranked: Iterable[RankedTask]) -> Table:
    """Return open tasks in their order, with the reasons."""
    return table(
        ranked,
        "id=task.id score",
        says=lambda each: common.says(each.task.text),
        why=lambda each: ", ".join(each.reasons),
    )


def task_line(task: Task) -> Text:
    """Return what became of a task, in a line."""
    branch = f", branch {task.branch}" if task.branch and task.status == "doing" else ""
    archived = ", archived" if task.archived else ""
    return report(f"{short(task.id)} is {task.status}{archived}{branch}")


def completed_view(completed: CompletedTask) -> RenderableType:
    """Return what the completion of a task has made."""
    lines: list[Text | str] = [
        task_line(completed.task),
        f"episode {short(completed.episode_id)}",
    ]
    if completed.error_patterns:
        lines.append(f"error patterns {join_ids(completed.error_patterns)}")
    if completed.project_id is not None:
        lines.append(f"project: {completed.done} of {completed.total} tasks are done")
    return Group(*lines, *map(common.note, completed.warnings))


def estimate_line(estimate: Estimate) -> str:
    """Return the hours that tasks took, in a line."""
    return (
        f"{estimate.median:g} hours ({estimate.low:g} to {estimate.high:g}), from "
        f"{join_ids(estimate.task_ids)}"
    )


def circles_view(circles: Iterable[Iterable[str]]) -> str:
    """Return circles of dependencies, one in a line."""
    lines = [" → ".join(map(short, circle)) for circle in circles]
    return "\n".join(lines) or "Nothing depends on itself."


def plan_view(plan: Plan) -> RenderableType:
    """Return a plan with its steps."""
    steps = [
        Text.assemble(f"{number:3}  ", state_text(step.state), f"  {step.text}")
        for number, step in enumerate(plan.steps, 1)
    ]
    return Group(Text.assemble((plan.text, "bold"), "  ", state_text(plan.status)), *steps)


def alias_table(aliases: Iterable[EntityAlias]) -> Table:
    """Return the names that stand for others, one in a row."""
    return table(
        aliases,
        "alias entity",
        why=lambda each: each.reason.replace("_", " "),
        said_in=lambda each: join_ids(each.evidence),
    )


def alike_view(linked: LinkedAlike) -> RenderableType:
    """Return what a memory is like, and whether it was linked."""
    if not linked.links:
        return "It is like no pattern, rule, template, error pattern or topic."
    shown = table(
        linked.links,
        "id kind",
        like=lambda each: f"{each.score} %",
        says=lambda each: common.says(each.text),
    )
    done = linked.mode == "apply"
    return Group(shown, report("they are linked") if done else "To link them: --apply")
