"""Reading: the tasks of a scope that an actor may see, what each waits for, and those that pass
filters.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache

from tallystick.access import visible_docs
from tallystick.memory import MemoryContext
from tallystick.memory.labels import refuse_unknown
from tallystick.records import Actor, Scope
from tallystick.records.work import Task
from tallystick.storage import Connection
from tallystick.storage.rows import edges, memories, scopes
from tallystick_work.tasks import OVER, STATUSES, project_of, status_of, task_of

_PAGE = 500
"""Tasks that are read at once."""
_WORK = ("task", "milestone")


@dataclass(frozen=True)
class TaskFilter:
    """What a list of tasks is narrowed to; empty lets everything pass."""

    statuses: tuple[str, ...] = ()
    assignees: tuple[str, ...] = ()
    """One of them."""
    technologies: tuple[str, ...] = ()
    """All of them."""
    project: str | None = None
    due_before: int | None = None
    """Microseconds UTC, exclusive."""
    due_after: int | None = None
    """Microseconds UTC, inclusive."""
    archived: bool = False
    """Those on the board, or those that were archived."""

    def lets_pass(self, task: Task) -> bool:
        """Return True if a task passes."""
        due = task.due_at
        return (
            task.archived == self.archived
            and task.status in (self.statuses or STATUSES)
            and (not self.assignees or not {*self.assignees}.isdisjoint(task.assignees))
            and {*self.technologies} <= {*task.technologies}
            and self.project in (None, task.project)
            and (self.due_before is None or (due is not None and due < self.due_before))
            and (self.due_after is None or (due is not None and due >= self.due_after))
        )

    def require_known(self, tasks: Sequence[Task]) -> None:
        """Raise InvalidInput for a value that none of these tasks has and that is like one that
        some have.
        """
        for each in self.assignees:
            known = {name for task in tasks for name in task.assignees}
            refuse_unknown("assignees", each, sorted(known))
        for each in self.technologies:
            known = {name for task in tasks for name in task.technologies}
            refuse_unknown("technologies", each, sorted(known))
        if self.project is not None:
            known = {task.project for task in tasks if task.project is not None}
            refuse_unknown("project", self.project, sorted(known))


def list_tasks(
    context: MemoryContext, actor: Actor, scope: Scope, filters: TaskFilter, *, limit: int | None
) -> list[Task]:
    """Return the tasks of a scope that pass, newest first, at most `limit`. Raises Denied, and
    InvalidInput for a filter of unknown words.
    """
    for status in filters.statuses:
        refuse_unknown("statuses", status, STATUSES, closed=True)
    context.gate.require(actor, "read", scope)
    with context.store.database.read() as connection:
        ids = [row.id for row in scopes.find(connection, [scope])]
        if not context.gate.decide(connection, actor, "read", scope).allowed:
            ids = []
        every: list[Task] = []
        passing: list[memories.Stored] = []
        for stored in visible_tasks(connection, context, actor, ids):
            task = task_of(stored.memory)
            every.append(task)
            if filters.lets_pass(task):
                passing.append(stored)
                if limit is not None and len(passing) == limit:
                    break
        tasks = with_needs(connection, context, actor, passing)
    if not tasks:
        filters.require_known(every)
    context.gate.log_read(actor, "list", [scope], results=len(tasks))
    return tasks


def visible_tasks(
    connection: Connection, context: MemoryContext, actor: Actor, scope_ids: Sequence[int]
) -> Iterator[memories.Stored]:
    """Yield the active tasks of scopes whose text the actor may see, newest first."""
    before_doc: int | None = None
    now = context.store.clock.now()
    while True:
        page = memories.latest(
            connection,
            scope_ids,
            kinds=("task",),
            states=("active",),
            limit=_PAGE,
            before_doc=before_doc,
        )
        shown = visible_docs(connection, context.gate, actor, page, now)
        yield from (each for each in page if each.doc in shown)
        if len(page) < _PAGE:
            return
        before_doc = page[-1].doc


def with_needs(
    connection: Connection,
    context: MemoryContext,
    actor: Actor,
    stored: Sequence[memories.Stored],
) -> list[Task]:
    """Return tasks as they are listed, secrets replaced, each with the open tasks that it waits
    for.
    """
    needs = open_needs(connection, context, actor, [each.doc for each in stored])
    tasks = []
    for each in stored:
        task = task_of(each.memory, [other.memory.id for other in needs[each.doc]])
        text = context.redactor.redact_text(task.text).text
        tasks.append(task.model_copy(update={"text": text}))
    return tasks


def open_needs(
    connection: Connection, context: MemoryContext, actor: Actor, docs: Sequence[int]
) -> Mapping[int, list[memories.Stored]]:
    """Return the tasks and milestones that each of some tasks depends on and that are not over, as
    far as the actor may read them.
    """
    links = edges.leaving(connection, "DEPENDS_ON", docs, most=None) if docs else []
    ends = memories.get_docs(connection, {link.to_doc for link in links})
    may_read = _may_read(connection, context, actor)
    needs: dict[int, list[memories.Stored]] = defaultdict(list)
    for link in links:
        other = ends.get(link.to_doc)
        if (
            other is not None
            and other.memory.kind in _WORK
            and other.memory.state == "active"
            and status_of(other.memory) not in OVER
            and may_read(other.memory.scope)
        ):
            needs[link.from_doc].append(other)
    return needs


def _may_read(
    connection: Connection, context: MemoryContext, actor: Actor
) -> Callable[[Scope], bool]:
    return cache(lambda scope: context.gate.decide(connection, actor, "read", scope).allowed)


def projects_of(tasks: Iterable[memories.Stored]) -> set[str]:
    """Return the projects of some tasks."""
    return {name for each in tasks if (name := project_of(each.memory)) is not None}
