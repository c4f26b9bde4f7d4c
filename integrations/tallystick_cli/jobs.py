"""Commands of follow-up work: look at it, retry it, cancel it, do it now, run a worker, and see the
calls of models that it made.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import Annotated, Any, Literal, get_args

import typer
from rich.text import Text

from tallystick.errors import InvalidInput
from tallystick.tally import BoundTally
from tallystick_cli import views
from tallystick_cli.options import AsJson, Before, Key, Limit, Where
from tallystick_cli.output import print_json, print_older, print_view, progress_bar
from tallystick_cli.session import id_of, open_as_owner
from tallystick_cli.table_help import help_of

Action = Literal["list", "show", "retry", "cancel", "drain"]
_ACTIONS: tuple[str, ...] = get_args(Action)
_LOOK_SECONDS = 0.2


def jobs(
    action: Annotated[
        str, typer.Argument(help="list, show JOB, retry [JOB…], cancel JOB, or drain: do it now.")
    ] = "list",
    job: Annotated[
        list[str] | None,
        typer.Argument(metavar="[JOB]…", help="Ids of jobs, or how they begin or end."),
    ] = None,
    state: Annotated[
        list[str] | None,
        typer.Option("--state", help="Such as failed or dead; repeatable; by default any."),
    ] = None,
    kind: Annotated[str | None, typer.Option("--kind", help=help_of("jobs", "kind"))] = None,
    limit: Limit = 20,
    before: Before = None,
    reason: Annotated[
        str | None, typer.Option("--reason", "-r", help="Why; to cancel needs it.")
    ] = None,
    key: Key = None,
    where: Where = ".tally",
    as_json: AsJson = False,
) -> None:
    """List follow-up work; show one job with its trail, retry what failed, cancel one, or drain:
    do all that waits now.
    """
    named = [id_of(fragment) for fragment in job or ()]
    _check(action, named, reason)
    with open_as_owner(where) as owner:
        match action:
            case "show":
                found = owner.operator.job(named[0])
                _print(found.dump(), views.job_view(found), as_json=as_json)
            case "retry":
                requeued = owner.operator.retry_jobs(named or None, idempotency_key=key)
                line = Text(
                    f"✓ {len(requeued)} will be done anew" if requeued else "Nothing failed or died"
                )
                _print(requeued, line, as_json=as_json)
            case "cancel":
                assert reason is not None
                ended = owner.operator.cancel_job(named[0], reason=reason, idempotency_key=key)
                _print(ended.dump(), views.job_view(ended), as_json=as_json)
            case "drain":
                _drain(owner, as_json=as_json)
            case _:
                last = None if before is None else id_of(before)
                _list(owner, state or (), kind, limit, last, as_json=as_json)


def _check(action: str, named: Sequence[str], reason: str | None) -> None:
    if action not in _ACTIONS:
        raise InvalidInput(f"tally jobs {action}: there is {', '.join(_ACTIONS)}.")
    if action in ("show", "cancel") and len(named) != 1:
        raise InvalidInput(f"tally jobs {action} takes the id of one job.")
    if action in ("list", "drain") and named:
        raise InvalidInput(f"tally jobs {action} takes no id.")
    if action == "cancel" and not (reason or "").strip():
        raise InvalidInput("Say why: tally jobs cancel JOB --reason …")


def _list(
    owner: BoundTally,
    state: Sequence[str],
    kind: str | None,
    limit: int,
    before: str | None,
    *,
    as_json: bool,
) -> None:
    states: Any = tuple(state)
    listed = owner.operator.jobs(state=states, kind=kind, limit=limit, before=before)
    if as_json:
        print_json([each.dump() for each in listed])
    elif not listed:
        print_view(Text("There is no such follow-up work.", style="dim"))
    else:
        print_view(views.job_table(listed))
        print_older(views.short(listed[-1].id), len(listed), limit)


def _drain(owner: BoundTally, *, as_json: bool) -> None:
    with progress_bar("Follow-up work", "jobs", as_json=as_json) as bar:
        task = bar.add_task("drain", total=None)
        drained = owner.tally.drain(
            lambda finished, total: bar.update(task, completed=finished, total=total)
        )
    line = Text(
        f"✓ {drained.jobs} jobs, {drained.embedded} vectors made, {drained.indexed} brought into "
        f"the index" + (f", {drained.left} wait for its owner" if drained.left else ""),
        style="green",
    )
    _print(asdict(drained), line, as_json=as_json)


def _print(value: Any, view: Any, *, as_json: bool) -> None:
    if as_json:
        print_json(value)
    else:
        print_view(view)


def worker(
    kind: Annotated[
        list[str] | None,
        typer.Option("--kind", help="Only jobs of this kind; repeatable; by default everything."),
    ] = None,
    threads: Annotated[int, typer.Option("--threads", min=1, max=64, help="How many at once.")] = 1,
    detached: Annotated[
        bool, typer.Option("--detached", help="Go on when the process that started it has ended.")
    ] = False,
    where: Where = ".tally",
    as_json: AsJson = False,
) -> None:
    """Carry out follow-up work until it is stopped (Ctrl-C, SIGTERM). It ends with the process that
    started it.
    """
    stopping = _Stopping(follow=None if detached else os.getppid())
    with open_as_owner(where) as owner, stopping:
        workers = [owner.tally.worker(kind).start() for _ in range(threads)]
        location = owner.tally.location
        line = Text(f"Working on {location}. Ctrl-C ends it.", style="dim")
        _print({"state": "working", "tally": location}, line, as_json=as_json)
        while not stopping.is_due() and all(each.is_alive for each in workers):
            time.sleep(_LOOK_SECONDS)
        for each in workers:
            each.pause()  # all at once, so that none begins anything while another one ends
        for each in workers:
            each.stop()
    line = Text("Stopped: what was under way is done, what was not begun waits.", style="dim")
    _print({"state": "stopped", "tally": location}, line, as_json=as_json)


class _Stopping:
    """Notes a signal that ends the process, or the end of its parent."""

    def __init__(self, *, follow: int | None) -> None:
        self._parent = follow
        self._signalled = False
        self._before: dict[int, Any] = {}

    def is_due(self) -> bool:
        """Return True once it is time to stop."""
        return self._signalled or (self._parent is not None and os.getppid() != self._parent)

    def _note(self, number: int, frame: object) -> None:
        self._signalled = True
        self._restore()  # a second one ends it at once

    def _restore(self) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def __enter__(self) -> None:
        for number in (signal.SIGINT, signal.SIGTERM):
            self._before[number] = signal.signal(number, self._note)

    def __exit__(self, *error: object) -> None:
        self._restore()


def outbound(
    purpose: Annotated[
        str | None, typer.Option("--purpose", help=help_of("outbound_calls", "purpose"))
    ] = None,
    limit: Limit = 20,
    before: Before = None,
    where: Where = ".tally",
    as_json: AsJson = False,
) -> None:
    """List the calls of models that Tallystick itself made."""
    last = None if before is None else id_of(before)
    with open_as_owner(where) as owner:
        calls = owner.operator.outbound_calls(purpose=purpose, limit=limit, before=last)
    if as_json:
        print_json([call.dump() for call in calls])
    elif not calls:
        print_view(Text("Tallystick called no model.", style="dim"))
    else:
        print_view(views.outbound_table(calls))
        print_older(calls[-1].id, len(calls), limit)


COMMANDS: Mapping[str, Callable[..., None]] = {
    "jobs": jobs,
    "worker": worker,
    "outbound": outbound,
}
