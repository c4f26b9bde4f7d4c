"""Commands of documents and of the sources that they come from."""

from __future__ import annotations

import sys
import threading
from typing import Annotated, Literal

from tallystick.errors import InvalidInput
from tallystick.records import Import
from tallystick_cli.commands import Answer, Call, command
from tallystick_cli.output import progress_bar
from tallystick_cli.session import id_of
from tallystick_cli.views import documents as views
from tallystick_ingest import Ingest

_LOOK_SECONDS = 0.5
_STEERS = {
    "pause": "pause_import",
    "resume": "resume_import",
    "cancel": "cancel_import",
    "resync": "resync_import",
}


@command(
    *(
        "start_import",
        "preview_import",
        "imports",
        "import_status",
        "import_records",
        "pause_import",
    ),
    *("resume_import", "cancel_import", "resync_import", "replay_record", "remove_vanished"),
    without=("target", "import_id", "record_id"),
    helps={
        "action": "start TARGET, preview TARGET: what that would change, status [IMPORT], "
        "records, pause, resume, cancel or resync IMPORT, "
        "replay IMPORT RECORD, or vanished IMPORT: what its source has no more.",
    },
    scope="home",
)
def source_import(
    call: Call,
    action: Literal[
        "start",
        "preview",
        "status",
        "records",
        "pause",
        "resume",
        "cancel",
        "resync",
        "replay",
        "vanished",
    ] = "status",
    what: Annotated[str | None, "To start, what to read; else the id of an import."] = None,
    record: Annotated[str | None, "To replay, the record as its source names it."] = None,
    /,
    later: Annotated[bool, "Leave the work to a process that runs."] = False,
) -> Answer:
    """Import a source into your own scope, and follow, steer or repeat it. What vanished from it
    goes by a preview.
    """
    if what is None and action != "status":
        raise InvalidInput(f"tally source-import {action} takes {_TAKES.get(action, 'an import')}.")
    if (record is not None) != (action == "replay"):
        raise InvalidInput("Only replay takes a RECORD, and needs one.")
    if later and action not in ("start", "resume", "resync"):
        raise InvalidInput("--later is for start, resume and resync.")
    if action == "start":
        return _work(call, call.do(target=what), later)
    if action == "preview":
        preview = call.do("preview_import", target=what)
        return Answer(preview, views.preview_view(preview))
    if what is None:
        listed = call.do("imports")
        nothing = "Nothing was imported."
        return Answer(listed, views.import_table(listed) if listed else nothing)
    import_id = id_of(what)
    if action == "records":
        records = call.do("import_records", import_id=import_id)
        return Answer(records, views.record_table(records) if records else "There is none.")
    if action == "vanished":
        removal = call.do("remove_vanished", import_id=import_id)
        return Answer(removal, views.removal_view(removal))
    if action == "replay":
        read = call.do("replay_record", import_id=import_id, record_id=record)
        return Answer(read, views.record_table([read]))
    shown: Import = call.do(_STEERS.get(action, "import_status"), import_id=import_id)
    if action in ("resume", "resync"):
        return _work(call, shown, later)
    return Answer(shown, views.import_view(shown))


_TAKES: dict[str, str] = dict.fromkeys(("start", "preview"), "what to read, and --adapter")


def _work(call: Call, started: Import, later: bool) -> Answer:
    """Carry out an import here, with its progress, unless it is left to others."""
    if later or started.job_id is None:
        return Answer(started, views.import_view(started))
    ingest = Ingest(call.bound)
    worker = threading.Thread(target=call.owner.tally.drain, daemon=True)
    with progress_bar("Import", "records", hidden=call.as_json) as advance:
        worker.start()
        while worker.is_alive():
            worker.join(_LOOK_SECONDS)
            status = ingest.import_status(started.id)
            advance(status.counters.seen, status.total)
    status = ingest.import_status(started.id)
    return Answer(status, views.import_view(status), status.state not in ("failed", "paused"))


@command(
    *("documents", "document", "document_chunks", "add_document"),
    without=("document_id", "content", "data", "path"),
    helps={"action": "list, show DOCUMENT, chunks DOCUMENT, or add FILE; of - what comes in."},
    scope="home",
)
def document(
    call: Call,
    action: Literal["list", "add", "show", "chunks"] = "list",
    what: Annotated[str | None, "The file to add, or the id of a document."] = None,
    /,
) -> Answer:
    """List documents; add one, or show one or its passages."""
    if (what is None) != (action == "list"):
        raise InvalidInput("Write tally document list, add FILE, show DOCUMENT or chunks DOCUMENT.")
    if what is None:
        listed = call.do("documents")
        nothing = "There are no documents."
        return Answer(listed, views.document_table(listed) if listed else nothing)
    if action == "add":
        given = {"content": sys.stdin.read()} if what == "-" else {"path": what}
        added = call.do("add_document", **given)
        return Answer(added, views.document_view(added), added.state != "failed")
    if action == "chunks":
        chunks = call.do("document_chunks", document_id=id_of(what))
        return Answer(chunks, views.chunk_table(chunks) if chunks else "It has no passages.")
    shown = call.do("document", document_id=id_of(what))
    return Answer(shown, views.document_view(shown))
