"""Views of documents and of imports."""

from __future__ import annotations

from collections.abc import Iterable

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from tallystick import records
from tallystick_cli.views import common
from tallystick_cli.views.common import facts, local_time, panel, report, says, table


def _progress(each: records.Import) -> str:
    total = "" if each.total is None else f" of {each.total}"
    left = "" if not each.seconds_left else f", {each.seconds_left} s left"
    return f"{each.counters.seen}{total} records{left}"


def _skipped(each: records.Import) -> str:
    return common.counts(each.counters.skipped)


def import_view(shown: records.Import) -> RenderableType:
    """Return an import with its counters, and why it stands still."""
    counts = shown.counters
    error = shown.error_text or shown.error_code
    numbers = {
        "stored": counts.stored,
        "unchanged": counts.unchanged,
        "duplicate": counts.duplicate,
        "failed": counts.failed,
        "attachments": counts.attachments,
    }
    gone = f"{shown.vanished} records: `tally source-import vanished {common.short(shown.id)}`"
    fields = facts(
        shown,
        "id state adapter target scope",
        progress=_progress,
        records=lambda _: common.counts({name: count for name, count in numbers.items() if count}),
        skipped=_skipped,
        without_vectors_yet=lambda each: each.waiting or None,
        gone_from_the_source=lambda each: gone if each.vanished else None,
        error=lambda each: error and Text(error, style="yellow"),
        options=lambda each: ", ".join(f"{name}={each.options[name]}" for name in each.options),
        schedule=lambda each: each.due_at and f"{each.schedule}, next {local_time(each.due_at)}",
        next_attempt=lambda each: each.retry_at and local_time(each.retry_at),
    )
    return panel(shown.title, fields)


def preview_view(preview: records.ImportPreview) -> RenderableType:
    """Return what an import would change, with the first of the records."""
    rows = [
        (kind, getattr(preview, kind), getattr(preview, f"{kind}_records", ()))
        for kind in ("new", "changed", "vanished")
    ]
    shown = Table("", "records", "such as", box=None, header_style="dim")
    for kind, count, names in rows:
        shown.add_row(kind, f"{count:,}", Text("\n".join(names)))
    shown.add_row("unchanged", f"{preview.unchanged:,}", "")
    for reason, count in preview.skipped.items():
        shown.add_row(f"skipped: {reason}", f"{count:,}", "")
    if not preview.is_whole:
        shown.add_row("", "", Text("It was not read to its end.", style="yellow"))
    return panel(preview.title, shown)


def import_table(imports: Iterable[records.Import]) -> Table:
    """Return imports, one in a row."""
    return table(
        imports, "id state adapter title when=created_at", progress=_progress, skipped=_skipped
    )


def record_table(listed: Iterable[records.ImportedRecord]) -> Table:
    """Return what became of records, one in a row."""
    return table(listed, "state record=record_id reason detail document=document_id")


def removal_view(removal: records.Removal) -> RenderableType:
    """Return what vanished from a source, or what was forgotten of it."""
    if removal.mode == "apply":
        return report(f"{removal.forgotten} memories forgotten of {len(removal.records)} records")
    if not removal.records:
        return Text("Nothing vanished.")
    rows = table(removal.records, "record=record_id title memories=chunks")
    return common.preview_panel(rows)


def document_view(shown: records.Document) -> RenderableType:
    """Return what is known of a document."""
    files = [f"{each.name} ({each.media_type}, {each.size} bytes)" for each in shown.attachments]
    fields = facts(
        shown,
        "id state outcome scope version passages=chunks words address=url found_on=parent_url "
        "record=record_id media_type participants thread labels transforms when=occurred_at "
        "read=crawled_at",
        attachments=lambda _: files,
        error=lambda each: each.error and Text(each.error, style="yellow"),
    )
    return panel(shown.title or shown.id, fields)


def document_table(documents: Iterable[records.Document]) -> Table:
    """Return documents, one in a row."""
    return table(documents, "id state title passages=chunks when=created_at")


def chunk_table(chunks: Iterable[records.DocumentChunk]) -> Table:
    """Return passages, one in a row."""
    return table(
        chunks,
        "id=memory_id words",
        section=lambda each: " › ".join(each.section_path),
        says=lambda each: says(each.text),
    )
