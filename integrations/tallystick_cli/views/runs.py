"""Views of recorded runs: their steps, one step in full, and checkpoints with their writers."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from tallystick.records import (
    CompilationRequest,
    CompiledContext,
    Json,
    PrefixReuse,
    Receipt,
    RunRecord,
    StepEntry,
    StepRecord,
)
from tallystick_cli.views.common import (
    cut_text,
    local_time,
    plain_table,
    short,
    titled_table,
)
from tallystick_cli.views.contexts import decision_table

_STATUS = {
    "completed": "green",
    "running": "cyan",
    "failed": "red",
    "cancelled": "yellow",
    "blocked": "magenta",
    "interrupted": "yellow",
}


_GOAL = 120
"""Characters of a goal in a list of runs."""


def run_table(runs: Iterable[tuple[RunRecord, int]]) -> Table:
    """Return runs with their number of steps: the agent, and below it what it was asked."""
    table = titled_table("Runs", "id", "status", "started", "steps", "agent and goal")
    for run, steps in runs:
        goal = cut_text(" ".join((run.user_goal or "").split()), _GOAL)
        table.add_row(
            Text(short(run.run_id), style="cyan"),
            _status(run.status) + Text(f" {run.gaps} missed" if run.gaps else "", style="yellow"),
            local_time(run.started_at),
            str(steps),
            Text.assemble((run.agent_name, "bold"), f"\n{goal}" if goal else ""),
        )
    return table


def step_table(steps: Iterable[StepRecord]) -> Table:
    """Return the steps of a run, as a table."""
    table = titled_table("Steps", "#", "id", "status", "took", "kind", "name")
    table.columns[3].justify = "right"
    for step in steps:
        took = "" if step.ended_at is None else f"{(step.ended_at - step.started_at) / 1000:.0f} ms"
        table.add_row(
            str(step.step_index),
            Text(short(step.step_id), style="cyan"),
            _status(step.status),
            took,
            step.step_kind,
            Text(step.name or "", style="bold"),
        )
    return table


def receipt_table(receipts: Iterable[Receipt]) -> Table:
    """Return the receipts of a run in the order of its chain."""
    table = titled_table("Receipts", "#", "step", "status", "entries", "redacted", "digest")
    for receipt in receipts:
        redacted = sum(sum(entry.redactions.values()) for entry in receipt.entries)
        table.add_row(
            str(receipt.position),
            Text(f"{receipt.step_index} {receipt.name or receipt.step_kind}", style="bold"),
            _status(receipt.status),
            str(len(receipt.entries)),
            str(redacted or ""),
            Text(receipt.digest.removeprefix("sha256:")[:16], style="cyan"),
        )
    return table


def step_view(
    run: RunRecord,
    step: StepRecord,
    receipt: Receipt | None,
    entries: Sequence[StepEntry],
    compiled: tuple[CompilationRequest, CompiledContext] | None,
    places: Sequence[str] = (),
    *,
    width: int = 80,
) -> RenderableType:
    """Return one step: its context with the reasons, its entries, and its receipt."""
    head = Table.grid(padding=(0, 2))
    head.add_column(style="dim")
    head.add_column()
    goal, name = (
        f" · {run.user_goal}" if run.user_goal else "",
        f" {step.name}" if step.name else "",
    )
    head.add_row("run", f"{run.agent_name}{goal} ({short(run.run_id)}) in {run.scope}")
    head.add_row("step", f"#{step.step_index} {step.step_kind}{name} ({step.step_id})")
    head.add_row("when", f"{local_time(step.started_at)}  ")
    head.add_row("status", _status(step.status))
    if receipt is not None:
        head.add_row("receipt", Text(receipt.digest, style="cyan"))
        head.add_row("after", Text(receipt.previous, style="dim"))
        head.add_row("tokens by", receipt.token_method)
    for prefix in (
        entry.summary.get("prefix") for entry in (receipt.entries if receipt is not None else ())
    ):
        if isinstance(prefix, dict):
            head.add_row("prefix", _prefix(PrefixReuse.load(prefix)))
    for place in places:
        head.add_row("state", f"tally state {place}")
    parts: list[RenderableType] = [
        Panel(head, title="Step", title_align="left", border_style="blue")
    ]
    if compiled is not None:
        parts.append(decision_table(*compiled, width=width))
    for entry in entries:
        if entry.kind not in {"compile_request", "compiled"}:
            parts.append(_entry_panel(entry))
    return Group(*parts)


def state_table(states: Sequence[Mapping[str, Any]]) -> RenderableType:
    """Return checkpoints, each with its writes and the steps that wrote them."""
    table = plain_table("id", "#", "source", "channels", "written by")
    for checkpoint in states:
        writers = "\n".join(
            f"{', '.join(write['channels'])} ← "
            f"{' '.join(short(step) for step in write['steps']) or short(write['task'])}"
            for write in checkpoint["writes"]
        )
        metadata = checkpoint["metadata"]
        table.add_row(
            Text(short(checkpoint["checkpoint"]), style="cyan"),
            str(metadata.get("step", "")),
            str(metadata.get("source", "")),
            ", ".join(checkpoint["channels"]),
            writers,
        )
    return table


def _entry_panel(entry: StepEntry) -> Panel:
    if entry.payload_state in {"not_kept", "erased"}:
        summary = f"\n{_readable(entry.summary)}" if entry.summary else ""
        stands = "; its commitment stands" if entry.commitment else ""
        body: RenderableType = Text(
            f"payload {entry.payload_state.replace('_', ' ')}{stands}{summary}", style="dim"
        )
    else:
        body = Text(_readable(entry.payload), overflow="fold")
    redacted = ", ".join(f"{count} {kind}" for kind, count in entry.redactions.items())
    title = f"{entry.kind.replace('_', ' ')}" + (f" · redacted: {redacted}" if redacted else "")
    return Panel(body, title=title, title_align="left", border_style="dim")


def _readable(payload: Json) -> str:
    text = json.dumps(payload, ensure_ascii=False, indent=2, sort_keys=True)
    lines = text.splitlines()
    if len(lines) > 40:
        lines = [*lines[:38], f"… {len(lines) - 38} more lines (--json shows all)"]
    return "\n".join(cut_text(line, 200) for line in lines)


def _prefix(reuse: PrefixReuse) -> str:
    if reuse.cause == "first":
        return "first prompt of the run"
    share = f"{reuse.reused} of {reuse.before} tokens begin as before"
    return (
        share
        if reuse.cause == "appended"
        else f"{share}; {reuse.cause.replace('_', ' ')} at {reuse.item_id}"
    )


def _status(status: str) -> Text:
    return Text(status, style=_STATUS.get(status, ""))
