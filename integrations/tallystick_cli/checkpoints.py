"""Commands of checkpoints: show those of a thread, check them, copy them from other savers."""

from __future__ import annotations

from typing import Annotated, Any

from tallystick.errors import InvalidInput, NotFound, require
from tallystick_cli.commands import Answer, Call, command
from tallystick_cli.output import progress_bar
from tallystick_cli.session import complete_id
from tallystick_cli.views import runs as views

_NAMED = 10
"""Threads that are named where the one asked for is not there."""


@command(
    view=views.state_table,
    scope="home",
    helps={
        "checkpoint": "Id of a checkpoint, or how it begins or ends; without it the newest ones."
    },
)
def state(
    call: Call,
    thread: Annotated[str, "Name of a thread of checkpoints."],
    checkpoint: str | None = None,
    /,
    limit: Annotated[int, "Checkpoints at most."] = 10,
) -> list[dict[str, Any]]:
    """Show the checkpoints of a thread, what was written at each, and the steps that wrote it."""
    threads = call.bound.threads
    checkpoints = list(threads.history(thread))
    if not checkpoints:
        names = ", ".join(threads.names()[:_NAMED]) or "none"
        raise NotFound(
            f"There is no thread {thread} in {call.bound.scope}; its threads: {names}. Other "
            "scopes are named with --scope."
        )
    if checkpoint is not None:
        whole_id = complete_id(checkpoint, [each.id for each in checkpoints], "checkpoint")
        checkpoints = [each for each in checkpoints if each.id == whole_id]
    rows = []
    for each in checkpoints[:limit]:
        tasks: dict[str, list[str]] = {}
        for task, channel in threads.tasks_at(
            thread, namespace=each.namespace, checkpoint_id=each.id
        ):
            tasks.setdefault(task, []).append(channel)
        writes = [
            {
                "task": task,
                "channels": channels,
                "steps": [step.id for step in call.owner.recordings.steps_of_task(task)],
            }
            for task, channels in tasks.items()
        ]
        rows.append(
            {
                "checkpoint": each.id,
                "namespace": each.namespace,
                "parent": each.parent_id,
                "metadata": dict(each.metadata),
                "channels": sorted(each.channels),
                "writes": writes,
            }
        )
    return rows


@command(scope="home")
def verify_threads(
    call: Call,
    thread: Annotated[str | None, "Name of a thread; without it all of the scope."] = None,
    /,
) -> Answer:
    """Check every checkpoint and every piece of state. Exits with 1 when one does not match."""
    threads, scope = call.bound.threads, call.bound.scope
    names = threads.names() if thread is None else [thread]
    problems = threads.verify(thread)
    listed = [{"where": each.where, "problem": each.problem} for each in problems]
    lines = [f"✗ {each.where}: {each.problem}" for each in problems]
    if not problems and names:
        lines = [f"✓ {len(names)} threads match what was put"]
    value = {"scope": str(scope), "threads": len(names), "problems": listed}
    none = f"There are no threads in {scope}; --scope names another."
    return Answer(value, lines or none, not problems)


@command(scope="home", tally="create")
def import_checkpoints(
    call: Call,
    source: Annotated[str, "File of a SqliteSaver, or postgresql://… of a PostgresSaver."],
    /,
    allow: Annotated[tuple[str, ...], "Type that state may hold, as module:Name."] = (),
) -> Answer:
    """Copy the threads of LangGraph's own savers into the tally and compare every checkpoint."""
    require("langgraph", extra="langgraph")
    import tallystick_langgraph

    types = [tuple(name.split(":", 1)) for name in allow]
    if any(len(name) != 2 for name in types):
        raise InvalidInput("--allow takes a type as module:Name, such as shop.state:Order.")
    saver = tallystick_langgraph.TallySaver(call.bound, allow=types)
    with progress_bar("Importing", "threads", hidden=call.as_json) as advance:
        counts = tallystick_langgraph.import_checkpoints(source, saver, progress=advance)
    value = {name: getattr(counts, name) for name in ("threads", "checkpoints", "writes")}
    of = f"{counts.checkpoints} checkpoints and {counts.writes} writes"
    return Answer(value, f"✓ {counts.threads} threads with {of}, each compared")
