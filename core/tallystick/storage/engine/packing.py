"""Packing: the form in which SQLite stores texts, bodies and digests, several times as small.

A packed value reads back byte for byte, and everything above the columns sees it unpacked: digests
and chains are taken of those bytes. A packed text or digest is a BLOB, and one that packing makes
no smaller stays TEXT; so a column may contain both. Bodies, which are BLOBs anyway, always begin
with a mark. PostgreSQL compresses what is long by itself and gets the values as they are.

| first byte | then |
| --- | --- |
| 0 | bytes as they are |
| 1 | a zstd frame without its magic number, with the dictionary `packing.dict` |
| 2 | 32 bytes of `sha256:…` |
| 3 | 32 bytes of `hmac-sha256:…` |
| 4 | 16 bytes of an id, a UUID |
| 5 | the number of a name in `NAMES` |
| 6 | float16 numbers: a zstd frame of the upper bytes, then the lower ones |

What is stored is read with the dictionary that it was written with: the file is never edited.
A better one would be another mark. `tests/benchmarks/dictionary.py` says how it was trained.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from importlib import resources
from typing import Any, NamedTuple

from sqlalchemy import LargeBinary, Text, TypeDecorator
from sqlalchemy.engine import Dialect

from tallystick.errors import CorruptTally

_PLAIN, _ZSTD = b"\x00", b"\x01"
_DIGESTS = {"sha256:": b"\x02", "hmac-sha256:": b"\x03"}
_PREFIXES = {mark: prefix for prefix, mark in _DIGESTS.items()}
_ID, _NAME, _PLANES = b"\x04", b"\x05", b"\x06"
NAMES = ("wordllama-l2-supercat-256:d62fe297f834:256",)
"""Names that rows of most tallies repeat: the embedder that comes with the package. Names are added
at the end and never removed.
"""
_NUMBERS = {name: _NAME + bytes((number,)) for number, name in enumerate(NAMES)}
_MAGIC = b"\x28\xb5\x2f\xfd"
_SHORT = 24
"""Bytes below which compression is not tried."""
_LARGEST = 1 << 30
"""Most bytes that one value may unpack to: a damaged one cannot ask for all memory."""
_HEX = frozenset("0123456789abcdef")
_local = threading.local()
_reads_damage: ContextVar[bool] = ContextVar("tallystick_reads_damage", default=False)


def pack_bytes(value: bytes | None) -> bytes | None:
    """Return the stored form of a body."""
    if value is None:
        return None
    packed = _compress(value)
    return _PLAIN + value if packed is None else packed


def unpack_bytes(value: bytes | None) -> bytes | None:
    """Return the body of which `value` is the stored form. Raises CorruptTally."""
    if value is None:
        return None
    mark = value[:1]
    if mark == _ZSTD:
        return _decompress(value)
    if mark != _PLAIN:
        raise CorruptTally("A stored body begins with a mark that no release has written.")
    return value[1:]


def pack_text(value: str | None) -> str | bytes | None:
    """Return the stored form of a text; one that would not be smaller stays as it is."""
    if value is None or len(value) < _SHORT:
        return value
    try:
        encoded = value.encode()
    except UnicodeEncodeError:
        return value  # half a character, which the driver refuses
    packed = _compress(encoded)
    return value if packed is None else packed


def pack_digest(value: str | None) -> str | bytes | None:
    """Return the stored form of a digest that names its algorithm; any other text stays as it is,
    so that equal digests are equal as they are stored.
    """
    if value is None:
        return None
    prefix, colon, digits = value.partition(":")
    mark = _DIGESTS.get(prefix + colon)
    if mark is None or len(digits) != 64 or not _HEX.issuperset(digits):
        return value
    return mark + bytes.fromhex(digits)


def pack_id(value: str | None) -> str | bytes | None:
    """Return the stored form of an id; one that is no UUID in small letters stays as it is."""
    if value is None or len(value) != 36 or value[8:24:5] != "----":
        return value
    digits = value.replace("-", "")
    try:
        number = bytes.fromhex(digits)
    except ValueError:
        return value
    # `fromhex` passes over spaces and reads capitals: neither would be read back.
    return _ID + number if len(number) == 16 and digits == number.hex() else value


def pack_name(value: str | None) -> str | bytes | None:
    """Return the stored form of a name that most tallies repeat; another one stays as it is."""
    return None if value is None else _NUMBERS.get(value, value)


def unpack_text(value: str | bytes | None) -> str | None:
    """Return the text, digest, id or name in its stored form `value`. Raises CorruptTally."""
    if value is None or type(value) is str:
        return value
    stored = bytes(value)  # type: ignore[arg-type] # mypy does not narrow by `type(value) is str`
    mark = stored[:1]
    if mark in _PREFIXES and len(stored) == 33:
        return _PREFIXES[mark] + stored[1:].hex()
    if mark == _ID and len(stored) == 17:
        return _id_text(stored)
    if mark == _NAME and len(stored) == 2 and stored[1] < len(NAMES):
        return NAMES[stored[1]]
    if mark != _ZSTD:
        raise CorruptTally("A stored text begins with a mark that no release has written.")
    try:
        return _decompress(stored).decode()
    except UnicodeDecodeError as error:
        raise CorruptTally("A stored text is not readable: its bytes are damaged.") from error


def pack_vector(value: bytes | None) -> bytes | None:
    """Return the stored form of float16 numbers. Sign, exponent and the first two bits of each are
    in its upper byte, which varies little; the lower one is noise.
    """
    if value is None:
        return None
    upper: bytes = _zstd().numbers.compress(value[1::2])
    if len(value) % 2 or 2 * len(upper) >= len(value):
        return _PLAIN + value
    return _PLANES + upper[len(_MAGIC) :] + value[::2]


def unpack_vector(value: bytes | None) -> bytes | None:
    """Return the float16 numbers of which `value` is the stored form. Raises CorruptTally."""
    if value is None:
        return None
    if value[:1] != _PLANES:
        return unpack_bytes(value)
    import zstandard

    try:
        count = zstandard.frame_content_size(_MAGIC + value[1:20])
        if not 0 < count < len(value):
            raise CorruptTally("A stored vector cannot be unpacked: its bytes are damaged.")
        upper = _zstd().unpack_numbers.decompress(_MAGIC + value[1:-count])
    except zstandard.ZstdError as error:
        raise CorruptTally("A stored vector cannot be unpacked: its bytes are damaged.") from error
    numbers = bytearray(2 * count)
    numbers[1::2], numbers[::2] = upper, value[-count:]
    return bytes(numbers)


@contextmanager
def damage_read() -> Iterator[None]:
    """Let what cannot be unpacked be read as another value inside of the block, for checks that
    compare what is stored with its digests and name the place; elsewhere it is CorruptTally.
    """
    before = _reads_damage.set(True)
    try:
        yield
    finally:
        _reads_damage.reset(before)


def _unpack(convert: Callable[[Any], Any], value: Any) -> Any:
    try:
        return convert(value)
    except CorruptTally:
        if not _reads_damage.get():
            raise
        return value if convert in _OF_BYTES else f"damaged {bytes(value).hex()}"


_OF_BYTES = (unpack_bytes, unpack_vector)


class Packed(TypeDecorator[Any]):
    """Type of a column whose values SQLite stores packed."""

    cache_ok = True
    impl = Text
    pack: Any
    unpack: Any
    function: str
    """SQL function that unpacks it, where the database itself must look into a value."""

    @property
    def python_type(self) -> type[Any]:
        return self.impl_instance.python_type

    def process_bind_param(self, value: Any, dialect: Dialect) -> Any:
        return value if dialect.name != "sqlite" else self.pack(value)

    def process_result_value(self, value: Any, dialect: Dialect) -> Any:
        return value if dialect.name != "sqlite" else _unpack(self.unpack, value)


class PackedText(Packed):
    """A text that may be long or repeats what others say."""

    cache_ok = True
    pack = staticmethod(pack_text)
    unpack = staticmethod(unpack_text)
    function = "unpacked_text"


class PackedDigest(Packed):
    """A digest that names its algorithm. Rows are looked up by it."""

    cache_ok = True
    pack = staticmethod(pack_digest)
    unpack = staticmethod(unpack_text)
    function = "unpacked_text"


class PackedId(PackedDigest):
    """An id, a UUID where the tally chose it. Rows are looked up by it and ordered by it."""

    cache_ok = True
    pack = staticmethod(pack_id)


class PackedName(PackedDigest):
    """A name that many rows repeat. Rows are looked up by it."""

    cache_ok = True
    pack = staticmethod(pack_name)


class PackedBytes(Packed):
    """Bytes of any length."""

    cache_ok = True
    impl = LargeBinary  # type: ignore[assignment] # mypy takes the impl of the base for its type
    pack = staticmethod(pack_bytes)
    unpack = staticmethod(unpack_bytes)
    function = "unpacked_bytes"


class PackedVector(PackedBytes):
    """The float16 numbers of a text's slices, one after the other."""

    cache_ok = True
    pack = staticmethod(pack_vector)
    unpack = staticmethod(unpack_vector)
    function = "unpacked_vector"


FUNCTIONS = {
    "unpacked_bytes": unpack_bytes,
    "unpacked_text": unpack_text,
    "unpacked_vector": unpack_vector,
}
"""What each connection to SQLite can call, to search in packed values."""


def _id_text(packed: bytes) -> str:
    digits = packed[1:].hex()
    return f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"


def _compress(content: bytes) -> bytes | None:
    """Return `content` as a frame behind its mark; None where that is not shorter."""
    if len(content) < _SHORT:
        return None
    frame: bytes = _zstd().texts.compress(content)
    return _ZSTD + frame[len(_MAGIC) :] if len(frame) < len(content) else None


def _decompress(stored: bytes) -> bytes:
    import zstandard

    frame = _MAGIC + stored[1:]
    try:
        if not 0 <= zstandard.frame_content_size(frame) <= _LARGEST:
            raise CorruptTally("A stored value says that it unpacks to more than may be held.")
        content: bytes = _zstd().unpack_texts.decompress(frame)
    except (zstandard.ZstdError, MemoryError) as error:
        raise CorruptTally("A stored value cannot be unpacked: its bytes are damaged.") from error
    return content


class _Zstd(NamedTuple):
    """What compresses and decompresses on one thread: none of them may be used by two at once."""

    texts: Any
    unpack_texts: Any
    numbers: Any
    unpack_numbers: Any


def _zstd() -> _Zstd:
    mine: _Zstd | None = getattr(_local, "zstd", None)
    if mine is None:
        import zstandard

        file = resources.files("tallystick.storage.engine").joinpath("packing.dict")
        dictionary = zstandard.ZstdCompressionDict(file.read_bytes())
        dictionary.precompute_compress(level=3)
        mine = _local.zstd = _Zstd(
            zstandard.ZstdCompressor(
                level=3, dict_data=dictionary, write_checksum=False, write_dict_id=False
            ),
            zstandard.ZstdDecompressor(dict_data=dictionary),
            zstandard.ZstdCompressor(level=1, write_checksum=False),
            zstandard.ZstdDecompressor(),
        )
    return mine
