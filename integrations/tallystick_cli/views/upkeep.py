"""Views of upkeep: proofs, erasure, retention, transfers, the doctor, the index, and jobs."""

from __future__ import annotations

from collections.abc import Iterable

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from tallystick import records
from tallystick.memory.reconcile import Reconciled
from tallystick_cli.views import common
from tallystick_cli.views.common import local_time, record, report, rows, table

_SIGNS = {
    "ok": ("✓", "green"),
    "notice": ("!", "yellow"),
    "problem": ("✗", "red"),
    "repaired": ("✓", "cyan"),
}
"""The sign and the style of a finding."""
_MIGRATED = {
    "plan": "would be migrated from",
    "dry_run": "can be migrated (tried, checked and taken back) from",
    "apply": "✓ migrated from",
}


proof_view = record(
    "Proof",
    "memory=id looked_at=checked",
    claim=lambda each: report(
        "nothing reaches it" if each.claim == "unreachable" else "nothing holds it", each.holds
    ),
    but=lambda each: _lines(each.problems, "red"),
    last_search=lambda each: (
        each.searched
        and f"{local_time(each.searched.at)}, found in {each.searched.problems} places"
    ),
    kept=lambda each: list(each.copies),
    cannot_prove=lambda each: _lines(each.cannot_prove, "dim"),
)
erasure_view = record(
    "Erased",
    "memories=memory_ids drawn_from_them=derived proposals versions sources "
    "recorded_steps=payloads threads approvals names,_goals_of_runs=runs names_of_steps=steps",
    journal=lambda each: (
        f"what people wrote beside {each.journal} entries" if each.journal else None
    ),
    stays_in_the_chain=lambda each: _lines(each.in_chain, "yellow"),
    stays_in=lambda each: _lines(map(str, each.elsewhere), "yellow"),
    proof=lambda each: list(map(_found, each.proofs)),
    cannot_prove=lambda each: _lines(each.cannot_prove, "dim"),
    warning=lambda each: "This cannot be taken back." if each.mode == "preview" else None,
)
erased_user_view = record(
    "Erased",
    "user shared recorded_steps_of_others=payloads threads kinds=counts",
    stays=lambda each: _lines(each.stays, "yellow"),
    proof=lambda each: each.proof and _found(each.proof),
    cannot_prove=lambda each: each.proof and _lines(each.proof.cannot_prove, "dim"),
    warning=lambda each: "This cannot be taken back." if each.mode == "preview" else None,
)
purge_view = record(
    "Removed",
    "expired_memories=expired forgotten_memories=tombstones conclusions=derived proposals "
    "access_log=reads approvals jobs answers_under_idempotency_keys=answers working_memory=working",
    journal_entries=lambda each: f"{each.journal} of {len(each.streams)} journals",
    recorded_runs=lambda each: len(each.runs),
    journal=lambda each: (
        Text("kept: no window was chosen, or for ever", style="dim")
        if each.journal_window_days is None
        else None
    ),
)


def _lines(texts: Iterable[str], style: str) -> list[Text]:
    return [Text(text, style=style) for text in texts]


def _found(proof: records.Proof) -> Text:
    return report("; ".join(proof.problems) or "erased: nothing of it was found", proof.holds)


def transfer_view(transfer: records.Transfer) -> RenderableType:
    """Return the contents of an export or import, or what an export would write."""
    states = f" ({common.counts(transfer.states)})" if transfer.states else ""
    text = (
        f"{len(transfer.scopes)} scopes: {transfer.memories} memories{states}, "
        f"{transfer.sources} sources, {transfer.runs} runs, {transfer.threads} threads, "
        f"{transfer.entries} journal entries, {transfer.blobs} blobs of {transfer.bytes:,} bytes"
    )
    shown = (
        report(f"{text}\n  {transfer.digest}") if transfer.digest else Text(f"To export: {text}")
    )
    return common.with_warnings(shown, transfer.warnings)


def backup_view(backup: records.Backup) -> Text:
    """Return what a backup has, or what was restored from one."""
    text = report(
        f"{backup.rows:,} rows of {backup.tables} tables, "
        f"{backup.chains} chains, {backup.bytes / 1e6:,.1f} MB in {backup.took_ms / 1_000:.1f} s, "
        f"schema {backup.schema_revision}\n  {backup.digest}\n"
    )
    lines = [f"  ✓ {line}" for line in backup.checked]
    return text.append("\n".join([*lines, *(f"  left out: {line}" for line in backup.left_out)]))


def migration_view(migration: records.Migration) -> Text:
    """Return what migrating changes, would change or changed."""
    if not migration.steps:
        return report(f"schema {migration.after}: nothing to migrate")
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
        "what=kind",
        MB=lambda use: f"{use.size / 1e6:,.2f}",
        share=lambda use: f"{use.size / max(sizes.total, 1):.0%}",
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

    def text(finding: records.Finding) -> Text:
        sign, style = _SIGNS[finding.status]
        return Text(finding.text, style="" if sign == "✓" else style)

    signs = {" ": lambda each: Text(*_SIGNS[each.status]), "check": lambda each: each.check}
    return table(findings, "", **signs, finding=text)


def reembedding_view(work: records.Reembedding) -> RenderableType:
    """Return what embedding every text takes, or how far it came, and what to do then."""
    where = "on this machine" if work.local else "elsewhere: they are sent there"
    by = f"{work.embedder} ({work.dimension} dimensions, {where})"
    if work.mode == "preview" and not work.texts:
        return report(f"Every text has a vector of {by}.")
    if work.mode == "preview":
        lines = [f"{work.texts:,} texts, some {work.tokens or 0:,} tokens, by {by}."]
        if work.cost is not None:
            known = work.cost.amount is not None
            of = f"some {work.cost} ({work.cost.prices})" if known else "no price known"
            lines.append(f"Cost: {of}.")
        if work.stays:
            lines.append(f"{work.stays:,} more stay on this machine, and are found by their words.")
        lines.append(_meanwhile(work))
        return Text("\n".join([*lines, "To do it: the same command with --apply."]))
    if work.left:
        cut = work.problem or "Paused."
        went = f"{work.embedded:,} of {work.texts:,} texts are embedded by {by}"
        text = f"{cut} {went}; {work.left:,} are left. The same command goes on there."
        return report(text, False)
    lines = [f"{work.embedded:,} texts are embedded by {by}."]
    if work.refused:
        lines.append(f"{work.refused:,} were refused, and are found by their words.")
    if not work.is_own:
        lines.append(f'Now set embedder = "{work.embedder}", and recall goes by these.')
    return report("\n".join(lines))


def _meanwhile(work: records.Reembedding) -> str:
    """Say by what recall goes until it is done."""
    if work.reads_by is None:
        return "Until then recall goes by words and structure: the embedder in use is away."
    if work.is_own:
        return "Until then each of them is found by its words."
    return f"Until then, and until the setting names it, recall goes by {work.reads_by}."


def reconciled_view(reconciled: Reconciled) -> Text:
    """Return the comparison of Chroma with the database."""
    if reconciled.whole:
        return report(f"the index matches the database ({reconciled.checked} vectors)")
    if reconciled.problem is not None:
        return report(reconciled.problem, False)
    differing = (
        f"{reconciled.missing} missing, {reconciled.stale} stale, {reconciled.ghosts} gone, "
        f"{reconciled.unreachable} unreachable of {reconciled.checked}"
    )
    return report(f"the index does not match: {differing}. Run tally rebuild-index.", False)


def _work(job: records.Job) -> Text:
    where = "the whole tally" if job.scope is None else str(job.scope)
    progress = f" ({_progress(job)})" if _progress(job) else ""
    waited = f", waited {job.waits} times" if job.waits else ""
    error = f"\n{job.error_code}, {job.attempts} of {job.max_attempts} attempts{waited}"
    return Text.assemble(
        f"{job.kind} in {where}{progress}", (error if job.error_code else "", "dim")
    )


def _progress(job: records.Job) -> str:
    if not job.progress and not job.total:
        return ""
    return f"{job.progress}{f' of {job.total}' if job.total else ''}"


job_table = rows("id state when=updated_at", what=_work)


def job_view(job: records.Job) -> RenderableType:
    """Return one job with its trail."""
    is_over = job.is_over or job.due_at is None
    due = "ended" if is_over else "lease_ends" if job.state == "leased" else "next_attempt"
    moment = job.updated_at if is_over else job.due_at
    trail = [
        f"{local_time(event.at)} {event.state}{f': {event.code}' if event.code else ''}"
        for event in job.trail
    ]
    waits = f"{job.waits} times for what was away, which counts for nothing"
    view = record(
        "Job {0.id}",
        "kind scope state worker=leased_by cost result error=error_code error_text",
        **{due: lambda _: moment and local_time(moment)},
        attempts=lambda each: f"{each.attempts} of {each.max_attempts}",
        waited=lambda each: waits if each.waits else None,
        progress=_progress,
        authority=lambda each: each.user or "none that can be read",
        trail=lambda each: trail or f"{local_time(each.created_at)} enqueued",
    )
    return view(job)


def _outcome(call: records.OutboundCall) -> Text:
    cost = f" ${call.micros / 1_000_000:.4f}" if call.micros else ""
    style = "green" if call.outcome == "answered" else "red"
    return Text.assemble((call.outcome, style), (f" {call.duration_ms:,} ms{cost}", "dim"))


def _model(call: records.OutboundCall) -> Text:
    model = "/".join(filter(None, (call.provider, call.model)))
    return Text.assemble(model, (" here" if call.local else " far", "dim"))


def _sent(call: records.OutboundCall) -> Text:
    hidden = f", {call.redacted} hidden" if call.redacted else ""
    return Text.assemble(f"{call.characters:,} characters", (hidden, "dim"))


outbound_table = rows(
    "when=at",
    what=lambda call: f"{call.purpose} {common.short(call.subject_id or '')}".rstrip(),
    to=_model,
    sent=_sent,
    tokens=lambda call: f"{call.input_tokens:,} + {call.output_tokens:,}",
    outcome=_outcome,
)
