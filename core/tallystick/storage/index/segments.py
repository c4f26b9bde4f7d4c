"""Segments in the database: what recall derived from the text of a large scope, in pieces, so that
a process reads what a question needs of it instead of analysing everything.

A segment is made once, as of a revision of its scope, and never changed: what was written since is
analysed by each process. Erasing text of a scope raises its floor and removes its segments in the
same transaction. Each piece begins with its checksum: one that was damaged is never used.
"""

from __future__ import annotations

import json
import threading
import zlib
from collections import OrderedDict
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sqlalchemy import (
    Connection,
    bindparam,
    delete,
    insert,
    select,
)

from tallystick.errors import StorageError
from tallystick.ranking.frozen import FORM, Frozen, thaw
from tallystick.storage.engine import tables
from tallystick.storage.engine.prepared import Prepared, in_list, integer_list
from tallystick.storage.rows import scopes

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tallystick.ranking.corpus import Corpus

_ABOUT = "about"
_SUM = 4
"""Bytes of a checksum, CRC-32."""
_PIECE = {"words": 1_024, "slice_of": 16_384, "often": 16_384}
"""Numbers in one piece of the arrays that are read in part."""
_WHOLE = 1_000_000
"""Bytes in one piece of the others, at least."""
_KEPT = 32 * 1024 * 1024
"""Bytes of pieces that a process keeps for each scope."""
_AT_ONCE = 400

_s = tables.recall_segments
_FIND = (
    select(_s.c.revision, _s.c.data)
    .where(_s.c.scope_id == bindparam("scope_id"), _s.c.name == _ABOUT)
    .order_by(_s.c.revision.desc())
)
_OF_ARRAY = select(_s.c.piece, _s.c.data).where(
    _s.c.scope_id == bindparam("scope_id"),
    _s.c.revision == bindparam("revision"),
    _s.c.name == bindparam("name"),
)
_PIECES = Prepared(_OF_ARRAY.where(in_list(_s.c.piece, "pieces")), reads_bytes=True)
_CONNECTION: ContextVar[Connection] = ContextVar("segments_connection")


class SegmentGone(StorageError):
    """A segment was removed while a question used it; asked again, recall reads another."""

    def __init__(self, scope_id: int, revision: int) -> None:
        super().__init__()
        self.scope_id, self.revision = scope_id, revision


class SegmentDamaged(SegmentGone):
    """A piece of a segment is not what was stored."""


@dataclass(frozen=True)
class StoredSegment:
    """What is known of a segment before its arrays are read."""

    scope_id: int
    revision: int
    about: Mapping[str, Any]


@contextmanager
def reading(connection: Connection) -> Iterator[None]:
    """Let corpora of stored segments read their pieces by `connection`, in this thread."""
    token = _CONNECTION.set(connection)
    try:
        yield
    finally:
        _CONNECTION.reset(token)


def remove(tx: Connection, scope_id: int) -> None:
    """Remove the segments of a scope: the next recall makes one anew."""
    tx.execute(delete(_s).where(_s.c.scope_id == scope_id))


def count_damaged(connection: Connection) -> dict[int, int]:
    """Return the number of damaged pieces, by scope; reads every segment."""
    counts: dict[int, int] = {}
    for scope_id, data in connection.execute(select(_s.c.scope_id, _s.c.data)):
        if _check_piece(bytes(data)) is None:
            counts[scope_id] = counts.get(scope_id, 0) + 1
    return counts


def find(
    connection: Connection, scope_id: int, fingerprint: str, *, besides: Collection[int] = ()
) -> StoredSegment | None:
    """Return the newest segment of a scope with vectors of `fingerprint`, or of any where it is
    empty; None where there is none that this release reads. Those of the revisions `besides` are
    passed over.
    """
    for revision, data in connection.execute(_FIND, {"scope_id": scope_id}):
        text = _check_piece(bytes(data))
        if text is None or revision in besides:
            continue
        about = json.loads(text)
        if about["form"] == FORM and fingerprint in ("", about["fingerprint"]):
            return StoredSegment(scope_id, int(revision), about)
    return None


def save(
    tx: Connection,
    scope_id: int,
    frozen: Frozen,
    *,
    revision: int,
    fingerprint: str,
    dimension: int,
) -> bool:
    """Store a scope's arrays as of `revision` in place of earlier ones; False, storing nothing,
    where text was erased since.
    """
    if scopes.floor_of(tx, scope_id) > revision:
        return False
    tx.execute(delete(_s).where(_s.c.scope_id == scope_id))
    forms: dict[str, Any] = {}
    for name, values in frozen.arrays.items():
        array, constant = _compact(values)
        forms[name] = [array.dtype.str, values.dtype.str, list(values.shape), constant]
        size = _piece_bytes(name, array)
        data = array.tobytes()
        rows = [
            {
                "scope_id": scope_id,
                "revision": revision,
                "name": name,
                "piece": number,
                "data": _with_sum(part),
            }
            for number, part in enumerate(
                data[start : start + size] for start in range(0, len(data), size)
            )
        ]
        for start in range(0, len(rows), 500):
            tx.execute(insert(_s), rows[start : start + 500])
    about = {
        **frozen.about,
        "form": FORM,
        "fingerprint": fingerprint,
        "dimension": dimension,
        "arrays": forms,
    }
    tx.execute(
        insert(_s).values(
            scope_id=scope_id,
            revision=revision,
            name=_ABOUT,
            piece=0,
            data=_with_sum(json.dumps(about, ensure_ascii=False).encode()),
        )
    )
    return True


def _with_sum(data: bytes) -> bytes:
    return zlib.crc32(data).to_bytes(_SUM, "big") + data


def _check_piece(stored: bytes) -> bytes | None:
    """Return the bytes of a piece, or None where they are not what was stored."""
    data = stored[_SUM:]
    return data if zlib.crc32(data).to_bytes(_SUM, "big") == stored[:_SUM] else None


def read(connection: Connection, stored: StoredSegment) -> Corpus:
    """Return the corpus of a segment, whose postings and words are read when they are asked for,
    by the connection of `reading`. Raises SegmentGone, SegmentDamaged.
    """
    cache = _Pieces(stored)
    arrays: dict[str, Any] = {}
    for name, (stored_dtype, dtype, shape, constant) in stored.about["arrays"].items():
        if name in _PIECE:
            arrays[name] = _Lazy(cache, name, stored_dtype, dtype, shape[0])
        else:
            arrays[name] = _whole(connection, stored, name, stored_dtype, dtype, shape, constant)
    return thaw(stored.about, arrays)


def _compact(values: NDArray[Any]) -> tuple[NDArray[Any], bool]:
    """Return values in the smallest type that holds them, one alone where all are equal."""
    import numpy as np

    if values.ndim != 1 or not len(values) or values.dtype.kind not in "if":
        return np.ascontiguousarray(values), False
    low, high = values.min(), values.max()
    if values.dtype.kind == "f":
        if low >= 0 and high < 65_536 and bool((values == np.floor(values)).all()):
            return values.astype(np.uint8 if high < 256 else np.uint16), False
        return values, False
    if low == high and len(values) > 1:
        return values[:1], True
    small = np.result_type(np.min_scalar_type(low), np.min_scalar_type(high))
    return values.astype(small if small.kind in "iu" else values.dtype), False


def _piece_bytes(name: str, array: NDArray[Any]) -> int:
    return _PIECE[name] * array.itemsize if name in _PIECE else _WHOLE


def _whole(
    connection: Connection,
    stored: StoredSegment,
    name: str,
    stored_dtype: str,
    dtype: str,
    shape: list[int],
    constant: bool,
) -> NDArray[Any]:
    import numpy as np

    query = (
        select(_s.c.data)
        .where(
            _s.c.scope_id == stored.scope_id,
            _s.c.revision == stored.revision,
            _s.c.name == name,
        )
        .order_by(_s.c.piece)
    )
    data = b"".join(_piece(stored, part) for part in connection.execute(query).scalars())
    values = np.frombuffer(data, dtype=stored_dtype)
    if constant:
        if not len(values):
            raise SegmentGone(stored.scope_id, stored.revision)
        return np.broadcast_to(values.astype(dtype), shape)
    if values.size != np.prod(shape, dtype=np.int64):
        raise SegmentGone(stored.scope_id, stored.revision)
    return values.astype(dtype, copy=False).reshape(shape)


def _piece(stored: StoredSegment, data: Any) -> bytes:
    piece = _check_piece(bytes(data))
    if piece is None:
        raise SegmentDamaged(stored.scope_id, stored.revision)
    return piece


class _Pieces:
    """Pieces of one segment, the ones used last in memory. Thread-safe."""

    def __init__(self, stored: StoredSegment) -> None:
        self._stored = stored
        self._guard = threading.Lock()
        self._held: OrderedDict[tuple[str, int], NDArray[Any]] = OrderedDict()
        self._bytes = 0

    def get(self, name: str, numbers: list[int], dtype: str) -> dict[int, NDArray[Any]]:
        """Return some pieces of an array by their numbers. Raises SegmentGone, SegmentDamaged."""
        import numpy as np

        pieces: dict[int, NDArray[Any]] = {}
        with self._guard:
            for number in numbers:
                piece = self._held.get((name, number))
                if piece is not None:
                    self._held.move_to_end((name, number))
                    pieces[number] = piece
        missing = [number for number in numbers if number not in pieces]
        for start in range(0, len(missing), _AT_ONCE):
            connection = _CONNECTION.get()
            rows = _PIECES(
                connection,
                {
                    "scope_id": self._stored.scope_id,
                    "revision": self._stored.revision,
                    "name": name,
                    "pieces": integer_list(connection, missing[start : start + _AT_ONCE]),
                },
            )
            for number, data in rows:
                pieces[number] = np.frombuffer(_piece(self._stored, data), dtype=dtype)
        if len(pieces) < len(numbers):
            raise SegmentGone(self._stored.scope_id, self._stored.revision)
        with self._guard:
            for number in missing:
                self._held[name, number] = pieces[number]
                self._bytes += pieces[number].nbytes
            while self._bytes > _KEPT:
                self._bytes -= self._held.popitem(last=False)[1].nbytes
        return pieces


class _Lazy:
    """An array in the database, of which parts are read."""

    def __init__(
        self, pieces: _Pieces, name: str, stored_dtype: str, dtype: str, size: int
    ) -> None:
        self._pieces, self._name, self._kept, self._dtype = pieces, name, stored_dtype, dtype
        self._size = size
        self._of_piece = _PIECE[name]

    def __len__(self) -> int:
        return self._size

    def __getitem__(self, places: Any) -> NDArray[Any]:
        import numpy as np

        of_piece = self._of_piece
        if isinstance(places, slice):
            start, end, _ = places.indices(self._size)
            if start >= end:
                return np.zeros(0, dtype=self._dtype)
            numbers = list(range(start // of_piece, (end - 1) // of_piece + 1))
            pieces = self._pieces.get(self._name, numbers, self._kept)
            joined = np.concatenate([pieces[number] for number in numbers])
            first = numbers[0] * of_piece
            return joined[start - first : end - first].astype(self._dtype)
        number_of = places // of_piece
        numbers = np.unique(number_of).tolist()
        values = np.zeros(len(places), dtype=self._dtype)
        pieces = self._pieces.get(self._name, numbers, self._kept)
        for number in numbers:
            here = np.flatnonzero(number_of == number)
            values[here] = pieces[number][places[here] - number * of_piece]
        return values
