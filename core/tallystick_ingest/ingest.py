"""Ingest: documents, and the sources that they come from."""

from __future__ import annotations

import base64
import binascii
import os
from collections.abc import Callable, Iterable
from typing import Annotated, Any

from pydantic import Field

from tallystick.errors import InvalidInput
from tallystick.memory import MemoryContext
from tallystick.records import (
    Document,
    DocumentChunk,
    DocumentId,
    Import,
    ImportedRecord,
    ImportId,
    ImportPreview,
    JsonObject,
    Limit,
    RecordStates,
    Removal,
    Scope,
    Words,
    checked_arguments,
)
from tallystick.records.arguments import (
    PAGE_BEFORE,
    ConfirmMode,
    ConfirmToken,
    Reason,
)
from tallystick.records.wire import Wire
from tallystick.tally.memory_view import Part
from tallystick.tally.served_verbs import AsyncFace, Offered
from tallystick_ingest import documents, imports, previewing
from tallystick_ingest.adapters import allowed_path
from tallystick_ingest.adding import add_document, record_of
from tallystick_ingest.import_runs import import_at_once, replay_record
from tallystick_ingest.loaded import LoadedSource
from tallystick_ingest.removal import remove_vanished

_TYPES = {".md": "text/markdown", ".markdown": "text/markdown", ".rst": "text/x-rst"}
"""Media types that the standard library does not know everywhere."""
_LARGEST = 25_000_000
"""Bytes of a file that is added."""


@checked_arguments
class Ingest(Part):
    """Documents, and what they are imported from: `Ingest(bound)`."""

    @property
    def aio(self) -> AsyncIngest:
        """The same verbs for `async def` callers, awaited."""
        return AsyncIngest(self)

    @property
    def _context(self) -> MemoryContext:
        return self._view._services.memory

    def start_import(
        self,
        target: Annotated[
            str | os.PathLike[str],
            Wire(str),
            Field(description="What to read, such as a folder, a mailbox or an address."),
        ],
        *,
        adapter: Annotated[str, Field(description="What reads it, such as files or mailbox.")],
        resync: Annotated[
            bool, Field(description="Read records again that have the stored version.")
        ] = False,
        options: Annotated[
            JsonObject | None,
            Field(description="What the adapter takes beside the target, such as `depth`."),
        ] = None,
        schedule: Annotated[
            str | None,
            Field(description="Import it again by a schedule of cron, in UTC: `0 3 * * *`."),
        ] = None,
    ) -> Import:
        """Import what a target names into the bound scope, which is private, by a job; the answer
        has its id. Imported again, only what is new or differs is stored.

        Where an import of the same corpus has not ended, that one goes on. A relative path is one
        of the working directory; over HTTP and MCP it has to be within `source_roots`. With a
        schedule the worker of an open tally starts the next ones, until `cancel` ends it. Raises
        Denied, InvalidInput, NotOfFormat, AuthorizationNeeded, MissingExtra, StateConflict.
        """
        return self._start(
            self._view.scope,
            os.fspath(target),
            adapter,
            is_resync=resync,
            options=options or {},
            schedule=schedule,
        )

    def _start(
        self,
        scope: Scope,
        target: str,
        adapter: str,
        *,
        is_resync: bool,
        options: JsonObject,
        schedule: str | None,
    ) -> Import:
        with self._view._observe_call("memory_write", "start_import"):
            self._view._admit("write")
            started = imports.start_import(
                self._context,
                self._view._traced_actor,
                scope,
                adapter=adapter,
                target=target,
                is_resync=is_resync,
                options=options,
                schedule=schedule,
            )
        self._view._wake_worker()
        return started

    def preview_import(
        self,
        target: Annotated[
            str | os.PathLike[str], Wire(str), Field(description="What would be read.")
        ],
        *,
        adapter: Annotated[str, Field(description="What reads it, such as files or mailbox.")],
        options: Annotated[
            JsonObject | None, Field(description="What the adapter takes beside the target.")
        ] = None,
        limit: Annotated[Limit, Field(description="Records that are named, at most.")] = 50,
    ) -> ImportPreview:
        """Read what a target names, and say which records an import would store, change or find
        vanished; nothing is stored. The source is read for a minute at most. Raises as
        `start_import`.
        """
        self._view._admit("preview")
        return previewing.preview_import(
            self._context,
            self._view._traced_actor,
            self._view.scope,
            adapter=adapter,
            target=os.fspath(target),
            options=options or {},
            limit=limit,
        )

    def load(
        self,
        documents: Callable[[], Iterable[Any]],
        *,
        runtime: str,
        name: str,
        is_whole: bool = False,
    ) -> Import:
        """Import the documents or nodes of a runtime that `documents` yields into the bound scope,
        now; return the import as it ended. Loaded again, only what is new or differs is stored.

        `name` names what they come from; `is_whole` says that these are all it has, so that what is
        not among them has vanished. Raises Denied, and what `documents` raises.
        """
        source = LoadedSource(runtime, documents, title=name, lists_all=is_whole)
        with self._view._observe_call("memory_write", "load"):
            self._view._admit("write")
            done = import_at_once(
                self._context,
                self._view._traced_actor,
                self._view.scope,
                source,
                f"{runtime}:{name}",
            )
        self._view._wake_worker()
        return done

    def imports(
        self,
        *,
        limit: Annotated[Limit, Field(description="Imports at most.")] = 50,
        before: Annotated[ImportId | None, PAGE_BEFORE] = None,
    ) -> list[Import]:
        """List the imports of the bound scope, newest first. Raises Denied, NotFound."""
        return imports.list_imports(
            self._context, self._view.actor, self._view.scope, limit=limit, before=before
        )

    def import_status(self, import_id: ImportId) -> Import:
        """Return an import with its counters and how long the rest takes. Raises NotFound."""
        return imports.get_import(self._context, self._view.actor, import_id)

    def import_records(
        self,
        import_id: ImportId,
        *,
        state: Annotated[
            RecordStates, Field(description="The states that they are in; by default any.")
        ] = (),
        limit: Annotated[Limit, Field(description="Records at most.")] = 50,
        after: Annotated[
            Words | None, Field(description="The last record of the page before.")
        ] = None,
    ) -> list[ImportedRecord]:
        """List what an import knows of the records that it saw, by their ids: such as those with
        the state `skipped`, each with its reason. Raises NotFound.
        """
        return imports.list_records(
            self._context, self._view.actor, import_id, tuple(state), limit=limit, after=after or ""
        )

    def pause(self, import_id: ImportId) -> Import:
        """Let an import rest after the batch under way. Raises NotFound, Denied, StateConflict."""
        return imports.pause_import(self._context, self._view._traced_actor, import_id)

    def resume(self, import_id: ImportId) -> Import:
        """Let an import go on from its last checkpoint: one that is paused or failed, or whose
        process has died. Raises NotFound, Denied, StateConflict.
        """
        resumed = imports.resume_import(self._context, self._view._traced_actor, import_id)
        self._view._wake_worker()
        return resumed

    def cancel(self, import_id: ImportId) -> Import:
        """End an import, or the schedule of one that has ended; what it has stored stays. Raises
        NotFound, Denied, StateConflict.
        """
        return imports.cancel_import(self._context, self._view._traced_actor, import_id)

    def resync(self, import_id: ImportId) -> Import:
        """Start an import of the same corpus, with the same options and into the same scope, that
        reads every record again; return it. Raises as `start_import`, and NotFound.
        """
        before = self.import_status(import_id)
        return self._start(
            before.scope,
            before.target,
            before.adapter,
            is_resync=True,
            options=before.options,
            schedule=None,
        )

    def replay(
        self,
        import_id: ImportId,
        record_id: Annotated[Words, Field(description="The record, as its source names it.")],
        *,
        from_version: Annotated[
            str | None, Field(description="From this version on, where the source has several.")
        ] = None,
    ) -> ImportedRecord:
        """Read one record of a source again, as it is now; doing so twice changes nothing. Raises
        NotFound, Denied, InvalidInput for a source that cannot, AuthorizationNeeded.
        """
        self._view._admit("write")
        return replay_record(
            self._context, self._view._traced_actor, import_id, record_id, from_version
        )

    def remove_vanished(
        self,
        import_id: ImportId,
        *,
        reason: Reason,
        mode: ConfirmMode = "preview",
        confirm_token: ConfirmToken = None,
    ) -> Removal:
        """Preview the removal of the records that a source has no more, or with the preview's token
        forget their memories, which can be recovered for a while.

        Only the newest import of a source says what it has, once it is completed. Raises NotFound,
        Denied (`confirm_token_required`), InvalidInput, StateConflict.
        """
        if mode == "preview":
            self._view._admit("preview")
        with self._view._observe_call("memory_write", "remove_vanished"):
            return remove_vanished(
                self._context,
                self._view._traced_actor,
                import_id,
                reason=reason,
                mode=mode,
                confirm_token=confirm_token,
            )

    def add_document(
        self,
        content: Annotated[
            str | bytes | None, Wire(str | None), Field(description="The text of the document.")
        ] = None,
        *,
        data: Annotated[
            str | None,
            Field(description="Or the bytes of a file, in base64.", max_length=34_000_000),
        ] = None,
        path: Annotated[
            str | os.PathLike[str] | None,
            Wire(str | None),
            Field(description="Or a file of this machine."),
        ] = None,
        name: Annotated[
            str | None, Field(description="Its name: of the same name it is a new version.")
        ] = None,
        media_type: Annotated[
            str | None, Field(description="Such as application/pdf; else that of its name.")
        ] = None,
        title: Annotated[str, Field(description="Its title for people.")] = "",
        url: Annotated[str | None, Field(description="Where a person finds it.")] = None,
    ) -> Document:
        """Store one document in the bound scope and make it recallable: a text, bytes or a file. Of
        the same name or address it is a new version of the one that is there.

        `outcome` says what came of it. Of which no text can be read, what arrived is kept with the
        state `failed`. Raises Denied, InvalidInput.
        """
        given = [each for each in (content, data, path) if each is not None]
        if len(given) != 1:
            raise InvalidInput("Give one of `content`, `data` and `path`.", argument="content")
        body: str | bytes
        if path is not None:
            body, own = self._read(path)
            name = name or own
        elif data is not None:
            body = _decoded(data)
        else:
            body = content or ""
        if len(body) > _LARGEST:
            raise InvalidInput(
                f"`content` has more than {_LARGEST:,} bytes, which a document may have.",
                argument="content",
            )
        kind = media_type or _media_type(name, is_text=isinstance(body, str))
        record = record_of(body, name=name, media_type=kind, title=title, url=url)
        with self._view._observe_call("memory_write", "add_document") as call:
            self._view._admit("write")
            added = add_document(self._context, self._view._traced_actor, self._view.scope, record)
            summary = {"document": added.id, "outcome": added.outcome, "chunks": added.chunks}
            call.record("memory_write", summary, summary=summary)
        self._view._wake_worker()
        return added

    def _read(self, path: str | os.PathLike[str]) -> tuple[bytes, str]:
        services = self._view._services
        file = allowed_path(services.settings, self._view.actor, os.fspath(path), argument="path")
        try:
            with file.open("rb") as opened:
                return opened.read(_LARGEST + 1), str(file)
        except OSError as error:
            raise InvalidInput(
                f"`path` cannot be read: {error.strerror}.", argument="path"
            ) from error

    def documents(
        self,
        *,
        limit: Annotated[Limit, Field(description="Documents at most.")] = 50,
        before: Annotated[DocumentId | None, PAGE_BEFORE] = None,
    ) -> list[Document]:
        """List the documents of the bound scope, newest first. Raises Denied, NotFound."""
        return documents.list_documents(
            self._context, self._view.actor, self._view.scope, limit=limit, before=before
        )

    def document(self, document_id: DocumentId) -> Document:
        """Return a document with its attachments. Raises NotFound."""
        return documents.get_document(self._context, self._view.actor, document_id)

    def chunks(self, document_id: DocumentId) -> list[DocumentChunk]:
        """Return the passages of a document in their order, each of which is a memory. Raises
        NotFound.
        """
        return documents.list_chunks(self._context, self._view.actor, document_id)


def _decoded(data: str) -> bytes:
    try:
        return base64.b64decode(data, validate=True)
    except (binascii.Error, ValueError) as error:
        raise InvalidInput("`data` is no base64.", argument="data") from error


def _media_type(name: str | None, *, is_text: bool) -> str:
    from mimetypes import guess_type

    if is_text or name is None:
        return "text/plain" if is_text else "application/octet-stream"
    _, ending = os.path.splitext(name.lower())
    return _TYPES.get(ending) or guess_type(name)[0] or "application/octet-stream"


class IngestVerbs:
    """Verbs of `Ingest`."""

    start_import = Offered(Ingest.start_import)
    preview_import = Offered(Ingest.preview_import)
    imports = Offered(Ingest.imports)
    import_status = Offered(Ingest.import_status)
    import_records = Offered(Ingest.import_records)
    pause = Offered(Ingest.pause)
    resume = Offered(Ingest.resume)
    cancel = Offered(Ingest.cancel)
    resync = Offered(Ingest.resync)
    replay = Offered(Ingest.replay)
    remove_vanished = Offered(Ingest.remove_vanished)
    add_document = Offered(Ingest.add_document)
    documents = Offered(Ingest.documents)
    document = Offered(Ingest.document)
    chunks = Offered(Ingest.chunks)


class AsyncIngest(AsyncFace, IngestVerbs):
    """Same as `Ingest`, awaited."""
