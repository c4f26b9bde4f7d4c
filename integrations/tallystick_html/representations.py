"""Representations: what a record shows of itself in a notebook."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from tallystick.recorder import Run, Step
from tallystick.records import (
    CompiledContext,
    Hit,
    Memory,
    Receipt,
    RunRecord,
    StepRecord,
    Verification,
)
from tallystick.records.escaping import Html, cut, html_table, tag
from tallystick.records.times import moment_text
from tallystick.tally import Recalled
from tallystick_html.words import DECISIONS, reason

_MOST = 200
"""Characters of a text in a table."""


def moment(at: int) -> str:
    """Return a time in microseconds UTC as a person reads it."""
    return moment_text(at, "%Y-%m-%d %H:%M:%S UTC")


def duration(start: int, end: int | None) -> str:
    """Return the time between two moments in microseconds."""
    if end is None:
        return ""
    took = (end - start) / 1_000
    return f"{took:.0f} ms" if took < 10_000 else f"{took / 1_000:.0f} s"


def _facts(caption: str, facts: Mapping[str, object]) -> Html:
    """Return facts by name, those that are empty left out."""
    rows = [(name, value) for name, value in facts.items() if value not in (None, "", (), {})]
    return html_table(caption, ("", ""), rows)


def _compiled_table(compiled: CompiledContext) -> Html:
    used, budget = (compiled.token_allocation.get(name, 0) for name in ("used", "budget"))
    rows = [
        (DECISIONS[each.decision], each.item_id, reason(each), each.final_tokens)
        for each in compiled.decisions
    ]
    return html_table(f"{used} of {budget} tokens", ("decision", "item", "why", "tokens"), rows)


def _recalled_table(recalled: Recalled) -> Html:
    rows = [
        (f"{hit.score:.2f}", cut(hit.content, _MOST), hit.why, hit.visible_to, hit.memory.id[-8:])
        for hit in recalled.hits
    ]
    caption = f"{len(recalled.hits)} of {recalled.candidates} memories"
    return html_table(caption, ("score", "memory", "why", "visible to", "id"), rows)


def _hit(hit: Hit) -> Html:
    return _facts(
        f"score {hit.score:.2f}",
        {
            "memory": cut(hit.content, _MOST),
            "why": hit.why,
            "visible to": hit.visible_to,
            "id": hit.memory.id,
        },
    )


def _memory(memory: Memory) -> Html:
    return _facts(
        f"{memory.kind}, {memory.state}",
        {
            "memory": cut(memory.content, _MOST),
            "scope": memory.scope,
            "tags": ", ".join(memory.tags),
            "speaker": memory.speaker,
            "said": moment(memory.occurred_at or memory.created_at),
            "version": memory.version,
            "id": memory.id,
        },
    )


def _run(run: RunRecord) -> Html:
    return _facts(
        f"run of {run.agent_name}",
        {
            "goal": run.goal,
            "status": run.status,
            "scope": run.scope,
            "started": moment(run.started_at),
            "took": duration(run.started_at, run.ended_at),
            "missed": run.gaps or None,
            "id": run.id,
        },
    )


def _step(step: StepRecord) -> Html:
    return _facts(
        f"step {step.step_index}: {step.step_kind.replace('_', ' ')}",
        {
            "name": step.name,
            "status": step.status,
            "started": moment(step.started_at),
            "took": duration(step.started_at, step.ended_at),
            "id": step.id,
        },
    )


def _receipt(receipt: Receipt) -> Html:
    rows = [
        (entry.kind.replace("_", " "), entry.payload_state, sum(entry.redactions.values()) or "")
        for entry in receipt.entries
    ]
    name = receipt.name or receipt.step_kind
    caption = f"receipt {receipt.position}: step {receipt.step_index}, {name}, {receipt.status}"
    return Html(
        html_table(caption, ("entry", "payload", "redacted"), rows)
        + tag("p", tag("code", receipt.digest), tag("br"), "after ", tag("code", receipt.previous))
    )


def _verification(answer: Verification) -> Html:
    verdict = "everything matches" if answer.ok else f"{len(answer.problems)} do not match"
    table = _facts(
        verdict,
        {
            "receipts": answer.receipts,
            "payloads": answer.payloads_checked,
            "not kept": answer.payloads_absent or None,
            "foil": f"{answer.foil.count}:{answer.foil.head}",
        },
    )
    problems = [(problem.where, problem.problem) for problem in answer.problems]
    return Html(table + (html_table("problems", ("where", "what"), problems) if problems else ""))


RENDERERS: Mapping[type, Callable[[Any], str]] = {
    CompiledContext: _compiled_table,
    Hit: _hit,
    Memory: _memory,
    Recalled: _recalled_table,
    Receipt: _receipt,
    Run: lambda run: _run(run.record),
    RunRecord: _run,
    Step: lambda step: _step(step.step_record),
    StepRecord: _step,
    Verification: _verification,
}
"""By the kind of record; the entry point of the group `tallystick.html`."""
