"""The command of access tokens: make, list, rotate and revoke what lets a caller in over a
network.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Annotated, Any, Literal, get_args

import typer
from rich.text import Text

from tallystick.errors import InvalidInput
from tallystick.records import AccessToken, Actor
from tallystick.tally import BoundTally
from tallystick_cli import views
from tallystick_cli.options import AsJson, Key, Where
from tallystick_cli.output import print_json, print_view
from tallystick_cli.person import require_person
from tallystick_cli.session import complete_id, open_as_owner

Action = Literal["list", "make", "rotate", "revoke"]
_ACTIONS: tuple[str, ...] = get_args(Action)
_SECONDS = {"m": 60, "h": 3_600, "d": 86_400}


def token(
    action: Annotated[
        str,
        typer.Argument(help="list, make NAME, rotate TOKEN, or revoke TOKEN."),
    ] = "list",
    what: Annotated[
        str | None,
        typer.Argument(
            metavar="[NAME|TOKEN]",
            help="The name of a new token, or the id of one, or how it begins or ends.",
        ),
    ] = None,
    user: Annotated[
        str | None,
        typer.Option("--user", help="Who comes in with it; by default whoever makes it."),
    ] = None,
    agent: Annotated[
        str | None, typer.Option("--agent", help="The agent that comes in, for its user.")
    ] = None,
    project: Annotated[
        list[str] | None, typer.Option("--project", help="A project of theirs; repeatable.")
    ] = None,
    operator: Annotated[
        bool, typer.Option("--operator", help="With the rights of an operator.")
    ] = False,
    scope: Annotated[
        list[str] | None,
        typer.Option("--scope", "-s", help="Good for this scope alone; repeatable."),
    ] = None,
    operation: Annotated[
        list[str] | None,
        typer.Option("--operation", help="Good for this alone, such as read or write; repeatable."),
    ] = None,
    session: Annotated[
        bool,
        typer.Option(
            "--session", help="For a person's sitting: grants, forces and erases. At a terminal."
        ),
    ] = False,
    expires_in: Annotated[
        str | None,
        typer.Option("--expires-in", help="Such as 30m, 8h or 90d; else that of its class."),
    ] = None,
    reason: Annotated[
        str | None, typer.Option("--reason", "-r", help="Why; to revoke needs it.")
    ] = None,
    key: Key = None,
    where: Where = ".tally",
    as_json: AsJson = False,
) -> None:
    """List access tokens; make one, whose secret is shown once; replace or revoke one: the next
    request with it is refused.
    """
    _check(action, what, reason)
    if session:
        require_person("tally token make --session")
    with open_as_owner(where) as owner:
        if action == "list":
            _list(owner, as_json=as_json)
            return
        assert what is not None
        match action:
            case "make":
                holder = _holder(owner.actor, user, agent, project, operator)
                bounded = bool(scope or operation)
                options: Any = {"scopes": scope or None, "operations": operation or None}
                token_class: Any = "session" if session else "scoped" if bounded else "personal"
                made = owner.tokens.make(
                    what,
                    token_class=token_class,
                    actor=holder,
                    expires_in=None if expires_in is None else _seconds(expires_in),
                    idempotency_key=key,
                    **options,
                )
            case "rotate":
                made = owner.tokens.rotate(_id(owner, what), idempotency_key=key)
            case _:
                assert reason is not None
                made = owner.tokens.revoke(_id(owner, what), reason=reason, idempotency_key=key)
    _print(made, as_json=as_json)


def _check(action: str, what: str | None, reason: str | None) -> None:
    if action not in _ACTIONS:
        raise InvalidInput(f"tally token {action}: there is {', '.join(_ACTIONS)}.")
    if action == "list" and what is not None:
        raise InvalidInput("tally token list takes no name and no id.")
    if action == "make" and what is None:
        raise InvalidInput("Name the token by the machine or person that has it: token make NAME.")
    if action in ("rotate", "revoke") and what is None:
        raise InvalidInput(f"tally token {action} takes the id of one token.")
    if action == "revoke" and not (reason or "").strip():
        raise InvalidInput("Say why: tally token revoke TOKEN --reason …")


def _holder(
    maker: Actor, user: str | None, agent: str | None, projects: list[str] | None, operator: bool
) -> Actor:
    """Return who comes in: the maker or another user, as a member unless said otherwise."""
    own = user is None or user == maker.user
    fields: dict[str, Any] = {
        "user": user or maker.user,
        "agent": agent,
        "organization": maker.organization,
        "projects": set(projects) if projects is not None else maker.projects if own else set(),
        "delegations": maker.delegations if own else set(),
        "role": "operator" if operator else "member",
    }
    return Actor.load(fields)


def _seconds(text: str) -> int:
    number, unit = text[:-1], text[-1:]
    if not (number.isascii() and number.isdigit() and unit in _SECONDS):
        raise InvalidInput(f"{text!r} is no time. Write it like 30m, 8h or 90d.")
    return int(number) * _SECONDS[unit]


def _id(owner: BoundTally, fragment: str) -> str:
    return complete_id(fragment, (token.id for token in owner.tokens.list()), "token")


def _list(owner: BoundTally, *, as_json: bool) -> None:
    listed, now = owner.tokens.list(), owner.tally.now()
    if as_json:
        print_json([token.dump() for token in listed])
    elif listed:
        print_view(views.token_table(listed, now))
    else:
        print_view(
            Text(
                "There are no access tokens. `tally token make NAME` makes one.",
                style="dim",
            )
        )


def _print(made: AccessToken, *, as_json: bool) -> None:
    if as_json:
        print_json(made.dump())
        return
    print_view(views.token_line(made))
    if made.secret is not None:
        print_view(Text("Its secret, which is shown this once:"))
        typer.echo(made.secret)


COMMANDS: Mapping[str, Callable[..., None]] = {"token": token}
