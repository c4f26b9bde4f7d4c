"""Commands of access: approvals, spaces, previews of access, tokens, and freezing."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Annotated, Any, Literal

import typer
from rich.table import Table
from rich.text import Text

from tallystick import records
from tallystick.errors import InvalidInput, NotFound
from tallystick.records import AccessToken, Actor, Approval, SpaceMember, TokenClass
from tallystick_cli.actions import Action, action_command
from tallystick_cli.commands import Answer, Call, Command, command, operation_command
from tallystick_cli.output import print_view
from tallystick_cli.session import complete_id, confirm, require_person
from tallystick_cli.views import common
from tallystick_cli.views.common import actor_text, local_time, record, report, rows, table


def _asked(approval: records.Approval) -> Text:
    arguments = common.cut_text(_arguments(approval), 60)
    by = f"asked by {actor_text(approval.asked_by)} in {approval.scope}"
    action = f"{approval.action} {approval.subject} {arguments}\n"
    return Text.assemble(action, (f"{by}, by the rule {approval.rule_id}", "dim"))


approval_table = rows("id state when=created_at", what=_asked)
approval_view = record(
    "Approval {0.id}",
    "reason scope asked_at=created_at until=expires_at",
    action=lambda each: f"{each.action} {each.subject}",
    arguments=lambda each: _arguments(each, indent=2),
    rule=lambda each: each.rule_id,
    asked_by=lambda each: f"{actor_text(each.asked_by)} through {each.surface}",
    run=lambda each: each.run_id,
    step=lambda each: each.step_id,
    receipts=lambda each: list(each.receipts),
    decided=lambda each: (
        each.decided_by and f"{each.state} by {actor_text(each.decided_by)}: {each.decided_reason}"
    ),
)


def approval_line(approval: records.Approval) -> Text:
    """Return what was decided, in a line."""
    line = report(f"{approval.action} {approval.subject} is {approval.state}")
    if approval.state == "granted":
        line.append(f", once, until {local_time(approval.expires_at)}")
    return line


def _arguments(approval: records.Approval, *, indent: int | None = None) -> str:
    """Return the arguments, in which marks that a terminal does not show are escapes."""
    if approval.arguments_erased:
        return "(erased)"
    text = json.dumps(approval.arguments, ensure_ascii=False, indent=indent)
    return "".join(
        sign if sign.isprintable() or sign == "\n" else f"\\u{ord(sign):04x}" for sign in text
    )


def _member_text(member: records.SpaceMember) -> str:
    return f"{member.principal_type}:{member.principal_id} {member.role}"


def _members(space: records.MemorySpace) -> str:
    ends = (f" until {local_time(each.ends_at)}" if each.ends_at else "" for each in space.members)
    return "\n".join(map("".join, zip(map(_member_text, space.members), ends, strict=True)))


space_table = rows("scope name state", members=_members)


def preview_table(preview: records.AccessPreview) -> Table:
    """Return the memories that somebody could recall, scope by scope."""
    return table(
        preview.scopes,
        "scope may_recall why=decision.reason visible hidden",
        f"What {actor_text({'user': preview.user, 'agent': preview.agent})} could recall",
        may_recall=lambda each: common.state_text("yes" if each.decision.allowed else "no"),
        visible=lambda each: str(len(each.visible)),
        denied=lambda each: str(len(each.denied)),
    )


member_table = rows(
    "member could recalls_now would_recall hidden=after.hidden",
    member=lambda each: _member_text(each.member),
    could=lambda each: ", ".join(each.operations) or f"nothing ({each.after.decision.reason})",
    recalls_now=lambda each: str(len(each.before.visible)),
    would_recall=lambda each: str(len(each.after.visible)),
    denied=lambda each: str(len(each.after.denied)),
)


def token_table(tokens: Iterable[records.AccessToken], now: int) -> Table:
    """Return tokens, one in a row, as they stand at `now`, microseconds UTC."""

    def until(token: records.AccessToken) -> Text:
        end = local_time(token.revoked_at or token.expires_at)
        return Text(end) if token.is_good_at(now) else Text(f"ended {end}", style="dim")

    return table(
        tokens, "id name class=token_class", who=_holder_text, good_for=_bounds, until=until
    )


def token_view(token: records.AccessToken) -> list[Text]:
    """Return what became of one token, and its secret where it is shown."""
    if token.revoked_at is not None:
        return [report(f"{token.name} lets nobody in any more")]
    about = f"{token.token_class} token {common.short(token.id)} for {_holder_text(token)}"
    until = local_time(token.expires_at)
    line = report(f"{token.name}: {about}, good for {_bounds(token)} until {until}")
    if token.secret is None:
        return [line]
    return [line, Text("Its secret, which is shown this once:"), Text(token.secret)]


def _holder_text(token: records.AccessToken) -> str:
    return actor_text(token.actor.dump()) + (
        " (operator)" if token.actor.role == "operator" else ""
    )


def _bounds(token: records.AccessToken) -> str:
    operations = "all" if token.operations is None else ", ".join(token.operations)
    if token.scopes is not None:
        return f"{operations} in {common.join_ids(token.scopes)}"
    # An agent that comes in by itself was not given its user's private scope.
    return operations + (" but the private scope" if token.actor.agent is not None else "")


_PERSON = "Shows it first and needs a person at a terminal."
_FORM = "user:bob=writer, agent:coder=reader@2026-12-31 or everyone=reader"

Agent = Annotated[str | None, "The agent that acts for the user."]
Projects = Annotated[tuple[str, ...], "A project of theirs."]


@command("approvals", view=approval_table, scope="all")
def approvals(call: Call) -> Answer:
    owner, limit = call.owner, call.arguments.pop("limit", 50)
    scopes = owner.tally.scopes() if call.scope is None else [owner.actor.home(call.scope)]
    listed: list[Approval] = []
    for name in scopes:
        call.bound = owner.tally.bind(owner.actor, name).on("cli")
        listed += call.do(limit=limit)
    listed.sort(key=lambda each: (each.created_at, each.id), reverse=True)
    if listed:
        return Answer(listed[:limit])
    state = call.arguments.get("state", "pending")
    here = "" if call.scope is None else f" in {call.scope}"
    if state is None:
        return Answer([], f"Nothing was ever asked{here}.")
    nothing = "Nothing waits for a person" if state == "pending" else f"Nothing is {state}"
    others = "`tally approvals --state all` lists what was decided."
    return Answer([], f"{nothing}{here}. {others}")


def _decision(verb: Literal["approve", "deny", "revoke"]) -> Command:
    def decide(call: Call) -> Answer:
        require_person(f"tally {verb}")
        waiting = call.owner.approvals.get(call.arguments["approval_id"])
        if not call.as_json:
            print_view(approval_view(waiting))
        confirm(f"{verb} exactly this", verb)
        decided: Approval = call.do(approval_id=waiting.id)
        lines = [approval_line(decided)]
        if decided.token is None:
            return Answer(decided, lines)
        once = "The same action of the same actor runs once, with this token or without:"
        return Answer(decided, [*lines, once, decided.token])

    return command(verb, note=_PERSON)(decide)


approve, deny, revoke = _decision("approve"), _decision("deny"), _decision("revoke")


@command("spaces", view=space_table)
def spaces(call: Call) -> Answer:
    opens = "`tally space SCOPE --name … --member …` opens a scope to others."
    stored = call.do()
    return Answer(stored, None if stored else f"No space was created here yet. {opens}")


@command(
    *("create_space", "update_space", "preview_member"),
    positional=("scope",),
    without=("members", "changes"),
    tally="create",
)
def space(
    call: Call,
    reason: Annotated[str, "Why; it is kept in the history."],
    member: Annotated[tuple[str, ...], f"Who belongs to it, as what, until when: {_FORM}."] = (),
    without: Annotated[tuple[str, ...], "Who no longer does, such as user:bob."] = (),
    state: Annotated[
        bool | None, typer.Option("--open/--close", help="A closed space refuses its members.")
    ] = None,
    preview: Annotated[bool, "Only show what each --member could do and recall."] = False,
) -> Answer:
    """Create the space of a scope, or change it: members that are not named stay as they are."""
    arguments, owner = call.arguments, call.owner
    scope, added = arguments["scope"], [_member(text) for text in member]
    names = {"name", "description"} & set(arguments)
    changes: dict[str, Any] = {name: arguments.pop(name) for name in sorted(names)}
    if state is not None:
        changes["state"] = "open" if state else "closed"
    if preview:
        if not added or without or changes:
            raise InvalidInput("--preview shows what each --member could recall, and nothing else.")
        call.take("scope")
        previews = [owner.spaces.preview_member(scope, each) for each in added]
        value = [{**each.dump(), "gained": list(each.gained)} for each in previews]
        return Answer(value, member_table(previews))
    try:
        there = owner.spaces.get(scope).members
    except NotFound:
        if "name" not in changes or without or state is not None:
            raise
        result = call.do("create_space", reason=reason, members=tuple(added), **changes)
    else:
        if added or without:
            members = {f"{each.principal_type}:{each.principal_id}": each for each in there}
            if strangers := [name for name in without if members.pop(name, None) is None]:
                raise InvalidInput(f"{', '.join(strangers)} is no member of this space.")
            members |= {f"{each.principal_type}:{each.principal_id}": each for each in added}
            changes["members"] = [each.dump() for each in members.values()]
        result = call.do("update_space", reason=reason, changes=changes)
    return Answer(result, space_table([result]))


def _member(text: str) -> SpaceMember:
    """Return a member as it was typed. Raises InvalidInput, InvalidRecord."""
    principal_text, separator, role = text.rpartition("=")
    role, _, day = role.partition("@")
    kind, _, principal = principal_text.partition(":")
    if not separator:
        raise InvalidInput(f"{text!r} names no member. Write it like {_FORM}.")
    fields = {"principal_type": kind, "principal_id": principal, "role": role}
    return SpaceMember.load(fields | ({"expires_at": day} if day else {}))


@command(
    "preview_access",
    view=preview_table,
    without=("actor",),
    helps={"scopes": "Such as project:apollo; by default all there are."},
)
def preview_agent(
    call: Call,
    user: Annotated[str, "The person it acts for."],
    /,
    agent: Agent = None,
    project: Projects = (),
    delegation: Annotated[tuple[str, ...], "A delegation that it holds."] = (),
) -> Any:
    fields = {"user": user, "agent": agent}
    actor = Actor.load(fields | {"projects": set(project), "delegations": set(delegation)})
    scopes = call.arguments.get("scopes") or tuple(map(str, call.owner.tally.scopes()))
    return call.do(actor=actor, scopes=scopes)


def _make_token(
    call: Call,
    name: str,
    /,
    *,
    user: Annotated[str | None, "Who comes in with it; by default whoever makes it."] = None,
    agent: Agent = None,
    project: Projects = (),
    operator: Annotated[bool, "With the rights of an operator."] = False,
    session: Annotated[
        bool, "For a person's sitting: grants, forces and erases. At a terminal."
    ] = False,
) -> AccessToken:
    if session:
        require_person("tally token make --session")
    bounded = {"scopes", "operations"} & set(call.arguments)
    kind: TokenClass = "session" if session else "scoped" if bounded else "personal"
    holder = _holder(call.owner.actor, user, agent, project, operator)
    made: AccessToken = call.do(name=name, actor=holder, token_class=kind)
    return made


def _list_tokens(call: Call, /) -> Answer:
    listed, now = call.do(), call.owner.tally.now()
    return Answer(listed, token_table(listed, now) if listed else None)


def _of_token(call: Call, token_id: str, /) -> AccessToken:
    ids = (each.id for each in call.owner.tokens.list())
    changed: AccessToken = call.do(token_id=complete_id(token_id, ids, "token"))
    return changed


token = action_command(
    "List access tokens; make one, whose secret is shown once; replace or revoke one: the next "
    "request with it is refused.",
    {
        "list": Action(
            "tokens",
            run=_list_tokens,
            empty="There are no access tokens. `tally token make NAME` makes one.",
        ),
        "make": Action("make_token", view=token_view, run=_make_token),
        "rotate": Action("rotate_token", view=token_view, run=_of_token),
        "revoke": Action("revoke_token", view=token_view, run=_of_token),
    },
    without=("actor", "token_class"),
)


def _holder(
    maker: Actor, user: str | None, agent: str | None, projects: Sequence[str], operator: bool
) -> Actor:
    """Return who comes in: the maker or another user, as a member unless said otherwise."""
    own = user is None or user == maker.user
    return Actor.load(
        {
            "user": user or maker.user,
            "agent": agent,
            "organization": maker.organization,
            "projects": set(projects) or (maker.projects if own else set()),
            "delegations": maker.delegations if own else set(),
            "role": "operator" if operator else "member",
        }
    )


freeze = operation_command(
    "freeze", "✓ suspended. What takes it back: tally thaw --reason …, with the same --what"
)
thaw = operation_command("thaw", "✓ taken back: what was suspended goes on")
