"""What the recorder works with, and how a payload becomes bytes, a commitment and a count of redactions."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Hashable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import lru_cache
from hashlib import blake2b
from typing import Any, Protocol

from tallystick.access import Gate
from tallystick.errors import ClosedTally
from tallystick.logs import get_logger
from tallystick.recorder.pieces import Piece, pieces_of, plain
from tallystick.recorder.writing import Batches
from tallystick.records import EntryKind, Json, Record, Retention, commitment
from tallystick.storage import Store

__all__ = ["DOMAIN", "Backlog", "Claims", "Health", "Payload", "RecorderRoom", "Redacts", "Sealed", "Summary"]

DOMAIN = "step-payload"
"""Domain of payload commitments."""
_MOST_WAITING = 64 * 1024 * 1024
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


@dataclass(frozen=True, slots=True)
class Sealed:
    """A payload ready to be stored, and what the receipt will say of it."""

    pieces: tuple[bytes, ...] | None
    salt: bytes
    said: dict[str, Any]
    """The fields of a ReceiptEntry."""

    @property
    def size(self) -> int:
        """Bytes of the payload."""
        return 0 if self.pieces is None else sum(map(len, self.pieces))


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
        get_logger("recorder").warning("capture.failed", surface=where, error=type(error).__name__, failures=count)

    @property
    def missed(self) -> dict[str, int]:
        """How often, by surface and type of error."""
        with self._guard:
            return dict(self._missed)


class Claims:
    """Which of several observers records a call of a runtime, by the runtime's own identity. Thread-safe."""

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


@dataclass(frozen=True)
class RecorderRoom:
    """The dependencies of the recorder. Thread-safe."""

    store: Store
    gate: Gate
    redactor: Redacts
    retention: Retention
    backlog: Backlog = field(default_factory=lambda: Backlog(_MOST_WAITING))
    """Beyond its size payloads are left out and counted as a gap."""
    health: Health = field(default_factory=Health)
    claims: Claims = field(default_factory=Claims)
    batches: Batches = field(init=False)
    _clean: dict[bytes, None] = field(default_factory=dict)
    _names: dict[str, bool] = field(default_factory=dict)
    _sealer: ThreadPoolExecutor = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "batches", Batches(self.store))
        object.__setattr__(self, "_sealer", ThreadPoolExecutor(1, thread_name_prefix="tallystick-sealer"))

    def close(self) -> None:
        """Let go of the thread that seals, once it has sealed what waits."""
        self._sealer.shutdown()

    def seal_later(
        self, kind: EntryKind, payload: Record, *, retention: Retention, summary: Summary = None
    ) -> Future[Sealed]:
        """Same as `seal`, on a thread of the recorder's own: a record cannot change until then. Raises ClosedTally."""
        try:
            return self._sealer.submit(self.seal, kind, payload, retention=retention, summary=summary)
        except RuntimeError as error:
            raise ClosedTally from error

    def seal(self, kind: EntryKind, payload: Payload, *, retention: Retention, summary: Summary = None) -> Sealed:
        """Serialise a payload now, so that later changes of the caller's objects cannot reach the record.

        Secrets are replaced before anything is hashed. Under `metadata_only` the payload is not even serialised.
        """
        salt = os.urandom(16)
        summary = summary() if callable(summary) else summary
        if retention == "metadata_only":
            return _sealed(kind, None, salt, summary, state="not_kept")
        if callable(payload):
            payload = payload()
        pieces = pieces_of(payload)
        counts: Mapping[str, int] = {}
        if retention == "redacted_payloads" and not all(map(self._is_clean, pieces)):
            value, counts = self.redactor.redact_json(plain(payload))
            pieces = pieces_of(value)
        return _sealed(kind, pieces, salt, summary, state="redacted" if counts else "kept", counts=counts)

    def _is_clean(self, piece: Piece) -> bool:
        """Whether redacting would leave a piece as it is, found out once for each."""
        if piece.value is None:
            return True
        key = blake2b(piece.body, digest_size=16, person=_person(piece.name if piece.listed else None)).digest()
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
        if not piece.listed or piece.name is None:
            return False
        if piece.name not in self._names:
            self._names[piece.name] = self.redactor.may_hold(piece.name.encode("utf-8", "replace"))
        return self._names[piece.name]


@lru_cache(maxsize=1_024)
def _person(name: str | None) -> bytes:
    """What tells equal elements of lists of different names apart; what is no element names itself."""
    return b"" if name is None else blake2b(name.encode("utf-8", "surrogatepass"), digest_size=16).digest()


def _sealed(
    kind: EntryKind, pieces: list[Piece] | None, salt: bytes, summary: Mapping[str, Any] | None, *, state: str,
    counts: Mapping[str, int] | None = None,
) -> Sealed:  # fmt: skip
    bodies = None if pieces is None else tuple(piece.body for piece in pieces)
    said: dict[str, Any] = {
        "kind": kind, "commitment": commitment(DOMAIN, salt, *(bodies or ())), "payload_state": state,
    }  # fmt: skip
    if counts:
        said["redactions"] = dict(counts)
    if summary:
        said["summary"] = _chainable(summary)
    return Sealed(bodies, salt, said)


def _chainable(value: Any) -> Any:
    """A summary as canonical JSON can hold it: no floats, ASCII keys."""
    if value is None or isinstance(value, str | int):
        return value
    if isinstance(value, Mapping):
        return {
            str(key).encode("ascii", "backslashreplace").decode(): _chainable(inner) for key, inner in value.items()
        }
    if isinstance(value, list | tuple | set | frozenset):
        return [_chainable(inner) for inner in value]
    if isinstance(value, float):
        return repr(value)
    return str(value)
