"""A source that somebody writes in eighty lines is held by the contract of sources."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from examples.notes_source import NotesSource

from tallystick.testing.source_contract import Source, SourceContract


class TestNotesSource(SourceContract):
    @pytest.fixture
    def source(self, tmp_path: Path) -> Source:
        notes = [
            json.dumps({"id": f"n{number}", "text": f"Note {number}"}) for number in range(230)
        ]
        path = tmp_path / "notes.jsonl"
        path.write_text("\n".join([*notes, "no note"]) + "\n")
        place = sum(len(note) + 1 for note in notes)
        (tmp_path / "notes.txt").write_text("x")
        return Source(
            NotesSource,
            str(path),
            not_of_format=(str(tmp_path), str(tmp_path / "notes.txt")),
            skipped=frozenset({f"byte {place}"}),
        )


def test_the_source_is_a_page_of_code() -> None:
    import examples.notes_source

    assert len(Path(examples.notes_source.__file__).read_text().splitlines()) <= 80
