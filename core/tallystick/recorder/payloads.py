"""A payload on its way into the tally: captured as bytes, searched for secrets, committed to.

`capture` runs in the caller's thread and fixes the bytes; `prepare` runs in the background,
replaces secrets and makes the commitment that the receipt names. The bytes are JSON with sorted
keys, in pieces that begin where the elements of its lists do. Elements come back from call to call,
because a prompt grows at its end: each is searched for secrets once, and stored once.
"""

from __future__ import annotations

import base64
import hmac
import json
import os
import threading
import weakref
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import lru_cache
from hashlib import blake2b
from typing import Any, NamedTuple, Protocol, cast

import orjson
from pydantic import BaseModel

from tallystick.costs import measured
from tallystick.errors import InvalidInput, require
from tallystick.records import (
    EntryKind,
    Json,
    JsonObject,
    Record,
    Retention,
    commitment,
    json_bytes,
    read_json,
    require_json_size,
)
from tallystick.storage.rows.journal import Salts

_NONCE_BYTES = 12


class SealedPayload(NamedTuple):
    """A payload that is stored as it is: nobody reads it without the scope's key."""

    sealed: str
    """Nonce and ciphertext of AES-256-GCM, as base64."""


def require_seal() -> None:
    """Raise MissingExtra unless payloads can be sealed here."""
    require("cryptography", extra="signing")


def seal(secret: bytes, run_id: str, originals: Mapping[str, str]) -> SealedPayload:
    """Seal what placeholders stand for under the secret of a scope; it opens for this run only."""
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    nonce = os.urandom(_NONCE_BYTES)
    ciphertext = AESGCM(_key(secret)).encrypt(nonce, json_bytes(dict(originals)), run_id.encode())
    return SealedPayload(base64.b64encode(nonce + ciphertext).decode())


def unseal(secret: bytes, run_id: str, payload: Json) -> Json:
    """Return what a sealed payload holds; any other payload, and one of another key, as it is."""
    text = payload.get("sealed") if isinstance(payload, dict) else None
    if not isinstance(text, str):
        return payload
    require_seal()
    from cryptography.exceptions import InvalidTag
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    try:
        sealed = base64.b64decode(text, validate=True)
        nonce, ciphertext = sealed[:_NONCE_BYTES], sealed[_NONCE_BYTES:]
        body: Json = json.loads(AESGCM(_key(secret)).decrypt(nonce, ciphertext, run_id.encode()))
    except (InvalidTag, ValueError):
        return payload
    return body


def _key(secret: bytes) -> bytes:
    return hmac.digest(secret, b"tallystick/placeholders-key/v1\x00", "sha256")


DOMAIN = "step-payload"
"""Domain of payload commitments."""
_LARGE_BYTES = 256 * 1024
"""Size from which a payload is prepared on a thread of its own."""
_MAX_CLEARANCES = 256
"""Names of lists for which clearances are issued."""
_SHORT_BYTES = 256
"""Size up to which a piece is memoised by its bytes, beyond by their digest."""
_MAX_CLEAN = 32_768
"""Pieces memoised as free of secrets; half are forgotten when there are more."""
_ELEMENT_BYTES = 128
"""Estimate of the bytes that an element of a record takes beside its text."""
_OPTIONS = (
    orjson.OPT_SORT_KEYS
    | orjson.OPT_PASSTHROUGH_DATACLASS
    | orjson.OPT_PASSTHROUGH_DATETIME
    | orjson.OPT_PASSTHROUGH_SUBCLASS
)

Payload = Any
"""JSON values, or records, which are dumped, or a function that makes them."""

Summary = Mapping[str, Any] | Callable[[], Mapping[str, Any]] | None
"""Facts about a payload for the receipt, or a function that makes them."""


class PayloadRedactor(Protocol):
    """Replaces secrets before a payload is hashed and stored."""

    def redact_text(self, text: str) -> tuple[str, Mapping[str, int]]:
        """Same as `redact_json`, for text."""
        ...

    def redact_json(self, value: Json) -> tuple[Json, Mapping[str, int]]:
        """Return the value without its secrets, and how many of each kind were replaced."""
        ...

    def may_hold(self, text: bytes) -> bool:
        """Return True if JSON text may contain a secret; False is certain."""
        ...


def _without_room(body: bytes) -> bytes:
    """Return bytes to be kept in the memory that they need. Those of a JSON writer have room to
    grow: 4 kB for 500 bytes, 64 kB for 5,000.
    """
    return bytes(memoryview(body))


class Preserialized:
    """A value that its adapter has serialised as JSON already, and may pass again while it stays
    the same.
    """

    __slots__ = ("body", "clearance")

    def __init__(self, body: bytes) -> None:
        self.body = _without_room(body)
        self.clearance: object = None
        """Clearance of the list in which this value was found free of secrets; see
        `PayloadPreparer`.
        """


class Piece(NamedTuple):
    """Bytes of a payload that may contain a secret."""

    body: bytes
    value: bytes
    """The JSON value within `body`."""
    name: str | None = None
    """The key of the list of which the value is an element; None if `value` has its own keys."""
    source: Preserialized | None = None
    """The element itself, where its adapter serialised it."""

    def alone(self) -> Json:
        """Return the value at its place in a payload that contains nothing else."""
        value: Json = read_json(self.value)
        return value if self.name is None else {self.name: [value]}


class Pieces(NamedTuple):
    """A payload in pieces."""

    bodies: list[bytes]
    """All its bytes, in order, cut where the elements of its lists begin and end."""
    unchecked: list[Piece]
    """Pieces that may contain a secret: all but the elements that have a clearance."""


class Captured(NamedTuple):
    """A payload as it was when it was recorded."""

    kind: EntryKind
    payload: Pieces | Record | None
    """In pieces, or a record, which does not change; None where none is kept."""
    summary: Summary
    """A function only where the payload is a record."""
    retention: Retention
    size: int
    """Bytes of the payload; an estimate for a record."""

    @property
    def is_large(self) -> bool:
        """True if it should be prepared on a thread of its own, so that the writer does not hold up
        other writes.
        """
        return self.size > _LARGE_BYTES or not (
            self.payload is None or type(self.payload) is Pieces
        )


class PreparedPayload(NamedTuple):
    """A payload ready to be stored, and the receipt's entry for it."""

    pieces: Sequence[bytes] | None
    salt: bytes | None
    """None where no payload is kept that could be compared with a commitment."""
    receipt_entry: dict[str, Any]
    """The fields of a ReceiptEntry."""


class PayloadPreparer:
    """Captures and prepares the payloads of one tally. Thread-safe.

    It remembers which pieces contain no secret, because a prompt repeats nearly all of the one
    before. Three rules keep that memory honest:

    - A piece is memoised by its bytes (or their digest), so that any edit makes another piece, and
      together with the name of its list: under `"passwords"` a harmless word is
      a secret. A memo by bytes alone would let it through.
    - A `Preserialized` element carries a *clearance*: an object that this instance issues once for
      each name of a list. It is compared by identity, so that the clearance of another list, or of
      another tally with other rules, says nothing here.
    - The bytes of a `Preserialized` never change. An adapter that reuses one for a message that was
      edited in place would clear the new text with the verdict on the old: `TextMemo` compares
      every field for that reason.
    """

    def __init__(self, redactor: PayloadRedactor) -> None:
        self._redactor = redactor
        self._salts = Salts()
        self._clean: dict[tuple[str | None, bytes], None] = {}
        self._name_is_secret: dict[str, bool] = {}
        self._clearances: dict[str, object] = {}
        self._executor = ThreadPoolExecutor(1, thread_name_prefix="tallystick-payloads")

    def clear(self) -> None:
        """Forget which pieces are free of secrets; each is searched anew."""
        self._clean.clear()

    def close(self) -> None:
        """Stop the thread that prepares large payloads, after those that wait are prepared."""
        self._executor.shutdown()

    def capture(
        self, kind: EntryKind, payload: Payload, *, retention: Retention, summary: Summary = None
    ) -> Captured:
        """Capture a payload as it is now, so that later changes of the caller's objects cannot
        reach the record.

        All that may change is serialised; under `metadata_only` the payload is not even looked at.
        `prepare` does the rest.
        """
        if type(payload) is not dict and not callable(payload) and isinstance(payload, Record):
            return Captured(
                kind,
                payload,
                summary,
                retention,
                0 if retention == "metadata_only" else _size_of(payload),
            )
        if retention == "metadata_only":
            return Captured(kind, None, _chainable_summary(summary), retention, 0)
        if isinstance(payload, SealedPayload):
            # Nobody can read a secret in it, and a placeholder in it would break the seal.
            payload, retention = {"sealed": payload.sealed}, "full_payloads"
        pieces = pieces_of(payload() if callable(payload) else payload, self._clearance)
        return Captured(
            kind, pieces, _chainable_summary(summary), retention, sum(map(len, pieces.bodies))
        )

    def submit(self, captured: Captured) -> Future[PreparedPayload] | None:
        """Same as `prepare`, on a thread of the recorder's own, for large payloads.

        None where the thread has ended, because the tally is closed or the interpreter shuts down.
        """
        try:
            return self._executor.submit(self.prepare, captured)
        except RuntimeError:
            return None

    def prepare(self, captured: Captured) -> PreparedPayload:
        """Return a payload ready to be stored. Secrets are replaced before anything is hashed."""
        with measured("record"):
            return self._prepare(captured)

    def _prepare(self, captured: Captured) -> PreparedPayload:
        kind, pieces, summary, retention, _ = captured
        is_copied = pieces is None or isinstance(pieces, Pieces)
        copied = summary if is_copied else _chainable_summary(summary)
        assert not callable(copied)
        # A gap says how much is missing, in our own words: also where an engine fails.
        facts = (copied or {}) if kind == "gap" else self.redact_facts(copied or {}, retention)
        if pieces is None or retention == "metadata_only":
            return PreparedPayload(None, None, _receipt_entry(kind, "not_kept", facts))
        if not isinstance(pieces, Pieces):
            pieces = pieces_of(pieces)
        bodies, unchecked = pieces
        counts: Mapping[str, int] = {}
        if retention == "redacted_payloads" and not all(map(self._is_clean, unchecked)):
            # The whole payload, not the piece: placeholders are numbered throughout a payload.
            value, counts = self._redactor.redact_json(read_json(b"".join(bodies)))
            bodies = pieces_of(value).bodies
        salt = self._salts.new()
        receipt_entry = _receipt_entry(kind, "redacted" if counts else "kept", facts)
        receipt_entry["commitment"] = commitment(DOMAIN, salt, *bodies)
        if counts:
            receipt_entry["redactions"] = dict(counts)
        return PreparedPayload(bodies, salt, receipt_entry)

    def redact_facts(self, facts: Mapping[str, Any], retention: Retention) -> Mapping[str, Any]:
        """Return names, metadata or a summary as they are recorded: without secrets, unless
        payloads are kept in full.
        """
        if retention == "full_payloads" or not facts:
            return facts
        may_hold = self._redactor.may_hold
        if not may_hold(_bytes(facts)):
            return facts
        # Lists, such as the decisions of a compile, are long: each is looked at by itself first.
        suspects = {
            name: value
            for name, value in facts.items()
            if not isinstance(value, list) or may_hold(_bytes({name: value}))
        }
        redacted, counts = self._redactor.redact_json(read_json(_bytes(suspects)))
        if not counts:
            return facts
        others = {name: value for name, value in facts.items() if name not in suspects}
        return cast("JsonObject", redacted) | others

    def _is_clean(self, piece: Piece) -> bool:
        """Return True if redacting would leave a piece as it is; computed once for each."""
        source = piece.source
        if source is None or piece.name is None:
            return self._is_known_clean(piece)
        clearance = self._clearance(piece.name)
        clean = (clearance is not None and source.clearance is clearance) or self._is_known_clean(
            piece
        )
        if clean:
            source.clearance = clearance
        return clean

    def _clearance(self, name: str) -> object:
        """Return the clearance for elements of a list of that name; None beyond the limit."""
        clearance = self._clearances.get(name)
        if clearance is None and len(self._clearances) < _MAX_CLEARANCES:
            clearance = self._clearances.setdefault(name, object())
        return clearance

    def _is_known_clean(self, piece: Piece) -> bool:
        body = (
            _without_room(piece.body)
            if len(piece.body) <= _SHORT_BYTES
            else blake2b(piece.body, digest_size=16).digest()
        )
        key = (piece.name, body)
        if key in self._clean:
            return True
        if self._redactor.may_hold(piece.body) or self._may_name_secret(piece.name):
            alone = piece.alone()
            redacted, counts = self._redactor.redact_json(alone)
            # A placeholder in the value shifts the numbers of the placeholders that follow.
            if counts or redacted != alone or b"[redacted:" in piece.value:
                return False
        if len(self._clean) >= _MAX_CLEAN:
            for old in list(self._clean)[: _MAX_CLEAN // 2]:
                self._clean.pop(old, None)
        self._clean[key] = None
        return True

    def _may_name_secret(self, name: str | None) -> bool:
        """Return True if the name of a list may mean that its elements are secrets."""
        if name is None:
            return False
        if name not in self._name_is_secret:
            self._name_is_secret[name] = self._redactor.may_hold(name.encode("utf-8", "replace"))
        return self._name_is_secret[name]


def pieces_of(payload: Any, clearance_for: Callable[[str], object] = lambda name: None) -> Pieces:
    """Return the bytes of a payload in pieces. A record of ours leaves out fields at their
    defaults.

    `clearance_for` gives the clearance for elements of a list of that name; those that have it are
    not listed as unchecked.
    """
    fields = payload if type(payload) is dict else _mapping_of(payload)
    if not fields:
        body = _bytes(payload)
        return Pieces([body], [Piece(body, body)])
    for name in fields:
        if type(name) is not str:
            fields = {str(name): fields[name] for name in fields}
            break
    pieces = Pieces([], [])
    bodies = pieces.bodies
    begin: bytes = b"{"
    group: dict[str, Any] = {}
    for name in sorted(fields):
        value = fields[name]
        if not isinstance(value, list) or not value:
            group[name] = value
            continue
        if group:
            begin, group = _add_group(begin, group, pieces), {}
        bodies.append(begin + _key_bytes(name) + b"[")
        _add_elements(name, value, clearance_for(name), pieces)
        begin = b"],"
    if group:
        begin = _add_group(begin, group, pieces)
    bodies.append(begin[:-1] + b"}")
    return pieces


def _add_group(begin: bytes, group: Mapping[str, Any], pieces: Pieces) -> bytes:
    """Add neighbouring fields; return the bytes with which the next field begins."""
    own = _bytes(group)
    pieces.bodies.append(begin + own[1:-1])
    pieces.unchecked.append(Piece(own, own))
    return b","


def _mapping_of(payload: Any) -> Mapping[Any, Any] | None:
    if isinstance(payload, BaseModel):
        return _fields_of(payload)
    return payload if isinstance(payload, Mapping) else None


def _add_elements(name: str, values: Sequence[Any], clearance: object, pieces: Pieces) -> None:
    bodies, unchecked = pieces
    for value in values:
        if type(value) is Preserialized:
            body = value.body
            if clearance is None or value.clearance is not clearance:
                unchecked.append(Piece(body, body, name, value))
        else:
            body = _bytes(value)
            unchecked.append(Piece(body, body, name))
        bodies += (body, b",")
    bodies.pop()


@lru_cache(maxsize=1_024)
def _key_bytes(name: str) -> bytes:
    return _bytes(name) + b":"


def _size_of(record: Record) -> int:
    """Estimate the bytes that a record takes: by its texts, and by the number and texts of the
    elements of its lists.
    """
    size = 0
    for _, value in record:
        if isinstance(value, str):
            size += len(value)
        elif isinstance(value, tuple | dict):
            size += _ELEMENT_BYTES * len(value)
            if value and isinstance(value, tuple) and hasattr(value[0], "content"):
                size += sum(len(item.content) for item in value)
    return size


def plain(payload: Any) -> Json:
    """Return a payload as JSON values: records and pydantic models are dumped, types that JSON
    lacks become text.
    """
    value: Json = read_json(b"".join(pieces_of(payload).bodies))
    return value


_NO_PAYLOAD = (
    "The payload contains itself, is nested too deeply, or has an integer of too many digits. "
    "Record what is in it as a text."
)


def _fields_of(model: BaseModel) -> Mapping[str, Any]:
    return (
        model.dump(defaults=False) if isinstance(model, Record) else model.model_dump(mode="json")
    )


def _bytes(value: Any) -> bytes:
    try:
        return orjson.dumps(value, default=_default, option=_OPTIONS)
    except orjson.JSONEncodeError:
        # Integers of more than 64 bits, keys that are no text, half characters: slower, and all of
        # them have a form.
        try:
            return json_bytes(json.loads(json.dumps(value, default=_default), parse_constant=str))
        except (ValueError, RecursionError) as error:
            raise InvalidInput(_NO_PAYLOAD, argument="payload") from error


def _default(value: Any) -> Any:
    if isinstance(value, Preserialized):
        return read_json(value.body)
    if isinstance(value, BaseModel):
        return _fields_of(value)
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, set | frozenset):
        return sorted(value, key=str)
    if isinstance(value, bytes):
        return {"bytes": len(value)}
    if isinstance(value, list | tuple):
        return list(value)
    return str(value)


def _receipt_entry(kind: EntryKind, state: str, summary: Any) -> dict[str, Any]:
    receipt_entry: dict[str, Any] = {"kind": kind, "payload_state": state}
    if summary:
        receipt_entry["summary"] = summary
    return receipt_entry


def _chainable_summary(summary: Summary) -> Mapping[str, Any] | None:
    """Return a copy of a summary in the form that the receipt takes."""
    try:
        copy: Mapping[str, Any] | None = _chainable(summary() if callable(summary) else summary)
    except RecursionError as error:
        raise InvalidInput(
            "`summary` contains itself or is nested too deeply. Give ids, counts and codes.",
            argument="summary",
        ) from error
    return copy


def _chainable(value: Any) -> Any:
    """Return a value as canonical JSON can represent it: no floats, ASCII keys."""
    if value is None or isinstance(value, str | int):
        return value
    if type(value) is dict or isinstance(value, Mapping):
        return {_ascii_key(key): _chainable(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_chainable(inner) for inner in value]
    if isinstance(value, float):
        return repr(value)
    return str(value)


def _ascii_key(key: Any) -> str:
    if type(key) is str and key.isascii():
        return key
    return str(key).encode("ascii", "backslashreplace").decode()


def storable_text(text: str) -> str:
    """Return a text with a sign in place of what no database stores as a text."""
    return text.encode("utf-8", "replace").decode().replace("\x00", "\ufffd")


def require_mapping(value: object, argument: str) -> None:
    """Raise InvalidInput for what is no mapping."""
    if not isinstance(value, Mapping):
        raise InvalidInput(f"`{argument}` takes a mapping.", argument=argument)


def metadata_of(metadata: Mapping[str, Any] | None) -> JsonObject:
    """Return a copy of metadata as they are stored; numbers that JSON lacks become text. Raises
    InvalidInput for what the end of a step would find too late.
    """
    if not metadata:
        return {}
    require_mapping(metadata, "metadata")
    require_json_size("metadata", metadata)
    try:
        body = json_bytes(dict(metadata))
    except TypeError:
        raise InvalidInput(
            "`metadata` is JSON: texts, numbers, lists and mappings.", argument="metadata"
        ) from None
    copy: JsonObject = json.loads(body, parse_constant=str)
    return copy


_IMMUTABLE = frozenset({str})
"""Types of values that never change. Not numbers: 1 equals True, and has another JSON form."""
_CONTAINERS = frozenset({dict, list})
"""Types of values that may be filled later: of an empty one the memo keeps its own."""


class _Entry(NamedTuple):
    kind: type
    fields: dict[str, Any]
    preserialized: Preserialized


class TextMemo:
    """Serialised values that consist of a text and fixed fields, by the identity of the text.
    Thread-safe.
    """

    def __init__(self, max_bytes: int) -> None:
        self._max = max_bytes
        self._size = 0
        self._guard = threading.Lock()
        self._entries: dict[int, _Entry] = {}
        _all.add(self)

    def get(self, text: Any, kind: type, fields: Mapping[str, Any]) -> Preserialized | None:
        """Return a value of this kind with these fields, one of which is `text`, as it was
        serialised; None if it is not in the memo.
        """
        entry = self._entries.get(id(text))
        if entry is None or entry.kind is not kind:
            return None
        try:
            # Equal values of these types have one JSON form, and identical texts are not read.
            return entry.preserialized if entry.fields == fields else None
        except Exception:  # noqa: BLE001 - a field now holds a value that refuses comparison: another value
            return None

    def put(
        self, text: Any, kind: type, fields: Mapping[str, Any], preserialized: Preserialized
    ) -> None:
        """Memoise a serialised value, unless a field holds a value that may be edited in place."""
        if type(text) is not str:
            return
        own: dict[str, Any] = {}
        for name, value in fields.items():
            if value is None or type(value) in _IMMUTABLE:
                own[name] = value
            elif type(value) in _CONTAINERS and not value:
                own[name] = type(value)()
            else:
                return
        with self._guard:
            before = self._entries.pop(id(text), None)
            self._size += len(preserialized.body)
            self._size -= 0 if before is None else len(before.preserialized.body)
            self._entries[id(text)] = _Entry(kind, own, preserialized)
            while self._size > self._max:
                oldest = next(iter(self._entries))
                self._size -= len(self._entries.pop(oldest).preserialized.body)

    def clear(self) -> None:
        """Remove every entry."""
        with self._guard:
            self._entries, self._size = {}, 0


_all: weakref.WeakSet[TextMemo] = weakref.WeakSet()


def clear_text_memos() -> None:
    """Clear the memos of every adapter in this process."""
    for memo in list(_all):
        memo.clear()
