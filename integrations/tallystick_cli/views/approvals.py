"""Views of approvals: what waits for a person, with exactly its arguments."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from rich.console import RenderableType
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from tallystick.records import Approval
from tallystick_cli.views.common import fact_table, local_time, plain_table, short


def approval_table(approvals: Iterable[Approval]) -> Table:
    """Return approvals, one in a row."""
    table = plain_table("id", "state", "when", "what")
    for approval in approvals:
        table.add_row(
            Text(short(approval.id), style="cyan"),
            approval.state,
            local_time(approval.created_at),
            Text.assemble(
                f"{approval.action} {approval.subject} {_compact(approval)}\n",
                (
                    f"asked by {_identity(approval.asked_by)} in {approval.scope}, "
                    f"by the rule {approval.rule_id}",
                    "dim",
                ),
            ),
        )
    return table


def approval_view(approval: Approval) -> RenderableType:
    """Return everything that a person needs to decide, the arguments in full."""
    facts = fact_table()
    facts.add_row("action", Text(f"{approval.action} {approval.subject}"))
    facts.add_row("arguments", Text(_visible(_json(approval, indent=2))))
    facts.add_row("reason", Text(approval.reason))
    facts.add_row("rule", Text(approval.rule_id))
    facts.add_row("asked by", Text(f"{_identity(approval.asked_by)} through {approval.surface}"))
    facts.add_row("scope", Text(str(approval.scope)))
    if approval.run_id is not None:
        facts.add_row("run", approval.run_id)
        facts.add_row("step", approval.step_id or "")
    if approval.receipts:
        facts.add_row("receipts", "\n".join(approval.receipts))
    facts.add_row("asked at", local_time(approval.created_at))
    facts.add_row("until", local_time(approval.expires_at))
    if approval.decided_by is not None:
        facts.add_row(
            approval.state, Text(f"{_identity(approval.decided_by)}: {approval.decided_reason}")
        )
    return Panel(facts, title=f"Approval {approval.id}", title_align="left")


def approval_line(approval: Approval) -> Text:
    """Return what was decided, in a line."""
    line = Text(f"✓ {approval.action} {approval.subject} is {approval.state}", style="green")
    if approval.state == "granted":
        line.append(f", once, until {local_time(approval.expires_at)}")
    return line


def _identity(actor: Mapping[str, Any]) -> str:
    agent = actor.get("agent")
    return str(actor.get("user")) + (f" with agent {agent}" if agent else "")


def _compact(approval: Approval) -> str:
    text = _visible(_json(approval, indent=None))
    return text if len(text) <= 60 else text[:59] + "…"


def _json(approval: Approval, *, indent: int | None) -> str:
    if approval.arguments_erased:
        return "(erased)"
    return json.dumps(approval.arguments, ensure_ascii=False, indent=indent)


def _visible(text: str) -> str:
    """Return a text in which marks that a terminal does not show are written as escapes."""
    return "".join(
        sign if sign.isprintable() or sign == "\n" else f"\\u{ord(sign):04x}" for sign in text
    )
