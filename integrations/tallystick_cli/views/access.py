"""Views of access: approvals, spaces, previews of access, and tokens."""

from __future__ import annotations

import json
from collections.abc import Iterable

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from tallystick import records
from tallystick_cli.views import common
from tallystick_cli.views.common import actor_text, local_time, report, table


def approval_table(approvals: Iterable[records.Approval]) -> Table:
    """Return approvals, one in a row."""

    def what(each: records.Approval) -> Text:
        action = f"{each.action} {each.subject} {common.cut_text(_arguments(each), 60)}\n"
        by = f"asked by {actor_text(each.asked_by)} in {each.scope}, by the rule {each.rule_id}"
        return Text.assemble(action, (by, "dim"))

    return table(approvals, "id state when=created_at", what=what)


def approval_view(approval: records.Approval) -> RenderableType:
    """Return everything that a person needs to decide, the arguments in full."""
    by = approval.decided_by
    shown = common.facts(
        approval,
        "reason scope asked_at=created_at until=expires_at",
        action=lambda each: f"{each.action} {each.subject}",
        arguments=lambda each: _arguments(each, indent=2),
        rule=lambda each: each.rule_id,
        asked_by=lambda each: f"{actor_text(each.asked_by)} through {each.surface}",
        run=lambda each: each.run_id,
        step=lambda each: each.step_id,
        receipts=lambda each: list(each.receipts),
        decided=lambda each: by and f"{each.state} by {actor_text(by)}: {each.decided_reason}",
    )
    return common.panel(f"Approval {approval.id}", shown)


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


def space_table(spaces: Iterable[records.MemorySpace]) -> Table:
    """Return spaces with their members."""

    def members(space: records.MemorySpace) -> str:
        ends = (
            f" until {local_time(each.ends_at)}" if each.ends_at else "" for each in space.members
        )
        return "\n".join(map("".join, zip(map(_member, space.members), ends, strict=True)))

    return table(spaces, "scope name state", members=members)


def _member(member: records.SpaceMember) -> str:
    return f"{member.principal_type}:{member.principal_id} {member.role}"


def preview_table(preview: records.AccessPreview) -> Table:
    """Return the memories that somebody could recall, scope by scope."""
    return table(
        preview.scopes,
        "scope",
        f"What {actor_text({'user': preview.user, 'agent': preview.agent})} could recall",
        may_recall=lambda each: common.state_text("yes" if each.decision.allowed else "no"),
        why=lambda each: each.decision.reason,
        visible=lambda each: str(len(each.visible)),
        hidden=lambda each: common.counts(each.hidden) or "0",
        denied=lambda each: str(len(each.denied)),
    )


def member_table(previews: Iterable[records.MemberPreview]) -> Table:
    """Return what each principal could do and recall as a member."""

    def could(each: records.MemberPreview) -> str:
        return ", ".join(each.operations) or f"nothing ({each.after.decision.reason})"

    return table(
        previews,
        "",
        member=lambda each: _member(each.member),
        could=could,
        recalls_now=lambda each: str(len(each.before.visible)),
        would_recall=lambda each: str(len(each.after.visible)),
        hidden=lambda each: common.counts(each.after.hidden) or "0",
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
