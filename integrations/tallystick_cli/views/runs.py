"""Views of what was recorded: runs, steps, receipts, compiles, replays, checkpoints."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from operator import itemgetter
from typing import Any

from rich.console import Group, RenderableType
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from tallystick import records
from tallystick.recorder.answers import candidates_of
from tallystick.records.escaping import cut
from tallystick_cli.views.common import (
    Cell,
    cut_text,
    facts,
    id_text,
    panel,
    report,
    rows,
    short,
    table,
)
from tallystick_html import words
from tallystick_html.causes import Causes, recall_of, short_id

_GOAL = 120
"""Characters of a goal in a list of runs."""
_LINES = 40
"""Lines of a payload that are shown."""
_PLAIN = 72
"""Columns of a terminal from which two fifths are kept for names of items, if they need as much:
reasons break better over lines than names.
"""
_DECISIONS = {
    "include": ("✓ in", "green"),
    "compress": ("~ short", "yellow"),
    "redact": ("█ redact", "magenta"),
    "exclude": ("✗ out", "dim"),
}
"""The sign and the style of each decision, in the order of a table."""


def _asked(run: records.RunRecord) -> Text:
    """Return what was asked, and below it by whom, in which conversation, and the agent."""
    goal = cut(run.goal or "", _GOAL)
    missed = (f" {run.gaps} missed" if run.gaps else "", "yellow")
    thread = run.metadata.get("thread_id")
    talk = f", conversation {short_id(thread)}" if isinstance(thread, str) else ""
    user = run.scope.key if run.scope.kind == "private" else str(run.scope)
    agent = f", {run.agent_name}" if goal else ""
    who = (f"\n{user}{talk}{agent}", "dim")
    return Text.assemble((goal or run.agent_name, "bold"), missed, who)


def run_table(runs: Iterable[records.RunRecord], steps: Mapping[str, int]) -> Table:
    """Return runs with their number of steps."""
    return table(
        runs,
        "id status started=started_at",
        "Runs",
        steps=lambda run: str(steps.get(run.id, 0)),
        asked=_asked,
    )


def cost_table(costs: Mapping[str, Mapping[str, int]]) -> Table:
    """Return what the pieces of a step took."""
    return table(
        costs.items(),
        "",
        "Costs",
        piece=lambda row: row[0],
        cpu=lambda row: f"{row[1]['cpu_us'] / 1_000:.1f} ms",
        wall=lambda row: f"{row[1]['wall_us'] / 1_000:.1f} ms",
        reads=lambda row: str(row[1]["reads"]),
        writes=lambda row: str(row[1]["writes"]),
        embeddings=lambda row: str(row[1]["embeddings"]),
        analyses=lambda row: str(row[1]["analyses"]),
    )


def _took(step: records.StepRecord) -> str:
    ms = step.ended_at and (step.ended_at - step.started_at) / 1_000
    return "" if ms is None else f"{ms:.0f} ms"


step_table = rows("#=step_index id status kind=step_kind name", "Steps", took=_took)
receipt_table = rows(
    "#=position status",
    "Receipts",
    step=lambda each: Text(f"{each.step_index} {each.name or each.step_kind}", style="bold"),
    entries=lambda each: len(each.entries),
    redacted=lambda each: sum(sum(entry.redactions.values()) for entry in each.entries),
    digest=lambda each: Text(each.digest.removeprefix("sha256:")[:16], style="cyan"),
)


def step_view(
    run: records.RunRecord,
    step: records.StepRecord,
    receipt: records.Receipt | None,
    entries: Sequence[records.StepEntry],
    compiled: tuple[records.CompilationRequest, records.CompiledContext] | None,
    places: Sequence[str] = (),
    *,
    closed: str | None = None,
    width: int = 80,
) -> RenderableType:
    """Return one step: its context with the reasons, its entries, and its receipt. What may hold
    memories of somebody else, who is named by `closed`, is not opened.
    """
    goal = f" · {run.goal}" if run.goal else ""
    name = f" {step.name}" if step.name else ""
    prefixes = [entry.summary.get("prefix") for entry in (receipt.entries if receipt else ())]
    shown = facts(
        step,
        "when=started_at status",
        run=lambda _: f"{run.agent_name}{goal} ({short(run.id)}) in {run.scope}",
        step=lambda each: f"#{each.step_index} {each.step_kind}{name} ({each.id})",
        receipt=lambda _: receipt and Text(receipt.digest, style="cyan"),
        after=lambda _: receipt and Text(receipt.previous, style="dim"),
        tokens_by=lambda _: receipt and receipt.token_method,
        prefix=lambda _: [_prefix(each) for each in prefixes if isinstance(each, dict)],
        state=lambda _: [f"tally state {place}" for place in places],
    )
    parts: list[RenderableType] = [panel("Step", shown, style="blue")]
    if compiled is not None:
        parts.append(decision_table(*compiled, entries=entries, closed=closed, width=width))
    others = [entry for entry in entries if entry.kind not in {"compile_request", "compiled"}]
    if closed is not None:
        kinds = ", ".join(dict.fromkeys(entry.kind.replace("_", " ") for entry in others))
        told = f"It may hold memories of {closed}: --open shows it, and each look is journaled."
        return Group(*parts, *([panel(kinds, Text(told, style="dim"))] if others else []))
    return Group(*parts, *map(_entry_panel, others))


def state_table(states: Sequence[Mapping[str, Any]]) -> RenderableType:
    """Return checkpoints, each with its writes and the steps that wrote them."""

    def writers(checkpoint: Mapping[str, Any]) -> str:
        return "\n".join(
            f"{', '.join(write['channels'])} ← "
            f"{' '.join(map(short, write['steps'])) or short(write['task'])}"
            for write in checkpoint["writes"]
        )

    return table(
        states,
        "",
        id=lambda each: id_text(each["checkpoint"]),
        step=lambda each: str(each["metadata"].get("step", "")),
        source=lambda each: each["metadata"].get("source", ""),
        channels=lambda each: ", ".join(each["channels"]),
        written_by=writers,
    )


def origin_text(origin: records.Provenance) -> Text:
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
    request: records.CompilationRequest,
    compiled: records.CompiledContext,
    *,
    entries: Iterable[records.StepEntry] = (),
    closed: str | None = None,
    width: int = 80,
) -> Table:
    """Return every candidate of a compile: in or out, its tokens, how it begins and what it is, and
    why; of one that was left out also what would have had to be different. `entries` are those of
    its step, which say why recall brought a memory; those of somebody else, who is named by
    `closed`, are not opened.
    """
    order = list(_DECISIONS)
    causes = Causes(compiled, candidates_of(request, compiled), recall_of(entries), closed=closed)

    def item(decision: records.CompilationDecision) -> Text:
        name = f"{causes.name(decision.item_id)} {short_id(decision.item_id)}"
        style = _DECISIONS[decision.decision][1]
        return Text.assemble((causes.heading(decision.item_id), style), "\n", (name, "dim"))

    def why(decision: records.CompilationDecision) -> Text:
        otherwise = causes.otherwise(decision)
        reason = (causes.why(decision), _DECISIONS[decision.decision][1])
        return Text.assemble(reason, *([f"\n{otherwise}"] if otherwise else []))

    columns: dict[str, Cell] = {
        "status": lambda each: Text(*_DECISIONS[each.decision]),
        "score": lambda each: _score(each) if each.score_breakdown else "",
        "tokens": _tokens,
        "item": item,
        "why": why,
    }
    decisions = sorted(compiled.decisions, key=lambda each: order.index(each.decision))
    shown = table(decisions, "", f"{compiled.title}, and why", **columns)
    for column in shown.columns[1:3]:
        column.justify, column.no_wrap = "right", True
    names = [len(short_id(each.item_id)) for each in compiled.decisions]
    if names and width >= _PLAIN:
        shown.columns[3].min_width = min(max(names), width * 2 // 5)
    allocation = compiled.token_allocation
    used, budget = allocation.get("used", 0), allocation.get("budget", request.token_budget)
    shown.caption = f"{used} of {budget} tokens{'' if compiled.token_exact else ' (estimated)'}"
    shown.caption_justify = "left"
    return shown


def diff_table(diff: records.CompileDiff) -> Table:
    """Return the differences of two compiles, candidate by candidate."""
    listed = {change.item_id for change in (*diff.removed, *diff.added, *diff.changed)}
    policy = [change for change in diff.policy if change.item_id not in listed]
    groups = (
        ("- left", "red", _fate, diff.removed),
        ("+ came", "green", _fate, diff.added),
        ("~ changed", "yellow", _fate, diff.changed),
        ("~ policy", "magenta", _fate, policy),
        ("~ score", "dim", _score, diff.rescored),
    )
    rows = [
        (
            Text(sign, style),
            Text(short_id(each.item_id), style),
            show(each.before),
            show(each.after),
        )
        for sign, style, show, changes in groups
        for each in changes
    ] or [(Text("="), Text("nothing"), Text(), Text())]
    title = f"{diff.tokens_before} → {diff.tokens_after} tokens, {diff.unchanged} items as before"
    names = ("status", "item", "before", "after")
    shown = table(rows, "", title, **{name: itemgetter(place) for place, name in enumerate(names)})
    if diff.budget_before != diff.budget_after:
        shown.caption = f"budget {diff.budget_before} → {diff.budget_after} tokens"
        shown.caption_justify = "left"
    return shown


def step_diff_view(diff: records.StepDiff) -> RenderableType:
    """Return the differences of two steps: the context, the request, the answer."""
    parts: list[RenderableType] = [] if diff.compile is None else [diff_table(diff.compile)]
    if diff.compaction:
        gone = ", ".join(map(short_id, diff.compaction))
        parts.append(Text(f"left the history: {gone}", style="yellow"))
    for title, lines in (("request", diff.request), ("response", diff.response)):
        if lines:
            parts.append(panel(title, *map(_diff_line, lines)))
    parts += [Text(f"! {note}", style="yellow") for note in diff.notes]
    if diff.is_empty:
        same = "nothing else could be compared" if diff.notes else "nothing differs"
        parts.append(Text(f"= {same}", style="green"))
    return panel(f"{short(diff.before)} → {short(diff.after)}", *parts, style="blue")


def replay_view(result: records.ReplayResult) -> RenderableType:
    """Return the result of a replay and its comparison with the receipt."""
    claims = (
        ("request is the one in the receipt", result.request_matches),
        ("the model answered the same", result.response_matches),
    )
    parts: list[RenderableType] = [
        report(claim if holds else f"not true: {claim}", holds)
        for claim, holds in claims
        if holds is not None
    ]
    parts += [Text(f"! {warning}", style="yellow") for warning in result.warnings]
    parts += [] if result.diff is None else [diff_table(result.diff)]
    parts += map(_diff_line, result.prompt_diff)
    name = "Exact replay" if result.recipe.is_exact else "Mutated replay"
    return panel(f"{name} ({result.fidelity})", *parts, style="blue")


def verification_view(verification: records.Verification) -> RenderableType:
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
        report(verdict if ok else "does not match", ok),
        Text(
            f"{verification.receipts} receipts, {verification.payloads_checked} payloads checked, "
            f"{verification.payloads_absent} not kept or erased{threads}"
        ),
        Text(f"foil: {foil.count}:{foil.head}", style="cyan"),
        *(report(f"{each.where}: {each.problem}", False) for each in verification.problems),
        *(Text(f"! {warning}", style="yellow") for warning in warnings),
        *([report(f"signed by {foil.signed_by}")] if verification.signature_ok else []),
        Text("Cannot prove " + "; ".join(verification.cannot_prove) + ".", style="dim"),
        Text(f"Not covered by the chain: {', '.join(verification.not_covered)}.", style="dim"),
    ]
    lines[0].stylize("bold")
    title = f"Verify run {short(verification.run_id)}"
    return panel(title, *lines, style="green" if ok else "red")


def _entry_panel(entry: records.StepEntry) -> Panel:
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


def _readable(payload: records.Json) -> str:
    text = json.dumps(payload, ensure_ascii=False, indent=2, sort_keys=True)
    lines = text.splitlines()
    if (more := len(lines) - _LINES + 2) > 2:
        lines = [*lines[: _LINES - 2], f"… {more} more lines (--json shows all)"]
    return "\n".join(cut_text(line, 200) for line in lines)


def _prefix(fields: Mapping[str, Any]) -> str:
    reuse = records.PrefixReuse.load(dict(fields))
    if reuse.cause == "first":
        return "first prompt of the run"
    share = f"{reuse.reused} of {reuse.before} tokens begin as before"
    if reuse.cause == "appended":
        return share
    return f"{share}; {reuse.cause.replace('_', ' ')} at {reuse.item_id}"


def _reason(decision: records.CompilationDecision) -> str:
    related = f" {short_id(decision.related_id)}" if decision.related_id else ""
    return f"{words.reason(decision)}{related}"


def _tokens(decision: records.CompilationDecision) -> str:
    if decision.decision == "include":
        return str(decision.final_tokens)
    if decision.decision == "exclude":
        return f"({decision.original_tokens})"
    return f"{decision.original_tokens} → {decision.final_tokens}"


def _score(decision: records.CompilationDecision | None) -> Text:
    total = 0 if decision is None else decision.score_breakdown.get("total", 0)
    return Text(f"{total / 1_000_000:.2f}")


def _fate(decision: records.CompilationDecision | None) -> Text:
    if decision is None:
        return Text("not a candidate", style="dim")
    sign, style = _DECISIONS[decision.decision]
    return Text(f"{sign}: {_reason(decision)}", style=style)


def _diff_line(line: str) -> Text:
    style = {"+": "green", "-": "red", "@": "cyan"}.get(line[:1], "dim")
    return Text(line, style=style, no_wrap=True, overflow="ellipsis")
