"""What the recorder works with, and how a payload becomes bytes, a commitment and a count of
redactions.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable, Hashable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any, NamedTuple, Protocol

from tallystick.access import Gate
from tallystick.errors import ClosedTally
from tallystick.logs import get_logger
from tallystick.recorder.pieces import Piece, Pieces, pieces_of, weight_of
from tallystick.recorder.text_memo import clear_text_memos
from tallystick.recorder.write_queue import WriteQueue
from tallystick.records import EntryKind, Json, Record, Retention, commitment, read_json
from tallystick.storage import Store

__all__ = [
    "DOMAIN",
    "Backlog",
    "Claims",
    "Health",
    "Payload",
    "RecorderContext",
    "Redacts",
    "PreparedPayload",
    "Summary",
    "Captured",
]

DOMAIN = "step-payload"
"""Domain of payload commitments."""
_LARGE = 256 * 1024
_SALT = 16
_DRAWN = 256 * _SALT
_MOST_WAITING = 64 * 1024 * 1024
_MARKS = 256
"""Names of lists whose elements are marked."""
_SHORT = 256
"""Bytes up to which a piece is known as it is, beyond by its digest."""
_CLEAN = 32_768
"""Pieces that are known to hold no secret, of which half are forgotten when there are more."""


class Redacts(Protocol):
    """What replaces secrets before a payload is hashed and stored."""

    def redact_text(self, text: str) -> tuple[str, Mapping[str, int]]:
        """Same as `redact_json`, for text."""
        ...

    def redact_json(self, value: Json) -> tuple[Json, Mapping[str, int]]:
        """The value without its secrets, and how many of each kind were replaced."""
        ...

    def may_hold(self, text: bytes) -> bool:
        """Whether JSON text may hold a secret; False is certain."""
        ...


Payload = Any
"""JSON values, or records, which are dumped, or a function that makes them."""

Summary = Mapping[str, Any] | Callable[[], Mapping[str, Any]] | None
"""What the receipt says of a payload, or a function that makes it."""


class Captured(NamedTuple):
    """A payload as it was when it was recorded."""

    kind: EntryKind
    payload: Pieces | Record | None
    """In pieces, or a record, which does not change; None where none is kept."""
    summary: Summary
    """A function only where the payload is a record."""
    retention: Retention
    size: int
    """Bytes of the payload, of a record about."""

    @property
    def is_large(self) -> bool:
        """Whether it should be sealed on a thread of its own, because the writer would keep others
        waiting.
        """
        return self.size > _LARGE or not (self.payload is None or type(self.payload) is Pieces)


class PreparedPayload(NamedTuple):
    """A payload ready to be stored, and what the receipt will say of it."""

    pieces: Sequence[bytes] | None
    salt: bytes | None
    """None where no payload is kept that could be held against a commitment."""
    said: dict[str, Any]
    """The fields of a ReceiptEntry."""


class Health:
    """What this process failed to record. Thread-safe."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._missed: dict[str, int] = {}

    def miss(self, where: str, error: BaseException) -> None:
        """Count and log an event that could not be recorded."""
        key = f"{where}: {type(error).__name__}"
        with self._guard:
            count = self._missed[key] = self._missed.get(key, 0) + 1
        get_logger("recorder").warning(
            "capture.failed", surface=where, error=type(error).__name__, failures=count
        )

    @property
    def missed(self) -> dict[str, int]:
        """How often, by surface and type of error."""
        with self._guard:
            return dict(self._missed)


class Claims:
    """Which of several observers records a call of a runtime, by the runtime's own identity.
    Thread-safe.
    """

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._held: dict[Hashable, object] = {}

    def take(self, key: Hashable, owner: object) -> bool:
        """Whether `owner` is the one to record it: the first that asks is."""
        with self._guard:
            return self._held.setdefault(key, owner) is owner

    def release(self, key: Hashable, owner: object) -> None:
        """The call has ended; only its owner says so."""
        with self._guard:
            if self._held.get(key) is owner:
                del self._held[key]


class Backlog:
    """Bytes of payloads that wait to be stored. Thread-safe."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._held = 0
        self._guard = threading.Lock()

    def add(self, size: int) -> None:
        """More bytes wait, or fewer."""
        if size:
            with self._guard:
                self._held += size

    @property
    def full(self) -> bool:
        """Whether no more should wait."""
        return self._held >= self._most


class Salts:
    """Random bytes, 16 at a time. Thread-safe.

    They are drawn many at once: to ask the system lets go of the interpreter, which costs more than
    to record a step.
    """

    def __init__(self) -> None:
        self._ready: deque[bytes] = deque()

    def new(self) -> bytes:
        """Bytes that were given to nobody before."""
        while True:
            try:
                return self._ready.popleft()
            except IndexError:
                drawn = os.urandom(_DRAWN)
                self._ready.extend(
                    drawn[start : start + _SALT] for start in range(0, _DRAWN, _SALT)
                )


@dataclass(frozen=True)
class RecorderContext:
    """The dependencies of the recorder. Thread-safe."""

    store: Store
    gate: Gate
    redactor: Redacts
    retention: Retention
    backlog: Backlog = field(default_factory=lambda: Backlog(_MOST_WAITING))
    """Beyond its size payloads are left out and counted as a gap."""
    health: Health = field(default_factory=Health)
    claims: Claims = field(default_factory=Claims)
    salts: Salts = field(default_factory=Salts)
    write_queue: WriteQueue = field(init=False)
    _clean: dict[tuple[str | None, bytes], None] = field(default_factory=dict)
    _names: dict[str, bool] = field(default_factory=dict)
    _marks: dict[str, object] = field(default_factory=dict)
    _sealer: ThreadPoolExecutor = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "write_queue", WriteQueue(self.store))
        object.__setattr__(
            self, "_sealer", ThreadPoolExecutor(1, thread_name_prefix="tallystick-sealer")
        )

    def let_go(self) -> None:
        """Forget what is kept of texts in memory; it is found out anew."""
        self._clean.clear()
        clear_text_memos()
        self.store.database.write(lambda tx: self.write_queue.bases.clear(), name="payloads.let_go")

    def close(self) -> None:
        """Let go of the thread that seals, once it has sealed what waits."""
        self._sealer.shutdown()

    def take(
        self, kind: EntryKind, payload: Payload, *, retention: Retention, summary: Summary = None
    ) -> Captured:
        """Take a payload as it is now, so that later changes of the caller's objects cannot reach
        the record.

        What of it may change is serialised; under `metadata_only` it is not even looked at. `seal`
        does the rest.
        """
        if type(payload) is not dict and not callable(payload) and isinstance(payload, Record):
            return Captured(
                kind,
                payload,
                summary,
                retention,
                0 if retention == "metadata_only" else weight_of(payload),
            )
        if retention == "metadata_only":
            return Captured(kind, None, _told(summary), retention, 0)
        pieces = pieces_of(payload() if callable(payload) else payload, self._mark)
        return Captured(kind, pieces, _told(summary), retention, sum(map(len, pieces.bodies)))

    def seal_later(self, taken: Captured) -> Future[PreparedPayload] | None:
        """Same as `seal`, on a thread of the recorder's own, for what would hold others up. Raises
        ClosedTally.

        None where there is no such thread any more, because the interpreter ends.
        """
        try:
            return self._sealer.submit(self.seal, taken)
        except RuntimeError as error:
            if self.store.database.closed:
                raise ClosedTally from error
            return None

    def seal(self, taken: Captured) -> PreparedPayload:
        """A payload ready to be stored. Secrets are replaced before anything is hashed."""
        kind, pieces, summary, retention, _ = taken
        if pieces is None or retention == "metadata_only":
            return PreparedPayload(
                None, None, _said(kind, "not_kept", summary if pieces is None else _told(summary))
            )
        if not isinstance(pieces, Pieces):
            pieces, summary = pieces_of(pieces), _told(summary)
        bodies, doubtful = pieces
        counts: Mapping[str, int] = {}
        if retention == "redacted_payloads" and not all(map(self._is_clean, doubtful)):
            value, counts = self.redactor.redact_json(read_json(b"".join(bodies)))
            bodies = pieces_of(value).bodies
        salt = self.salts.new()
        said = _said(kind, "redacted" if counts else "kept", summary)
        said["commitment"] = commitment(DOMAIN, salt, *bodies)
        if counts:
            said["redactions"] = dict(counts)
        return PreparedPayload(bodies, salt, said)

    def _is_clean(self, piece: Piece) -> bool:
        """Whether redacting would leave a piece as it is, found out once for each."""
        written = piece.written
        if written is None or piece.name is None:
            return self._is_known(piece)
        mark = self._mark(piece.name)
        clean = (mark is not None and written.cleared is mark) or self._is_known(piece)
        if clean:
            written.cleared = mark
        return clean

    def _mark(self, name: str) -> object:
        """What stands on an element of a list of that name that holds no secret."""
        mark = self._marks.get(name)
        if mark is None and len(self._marks) < _MARKS:
            mark = self._marks.setdefault(name, object())
        return mark

    def _is_known(self, piece: Piece) -> bool:
        # Where an element stands counts too: the name of a list may say that what is in it is a
        # secret.
        body = (
            piece.body
            if len(piece.body) <= _SHORT
            else blake2b(piece.body, digest_size=16).digest()
        )
        key = (piece.name, body)
        if key in self._clean:
            return True
        if self.redactor.may_hold(piece.body) or self._telling(piece):
            alone = piece.alone()
            redacted, counts = self.redactor.redact_json(alone)
            # A placeholder that stands there already moves the numbers of those elsewhere.
            if counts or redacted != alone or b"[redacted:" in piece.value:
                return False
        if len(self._clean) >= _CLEAN:
            for old in list(self._clean)[: _CLEAN // 2]:
                self._clean.pop(old, None)
        self._clean[key] = None
        return True

    def _telling(self, piece: Piece) -> bool:
        """Whether the name of the list that an element stands in may say that it is a secret."""
        if piece.name is None:
            return False
        if piece.name not in self._names:
            self._names[piece.name] = self.redactor.may_hold(piece.name.encode("utf-8", "replace"))
        return self._names[piece.name]


def _said(kind: EntryKind, state: str, told: Any) -> dict[str, Any]:
    said: dict[str, Any] = {"kind": kind, "payload_state": state}
    if told:
        said["summary"] = told
    return said


def _told(summary: Summary) -> Mapping[str, Any] | None:
    """A summary as the receipt will have it, apart from what the caller holds."""
    told: Mapping[str, Any] | None = _chainable(summary() if callable(summary) else summary)
    return told


def _chainable(value: Any) -> Any:
    """A summary as canonical JSON can hold it: no floats, ASCII keys."""
    if value is None or isinstance(value, str | int):
        return value
    if type(value) is dict or isinstance(value, Mapping):
        return {_key(key): _chainable(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_chainable(inner) for inner in value]
    if isinstance(value, float):
        return repr(value)
    return str(value)


def _key(key: Any) -> str:
    if type(key) is str and key.isascii():
        return key
    return str(key).encode("ascii", "backslashreplace").decode()
