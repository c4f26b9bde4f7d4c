"""Views of upkeep: proofs, erasure, retention, transfers, findings of the doctor, the index, and
follow-up work.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from tallystick.pipeline import Reconciled
from tallystick.records import (
    Backup,
    Erasure,
    Finding,
    Job,
    Migration,
    OutboundCall,
    Proof,
    Purge,
    RebuiltIndex,
    Sizes,
    Transfer,
)
from tallystick_cli.views.common import (
    counts,
    done,
    facts,
    id_text,
    local_time,
    panel,
    plain_table,
    preview_panel,
    short,
    short_list,
)

_FINDING = {
    "ok": ("✓", "green"),
    "notice": ("!", "yellow"),
    "problem": ("✗", "red"),
    "repaired": ("✓", "cyan"),
}
_JOB = {"done": "green", "failed": "red", "dead": "red", "retry_scheduled": "yellow"}
_MIGRATED = {
    "plan": "would be migrated from",
    "dry_run": "can be migrated (tried, checked and taken back) from",
    "apply": "✓ migrated from",
}


def proof_view(proof: Proof) -> RenderableType:
    """Return the checks of a proof, the problems, and the limits of the proof."""
    claim = "nothing reaches it" if proof.claim == "unreachable" else "nothing holds it"
    searched = proof.searched
    rows: list[tuple[str, Any]] = [
        ("memory", Text(proof.id, style="cyan")),
        ("claim", done(claim, proof.holds)),
        ("looked at", ", ".join(proof.checked)),
        *(("but", Text(problem, style="red")) for problem in proof.problems),
    ]
    if searched is not None:
        where = f"{local_time(searched.at)}, found in {searched.problems} places"
        rows.append(("last search", where))
    rows += [("kept", copy) for copy in proof.copies]
    rows.append(("cannot prove", Text("\n".join(proof.cannot_prove), style="dim")))
    return panel("Proof", facts(*rows))


def erasure_view(erasure: Erasure) -> RenderableType:
    """Return the copies that an erasure destroys or would destroy, with the proof."""
    beside = f"what people wrote beside {erasure.journal} entries" if erasure.journal else None
    verdicts = [
        done(
            "erased: nothing of it was found" if proof.holds else "; ".join(proof.problems),
            proof.holds,
        )
        for proof in erasure.proofs
    ]
    rows = facts(
        ("memories", short_list(erasure.memory_ids)),
        ("versions", str(erasure.versions)),
        ("sources", short_list(erasure.sources) or "none of their own"),
        ("recorded steps", short_list(erasure.payloads) or "none"),
        ("threads", ", ".join(erasure.threads) or "none"),
        ("approvals", short_list(erasure.approvals)),
        ("names, goals of runs", short_list(erasure.runs)),
        ("names of steps", short_list(erasure.steps)),
        ("journal", beside),
        ("stays in the chain", _kept(", ".join(erasure.in_chain))),
        ("stays in", _kept(short_list(erasure.elsewhere))),
        *(("proof", verdict) for verdict in verdicts),
        ("cannot prove", Text("\n".join(erasure.cannot_prove), style="dim")),
    )
    if erasure.mode == "apply":
        return panel("Erased", rows)
    return preview_panel(rows, more=" This cannot be taken back.")


def _kept(names: str) -> Text | None:
    return Text(names, style="yellow") if names else None


def purge_view(purge: Purge) -> RenderableType:
    """Return the data that is past its window, or was removed."""
    kept = Text("kept: no window was chosen, or for ever", style="dim")
    rows = facts(
        ("expired memories", f"{purge.expired} (forgotten, recoverable for their window)"),
        ("forgotten memories", str(purge.tombstones)),
        ("journal entries", f"{purge.journal} of {len(purge.streams)} journals"),
        ("recorded runs", str(len(purge.runs))),
        ("access log", str(purge.reads)),
        ("approvals", str(purge.approvals)),
        ("jobs", str(purge.jobs)),
        ("first answers", f"{purge.answers} (of calls under an idempotency key)"),
        ("working memory", str(purge.working)),
        ("journal", kept if purge.journal_window_days is None else None),
    )
    return panel("Past their window" if purge.mode == "preview" else "Removed", rows)


def transfer_view(transfer: Transfer, what: str) -> Text:
    """Return the contents of an export or import."""
    return done(
        f"{len(transfer.scopes)} scopes {what}: {transfer.memories} memories, "
        f"{transfer.sources} sources, {transfer.entries} journal entries, "
        f"{transfer.blobs} blobs\n  {transfer.digest}"
    )


def transfer_preview(transfer: Transfer) -> Text:
    """Return what an export would write, in numbers."""
    states = f" ({counts(transfer.states)})" if transfer.states else ""
    return Text(
        f"{len(transfer.scopes)} scopes would be exported: {transfer.memories} memories{states}, "
        f"{transfer.sources} sources, {transfer.runs} runs, {transfer.threads} threads, "
        f"{transfer.entries} journal entries, {transfer.blobs} blobs of {transfer.bytes:,} bytes"
    )


def backup_view(backup: Backup, folder: str) -> Text:
    """Return what a backup has, or what was restored from one."""
    verb = "backed up to" if backup.mode == "backup" else "restored to"
    text = done(
        f"{verb} {folder}: {backup.rows:,} rows of {backup.tables} tables, "
        f"{backup.chains} chains, {backup.bytes / 1e6:,.1f} MB in {backup.took_ms / 1_000:.1f} s, "
        f"schema {backup.schema_revision}\n  {backup.digest}\n"
    )
    lines = [f"  ✓ {line}" for line in backup.checked]
    return text.append("\n".join([*lines, *(f"  left out: {line}" for line in backup.left_out)]))


def migration_view(migration: Migration) -> Text:
    """Return what migrating changes, would change or changed."""
    if not migration.steps:
        return done(f"schema {migration.after}: nothing to migrate")
    took = "" if migration.mode == "plan" else f" in {migration.took_ms / 1_000:.1f} s"
    schemas = f"schema {migration.before} to {migration.after}{took}"
    lines = [f"{_MIGRATED[migration.mode]} {schemas}"]
    lines += [f"  {step.schema_revision}  {step.text}" for step in migration.steps]
    lines += [f"  ✓ {line}" for line in migration.checked]
    if migration.backup is not None:
        lines.append(f"  backup before it: {migration.backup.digest}")
    return Text("\n".join(lines))


def sizes_table(sizes: Sizes) -> RenderableType:
    """Return where the bytes of a tally are."""
    rows = [
        (use.kind, f"{use.size / 1e6:,.2f}", f"{use.size / max(sizes.total, 1):.0%}")
        for use in sizes.uses
    ]
    table = plain_table(("what", "MB", "share"), rows)
    for column in table.columns[1:]:
        column.justify = "right"
    table.add_section()
    table.add_row("together", f"{sizes.total / 1e6:,.2f}", "")
    if sizes.text:
        times = f"{sizes.total / sizes.text:,.1f} times the text that arrived"
        table.add_row(times, f"{sizes.text / 1e6:,.2f}", style="dim")
    return table


def doctor_table(findings: Iterable[Finding]) -> Table:
    """Return the findings of the doctor, one a line."""
    rows = []
    for finding in findings:
        sign, style = _FINDING[finding.status]
        text = Text(finding.text, style="" if sign == "✓" else style)
        rows.append((Text(sign, style=style), finding.check, text))
    return plain_table(("", "check", "finding"), rows)


def rebuilt_view(rebuilt: RebuiltIndex) -> Text:
    """Return the number of vectors in the index that was made anew."""
    return done(f"{rebuilt.chroma} vectors in Chroma")


def reconciled_view(reconciled: Reconciled) -> Text:
    """Return the comparison of Chroma with the database."""
    if reconciled.whole:
        return done(f"the index matches the database ({reconciled.checked} vectors)")
    if reconciled.problem is not None:
        return done(reconciled.problem, False)
    differing = (
        f"{reconciled.missing} missing, {reconciled.stale} stale, {reconciled.ghosts} gone, "
        f"{reconciled.unreachable} unreachable of {reconciled.checked}"
    )
    return done(f"the index does not match: {differing}. Run tally rebuild-index.", False)


def job_table(jobs: Iterable[Job]) -> Table:
    """Return jobs, one in a row."""
    rows = [
        (
            id_text(job.id),
            Text(job.state, style=_JOB.get(job.state, "")),
            local_time(job.updated_at),
            Text.assemble(f"{_work(job)}{_progress(job)}", (_error(job), "dim")),
        )
        for job in jobs
    ]
    return plain_table(("id", "state", "when", "what"), rows)


def job_view(job: Job) -> RenderableType:
    """Return one job with its trail."""
    due: tuple[str, Any] = ("", None)
    if job.is_over or job.due_at is None:
        due = ("ended", local_time(job.updated_at))
    elif job.due_at:
        name = "lease ends" if job.state == "leased" else "next attempt"
        due = (name, local_time(job.due_at))
    trail = [
        f"{local_time(event.at)} {event.state}{f': {event.code}' if event.code else ''}"
        for event in job.trail
    ]
    waits = f"{job.waits} times for what was away, which counts for nothing"
    error = f"{job.error_code}. {job.error_text or ''}".strip()
    result = ", ".join(f"{name} {value}" for name, value in (job.result or {}).items())
    rows = facts(
        ("what", _work(job)),
        ("state", Text(job.state, style=_JOB.get(job.state, ""))),
        due,
        ("worker", job.leased_by),
        ("attempts", f"{job.attempts} of {job.max_attempts}"),
        ("waited", waits if job.waits else None),
        ("progress", _progress(job).strip(" ()")),
        ("cost", ", ".join(f"{count} {name}" for name, count in job.cost.items())),
        ("error", None if job.error_code is None else Text(error)),
        ("result", Text(result) if result else None),
        ("authority", job.user or "none that can be read"),
        ("trail", Text("\n".join(trail) or f"{local_time(job.created_at)} enqueued")),
    )
    return panel(f"Job {job.id}", rows)


def outbound_table(calls: Iterable[OutboundCall]) -> Table:
    """Return calls of models, one in a row."""
    rows = []
    for call in calls:
        to = "/".join(filter(None, (call.provider, call.model)))
        sent = f"{call.characters:,} characters"
        style = "green" if call.outcome == "answered" else "red"
        cost = f" ${call.micros / 1_000_000:.4f}" if call.micros else ""
        rows.append(
            (
                local_time(call.at),
                Text.assemble(call.purpose, (f" {short(call.subject_id or '')}".rstrip(), "cyan")),
                Text.assemble(to, (" here" if call.local else " far", "dim")),
                Text.assemble(sent, (f", {call.redacted} hidden" if call.redacted else "", "dim")),
                f"{call.input_tokens:,} + {call.output_tokens:,}",
                Text.assemble(
                    (call.outcome, style), (f" {call.duration_ms:,} ms", "dim"), (cost, "dim")
                ),
            )
        )
    return plain_table(("when", "what", "to", "sent", "tokens", "outcome"), rows)


def _work(job: Job) -> str:
    where = "the whole tally" if job.scope is None else str(job.scope)
    return f"{job.kind} in {where}"


def _progress(job: Job) -> str:
    if not job.progress and not job.total:
        return ""
    return f" ({job.progress}{f' of {job.total}' if job.total else ''})"


def _error(job: Job) -> str:
    if job.error_code is None:
        return ""
    waited = f", waited {job.waits} times" if job.waits else ""
    return f"\n{job.error_code}, {job.attempts} of {job.max_attempts} attempts{waited}"
