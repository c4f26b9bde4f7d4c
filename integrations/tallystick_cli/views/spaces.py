"""Views of access: spaces with their members, and previews of access."""

from __future__ import annotations

from collections.abc import Iterable

from rich.table import Table
from rich.text import Text

from tallystick.records import (
    AccessPreview,
    MemberPreview,
    MemorySpace,
)
from tallystick_cli.views.common import (
    local_time,
    plain_table,
)


def space_table(spaces: Iterable[MemorySpace]) -> Table:
    """Return spaces with their members."""
    table = plain_table("scope", "name", "state", "members")
    for space in spaces:
        members = "\n".join(
            f"{member.principal_type}:{member.principal_id} {member.role}"
            + (f" until {local_time(member.ends_at)}" if member.ends_at else "")
            for member in space.members
        )
        table.add_row(str(space.scope), space.name, space.state, members)
    return table


def preview_table(preview: AccessPreview) -> Table:
    """Return the memories that somebody could recall, scope by scope."""
    table = plain_table("scope", "may recall", "why", "visible", "hidden", "denied")
    for scope in preview.scopes:
        allowed = scope.decision.allowed
        table.add_row(
            str(scope.scope),
            Text("yes" if allowed else "no", style="green" if allowed else "red"),
            scope.decision.reason,
            str(len(scope.visible)),
            ", ".join(f"{count} {state}" for state, count in scope.hidden.items()) or "0",
            str(len(scope.denied)),
        )
    table.title = (
        f"What {preview.user}{f' with {preview.agent}' if preview.agent else ''} could recall"
    )
    table.title_justify = "left"
    return table


def member_table(previews: Iterable[MemberPreview]) -> Table:
    """Return what each principal could do and recall as a member."""
    table = plain_table("member", "could", "recalls now", "would recall", "hidden", "denied")
    for preview in previews:
        member, after = preview.member, preview.after
        table.add_row(
            f"{member.principal_type}:{member.principal_id} {member.role}",
            ", ".join(preview.operations) or f"nothing ({after.decision.reason})",
            str(len(preview.before.visible)),
            str(len(after.visible)),
            ", ".join(f"{count} {state}" for state, count in after.hidden.items()) or "0",
            str(len(after.denied)),
        )
    return table
