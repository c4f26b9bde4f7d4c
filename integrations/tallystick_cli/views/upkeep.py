"""Views of upkeep: proofs, erasure, retention, transfers, the doctor, the index, and jobs."""

from __future__ import annotations

from collections.abc import Iterable

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from tallystick import records
from tallystick.memory.reconcile import Reconciled
from tallystick_cli.views import common
from tallystick_cli.views.common import facts, local_time, panel, report, table

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


def proof_view(proof: records.Proof) -> RenderableType:
    """Return the checks of a proof, the problems, and the limits of the proof."""
    claim = "nothing reaches it" if proof.claim == "unreachable" else "nothing holds it"
    last = proof.searched
    searched = last and f"{local_time(last.at)}, found in {last.problems} places"
    shown = facts(
        proof,
        "memory=id looked_at=checked",
        claim=lambda each: report(claim, each.holds),
        but=lambda each: [Text(problem, style="red") for problem in each.problems],
        last_search=lambda _: searched,
        kept=lambda each: list(each.copies),
        cannot_prove=lambda each: Text("\n".join(each.cannot_prove), style="dim"),
    )
    return panel("Proof", shown)


def erasure_view(erasure: records.Erasure) -> RenderableType:
    """Return the copies that an erasure destroys or would destroy, with the proof."""
    beside = f"what people wrote beside {erasure.journal} entries"
    in_chain, elsewhere = ", ".join(erasure.in_chain), common.join_ids(erasure.elsewhere)
    shown = facts(
        erasure,
        "memories=memory_ids drawn_from_them=derived proposals versions sources "
        "recorded_steps=payloads threads approvals "
        "names,_goals_of_runs=runs names_of_steps=steps",
        journal=lambda each: beside if each.journal else None,
        stays_in_the_chain=lambda _: in_chain and Text(in_chain, style="yellow"),
        stays_in=lambda _: elsewhere and Text(elsewhere, style="yellow"),
        proof=lambda each: [
            report("; ".join(proof.problems) or "erased: nothing of it was found", proof.holds)
            for proof in each.proofs
        ],
        cannot_prove=lambda each: Text("\n".join(each.cannot_prove), style="dim"),
    )
    if erasure.mode == "apply":
        return panel("Erased", shown)
    return common.preview_panel(shown, more=" This cannot be taken back.")


def erased_user_view(erased: records.ErasedUser) -> RenderableType:
    """Return what erasing a user destroys or would destroy, by kind, with the proof."""
    proof, stays = erased.proof, "\n".join(erased.stays)
    shown = facts(
        erased,
        "user shared recorded_steps_of_others=payloads threads",
        kinds=lambda each: common.counts(each.counts),
        stays=lambda _: Text(stays, style="yellow"),
        proof=lambda _: (
            proof
            and report("; ".join(proof.problems) or "erased: nothing of it was found", proof.holds)
        ),
        cannot_prove=lambda _: proof and Text("\n".join(proof.cannot_prove), style="dim"),
    )
    if erased.mode == "apply":
        return panel("Erased", shown)
    return common.preview_panel(shown, more=" This cannot be taken back.")


def purge_view(purge: records.Purge) -> RenderableType:
    """Return the data that is past its window, or was removed."""
    forever = Text("kept: no window was chosen, or for ever", style="dim")
    shown = facts(
        purge,
        "expired_memories=expired forgotten_memories=tombstones conclusions=derived proposals "
        "access_log=reads approvals jobs "
        "answers_under_idempotency_keys=answers working_memory=working",
        journal_entries=lambda each: f"{each.journal} of {len(each.streams)} journals",
        recorded_runs=lambda each: len(each.runs),
        journal=lambda each: forever if each.journal_window_days is None else None,
    )
    return panel("Past their window" if purge.mode == "preview" else "Removed", shown)


def transfer_view(transfer: records.Transfer, what: str) -> RenderableType:
    """Return the contents of an export or import, or what an export would write."""
    states = f" ({common.counts(transfer.states)})" if transfer.states else ""
    text = (
        f"{len(transfer.scopes)} scopes {what}: {transfer.memories} memories{states}, "
        f"{transfer.sources} sources, {transfer.runs} runs, {transfer.threads} threads, "
        f"{transfer.entries} journal entries, {transfer.blobs} blobs of {transfer.bytes:,} bytes"
    )
    shown = report(f"{text}\n  {transfer.digest}") if transfer.digest else Text(text)
    return common.with_warnings(shown, transfer.warnings)


def backup_view(backup: records.Backup, folder: str) -> Text:
    """Return what a backup has, or what was restored from one."""
    verb = "backed up to" if backup.mode == "backup" else "restored to"
    text = report(
        f"{verb} {folder}: {backup.rows:,} rows of {backup.tables} tables, "
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


def rebuilt_view(rebuilt: records.RebuiltIndex) -> Text:
    """Return the number of vectors in the index that was made anew."""
    return report(f"{rebuilt.chroma} vectors in Chroma")


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


def job_table(jobs: Iterable[records.Job]) -> Table:
    """Return jobs, one in a row."""

    def what(job: records.Job) -> Text:
        waited = f", waited {job.waits} times" if job.waits else ""
        error = f"\n{job.error_code}, {job.attempts} of {job.max_attempts} attempts{waited}"
        progress = f" ({_progress(job)})" if _progress(job) else ""
        return Text.assemble(_work(job), progress, (error if job.error_code else "", "dim"))

    return table(jobs, "id state when=updated_at", what=what)


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
    shown = facts(
        job,
        "kind state worker=leased_by cost result error=error_code error_text",
        what=_work,
        **{due: lambda _: moment and local_time(moment)},
        attempts=lambda each: f"{each.attempts} of {each.max_attempts}",
        waited=lambda each: waits if each.waits else None,
        progress=_progress,
        authority=lambda each: each.user or "none that can be read",
        trail=lambda each: trail or f"{local_time(each.created_at)} enqueued",
    )
    return panel(f"Job {job.id}", shown)


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
        "when=at",
        what=lambda call: f"{call.purpose} {common.short(call.subject_id or '')}".rstrip(),
        to=to,
        sent=sent,
        tokens=lambda call: f"{call.input_tokens:,} + {call.output_tokens:,}",
        outcome=outcome,
    )


def _work(job: records.Job) -> str:
    where = "the whole tally" if job.scope is None else str(job.scope)
    return f"{job.kind} in {where}"


def _progress(job: records.Job) -> str:
    if not job.progress and not job.total:
        return ""
    return f"{job.progress}{f' of {job.total}' if job.total else ''}"
