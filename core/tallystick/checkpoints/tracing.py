"""Which threads hold a text in their state: pieces are unfolded one by one, because they stand
compressed.
"""

from __future__ import annotations

from binascii import a2b_base64
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, select

from tallystick.checkpoints.codec import Codec
from tallystick.checkpoints.frames import unframed
from tallystick.errors import StorageError
from tallystick.storage import tables

__all__ = ["Held", "threads_holding"]

_t, _s, _w = tables.threads, tables.thread_states, tables.thread_writes
_p, _h, _sc = tables.tree_parts, tables.tree_holds, tables.scopes


@dataclass(frozen=True)
class Held:
    """The threads whose state holds what was looked for, and how much could not be read."""

    threads: tuple[tuple[int, str, str], ...]
    """(number, scope, name)."""
    sealed: int
    """Pieces that are encrypted, and so were not looked into."""


def threads_holding(connection: Connection, needles: Sequence[bytes]) -> Held:
    """Every thread, of any scope, with one of `needles` in a state, a pending write or a piece that
    it needs.
    """
    codec, sealed = Codec(b""), 0

    def has(stored: bytes, *, frame: bool = False) -> bool:
        nonlocal sealed
        try:
            content = codec.unpack(bytes(stored), sealed=False)
            pieces = [
                content,
                *(_inline(unframed(bytes(stored), codec).roots, codec) if frame else ()),
            ]
        except StorageError:
            sealed += 1
            return False
        return any(needle in piece for piece in pieces for needle in needles)

    found: set[int] = set()
    for row in connection.execute(select(_s.c.thread_id, _s.c.metadata, _s.c.state)):
        if has(row.metadata) or has(row.state, frame=True):
            found.add(row.thread_id)
    writes = connection.execute(select(_w.c.thread_id, _w.c.value))
    found.update(write.thread_id for write in writes if has(write.value))
    parts = [part.id for part in connection.execute(select(_p.c.id, _p.c.body)) if has(part.body)]
    for start in range(0, len(parts), 500):
        holding = select(_h.c.thread_id).where(_h.c.part_id.in_(parts[start : start + 500]))
        found.update(connection.execute(holding).scalars())
    named = select(_t.c.id, _sc.c.name.label("scope"), _t.c.name).join(
        _sc, _sc.c.id == _t.c.scope_id
    )
    threads = (
        connection.execute(named.where(_t.c.id.in_(found)).order_by(_t.c.id)).all() if found else []
    )
    return Held(tuple((thread.id, thread.scope, thread.name) for thread in threads), sealed)


def _inline(root: Any, codec: Codec) -> Iterator[bytes]:
    """The bytes of small values, which stand in the roots of a state. Raises StorageError where
    they are encrypted.
    """
    if isinstance(root, list) and len(root) == 3 and root[0] == "i":
        body = a2b_base64(str(root[2]))
        yield codec.unpack(body) if body[:1] == b"\x80" else body
        return
    for inner in (
        root.values() if isinstance(root, dict) else root if isinstance(root, list) else ()
    ):
        yield from _inline(inner, codec)
