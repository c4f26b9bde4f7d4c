"""Commands of follow-up work: list, retry, cancel, do it now, a worker, and calls of models."""

from __future__ import annotations

import os
import signal
import threading
from dataclasses import asdict
from typing import Annotated, Literal

import typer

from tallystick.errors import InvalidInput
from tallystick_cli.commands import Answer, Call, command, operation_command
from tallystick_cli.output import print_json, print_view, progress_bar
from tallystick_cli.session import id_of, open_as_owner
from tallystick_cli.views import upkeep as views

_LOOK_SECONDS = 0.2

outbound = operation_command(
    "outbound_calls", views.outbound_table, empty="Tallystick called no model.", whole_ids=True
)


@command(
    *("jobs", "job", "retry_jobs", "cancel_job"),
    without=("job_id", "job_ids"),
    helps={"action": "list, show JOB, retry [JOB…], cancel JOB, or drain: do it now."},
)
def jobs(
    call: Call,
    action: Literal["list", "show", "retry", "cancel", "drain"] = "list",
    job: Annotated[tuple[str, ...], "Ids of jobs, or how they begin or end."] = (),
    /,
) -> Answer:
    """List follow-up work; show one job with its trail, retry what failed, cancel one, or drain:
    do all that waits now. Exits with 1 where some of it failed.
    """
    named = [id_of(fragment) for fragment in job]
    if action in ("show", "cancel") and len(named) != 1:
        raise InvalidInput(f"tally jobs {action} takes the id of one job.")
    if action in ("list", "drain") and named:
        raise InvalidInput(f"tally jobs {action} takes no id.")
    if action == "list":
        listed = call.do("jobs")
        return Answer(listed, views.job_table(listed) if listed else "There is no such work.")
    if action == "drain":
        call.take()
        return _drain(call)
    if action == "retry":
        anew = call.do("retry_jobs", job_ids=named or None)
        return Answer(
            anew, f"✓ {len(anew)} will be done anew" if anew else "Nothing failed or died"
        )
    shown_job = call.do("job" if action == "show" else "cancel_job", job_id=named[0])
    return Answer(shown_job, views.job_view(shown_job))


def _drain(call: Call) -> Answer:
    with progress_bar("Follow-up work", "jobs", hidden=call.as_json) as advance:
        drained = call.owner.tally.drain(advance)
    left = f", {drained.left} wait for its owner" if drained.left else ""
    vectors = f"{drained.embedded} vectors made, {drained.indexed} brought into the index"
    failed = [f"✗ {each.kind} {each.id[-8:]} {each.state}: {each.text}" for each in drained.failed]
    mark = "!" if failed else "✓"
    lines = [f"{mark} {drained.jobs} jobs, {vectors}{left}", *failed]
    return Answer(asdict(drained), lines, not failed)


@command(tally="place")
def worker(
    call: Call,
    kind: Annotated[tuple[str, ...], "Only jobs of this kind; by default everything."] = (),
    threads: Annotated[int, typer.Option(min=1, max=64, help="How many at once.")] = 1,
    detached: Annotated[bool, "Go on when the process that started it has ended."] = False,
) -> Answer:
    """Carry out follow-up work until it, or the process that started it, is stopped."""
    parent, stopping = None if detached else os.getppid(), threading.Event()

    def stop(number: int, frame: object) -> None:
        stopping.set()
        restore()  # a second one ends it at once

    def restore() -> None:
        for number, handler in before.items():
            signal.signal(number, handler)

    with open_as_owner(call.where) as owner:
        before = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
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
        restore()
    line = "Stopped: what was under way is done, what was not begun waits."
    return Answer({"state": "stopped", "tally": location}, line)
