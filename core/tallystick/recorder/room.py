"""What the recorder works with, and how a payload becomes bytes, a commitment and a count of redactions."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from pydantic import BaseModel

from tallystick.access import Gate
from tallystick.records import Json, ReceiptEntry, Retention, commitment, json_bytes
from tallystick.storage import Store

__all__ = ["Payload", "RecorderRoom", "Redacts", "Sealed", "plain"]

DOMAIN = "step-payload"
"""Domain of payload commitments."""


class Redacts(Protocol):
    """What replaces secrets before a payload is hashed and stored."""

    def redact_text(self, text: str) -> tuple[str, Mapping[str, int]]:
        """Same as `redact_json`, for text."""
        ...

    def redact_json(self, value: Json) -> tuple[Json, Mapping[str, int]]:
        """The value without its secrets, and how many of each kind were replaced."""
        ...


Payload = Any
"""JSON values, or records, which are dumped."""


@dataclass(frozen=True)
class Sealed:
    """A payload ready to be stored, and what the receipt will say of it."""

    body: bytes | None
    salt: bytes
    entry: ReceiptEntry


@dataclass(frozen=True)
class RecorderRoom:
    """The dependencies of the recorder. Thread-safe."""

    store: Store
    gate: Gate
    redactor: Redacts
    retention: Retention

    def seal(
        self, kind: Any, payload: Payload, *, retention: Retention, summary: Mapping[str, Any] | None = None
    ) -> Sealed:
        """Serialise a payload now, so that later changes of the caller's objects cannot reach the record.

        Secrets are replaced before anything is hashed. Under `metadata_only` the payload is not even serialised.
        """
        salt = os.urandom(16)
        if retention == "metadata_only":
            entry = ReceiptEntry(
                kind=kind, commitment=commitment(DOMAIN, salt, b""), payload_state="not_kept",
                summary=_chainable(summary or {}),
            )  # fmt: skip
            return Sealed(None, salt, entry)
        value = plain(payload)
        counts: Mapping[str, int] = {}
        if retention == "redacted_payloads":
            value, counts = self.redactor.redact_json(value)
        body = json_bytes(value)
        entry = ReceiptEntry(
            kind=kind,
            commitment=commitment(DOMAIN, salt, body),
            payload_state="redacted" if counts else "kept",
            redactions=dict(counts),
            summary=_chainable(summary or {}),
        )
        return Sealed(body, salt, entry)


def plain(payload: Payload) -> Json:
    """A payload as JSON values: records and pydantic models are dumped, what JSON lacks becomes text."""
    value: Json = json.loads(json.dumps(payload, default=_default, allow_nan=True), parse_constant=str)
    return value


def _default(value: Any) -> Any:
    if isinstance(value, BaseModel):
        return value.model_dump(mode="json")
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, set | frozenset):
        return sorted(value, key=str)
    if isinstance(value, bytes):
        return {"bytes": len(value)}
    if isinstance(value, list | tuple):
        return list(value)
    return str(value)


def _chainable(value: Any) -> Any:
    """A summary as canonical JSON can hold it: no floats, ASCII keys."""
    if isinstance(value, Mapping):
        return {
            str(key).encode("ascii", "backslashreplace").decode(): _chainable(inner) for key, inner in value.items()
        }
    if isinstance(value, list | tuple | set | frozenset):
        return [_chainable(inner) for inner in value]
    if isinstance(value, float):
        return repr(value)
    if value is None or isinstance(value, str | int | bool):
        return value
    return str(value)
