"""Commands that look after one memory: what it is, its history, changing, copying and forgetting
it.
"""

from __future__ import annotations

from typing import Annotated, Any

import typer

from tallystick.errors import InvalidInput
from tallystick_cli.commands import Answer, Call, command, operation_command
from tallystick_cli.session import confirm, id_of, require_person
from tallystick_cli.views import memories as views

inspect = operation_command("inspect", views.inspection_view)
history = operation_command("history", views.history_table)
correct = operation_command("correct", views.correction_view, positional=("correction",))
recover = operation_command("recover", views.change_line)
promote = operation_command("promote", views.crossing_view, positional=("into",))
share = operation_command("share", views.crossing_view, positional=("into",))


@command("modify", view=views.change_line)
def modify(
    call: Call,
    content: Annotated[
        str | None, typer.Option("--content", help="What it says from now on.")
    ] = None,
    tags: Annotated[
        list[str] | None, typer.Option("--tag", help="Its tags from now on; repeatable.")
    ] = None,
    kind: Annotated[str | None, typer.Option("--kind", help="Its kind from now on.")] = None,
    importance: Annotated[
        int | None, typer.Option("--importance", min=0, max=100, help="0 to 100.")
    ] = None,
    pinned: Annotated[
        bool | None, typer.Option("--pin/--unpin", help="Whether to keep it in every pack.")
    ] = None,
    lock: Annotated[
        bool, typer.Option("--lock", help="Let no agent change it for a while.")
    ] = False,
) -> Any:
    fields = {
        "content": content,
        "tags": tags and list(tags),
        "kind": kind,
        "importance": importance,
        "pinned": pinned,
    }
    changes = call.arguments.pop("changes", {})
    changes |= {name: value for name, value in fields.items() if value is not None}
    override = call.arguments.pop("manual_override", lock)
    return call.do(changes=changes, manual_override=override)


@command("forget", "forget_matching", without=("memory_id", "query"), scope="home")
def forget(
    call: Call,
    what: Annotated[
        str | None,
        typer.Argument(metavar="[MEMORY|QUERY]", help="Id of a memory; with --matching a query."),
    ] = None,
    matching: Annotated[
        bool,
        typer.Option("--matching", help="Forget what recall finds for QUERY, or filters keep."),
    ] = False,
    preview: Annotated[bool, typer.Option("--preview", help="Only show what would be done.")] = (
        False
    ),
) -> Any:
    """Take a memory out of recall; it can be recovered. With --matching: preview, then --apply with
    its --token.
    """
    given = call.arguments
    apply, force = given.get("mode") == "apply", "force" in given
    if preview and apply:
        raise InvalidInput("Give --preview or --apply, not both.")
    if force and matching:
        raise InvalidInput("--force is for one memory, not for --matching.")
    if matching:
        forgetting = call.do("forget_matching", query=what)
        return Answer(forgetting, views.forgetting_view(forgetting))
    one = {"mode", "reason", "if_version", "force", "confirm_token", "idempotency_key"}
    if set(given) - one:
        raise InvalidInput("Filters choose among many memories: give --matching too.")
    if what is None:
        raise InvalidInput("Name the memory to forget, or give --matching and filters.")
    if force and apply:
        require_person("tally forget --force --apply")
        confirm("forget it although it is pinned", "force")
    given.pop("mode", None)
    if preview or (force and not apply):
        reason = {"memory_id": id_of(what), "reason": given["reason"], "force": force}
        correction = call.bound.correct(correction="delete", **reason)
        # Without force nothing takes its token.
        value = correction if force else correction.dump()
        return Answer(value, views.correction_view(correction))
    change = call.do("forget", memory_id=id_of(what))
    return Answer(change, views.change_line(change))
