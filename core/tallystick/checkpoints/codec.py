"""Stored bytes and keyed digests: compression, encryption where it is asked for, the digest of a
piece of state, and the MACs of rows and threads.

The digest is an HMAC under a key of the scope, so that equal bytes are stored once within a scope
and two scopes cannot be compared. With a cipher that key is itself encrypted: without the cipher's
key nobody can tell whether a guess is in the database, and bytes that were forged or moved do not
match their digest.
"""

from __future__ import annotations

import hmac
import json
import threading
from collections.abc import Iterable
from typing import Any, Protocol

import zstandard

from tallystick.checkpoints.dictionary import DICTIONARY
from tallystick.errors import CorruptTally, StorageError
from tallystick.storage.rows.checkpoints import WriteRow

_PLAIN, _ZSTD, _ENCRYPTED = 0, 1, 0x80
"""First byte of stored bytes."""
_SHORT = 48
"""Bytes below which compression is not tried."""
_LARGEST = 1 << 30
"""Most bytes that one piece may decompress to: a hostile piece cannot ask for all memory."""

_dictionary = zstandard.ZstdCompressionDict(DICTIONARY, dict_type=zstandard.DICT_TYPE_RAWCONTENT)
_local = threading.local()
_encode = json.JSONEncoder(separators=(",", ":")).encode


class Cipher(Protocol):
    """Encryption at rest. Called outside of write transactions, from any thread."""

    @property
    def name(self) -> str:
        """Name that tells this cipher from another in the same scope."""
        ...

    def encrypt(self, plaintext: bytes) -> bytes:
        """Return the ciphertext, authenticated."""
        ...

    def decrypt(self, ciphertext: bytes) -> bytes:
        """Return the plain bytes. Raises any error for what was not encrypted with its key."""
        ...


class Codec:
    """The form of a scope's stored bytes, and their digests. Thread-safe."""

    def __init__(self, key: bytes, cipher: Cipher | None = None) -> None:
        self._key = key
        self._cipher = cipher

    @property
    def encrypts(self) -> bool:
        """True if stored state is encrypted."""
        return self._cipher is not None

    def digest(self, domain: bytes, *pieces: bytes) -> bytes:
        """Return 128 bits of an HMAC-SHA-256 over the pieces, one after the other, in `domain`."""
        return hmac.digest(self._key, domain + b"".join(pieces), "sha256")[:16]

    def row_mac(self, *pieces: bytes) -> bytes:
        """Return an HMAC-SHA-256 over the pieces, each with its length: the MAC of a row."""
        sized = b"".join([len(piece).to_bytes(8, "big") + piece for piece in pieces])
        return hmac.digest(self._key, b"tallystick/row/v1\x00" + sized, "sha256")

    def pack(self, content: bytes, *, encrypt: bool = True) -> bytes:
        """Return the stored form of `content`."""
        stored = _compress(content)
        if encrypt and self._cipher is not None:
            return bytes((_ENCRYPTED,)) + self._cipher.encrypt(stored)
        return stored

    def unpack(self, stored: bytes, *, encrypted: bool = True) -> bytes:
        """Return the content of a stored form.

        Raises CorruptTally, or StorageError when it is encrypted with another cipher.
        """
        if stored and stored[0] == _ENCRYPTED:
            if self._cipher is None:
                raise StorageError(
                    "This state is encrypted. Give the serializer that it was written with."
                )
            try:
                stored = self._cipher.decrypt(stored[1:])
            except Exception as error:
                raise CorruptTally(
                    "Encrypted state does not open: it was changed, or sealed with another key."
                ) from error
        elif encrypted and self._cipher is not None:
            raise CorruptTally(
                "State that should be encrypted is not: it was written without the key."
            )
        return _decompress(stored)

    def unpack_checked(self, domain: bytes, digest: bytes, stored: bytes) -> bytes:
        """Same as `unpack`, compared with the digest that it was stored under.

        Raises CorruptTally.
        """
        content = self.unpack(stored)
        if self.digest(domain, content) != digest:
            raise CorruptTally(
                "A piece of state does not match its digest. Run `tally verify` to see where."
            )
        return content


def compact_json(value: Any) -> bytes:
    """Return JSON without white space, in ASCII."""
    return _encode(value).encode()


# MACs of rows and threads
#
# The MAC of a row covers its place (scope, thread, namespace, ids) and its content, so that a row
# that was edited, or moved to another place, does not match. The checksum of a thread is the sum of
# the MACs of its checkpoints modulo 2^256. A sum, and not a chain, because a thread is no
# append-only list: a put replaces the checkpoint of the same id, prune and delete remove some in
# the middle, and each of these must update the checksum from the rows that it touches alone, in any
# order. What must hold after every transaction: the checksum is the sum over exactly the
# checkpoints that are there. So whoever adds a row adds its MAC, and whoever replaces or removes
# one subtracts the MAC *that was stored*, not one computed anew; else `verify` reports a checkpoint
# that was removed, added or changed. Pending writes have MACs of their own and are no part of the
# sum: they come and go between two checkpoints.


def checkpoint_mac(
    codec: Codec,
    scope: str,
    thread: str,
    namespace: str,
    id: str,
    parent_id: str | None,
    metadata: bytes,
    body_type: str,
    body: bytes,
    digest: bytes,
) -> bytes:
    """Return the MAC of a checkpoint: its place, metadata, body and the digest of its values."""
    names = (scope, thread, namespace, id, "" if parent_id is None else f"={parent_id}")
    return codec.row_mac(
        *[name.encode("utf-8", "surrogatepass") for name in names],
        metadata,
        body_type.encode(),
        body,
        digest,
    )


def write_mac(codec: Codec, scope: str, thread: str, row: WriteRow, digest: bytes) -> bytes:
    """Return the MAC of a pending write: its place and the digest of its value."""
    names = (
        scope,
        thread,
        row.namespace,
        row.checkpoint_id,
        row.task_id,
        str(row.position),
        row.task_path,
        row.channel,
    )
    encoded = [name.encode("utf-8", "surrogatepass") for name in names]
    return codec.row_mac(b"write", *encoded, digest)[:16]


def thread_checksum(checksum: str, *, add: Iterable[bytes], subtract: Iterable[bytes]) -> str:
    """Return the checksum of a thread after row MACs were added and removed, as 64 hex digits."""
    total = int(checksum or "0", 16) + sum(int.from_bytes(mac, "big") for mac in add)
    total -= sum(int.from_bytes(mac, "big") for mac in subtract)
    return f"{total % (1 << 256):064x}"


def _compress(content: bytes) -> bytes:
    if len(content) >= _SHORT:
        compressed: bytes = _zstd()[0].compress(content)
        if len(compressed) < len(content):
            return bytes((_ZSTD,)) + compressed
    return bytes((_PLAIN,)) + content


def _decompress(stored: bytes) -> bytes:
    form, body = stored[:1], stored[1:]
    if form == b"\x00":
        return body
    if form != b"\x01":
        raise CorruptTally("A piece of state begins with a mark that no release has written.")
    try:
        if not 0 <= zstandard.frame_content_size(body) <= _LARGEST:
            raise CorruptTally("A piece of state says that it unfolds to more than may be held.")
        content: bytes = _zstd()[1].decompress(body)
    except (zstandard.ZstdError, MemoryError) as error:
        raise CorruptTally("A piece of state cannot be unfolded: its bytes are damaged.") from error
    return content


def _zstd() -> tuple[Any, Any]:
    # A compressor must not be used by two threads at once: each thread has a pair of its own.
    pair: tuple[Any, Any] | None = getattr(_local, "zstd", None)
    if pair is None:
        pair = (
            zstandard.ZstdCompressor(
                level=3, dict_data=_dictionary, write_checksum=False, write_dict_id=False
            ),
            zstandard.ZstdDecompressor(dict_data=_dictionary),
        )
        _local.zstd = pair
    return pair
