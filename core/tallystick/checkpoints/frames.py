"""The stored form of a checkpoint's state: the digest of its values, their roots, and its body, in
one frame.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tallystick.checkpoints.codec import Codec
from tallystick.checkpoints.values import Leaf, Value, digest_of
from tallystick.errors import CorruptTally

__all__ = ["Frame", "compact", "framed", "unframed", "values_digest"]

_encode = json.JSONEncoder(separators=(",", ":")).encode


@dataclass(frozen=True)
class Frame:
    """What a stored frame says; `roots` are JSON that was not looked through."""

    digest: bytes
    roots: Mapping[str, Any]
    body: Leaf


def compact(value: Any) -> bytes:
    """JSON without white space, in ASCII."""
    return _encode(value).encode()


def values_digest(values: Mapping[str, Value], codec: Codec) -> bytes:
    """What stands for all values of a checkpoint together."""
    pieces = [
        json.dumps(name).encode() + b"\x00" + digest_of(value, codec)
        for name, value in values.items()
    ]
    return codec.digest(b"values\x00", *pieces)


def framed(
    digest: bytes, roots: Mapping[str, Any], body_type: str, body: bytes, codec: Codec
) -> bytes:
    """The stored form. `body` is sealed already where state is sealed."""
    head = compact([body_type, roots])
    return codec.pack(digest + len(head).to_bytes(4, "big") + head + body, seal=False)


def unframed(stored: bytes, codec: Codec) -> Frame:
    """The parts of a stored frame. Raises CorruptTally."""
    frame = codec.unpack(stored, sealed=False)
    digest, size = frame[:16], int.from_bytes(frame[16:20], "big")
    try:
        kind, roots = json.loads(frame[20 : 20 + size])
    except (ValueError, TypeError, RecursionError) as error:
        raise CorruptTally(
            "The state of a checkpoint is not readable: its bytes are damaged."
        ) from error
    if not isinstance(kind, str) or not isinstance(roots, dict):
        raise CorruptTally("The state of a checkpoint is not of a known shape.")
    body = frame[20 + size :]
    return Frame(digest, roots, Leaf(kind, codec.unpack(body) if codec.sealed and body else body))
