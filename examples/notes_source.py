"""A source of one's own: notes in a file of JSON lines, each `{"id": …, "text": …, "at": …}`.

The contract suite of Tallystick holds it: tests/examples/test_notes_source.py.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from tallystick_ingest.contract import (
    Corpus,
    Known,
    NotOfFormat,
    PrivacyClass,
    Skipped,
    SourceRecord,
    Unchanged,
    Yielded,
)
from tallystick_ingest.pacing import with_checkpoints


class NotesSource:
    """Reads notes, a line each. A target is the path of the file; a cursor counts bytes."""

    name = "notes"
    version = "1"
    privacy_class: PrivacyClass = "personal"
    metadata_schema: Mapping[str, Any] = {
        "type": "object",
        "properties": {"line": {"type": "integer"}},
        "required": ["line"],
        "additionalProperties": False,
    }

    def corpus(self, target: str) -> Corpus:
        """Same as `SourceAdapter.corpus`."""
        path = Path(target).resolve()
        if path.suffix != ".jsonl" or not path.is_file():
            raise NotOfFormat(f"{target!r} is no file that ends in .jsonl")
        return Corpus(id=f"notes:{path.as_posix()}", title=path.stem)

    def records(self, target: str, checkpoint: str | None, known: Known) -> Iterator[Yielded]:
        """Same as `SourceAdapter.records`."""
        self.corpus(target)
        return with_checkpoints(self._lines(Path(target), int(checkpoint or 0), known), "0")

    def _lines(self, path: Path, place: int, known: Known) -> Iterator[tuple[str, Yielded]]:
        with path.open("rb") as file:
            file.seek(place)
            for line in file:
                begin, place = place, place + len(line)
                yield str(place), self._note(line, begin, known)

    def _note(self, line: bytes, begin: int, known: Known) -> Yielded:
        digest = hashlib.sha256(line.strip()).hexdigest()
        try:
            note = json.loads(line)
            identity, text = str(note["id"]), str(note["text"])
        except (ValueError, KeyError, TypeError) as error:
            return Skipped(f"byte {begin}", "not_of_format", f"a line that is no note: {error!r}")
        if known(identity) == digest:
            return Unchanged(identity)
        return SourceRecord(
            record_id=identity,
            version=digest,
            dedupe_key=f"sha256:{hashlib.sha256(text.encode()).hexdigest()}",
            body=text,
            occurred_at=note.get("at"),
            metadata={"line": begin},
        )
