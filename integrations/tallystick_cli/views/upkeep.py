"""Views of upkeep: proofs, erasure, retention, transfers, findings of the doctor, the index, and
follow-up work.
"""

from __future__ import annotations

from collections.abc import Iterable

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from tallystick import records
from tallystick.pipeline import Reconciled
from tallystick_cli.views.common import (
    counts,
    done,
    facts,
    local_time,
    panel,
    preview_panel,
    short,
    short_list,
    table,
)

_FINDING = {
    "ok": ("✓", "green"),
    "notice": ("!", "yellow"),
    "problem": ("✗", "red"),
    "repaired": ("✓", "cyan"),
}
_WARNING = {"notice": "yellow", "problem": "red"}
_MIGRATED = {
    "plan": "would be migrated from",
    "dry_run": "can be migrated (tried, checked and taken back) from",
    "apply": "✓ migrated from",
}


def proof_view(proof: records.Proof) -> RenderableType:
    """Return the checks of a proof, the problems, and the limits of the proof."""
    claim = "nothing reaches it" if proof.claim == "unreachable" else "nothing holds it"
    at = proof.searched
    rows = facts(
        proof,
        {
            "memory": lambda each: Text(each.id, style="cyan"),
            "claim": lambda each: done(claim, each.holds),
            "looked at": lambda each: ", ".join(each.checked),
            "but": lambda each: [Text(problem, style="red") for problem in each.problems],
            "last search": lambda each: (
                at and f"{local_time(at.at)}, found in {at.problems} places"
            ),
            "kept": lambda each: list(each.copies),
            "cannot prove": lambda each: Text("\n".join(each.cannot_prove), style="dim"),
        },
    )
    return panel("Proof", rows)


def erasure_view(erasure: records.Erasure) -> RenderableType:
    """Return the copies that an erasure destroys or would destroy, with the proof."""
    rows = facts(
        erasure,
        {
            "memories": lambda each: short_list(each.memory_ids),
            "versions": "versions",
            "sources": lambda each: short_list(each.sources) or "none of their own",
            "recorded steps": lambda each: short_list(each.payloads) or "none",
            "threads": lambda each: ", ".join(each.threads) or "none",
            "approvals": lambda each: short_list(each.approvals),
            "names, goals of runs": lambda each: short_list(each.runs),
            "names of steps": lambda each: short_list(each.steps),
            "journal": lambda each: (
                each.journal and f"what people wrote beside {each.journal} entries"
            ),
            "stays in the chain": lambda each: _kept(", ".join(each.in_chain)),
            "stays in": lambda each: _kept(short_list(each.elsewhere)),
            "proof": lambda each: [
                done("; ".join(proof.problems) or "erased: nothing of it was found", proof.holds)
                for proof in each.proofs
            ],
            "cannot prove": lambda each: Text("\n".join(each.cannot_prove), style="dim"),
        },
    )
    if erasure.mode == "apply":
        return panel("Erased", rows)
    return preview_panel(rows, more=" This cannot be taken back.")


def _kept(names: str) -> Text | None:
    return Text(names, style="yellow") if names else None


def purge_view(purge: records.Purge) -> RenderableType:
    """Return the data that is past its window, or was removed."""
    kept = Text("kept: no window was chosen, or for ever", style="dim")
    rows = facts(
        purge,
        {
            "expired memories": lambda each: (
                f"{each.expired} (forgotten, recoverable for their window)"
            ),
            "forgotten memories": "tombstones",
            "journal entries": lambda each: f"{each.journal} of {len(each.streams)} journals",
            "recorded runs": lambda each: len(each.runs),
            "access log": "reads",
            "approvals": "approvals",
            "jobs": "jobs",
            "first answers": lambda each: f"{each.answers} (of calls under an idempotency key)",
            "working memory": "working",
            "journal": lambda each: kept if each.journal_window_days is None else None,
        },
    )
    return panel("Past their window" if purge.mode == "preview" else "Removed", rows)


def transfer_view(transfer: records.Transfer, what: str) -> Text:
    """Return the contents of an export or import."""
    return done(
        f"{len(transfer.scopes)} scopes {what}: {transfer.memories} memories, "
        f"{transfer.sources} sources, {transfer.entries} journal entries, "
        f"{transfer.blobs} blobs\n  {transfer.digest}"
    )


def transfer_preview(transfer: records.Transfer) -> Text:
    """Return what an export would write, in numbers."""
    states = f" ({counts(transfer.states)})" if transfer.states else ""
    return Text(
        f"{len(transfer.scopes)} scopes would be exported: {transfer.memories} memories{states}, "
        f"{transfer.sources} sources, {transfer.runs} runs, {transfer.threads} threads, "
        f"{transfer.entries} journal entries, {transfer.blobs} blobs of {transfer.bytes:,} bytes"
    )


def backup_view(backup: records.Backup, folder: str) -> Text:
    """Return what a backup has, or what was restored from one."""
    verb = "backed up to" if backup.mode == "backup" else "restored to"
    text = done(
        f"{verb} {folder}: {backup.rows:,} rows of {backup.tables} tables, "
        f"{backup.chains} chains, {backup.bytes / 1e6:,.1f} MB in {backup.took_ms / 1_000:.1f} s, "
        f"schema {backup.schema_revision}\n  {backup.digest}\n"
    )
    lines = [f"  ✓ {line}" for line in backup.checked]
    return text.append("\n".join([*lines, *(f"  left out: {line}" for line in backup.left_out)]))


def migration_view(migration: records.Migration) -> Text:
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


def sizes_table(sizes: records.Sizes) -> RenderableType:
    """Return where the bytes of a tally are."""
    shown = table(
        sizes.uses,
        {
            "what": "kind",
            "MB": lambda use: f"{use.size / 1e6:,.2f}",
            "share": lambda use: f"{use.size / max(sizes.total, 1):.0%}",
        },
    )
    for column in shown.columns[1:]:
        column.justify = "right"
    shown.add_section()
    shown.add_row("together", f"{sizes.total / 1e6:,.2f}", "")
    if sizes.text:
        times = f"{sizes.total / sizes.text:,.1f} times the text that arrived"
        shown.add_row(times, f"{sizes.text / 1e6:,.2f}", style="dim")
    return shown


def doctor_table(findings: Iterable[records.Finding]) -> Table:
    """Return the findings of the doctor, one a line."""
    return table(
        findings,
        {
            "": lambda each: Text(*_FINDING[each.status]),
            "check": "check",
            "finding": lambda each: Text(each.text, style=_WARNING.get(each.status, "")),
        },
    )


def rebuilt_view(rebuilt: records.RebuiltIndex) -> Text:
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


def job_table(jobs: Iterable[records.Job]) -> Table:
    """Return jobs, one in a row."""
    return table(
        jobs,
        {
            "id": "id",
            "state": "state",
            "when": "updated_at",
            "what": lambda job: Text.assemble(_work(job), _progress(job), (_error(job), "dim")),
        },
    )


def job_view(job: records.Job) -> RenderableType:
    """Return one job with its trail."""
    is_over = job.is_over or job.due_at is None
    due = "ended" if is_over else "lease ends" if job.state == "leased" else "next attempt"
    moment = job.updated_at if is_over else job.due_at
    trail = [
        f"{local_time(event.at)} {event.state}{f': {event.code}' if event.code else ''}"
        for event in job.trail
    ]
    waits = f"{job.waits} times for what was away, which counts for nothing"
    rows = facts(
        job,
        {
            "what": _work,
            "state": "state",
            due: lambda each: moment and local_time(moment),
            "worker": "leased_by",
            "attempts": lambda each: f"{each.attempts} of {each.max_attempts}",
            "waited": lambda each: waits if each.waits else None,
            "progress": lambda each: _progress(each).strip(" ()"),
            "cost": lambda each: counts(each.cost),
            "error": lambda each: (
                each.error_code and f"{each.error_code}. {each.error_text or ''}".strip()
            ),
            "result": lambda each: ", ".join(
                f"{name} {value}" for name, value in (each.result or {}).items()
            ),
            "authority": lambda each: each.user or "none that can be read",
            "trail": lambda each: "\n".join(trail) or f"{local_time(each.created_at)} enqueued",
        },
    )
    return panel(f"Job {job.id}", rows)


def outbound_table(calls: Iterable[records.OutboundCall]) -> Table:
    """Return calls of models, one in a row."""

    def outcome(call: records.OutboundCall) -> Text:
        cost = f" ${call.micros / 1_000_000:.4f}" if call.micros else ""
        style = "green" if call.outcome == "answered" else "red"
        return Text.assemble((call.outcome, style), (f" {call.duration_ms:,} ms{cost}", "dim"))

    def to(call: records.OutboundCall) -> Text:
        model = "/".join(filter(None, (call.provider, call.model)))
        return Text.assemble(model, (" here" if call.local else " far", "dim"))

    def sent(call: records.OutboundCall) -> Text:
        hidden = f", {call.redacted} hidden" if call.redacted else ""
        return Text.assemble(f"{call.characters:,} characters", (hidden, "dim"))

    return table(
        calls,
        {
            "when": "at",
            "what": lambda call: f"{call.purpose} {short(call.subject_id or '')}".rstrip(),
            "to": to,
            "sent": sent,
            "tokens": lambda call: f"{call.input_tokens:,} + {call.output_tokens:,}",
            "outcome": outcome,
        },
    )


def _work(job: records.Job) -> str:
    where = "the whole tally" if job.scope is None else str(job.scope)
    return f"{job.kind} in {where}"


def _progress(job: records.Job) -> str:
    if not job.progress and not job.total:
        return ""
    return f" ({job.progress}{f' of {job.total}' if job.total else ''})"


def _error(job: records.Job) -> str:
    if job.error_code is None:
        return ""
    waited = f", waited {job.waits} times" if job.waits else ""
    return f"\n{job.error_code}, {job.attempts} of {job.max_attempts} attempts{waited}"
