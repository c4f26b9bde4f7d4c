"""What a person sees: runs, steps, decisions, hits and verifications as rich renderables."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from rich import box
from rich.console import Group, RenderableType
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from tallystick.pipeline import Reconciled
from tallystick.records import (
    CompilationDecision,
    CompilationRequest,
    CompiledContext,
    CompileDiff,
    Hit,
    Json,
    PrefixReuse,
    Receipt,
    ReplayResult,
    RunRecord,
    StepDiff,
    StepEntry,
    StepRecord,
    Verification,
)

__all__ = [
    "decision_table",
    "diff_table",
    "reconciled_view",
    "hit_table",
    "replay_view",
    "run_table",
    "short",
    "step_diff_view",
    "step_table",
    "state_table",
    "step_view",
    "verification_view",
]

_PHRASES = {
    "tool_pair_of_included": "goes with",
    "tool_pair_excluded": "left with",
    "dependency_of_included": "needed by",
    "dependency_missing": "needs the absent",
    "dependency_excluded": "needs the excluded",
    "duplicate": "same as",
    "conflict_loser": "contradicted by",
    "superseded": "replaced by",
    "selected_by_score": "score",
    "required_latest_request": "latest request",
}
"""Reasons as a person reads them, before the item that they point to; others read as their code."""

_WIDE = 110
"""Columns of a terminal from which tables show what items say."""

_DECISION = {"include": "green", "compress": "yellow", "redact": "magenta", "exclude": "dim"}
_STATUS = {
    "completed": "green",
    "running": "cyan",
    "failed": "red",
    "cancelled": "yellow",
    "blocked": "magenta",
    "interrupted": "yellow",
}
_SIGN = {"include": "✓ in", "compress": "~ short", "redact": "█ redact", "exclude": "✗ out"}


def short(identity: str) -> str:
    """The end of an id: enough to name it, and accepted wherever an id is asked for."""
    return identity[-8:]


def run_table(runs: Iterable[tuple[RunRecord, int]]) -> Table:
    """Runs with their number of steps, as a table."""
    table = _table(
        "Runs",
        ("id", 8),
        ("started", 16),
        ("agent", 12),
        ("status", 11),
        ("steps", 5),
        ("goal", None),
    )
    for run, steps in runs:
        table.add_row(
            Text(short(run.run_id), style="cyan"),
            _when(run.started_at),
            Text(run.agent_name, style="bold"),
            _status(run.status) + Text(f" {run.gaps} missed" if run.gaps else "", style="yellow"),
            str(steps),
            " ".join((run.user_goal or "").split()),
        )
    return table


def step_table(steps: Iterable[StepRecord]) -> Table:
    """The steps of a run, as a table."""
    table = _table(
        "Steps", ("#", 3), ("id", 8), ("kind", 14), ("name", 24), ("took", 9), ("status", 11)
    )
    table.columns[4].justify = "right"
    for step in steps:
        took = "" if step.ended_at is None else f"{(step.ended_at - step.started_at) / 1000:.0f} ms"
        table.add_row(
            str(step.step_index),
            Text(short(step.step_id), style="cyan"),
            step.step_kind,
            Text(step.name or "", style="bold"),
            took,
            _status(step.status),
        )
    return table


def decision_table(
    request: CompilationRequest,
    compiled: CompiledContext,
    *,
    title: str | None = None,
    width: int = 80,
) -> Table:
    """Every candidate of a compile: in or out, why, and what it costs; from a width of 110 also
    what it says.
    """
    allocation = compiled.token_allocation
    used, budget = allocation.get("used", 0), allocation.get("budget", request.token_budget)
    table = _table(
        title or "What the model saw, and why",
        *(("", 8), ("item", 23), ("why", 22), ("tokens", 10), ("score", 5)),
    )
    if width >= _WIDE:
        table.add_column("says", ratio=1, no_wrap=True, overflow="ellipsis")
    table.caption = f"{used} of {budget} tokens{'' if compiled.token_exact else ' (estimated)'}"
    table.caption_justify = "left"
    for column in table.columns[3:5]:
        column.justify = "right"
    says = _contents(request, compiled)
    order = {"include": 0, "compress": 1, "redact": 2, "exclude": 3}
    for decision in sorted(compiled.decisions, key=lambda decision: order[decision.decision]):
        style = _DECISION[decision.decision]
        cells = [
            Text(_SIGN[decision.decision], style=style),
            Text(_item(decision.item_id), style=style),
            Text(_reason(decision), style=style),
            Text(_tokens(decision)),
            Text(
                f"{decision.score_breakdown['total'] / 1_000_000:.2f}"
                if decision.score_breakdown
                else ""
            ),
            Text(" ".join(says.get(decision.item_id, "").split())[:80], style="dim"),
        ]
        table.add_row(*cells[: len(table.columns)])
    return table


def hit_table(hits: Sequence[Hit], *, query: str) -> Table:
    """Recalled memories with their scores, sources and reasons."""
    table = _table(f"Recall: {query}", ("score", 5), ("memory", None), ("id", 8))
    table.columns[1].no_wrap = False
    for hit in hits:
        memory = hit.memory
        signals = ", ".join(f"{name} {value:.2f}" for name, value in hit.signals.items() if value)
        sources = ", ".join(
            dict.fromkeys(
                source.uri or source.title or source.source_type for source in hit.sources
            )
        )
        standing = ""
        if hit.history:
            standing = "holds no longer" + (
                f", replaced by {short(hit.replaced_by)}" if hit.replaced_by else ""
            )
        facts = [
            standing,
            memory.kind,
            memory.who,
            f"from {sources}",
            f"visible to {hit.visible_to}",
            f"{signals} ({hit.path})",
        ]
        table.add_row(
            Text(f"{hit.score:.2f}", style="green"),
            Text.assemble(
                _cut(memory.content, 300), "\n", (" · ".join(filter(None, facts)), "dim")
            ),
            Text(short(memory.id), style="cyan"),
        )
    return table


def diff_table(diff: CompileDiff) -> Table:
    """How two compiles differ, candidate by candidate."""
    table = _table(
        f"{diff.tokens_before} → {diff.tokens_after} tokens, {diff.unchanged} items as before",
        *(("", 9), ("item", 22), ("before", 22), ("after", 22)),
    )
    if diff.budget_before != diff.budget_after:
        table.caption, table.caption_justify = (
            f"budget {diff.budget_before} → {diff.budget_after} tokens",
            "left",
        )
    listed = {change.item_id for change in (*diff.removed, *diff.added, *diff.changed)}
    policy = tuple(change for change in diff.policy if change.item_id not in listed)
    rows = [
        ("- left", "red", diff.removed),
        ("+ came", "green", diff.added),
        ("~ changed", "yellow", diff.changed),
        ("~ policy", "magenta", policy),
    ]
    for sign, style, changes in rows:
        for change in changes:
            name = Text(_item(change.item_id), style=style)
            table.add_row(Text(sign, style=style), name, _fate(change.before), _fate(change.after))
    for change in diff.rescored:
        table.add_row(
            Text("~ score", style="dim"),
            Text(_item(change.item_id), style="dim"),
            _scored(change.before),
            _scored(change.after),
        )
    if diff.is_empty and not diff.rescored:
        table.add_row("=", "nothing", "", "")
    return table


def step_diff_view(diff: StepDiff) -> RenderableType:
    """How two steps differ: the context, the request, the answer."""
    parts: list[RenderableType] = []
    if diff.compile is not None:
        parts.append(diff_table(diff.compile))
    if diff.compaction:
        parts.append(
            Text(f"left the history: {', '.join(map(_item, diff.compaction))}", style="yellow")
        )
    for title, lines in (("request", diff.request), ("response", diff.response)):
        if lines:
            parts.append(
                Panel(
                    Group(*map(_diff_line, lines)),
                    title=title,
                    title_align="left",
                    border_style="dim",
                )
            )
    parts += [Text(f"! {note}", style="yellow") for note in diff.notes]
    if diff.is_empty:
        parts.append(
            Text(
                "= nothing differs" if not diff.notes else "= nothing else could be compared",
                style="green",
            )
        )
    title = f"{short(diff.before)} → {short(diff.after)}"
    return Panel(Group(*parts), title=title, title_align="left", border_style="blue")


def _scored(decision: CompilationDecision | None) -> Text:
    total = 0 if decision is None else decision.score_breakdown.get("total", 0)
    return Text(f"{total / 1_000_000:.2f}", style="dim")


def replay_view(result: ReplayResult) -> RenderableType:
    """What a replay did and how it compares with the receipt."""
    exact = result.recipe.is_exact
    lines = [
        _answer("request is the one in the receipt", result.request_matches),
        _answer("the model answered the same", result.response_matches),
    ]
    shown = [line for line in lines if line is not None]
    shown += [Text(f"! {warning}", style="yellow") for warning in result.warnings]
    parts: list[RenderableType] = [*shown]
    if result.diff is not None:
        parts.append(diff_table(result.diff))
    parts += [_diff_line(line) for line in result.prompt_diff]
    name = "Exact replay" if exact else "Mutated replay"
    return Panel(
        Group(*parts), title=f"{name} ({result.fidelity})", title_align="left", border_style="blue"
    )


def _diff_line(line: str) -> Text:
    style = {"+": "green", "-": "red", "@": "cyan"}.get(line[:1], "dim")
    return Text(line, style=style, no_wrap=True, overflow="ellipsis")


def _prefix(reuse: PrefixReuse) -> str:
    if reuse.cause == "first":
        return "first prompt of the run"
    share = f"{reuse.reused} of {reuse.before} tokens begin as before"
    return (
        share
        if reuse.cause == "appended"
        else f"{share}; {reuse.cause.replace('_', ' ')} at {reuse.item_id}"
    )


def verification_view(verification: Verification) -> RenderableType:
    """Whether stock and foil match, what was checked, and what that cannot prove."""
    ok = verification.ok
    lines: list[RenderableType] = [
        Text(_verdict(verification), style="bold green" if ok else "bold red"),
        Text(
            f"{verification.receipts} receipts, {verification.payloads_checked} payloads checked, "
            f"{verification.payloads_absent} not kept or erased"
            + _threads(verification.threads_checked)
        ),
        Text(f"foil: {verification.foil.count}:{verification.foil.head}", style="cyan"),
    ]
    lines += [
        Text(f"✗ {problem.where}: {problem.problem}", style="red")
        for problem in verification.problems
    ]
    if verification.purged is not None:
        gone = verification.purged
        went = (
            f"{gone.steps} steps, {gone.payloads} payloads and {gone.entries} entries of the chain"
        )
        lines.append(
            Text(f"! past its window: {went} went; their count and head stand", style="yellow")
        )
    for where, missed in verification.gaps.items():
        reasons = ", ".join(f"{count} {reason}" for reason, count in missed.items())
        lines.append(
            Text(f"! {where}: not everything could be recorded ({reasons})", style="yellow")
        )
    if verification.signature_ok:
        lines.append(Text(f"✓ signed by {verification.foil.signed_by}", style="green"))
    lines.append(Text("Cannot prove " + "; ".join(verification.cannot_prove) + ".", style="dim"))
    lines.append(
        Text("Not covered by the chain: " + ", ".join(verification.not_covered) + ".", style="dim")
    )
    return Panel(
        Group(*lines),
        title=f"Verify run {short(verification.run_id)}",
        title_align="left",
        border_style="green" if ok else "red",
    )


def _threads(count: int) -> str:
    return f", {count} checkpoint thread{'' if count == 1 else 's'}" if count else ""


def _verdict(verification: Verification) -> str:
    if not verification.ok:
        return "✗ does not match"
    return (
        "✓ stock and foil match"
        if verification.foil_matches
        else "✓ the chain holds (no foil was given)"
    )


def reconciled_view(reconciled: Reconciled) -> Text:
    """Whether Chroma holds what the database holds."""
    if reconciled.whole:
        return Text(
            f"✓ the index matches the database ({reconciled.checked} vectors)", style="green"
        )
    if reconciled.problem is not None:
        return Text(f"✗ {reconciled.problem}", style="red")
    counts = (
        f"{reconciled.missing} missing, {reconciled.stale} stale, {reconciled.ghosts} gone, "
        f"{reconciled.unreachable} unreachable"
    )
    return Text(
        f"✗ the index does not match: {counts} of {reconciled.checked}. Run tally rebuild-index.",
        style="red",
    )


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
    """One step: what it saw and why, what it did, and the receipt that answers for it."""
    head = Table.grid(padding=(0, 2))
    head.add_column(style="dim")
    head.add_column()
    goal, name = (
        f" · {run.user_goal}" if run.user_goal else "",
        f" {step.name}" if step.name else "",
    )
    head.add_row("run", f"{run.agent_name}{goal} ({short(run.run_id)}) in {run.scope}")
    head.add_row("step", f"#{step.step_index} {step.step_kind}{name} ({step.step_id})")
    head.add_row("when", f"{_when(step.started_at)}  ")
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
    """Checkpoints, each with what was written at it and the steps that wrote it."""
    table = Table(
        "checkpoint", "step", "source", "channels", "written by", box=None, header_style="bold"
    )
    for checkpoint in states:
        writers = "\n".join(
            f"{', '.join(write['channels'])} ← "
            f"{' '.join(short(step) for step in write['steps']) or write['task']}"
            for write in checkpoint["writes"]
        )
        metadata = checkpoint["metadata"]
        table.add_row(
            checkpoint["checkpoint"],
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
    return "\n".join(_cut(line, 200) for line in lines)


def _table(title: str, *columns: tuple[str, int | None]) -> Table:
    """A table whose rows take one line each; a column without a width takes what the others
    leave.
    """
    table = Table(
        title=title,
        title_justify="left",
        title_style="bold",
        header_style="dim",
        box=box.SIMPLE_HEAD,
        padding=(0, 1, 0, 0),
        pad_edge=False,
    )
    for name, width in columns:
        table.add_column(
            name, width=width, no_wrap=True, overflow="ellipsis", ratio=1 if width is None else None
        )
    return table


def _contents(request: CompilationRequest, compiled: CompiledContext) -> dict[str, str]:
    """What each candidate says; what policy took out is not shown here either."""
    says = {memory.id: memory.content for memory in request.memory_records}
    says |= {f"tool:{tool.name}": tool.description for tool in request.tool_specs}
    says |= {item.id: item.content for item in request.context_items}
    return {
        decision.item_id: says.get(decision.item_id, "")
        for decision in compiled.decisions
        if not decision.reason_code.startswith("policy_") and decision.decision != "redact"
    }


def _item(identity: str) -> str:
    # A memory goes by its UUID here: its end is enough to find it again.
    return (
        f"memory …{short(identity)}"
        if len(identity) == 36 and identity.count("-") == 4
        else identity
    )


def _reason(decision: CompilationDecision) -> str:
    text = _PHRASES.get(decision.reason_code, decision.reason_code.replace("_", " "))
    return f"{text} {_item(decision.related_id)}" if decision.related_id else text


def _tokens(decision: CompilationDecision) -> str:
    if decision.decision == "include":
        return str(decision.final_tokens)
    if decision.decision == "exclude":
        return f"({decision.original_tokens})"
    return f"{decision.original_tokens} → {decision.final_tokens}"


def _fate(decision: CompilationDecision | None) -> Text:
    if decision is None:
        return Text("not a candidate", style="dim")
    return Text(
        f"{_SIGN[decision.decision]}: {_reason(decision)}", style=_DECISION[decision.decision]
    )


def _answer(claim: str, answer: bool | None) -> Text | None:
    if answer is None:
        return None
    return Text(("✓ " if answer else "✗ not true: ") + claim, style="green" if answer else "red")


def _status(status: str) -> Text:
    return Text(status, style=_STATUS.get(status, ""))


def _when(micros: int) -> str:
    return (
        datetime.fromtimestamp(micros / 1_000_000, tz=UTC).astimezone().strftime("%Y-%m-%d %H:%M")
    )


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"


def as_json(values: Mapping[str, Any] | Sequence[Any]) -> str:
    """Values for `--json`."""
    return json.dumps(values, ensure_ascii=False, indent=2, default=lambda value: value.dump())
