"""The code of a row over its place and its content, and the seal of a thread, which is the sum of
its codes.

A row that was changed, or put in the place of another, does not match its code; one that was
removed or added does not add up.
"""

from __future__ import annotations

from collections.abc import Iterable

from tallystick.checkpoints.codec import Codec
from tallystick.checkpoints.values import Leaf
from tallystick.records import Scope
from tallystick.storage.checkpoints import WriteRow

__all__ = ["code_of_state", "code_of_write", "sealed"]


def code_of_state(
    codec: Codec,
    scope: Scope,
    thread: str,
    namespace: str,
    id: str,
    parent_id: str | None,
    noted: bytes,
    body: Leaf,
    digest: bytes,
) -> bytes:
    """The code of a checkpoint: its place, its metadata, its body and the digest of its values."""
    names = (str(scope), thread, namespace, id, "" if parent_id is None else f"={parent_id}")
    return codec.code(*map(_bytes, names), noted, body.type.encode(), body.body, digest)


def code_of_write(codec: Codec, scope: Scope, thread: str, row: WriteRow, digest: bytes) -> bytes:
    """The code of a pending write: its place and the digest of its value."""
    names = (
        str(scope),
        thread,
        row.namespace,
        row.checkpoint_id,
        row.task_id,
        str(row.position),
        row.task_path,
        row.channel,
    )
    return codec.code(b"write", *map(_bytes, names), digest)[:16]


def sealed(seal: str, *, add: Iterable[bytes], take: Iterable[bytes]) -> str:
    """The seal of a thread after codes came and went."""
    total = int(seal or "0", 16) + sum(int.from_bytes(code, "big") for code in add)
    return f"{(total - sum(int.from_bytes(code, 'big') for code in take)) % (1 << 256):064x}"


def _bytes(name: str) -> bytes:
    return name.encode("utf-8", "surrogatepass")
