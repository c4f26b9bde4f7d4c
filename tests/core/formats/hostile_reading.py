"""Reads a folder as an import does, in a process whose memory is measured.

    python hostile_reading.py FOLDER

It prints a JSON object: by file what became of it, and the peak of memory in bytes, of this process
and of its child.
"""

from __future__ import annotations

import json
import resource
import sys
from collections import Counter
from pathlib import Path

from tallystick.formats.extracting import Unextractable, extract
from tallystick.formats.pdf_text import READER
from tallystick_ingest.contract import Skipped, SourceRecord
from tallystick_sources.files import FilesSource
from tallystick_sources.mailbox import MailboxSource


def main(folder: Path) -> None:
    """Read all of a folder."""
    outcomes: dict[str, str] = {}
    for item in FilesSource().records(str(folder), None, lambda _: None):
        if isinstance(item, Skipped):
            outcomes[item.record_id] = item.reason
        elif isinstance(item, SourceRecord):
            outcomes[item.record_id] = (
                _mailbox(folder / item.record_id)
                if item.record_id.endswith(".mbox")
                else _text(item.body, item.media_type, item.record_id)
            )
    READER.close()
    child = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1_024
    print(json.dumps({"outcomes": outcomes, "peaks": [_peak(), child]}))  # noqa: T201


def _peak() -> int:
    """The peak of this process; `getrusage` would count what the process had that started it."""
    status = Path("/proc/self/status")
    if not status.exists():
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1_024
    [line] = [each for each in status.read_text().splitlines() if each.startswith("VmHWM")]
    return int(line.split()[1]) * 1_024


def _text(body: str | bytes, media_type: str, name: str) -> str:
    try:
        extracted = extract(body, media_type, name)
    except Unextractable as error:
        return error.reason
    # What is stored has to be text for every database.
    assert "\x00" not in extracted.text
    extracted.text.encode("utf-8")
    extracted.title.encode("utf-8")
    return "text"


def _mailbox(path: Path) -> str:
    counts: Counter[str] = Counter()
    for item in MailboxSource().records(str(path), None, lambda _: None):
        if isinstance(item, Skipped):
            counts[item.reason] += 1
        elif isinstance(item, SourceRecord):
            for text in (item.record_id, item.title, *item.participants, *item.labels):
                text.encode("utf-8")
                assert "\x00" not in text
            counts[_text(item.body, item.media_type, "") if item.body else "no text"] += 1
    return ", ".join(f"{count} {name}" for name, count in sorted(counts.items()))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
