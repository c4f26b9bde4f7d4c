"""The files of an export as they are read: a manifest, and the lines and blobs that it names."""

from __future__ import annotations

import base64
import hashlib
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from io import BufferedReader
from itertools import compress
from pathlib import Path
from typing import Any

from tallystick.errors import CorruptTally, InvalidInput
from tallystick.records import canonical_json, strict_json, text_digest
from tallystick.storage import migrate
from tallystick.storage import portable as rows
from tallystick.storage.private_files import open_regular
from tallystick.upkeep.portable import FORMAT

_PAGE = 500


class ExportFiles:
    """The files of an export that its manifest names, and no other file of the machine.

    A name is one that a release writes, or the digest of a blob. A member is a regular file inside
    of the folder: a link could lead out of it, and a pipe would never end.
    """

    def __init__(self, folder: Path) -> None:
        """Read the manifest of `folder`. Raises InvalidInput, CorruptTally."""
        self._folder = folder
        self.manifest = _manifest(folder)
        self._expected = {name: entry["sha256"] for name, entry in self.manifest["files"].items()}
        self._blobs = frozenset(self.manifest["blobs"])

    def check(self) -> None:
        """Compare every file with its digest before anything is written. Raises CorruptTally."""
        moving = (table for table in rows.table_names() if table not in rows.LEFT_OUT)
        names = {f"{table}.jsonl" for table in moving}
        for name in self._expected:
            if name not in names:
                raise CorruptTally(f"The export names {name!a}, which no release writes.")
        if not all(re.fullmatch(r"[0-9a-f]{64}", key) for key in self._blobs):
            raise CorruptTally("The export names a blob by something that is no digest.")
        for name, sha256 in self._expected.items():
            self._require(name, sha256)
        for key in self._blobs:
            self._require(f"blobs/{key}", key)

    def count(self, table: str) -> int:
        """Return the number of rows of a table, as the manifest has it."""
        entry = self.manifest["files"].get(f"{table}.jsonl", {"lines": 0})
        return int(entry["lines"])

    def pages(
        self, table: str, wanted: Iterable[bool] | None = None, *, with_bytes: bool = True
    ) -> Iterator[list[dict[str, Any]]]:
        """Yield the checked rows of a table, some at a time: of the lines that are `wanted`, or of
        all. Raises CorruptTally.
        """
        binary = self.binary if with_bytes else _no_bytes
        page: list[dict[str, Any]] = []
        for row in self.rows(f"{table}.jsonl", wanted):
            page.append(rows.checked_row(table, row, binary))
            if len(page) == _PAGE:
                yield page
                page = []
        if page:
            yield page

    def rows(self, name: str, wanted: Iterable[bool] | None = None) -> Iterator[dict[str, Any]]:
        """Yield the rows of a file, none of one that the manifest does not name. Raises
        CorruptTally.
        """
        if name not in self._expected:
            return
        with self._open(name) as stream:
            for line in stream if wanted is None else compress(stream, wanted):
                try:
                    row = strict_json(line)
                except ValueError as error:
                    raise CorruptTally(f"A line of {name} of the export is damaged.") from error
                if not isinstance(row, dict):
                    raise CorruptTally(f"A line of {name} of the export is no row.")
                yield row

    def binary(self, value: Any) -> bytes:
        """Return the bytes of a column: those in the line, or those of a blob that the manifest
        names. Raises CorruptTally.
        """
        fields = value if isinstance(value, dict) and len(value) == 1 else {}
        key, text = fields.get("blob"), fields.get("base64")
        if isinstance(key, str) and key in self._blobs:
            with self._open(f"blobs/{key}") as stream:
                return stream.read()
        if isinstance(text, str):
            try:
                return base64.b64decode(text, validate=True)
            except ValueError as error:
                raise CorruptTally("Bytes of a row of the export are damaged.") from error
        raise CorruptTally("A row of the export names bytes that the export does not have.")

    def heads(self) -> dict[str, tuple[int, str]]:
        """Return the number of entries of each journal of an export, and the digest of its last."""
        pages = self.pages("streams")
        return {row["name"]: (row["count"], row["head"]) for page in pages for row in page}

    def memory_states(self) -> dict[str, int]:
        """Return the number of memories of an export in each state."""
        counts = Counter(str(row.get("state")) for row in self.rows("memories.jsonl"))
        return dict(sorted(counts.items()))

    def _require(self, name: str, sha256: str) -> None:
        with self._open(name) as stream:
            digest = hashlib.file_digest(stream, "sha256").hexdigest()
        if digest != sha256:
            raise CorruptTally(
                f"{name} of the export does not match its digest. Nothing was imported."
            )

    def _open(self, name: str) -> BufferedReader:
        try:
            return open_regular(self._folder, name)
        except OSError as error:
            raise CorruptTally(f"The export lacks {name}, or it is no file of its own.") from error


def _no_bytes(value: Any) -> bytes:
    return b""


def _manifest(folder: Path) -> dict[str, Any]:
    file = folder / "manifest.json"
    try:
        with open_regular(folder, "manifest.json") as stream:
            manifest: dict[str, Any] = strict_json(stream.read())
    except OSError as error:
        raise InvalidInput(f"{folder} is no export: its manifest.json cannot be read.") from error
    except ValueError as error:
        raise CorruptTally(f"{file} is damaged.") from error
    if not isinstance(manifest, dict) or "format" not in manifest or "files" not in manifest:
        raise InvalidInput(f"{folder} is no export: its manifest.json says nothing of one.")
    if type(manifest["format"]) is not int or not isinstance(manifest.get("schema"), str):
        raise CorruptTally(f"{file} is damaged.")
    if manifest["format"] != FORMAT or manifest["schema"] != migrate.HEAD:
        raise InvalidInput(
            f"{folder} has format {manifest['format']} and schema {manifest['schema']!a}; this "
            f"release reads format {FORMAT} and schema {migrate.HEAD}. Import it with the release "
            "that wrote it."
        )
    unsigned = {key: value for key, value in manifest.items() if key != "digest"}
    try:
        matches = manifest.get("digest") == text_digest("export", canonical_json(unsigned))
    except InvalidInput as error:
        raise CorruptTally(f"{file} is damaged.") from error
    if not matches:
        raise CorruptTally(f"{file} does not match its digest.")
    if not _is_shaped(manifest):
        raise CorruptTally(f"{file} is damaged.")
    return manifest


def _is_shaped(manifest: Mapping[str, Any]) -> bool:
    """Return True if the parts of a manifest have the types that an export writes."""
    files, blobs, names = (manifest.get(key) for key in ("files", "blobs", "scopes"))
    return (
        isinstance(files, dict)
        and all(
            isinstance(entry, dict)
            and isinstance(entry.get("sha256"), str)
            and type(entry.get("lines")) is int
            for entry in files.values()
        )
        and {"memories.jsonl", "sources.jsonl", "journal.jsonl"} <= set(files)
        and isinstance(blobs, dict)
        and all(type(size) is int and size >= 0 for size in blobs.values())
        and isinstance(names, list)
        and all(isinstance(name, str) for name in names)
    )
