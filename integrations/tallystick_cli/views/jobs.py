"""Views of jobs: what waits, what came of it, the trail of one, and the calls of models."""

from __future__ import annotations

from collections.abc import Iterable

from rich.console import RenderableType
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from tallystick.records import Job, OutboundCall
from tallystick_cli.views.common import fact_table, local_time, plain_table, short

_STYLE = {"done": "green", "failed": "red", "dead": "red", "retry_scheduled": "yellow"}


def job_table(jobs: Iterable[Job]) -> Table:
    """Return jobs, one in a row."""
    table = plain_table("id", "state", "when", "what")
    for job in jobs:
        table.add_row(
            Text(short(job.id), style="cyan"),
            Text(job.state, style=_STYLE.get(job.state, "")),
            local_time(job.updated_at),
            Text.assemble(f"{_what(job)}{_progress(job)}", (_after(job), "dim")),
        )
    return table


def outbound_table(calls: Iterable[OutboundCall]) -> Table:
    """Return calls of models, one in a row."""
    table = plain_table("when", "what", "to", "sent", "tokens", "outcome")
    for call in calls:
        table.add_row(
            local_time(call.at),
            Text.assemble(call.purpose, (f" {short(call.subject_id or '')}".rstrip(), "cyan")),
            Text.assemble(
                "/".join(filter(None, (call.provider, call.model))),
                (" here" if call.local else " far", "dim"),
            ),
            Text.assemble(
                f"{call.characters:,} characters",
                (f", {call.redacted} hidden" if call.redacted else "", "dim"),
            ),
            f"{call.input_tokens:,} + {call.output_tokens:,}",
            Text.assemble(
                (call.outcome, "green" if call.outcome == "answered" else "red"),
                (f" {call.duration_ms:,} ms", "dim"),
                (f" ${call.micros / 1_000_000:.4f}" if call.micros else "", "dim"),
            ),
        )
    return table


def job_view(job: Job) -> RenderableType:
    """Return one job with its trail."""
    facts = fact_table()
    facts.add_row("what", _what(job))
    facts.add_row("state", Text(job.state, style=_STYLE.get(job.state, "")))
    if job.is_over or job.due_at is None:
        facts.add_row("ended", local_time(job.updated_at))
    elif job.due_at:
        due = "lease ends" if job.state == "leased" else "next attempt"
        facts.add_row(due, local_time(job.due_at))
    if job.leased_by is not None:
        facts.add_row("worker", job.leased_by)
    facts.add_row("attempts", f"{job.attempts} of {job.max_attempts}")
    if job.waits:
        facts.add_row("waited", f"{job.waits} times for what was away, which counts for nothing")
    if job.progress or job.total:
        facts.add_row("progress", _progress(job).strip(" ()"))
    if job.cost:
        facts.add_row("cost", ", ".join(f"{count} {name}" for name, count in job.cost.items()))
    if job.error_code is not None:
        facts.add_row("error", Text(f"{job.error_code}. {job.error_text or ''}".strip()))
    if job.result:
        facts.add_row("result", Text(", ".join(f"{key} {job.result[key]}" for key in job.result)))
    facts.add_row("authority", job.user or "none that can be read")
    facts.add_row(
        "trail",
        Text(
            "\n".join(
                f"{local_time(event.at)} {event.state}{f': {event.code}' if event.code else ''}"
                for event in job.trail
            )
            or f"{local_time(job.created_at)} enqueued"
        ),
    )
    return Panel(facts, title=f"Job {job.id}", title_align="left", border_style="dim")


def _what(job: Job) -> str:
    where = "the whole tally" if job.scope is None else str(job.scope)
    return f"{job.kind} in {where}"


def _progress(job: Job) -> str:
    if not job.progress and not job.total:
        return ""
    return f" ({job.progress}{f' of {job.total}' if job.total else ''})"


def _after(job: Job) -> str:
    if job.error_code is not None:
        return f"\n{job.error_code}, {job.attempts} of {job.max_attempts} attempts" + (
            f", waited {job.waits} times" if job.waits else ""
        )
    return ""
