"""Completing a task: its end, the episode that is made of it, the error patterns that its blockers
leave, and the progress of its project, in one transaction.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from tallystick.access import visible_docs, widens
from tallystick.errors import NotFound, StateConflict
from tallystick.memory import MemoryContext
from tallystick.memory.change import apply_modify, require_version
from tallystick.memory.memory_write import MemoryWrite
from tallystick.memory.remember import PreparedMemory, check_new, ingest_one, prepare
from tallystick.memory.secrets import admit_memory
from tallystick.records import Actor, JsonObject, Memory, NewMemory, Remembered
from tallystick.storage import Connection
from tallystick.storage.engine.writes import Writes
from tallystick.storage.rows import edges, memories
from tallystick.storage.rows.idempotency import IdempotentCall
from tallystick_work.tasks import OVER, project_of, require_task, require_way, status_of, texts

_TASKS = 10_000
"""Tasks of a scope that are counted for the progress of a project, the newest."""
_INHERITED = ("REFERENCES", "DEPENDS_ON")
_OF_EPISODE = ("project", "technologies", "branch", "commits", "pr_url", "assignee", "assignees")
"""Attributes of a task that its episode has too."""
_REASON = "the task was completed"


@dataclass(frozen=True)
class Completion:
    """What is said of a task at its end."""

    hours: float | None
    learnings: tuple[str, ...]
    reason: str = _REASON


class _Blocker(NamedTuple):
    """What blocked a task: the text of a memory, or words."""

    text: str
    memory: Memory | None


class _Drafts(NamedTuple):
    """What is made of a task, embedded before the transaction."""

    version: int
    """The version of the task that they are made of."""
    episode: PreparedMemory
    patterns: tuple[PreparedMemory, ...]
    known_patterns: tuple[str, ...]
    """Blockers that are error patterns themselves."""
    project: PreparedMemory | None


def complete(
    context: MemoryContext,
    actor: Actor,
    task_id: str,
    completion: Completion,
    *,
    if_version: int | None,
    idempotency_key: str | None,
    correlation_id: str | None,
) -> dict[str, Any]:
    """Complete a task that is in review; return the ids of what was made, and the progress.

    Raises NotFound, Denied, InvalidInput, StateConflict with what is allowed, VersionConflict or
    IdempotencyMismatch; then nothing changed.
    """
    while True:
        with context.store.database.read() as connection:
            before = context.visible(connection, actor, task_id, "correct")
            blockers = _blockers(connection, context, actor, before.memory)
        require_task(before.memory)
        drafts = _draft(context, actor, before.memory, blockers, completion)

        def unit(
            tx: Connection, before: memories.Stored = before, drafts: _Drafts = drafts
        ) -> dict[str, Any] | None:
            current = context.visible(tx, actor, task_id, "correct")
            request = [
                task_id,
                completion.hours,
                completion.learnings,
                completion.reason,
                if_version,
            ]
            call = IdempotentCall(current.scope, "complete_task", idempotency_key, request)
            answered = call.read_answer(tx)
            if answered is not None:
                return answered
            context.gate.confirm(tx, actor, "write", current.memory.scope)
            if if_version is not None:
                require_version(current.memory, if_version)
            require_way(current.memory, "done")
            if current.memory.version != drafts.version:
                return None  # it changed since it was read: made anew of what it says now
            write = MemoryWrite(tx, context, actor, context.store.clock.now(), correlation_id)
            result = _store(write, current, drafts, completion)
            call.keep(tx, result, at=write.now)
            return result

        with context.gate.journaling(actor):
            result = context.store.database.write_mostly(
                unit, name="apply.complete_task", writes=Writes.of(before.memory.scope)
            )
        if result is not None:
            return result


def _blockers(
    connection: Connection, context: MemoryContext, actor: Actor, task: Memory
) -> list[_Blocker]:
    """Return what blocked a task; memories that the actor, or a reader of the task, may not see are
    left out.
    """
    blockers: list[_Blocker] = []
    for each in texts(task.attributes, "blockers"):
        try:
            stored = context.visible(connection, actor, each, "read")
        except NotFound:
            if memories.get(connection, each, sources=False) is None:
                blockers.append(_Blocker(each, None))
            continue
        # Its text goes into the scope of the task: not where more people would read it there.
        if widens(connection, context.gate, actor, stored.memory.scope, task.scope):
            continue
        if visible_docs(connection, context.gate, actor, [stored], context.store.clock.now()):
            blockers.append(_Blocker(stored.memory.content, stored.memory))
    return blockers


def _draft(
    context: MemoryContext,
    actor: Actor,
    task: Memory,
    blockers: Sequence[_Blocker],
    completion: Completion,
) -> _Drafts:
    learned = [each.strip() for each in completion.learnings if each.strip()]
    attributes = {name: task.attributes[name] for name in _OF_EPISODE if task.attributes.get(name)}
    project = project_of(task)
    if project is not None:
        attributes["project"] = project
    of_hours = {} if completion.hours is None else {"hours": completion.hours}
    episode = NewMemory(
        content="\n".join([task.content, *learned]),
        kind="episode",
        subject=task.subject,
        tags=task.tags,
        attributes={**attributes, **of_hours, "task": task.id},
        derived_from=(task.id,),
    )
    of_project = {"project": project} if project is not None else {}

    def quoted(blocker: _Blocker) -> tuple[str, ...]:
        return () if blocker.memory is None else (blocker.memory.id,)

    patterns = [
        NewMemory(
            content="\n".join([blocker.text, *learned]),
            kind="error_pattern",
            attributes={
                **of_project,
                "error": blocker.text,
                "resolution": "\n".join(learned),
                "task": task.id,
            },
            derived_from=(task.id, *quoted(blocker)),
            related_to=quoted(blocker),
        )
        for blocker in blockers
        if blocker.memory is None or blocker.memory.kind != "error_pattern"
    ]
    new = [episode, *patterns]
    if project is not None:
        new.append(NewMemory(content=project, kind="project", subject=project))
    prepared = _prepare(context, actor, task, new)
    return _Drafts(
        task.version,
        prepared[0],
        tuple(prepared[1 : 1 + len(patterns)]),
        tuple(
            each.memory.id
            for each in blockers
            if each.memory is not None and each.memory.kind == "error_pattern"
        ),
        None if project is None else prepared[-1],
    )


def _prepare(
    context: MemoryContext, actor: Actor, task: Memory, items: Iterable[NewMemory]
) -> list[PreparedMemory]:
    """Return memories as they may be stored, with their vectors."""
    admitted = [admit_memory(context, task.scope, item) for item in items]
    for item, _ in admitted:
        check_new(context, item)
    prepared = prepare(context, actor, task.scope, [item for item, _ in admitted])
    return [
        replace(each, warnings=(*each.warnings, *warnings))
        for each, (_, warnings) in zip(prepared, admitted, strict=True)
    ]


def _store(
    write: MemoryWrite, current: memories.Stored, drafts: _Drafts, completion: Completion
) -> dict[str, Any]:
    """Store the end of a task and what is made of it, within the transaction."""
    task = current.memory
    patterns = [_ingest(write, current, each).id for each in drafts.patterns]
    inherited = _inherited_links(write, current)
    related = (*inherited["REFERENCES"], *patterns, *drafts.known_patterns)
    new = drafts.episode.new.model_copy(
        update={"related_to": related, "depends_on": inherited["DEPENDS_ON"]}
    )
    episode = _ingest(write, current, replace(drafts.episode, new=new))
    attributes: JsonObject = {**task.attributes, "status": "done"}
    if completion.hours is not None:
        attributes["hours"] = completion.hours
    apply_modify(
        write,
        write.permit(current, "correct"),
        task.replace(attributes=attributes),
        None,
        ["attributes"],
        completion.reason,
    )
    result: dict[str, Any] = {
        "episode_id": episode.id,
        "error_patterns": [*patterns, *drafts.known_patterns],
        "warnings": [
            warning for each in (drafts.episode, *drafts.patterns) for warning in each.warnings
        ],
    }
    if drafts.project is not None:
        progress = _note_progress(write, current, drafts.project)
        result["warnings"] += progress.pop("warnings", [])
        result |= progress
    return result


def _ingest(write: MemoryWrite, task: memories.Stored, item: PreparedMemory) -> Remembered:
    """Store what is made of a task. A statement that somebody made already stands by itself, and
    points to the task.
    """
    result = ingest_one(write, task.scope, item)
    stored = memories.get(write.tx, result.id)
    assert stored is not None
    if result.status == "duplicate" and not edges.was_linked(
        write.tx, "DERIVED_FROM", stored.doc, task.doc
    ):
        edges.add(
            write.tx,
            edge_id=write.context.store.ids.new(),
            kind="REFERENCES",
            scope_id=task.scope_id,
            from_doc=stored.doc,
            to_doc=task.doc,
            at=write.now,
            reason=_REASON,
        )
    return result


def _inherited_links(write: MemoryWrite, task: memories.Stored) -> dict[str, tuple[str, ...]]:
    """Return the ends of the links of a task that its episode has too: those that the actor may
    see.
    """
    links = [
        edge
        for edge in edges.of(write.tx, task.doc)
        if edge.from_doc == task.doc and edge.kind in _INHERITED
    ]
    ends = memories.get_docs(write.tx, {edge.to_doc for edge in links})
    gate = write.context.gate
    readable = [
        stored
        for stored in ends.values()
        if gate.decide(write.tx, write.actor, "read", stored.memory.scope).allowed
    ]
    shown = visible_docs(write.tx, gate, write.actor, readable, write.now)
    return {
        kind: tuple(edge.to_id for edge in links if edge.kind == kind and edge.to_doc in shown)
        for kind in _INHERITED
    }


def _note_progress(
    write: MemoryWrite, task: memories.Stored, draft: PreparedMemory
) -> dict[str, Any]:
    """Write the progress of a project into its memory, which is made where there is none."""
    project = draft.new.subject
    assert project is not None
    tx, ids = write.tx, [task.scope_id]
    statuses = [
        status_of(each.memory)
        for each in memories.latest(tx, ids, kinds=("task",), states=("active",), limit=_TASKS)
        if project_of(each.memory) == project
    ]
    done_count = statuses.count("done")
    total = len(statuses) - statuses.count("cancelled")
    progress: JsonObject = {"done": done_count, "open": sum(each not in OVER for each in statuses)}
    result: dict[str, Any] = {"done": done_count, "total": total}
    projects = memories.latest(tx, ids, kinds=("project",), states=("active",), limit=_TASKS)
    stored = next((each for each in projects if _is_named(each.memory, project)), None)
    if stored is None:
        attributes: JsonObject = {"project": project, "progress": progress}
        new = draft.new.model_copy(update={"attributes": attributes})
        return {**result, "project_id": ingest_one(write, task.scope, replace(draft, new=new)).id}
    memory = stored.memory.replace(attributes={**stored.memory.attributes, "progress": progress})
    try:
        permitted = write.permit(stored, "correct")
    except StateConflict as error:  # pinned or locked by a person, against agents
        warnings = [f"the progress of the project was not noted: {error.reason}"]
        return {**result, "project_id": stored.memory.id, "warnings": warnings}
    apply_modify(write, permitted, memory, None, ["attributes"], _REASON)
    return {**result, "project_id": stored.memory.id}


def _is_named(memory: Memory, project: str) -> bool:
    return project in (memory.subject, memory.attributes.get("project"))
