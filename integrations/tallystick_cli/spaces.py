"""Commands of spaces: open a scope to others, list the spaces, preview what somebody could
recall.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from typing import Annotated, Any

import typer
from rich.text import Text

from tallystick.errors import InvalidInput, NotFound
from tallystick.records import Actor, Scope, SpaceMember
from tallystick_cli import views
from tallystick_cli.options import AsJson, IfVersion, Key, Reason, Where
from tallystick_cli.output import print_json, print_result, print_view
from tallystick_cli.session import open_as_owner

_FORM = "user:bob=writer, agent:coder=reader@2026-12-31 or everyone=reader"


def space(
    scope: Annotated[
        str, typer.Argument(metavar="SCOPE", help="Such as team:core or project:apollo.")
    ],
    reason: Reason,
    name: Annotated[
        str | None, typer.Option("--name", help="What people call it; needed to create it.")
    ] = None,
    description: Annotated[str | None, typer.Option("--description")] = None,
    member: Annotated[
        list[str] | None,
        typer.Option(
            "--member", help=f"Who belongs to it, as what, until when: {_FORM}; repeatable."
        ),
    ] = None,
    without: Annotated[
        list[str] | None, typer.Option("--without", help="Who no longer does: user:bob.")
    ] = None,
    state: Annotated[
        bool | None, typer.Option("--open/--close", help="A closed space refuses its members.")
    ] = None,
    preview: Annotated[
        bool, typer.Option("--preview", help="Only show what each --member could do and recall.")
    ] = False,
    if_version: IfVersion = None,
    key: Key = None,
    where: Where = ".tally",
    as_json: AsJson = False,
) -> None:
    """Create the space of a scope, or change it: its members stay as they are but for those that
    are named.
    """
    named = {
        "name": name,
        "description": description,
        "state": None if state is None else "open" if state else "closed",
    }
    changes: dict[str, Any] = {field: value for field, value in named.items() if value is not None}
    added = [_member(text) for text in member or ()]
    if preview:
        _preview(scope, added, where, as_json=as_json, others=bool(without) or bool(changes))
        return
    with open_as_owner(where) as owner:
        try:
            there = owner.spaces.get(scope).members
        except NotFound:
            if name is None or without or state is not None:
                raise
            result = owner.spaces.create(
                scope,
                name=name,
                description=description or "",
                members=added,
                reason=reason,
                idempotency_key=key,
            )
        else:
            if added or without:
                changes["members"] = _changed(there, added, without or ())
            result = owner.spaces.update(
                scope, reason=reason, if_version=if_version, idempotency_key=key, **changes
            )
    if as_json:
        print_json(result.dump())
    else:
        print_view(views.space_table([result]))


def _preview(
    scope: str, members: Iterable[SpaceMember], where: str, *, as_json: bool, others: bool
) -> None:
    if not members or others:
        raise InvalidInput("--preview shows what each --member could recall, and nothing else.")
    with open_as_owner(where) as owner:
        previews = [owner.preview_member(scope, member) for member in members]
    if as_json:
        print_json([{**each.dump(), "gained": list(each.gained)} for each in previews])
    else:
        print_view(views.member_table(previews))


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
            else Text(
                "No space was created here yet. `tally space SCOPE --name … --member …` opens a "
                "scope to others.",
                style="dim",
            )
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
    print_result(access, views.preview_table, as_json=as_json)


def _changed(
    existing: Iterable[SpaceMember], added: Iterable[SpaceMember], without: Iterable[str]
) -> list[SpaceMember]:
    members: dict[tuple[str, str], SpaceMember] = {
        (member.principal_type, member.principal_id): member for member in existing
    }
    for text in without:
        kind, _, principal = text.partition(":")
        if members.pop((kind, principal), None) is None:
            raise InvalidInput(f"{text} is no member of this space.")
    members |= {(member.principal_type, member.principal_id): member for member in added}
    return list(members.values())


def _member(text: str) -> SpaceMember:
    """A member as the command line names it; names may hold any sign. Raises InvalidInput,
    InvalidRecord.
    """
    principal_text, separator, role = text.rpartition("=")
    role, _, day = role.partition("@")
    kind, _, principal = principal_text.partition(":")
    if not separator:
        raise InvalidInput(f"{text!r} names no member. Write it like {_FORM}.")
    ends = None
    if day:
        try:
            ends = (
                int(datetime.strptime(day, "%Y-%m-%d").replace(tzinfo=UTC).timestamp()) * 1_000_000
            )
        except ValueError as error:
            raise InvalidInput(f"{day!r} is no day. Write it like 2026-12-31.") from error
    return SpaceMember.load(
        {"principal_type": kind, "principal_id": principal, "role": role, "expires_at": ends}
    )


COMMANDS: Mapping[str, Callable[..., None]] = {
    "space": space,
    "spaces": spaces,
    "preview-agent": preview_agent,
}
