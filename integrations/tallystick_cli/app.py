"""The commands of `tally`. Each opens the tally, acts as its owner, prints, and closes."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
from rich.text import Text

from tallystick.errors import InvalidInput, NotFound, TallystickError, require
from tallystick.policy.rules import load_rules
from tallystick.records import RunRecord, Scope, StepRecord
from tallystick.tally import BoundTally
from tallystick_cli import approvals, governance, memory, receipts, spaces, views
from tallystick_cli.options import (
    AsJson,
    CheckOnly,
    InScope,
    Limit,
    Where,
)
from tallystick_cli.output import Terminal, print_json, print_view
from tallystick_cli.session import open_as_owner, set_actor
from tallystick_cli.surface import command_help

__all__ = ["app", "main"]

app = typer.Typer(
    help="Memory, context and receipts of agents: read a tally.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


@app.callback()
def who(
    user: Annotated[
        str | None,
        typer.Option(
            "--as",
            envvar="TALLYSTICK_AS",
            help="Who acts, where it is not the owner; a tally on PostgreSQL has none.",
        ),
    ] = None,
    project: Annotated[
        list[str] | None, typer.Option("--project", help="A project of theirs; repeatable.")
    ] = None,
) -> None:
    """Say who acts."""
    set_actor(user, project or ())


memory.register(app)
governance.register(app)
approvals.register(app)
spaces.register(app)
receipts.register(app)


@app.command(help=command_help("runs"))
def runs(
    where: Where = ".tally", limit: Limit = 20, scope: InScope = None, as_json: AsJson = False
) -> None:
    """List the recorded runs, newest first."""
    with open_as_owner(where) as owner:
        scopes = [Scope.parse(scope)] if scope else owner.tally.scopes()
        listed = owner.recordings.runs(scopes, limit=limit)
        counts = owner.recordings.step_counts(listed)
        rows = [(run, counts.get(run.run_id, 0)) for run in listed]
        if as_json:
            print_json([{**run.dump(), "steps": steps} for run, steps in rows])
        elif not rows:
            print_view(Text("No runs are recorded here yet.", style="dim"))
        else:
            print_view(views.run_table(rows))


@app.command(help=command_help("show"))
def show(
    identity: Annotated[
        str, typer.Argument(metavar="STEP", help="Id of a step or run, or how it begins or ends.")
    ],
    where: Where = ".tally",
    as_json: AsJson = False,
) -> None:
    """Show a step: what the agent saw, why, what it did, and its receipt. For a run, its steps."""
    with open_as_owner(where) as owner:
        record = owner.recordings.find(identity)
        if isinstance(record, RunRecord):
            _show_run(owner, record, as_json)
        else:
            _show_step(owner, record, as_json)


@app.command(help=command_help("recall"))
def recall(
    text: Annotated[str, typer.Argument(help="What to look for.")],
    where: Where = ".tally",
    limit: Limit = 10,
    scope: InScope = None,
    as_json: AsJson = False,
) -> None:
    """Recall memories that answer TEXT, with the reason for each."""
    with open_as_owner(where) as owner:
        scopes: list[str | Scope] = [scope] if scope else list(_home_scopes(owner))
        hits = owner.recall(text, limit=limit, scopes=scopes)
        if as_json:
            print_json([hit.dump() for hit in hits])
            return
        for warning in hits.warnings:
            print_view(Text(f"! {warning}", style="yellow"))
        print_view(
            views.hit_table(hits, query=text)
            if len(hits)
            else Text("Nothing is remembered that answers this.")
        )


@app.command(help=command_help("recompile"))
def recompile(
    identity: Annotated[
        str, typer.Argument(metavar="STEP", help="Id of a step, or how it begins or ends.")
    ],
    drop: Annotated[
        list[str] | None, typer.Option("--drop", help="Leave this item or memory out.")
    ] = None,
    source: Annotated[
        list[str] | None,
        typer.Option("--without-source", help="Leave out what comes from this source."),
    ] = None,
    model: Annotated[
        str | None, typer.Option("--model", help="Compile for this model instead.")
    ] = None,
    budget: Annotated[
        str | None, typer.Option("--budget", help="Tokens, or a share of them such as 50%.")
    ] = None,
    rules: Annotated[
        Path | None, typer.Option("--rules", help="TOML file of rules to use instead.")
    ] = None,
    keep: Annotated[
        bool, typer.Option("--keep", help="Record it as a run of its own, with the changes.")
    ] = False,
    where: Where = ".tally",
    as_json: AsJson = False,
) -> None:
    """Compile a recorded step anew with a change, and show what differs. No model is called."""
    with open_as_owner(where) as owner:
        step = owner.recordings.find(identity)
        if isinstance(step, RunRecord):
            raise InvalidInput(
                f"{identity} is a run. Name one of its steps; `tally show {identity}` lists them."
            )
        changes: dict[str, Any] = {
            "context_mutations": dict.fromkeys(drop or ()),
            "without_sources": source or (),
            "model_override": model,
        }
        if budget is not None:
            changes["token_budget"] = _budget(owner, step, budget)
        if rules is not None:
            changes["policy_rules"] = load_rules(rules)
        result = (owner.replay if keep else owner.recordings.replay)(step.step_id, **changes)
        if as_json:
            print_json(result.dump())
        else:
            print_view(views.replay_view(result))
            if result.step_id is not None:
                print_view(Text(f"Kept as step {result.step_id}.", style="dim"))


def _budget(owner: BoundTally, step: StepRecord, text: str) -> int:
    """Return tokens, or a share of the step's budget."""
    number = text.removesuffix("%")
    if not number.isdigit() or int(number) < 1:
        raise InvalidInput(
            f"--budget takes tokens (2000) or a share of the step's budget (50%), not {text!r}."
        )
    if number == text:
        return int(number)
    request = next(
        (e.payload for e in owner.recordings.entries(step.step_id) if e.kind == "compile_request"),
        None,
    )
    budget = request.get("token_budget") if isinstance(request, dict) else None
    if not isinstance(budget, int):
        raise InvalidInput(f"Step {step.step_id} recorded no compile.")
    return max(1, budget * int(number) // 100)


@app.command()
def state(
    thread: Annotated[str, typer.Argument(help="Name of a thread of checkpoints.")],
    checkpoint: Annotated[
        str | None, typer.Argument(help="Id of a checkpoint; without it the newest ten.")
    ] = None,
    where: Where = ".tally",
    limit: Limit = 10,
    scope: InScope = None,
    as_json: AsJson = False,
) -> None:
    """Show the checkpoints of a thread, what was written at each, and the recorded steps that wrote
    it.
    """
    with open_as_owner(where) as owner:
        bound = owner.tally.bind(owner.actor, scope).on("cli")
        checkpoints = [
            item
            for item in bound.threads.history(thread)
            if checkpoint is None or item.id == checkpoint
        ][:limit]
        if not checkpoints:
            raise NotFound(
                f"There is no thread {thread}, or no such checkpoint of it, in {bound.scope}."
            )
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


@app.command("verify-threads")
def verify_threads(
    thread: Annotated[
        str | None, typer.Argument(help="Name of a thread; without it all of the scope.")
    ] = None,
    where: Where = ".tally",
    scope: InScope = None,
) -> None:
    """Check every checkpoint and every piece of state. Exits with 1 when something does not
    match.
    """
    with open_as_owner(where) as owner:
        threads = owner.tally.bind(owner.actor, scope).on("cli").threads
        names = threads.names() if thread is None else [thread]
        problems = threads.verify(thread)
    for problem in problems:
        print_view(Text(f"✗ {problem.where}: {problem.problem}", style="red"))
    if problems:
        raise typer.Exit(1)
    print_view(Text(f"✓ {len(names)} threads match what was put", style="green"))


@app.command("import-checkpoints")
def import_checkpoints(
    source: Annotated[
        str, typer.Argument(help="File of a SqliteSaver, or postgresql://… of a PostgresSaver.")
    ],
    where: Where = ".tally",
    scope: InScope = None,
    allow: Annotated[
        list[str] | None,
        typer.Option("--allow", help="Type that state may hold, as module:Name; may be repeated."),
    ] = None,
) -> None:
    """Copy the threads of LangGraph's own savers into the tally and compare every checkpoint."""
    require("langgraph", extra="langgraph")
    from tallystick_langgraph import TallySaver
    from tallystick_langgraph import import_checkpoints as copied

    types = [tuple(name.split(":", 1)) for name in allow or ()]
    if any(len(name) != 2 for name in types):
        raise typer.BadParameter("Write a type as module:Name, such as shop.state:Order.")
    with open_as_owner(where, create=True) as owner:
        saver = TallySaver(owner.tally.bind(owner.actor, scope).on("cli"), allow=types)
        with Progress(
            TextColumn("Importing"), BarColumn(), MofNCompleteColumn(), TextColumn("threads")
        ) as bar:
            task = bar.add_task("import", total=None)
            counts = copied(
                source,
                saver,
                progress=lambda copied_threads, total: bar.update(
                    task, completed=copied_threads, total=total
                ),
            )
    print_view(
        Text(
            f"✓ {counts.threads} threads with {counts.checkpoints} checkpoints and {counts.writes} "
            f"writes, each compared",
            style="green",
        )
    )


@app.command("rebuild-index")
def rebuild_index(where: Where = ".tally", check: CheckOnly = False) -> None:
    """Make the Chroma index anew from the database. With --check only say whether it matches."""
    with open_as_owner(where) as owner:
        if check:
            reconciled = owner.tally.reconcile_index(repair=False)
            print_view(views.reconciled_view(reconciled))
            if not reconciled.whole:
                raise typer.Exit(1)
            return
        with Progress(TextColumn("Rebuilding the index"), BarColumn(), MofNCompleteColumn()) as bar:
            task = bar.add_task("rebuild", total=None)
            count = owner.tally.rebuild_index(
                lambda finished, total: bar.update(task, completed=finished, total=total)
            )
        print_view(Text(f"✓ {count} vectors in the index", style="green"))


def main() -> None:
    """Run the command; errors of Tallystick, and files that cannot be read or written, become one
    line and exit 2.
    """
    try:
        app()
    except TallystickError as error:
        message = str(error)
    except OSError as error:
        if error.filename is None:
            raise
        message = f"{error.filename}: {error.strerror}."
    else:
        return
    Terminal(stderr=True).print(Text(f"tally: {message}", style="red"), soft_wrap=True)
    sys.exit(2)


def _home_scopes(owner: BoundTally) -> list[Scope]:
    """Return the scopes that the owner may read: the private one and those of its projects."""
    actor = owner.actor
    projects = [
        Scope(kind="project", key=name, organization=actor.organization)
        for name in sorted(actor.projects)
    ]
    return [actor.private_scope, *projects]


def _show_run(owner: BoundTally, run: RunRecord, as_json: bool) -> None:
    steps = owner.recordings.steps(run.run_id)
    if as_json:
        print_json({**run.dump(), "steps": [step.dump() for step in steps]})
        return
    print_view(views.run_table([(run, len(steps))]))
    print_view(views.step_table(steps))


def _show_step(owner: BoundTally, step: StepRecord, as_json: bool) -> None:
    recordings = owner.recordings
    entries = recordings.entries(step.step_id)
    try:
        receipt = recordings.receipt(step.step_id)
    except NotFound:
        receipt = None
    try:
        compiled = recordings.compiled(step.step_id)
    except NotFound:
        compiled = None
    places = _state_of(owner, step, recordings.run(step.run_id).scope)
    if as_json:
        fields: dict[str, Any] = {**step.dump(), "entries": [entry.dump() for entry in entries]}
        print_json({**fields, "receipt": receipt.dump() if receipt else None, "state": places})
        return
    print_view(
        views.step_view(
            recordings.run(step.run_id),
            step,
            receipt,
            entries,
            compiled,
            places,
            width=Terminal().width,
        )
    )


def _state_of(owner: BoundTally, step: StepRecord, scope: Scope) -> list[str]:
    """Return the checkpoints that the graph task of this step wrote, as thread and checkpoint
    id.
    """
    thread, namespace = step.metadata.get("thread_id"), step.metadata.get("langgraph_checkpoint_ns")
    if not isinstance(thread, str) or not isinstance(namespace, str):
        return []
    if not owner.preview_access(scopes=[scope]).scopes[0].decision.allowed:
        # An operator looks into what was recorded; state is read by its own user alone.
        return []
    threads = owner.tally.bind(owner.actor, scope).on("cli").threads
    return [
        f"{thread} {id}" for _, id in threads.places_of_task(thread, namespace.rpartition(":")[2])
    ]
