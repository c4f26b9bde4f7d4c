"""Commands of documents and of the sources that they come from."""

from __future__ import annotations

import sys
import threading
from typing import Annotated, Any

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from tallystick import records
from tallystick.records import Document, Import
from tallystick_cli.actions import Action, action_command
from tallystick_cli.commands import Answer, Call
from tallystick_cli.output import progress_bar
from tallystick_cli.views import common
from tallystick_cli.views.common import local_time, panel, record, report, rows
from tallystick_ingest import Ingest

_COUNTED = ("stored", "unchanged", "duplicate", "failed", "attachments")
import_table = rows(
    "id state adapter title when=created_at",
    progress=lambda each: _progress(each),
    skipped=lambda each: common.counts(each.counters.skipped),
)
record_table = rows("state record=record_id reason detail document=document_id")
document_table = rows("id state title passages=chunks when=created_at")
chunk_table = rows(
    "id=memory_id words section says=text", section=lambda each: " › ".join(each.section_path)
)
document_view = record(
    "{0.title}",
    "id state outcome scope version passages=chunks words address=url found_on=parent_url "
    "record=record_id media_type participants thread labels transforms when=occurred_at "
    "read=crawled_at",
    attachments=lambda each: [
        f"{file.name} ({file.media_type}, {file.size} bytes)" for file in each.attachments
    ],
    error=lambda each: each.error and Text(each.error, style="yellow"),
)
import_view = record(
    "{0.title}",
    "id state adapter target scope skipped=counters.skipped next_attempt=retry_at",
    progress=lambda each: _progress(each),
    records=lambda each: common.counts(
        {name: count for name in _COUNTED if (count := getattr(each.counters, name))}
    ),
    without_vectors_yet=lambda each: each.waiting or None,
    gone_from_the_source=lambda each: (
        f"{each.vanished} records: `tally source-import vanished {common.short(each.id)}`"
        if each.vanished
        else None
    ),
    error=lambda each: each.error_code and Text(each.error_text or each.error_code, style="yellow"),
    options=lambda each: ", ".join(f"{name}={each.options[name]}" for name in each.options),
    schedule=lambda each: each.due_at and f"{each.schedule}, next {local_time(each.due_at)}",
)


def _progress(each: records.Import) -> str:
    total = "" if each.total is None else f" of {each.total}"
    left = "" if not each.seconds_left else f", {each.seconds_left} s left"
    return f"{each.counters.seen}{total} records{left}"


def preview_view(preview: records.ImportPreview) -> RenderableType:
    """Return what an import would change, with the first of the records."""
    shown = Table("", "records", "such as", box=None, header_style="dim")
    for kind in ("new", "changed", "vanished"):
        names = getattr(preview, f"{kind}_records", ())
        shown.add_row(kind, f"{getattr(preview, kind):,}", Text("\n".join(names)))
    for kind, count in {"unchanged": preview.unchanged, **preview.skipped}.items():
        shown.add_row(kind if kind == "unchanged" else f"skipped: {kind}", f"{count:,}", "")
    if not preview.is_whole:
        shown.add_row("", "", Text("It was not read to its end.", style="yellow"))
    return panel(preview.title, shown)


def removal_view(removal: records.Removal) -> RenderableType:
    """Return what vanished from a source, or what was forgotten of it."""
    if removal.mode == "apply":
        return report(f"{removal.forgotten} memories forgotten of {len(removal.records)} records")
    if not removal.records:
        return Text("Nothing vanished.")
    return common.preview_panel(
        common.table(removal.records, "record=record_id title memories=chunks")
    )


_LOOK_SECONDS = 0.5
Later = Annotated[bool, "Leave the work to a process that runs."]


def _start(call: Call, target: str, /, *, later: Later = False) -> Answer:
    return _work(call, call.do(target=target), later)


def _go_on(call: Call, import_id: str, /, *, later: Later = False) -> Answer:
    return _work(call, call.do(import_id=import_id), later)


def _replay(call: Call, import_id: str, record: str, /) -> Any:
    return call.do(import_id=import_id, record_id=record)


def _work(call: Call, started: Import, later: bool) -> Answer:
    """Carry out an import here, with its progress, unless it is left to others."""
    if later or started.job_id is None:
        return Answer(started)
    ingest = Ingest(call.bound)
    worker = threading.Thread(target=call.owner.tally.drain, daemon=True)
    with progress_bar("Import", "records", hidden=call.as_json) as advance:
        worker.start()
        while worker.is_alive():
            worker.join(_LOOK_SECONDS)
            status = ingest.import_status(started.id)
            advance(status.counters.seen, status.total)
    status = ingest.import_status(started.id)
    return Answer(status, ok=status.state not in ("failed", "paused"))


source_import = action_command(
    "Import a source into your own scope, and follow, steer or repeat it. What vanished from it "
    "goes by a preview.",
    {
        "list": Action("imports", view=import_table, empty="Nothing was imported."),
        "start": Action("start_import", view=import_view, run=_start),
        "preview": Action("preview_import", "target", preview_view),
        "status": Action("import_status", "import_id", import_view),
        "records": Action("import_records", "import_id", record_table),
        "pause": Action("pause_import", "import_id", import_view),
        "resume": Action("resume_import", view=import_view, run=_go_on),
        "cancel": Action("cancel_import", "import_id", import_view),
        "resync": Action("resync_import", view=import_view, run=_go_on),
        "replay": Action("replay_record", view=lambda read: record_table([read]), run=_replay),
        "vanished": Action("remove_vanished", "import_id", removal_view),
    },
    helps={
        "action": "list, start TARGET, preview TARGET: what that would change, status, records, "
        "pause, resume, cancel or resync IMPORT, replay IMPORT RECORD, or vanished IMPORT: what "
        "its source has no more.",
        "record": "As its source names it.",
    },
    without=("record_id",),
    scope="home",
)


def _add(call: Call, file: str, /) -> Answer:
    given = {"content": sys.stdin.read()} if file == "-" else {"path": file}
    added: Document = call.do(**given)
    return Answer(added, ok=added.state != "failed")


document = action_command(
    "List documents; add one, or show one or its passages.",
    {
        "list": Action("documents", view=document_table, empty="There are no documents."),
        "add": Action("add_document", view=document_view, run=_add),
        "show": Action("document", "document_id", document_view),
        "chunks": Action("document_chunks", "document_id", chunk_table, "It has no passages."),
    },
    helps={"action": "list, add FILE (of - what comes in), show DOCUMENT, chunks DOCUMENT."},
    without=("content", "data", "path"),
    scope="home",
)
