"""Commands of approvals: list what waits for a person, and decide it at a terminal."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Annotated, Any, Literal

import typer
from rich.text import Text

from tallystick.records import Approval
from tallystick.tally import BoundTally
from tallystick_cli import views
from tallystick_cli.options import AsJson, Before, InScope, Key, Limit, Reason, Where
from tallystick_cli.output import print_json, print_older, print_view
from tallystick_cli.person import confirm, require_person
from tallystick_cli.session import complete_id, id_of, open_as_owner

ApprovalId = Annotated[
    str,
    typer.Argument(metavar="APPROVAL", help="Id of an approval, or how it begins or ends."),
]
_EVERY = "all"
_MOST = 1_000_000


def approvals(
    state: Annotated[
        str, typer.Option("--state", help="Such as granted or used; `all` lists every state.")
    ] = "pending",
    where: Where = ".tally",
    limit: Limit = 20,
    before: Before = None,
    scope: InScope = None,
    as_json: AsJson = False,
) -> None:
    """List the actions that wait for a person, or were decided, newest first."""
    with open_as_owner(where) as owner:
        last = None if before is None else id_of(before)
        listed = _listed(owner, None if state == _EVERY else state, scope, last)[:limit]
    if as_json:
        print_json([approval.dump() for approval in listed])
    elif not listed:
        where_else = "" if scope is None else f" in {scope}"
        nothing = "Nothing waits for a person" if state == "pending" else f"Nothing is {state}"
        others = "" if state == _EVERY else " `tally approvals --state all` lists what was decided."
        print_view(
            Text(
                f"{'Nothing was ever asked' if state == _EVERY else nothing}{where_else}.{others}",
                style="dim",
            )
        )
    else:
        print_view(views.approval_table(listed))
        print_older(views.short(listed[-1].id), len(listed), limit)


def approve(
    approval: ApprovalId,
    reason: Reason,
    expires_in: Annotated[
        int | None,
        typer.Option("--expires-in", help="Seconds for which the grant is good; else a day."),
    ] = None,
    key: Key = None,
    where: Where = ".tally",
    as_json: AsJson = False,
) -> None:
    """Grant one blocked action, with exactly its arguments, once."""
    _decide("approve", approval, reason, key, where, as_json, expires_in=expires_in)


def deny(
    approval: ApprovalId,
    reason: Reason,
    key: Key = None,
    where: Where = ".tally",
    as_json: AsJson = False,
) -> None:
    """Deny one blocked action; its agent gets the reason."""
    _decide("deny", approval, reason, key, where, as_json)


def revoke(
    approval: ApprovalId,
    reason: Reason,
    key: Key = None,
    where: Where = ".tally",
    as_json: AsJson = False,
) -> None:
    """Take back a grant that was not used, or a denial."""
    _decide("revoke", approval, reason, key, where, as_json)


def _decide(
    verb: Literal["approve", "deny", "revoke"],
    fragment: str,
    reason: str,
    key: str | None,
    where: str,
    as_json: bool,
    **options: Any,
) -> None:
    require_person(f"tally {verb}")
    with open_as_owner(where) as owner:
        waiting = _found(owner, fragment)
        if not as_json:
            print_view(views.approval_view(waiting))
        confirm(f"{verb} exactly this", verb)
        decided: Approval = getattr(owner, verb)(
            waiting.id, reason=reason, idempotency_key=key, **options
        )
    if as_json:
        print_json(decided.dump())
        return
    print_view(views.approval_line(decided))
    if decided.token is not None:
        print_view(Text("The same action of the same actor runs once, with this token or without:"))
        typer.echo(decided.token)


def _listed(
    owner: BoundTally, state: Any, scope: str | None, before: str | None = None
) -> list[Approval]:
    """Return the approvals of one scope, or of every scope that the owner may see, newest first."""
    scopes = owner.tally.scopes() if scope is None else [owner.actor.home(scope)]
    listed = [
        approval
        for name in scopes
        for approval in owner.tally.bind(owner.actor, name)
        .on("cli")
        .approvals(state=state, limit=_MOST, before=before)
    ]
    return sorted(listed, key=lambda approval: (approval.created_at, approval.id), reverse=True)


def _found(owner: BoundTally, fragment: str) -> Approval:
    if len(fragment) >= 36:
        return owner.approval(fragment)
    listed = {each.id: each for each in _listed(owner, None, None)}
    return listed[complete_id(fragment, listed, "approval")]


COMMANDS: Mapping[str, Callable[..., None]] = {
    "approvals": approvals,
    "approve": approve,
    "deny": deny,
    "revoke": revoke,
}
