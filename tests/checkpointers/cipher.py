"""A cipher of the tests' own, for encrypted checkpoints."""

from __future__ import annotations

import hashlib
import hmac
import os


class Cipher:
    """A keyed stream with a keyed digest before it."""

    def __init__(self, key: bytes) -> None:
        self._key = key

    def encrypt(self, plaintext: bytes) -> tuple[str, bytes]:
        """Return its name and the hidden bytes."""
        nonce = os.urandom(16)
        hidden = self._stream(nonce, plaintext)
        return "test", nonce + hmac.digest(self._key, nonce + hidden, "sha256") + hidden

    def decrypt(self, ciphername: str, ciphertext: bytes) -> bytes:
        """Return the bytes. Raises ValueError for others'."""
        nonce, tag, hidden = ciphertext[:16], ciphertext[16:48], ciphertext[48:]
        if ciphername != "test" or not hmac.compare_digest(
            tag, hmac.digest(self._key, nonce + hidden, "sha256")
        ):
            raise ValueError("not ours")
        return self._stream(nonce, hidden)

    def _stream(self, nonce: bytes, body: bytes) -> bytes:
        stream = hashlib.shake_256(self._key + nonce).digest(len(body))
        return bytes(byte ^ other for byte, other in zip(body, stream, strict=True))
