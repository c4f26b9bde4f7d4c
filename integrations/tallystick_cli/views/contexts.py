"""Views of compiled contexts: the decisions of a compile, and the differences of two of them."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from tallystick.records import (
    CompilationDecision,
    CompilationRequest,
    CompiledContext,
    CompileDiff,
    ReplayResult,
    StepDiff,
)
from tallystick_cli.views.common import (
    short,
    titled_table,
)

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


_DECISION = {"include": "green", "compress": "yellow", "redact": "magenta", "exclude": "dim"}


_SIGN = {"include": "✓ in", "compress": "~ short", "redact": "█ redact", "exclude": "✗ out"}


def decision_table(
    request: CompilationRequest,
    compiled: CompiledContext,
    *,
    title: str | None = None,
    width: int = 80,
) -> Table:
    """Return every candidate of a compile: in or out, why, and its tokens; from a width of 110 also
    its text.
    """
    allocation = compiled.token_allocation
    used, budget = allocation.get("used", 0), allocation.get("budget", request.token_budget)
    table = titled_table(
        title or "What the model saw, and why",
        *("status", "score", "tokens", "item", "why"),
    )
    if width >= _WIDE:
        table.add_column("says", ratio=1, no_wrap=True, overflow="ellipsis")
    table.caption = f"{used} of {budget} tokens{'' if compiled.token_exact else ' (estimated)'}"
    table.caption_justify = "left"
    for column in table.columns[1:3]:
        column.justify, column.no_wrap = "right", True
    names = [len(_item(decision.item_id)) for decision in compiled.decisions]
    if names and width >= _PLAIN:
        table.columns[3].min_width = min(max(names), width * 2 // 5)
    says = _contents(request, compiled)
    order = {"include": 0, "compress": 1, "redact": 2, "exclude": 3}
    for decision in sorted(compiled.decisions, key=lambda decision: order[decision.decision]):
        style = _DECISION[decision.decision]
        cells = [
            Text(_SIGN[decision.decision], style=style),
            Text(
                f"{decision.score_breakdown['total'] / 1_000_000:.2f}"
                if decision.score_breakdown
                else ""
            ),
            Text(_tokens(decision)),
            Text(_item(decision.item_id), style=style),
            Text(_reason(decision), style=style),
            Text(" ".join(says.get(decision.item_id, "").split())[:80], style="dim"),
        ]
        table.add_row(*cells[: len(table.columns)])
    return table


def diff_table(diff: CompileDiff) -> Table:
    """Return the differences of two compiles, candidate by candidate."""
    table = titled_table(
        f"{diff.tokens_before} → {diff.tokens_after} tokens, {diff.unchanged} items as before",
        *("status", "item", "before", "after"),
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
    """Return the differences of two steps: the context, the request, the answer."""
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


def replay_view(result: ReplayResult) -> RenderableType:
    """Return the result of a replay and its comparison with the receipt."""
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


def _scored(decision: CompilationDecision | None) -> Text:
    total = 0 if decision is None else decision.score_breakdown.get("total", 0)
    return Text(f"{total / 1_000_000:.2f}", style="dim")


def _diff_line(line: str) -> Text:
    style = {"+": "green", "-": "red", "@": "cyan"}.get(line[:1], "dim")
    return Text(line, style=style, no_wrap=True, overflow="ellipsis")


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
