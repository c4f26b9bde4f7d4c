"""Views of upkeep: proofs, erasure, retention, transfers, findings of the doctor, and the index."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from rich.console import RenderableType
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from tallystick.pipeline import Reconciled
from tallystick.records import (
    Backup,
    Erasure,
    Finding,
    Migration,
    Proof,
    Purge,
    RebuiltIndex,
    Sizes,
    Transfer,
)
from tallystick_cli.views.common import (
    fact_table,
    local_time,
    plain_table,
    preview_panel,
    short,
)

_FINDING = {
    "ok": ("✓", "green"),
    "notice": ("!", "yellow"),
    "problem": ("✗", "red"),
    "repaired": ("✓", "cyan"),
}


def proof_view(proof: Proof) -> RenderableType:
    """Return the checks of a proof, the problems, and the limits of the proof."""
    facts = fact_table()
    claim = "nothing reaches it" if proof.claim == "unreachable" else "nothing holds it"
    facts.add_row("memory", Text(proof.id, style="cyan"))
    facts.add_row(
        "claim",
        Text(f"{'✓' if proof.holds else '✗'} {claim}", style="green" if proof.holds else "red"),
    )
    facts.add_row("looked at", ", ".join(proof.checked))
    for problem in proof.problems:
        facts.add_row("but", Text(problem, style="red"))
    if proof.searched is not None:
        where = f"{local_time(proof.searched.at)}, found in {proof.searched.problems} places"
        facts.add_row("last search", where)
    for copy in proof.copies:
        facts.add_row("kept", copy)
    facts.add_row("cannot prove", Text("\n".join(proof.cannot_prove), style="dim"))
    return Panel(facts, title="Proof", title_align="left", border_style="dim")


def erasure_view(erasure: Erasure) -> RenderableType:
    """Return the copies that an erasure destroys or would destroy, with the proof."""
    facts = fact_table()
    facts.add_row("memories", ", ".join(short(memory_id) for memory_id in erasure.memory_ids))
    facts.add_row("versions", str(erasure.versions))
    facts.add_row(
        "sources",
        ", ".join(short(memory_id) for memory_id in erasure.sources) or "none of their own",
    )
    facts.add_row(
        "recorded steps", ", ".join(short(memory_id) for memory_id in erasure.payloads) or "none"
    )
    facts.add_row("threads", ", ".join(erasure.threads) or "none")
    if erasure.approvals:
        facts.add_row("approvals", ", ".join(short(name) for name in erasure.approvals))
    if erasure.runs:
        facts.add_row("names, goals of runs", ", ".join(short(run_id) for run_id in erasure.runs))
    if erasure.steps:
        facts.add_row("names of steps", ", ".join(short(step_id) for step_id in erasure.steps))
    if erasure.journal:
        facts.add_row("journal", f"what people wrote beside {erasure.journal} entries")
    if erasure.in_chain:
        facts.add_row("stays in the chain", Text(", ".join(erasure.in_chain), style="yellow"))
    if erasure.elsewhere:
        facts.add_row(
            "stays in",
            Text(", ".join(short(memory_id) for memory_id in erasure.elsewhere), style="yellow"),
        )
    for proof in erasure.proofs:
        verdict = Text("✓ erased: nothing of it was found", style="green")
        if not proof.holds:
            verdict = Text("✗ " + "; ".join(proof.problems), style="red")
        facts.add_row("proof", verdict)
    facts.add_row("cannot prove", Text("\n".join(erasure.cannot_prove), style="dim"))
    if erasure.mode == "apply":
        return Panel(facts, title="Erased", title_align="left", border_style="dim")
    return preview_panel(facts, more=" This cannot be taken back.")


def purge_view(purge: Purge) -> RenderableType:
    """Return the data that is past its window, or was removed."""
    facts = fact_table()
    facts.add_row("expired memories", f"{purge.expired} (forgotten, recoverable for their window)")
    facts.add_row("forgotten memories", str(purge.tombstones))
    facts.add_row("journal entries", f"{purge.journal} of {len(purge.streams)} journals")
    facts.add_row("recorded runs", str(len(purge.runs)))
    facts.add_row("access log", str(purge.reads))
    facts.add_row("approvals", str(purge.approvals))
    facts.add_row("jobs", str(purge.jobs))
    facts.add_row("first answers", f"{purge.answers} (of calls under an idempotency key)")
    facts.add_row("working memory", str(purge.working))
    if purge.journal_window_days is None:
        facts.add_row("journal", Text("kept: no window was chosen, or for ever", style="dim"))
    title = "Past their window" if purge.mode == "preview" else "Removed"
    return Panel(facts, title=title, title_align="left", border_style="dim")


def transfer_view(transfer: Transfer, *, verb: str, folder: Path) -> Text:
    """Return the contents of an export or import."""
    return Text(
        f"✓ {len(transfer.scopes)} scopes {verb} {folder}: {transfer.memories} memories, "
        f"{transfer.sources} sources, {transfer.entries} journal entries, "
        f"{transfer.blobs} blobs\n  {transfer.digest}",
        style="green",
    )


def transfer_preview(transfer: Transfer) -> Text:
    """Return what an export would write, in numbers."""
    states = ", ".join(f"{count} {state}" for state, count in transfer.states.items())
    return Text(
        f"{len(transfer.scopes)} scopes would be exported: {transfer.memories} memories"
        f"{f' ({states})' if states else ''}, {transfer.sources} sources, {transfer.runs} runs, "
        f"{transfer.threads} threads, {transfer.entries} journal entries, {transfer.blobs} blobs "
        f"of {transfer.bytes:,} bytes"
    )


def backup_view(backup: Backup, folder: Path) -> Text:
    """Return what a backup has, or what was restored from one."""
    verb = "backed up to" if backup.mode == "backup" else "restored to"
    text = Text()
    text.append(
        f"✓ {verb} {folder}: {backup.rows:,} rows of {backup.tables} tables, "
        f"{backup.chains} chains, {backup.bytes / 1e6:,.1f} MB in {backup.took_ms / 1_000:.1f} s, "
        f"schema {backup.schema_revision}\n  {backup.digest}\n",
        style="green",
    )
    lines = [f"  ✓ {line}" for line in backup.checked]
    lines += [f"  left out: {line}" for line in backup.left_out]
    return text.append("\n".join(lines))


def migration_view(migration: Migration) -> Text:
    """Return what migrating changes, would change or changed."""
    if not migration.steps:
        return Text(f"✓ schema {migration.after}: nothing to migrate", style="green")
    said = {
        "plan": "would be migrated from",
        "dry_run": "can be migrated (tried, checked and taken back) from",
        "apply": "✓ migrated from",
    }[migration.mode]
    took = "" if migration.mode == "plan" else f" in {migration.took_ms / 1_000:.1f} s"
    text = Text(f"{said} schema {migration.before} to {migration.after}{took}")
    for step in migration.steps:
        text.append(f"\n  {step.schema_revision}  {step.text}")
    for line in migration.checked:
        text.append(f"\n  ✓ {line}")
    if migration.backup is not None:
        text.append(f"\n  backup before it: {migration.backup.digest}")
    return text


def sizes_table(sizes: Sizes) -> RenderableType:
    """Return where the bytes of a tally are."""
    table = plain_table("what", "MB", "share")
    for column in table.columns[1:]:
        column.justify = "right"
    for use in sizes.uses:
        table.add_row(use.kind, f"{use.size / 1e6:,.2f}", f"{use.size / max(sizes.total, 1):.0%}")
    table.add_section()
    table.add_row("together", f"{sizes.total / 1e6:,.2f}", "")
    if sizes.text:
        times = sizes.total / sizes.text
        table.add_row(
            f"{times:,.1f} times the text that arrived", f"{sizes.text / 1e6:,.2f}", style="dim"
        )
    return table


def doctor_table(findings: Iterable[Finding]) -> Table:
    """Return the findings of the doctor, one a line."""
    table = plain_table("", "check", "finding")
    for finding in findings:
        sign, style = _FINDING[finding.status]
        table.add_row(
            Text(sign, style=style),
            finding.check,
            Text(finding.text, style="" if sign == "✓" else style),
        )
    return table


def rebuilt_view(rebuilt: RebuiltIndex) -> Text:
    """Return the number of vectors in the index that was made anew."""
    return Text(f"✓ {rebuilt.chroma} vectors in Chroma", style="green")


def reconciled_view(reconciled: Reconciled) -> Text:
    """Return the comparison of Chroma with the database."""
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
