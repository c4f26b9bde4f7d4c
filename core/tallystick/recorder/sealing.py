"""Sealed payloads: what stands behind placeholders, encrypted under the key of the scope.

The key is derived from the scope's secret, which is in the same database: the seal keeps texts out
of exported receipts, of searches and from models, not from whoever has the file.
"""

from __future__ import annotations

import base64
import hmac
import json
import os
from collections.abc import Mapping
from typing import NamedTuple

from tallystick.errors import require
from tallystick.records import Json, json_bytes

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
