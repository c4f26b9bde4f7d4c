"""The source of files as one that fails when a test wants it to, and that is a connector."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

from tallystick.errors import AuthorizationNeeded, RateLimitReached
from tallystick_ingest import (
    Attachment,
    Checkpoint,
    Known,
    Resource,
    SourceRecord,
    Yielded,
)
from tallystick_sources.files import FilesSource


class Folder(FilesSource):
    """Reads a folder, with a checkpoint after ten files. A file `.locked` wants a credential,
    `.busy` a pause, `.broken` fails; a `.png` belongs to the file of its name.
    """

    name = "folder"
    page = 10
    """Files between two checkpoints."""

    def records(self, target: str, checkpoint: str | None, known: Known) -> Iterator[Yielded]:
        """Each file, with a checkpoint after so many."""
        count, last = 0, checkpoint
        for item in super().records(target, checkpoint, known):
            if isinstance(item, Checkpoint) or item.record_id.endswith(".png"):
                continue
            if error := _ERRORS.get(Path(item.record_id).suffix):
                raise error
            yield _with_attachment(target, item)
            count, last = count + 1, item.record_id
            if count % self.page == 0:
                yield Checkpoint(last)
        if last is not None:
            yield Checkpoint(last)

    def authorize(self) -> None:
        """There is nothing to prove."""

    def list_resources(self) -> list[Resource]:
        """None: a folder is named."""
        return []

    def replay(self, target: str, record_id: str, from_version: str | None) -> Iterator[Yielded]:
        """The file as it is now."""
        for item in super().records(target, None, lambda _: None):
            if getattr(item, "record_id", None) == record_id:
                yield item


_ERRORS: Mapping[str, Exception] = {
    ".locked": AuthorizationNeeded("The key has run out."),
    ".busy": RateLimitReached("Later.", retry_after=30),
    ".broken": OSError("The disk is gone."),
}


def _with_attachment(target: str, item: Yielded) -> Yielded:
    file = Path(target, getattr(item, "record_id", "")).with_suffix(".png")
    if not isinstance(item, SourceRecord) or not file.exists():
        return item
    body = file.read_bytes()
    digest = hashlib.sha256(body).hexdigest()
    attachment = Attachment(
        name=file.name, media_type="image/png", size=len(body), sha256=digest, content=body
    )
    return replace(item, attachments=(attachment,))
