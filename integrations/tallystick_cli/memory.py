"""Commands that look after one memory: what it is, its history, changing and forgetting it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Annotated, Any, get_args

import typer

from tallystick.errors import InvalidInput
from tallystick.records import CorrectionKind
from tallystick_cli import views
from tallystick_cli.options import (
    Apply,
    AsJson,
    AtHome,
    IfVersion,
    Key,
    MemoryId,
    Preview,
    Reason,
    Token,
    Where,
)
from tallystick_cli.output import print_json, print_preview, print_result
from tallystick_cli.person import confirm, require_person
from tallystick_cli.session import id_of, open_as_owner, view_in
from tallystick_cli.table_help import help_of


def inspect(memory: MemoryId, where: Where = ".tally", as_json: AsJson = False) -> None:
    """Show what a memory is, why it can or cannot be seen, what hangs on it, and what may be done
    next.
    """
    with open_as_owner(where) as owner:
        inspection = owner.inspect(id_of(memory))
    print_result(inspection, views.inspection_view, as_json=as_json)


def history(memory: MemoryId, where: Where = ".tally", as_json: AsJson = False) -> None:
    """Show everything that happened to a memory."""
    with open_as_owner(where) as owner:
        entries = owner.history(id_of(memory))
    print_result(entries, views.history_table, as_json=as_json)


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
            id_of(memory),
            reason=reason,
            if_version=if_version,
            manual_override=lock,
            idempotency_key=key,
            **changes,
        )
    print_result(change, views.change_line, as_json=as_json)


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
            id_of(memory),
            kind,
            reason=reason,
            mode="apply" if apply else "preview",
            by=None if by is None else id_of(by),
            field=field,
            replacement=replacement,
            confirm_token=token,
            idempotency_key=key,
        )
    print_result(result, views.correction_view, as_json=as_json)


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
        str | None, typer.Option("--since", help=help_of("forget_matching", "since"))
    ] = None,
    until: Annotated[
        str | None, typer.Option("--until", help=help_of("forget_matching", "until"))
    ] = None,
    preview: Preview = False,
    apply: Apply = False,
    token: Token = None,
    force: Annotated[bool, typer.Option("--force", help="Also what is pinned.")] = False,
    key: Key = None,
    where: Where = ".tally",
    scope: AtHome = None,
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
            bound = view_in(owner, scope)
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
            correction = owner.correct(id_of(what), "delete", reason=reason, force=force)
            fields, view = correction.dump(), views.correction_view(correction)
            next_token = correction.confirm_token if force else None
        else:
            change = owner.forget(
                id_of(what),
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
        change = owner.recover(id_of(memory), reason=reason, idempotency_key=key)
    print_result(change, views.change_line, as_json=as_json)


COMMANDS: Mapping[str, Callable[..., None]] = {
    "inspect": inspect,
    "history": history,
    "modify": modify,
    "correct": correct,
    "forget": forget,
    "recover": recover,
}
