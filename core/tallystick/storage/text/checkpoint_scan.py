"""Every stored piece of checkpoints, of any scope, for searches that decompress them."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import NamedTuple

from sqlalchemy import Connection, select

from tallystick.storage.engine import containment, tables
from tallystick.storage.rows.checkpoints import thread_stream

_t, _s, _w, _sc = tables.threads, tables.thread_states, tables.thread_writes, tables.scopes
_p, _h = tables.tree_parts, tables.tree_holds
_NAMED = select(_t.c.id, _sc.c.name.label("scope"), _t.c.name).join(_sc, _sc.c.id == _t.c.scope_id)
_BATCH = 500
"""Ids in one statement."""


class ThreadName(NamedTuple):
    """A thread by its number, and as people name it."""

    id: int
    scope: str
    name: str
    stream: str
    """The name of its journal."""


class StoredState(NamedTuple):
    """The packed columns of a checkpoint."""

    thread_id: int
    metadata: bytes
    state: bytes


def states(connection: Connection) -> Iterator[StoredState]:
    """Yield every checkpoint."""
    for row in connection.execute(select(_s.c.thread_id, _s.c.metadata, _s.c.state)):
        yield StoredState(row.thread_id, bytes(row.metadata), bytes(row.state))


def write_values(connection: Connection) -> Iterator[tuple[int, bytes]]:
    """Yield the thread and the value of every pending write."""
    for row in connection.execute(select(_w.c.thread_id, _w.c.value)):
        yield row.thread_id, bytes(row.value)


def chunk_bodies(connection: Connection) -> Iterator[tuple[int, bytes]]:
    """Yield the id and the body of every chunk."""
    for row in connection.execute(select(_p.c.id, _p.c.body)):
        yield row.id, bytes(row.body)


def holders(connection: Connection, chunk_ids: Sequence[int]) -> set[int]:
    """Return the threads that hold one of these chunks."""
    threads: set[int] = set()
    for start in range(0, len(chunk_ids), _BATCH):
        query = select(_h.c.thread_id).where(_h.c.part_id.in_(chunk_ids[start : start + _BATCH]))
        threads.update(connection.execute(query).scalars())
    return threads


def find_thread_ids(connection: Connection, needles: Sequence[bytes]) -> set[int]:
    """Return the threads of which the name, or a name in their checkpoints and writes, contains one
    of `needles`.
    """
    threads: set[int] = set()
    for thread_id in (_t.c.id, _s.c.thread_id, _w.c.thread_id):
        holding = containment.holds(connection, thread_id.table, needles)
        threads.update(connection.execute(select(thread_id).where(holding)).scalars())
    return threads


def names_of(connection: Connection, threads: Collection[int]) -> list[ThreadName]:
    """Return these threads with their names, oldest first."""
    if not threads:
        return []
    rows = connection.execute(_NAMED.where(_t.c.id.in_(threads)).order_by(_t.c.id))
    return [ThreadName(row.id, row.scope, row.name, thread_stream(row.id)) for row in rows]
