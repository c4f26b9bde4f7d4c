"""Views of what was recorded: runs, steps, receipts, compiles and their differences, replays,
verification, and checkpoints with their writers.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from tallystick.records import (
    CompilationDecision,
    CompilationRequest,
    CompiledContext,
    CompileDiff,
    Json,
    PrefixReuse,
    Provenance,
    Receipt,
    ReplayResult,
    RunRecord,
    StepDiff,
    StepEntry,
    StepRecord,
    Verification,
)
from tallystick_cli.views.common import (
    cut_text,
    done,
    facts,
    id_text,
    local_time,
    panel,
    plain_table,
    short,
    titled_table,
)

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
_LINES = 40
"""Lines of a payload that are shown."""
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
_PLAIN = 72
"""Columns of a terminal from which two fifths are kept for names of items, if they need as much:
reasons break better over lines than names.
"""
_WIDE = 110
"""Columns of a terminal from which tables show what items say."""
_DECISIONS = {
    "include": ("✓ in", "green"),
    "compress": ("~ short", "yellow"),
    "redact": ("█ redact", "magenta"),
    "exclude": ("✗ out", "dim"),
}
"""The sign and the style of each decision, in the order of a table."""


def run_table(runs: Iterable[tuple[RunRecord, int]]) -> Table:
    """Return runs with their number of steps: the agent, and below it what it was asked."""
    rows = []
    for run, steps in runs:
        goal = cut_text(" ".join((run.user_goal or "").split()), _GOAL)
        missed = Text(f" {run.gaps} missed" if run.gaps else "", style="yellow")
        agent = Text.assemble((run.agent_name, "bold"), f"\n{goal}" if goal else "")
        started = local_time(run.started_at)
        rows.append((id_text(run.run_id), _status(run.status) + missed, started, str(steps), agent))
    return titled_table("Runs", ("id", "status", "started", "steps", "agent and goal"), rows)


def step_table(steps: Iterable[StepRecord]) -> Table:
    """Return the steps of a run, as a table."""
    rows = [
        (
            str(step.step_index),
            id_text(step.step_id),
            _status(step.status),
            "" if step.ended_at is None else f"{(step.ended_at - step.started_at) / 1000:.0f} ms",
            step.step_kind,
            Text(step.name or "", style="bold"),
        )
        for step in steps
    ]
    table = titled_table("Steps", ("#", "id", "status", "took", "kind", "name"), rows)
    table.columns[3].justify = "right"
    return table


def receipt_table(receipts: Iterable[Receipt]) -> Table:
    """Return the receipts of a run in the order of its chain."""
    rows = [
        (
            str(receipt.position),
            Text(f"{receipt.step_index} {receipt.name or receipt.step_kind}", style="bold"),
            _status(receipt.status),
            str(len(receipt.entries)),
            str(sum(sum(entry.redactions.values()) for entry in receipt.entries) or ""),
            Text(receipt.digest.removeprefix("sha256:")[:16], style="cyan"),
        )
        for receipt in receipts
    ]
    columns = ("#", "step", "status", "entries", "redacted", "digest")
    return titled_table("Receipts", columns, rows)


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
    goal = f" · {run.user_goal}" if run.user_goal else ""
    name = f" {step.name}" if step.name else ""
    rows: list[tuple[str, Any]] = [
        ("run", f"{run.agent_name}{goal} ({short(run.run_id)}) in {run.scope}"),
        ("step", f"#{step.step_index} {step.step_kind}{name} ({step.step_id})"),
        ("when", local_time(step.started_at)),
        ("status", _status(step.status)),
    ]
    if receipt is not None:
        rows += [
            ("receipt", Text(receipt.digest, style="cyan")),
            ("after", Text(receipt.previous, style="dim")),
            ("tokens by", receipt.token_method),
        ]
        prefixes = [entry.summary.get("prefix") for entry in receipt.entries]
        rows += [("prefix", _prefix(each)) for each in prefixes if isinstance(each, dict)]
    rows += [("state", f"tally state {place}") for place in places]
    parts: list[RenderableType] = [panel("Step", facts(*rows), style="blue")]
    if compiled is not None:
        parts.append(decision_table(*compiled, width=width))
    shown = (entry for entry in entries if entry.kind not in {"compile_request", "compiled"})
    return Group(*parts, *map(_entry_panel, shown))


def state_table(states: Sequence[Mapping[str, Any]]) -> RenderableType:
    """Return checkpoints, each with its writes and the steps that wrote them."""
    rows = []
    for checkpoint in states:
        writers = "\n".join(
            f"{', '.join(write['channels'])} ← "
            f"{' '.join(short(step) for step in write['steps']) or short(write['task'])}"
            for write in checkpoint["writes"]
        )
        step, source = (str(checkpoint["metadata"].get(name, "")) for name in ("step", "source"))
        channels = ", ".join(checkpoint["channels"])
        rows.append((id_text(checkpoint["checkpoint"]), step, source, channels, writers))
    return plain_table(("id", "#", "source", "channels", "written by"), rows)


def origin_text(origin: Provenance) -> Text:
    """Return where words of a context came from, to the raw source."""
    text = Text.assemble((short(origin.item_id), "cyan"), "  ", origin.quote)
    if origin.memory_id is not None:
        text.append(f"\n  memory {origin.memory_id}", style="dim")
    if origin.source_id is not None:
        source = origin.source
        place = source.uri or source.title or source.source_type if source else "not yours to read"
        text.append(f"\n  source {origin.source_id} ({place})", style="dim")
    return text if origin.raw is None else text.append(f"\n  {origin.raw}", style="green")


def decision_table(
    request: CompilationRequest, compiled: CompiledContext, *, width: int = 80
) -> Table:
    """Return every candidate of a compile: in or out, why, and its tokens; from a width of 110 also
    its text.
    """
    order = list(_DECISIONS)
    contents = _contents(request, compiled)
    is_wide = width >= _WIDE
    rows = []
    for decision in sorted(compiled.decisions, key=lambda each: order.index(each.decision)):
        sign, style = _DECISIONS[decision.decision]
        says = " ".join(contents.get(decision.item_id, "").split())[:80]
        rows.append(
            (
                Text(sign, style=style),
                _score(decision) if decision.score_breakdown else Text(),
                Text(_tokens(decision)),
                Text(_item(decision.item_id), style=style),
                Text(_reason(decision), style=style),
                *([Text(says, style="dim")] if is_wide else []),
            )
        )
    table = titled_table(
        "What the model saw, and why",
        ("status", "score", "tokens", "item", "why", *(["says"] if is_wide else [])),
        rows,
    )
    if is_wide:
        column = table.columns[5]
        column.ratio, column.no_wrap, column.overflow = 1, True, "ellipsis"
    for column in table.columns[1:3]:
        column.justify, column.no_wrap = "right", True
    names = [len(_item(decision.item_id)) for decision in compiled.decisions]
    if names and width >= _PLAIN:
        table.columns[3].min_width = min(max(names), width * 2 // 5)
    allocation = compiled.token_allocation
    used, budget = allocation.get("used", 0), allocation.get("budget", request.token_budget)
    table.caption = f"{used} of {budget} tokens{'' if compiled.token_exact else ' (estimated)'}"
    table.caption_justify = "left"
    return table


def diff_table(diff: CompileDiff) -> Table:
    """Return the differences of two compiles, candidate by candidate."""
    listed = {change.item_id for change in (*diff.removed, *diff.added, *diff.changed)}
    policy = [change for change in diff.policy if change.item_id not in listed]
    rows: list[tuple[RenderableType, ...]] = [
        (
            Text(sign, style=style),
            Text(_item(change.item_id), style=style),
            _fate(change.before),
            _fate(change.after),
        )
        for sign, style, changes in (
            ("- left", "red", diff.removed),
            ("+ came", "green", diff.added),
            ("~ changed", "yellow", diff.changed),
            ("~ policy", "magenta", policy),
        )
        for change in changes
    ]
    rows += [
        (
            Text("~ score", style="dim"),
            Text(_item(change.item_id), style="dim"),
            _score(change.before),
            _score(change.after),
        )
        for change in diff.rescored
    ]
    if diff.is_empty and not diff.rescored:
        rows.append(("=", "nothing", "", ""))
    title = f"{diff.tokens_before} → {diff.tokens_after} tokens, {diff.unchanged} items as before"
    table = titled_table(title, ("status", "item", "before", "after"), rows)
    if diff.budget_before != diff.budget_after:
        table.caption = f"budget {diff.budget_before} → {diff.budget_after} tokens"
        table.caption_justify = "left"
    return table


def step_diff_view(diff: StepDiff) -> RenderableType:
    """Return the differences of two steps: the context, the request, the answer."""
    parts: list[RenderableType] = [] if diff.compile is None else [diff_table(diff.compile)]
    if diff.compaction:
        gone = ", ".join(map(_item, diff.compaction))
        parts.append(Text(f"left the history: {gone}", style="yellow"))
    for title, lines in (("request", diff.request), ("response", diff.response)):
        if lines:
            parts.append(panel(title, Group(*map(_diff_line, lines))))
    parts += [Text(f"! {note}", style="yellow") for note in diff.notes]
    if diff.is_empty:
        same = "nothing else could be compared" if diff.notes else "nothing differs"
        parts.append(Text(f"= {same}", style="green"))
    return panel(f"{short(diff.before)} → {short(diff.after)}", Group(*parts), style="blue")


def replay_view(result: ReplayResult) -> RenderableType:
    """Return the result of a replay and its comparison with the receipt."""
    claims = (
        ("request is the one in the receipt", result.request_matches),
        ("the model answered the same", result.response_matches),
    )
    parts: list[RenderableType] = [
        done(claim if holds else f"not true: {claim}", holds)
        for claim, holds in claims
        if holds is not None
    ]
    parts += [Text(f"! {warning}", style="yellow") for warning in result.warnings]
    parts += [] if result.diff is None else [diff_table(result.diff)]
    parts += map(_diff_line, result.prompt_diff)
    name = "Exact replay" if result.recipe.is_exact else "Mutated replay"
    return panel(f"{name} ({result.fidelity})", Group(*parts), style="blue")


def verification_view(verification: Verification) -> RenderableType:
    """Return the result for stock and foil, the checks, and the limits of the proof."""
    ok, foil, count = verification.ok, verification.foil, verification.threads_checked
    threads = f", {count} checkpoint thread{'' if count == 1 else 's'}" if count else ""
    matches = verification.foil_matches
    verdict = "stock and foil match" if matches else "the chain holds (no foil was given)"
    warnings = []
    if (gone := verification.purged) is not None:
        went = f"{gone.steps} steps, {gone.payloads} payloads and {gone.entries} entries"
        warnings.append(f"past its window: {went} of the chain went; their count and head stand")
    if verification.texts_erased:
        warnings.append(f"the texts of {len(verification.texts_erased)} entries were erased")
    for where, missed in verification.gaps.items():
        reasons = ", ".join(f"{count} {reason}" for reason, count in missed.items())
        warnings.append(f"{where}: not everything could be recorded ({reasons})")
    lines = [
        done(verdict if ok else "does not match", ok),
        Text(
            f"{verification.receipts} receipts, {verification.payloads_checked} payloads checked, "
            f"{verification.payloads_absent} not kept or erased{threads}"
        ),
        Text(f"foil: {foil.count}:{foil.head}", style="cyan"),
        *(done(f"{each.where}: {each.problem}", False) for each in verification.problems),
        *(Text(f"! {warning}", style="yellow") for warning in warnings),
        *([done(f"signed by {foil.signed_by}")] if verification.signature_ok else []),
        Text("Cannot prove " + "; ".join(verification.cannot_prove) + ".", style="dim"),
        Text(f"Not covered by the chain: {', '.join(verification.not_covered)}.", style="dim"),
    ]
    lines[0].stylize("bold")
    title = f"Verify run {short(verification.run_id)}"
    return panel(title, Group(*lines), style="green" if ok else "red")


def _entry_panel(entry: StepEntry) -> Panel:
    if entry.payload_state in {"not_kept", "erased"}:
        summary = f"\n{_readable(entry.summary)}" if entry.summary else ""
        stands = "; its commitment stands" if entry.commitment else ""
        state = entry.payload_state.replace("_", " ")
        body = Text(f"payload {state}{stands}{summary}", style="dim")
    else:
        body = Text(_readable(entry.payload), overflow="fold")
    redacted = ", ".join(f"{count} {kind}" for kind, count in entry.redactions.items())
    title = entry.kind.replace("_", " ") + (f" · redacted: {redacted}" if redacted else "")
    return panel(title, body)


def _readable(payload: Json) -> str:
    text = json.dumps(payload, ensure_ascii=False, indent=2, sort_keys=True)
    lines = text.splitlines()
    if (more := len(lines) - _LINES + 2) > 2:
        lines = [*lines[: _LINES - 2], f"… {more} more lines (--json shows all)"]
    return "\n".join(cut_text(line, 200) for line in lines)


def _prefix(fields: Mapping[str, Any]) -> str:
    reuse = PrefixReuse.load(dict(fields))
    if reuse.cause == "first":
        return "first prompt of the run"
    share = f"{reuse.reused} of {reuse.before} tokens begin as before"
    if reuse.cause == "appended":
        return share
    return f"{share}; {reuse.cause.replace('_', ' ')} at {reuse.item_id}"


def _status(status: str) -> Text:
    return Text(status, style=_STATUS.get(status, ""))


def _contents(request: CompilationRequest, compiled: CompiledContext) -> dict[str, str]:
    """Return the text of each candidate; a text that policy withheld is not shown here either."""
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
    is_memory = len(identity) == 36 and identity.count("-") == 4
    return f"memory …{short(identity)}" if is_memory else identity


def _reason(decision: CompilationDecision) -> str:
    text = _PHRASES.get(decision.reason_code, decision.reason_code.replace("_", " "))
    return f"{text} {_item(decision.related_id)}" if decision.related_id else text


def _tokens(decision: CompilationDecision) -> str:
    if decision.decision == "include":
        return str(decision.final_tokens)
    if decision.decision == "exclude":
        return f"({decision.original_tokens})"
    return f"{decision.original_tokens} → {decision.final_tokens}"


def _score(decision: CompilationDecision | None) -> Text:
    total = 0 if decision is None else decision.score_breakdown.get("total", 0)
    return Text(f"{total / 1_000_000:.2f}")


def _fate(decision: CompilationDecision | None) -> Text:
    if decision is None:
        return Text("not a candidate", style="dim")
    sign, style = _DECISIONS[decision.decision]
    return Text(f"{sign}: {_reason(decision)}", style=style)


def _diff_line(line: str) -> Text:
    style = {"+": "green", "-": "red", "@": "cyan"}.get(line[:1], "dim")
    return Text(line, style=style, no_wrap=True, overflow="ellipsis")
