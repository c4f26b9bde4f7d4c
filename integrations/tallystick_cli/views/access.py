"""Views of access: approvals, spaces, previews of access, and tokens."""

from __future__ import annotations

import json
from collections.abc import Iterable

from rich.table import Table
from rich.text import Text

from tallystick import records
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


def _member(member: records.SpaceMember) -> str:
    return f"{member.principal_type}:{member.principal_id} {member.role}"


def _members(space: records.MemorySpace) -> str:
    ends = (f" until {local_time(each.ends_at)}" if each.ends_at else "" for each in space.members)
    return "\n".join(map("".join, zip(map(_member, space.members), ends, strict=True)))


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
    member=lambda each: _member(each.member),
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

    return table(tokens, "id name class=token_class", who=_holder, good_for=_bounds, until=until)


def token_view(token: records.AccessToken) -> list[Text]:
    """Return what became of one token, and its secret where it is shown."""
    if token.revoked_at is not None:
        return [report(f"{token.name} lets nobody in any more")]
    about = f"{token.token_class} token {common.short(token.id)} for {_holder(token)}"
    until = local_time(token.expires_at)
    line = report(f"{token.name}: {about}, good for {_bounds(token)} until {until}")
    if token.secret is None:
        return [line]
    return [line, Text("Its secret, which is shown this once:"), Text(token.secret)]


def _holder(token: records.AccessToken) -> str:
    return actor_text(token.actor.dump()) + (
        " (operator)" if token.actor.role == "operator" else ""
    )


def _bounds(token: records.AccessToken) -> str:
    operations = "all" if token.operations is None else ", ".join(token.operations)
    if token.scopes is not None:
        return f"{operations} in {common.join_ids(token.scopes)}"
    # An agent that comes in by itself was not given its user's private scope.
    return operations + (" but the private scope" if token.actor.agent is not None else "")
