"""How a piece of state becomes stored bytes: compressed where it pays, sealed where asked, known by
a keyed digest.

The digest is an HMAC under a key of the scope, so that equal bytes are stored once within a scope
and two scopes cannot be compared. With a sealer that key is itself sealed: without the cipher's key
nobody can tell whether a guess stands in the database, and bytes that were forged or moved do not
match their digest.
"""

from __future__ import annotations

import hmac
import threading
from typing import Any, Protocol

import zstandard

from tallystick.checkpoints.dictionary import DICTIONARY
from tallystick.errors import CorruptTally, StorageError

__all__ = ["Codec", "Sealer"]

_PLAIN, _ZSTD, _SEALED = 0, 1, 0x80
_SHORT = 48
"""Bytes below which compressing is not tried."""
_LARGEST = 1 << 30
"""Most bytes that one piece may unfold to: a hostile piece cannot ask for all memory."""

_dictionary = zstandard.ZstdCompressionDict(DICTIONARY, dict_type=zstandard.DICT_TYPE_RAWCONTENT)
_local = threading.local()


class Sealer(Protocol):
    """Encryption at rest. Called outside of write transactions, from any thread."""

    @property
    def name(self) -> str:
        """What tells this cipher from another in the same scope."""
        ...

    def seal(self, plain: bytes) -> bytes:
        """The ciphertext, authenticated."""
        ...

    def open(self, sealed: bytes) -> bytes:
        """The plain bytes. Raises whatever it likes for what was not sealed with its key."""
        ...


class Codec:
    """Bytes in, stored bytes out, and back. Thread-safe."""

    def __init__(self, key: bytes, sealer: Sealer | None = None) -> None:
        self._key = key
        self._sealer = sealer

    @property
    def sealed(self) -> bool:
        """Whether what it stores is encrypted."""
        return self._sealer is not None

    def digest(self, domain: bytes, *pieces: bytes) -> bytes:
        """128 bits of an HMAC-SHA-256 over the pieces, which together are known by `domain`."""
        return hmac.digest(self._key, domain + b"".join(pieces), "sha256")[:16]

    def code(self, *pieces: bytes) -> bytes:
        """An HMAC-SHA-256 over the pieces, each with its length: what a row is held against."""
        framed = b"".join(len(piece).to_bytes(8, "big") + piece for piece in pieces)
        return hmac.digest(self._key, b"tallystick/row/v1\x00" + framed, "sha256")

    def pack(self, content: bytes, *, seal: bool = True) -> bytes:
        """The stored form of `content`."""
        stored = _squeezed(content)
        if seal and self._sealer is not None:
            return bytes((_SEALED,)) + self._sealer.seal(stored)
        return stored

    def unpack(self, stored: bytes, *, sealed: bool = True) -> bytes:
        """The content of a stored form. Raises CorruptTally, or StorageError when it is sealed for
        somebody else.
        """
        is_sealed = bool(stored) and stored[0] == _SEALED
        if is_sealed:
            if self._sealer is None:
                raise StorageError(
                    "This state is encrypted. Give the serializer that it was written with."
                )
            try:
                stored = self._sealer.open(stored[1:])
            except Exception as error:
                raise CorruptTally(
                    "Encrypted state does not open: it was changed, or sealed with another key."
                ) from error
        elif sealed and self._sealer is not None:
            raise CorruptTally(
                "State that should be encrypted is not: it was written without the key."
            )
        return _unfolded(stored)

    def expand(self, domain: bytes, digest: bytes, stored: bytes) -> bytes:
        """Same as `unpack`, held against the digest under which it was stored. Raises
        CorruptTally.
        """
        content = self.unpack(stored)
        if self.digest(domain, content) != digest:
            raise CorruptTally(
                "A piece of state does not match its digest. Run `tally verify` to see where."
            )
        return content


def _squeezed(content: bytes) -> bytes:
    if len(content) >= _SHORT:
        squeezed: bytes = _tools()[0].compress(content)
        if len(squeezed) < len(content):
            return bytes((_ZSTD,)) + squeezed
    return bytes((_PLAIN,)) + content


def _unfolded(stored: bytes) -> bytes:
    kind, body = stored[:1], stored[1:]
    if kind == b"\x00":
        return body
    if kind != b"\x01":
        raise CorruptTally("A piece of state begins with a mark that no release has written.")
    try:
        if not 0 <= zstandard.frame_content_size(body) <= _LARGEST:
            raise CorruptTally("A piece of state says that it unfolds to more than may be held.")
        content: bytes = _tools()[1].decompress(body)
    except (zstandard.ZstdError, MemoryError) as error:
        raise CorruptTally("A piece of state cannot be unfolded: its bytes are damaged.") from error
    return content


def _tools() -> tuple[Any, Any]:
    # A compressor must not be used by two threads at once.
    found: tuple[Any, Any] | None = getattr(_local, "tools", None)
    if found is None:
        found = (
            zstandard.ZstdCompressor(
                level=3, dict_data=_dictionary, write_checksum=False, write_dict_id=False
            ),
            zstandard.ZstdDecompressor(dict_data=_dictionary),
        )
        _local.tools = found
    return found
