"""Segment files: what recall derived from the text of a scope, in the folder of an embedded tally,
so that a process that starts maps it into memory instead of analysing the text anew.

A file is made once and never changed; its name has the scope and the revision. A process that maps
one holds a lock beside it until it lets go, so that an erasure can tell who still has the text.
"""

from __future__ import annotations

import hashlib
import json
import mmap
import os
import time
import uuid
import weakref
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from filelock import FileLock, Timeout

from tallystick.logs import get_logger
from tallystick.ranking.frozen import FORM, Frozen, thaw
from tallystick.storage.private_files import make_private_folder, open_private

if TYPE_CHECKING:
    from tallystick.ranking.corpus import Corpus

__all__ = ["FOLDER", "MappedCorpus", "SegmentFiles"]

FOLDER = "recall"
"""The folder of segment files, in that of the tally."""

_MAGIC = b"tallystick segment 1\n"
_DIGEST = 32
_ALIGN = 64
_WAIT = 2.0
"""Seconds that an erasure waits for others to let go of their mappings."""


class MappedCorpus(NamedTuple):
    """The corpus of a file, as of `revision`."""

    corpus: Corpus
    revision: int
    fingerprint: str
    dimension: int
    file: Path


class SegmentFiles:
    """The segment files of one embedded tally. Thread-safe: each file is written under a name of
    its own and then renamed.
    """

    def __init__(self, folder: Path, tally_id: str) -> None:
        self._folder = folder / FOLDER
        self._tally_id = tally_id

    def load(self, scope_id: int, *, epoch: int, fingerprint: str) -> MappedCorpus | None:
        """Return the newest file of a scope, mapped; None where there is none that fits.

        A file of an earlier epoch or that is damaged, cut or of another tally is removed.
        """
        for file in self._files(scope_id):
            if file.suffix != ".seg":
                continue
            held = self._hold(scope_id, _epoch(file))
            try:
                mapped = self._mapped(file, scope_id, epoch=epoch, held=held)
            except (OSError, ValueError, KeyError) as error:
                get_logger("storage").warning(
                    "segment.ignored", file=file.name, reason=type(error).__name__
                )
                _release(held)
                _remove(file)
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
        epoch: int,
        fingerprint: str,
        dimension: int,
    ) -> Path | None:
        """Write a scope's arrays as of `revision`, in place of earlier ones; None, logging why,
        where the disk takes no file.
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
            "epoch": epoch,
            "fingerprint": fingerprint,
            "dimension": dimension,
            "arrays": header,
        }
        text = json.dumps(about, ensure_ascii=False).encode()
        text += b" " * (-(len(_MAGIC) + _DIGEST + 8 + len(text)) % _ALIGN)
        older = self._files(scope_id)
        target = self._folder / f"{scope_id}-{revision:020}-{epoch}-{uuid.uuid4().hex[:8]}.seg"
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
        for file in older:
            _remove(file)
        return target

    def newest_revision(self, scope_id: int, *, epoch: int) -> int | None:
        """Return the revision of the newest file of a scope, by its name; None without one."""
        for file in self._files(scope_id):
            if file.suffix == ".seg" and _epoch(file) == epoch:
                return int(file.stem.split("-")[1])
        return None

    def remove_erased(self, scope_id: int, *, epoch: int, wait: float = _WAIT) -> list[int]:
        """Remove the files of a scope that are older than `epoch`, and wait until nobody maps one;
        return the processes that still do after that time.
        """
        for file in self.erased(scope_id, epoch=epoch):
            _remove(file)
        end = time.monotonic() + wait
        while (holders := self.holders(scope_id, epoch=epoch)) and time.monotonic() < end:
            time.sleep(0.02)
        return holders

    def erased(self, scope_id: int, *, epoch: int) -> list[Path]:
        """Return the files of a scope that are older than `epoch`."""
        return [file for file in self._files(scope_id) if _epoch(file) < epoch]

    def holders(self, scope_id: int, *, epoch: int) -> list[int]:
        """Return the processes that map a file of a scope that is older than `epoch`."""
        pids = set()
        for marker in sorted(self._folder.glob(f"{scope_id}-*.held")):
            if _epoch(marker) >= epoch:
                continue
            lock = FileLock(str(marker), timeout=0, thread_local=False, mode=0o600)
            try:
                lock.acquire()
            except Timeout:
                pids.add(int(marker.stem.split("-")[1]))
                continue
            except OSError:
                continue
            # Its process has ended.
            _release(lock)
        return sorted(pids)

    def _files(self, scope_id: int) -> list[Path]:
        """The files of a scope, also what a process left unfinished, newest first."""
        names = (f"{scope_id}-*.seg", f"{scope_id}-*.part")
        return sorted((file for name in names for file in self._folder.glob(name)), reverse=True)

    def _hold(self, scope_id: int, epoch: int) -> FileLock:
        marker = self._folder / f"{scope_id}-{os.getpid()}-{epoch}-{uuid.uuid4().hex[:8]}.held"
        lock = FileLock(str(marker), timeout=0, thread_local=False, mode=0o600)
        lock.acquire()
        return lock

    def _mapped(self, file: Path, scope_id: int, *, epoch: int, held: FileLock) -> MappedCorpus:
        import numpy as np

        digest = hashlib.blake2b(digest_size=_DIGEST)
        with file.open("rb") as stream:
            if stream.read(len(_MAGIC)) != _MAGIC:
                raise ValueError("another format")
            expected = stream.read(_DIGEST)
            while piece := stream.read(1 << 20):
                digest.update(piece)
            if digest.digest() != expected:
                raise ValueError("damaged")
            whole = mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ)
        # NumPy's arrays keep the map, the map keeps the lock.
        data = np.frombuffer(whole, dtype=np.uint8)
        start = len(_MAGIC) + _DIGEST
        size = int.from_bytes(bytes(data[start : start + 8]), "little")
        about: Mapping[str, Any] = json.loads(bytes(data[start + 8 : start + 8 + size]))
        wanted = (FORM, self._tally_id, scope_id, epoch)
        if (about["form"], about["tally"], about["scope"], about["epoch"]) != wanted:
            raise ValueError("of something else")
        first = start + 8 + size
        arrays = {}
        for name, (dtype, shape, offset) in about["arrays"].items():
            kind = np.dtype(dtype)
            end = first + offset + kind.itemsize * int(np.prod(shape, dtype=np.int64))
            arrays[name] = data[first + offset : end].view(kind).reshape(shape)
        corpus = thaw(about, arrays)
        weakref.finalize(data, _release, held)
        return MappedCorpus(
            corpus, int(about["revision"]), about["fingerprint"], int(about["dimension"]), file
        )


def _epoch(file: Path) -> int:
    """Return the epoch in the name of a file, or of the lock of a process that maps one."""
    return int(file.stem.split("-")[2])


def _remove(file: Path) -> None:
    try:
        file.unlink(missing_ok=True)
    except OSError as error:
        get_logger("storage").warning(
            "segment.not_removed", file=file.name, reason=type(error).__name__
        )


def _release(lock: FileLock) -> None:
    lock.release()
    Path(lock.lock_file).unlink(missing_ok=True)
