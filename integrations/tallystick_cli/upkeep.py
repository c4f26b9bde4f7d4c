"""Commands of upkeep: check, purge, erase, prove, back up, move, rebuild; jobs, the worker and the
outbound log.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from typing import Annotated, Any

import typer

from tallystick.errors import InvalidInput
from tallystick.tally import BoundTally, Tally
from tallystick.tally.services import services_of
from tallystick.upkeep.migration import grants as grants_for
from tallystick_cli.actions import Action, action_command
from tallystick_cli.commands import Answer, Call, command, operation_command
from tallystick_cli.output import print_json, print_view, progress_bar
from tallystick_cli.session import acting, open_as_owner
from tallystick_cli.views import upkeep as views

purge = operation_command("purge", views.purge_view)


@command("doctor", "sizes")
def doctor(
    call: Call, sizes: Annotated[bool, "Show where the bytes are instead."] = False
) -> Answer:
    """Check chains, commitments, jobs, retention, the index. Exits with 1 for a problem."""
    if sizes:
        measured = call.do("sizes")
        return Answer(measured, views.sizes_table(measured))
    findings = call.do("doctor")
    is_well = all(finding.status != "problem" for finding in findings)
    return Answer(findings, views.doctor_table(findings), is_well)


erase = operation_command(
    "erase",
    views.erasure_view,
    helps={"fragments": "A piece of their text that names, ids or goals may hold."},
    note="To do it needs a person at a terminal.",
    asks="destroy the text, which cannot be taken back",
    ok=lambda erasure: all(proof.holds for proof in erasure.proofs),
)
erase_user = operation_command(
    "erase_user",
    views.erased_user_view,
    positional=("user",),
    note="To do it needs a person at a terminal.",
    asks="destroy everything of this user, which cannot be taken back",
    ok=lambda erased: erased.proof is None or erased.proof.holds,
)


@command(
    *("prove_unreachable", "prove_erased"), view=views.proof_view, ok=lambda proof: proof.holds
)
def prove(call: Call) -> Any:
    """Prove that a forgotten memory is reached by nothing, an erased one held by nothing. Exits
    with 1 if it is.
    """
    history = call.owner.inspect(call.arguments["memory_id"]).history
    is_erased = "text" in call.arguments or any(entry.event == "ERASE" for entry in history)
    return call.do("prove_erased" if is_erased else "prove_unreachable")


@command(
    "export",
    view=views.transfer_view,
    positional=("folder",),
    helps={"scopes": "Such as project:apollo; by default all that you may take."},
    bar="Exporting rows",
)
def export(call: Call) -> Any:
    return call.do(scopes=call.arguments.get("scopes") or _exportable(call.owner))


def _exportable(owner: BoundTally) -> list[str]:
    gate, actor = services_of(owner.tally).gate, owner.actor
    return [
        str(scope)
        for scope in owner.tally.scopes()
        if gate.require_or_none(actor, "export", scope) is not None
    ]


import_ = operation_command(
    "import_from", views.transfer_view, positional=("folder",), tally="create", bar="Importing"
)
backup = operation_command("backup", views.backup_view, positional=("folder",))


@command(tally="place", view=views.backup_view)
def restore(call: Call, folder: Annotated[str, "The folder of a backup."], /) -> Any:
    """Restore a backup into a new place, never over a tally: a folder or postgresql://…, whichever
    it was taken from. Digests, rows, chains and texts are checked before it is there.
    """
    with progress_bar("Restoring", hidden=call.as_json) as advance:
        return Tally.restore(folder, call.where, actor=acting(), progress=advance)


@command(tally="place", view=views.migration_view)
def migrate(
    call: Call,
    plan: Annotated[bool, "Only say what would change; the default."] = False,
    dry_run: Annotated[bool, "Do it, check the result, and take it back."] = False,
    apply: Annotated[bool, "Do it."] = False,
    backup: Annotated[str | None, "A new folder for the backup before it."] = None,
    no_backup: Annotated[bool, "Do it without a backup of ours."] = False,
    grants: Annotated[str | None, "Print what lets this role of PostgreSQL use it."] = None,
) -> Any:
    """Bring a tally of an older release to the schema of this one: say what changes, try it, or do
    it after a backup. By default only says it.
    """
    if grants is not None:
        statements = grants_for(call.where, grants)
        if call.as_json:
            return Answer({"grants": statements.splitlines()})
        return typer.echo(statements)  # as it is, to be given to psql
    if plan + dry_run + apply > 1:
        raise InvalidInput("--plan, --dry-run and --apply are three things. Name one.")
    with progress_bar("Backing up", hidden=call.as_json or backup is None) as advance:
        return Tally.migrate(
            call.where,
            mode="dry_run" if dry_run else "apply" if apply else "plan",
            backup=backup,
            without_backup=no_backup,
            actor=acting(),
            progress=advance,
        )


@command(
    "rebuild_index",
    view="✓ {0.chroma} vectors in Chroma",
    without=("reason",),
    note="With --check only says whether it matches.",
    bar="Rebuilding",
)
def rebuild_index(
    call: Call,
    check: Annotated[bool, "Change nothing; exit with 1 when it does not match."] = False,
    reason: Annotated[str, "Why; it is kept in the journal. Needed but for --check."] = "",
) -> Any:
    if check:
        compared = call.owner.tally.reconcile_index(repair=False)
        value = {**asdict(compared), "whole": compared.whole}
        return Answer(value, views.reconciled_view(compared), compared.whole)
    return call.do(reason=reason)


@command(
    "reembed",
    view=views.reembedding_view,
    positional=("embedder",),
    note="At a terminal it asks before it begins. Ctrl-C pauses it: the same command goes on.",
    ok=lambda work: work.mode == "preview" or not work.left,
)
def reembed(call: Call) -> Any:
    if call.arguments.get("mode") != "apply":
        planned = call.do()
        if not planned.texts or call.as_json or not sys.stdin.isatty():
            return planned
        print_view(views.reembedding_view(planned))
        typer.confirm("Embed them now?", default=False, abort=True, err=True)
    embedder = call.arguments.get("embedder")
    with (
        _interrupted() as pausing,
        progress_bar("Embedding", "texts", hidden=call.as_json) as advance,
    ):
        return call.owner.operator.reembed(
            embedder, mode="apply", progress=advance, is_pausing=pausing.is_set
        )


_LOOK_SECONDS = 0.2

outbound = operation_command(
    "outbound_calls", views.outbound_table, empty="Tallystick called no model.", whole_ids=True
)


def _retry(call: Call, /, *job_ids: str) -> Any:
    return call.do(job_ids=job_ids or None)


def _drain(call: Call, /) -> Answer:
    with progress_bar("Follow-up work", "jobs", hidden=call.as_json) as advance:
        drained = call.owner.tally.drain(advance)
    left = f", {drained.left} wait for its owner" if drained.left else ""
    vectors = f"{drained.embedded} vectors made, {drained.indexed} brought into the index"
    failed = [f"✗ {each.kind} {each.id[-8:]} {each.state}: {each.text}" for each in drained.failed]
    mark = "!" if failed else "✓"
    lines = [f"{mark} {drained.jobs} jobs, {vectors}{left}", *failed]
    return Answer(asdict(drained), lines, not failed)


jobs = action_command(
    "List follow-up work; show one job with its trail, retry what failed, cancel one, or drain: do "
    "all that waits now. Exits with 1 where some of it failed.",
    {
        "list": Action("jobs", view=views.job_table, empty="There is no such work."),
        "show": Action("job", "job_id", views.job_view),
        "retry": Action(
            "retry_jobs",
            view=lambda anew: f"✓ {len(anew)} will be done anew",
            empty="Nothing failed or died",
            run=_retry,
        ),
        "cancel": Action("cancel_job", "job_id", views.job_view),
        "drain": Action(run=_drain),
    },
    helps={"action": "list, show JOB, retry [JOB…], cancel JOB, or drain: do it now."},
)


@command(tally="place")
def worker(
    call: Call,
    kind: Annotated[tuple[str, ...], "Only jobs of this kind; by default everything."] = (),
    threads: Annotated[int, typer.Option(min=1, max=64, help="How many at once.")] = 1,
    detached: Annotated[bool, "Go on when the process that started it has ended."] = False,
) -> Answer:
    """Carry out follow-up work until it, or the process that started it, is stopped."""
    parent = None if detached else os.getppid()
    with open_as_owner(call.where) as owner, _interrupted() as stopping:
        workers = [owner.tally.worker(kind or None).start() for _ in range(threads)]
        location = owner.tally.location
        if call.as_json:
            print_json({"state": "working", "tally": location})
        else:
            print_view(f"Working on {location}. Ctrl-C ends it.", style="dim")
        while not stopping.wait(_LOOK_SECONDS) and all(each.is_alive for each in workers):
            if parent not in (None, os.getppid()):
                break
        for each in workers:
            each.pause()  # all at once, so that none begins anything while another one ends
        for each in workers:
            each.stop()
    line = "Stopped: what was under way is done, what was not begun waits."
    return Answer({"state": "stopped", "tally": location}, line)


@contextmanager
def _interrupted() -> Iterator[threading.Event]:
    """Let the first interruption set the event, so that what is under way comes to its end; a
    second one ends the process at once.
    """
    stopping = threading.Event()

    def stop(number: int, frame: object) -> None:
        stopping.set()
        restore()

    def restore() -> None:
        for number, handler in before.items():
            signal.signal(number, handler)

    before = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stopping
    finally:
        restore()
