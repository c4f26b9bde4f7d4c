"""Views of access: approvals with exactly their arguments, spaces with their members, previews of
access, and tokens.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from tallystick.records import AccessPreview, AccessToken, Approval, MemberPreview, MemorySpace
from tallystick_cli.views.common import (
    counts,
    cut_text,
    done,
    facts,
    id_text,
    local_time,
    panel,
    plain_table,
    short,
)


def approval_table(approvals: Iterable[Approval]) -> Table:
    """Return approvals, one in a row."""
    rows = []
    for approval in approvals:
        action = f"{approval.action} {approval.subject} {cut_text(_arguments(approval), 60)}\n"
        by = f"asked by {_identity(approval.asked_by)} in {approval.scope}"
        what = Text.assemble(action, (f"{by}, by the rule {approval.rule_id}", "dim"))
        when = local_time(approval.created_at)
        rows.append((id_text(approval.id), approval.state, when, what))
    return plain_table(("id", "state", "when", "what"), rows)


def approval_view(approval: Approval) -> RenderableType:
    """Return everything that a person needs to decide, the arguments in full."""
    is_decided = approval.decided_by is not None
    by = f"{_identity(approval.decided_by or {})}: {approval.decided_reason}"
    rows = facts(
        ("action", Text(f"{approval.action} {approval.subject}")),
        ("arguments", Text(_arguments(approval, indent=2))),
        ("reason", Text(approval.reason)),
        ("rule", Text(approval.rule_id)),
        ("asked by", Text(f"{_identity(approval.asked_by)} through {approval.surface}")),
        ("scope", Text(str(approval.scope))),
        ("run", approval.run_id),
        ("step", approval.step_id),
        ("receipts", "\n".join(approval.receipts)),
        ("asked at", local_time(approval.created_at)),
        ("until", local_time(approval.expires_at)),
        (approval.state, Text(by) if is_decided else None),
    )
    return panel(f"Approval {approval.id}", rows)


def approval_line(approval: Approval) -> Text:
    """Return what was decided, in a line."""
    line = done(f"{approval.action} {approval.subject} is {approval.state}")
    if approval.state == "granted":
        line.append(f", once, until {local_time(approval.expires_at)}")
    return line


def space_table(spaces: Iterable[MemorySpace]) -> Table:
    """Return spaces with their members."""
    rows = []
    for space in spaces:
        members = "\n".join(
            f"{member.principal_type}:{member.principal_id} {member.role}"
            + (f" until {local_time(member.ends_at)}" if member.ends_at else "")
            for member in space.members
        )
        rows.append((str(space.scope), space.name, space.state, members))
    return plain_table(("scope", "name", "state", "members"), rows)


def preview_table(preview: AccessPreview) -> Table:
    """Return the memories that somebody could recall, scope by scope."""
    rows = [
        (
            str(scope.scope),
            Text("yes", style="green") if scope.decision.allowed else Text("no", style="red"),
            scope.decision.reason,
            str(len(scope.visible)),
            counts(scope.hidden) or "0",
            str(len(scope.denied)),
        )
        for scope in preview.scopes
    ]
    table = plain_table(("scope", "may recall", "why", "visible", "hidden", "denied"), rows)
    table.title = f"What {_identity({'user': preview.user, 'agent': preview.agent})} could recall"
    table.title_justify = "left"
    return table


def member_table(previews: Iterable[MemberPreview]) -> Table:
    """Return what each principal could do and recall as a member."""
    rows = []
    for preview in previews:
        member, after = preview.member, preview.after
        could = ", ".join(preview.operations) or f"nothing ({after.decision.reason})"
        rows.append(
            (
                f"{member.principal_type}:{member.principal_id} {member.role}",
                could,
                str(len(preview.before.visible)),
                str(len(after.visible)),
                counts(after.hidden) or "0",
                str(len(after.denied)),
            )
        )
    columns = ("member", "could", "recalls now", "would recall", "hidden", "denied")
    return plain_table(columns, rows)


def token_table(tokens: Iterable[AccessToken], now: int) -> Table:
    """Return tokens, one in a row, as they stand at `now`, microseconds UTC."""
    rows = []
    for token in tokens:
        is_good = token.is_good_at(now)
        end = local_time(token.revoked_at or token.expires_at)
        until = Text(end) if is_good else Text(f"ended {end}", style="dim")
        identity = id_text(token.id)
        rows.append((identity, token.name, token.token_class, _who(token), _bounds(token), until))
    return plain_table(("id", "name", "class", "who", "good for", "until"), rows)


def token_line(token: AccessToken) -> Text:
    """Return what became of one token."""
    if token.revoked_at is not None:
        return done(f"{token.name} lets nobody in any more")
    about = f"{token.token_class} token {short(token.id)} for {_who(token)}"
    until = local_time(token.expires_at)
    return done(f"{token.name}: {about}, good for {_bounds(token)} until {until}")


def _identity(actor: Mapping[str, Any]) -> str:
    agent = actor.get("agent")
    return str(actor.get("user")) + (f" with agent {agent}" if agent else "")


def _arguments(approval: Approval, *, indent: int | None = None) -> str:
    """Return the arguments, in which marks that a terminal does not show are escapes."""
    if approval.arguments_erased:
        return "(erased)"
    text = json.dumps(approval.arguments, ensure_ascii=False, indent=indent)
    return "".join(
        sign if sign.isprintable() or sign == "\n" else f"\\u{ord(sign):04x}" for sign in text
    )


def _who(token: AccessToken) -> str:
    actor = token.actor
    role = " (operator)" if actor.role == "operator" else ""
    return f"{actor.user}{f' with {actor.agent}' if actor.agent else ''}{role}"


def _bounds(token: AccessToken) -> str:
    operations = "all" if token.operations is None else ", ".join(token.operations)
    scopes = "" if token.scopes is None else f" in {', '.join(map(str, token.scopes))}"
    return f"{operations}{scopes}"
