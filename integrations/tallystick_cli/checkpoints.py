"""Commands of checkpoints: show those of a thread, check them, copy them from other savers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Annotated

import typer
from rich.text import Text

from tallystick.errors import InvalidInput, NotFound, require
from tallystick_cli import views
from tallystick_cli.options import AsJson, AtHome, Limit, Where
from tallystick_cli.output import print_json, print_view, progress_bar
from tallystick_cli.session import complete_id, open_as_owner, view_in

_NAMED = 10
"""Threads that are named where the one asked for is not there."""


def state(
    thread: Annotated[str, typer.Argument(help="Name of a thread of checkpoints.")],
    checkpoint: Annotated[
        str | None,
        typer.Argument(
            help="Id of a checkpoint, or how it begins or ends; without it the newest ten."
        ),
    ] = None,
    where: Where = ".tally",
    limit: Limit = 10,
    scope: AtHome = None,
    as_json: AsJson = False,
) -> None:
    """Show the checkpoints of a thread, what was written at each, and the recorded steps that wrote
    it.
    """
    with open_as_owner(where) as owner:
        bound = view_in(owner, scope)
        checkpoints = list(bound.threads.history(thread))
        if not checkpoints:
            names = ", ".join(bound.threads.names()[:_NAMED]) or "none"
            raise NotFound(
                f"There is no thread {thread} in {bound.scope}; its threads: {names}. Other scopes "
                "are named with --scope."
            )
        if checkpoint is not None:
            wanted = complete_id(checkpoint, [item.id for item in checkpoints], "checkpoint")
            checkpoints = [item for item in checkpoints if item.id == wanted]
        checkpoints = checkpoints[:limit]
        rows = []
        for item in checkpoints:
            tasks: dict[str, list[str]] = {}
            for task, channel in bound.threads.tasks_at(
                thread, namespace=item.namespace, checkpoint_id=item.id
            ):
                tasks.setdefault(task, []).append(channel)
            writes = [
                {
                    "task": task,
                    "channels": channels,
                    "steps": [step.step_id for step in owner.recordings.steps_of_task(task)],
                }
                for task, channels in tasks.items()
            ]
            rows.append(
                {
                    "checkpoint": item.id,
                    "namespace": item.namespace,
                    "parent": item.parent_id,
                    "metadata": dict(item.metadata),
                    "channels": sorted(item.channels),
                    "writes": writes,
                }
            )
        if as_json:
            print_json(rows)
        else:
            print_view(views.state_table(rows))


def verify_threads(
    thread: Annotated[
        str | None, typer.Argument(help="Name of a thread; without it all of the scope.")
    ] = None,
    where: Where = ".tally",
    scope: AtHome = None,
    as_json: AsJson = False,
) -> None:
    """Check every checkpoint and every piece of state. Exits with 1 when something does not
    match.
    """
    with open_as_owner(where) as owner:
        bound = view_in(owner, scope)
        names = bound.threads.names() if thread is None else [thread]
        problems = bound.threads.verify(thread)
    if as_json:
        found = [{"where": problem.where, "problem": problem.problem} for problem in problems]
        print_json({"scope": str(bound.scope), "threads": len(names), "problems": found})
    elif problems:
        for problem in problems:
            print_view(Text(f"✗ {problem.where}: {problem.problem}", style="red"))
    elif names:
        print_view(Text(f"✓ {len(names)} threads match what was put", style="green"))
    else:
        print_view(Text(f"There are no threads in {bound.scope}; --scope names another."))
    if problems:
        raise typer.Exit(1)


def import_checkpoints(
    source: Annotated[
        str, typer.Argument(help="File of a SqliteSaver, or postgresql://… of a PostgresSaver.")
    ],
    where: Where = ".tally",
    scope: AtHome = None,
    allow: Annotated[
        list[str] | None,
        typer.Option("--allow", help="Type that state may hold, as module:Name; repeatable."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Copy the threads of LangGraph's own savers into the tally and compare every checkpoint."""
    require("langgraph", extra="langgraph")
    from tallystick_langgraph import TallySaver
    from tallystick_langgraph import import_checkpoints as copied

    types = [tuple(name.split(":", 1)) for name in allow or ()]
    if any(len(name) != 2 for name in types):
        raise InvalidInput("--allow takes a type as module:Name, such as shop.state:Order.")
    with open_as_owner(where, create=True) as owner:
        saver = TallySaver(view_in(owner, scope), allow=types)
        with progress_bar("Importing", "threads", as_json=as_json) as bar:
            task = bar.add_task("import", total=None)
            counts = copied(
                source,
                saver,
                progress=lambda copied_threads, total: bar.update(
                    task, completed=copied_threads, total=total
                ),
            )
    if as_json:
        print_json(
            {
                "threads": counts.threads,
                "checkpoints": counts.checkpoints,
                "writes": counts.writes,
            }
        )
        return
    print_view(
        Text(
            f"✓ {counts.threads} threads with {counts.checkpoints} checkpoints and {counts.writes} "
            f"writes, each compared",
            style="green",
        )
    )


COMMANDS: Mapping[str, Callable[..., None]] = {
    "state": state,
    "verify-threads": verify_threads,
    "import-checkpoints": import_checkpoints,
}
