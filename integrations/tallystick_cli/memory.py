"""Commands that look after memory: who may see what, what a memory is, changing, forgetting,
moving, mending.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, get_args

import typer
from rich.text import Text

from tallystick.errors import InvalidInput
from tallystick.records import Actor, CorrectionKind, Scope
from tallystick.tally import BoundTally, Tally
from tallystick.tally.services import services_of
from tallystick_cli import views
from tallystick_cli.options import (
    Apply,
    AsJson,
    IfVersion,
    InScope,
    Key,
    Limit,
    MemoryId,
    Preview,
    Reason,
    Token,
    Where,
)
from tallystick_cli.output import print_json, print_preview, print_view
from tallystick_cli.person import confirm, require_person
from tallystick_cli.session import memory_id_of, open_as_owner
from tallystick_cli.surface import command_help, help_of

__all__ = ["register"]


def init(
    where: Where = ".tally",
    owner: Annotated[
        str, typer.Option("--owner", help="Who acts where a runtime names nobody.")
    ] = "local",
    project: Annotated[
        list[str] | None, typer.Option("--project", help="A project of the owner; repeatable.")
    ] = None,
    journal_days: Annotated[
        str | None,
        typer.Option(
            "--journal-days", help="Days that journals are kept (90 or 180 are usual), or `keep`."
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Make a tally, name its owner, and choose how long its journal is kept."""
    if journal_days is None and sys.stdin.isatty():
        journal_days = typer.prompt(
            "Keep the journal for how many days? (90 or 180 are usual; `keep` for ever)", "180"
        )
    if journal_days is not None and journal_days != "keep" and not journal_days.isdecimal():
        raise InvalidInput("--journal-days takes a number of days, or keep.")
    actor = None
    if owner != "local" or project:
        actor = Actor.load(
            {"user": owner, "projects": frozenset(project or ()), "role": "operator"}
        )
    with Tally.open(where, owner=actor, background=False) as tally:
        bound = tally.bind(None).on("cli")
        if journal_days is not None:
            bound.operator.choose_journal_window(
                None if journal_days == "keep" else int(journal_days)
            )
        summary = {"place": tally.location, "owner": bound.actor.user, "journal_days": journal_days}
    if as_json:
        print_json(summary)
        return
    print_view(Text(f"✓ {summary['place']} belongs to {summary['owner']}", style="green"))
    if journal_days is None:
        print_view(
            Text(
                "! The journal is kept until you choose: tally init --journal-days 180",
                style="yellow",
            )
        )


def spaces(where: Where = ".tally", as_json: AsJson = False) -> None:
    """List the spaces that the owner may see, with their members."""
    with open_as_owner(where) as owner:
        stored = owner.spaces.list()
    if as_json:
        print_json([space.dump() for space in stored])
    else:
        print_view(
            views.space_table(stored)
            if stored
            else Text("No space was created here yet.", style="dim")
        )


def preview_agent(
    user: Annotated[str, typer.Argument(help="The person it acts for.")],
    agent: Annotated[
        str | None, typer.Option("--agent", help="The agent; without it the person alone.")
    ] = None,
    project: Annotated[
        list[str] | None, typer.Option("--project", help="A project that it belongs to.")
    ] = None,
    delegation: Annotated[
        list[str] | None, typer.Option("--delegation", help="A delegation that it holds.")
    ] = None,
    scope: Annotated[
        list[str] | None, typer.Option("--scope", "-s", help="A scope; by default all there are.")
    ] = None,
    where: Where = ".tally",
    as_json: AsJson = False,
) -> None:
    """Show what an agent or person could recall, scope by scope, and why not the rest. Changes
    nothing.
    """
    subject = Actor.load(
        {
            "user": user,
            "agent": agent,
            "projects": set(project or ()),
            "delegations": set(delegation or ()),
        }
    )
    with open_as_owner(where) as owner:
        scopes: list[str | Scope] = list(scope) if scope else list(owner.tally.scopes())
        access = owner.preview_access(actor=subject, scopes=scopes)
    if as_json:
        print_json(access.dump())
    else:
        print_view(views.preview_table(access))


def inspect(memory: MemoryId, where: Where = ".tally", as_json: AsJson = False) -> None:
    """Show what a memory is, why it can or cannot be seen, what hangs on it, and what may be done
    next.
    """
    with open_as_owner(where) as owner:
        inspection = owner.inspect(memory_id_of(owner, memory))
    if as_json:
        print_json(inspection.dump())
    else:
        print_view(views.inspection_view(inspection))


def explore(
    around: Annotated[
        str | None,
        typer.Argument(
            help="A scope such as project:apollo, or the id of a memory, or how it ends."
        ),
    ] = None,
    depth: Annotated[
        int, typer.Option("--depth", min=1, max=2, help="Links away from a memory.")
    ] = 1,
    limit: Limit = 50,
    before: Annotated[
        str | None, typer.Option("--before", help="The last id of the page before.")
    ] = None,
    where: Where = ".tally",
    as_json: AsJson = False,
) -> None:
    """Look around: what there is, what stands in a scope, what hangs on a memory."""
    with open_as_owner(where) as owner:
        if around is not None and ":" not in around and around != "public":
            around = memory_id_of(owner, around)
        explored = owner.explore(around, depth=depth, limit=limit, before=before)
    if as_json:
        print_json(explored.dump())
    else:
        print_view(views.explored_view(explored))


def history(memory: MemoryId, where: Where = ".tally", as_json: AsJson = False) -> None:
    """Show everything that happened to a memory."""
    with open_as_owner(where) as owner:
        entries = owner.history(memory_id_of(owner, memory))
    if as_json:
        print_json([entry.dump() for entry in entries])
    else:
        print_view(views.history_table(entries))


def modify(
    memory: MemoryId,
    reason: Reason,
    content: Annotated[
        str | None, typer.Option("--content", help="What it says from now on.")
    ] = None,
    tag: Annotated[
        list[str] | None, typer.Option("--tag", help="Its tags from now on; repeatable.")
    ] = None,
    kind: Annotated[str | None, typer.Option("--kind")] = None,
    importance: Annotated[int | None, typer.Option("--importance", min=0, max=100)] = None,
    pinned: Annotated[bool | None, typer.Option("--pin/--unpin")] = None,
    lock: Annotated[
        bool, typer.Option("--lock", help="Let no agent change it for a while.")
    ] = False,
    if_version: IfVersion = None,
    key: Key = None,
    where: Where = ".tally",
    as_json: AsJson = False,
) -> None:
    """Change a memory; the old version stays in its history."""
    named = {
        "content": content,
        "tags": tuple(tag) if tag else None,
        "kind": kind,
        "importance": importance,
        "pinned": pinned,
    }
    changes: dict[str, Any] = {name: value for name, value in named.items() if value is not None}
    with open_as_owner(where) as owner:
        change = owner.modify(
            memory_id_of(owner, memory),
            reason=reason,
            if_version=if_version,
            manual_override=lock,
            idempotency_key=key,
            **changes,
        )
    if as_json:
        print_json(change.dump())
    else:
        print_view(views.change_line(change))


def correct(
    memory: MemoryId,
    correction: Annotated[
        str, typer.Argument(help=f"One of {', '.join(get_args(CorrectionKind))}.")
    ],
    reason: Reason,
    by: Annotated[
        str | None, typer.Option("--by", help="The replacement, or the memory that it repeats.")
    ] = None,
    field: Annotated[
        str, typer.Option("--field", help="What to redact, such as attributes.phone.")
    ] = "content",
    replacement: Annotated[
        str, typer.Option("--replacement", help=help_of("correct", "replacement"))
    ] = "[redacted]",
    apply: Apply = False,
    token: Token = None,
    key: Key = None,
    where: Where = ".tally",
    as_json: AsJson = False,
) -> None:
    """Preview a correction and what it touches; with --apply and the preview's --token do it."""
    with open_as_owner(where) as owner:
        kind: Any = correction
        result = owner.correct(
            memory_id_of(owner, memory),
            kind,
            reason=reason,
            mode="apply" if apply else "preview",
            by=None if by is None else memory_id_of(owner, by),
            field=field,
            replacement=replacement,
            confirm_token=token,
            idempotency_key=key,
        )
    if as_json:
        print_json(result.dump())
    else:
        print_preview(views.correction_view(result), result.confirm_token)


def forget(
    reason: Reason,
    what: Annotated[
        str | None,
        typer.Argument(metavar="[MEMORY|TEXT]", help="Id of a memory; with --matching a query."),
    ] = None,
    matching: Annotated[
        bool,
        typer.Option("--matching", help="Forget what recall finds for TEXT, or what filters keep."),
    ] = False,
    threshold: Annotated[
        float, typer.Option("--threshold", min=0.0, help="The least score of a match.")
    ] = 0.5,
    kind: Annotated[
        list[str] | None, typer.Option("--kind", help=help_of("forget_matching", "kinds"))
    ] = None,
    tag: Annotated[
        list[str] | None, typer.Option("--tag", help=help_of("forget_matching", "tags"))
    ] = None,
    speaker: Annotated[
        str | None, typer.Option("--speaker", help=help_of("forget_matching", "speaker"))
    ] = None,
    source_type: Annotated[
        str | None, typer.Option("--source-type", help=help_of("forget_matching", "source_type"))
    ] = None,
    since: Annotated[
        int | None, typer.Option("--since", help=help_of("forget_matching", "since"))
    ] = None,
    until: Annotated[
        int | None, typer.Option("--until", help=help_of("forget_matching", "until"))
    ] = None,
    preview: Preview = False,
    apply: Apply = False,
    token: Token = None,
    force: Annotated[bool, typer.Option("--force", help="Also what is pinned.")] = False,
    key: Key = None,
    where: Where = ".tally",
    scope: InScope = None,
    as_json: AsJson = False,
) -> None:
    """Take a memory out of recall; it can be recovered. With --matching: preview, then --apply with
    its --token.
    """
    if preview and apply:
        raise InvalidInput("Give --preview or --apply, not both.")
    if force and matching:
        raise InvalidInput("--force is for one memory, not for --matching.")
    filters: dict[str, Any] = {
        "kinds": tuple(kind or ()),
        "tags": tuple(tag or ()),
        "speaker": speaker,
        "source_type": source_type,
        "since": since,
        "until": until,
    }
    if not matching and any(value not in (None, ()) for value in filters.values()):
        raise InvalidInput("Filters choose among many memories: give --matching too.")
    if force and apply:
        require_person("tally forget --force --apply")
        confirm("forget it although it is pinned", "force")
    next_token: str | None = None
    with open_as_owner(where) as owner:
        if matching:
            bound = owner if scope is None else owner.tally.bind(owner.actor, scope).on("cli")
            forgetting = bound.forget_matching(
                what,
                reason=reason,
                mode="apply" if apply else "preview",
                threshold=threshold,
                confirm_token=token,
                idempotency_key=key,
                **filters,
            )
            fields, view, next_token = (
                forgetting.dump(),
                views.forgetting_view(forgetting),
                forgetting.confirm_token,
            )
        elif what is None:
            raise InvalidInput("Name the memory to forget, or give --matching and filters.")
        elif preview or (force and not apply):
            correction = owner.correct(
                memory_id_of(owner, what), "delete", reason=reason, force=force
            )
            fields, view = correction.dump(), views.correction_view(correction)
            next_token = correction.confirm_token if force else None
        else:
            change = owner.forget(
                memory_id_of(owner, what),
                reason=reason,
                force=force,
                confirm_token=token,
                idempotency_key=key,
            )
            fields, view = change.dump(), views.change_line(change)
    if as_json:
        print_json(fields)
    else:
        print_preview(view, next_token)


def recover(
    memory: MemoryId,
    reason: Reason,
    key: Key = None,
    where: Where = ".tally",
    as_json: AsJson = False,
) -> None:
    """Bring a forgotten memory back as it stood, within its window."""
    with open_as_owner(where) as owner:
        change = owner.recover(memory_id_of(owner, memory), reason=reason, idempotency_key=key)
    if as_json:
        print_json(change.dump())
    else:
        print_view(views.change_line(change))


def erase(
    memory: Annotated[
        list[str], typer.Argument(metavar="MEMORY…", help="Ids of memories, or how they end.")
    ],
    reason: Reason,
    apply: Apply = False,
    token: Token = None,
    key: Key = None,
    where: Where = ".tally",
    as_json: AsJson = False,
) -> None:
    """Preview the destruction of memories' text in every copy; with --apply and the --token do it,
    with proof.
    """
    if apply:
        require_person("tally erase --apply")
        confirm("destroy the text, which cannot be taken back", "erase")
    with open_as_owner(where) as owner:
        ids = [memory_id_of(owner, fragment) for fragment in memory]
        erasure = owner.operator.erase(
            ids,
            reason=reason,
            mode="apply" if apply else "preview",
            confirm_token=token,
            idempotency_key=key,
        )
    if as_json:
        print_json(erasure.dump())
    else:
        print_preview(views.erasure_view(erasure), erasure.confirm_token)
    if any(not proof.holds for proof in erasure.proofs):
        raise typer.Exit(1)


def purge(
    apply: Annotated[bool, typer.Option("--apply", help="Remove it.")] = False,
    key: Key = None,
    where: Where = ".tally",
    as_json: AsJson = False,
) -> None:
    """Count what is past its window; with --apply remove it. Nothing within its window goes."""
    with open_as_owner(where) as owner:
        result = owner.operator.purge(mode="apply" if apply else "preview", idempotency_key=key)
    if as_json:
        print_json(result.dump())
    else:
        print_view(views.purge_view(result))


def export(
    folder: Annotated[Path | None, typer.Argument(help=help_of("export", "folder"))] = None,
    preview: Annotated[bool, typer.Option("--preview", help="Count it, write nothing.")] = False,
    where: Where = ".tally",
    scope: Annotated[
        list[str] | None, typer.Option("--scope", "-s", help="A scope; repeatable.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Write scopes to a folder of JSON lines and blobs, each with its digest; by default all that
    one may take.
    """
    with open_as_owner(where) as owner:
        chosen = [Scope.parse(name) for name in scope] if scope else _exportable(owner)
        transfer = owner.operator.export(
            folder, scopes=chosen, mode="preview" if preview else "apply"
        )
    if as_json:
        print_json(transfer.dump())
    else:
        print_view(
            views.transfer_preview(transfer)
            if preview
            else views.transfer_view(transfer, verb="exported to", folder=folder or Path())
        )


def import_(
    folder: Annotated[Path, typer.Argument(help=help_of("import_from", "folder"))],
    key: Key = None,
    where: Where = ".tally",
    as_json: AsJson = False,
) -> None:
    """Bring an export into a new tally; every digest is checked before anything is written."""
    with open_as_owner(where, create=True) as owner:
        transfer = owner.operator.import_from(folder, idempotency_key=key)
    if as_json:
        print_json(transfer.dump())
    else:
        print_view(views.transfer_view(transfer, verb="imported from", folder=folder))


def doctor(
    repair: Annotated[bool, typer.Option("--repair", help="Mend what can be mended.")] = False,
    where: Where = ".tally",
    as_json: AsJson = False,
) -> None:
    """Check chains, commitments, jobs, retention and the index. Exits with 1 when something is
    wrong.
    """
    with open_as_owner(where) as owner:
        findings = owner.operator.doctor(repair=repair)
    if as_json:
        print_json([finding.dump() for finding in findings])
    else:
        print_view(views.doctor_table(findings))
    if any(finding.status == "problem" for finding in findings):
        raise typer.Exit(1)


def memories(
    where: Where = ".tally",
    scope: InScope = None,
    state: Annotated[
        list[str] | None, typer.Option("--state", help="Such as deleted; repeatable.")
    ] = None,
    limit: Limit = 20,
    as_json: AsJson = False,
) -> None:
    """List memories of a scope, newest first; what is hidden or forgotten comes without its
    text.
    """
    states: Any = tuple(state) if state else ("active",)
    with open_as_owner(where) as owner:
        bound = owner if scope is None else owner.tally.bind(owner.actor, scope).on("cli")
        listed = bound.memories(states=states, limit=limit)
    if as_json:
        print_json([memory.dump() for memory in listed])
    else:
        print_view(
            views.memory_table(listed)
            if listed
            else Text("Nothing is remembered here.", style="dim")
        )


_COMMANDS: tuple[tuple[str, Callable[..., None]], ...] = (
    ("init", init),
    ("memories", memories),
    ("explore", explore),
    ("inspect", inspect),
    ("history", history),
    ("modify", modify),
    ("correct", correct),
    ("forget", forget),
    ("recover", recover),
    ("erase", erase),
    ("spaces", spaces),
    ("preview-agent", preview_agent),
    ("export", export),
    ("import", import_),
    ("purge", purge),
    ("doctor", doctor),
)


def register(app: typer.Typer) -> None:
    """Add the commands of this module."""
    for name, command in _COMMANDS:
        app.command(name, help=command_help(name))(command)


def _exportable(owner: BoundTally) -> list[Scope]:
    gate = services_of(owner.tally).gate
    return [
        scope
        for scope in owner.tally.scopes()
        if gate.require_or_none(owner.actor, "export", scope) is not None
    ]
