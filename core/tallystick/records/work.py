"""Work: tasks and plans as they are listed, and what is answered about them."""

from typing import Literal

from tallystick.records._base import Record
from tallystick.records.identity import Scope
from tallystick.records.kinds import Priority, StepState, TaskStatus
from tallystick.records.times import datetime_of, optional_datetime_of


class Task(Record):
    """A task: a memory of that kind, with its attributes and what it waits for."""

    id: str
    scope: Scope
    version: int
    text: str
    """What is to be done; secrets replaced."""
    status: TaskStatus = "todo"
    priority: Priority | None = None
    assignees: tuple[str, ...] = ()
    due_at: int | None = None
    """Microseconds UTC."""
    due_time = optional_datetime_of("due_at")
    technologies: tuple[str, ...] = ()
    project: str | None = None
    """The project that it names, or that of its scope."""
    estimate: float | None = None
    """Hours that somebody expects."""
    hours: float | None = None
    """Hours that it took."""
    branch: str | None = None
    commits: tuple[str, ...] = ()
    pr_url: str | None = None
    blockers: tuple[str, ...] = ()
    """What blocks it: ids of memories, or words."""
    waits_for: tuple[str, ...] = ()
    """Tasks that it depends on and that are not over, as far as the actor may read them."""
    archived: bool = False
    updated_at: int
    """Microseconds UTC."""
    updated_time = datetime_of("updated_at")


class CompletedTask(Record):
    """What the completion of a task has stored, in one transaction."""

    task: Task
    episode_id: str
    """The episode that was made of it, with its links."""
    error_patterns: tuple[str, ...] = ()
    """The error patterns that were made of its blockers."""
    project_id: str | None = None
    """The memory of its project, which has the progress; None without a project."""
    done: int = 0
    """Tasks of the project that are done, and all of them, without those that were cancelled."""
    total: int = 0
    warnings: tuple[str, ...] = ()


class Estimate(Record):
    """The hours that done tasks like one took."""

    median: float
    low: float
    high: float
    """The least and the most hours."""
    task_ids: tuple[str, ...]
    """The tasks that were counted, those most alike first."""


class RankedTask(Record):
    """An open task in the order of what to do next, with the reasons for its place."""

    task: Task
    score: int
    reasons: tuple[str, ...]
    """Such as `priority high` or `due in 2 days`; the last ones are why it must wait."""


class PlanStep(Record):
    """One step of a plan."""

    text: str
    state: StepState = "todo"


class Plan(Record):
    """A plan: a memory of that kind, with its steps in order."""

    id: str
    scope: Scope
    version: int
    text: str
    status: Literal["open", "done", "cancelled"] = "open"
    """`done` once each step is done or skipped."""
    steps: tuple[PlanStep, ...] = ()


class SuggestedLink(Record):
    """A memory that a text is like, with the likeness."""

    id: str
    kind: str
    score: int
    """The cosine of the vectors, percent."""
    text: str
    """The beginning of its text; secrets replaced."""


class LinkedAlike(Record):
    """The links of a memory to those that it is like: what would be linked, or was."""

    mode: Literal["preview", "apply"]
    links: tuple[SuggestedLink, ...] = ()
    version: int | None = None
    """The version of the memory with them; None for a preview."""
