"""Files: a folder, or a single file, as it stands; and a watch that tells when to sync again."""

from __future__ import annotations

import hashlib
import os
import re
import stat
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from threading import Event
from typing import Any, NamedTuple

from tallystick.errors import require
from tallystick_ingest.contract import (
    Corpus,
    Known,
    NotOfFormat,
    PrivacyClass,
    Skipped,
    SkipReason,
    SourceRecord,
    Unchanged,
    Yielded,
)
from tallystick_ingest.pacing import with_checkpoints
from tallystick_sources.media_types import media_type

require("pathspec", extra="files")

from pathspec import GitIgnoreSpec  # noqa: E402 - behind the guard

LARGEST_FILE = 50_000_000
"""Bytes of a file that is read."""
_IGNORE_FILE = ".gitignore"
_LARGEST_IGNORE_FILE = 200_000
_MOST_STARS = 3
"""In a part of a pattern."""
_IGNORED = ".git"
_MOST_COUNTED = 50_000
"""Files that are counted before they are read, so that the start of an import is no wait."""


class FilesSource:
    """Reads the files of a folder in the order of their paths; `.gitignore` holds as in git.

    A target is a path. With `roots` only what lies in one of these folders is read. A link is
    followed to a file within the target; one that leads out of it is skipped. `exclude` are
    patterns as `.gitignore` has them.
    """

    name = "files"
    version = "1"
    privacy_class: PrivacyClass = "personal"
    metadata_schema: Mapping[str, Any] = {
        "type": "object",
        "properties": {"path": {"type": "string"}, "size": {"type": "integer"}},
        "required": ["path", "size"],
        "additionalProperties": False,
    }

    options_schema: Mapping[str, Any] = {
        "type": "object",
        "properties": {
            "exclude": {"type": "array", "items": {"type": "string"}, "maxItems": 1_000},
            "largest": {"type": "integer", "minimum": 1, "maximum": LARGEST_FILE},
        },
        "additionalProperties": False,
    }

    def __init__(
        self,
        roots: Sequence[str | os.PathLike[str]] = (),
        *,
        exclude: Sequence[str] = (),
        largest: int = LARGEST_FILE,
    ) -> None:
        self._exclude = (_Rules(0, GitIgnoreSpec.from_lines(filter(_is_pattern, exclude))),)
        self._roots = tuple(Path(root).resolve() for root in roots)
        self._largest = largest

    def corpus(self, target: str) -> Corpus:
        """Same as `SourceAdapter.corpus`; a folder by its real path."""
        root = self._root(target)
        return Corpus(
            id=f"files:{root.as_posix()}", title=root.name or str(root), size=self._count(root)
        )

    def _count(self, root: Path) -> int | None:
        """Return the number of files, None where there are more than are counted."""
        if root.is_file():
            return 1
        count = sum(1 for _ in islice(_walk(root, (), self._exclude), _MOST_COUNTED + 1))
        return count if count <= _MOST_COUNTED else None

    def records(self, target: str, checkpoint: str | None, known: Known) -> Iterator[Yielded]:
        """Same as `SourceAdapter.records`; a cursor is the path of the last file."""
        root = self._root(target)
        return with_checkpoints(self._after(root, checkpoint or "", known), checkpoint or "")

    def watch(
        self, target: str, *, stop: Event | None = None, debounce: int = 1_600
    ) -> Iterator[frozenset[str]]:
        """Yield the ids of records that changed, once for changes within `debounce` milliseconds,
        until `stop` is set. What a sync would leave out may be among them.
        """
        require("watchfiles", extra="files")
        import watchfiles

        root = self._root(target)
        folder = root if root.is_dir() else root.parent
        changes = watchfiles.watch(
            folder,
            watch_filter=lambda _, path: (
                path == str(root) or (root == folder and _IGNORED not in Path(path).parts)
            ),
            stop_event=stop,
            debounce=debounce,
            rust_timeout=500,
            raise_interrupt=False,
        )
        for batch in changes:
            yield frozenset(Path(path).relative_to(folder).as_posix() for _, path in batch)

    def _root(self, target: str) -> Path:
        try:
            root = Path(target).expanduser().resolve(strict=True)
        except (OSError, RuntimeError, ValueError) as error:
            raise NotOfFormat(f"{target!r} is no folder and no file: {_said(error)}") from error
        if self._roots and not any(root.is_relative_to(allowed) for allowed in self._roots):
            raise NotOfFormat(f"{target!r} is outside of the folders that may be read")
        if not root.is_dir() and not root.is_file():
            raise NotOfFormat(f"{target!r} is a device or a pipe, no folder and no file")
        return root

    def _after(self, root: Path, cursor: str, known: Known) -> Iterator[tuple[str, Yielded]]:
        if root.is_file():
            if not cursor:
                yield root.name, self._item(root.parent, root.name, root, known)
            return
        after = tuple(cursor.split("/")) if cursor else ()
        for path, error in _walk(root, after, self._exclude):
            record_id = "/".join(path)
            if error:
                yield record_id, Skipped(record_id or ".", "unreadable", f"a folder: {error}")
            else:
                yield record_id, self._item(root, record_id, root.joinpath(*path), known)

    def _item(self, root: Path, record_id: str, path: Path, known: Known) -> Yielded:
        try:
            record_id.encode("utf-8")
        except UnicodeEncodeError:
            shown = record_id.encode("utf-8", "backslashreplace").decode("utf-8")
            return Skipped(shown, "unreadable", "a name that is no Unicode")
        try:
            real = path.resolve(strict=True)
            if not real.is_relative_to(root):
                return Skipped(record_id, "outside", "a link that leads out of the folder")
            if real.is_dir():
                return Skipped(
                    record_id, "ignored", "a link to a folder, whose files are their own"
                )
            before = real.stat()
            if not stat.S_ISREG(before.st_mode):
                return Skipped(record_id, "unsupported_type", "a device, a socket or a pipe")
            if known(record_id) == _version(before):
                return Unchanged(record_id)
            return self._read(record_id, real)
        except _Refused as refused:
            return Skipped(record_id, refused.reason, refused.detail)
        except FileNotFoundError:
            return Skipped(record_id, "not_found", "a link to nothing, or a file that went away")
        except (OSError, RuntimeError) as error:  # a link that leads to itself is a RuntimeError
            return Skipped(record_id, "unreadable", _said(error))

    def _read(self, record_id: str, real: Path) -> SourceRecord:
        for _ in range(2):
            with open(real, "rb", opener=_open_without_waiting) as file:
                before = os.fstat(file.fileno())
                if not stat.S_ISREG(before.st_mode):
                    raise _Refused("unreadable", "something else came in the place of the file")
                if before.st_size > self._largest:
                    raise _Refused("too_large", f"a file of {before.st_size} bytes")
                body = file.read(before.st_size + 1)
                after = os.fstat(file.fileno())
            if _version(before) == _version(after) and len(body) == after.st_size:
                return SourceRecord(
                    record_id=record_id,
                    version=_version(after),
                    dedupe_key=f"sha256:{hashlib.sha256(body).hexdigest()}",
                    body=body,
                    media_type=media_type(record_id, body),
                    url=real.as_uri(),
                    occurred_at=after.st_mtime_ns // 1_000,
                    metadata={"path": record_id, "size": len(body)},
                )
        raise _Refused("unreadable", "a file that changes while it is read")


class _Refused(Exception):
    def __init__(self, reason: SkipReason, detail: str) -> None:
        super().__init__(detail)
        self.reason: SkipReason = reason
        self.detail = detail


class _Rules(NamedTuple):
    """A `.gitignore` and how many parts of a path lead to its folder."""

    depth: int
    spec: GitIgnoreSpec


def _walk(
    root: Path, after: tuple[str, ...], rules: tuple[_Rules, ...]
) -> Iterator[tuple[tuple[str, ...], str]]:
    """Yield the paths of files and links behind `after`, in the order of their parts, and of
    folders that cannot be read, with why.

    Folders that lie before `after` are not opened. Folders may be as deep as a system takes them.
    """
    stack = [_open_folder(root, (), rules)]
    while stack:
        folder = stack[-1]
        if folder.error:
            stack.pop()
            if folder.path > after:
                yield folder.path, folder.error
        elif not folder.entries:
            stack.pop()
        else:
            entry = folder.entries.pop()
            path = (*folder.path, entry.name)
            is_folder = entry.is_dir(follow_symlinks=False)
            if entry.name == _IGNORED or _is_ignored(path, is_folder, folder.rules):
                continue
            if not is_folder:
                if path > after:
                    yield path, ""
            elif path >= after[: len(path)]:
                stack.append(_open_folder(root, path, folder.rules))


class _Folder(NamedTuple):
    """A folder that is open: what is left of it, the last first."""

    path: tuple[str, ...]
    entries: list[os.DirEntry[str]]
    rules: tuple[_Rules, ...]
    error: str


def _open_folder(root: Path, path: tuple[str, ...], rules: tuple[_Rules, ...]) -> _Folder:
    here = root.joinpath(*path)
    try:
        with os.scandir(here) as found:
            entries = sorted(found, key=lambda entry: entry.name, reverse=True)
    except OSError as error:
        return _Folder(path, [], (), _said(error))
    return _Folder(path, entries, (*rules, *_rules_of(here, len(path))), "")


def _rules_of(folder: Path, depth: int) -> tuple[_Rules, ...]:
    file = folder / _IGNORE_FILE
    try:
        # Git follows no link to one either.
        if not stat.S_ISREG(file.lstat().st_mode) or file.stat().st_size > _LARGEST_IGNORE_FILE:
            return ()
        text = file.read_bytes().decode("utf-8", "replace")
        lines = [line for line in text.splitlines() if _is_pattern(line)]
        return (_Rules(depth, GitIgnoreSpec.from_lines(lines)),)
    except (OSError, ValueError):
        return ()


def _is_pattern(line: str) -> bool:
    """Whether a line is a pattern: git ignores one that it cannot read, and so do we.

    One with many stars is ignored too: a name could be made for which it is matched for minutes.
    """
    if any(part.replace("**", "*").count("*") > _MOST_STARS for part in line.split("/")):
        return False
    try:
        GitIgnoreSpec.from_lines([line])
    except (ValueError, re.error):
        return False
    return True


def _is_ignored(path: tuple[str, ...], is_folder: bool, rules: tuple[_Rules, ...]) -> bool:
    """Whether the deepest `.gitignore` that speaks of a path leaves it out."""
    for depth, spec in reversed(rules):
        name = "/".join(path[depth:]) + ("/" if is_folder else "")
        is_matched = spec.check_file(name).include
        if is_matched is not None:
            return is_matched
    return False


def _version(status: os.stat_result) -> str:
    """The times of a file and its size: what tells a change without reading it."""
    return f"{status.st_mtime_ns:x}-{status.st_ctime_ns:x}-{status.st_size:x}"


def _open_without_waiting(path: str, flags: int) -> int:
    """Open a file: a pipe that came in its place keeps nobody waiting, a link is not followed."""
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOFOLLOW", 0))


def _said(error: BaseException) -> str:
    return getattr(error, "strerror", None) or str(error)
