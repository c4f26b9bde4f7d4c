"""Pages of documents, and of the imports that they come from."""

from __future__ import annotations

import json

from starlette.responses import Response

from tallystick.errors import InvalidInput
from tallystick.records import Document, DocumentChunk, Import
from tallystick_server.dashboard.runs import scopes_of
from tallystick_server.dashboard.visits import Visit, form_page, page

_LISTED = 100
_ACTIONS = {"pause": "paused", "resume": "resumed", "cancel": "ended"}
"""What a person does to an import, and the sentence that says so afterwards."""


def _documents(visit: Visit) -> Response:
    """The documents and the imports of one scope."""
    documents: list[Document] = visit.call("documents", limit=_LISTED)
    imports: list[Import] = visit.call("imports", limit=_LISTED)
    return visit.page(
        "documents.html",
        documents=documents,
        imports=imports,
        scope=visit.bound.scope,
        scopes=[each for each in scopes_of(visit) if each.readable],
    )


def _document(visit: Visit) -> Response:
    """One document with its passages."""
    document_id = visit.path("document_id")
    document: Document = visit.call("document", document_id=document_id)
    chunks: list[DocumentChunk] = visit.call("document_chunks", document_id=document_id)
    return visit.page("document.html", document=document, chunks=chunks)


def _import(visit: Visit) -> Response:
    """One import with its counters, and the records that it left out."""
    import_id = visit.path("import_id")
    shown: Import = visit.call("import_status", import_id=import_id)
    left = visit.call(
        "import_records", import_id=import_id, state=["skipped", "failed"], limit=_LISTED
    )
    again = {"scope": str(shown.scope), "adapter": shown.adapter, "target": shown.target}
    if shown.options:
        again["options"] = json.dumps(shown.options)
    return visit.page("source_import.html", shown=shown, left=left, again=again)


def _steer(visit: Visit) -> Response:
    """Pause, resume or cancel an import."""
    action, import_id = visit.form.get("action", ""), visit.path("import_id")
    if action not in _ACTIONS:
        raise InvalidInput(f"action: an import is told to {', '.join(_ACTIONS)}.")
    visit.call(f"{action}_import", import_id=import_id)
    return visit.go(f"/source-imports/{import_id}", note=_ACTIONS[action])


def _add_file(visit: Visit) -> Response:
    """Add a file that somebody chose; of the same name it is a new version."""
    if not visit.file:
        raise InvalidInput("Choose a file.")
    added: Document = visit.call("add_document", **visit.file)
    return visit.go(f"/documents/{added.id}", note="remembered")


ROUTES = [
    page("/documents", _documents),
    form_page("/documents/file", _add_file, takes_file=True),
    page("/documents/{document_id}", _document),
    page("/source-imports/{import_id}", _import),
    form_page("/source-imports/{import_id}", _steer),
]
