"""Segment files: what recall derived from the text of a scope, in the folder of an embedded tally,
so that a process that starts maps it into memory instead of analysing the text anew.

A file is made once and never changed; its name has the scope and the revision, and its header the
journal entry that it was derived at: with another journal, as after a database was put back from a
copy, its numbers mean other memories, and it is not read. A process that maps one holds a lock
beside it until it lets go, so that an erasure can tell who still has the text.

Only regular files of this user are read, through no link; what has no name of ours is left alone. A
question that finds no file it can use is answered without.
"""

from __future__ import annotations

import hashlib
import json
import mmap
import os
import re
import time
import uuid
import weakref
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from filelock import FileLock, Timeout

from tallystick.logs import get_logger
from tallystick.ranking.frozen import FORM, Frozen, thaw
from tallystick.storage.engine.private_files import (
    is_own,
    make_private_folder,
    open_private,
    open_regular,
    restrict,
)
from tallystick.storage.rows.journal import Origin

if TYPE_CHECKING:
    from tallystick.ranking.corpus import Corpus

FOLDER = "recall"
"""The folder of segment files, in that of the tally."""

_MAGIC = b"tallystick segment 1\n"
_DIGEST = 32
_START = len(_MAGIC) + _DIGEST + 8
"""Bytes before the header: the last eight have its length."""
_ALIGN = 64
_WAIT = 2.0
"""Seconds that an erasure waits for others to let go of their mappings."""
_NAME = re.compile(
    r"[0-9]{1,20}-(?P<revision>[0-9]{1,20})(-(?P<pid>[0-9]{1,20}))?-[0-9a-f]{8}"
    r"\.(?P<kind>seg|part|held)"
)


class _Named(NamedTuple):
    """A file of ours, as its name says."""

    revision: int
    pid: int
    """The process that holds a lock; 0 of others."""
    kind: str
    """`seg`; `part` of one that is not finished; `held`, the lock of a process that maps one."""
    file: Path


class MappedFile(NamedTuple):
    """A file that is mapped. Removed it stays mapped as it was; what was cut off of it is gone."""

    path: Path
    map: mmap.mmap

    def is_whole(self) -> bool:
        """Return False if the file was cut since: whoever reads what is gone ends by a signal
        (SIGBUS).
        """
        return self.map.size() == len(self.map)


class KeptCorpus(NamedTuple):
    """The corpus of a segment that is kept, as of `revision`."""

    corpus: Corpus
    revision: int
    fingerprint: str
    dimension: int
    file: MappedFile | None = None
    """The file that is mapped; None for one of the database."""


HasOrigin = Callable[[Origin], bool]
"""Returns True if the tally's journal has the entry that something was derived at."""


class SegmentFiles:
    """The segment files of one embedded tally. Thread-safe: each file is written under a name of
    its own and then renamed.
    """

    def __init__(self, folder: Path, tally_id: str) -> None:
        self._folder = folder / FOLDER
        self._tally_id = tally_id

    def load(
        self,
        scope_id: int,
        *,
        floor: int,
        fingerprint: str,
        revision: int,
        has_origin: HasOrigin,
    ) -> KeptCorpus | None:
        """Return the newest file of a scope from `floor` up to `revision`, mapped; None where there
        is none that fits, or none can be held.

        A file from below the floor, of another tally or another journal, one that is damaged or
        cut, and what is no regular file of this user is removed.
        """
        for named in self._files(scope_id, "seg"):
            if named.revision > revision:
                continue
            try:
                held = self._hold(scope_id, named.revision)
            except OSError as error:
                # Unheld, an erasure could not tell that it is mapped.
                get_logger("storage").warning("segment.not_held", reason=type(error).__name__)
                return None
            try:
                mapped = self._map_file(
                    named.file, scope_id, floor=floor, held=held, has_origin=has_origin
                )
            except (OSError, ValueError, TypeError, LookupError) as error:
                get_logger("storage").warning(
                    "segment.ignored", file=named.file.name, reason=type(error).__name__
                )
                _release(held)
                _remove(named.file)
                continue
            if fingerprint in ("", mapped.fingerprint):
                return mapped
            del mapped
        return None

    def save(
        self,
        scope_id: int,
        frozen: Frozen,
        *,
        revision: int,
        origin: Origin,
        fingerprint: str,
        dimension: int,
    ) -> Path | None:
        """Write a scope's arrays as of `revision`, in place of earlier ones; None, logging why,
        where the disk takes no file. `origin` is of the snapshot that had the revision.
        """
        header, offset = dict[str, Any](), 0
        for name, values in frozen.arrays.items():
            offset += -offset % _ALIGN
            header[name] = [values.dtype.str, list(values.shape), offset]
            offset += values.nbytes
        about = {
            **frozen.about,
            "form": FORM,
            "tally": self._tally_id,
            "scope": scope_id,
            "revision": revision,
            "origin": origin,
            "fingerprint": fingerprint,
            "dimension": dimension,
            "arrays": header,
        }
        text = json.dumps(about, ensure_ascii=False).encode()
        text += b" " * (-(_START + len(text)) % _ALIGN)
        older = self._files(scope_id, "seg", "part")
        target = self._folder / f"{scope_id}-{revision:020}-{uuid.uuid4().hex[:8]}.seg"
        part = target.with_suffix(".part")
        try:
            make_private_folder(self._folder)
            with open_private(part) as stream:
                digest = hashlib.blake2b(digest_size=_DIGEST)
                stream.write(_MAGIC + bytes(_DIGEST))
                written = 0
                for data in (len(text).to_bytes(8, "little"), text):
                    digest.update(data)
                    stream.write(data)
                for values in frozen.arrays.values():
                    padding = bytes(-written % _ALIGN)
                    body = memoryview(values.tobytes())
                    for piece in (padding, body):
                        digest.update(piece)
                        stream.write(piece)
                    written += len(padding) + len(body)
                stream.seek(len(_MAGIC))
                stream.write(digest.digest())
            part.replace(target)
        except OSError as error:
            get_logger("storage").warning("segment.not_written", reason=type(error).__name__)
            _remove(part)
            return None
        for named in older:
            _remove(named.file)
        return target

    def newest_revision(self, scope_id: int, *, floor: int) -> int | None:
        """Return the revision of the newest file of a scope, by its name; None without one."""
        revisions = (each.revision for each in self._files(scope_id, "seg"))
        return next((each for each in revisions if each >= floor), None)

    def strays(self, has_origin: HasOrigin) -> list[Path]:
        """Return the files that are of another journal, or cannot be read."""
        strays = []
        for named in self._files(None, "seg"):
            try:
                with open_regular(self._folder, named.file.name) as stream:
                    start = stream.read(_START)
                    about = json.loads(stream.read(int.from_bytes(start[-8:], "little")))
                if has_origin(Origin(*about["origin"])):
                    continue
            except FileNotFoundError:
                continue
            except (OSError, ValueError, TypeError, LookupError):
                pass
            strays.append(named.file)
        return strays

    def remove(self, files: Iterable[Path] | None = None) -> None:
        """Remove these files, or every file: the next recall makes them anew."""
        if files is None:
            files = [named.file for named in self._files(None, "seg", "part")]
        for file in files:
            _remove(file)

    def remove_erased(self, scope_id: int, *, floor: int, wait: float = _WAIT) -> list[int]:
        """Remove the files of a scope from below its floor, and wait until nobody maps one; return
        the processes that still do after that time.
        """
        for file in self.list_below_floor(scope_id, floor=floor):
            _remove(file)
        end = time.monotonic() + wait
        while (holders := self.holders(scope_id, floor=floor)) and time.monotonic() < end:
            time.sleep(0.02)
        return holders

    def list_below_floor(self, scope_id: int, *, floor: int) -> list[Path]:
        """Return the files of a scope from below its floor."""
        files = self._files(scope_id, "seg", "part")
        return [each.file for each in files if each.revision < floor]

    def holders(self, scope_id: int, *, floor: int) -> list[int]:
        """Return the processes that map a file of a scope from below its floor."""
        pids = set()
        for marker in self._files(scope_id, "held"):
            if marker.revision >= floor:
                continue
            lock = FileLock(str(marker.file), timeout=0, thread_local=False, mode=0o600)
            try:
                lock.acquire()
            except Timeout:
                pids.add(marker.pid)
                continue
            except OSError:
                continue
            # Its process has ended.
            _release(lock)
        return sorted(pids)

    def _files(self, scope_id: int | None, *kinds: str) -> list[_Named]:
        """Return the files of a scope, or of every scope, of these kinds, newest first."""
        found = []
        for file in self._folder.glob(f"{'*' if scope_id is None else scope_id}-*"):
            name = _NAME.fullmatch(file.name)
            if name is not None and name["kind"] in kinds:
                pid = int(name["pid"] or 0)
                found.append(_Named(int(name["revision"]), pid, name["kind"], file))
        return sorted(found, reverse=True)

    def _hold(self, scope_id: int, revision: int) -> FileLock:
        marker = self._folder / f"{scope_id}-{revision}-{os.getpid()}-{uuid.uuid4().hex[:8]}.held"
        lock = FileLock(str(marker), timeout=0, thread_local=False, mode=0o600)
        lock.acquire()
        return lock

    def _map_file(
        self, file: Path, scope_id: int, *, floor: int, held: FileLock, has_origin: HasOrigin
    ) -> KeptCorpus:
        import numpy as np

        digest = hashlib.blake2b(digest_size=_DIGEST)
        restrict(file)
        with open_regular(self._folder, file.name) as stream:
            if not is_own(stream):
                raise PermissionError("of another user")
            if stream.read(len(_MAGIC)) != _MAGIC:
                raise ValueError("another format")
            expected = stream.read(_DIGEST)
            while piece := stream.read(1 << 20):
                digest.update(piece)
            if digest.digest() != expected:
                raise ValueError("damaged")
            # As much as was read: a file that is shorter by now is refused.
            whole = mmap.mmap(stream.fileno(), stream.tell(), access=mmap.ACCESS_READ)
        # NumPy's arrays keep the map, the map keeps the lock.
        data = np.frombuffer(whole, dtype=np.uint8)
        length = int.from_bytes(bytes(data[_START - 8 : _START]), "little")
        about: Mapping[str, Any] = json.loads(bytes(data[_START : _START + length]))
        wanted = (FORM, self._tally_id, scope_id)
        if (about["form"], about["tally"], about["scope"]) != wanted or about["revision"] < floor:
            raise ValueError("of something else")
        if not has_origin(Origin(*about["origin"])):
            raise ValueError("of another journal")
        first = _START + length
        arrays = {}
        for name, (dtype, shape, offset) in about["arrays"].items():
            kind = np.dtype(dtype)
            end = first + offset + kind.itemsize * int(np.prod(shape, dtype=np.int64))
            arrays[name] = data[first + offset : end].view(kind).reshape(shape)
        corpus = thaw(about, arrays)
        weakref.finalize(data, _release, held)
        return KeptCorpus(
            corpus,
            int(about["revision"]),
            about["fingerprint"],
            int(about["dimension"]),
            MappedFile(file, whole),
        )


def _remove(file: Path) -> None:
    try:
        file.unlink(missing_ok=True)
    except OSError as error:
        get_logger("storage").warning(
            "segment.not_removed", file=file.name, reason=type(error).__name__
        )


def _release(lock: FileLock) -> None:
    lock.release()
    _remove(Path(lock.lock_file))
