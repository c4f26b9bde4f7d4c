"""Mailboxes: mbox files and Maildir folders, a message a record."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, Any

from tallystick.formats import media_type_of
from tallystick_ingest.contract import (
    Corpus,
    Known,
    NotOfFormat,
    PrivacyClass,
    Skipped,
    Yielded,
)
from tallystick_ingest.pacing import with_checkpoints
from tallystick_sources.messages import LARGEST_MESSAGE, read_message

_LINE = 1_000_000
"""Bytes that are read at once of a line that does not end."""
_SEPARATOR = re.compile(rb"From .*\d\d:\d\d.*\d{4}")
_QUOTED_SEPARATOR = re.compile(rb"^>(>*From )", re.MULTILINE)
_FLAGS = {"D": "draft", "F": "flagged", "P": "passed", "R": "replied", "S": "seen", "T": "trashed"}


class MailboxSource:
    """Reads an mbox file from its first byte on, or a Maildir with its folders.

    The cursor of an mbox is where the next message begins, so that nothing before it is read again;
    one message is in memory at a time.
    """

    name = "mailbox"
    version = "1"
    privacy_class: PrivacyClass = "personal"
    metadata_schema: Mapping[str, Any] = {
        "type": "object",
        "properties": {
            "message_id": {"type": ["string", "null"]},
            "in_reply_to": {"type": "array", "items": {"type": "string"}},
            "folder": {"type": "string"},
        },
        "required": ["message_id", "in_reply_to", "folder"],
        "additionalProperties": False,
    }

    def corpus(self, target: str) -> Corpus:
        """Same as `SourceAdapter.corpus`; by the real path of a mailbox."""
        path = _opened(target)
        messages = sum(1 for _ in _all_files(path)) if path.is_dir() else None
        identity = f"mailbox:{path.as_posix()}"
        return Corpus(id=identity, title=path.stem or path.name, size=messages)

    def records(self, target: str, checkpoint: str | None, known: Known) -> Iterator[Yielded]:
        """Same as `SourceAdapter.records`. Raises NotOfFormat."""
        path = _opened(target)
        if path.is_dir():
            return with_checkpoints(_maildir(path, checkpoint or "", known), checkpoint or "")
        size = max(1, path.stat().st_size)
        return with_checkpoints(
            _mbox(path, int(checkpoint or 0), known),
            checkpoint or "0",
            share_before=lambda cursor: min(1.0, int(cursor) / size),
        )


def _opened(target: str) -> Path:
    try:
        path = Path(target).expanduser().resolve(strict=True)
        if path.is_dir():
            if (path / "cur").is_dir() and (path / "new").is_dir():
                return path
            raise NotOfFormat(f"{target!r} is a folder without `cur` and `new`, no Maildir")
        with path.open("rb") as file:
            head = file.read(512)
    except (OSError, RuntimeError, ValueError) as error:
        raise NotOfFormat(f"{target!r} is no mailbox that can be read: {error}") from error
    if head and not head.startswith(b"From "):
        shown = media_type_of(head) or f"a text that begins with {head[:30]!r}"
        raise NotOfFormat(f"{target!r} is no mbox, which begins with 'From ': found {shown}")
    return path


def _mbox(path: Path, offset: int, known: Known) -> Iterator[tuple[str, Yielded]]:
    with path.open("rb") as file:
        start = offset if _is_between(file, offset) else 0
        file.seek(start)
        for end, raw in _messages(file, start):
            yield str(end), read_message(raw, f"message at byte {start}", "", (), known)
            start = end


def _is_between(file: IO[bytes], offset: int) -> bool:
    """Whether a message begins at a place, or the file ends there: a mailbox that was written anew
    is read from its begin.
    """
    if offset == 0:
        return True
    file.seek(offset - 1)
    before, line = file.read(1), file.readline(_LINE)
    return before == b"\n" and (not line or _SEPARATOR.match(line) is not None)


def _messages(file: IO[bytes], position: int) -> Iterator[tuple[int, bytes | None]]:
    """Yield each message with the place behind it; None for one that is too large.

    A message begins behind an empty line, with a line of its envelope: `From `, a sender, a time.
    """
    lines: list[bytes] = []
    size, is_behind_empty, is_line_start = 0, True, True
    while line := file.readline(_LINE):
        if is_line_start and is_behind_empty and size and _SEPARATOR.match(line):
            raw, lines = _joined(lines, size), []
            yield position, raw
            size, raw = 0, None
        size += len(line)
        position += len(line)
        if size <= LARGEST_MESSAGE:
            lines.append(line)
        else:
            lines.clear()
        is_behind_empty = is_line_start and line in (b"\n", b"\r\n")
        is_line_start = line.endswith(b"\n")
    if size:
        yield position, _joined(lines, size)


def _joined(lines: list[bytes], size: int) -> bytes | None:
    """The bytes of a message without the line of its envelope and the quotes before `From `."""
    if size > LARGEST_MESSAGE:
        return None
    lines[0] = b""
    lines[-1] = b"" if lines[-1] == b"\n" else lines[-1]
    raw = b"".join(lines)
    lines.clear()
    return _QUOTED_SEPARATOR.sub(rb"\1", raw) if b"\n>" in raw else raw


def _maildir(root: Path, cursor: str, known: Known) -> Iterator[tuple[str, Yielded]]:
    after = tuple(json.loads(cursor)) if cursor else ("", "")
    for folder in sorted(["", *_subfolders(root)]):
        if folder < after[0]:
            continue
        for unique, flags, path in sorted(_files(root / folder)):
            if (folder, unique) <= after:
                continue
            labels = [_FLAGS[flag] for flag in flags if flag in _FLAGS]
            name = f"{folder}/{unique}"
            try:
                is_small = path.stat().st_size <= LARGEST_MESSAGE
                raw = path.read_bytes() if is_small else None
            except OSError as error:
                item: Yielded = Skipped(name, "unreadable", str(error.strerror))
            else:
                item = read_message(raw, name, folder.lstrip("."), tuple(labels), known)
            yield json.dumps([folder, unique]), item


def _all_files(root: Path) -> Iterator[tuple[str, str, Path]]:
    for folder in ("", *_subfolders(root)):
        yield from _files(root / folder)


def _subfolders(root: Path) -> Iterator[str]:
    for entry in os.scandir(root):
        is_folder = entry.name.startswith(".") and entry.is_dir(follow_symlinks=False)
        if is_folder and (Path(entry.path) / "cur").is_dir():
            yield entry.name


def _files(folder: Path) -> Iterator[tuple[str, str, Path]]:
    """Yield messages by the part of their name that stays when they are read, and their flags."""
    for state in ("cur", "new"):
        try:
            entries = list(os.scandir(folder / state))
        except OSError:
            continue
        for entry in entries:
            if not entry.name.startswith(".") and entry.is_file(follow_symlinks=False):
                unique, _, flags = entry.name.partition(":2,")
                yield unique, flags, Path(entry.path)
