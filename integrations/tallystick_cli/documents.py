"""Commands of documents and of the sources that they come from."""

from __future__ import annotations

import sys
import threading
from typing import Annotated

from tallystick.records import Document, Import
from tallystick_cli.actions import Action, action_command
from tallystick_cli.commands import Answer, Call
from tallystick_cli.output import progress_bar
from tallystick_cli.views import documents as views
from tallystick_ingest import Ingest

_LOOK_SECONDS = 0.5
Later = Annotated[bool, "Leave the work to a process that runs."]


def _start(call: Call, target: str, /, *, later: Later = False) -> Answer:
    return _work(call, call.do(target=target), later)


def _go_on(call: Call, import_id: str, /, *, later: Later = False) -> Answer:
    return _work(call, call.do(import_id=import_id), later)


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
        "list": Action("imports", view=views.import_table, empty="Nothing was imported."),
        "preview": Action("preview_import", "target", views.preview_view),
        "start": Action("start_import", view=views.import_view, run=_start),
        "status": Action("import_status", "import_id", views.import_view),
        "records": Action("import_records", "import_id", views.record_table),
        "pause": Action("pause_import", "import_id", views.import_view),
        "resume": Action("resume_import", view=views.import_view, run=_go_on),
        "cancel": Action("cancel_import", "import_id", views.import_view),
        "resync": Action("resync_import", view=views.import_view, run=_go_on),
        "replay": Action(
            "replay_record", "import_id record_id", lambda read: views.record_table([read])
        ),
        "vanished": Action("remove_vanished", "import_id", views.removal_view),
    },
    scope="home",
)


def _add(call: Call, file: str, /) -> Answer:
    given = {"content": sys.stdin.read()} if file == "-" else {"path": file}
    added: Document = call.do(**given)
    return Answer(added, ok=added.state != "failed")


document = action_command(
    "List documents; add one, or show one or its passages.",
    {
        "list": Action("documents", view=views.document_table, empty="There are no documents."),
        "add": Action("add_document", view=views.document_view, run=_add),
        "show": Action("document", "document_id", views.document_view),
        "chunks": Action(
            "document_chunks", "document_id", views.chunk_table, "It has no passages."
        ),
    },
    helps={"action": "List, add FILE (of - what comes in), show DOCUMENT, chunks DOCUMENT."},
    without=("content", "data", "path"),
    scope="home",
)
