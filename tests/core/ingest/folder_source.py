"""A folder of texts as a source: an adapter as its author writes one."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from tallystick.errors import AuthorizationNeeded, NotOfFormat, RateLimitReached
from tallystick_ingest import (
    Attachment,
    Checkpoint,
    Corpus,
    Known,
    PrivacyClass,
    Resource,
    Skipped,
    SourceRecord,
    Unchanged,
    Yielded,
)


class Folder:
    """Reads the files of one folder in the order of their names. A file `.locked` wants a
    credential, `.busy` a pause, `.broken` fails.
    """

    name = "folder"
    version = "1"
    privacy_class: PrivacyClass = "personal"
    metadata_schema: Mapping[str, Any] = {"type": "object"}
    page = 10
    """Files between two checkpoints."""

    def corpus(self, target: str) -> Corpus:
        """The folder itself."""
        if not Path(target).is_dir():
            raise NotOfFormat(f"{target} is no folder.")
        return Corpus(id=target, title=Path(target).name, size=len(_files(target)))

    def records(self, target: str, checkpoint: str | None, known: Known) -> Iterator[Yielded]:
        """Each file, with a checkpoint after ten."""
        for number, file in enumerate(_files(target), start=1):
            if checkpoint is None or file.name > checkpoint:
                yield from self._read(file, known)
            if number % self.page == 0 and (checkpoint is None or file.name >= checkpoint):
                yield Checkpoint(file.name)
        yield Checkpoint("~")

    def _read(self, file: Path, known: Known) -> Iterator[Yielded]:
        for ending, error in _ERRORS.items():
            if file.suffix == ending:
                raise error
        body = file.read_bytes()
        version = hashlib.sha256(body).hexdigest()
        if known(file.name) == version:
            yield Unchanged(file.name)
        elif file.suffix == ".bin":
            yield Skipped(file.name, "unsupported_type", "bytes")
        else:
            part = file.with_suffix(".png")
            yield SourceRecord(
                record_id=file.name,
                version=version,
                dedupe_key=version,
                body=body,
                media_type="text/markdown",
                attachments=(_attachment(part),) if part.exists() else (),
            )

    def authorize(self) -> None:
        """There is nothing to prove."""

    def list_resources(self) -> list[Resource]:
        """None: a folder is named."""
        return []

    def replay(self, target: str, record_id: str, from_version: str | None) -> Iterator[Yielded]:
        """The file as it is now."""
        yield from self._read(Path(target, record_id), lambda _: None)


_ERRORS: Mapping[str, Exception] = {
    ".locked": AuthorizationNeeded("The key has run out."),
    ".busy": RateLimitReached("Later.", retry_after=30),
    ".broken": OSError("The disk is gone."),
}


def _files(target: str) -> list[Path]:
    return sorted(each for each in Path(target).iterdir() if each.suffix != ".png")


def _attachment(file: Path) -> Attachment:
    body = file.read_bytes()
    digest = hashlib.sha256(body).hexdigest()
    return Attachment(
        name=file.name, media_type="image/png", size=len(body), sha256=digest, content=body
    )
