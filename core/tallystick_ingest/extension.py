"""The extension: what documents and sources add to a tally."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from tallystick.extension import Extension
from tallystick.loading import Late
from tallystick.operations import Operation

if TYPE_CHECKING:
    from tallystick.jobs import Handler
    from tallystick.jobs.derived import Derived
    from tallystick.memory import MemoryContext
    from tallystick.operations.operation import Effect
    from tallystick.recorder.outbound import Outbound

_START: tuple[str, ...] = ("denied", "invalid_input", "not_of_format", "authorization_needed")
_START += ("missing_extra", "rate_limited", "source_rate_limited", "settings_error")
_START += ("state_conflict",)
_INGEST = Late("tallystick_ingest.ingest:Ingest")


def _operation(
    effect: Effect,
    errors: tuple[str, ...],
    verb: str,
    title: str,
    description: str,
    *,
    name: str | None = None,
    needs_preview: bool = False,
) -> Operation:
    make = partial(Operation, face=_INGEST, needs_preview=needs_preview)
    return make(name or verb, title, description, effect, errors, f"ingest.{verb}")


_read = partial(_operation, "read", ("not_found", "denied", "rate_limited"))
_start = partial(_operation, "change", _START)
_start_again = partial(_operation, "change", (*_START, "not_found"))
_steer = partial(_operation, "change", ("not_found", "denied", "state_conflict"))
_change = partial(_operation, "change")


def _handlers(context: MemoryContext, outbound: Outbound) -> Sequence[Handler]:
    from tallystick_ingest.import_runs import ImportHandler

    return (ImportHandler(context),)


def _derived(context: MemoryContext) -> Sequence[Derived]:
    from tallystick_ingest.health import SourceHealth

    return (SourceHealth(context),)


EXTENSION: Extension[Operation] = Extension(
    handlers=_handlers,
    derived=_derived,
    operations=(
        _change(
            ("denied", "invalid_input", "rate_limited"),
            "add_document",
            "Add a document",
            "Store a text or a file as a document, in passages that recall finds; of the same name "
            "it is a new version.",
        ),
        _read("documents", "List documents", "List the documents of a scope."),
        _read(
            "document",
            "Read a document",
            "Read what is known of a document, with its attachments.",
        ),
        _read(
            "chunks",
            "Passages of a document",
            "Read the passages of a document in their order, each of which is a memory.",
            name="document_chunks",
        ),
        _start(
            "start_import",
            "Import a source",
            "Import a folder, a mailbox, a repository, a drive or a site into a private scope; "
            "imported again, only what differs is stored.",
        ),
        _start(
            "preview_import",
            "Preview an import",
            "Read a source and say what an import would store, change or find vanished; nothing is "
            "stored.",
        ),
        _read("imports", "List imports", "List the imports of a scope."),
        _read(
            "import_status",
            "Follow an import",
            "Show how far an import is, what it left out and why.",
        ),
        _read(
            "import_records",
            "Records of an import",
            "List what became of the records of an import, such as those that were skipped.",
        ),
        _steer(
            "pause",
            "Pause an import",
            "Let an import rest after the batch under way.",
            name="pause_import",
        ),
        _steer(
            "resume",
            "Resume an import",
            "Let an import that was paused, failed or lost its process go on from its last "
            "checkpoint.",
            name="resume_import",
        ),
        _steer(
            "cancel",
            "Cancel an import",
            "End an import, and its schedule; what it has stored stays.",
            name="cancel_import",
        ),
        _start_again(
            "resync",
            "Resync a source",
            "Import a source again, and read every record of it anew.",
            name="resync_import",
        ),
        _start_again(
            "replay",
            "Read a record again",
            "Read one record of a connector again, as it is now.",
            name="replay_record",
        ),
        _change(
            ("not_found", "denied", "invalid_input", "state_conflict", "rate_limited"),
            "remove_vanished",
            "Remove what vanished",
            "Preview what a source has no more, then forget its memories with the token.",
            needs_preview=True,
        ),
    ),
)
