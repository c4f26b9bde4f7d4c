"""Work: tasks with their states, plans with their steps, and what to do next."""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import Field

from tallystick.errors import InvalidInput
from tallystick.memory.change import StepOfWork
from tallystick.records import (
    JsonObject,
    Limit,
    MemoryId,
    Moment,
    Texts,
    Words,
    checked_arguments,
)
from tallystick.records.arguments import ConfirmMode, IdempotencyKey, IfVersion, Reason
from tallystick.records.kinds import StepState
from tallystick.records.work import (
    CompletedTask,
    Estimate,
    LinkedAlike,
    Plan,
    RankedTask,
    Task,
)
from tallystick.tally.memory_view import Part
from tallystick.tally.served_verbs import AsyncFace, Offered
from tallystick_work import changing
from tallystick_work.choosing import estimate, prioritize
from tallystick_work.completing import Completion, complete
from tallystick_work.likeness import alike, link_alike
from tallystick_work.reading import TaskFilter, list_tasks, with_needs
from tallystick_work.tasks import plan_of, require_task, status_of, task_of

TaskId = Annotated[MemoryId, Field(description="Id of a task.")]
Hours = Annotated[float | None, Field(description="Hours that it took.", ge=0)]
_ID = re.compile("[0-9a-f-]{8,36}")
_LIKE_A_TASK, _MOST_ALIKE = 0.5, 10
"""The cosine from which on a done task is like another one, and how many are counted."""


@checked_arguments
class Work(Part):
    """The tasks and plans of a scope: `Work(bound)`. A task is todo, doing, blocked, in review,
    done or cancelled, and comes from one to the next by these verbs; all else raises StateConflict
    that says what is allowed.
    """

    @property
    def aio(self) -> AsyncWork:
        """The same verbs for `async def` callers, awaited."""
        return AsyncWork(self)

    def start(
        self,
        task_id: TaskId,
        *,
        assignee: Annotated[Words | None, Field(description="Who does it.")] = None,
        branch: Annotated[
            Words | None, Field(description="Its branch; by default made of its text and id.")
        ] = None,
        reason: Reason = "the task was started",
        if_version: IfVersion = None,
        idempotency_key: IdempotencyKey = None,
    ) -> Task:
        """Start a task: todo becomes doing, with a branch such as `task/mend-the-parser-1a2b3c4d`.

        Raises NotFound, Denied, InvalidInput, StateConflict, VersionConflict or
        IdempotencyMismatch; then nothing changed.
        """
        step = changing.start(assignee, branch)
        return self._take("start_task", task_id, step, reason, if_version, idempotency_key)

    def block(
        self,
        task_id: TaskId,
        blocker: Annotated[
            Words, Field(description="Id of the memory that blocks it, or words for what does.")
        ],
        *,
        reason: Reason = "the task is blocked",
        if_version: IfVersion = None,
        idempotency_key: IdempotencyKey = None,
    ) -> Task:
        """Block a task: doing becomes blocked. It depends on a blocker that is a memory. Raises as
        `start`.
        """
        if not blocker.strip():
            raise InvalidInput("Say what blocks it: `blocker` is empty.", argument="blocker")
        blocker_id = None
        if _ID.fullmatch(blocker):
            blocker_id = self._view.get(self._full_id(("memory",), blocker)).id
        step = changing.block(blocker, blocker_id)
        return self._take("block_task", task_id, step, reason, if_version, idempotency_key)

    def unblock(
        self,
        task_id: TaskId,
        *,
        reason: Reason = "the task is blocked no longer",
        if_version: IfVersion = None,
        idempotency_key: IdempotencyKey = None,
    ) -> Task:
        """Let a task go on: blocked becomes doing. What blocked it stays named. Raises as
        `start`.
        """
        step = changing.unblock()
        return self._take("unblock_task", task_id, step, reason, if_version, idempotency_key)

    def submit(
        self,
        task_id: TaskId,
        *,
        commits: Annotated[Texts, Field(description="Commits that do it.")] = (),
        pr_url: Annotated[Words | None, Field(description="Address of the request.")] = None,
        reason: Reason = "the task is ready for review",
        if_version: IfVersion = None,
        idempotency_key: IdempotencyKey = None,
    ) -> Task:
        """Submit a task for review: doing becomes review. Raises as `start`."""
        step = changing.submit(tuple(commits), pr_url)
        return self._take("submit_task", task_id, step, reason, if_version, idempotency_key)

    def complete(
        self,
        task_id: TaskId,
        *,
        hours: Hours = None,
        learnings: Annotated[Texts, Field(description="What was learned, for later tasks.")] = (),
        reason: Reason = "the task was completed",
        if_version: IfVersion = None,
        idempotency_key: IdempotencyKey = None,
    ) -> CompletedTask:
        """Complete a task: review becomes done. In the same transaction its text and `learnings`
        become an episode with its links, its blockers become error patterns, and the memory of its
        project notes the progress. Raises as `start`.
        """
        view = self._view
        with view._observe_call("memory_write", "complete_task") as call:
            view._admit("modify")
            stored = complete(
                view._services.memory,
                view._traced_actor,
                task_id,
                Completion(hours, tuple(learnings), reason),
                if_version=if_version,
                idempotency_key=idempotency_key,
                correlation_id=call.correlation_id,
            )
            call.record("memory_write", {"reason": reason}, summary={"id": task_id, **stored})
        view._wake_worker()
        return CompletedTask.load({**stored, "task": self._task(task_id)})

    def cancel(
        self,
        task_id: TaskId,
        *,
        reason: Reason,
        if_version: IfVersion = None,
        idempotency_key: IdempotencyKey = None,
    ) -> Task:
        """Cancel a task, whatever its state. Raises as `start`."""
        step = changing.cancel()
        return self._take("cancel_task", task_id, step, reason, if_version, idempotency_key)

    def archive(
        self,
        task_id: TaskId,
        *,
        reason: Reason = "the task is over",
        if_version: IfVersion = None,
        idempotency_key: IdempotencyKey = None,
    ) -> Task:
        """Take a task that is done or cancelled off the board; it is recalled as before. Raises as
        `start`.
        """
        step = changing.archive()
        return self._take("archive_task", task_id, step, reason, if_version, idempotency_key)

    def estimate(self, task_id: TaskId) -> Estimate:
        """Return the hours that done tasks of the scope took which are like this one: the median,
        the range and their ids. Raises NotFound, InvalidInput for what is no task, and
        StateConflict for fewer than three.
        """
        self._view._admit("read")
        context, actor = self._view._services.memory, self._view.actor
        memory = self._view.get(task_id)
        require_task(memory)
        vector = context.vector_for(memory)
        with context.store.database.read() as connection:
            stored = context.visible(connection, actor, task_id, "read")
            found = alike(
                connection,
                context,
                actor,
                [stored.scope_id],
                vector,
                kinds=("task",),
                least=_LIKE_A_TASK,
                passes=lambda other: (
                    other.id != task_id
                    and status_of(other) == "done"
                    and isinstance(other.attributes.get("hours"), int | float)
                ),
            )
        return estimate(
            task_id, [(task_of(each.stored.memory), each.cosine) for each in found[:_MOST_ALIKE]]
        )

    def prioritize(
        self,
        *,
        project: Annotated[Words | None, Field(description="Only of this project.")] = None,
        assignee: Annotated[Words | None, Field(description="Only of this assignee.")] = None,
        limit: Annotated[Limit, Field(description="Tasks at most.")] = 20,
    ) -> list[RankedTask]:
        """Return the open tasks of the scope in the order in which to do them, with the reasons;
        what is blocked or waits for another task comes last. Raises Denied.
        """
        self._view._admit("read")
        who = () if assignee is None else (assignee,)
        tasks = self._list(TaskFilter(assignees=who, project=project), limit=None)
        return prioritize(tasks, self._view._services.store.clock.now())[:limit]

    def cycles(self) -> tuple[tuple[str, ...], ...]:
        """Return the circles in which memories of the scope depend on one another, by ids. None is
        made any more; an older tally may have some. Raises Denied.
        """
        from tallystick.tally.daily_verbs import explore

        return explore(self._view, self._view.scope, mode="dependencies", limit=1_000).cycles

    def plan(self, plan_id: Annotated[MemoryId, Field(description="Id of a plan.")]) -> Plan:
        """Return a plan with its steps and their states. Raises NotFound, InvalidInput."""
        return plan_of(self._view.get(plan_id))

    def advance(
        self,
        plan_id: Annotated[MemoryId, Field(description="Id of a plan.")],
        number: Annotated[int, Field(description="The step, counted from 1.", ge=1)],
        *,
        state: Annotated[StepState, Field(description="Its state from now on.")] = "done",
        reason: Reason = "the plan goes on",
        if_version: IfVersion = None,
        idempotency_key: IdempotencyKey = None,
    ) -> Plan:
        """Give a step of a plan a state; the plan is done once each is done or skipped. Raises as
        `start`.
        """
        step = changing.advance_plan(number, state)
        self._change("advance_plan", plan_id, step, reason, if_version, idempotency_key)
        return self.plan(plan_id)

    def link_alike(
        self,
        memory_id: MemoryId,
        *,
        mode: ConfirmMode = "preview",
        reason: Reason = "they are alike",
    ) -> LinkedAlike:
        """Show the patterns, rules, templates, error patterns and topics of its scope that a memory
        is like, or link it with them, each with the likeness. `modify` removes such a link. Raises
        NotFound, Denied, StateConflict.
        """
        view = self._view
        view._admit("read" if mode == "preview" else "modify")
        with view._observe_call("memory_write", "link_alike") as call:
            linked = link_alike(
                view._services.memory,
                view._traced_actor,
                memory_id,
                reason=reason,
                preview=mode == "preview",
                correlation_id=call.correlation_id,
            )
            summary: JsonObject = {"id": memory_id, "links": [each.id for each in linked.links]}
            call.record("memory_write", {"reason": reason}, summary=summary)
        return linked

    def list(
        self,
        *,
        statuses: Annotated[Texts, Field(description="Only in one of these states.")] = (),
        assignees: Annotated[Texts, Field(description="Only of one of these.")] = (),
        technologies: Annotated[Texts, Field(description="Only with all of these.")] = (),
        project: Annotated[Words | None, Field(description="Only of this project.")] = None,
        due_before: Annotated[Moment | None, Field(description="Only due before it.")] = None,
        due_after: Annotated[Moment | None, Field(description="Only due then or later.")] = None,
        archived: Annotated[bool, Field(description="Those that were archived.")] = False,
        limit: Annotated[Limit, Field(description="Tasks at most.")] = 100,
    ) -> list[Task]:
        """List the tasks of the bound scope that pass the filters, newest first, each with the open
        tasks that it waits for. Raises Denied, and InvalidInput for a state that is none, or a
        label that no task has but that is like one which some have.
        """
        self._view._admit("read")
        filters = TaskFilter(
            statuses=tuple(statuses),
            assignees=tuple(assignees),
            technologies=tuple(technologies),
            project=project,
            due_before=self._view._moment(due_before, "due_before"),
            due_after=self._view._moment(due_after, "due_after"),
            archived=archived,
        )
        return self._list(filters, limit=limit)

    def _list(self, filters: TaskFilter, limit: int | None) -> list[Task]:  # type: ignore[valid-type]
        view = self._view
        return list_tasks(view._services.memory, view.actor, view.scope, filters, limit=limit)

    def _task(self, task_id: str) -> Task:
        context, actor = self._view._services.memory, self._view.actor
        with context.store.database.read() as connection:
            stored = context.visible(connection, actor, task_id, "read")
            [task] = with_needs(connection, context, actor, [stored])
        return task

    def _take(
        self,
        name: str,
        task_id: str,
        step: StepOfWork,
        reason: str,
        if_version: int | None,
        idempotency_key: str | None,
    ) -> Task:
        self._change(name, task_id, step, reason, if_version, idempotency_key)
        return self._task(task_id)

    def _change(
        self,
        name: str,
        memory_id: str,
        step: StepOfWork,
        reason: str,
        if_version: int | None,
        idempotency_key: str | None,
    ) -> None:
        view = self._view
        with view._observe_call("memory_write", name) as call:
            view._admit("modify")
            change = changing.take_step(
                view._services.memory,
                view._traced_actor,
                memory_id,
                step,
                reason=reason,
                if_version=if_version,
                idempotency_key=idempotency_key,
                correlation_id=call.correlation_id,
            )
            view._record_change(call, change, {"reason": reason, **step.request})


class WorkVerbs:
    """Verbs of `Work`."""

    start = Offered(Work.start)
    block = Offered(Work.block)
    unblock = Offered(Work.unblock)
    submit = Offered(Work.submit)
    complete = Offered(Work.complete)
    cancel = Offered(Work.cancel)
    archive = Offered(Work.archive)
    estimate = Offered(Work.estimate)
    prioritize = Offered(Work.prioritize)
    cycles = Offered(Work.cycles)
    plan = Offered(Work.plan)
    advance = Offered(Work.advance)
    link_alike = Offered(Work.link_alike)
    list = Offered(Work.list)


class AsyncWork(AsyncFace, WorkVerbs):
    """Same as `Work`, awaited."""
