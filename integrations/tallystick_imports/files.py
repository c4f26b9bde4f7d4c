"""Files of other products, opened without trusting them: JSON, JSON lines, archives and folders.

What a file may unfold to is bounded: an archive may say anything of itself, so that what is read
of it is counted.
"""

from __future__ import annotations

import json
import lzma
import os
import struct
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from fnmatch import fnmatchcase
from pathlib import Path, PurePosixPath
from typing import Any

from tallystick.errors import InvalidInput
from tallystick_imports.entries import TOO_DEEP, Unreadable

_MOST_BYTES = 2**30
"""Bytes of one file, and of all that is read of one archive."""
_SPARE, _GROWTH = 2**26, 100
"""Bytes that an archive may unfold to: so many, and so many times its own. JSON shrinks to a tenth.
"""
_MOST_MEMBERS = 100_000
"""Files of an archive or a folder."""
_DAMAGED = (
    # What an archive that somebody else wrote may raise. RuntimeError is for one with a password.
    zipfile.BadZipFile,
    zlib.error,
    lzma.LZMAError,
    struct.error,
    ValueError,
    NotImplementedError,
    RuntimeError,
    EOFError,
    OSError,
)


def is_database(file: Path) -> bool:
    """Return True for a file of SQLite. Raises InvalidInput for what is no file."""
    _require_file(file)
    try:
        with file.open("rb") as opened:
            return opened.read(16).startswith(b"SQLite format 3")
    except OSError as error:
        raise InvalidInput(f"{file} cannot be read: {error}.") from error


def text_of(file: Path) -> str:
    """Return the text of a file. Raises InvalidInput for what is no file, or no text."""
    _require_file(file)
    try:
        with file.open("rb") as opened:
            content = opened.read(_MOST_BYTES + 1)
    except OSError as error:
        raise InvalidInput(f"{file} cannot be read: {error}.") from error
    return _decoded(file, file.name, content)


def documents(file: Path, *names: str) -> Iterator[tuple[str, str]]:
    """Yield the texts of an export with their names: of one file whatever its name, of an archive
    or a folder those with one of these names, in their order, in which `*` stands for anything.
    Raises InvalidInput.
    """
    if file.is_dir():
        yield from _of_folder(file, names)
    elif file.is_file() and is_database(file):
        raise InvalidInput(f"{file} is a database; this format is read from {' or '.join(names)}.")
    elif not file.exists() or not file.is_file() or not zipfile.is_zipfile(file):
        yield file.name, text_of(file)
    else:
        yield from _of_archive(file, names)


def values_of(file: Path, text: str, *lists: str) -> Iterator[tuple[str, Any]]:
    """Yield the values of a text with their places: the members of one JSON value, of which
    `lists` may be the names, or lines of JSON.
    """
    try:
        whole = json.loads(text)
    except (ValueError, RecursionError):
        yield from lines_of(text)
        return
    if isinstance(whole, dict):
        listed = next((whole[name] for name in lists if name in whole), None)
        whole = [whole] if listed is None else listed
    if not isinstance(whole, list):
        raise InvalidInput(f"{file} holds no list of memories.")
    yield from ((f"entry {number}", value) for number, value in enumerate(whole, 1))


def lines_of(text: str) -> Iterator[tuple[str, Any]]:
    """Yield the values of lines of JSON with their places."""
    # Not `splitlines`: it also cuts at separators that JSON leaves as they are within a text.
    for number, line in enumerate(text.split("\n"), 1):
        if not line.strip():
            continue
        try:
            yield f"line {number}", json.loads(line)
        except ValueError:
            yield f"line {number}", Unreadable(f"line {number}", "is no JSON")
        except RecursionError:
            yield f"line {number}", Unreadable(f"line {number}", TOO_DEEP)


def _require_file(file: Path) -> None:
    if file.exists() and not file.is_file():
        raise InvalidInput(f"{file} is no file: a pipe or a device may have no end. Copy it first.")


def _decoded(file: Path, name: str, content: bytes) -> str:
    where = str(file) if name == file.name else f"{name} of {file}"
    if len(content) > _MOST_BYTES:
        raise InvalidInput(f"{where} is larger than {_MOST_BYTES // 2**20} MiB.")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InvalidInput(f"{where} cannot be read: {error}.") from error


def _of_folder(folder: Path, names: Sequence[str]) -> Iterator[tuple[str, str]]:
    found: list[tuple[int, Path]] = []
    for inner, folders, files in os.walk(folder):
        folders.sort()
        for name in sorted(files):
            place = Path(inner, name)
            rank = _rank(name, names)
            if rank is not None and not place.is_symlink() and place.is_file():
                found.append((rank, place))
        if len(found) > _MOST_MEMBERS:
            raise InvalidInput(f"{folder} holds more than {_MOST_MEMBERS} files.")
    if not found:
        raise InvalidInput(f"{folder} holds no {' or '.join(names)}.")
    for _, place in sorted(found, key=lambda each: each[0]):
        yield str(place.relative_to(folder)), text_of(place)


def _of_archive(file: Path, names: Sequence[str]) -> Iterator[tuple[str, str]]:
    most = left = min(_MOST_BYTES, _SPARE + _GROWTH * file.stat().st_size)
    try:
        with zipfile.ZipFile(file) as archive:
            members = archive.infolist()
            if len(members) > _MOST_MEMBERS:
                raise InvalidInput(f"{file} holds more than {_MOST_MEMBERS} files.")
            found = [
                (rank, member)
                for member in members
                if not member.is_dir()
                and (rank := _rank(PurePosixPath(member.filename).name, names)) is not None
            ]
            if not found:
                raise InvalidInput(f"{file} holds no {' or '.join(names)}.")
            for _, member in sorted(found, key=lambda each: each[0]):
                # What it says of its size is no promise: what is read is counted.
                with archive.open(member) as opened:
                    content = opened.read(left + 1)
                if len(content) > left:
                    raise InvalidInput(f"{file} unfolds to more than {most // 2**20} MiB.")
                left -= len(content)
                yield member.filename, _decoded(file, member.filename, content)
    except _DAMAGED as error:
        raise InvalidInput(f"{file} is an archive that cannot be read: {error}.") from error


def _rank(name: str, names: Sequence[str]) -> int | None:
    return next((place for place, each in enumerate(names) if fnmatchcase(name, each)), None)
